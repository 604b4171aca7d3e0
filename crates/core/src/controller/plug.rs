//! Plugging: adjacent requests become one before the scheduler sees them.
//!
//! A client that submits several requests at once gathers them in a [`Plug`]. Each of them passes the throttles on its own, so
//! that ceilings count what the client sent. What leaves the last throttle in the same call is gathered again: a request that
//! follows the last one of its client there is merged into it, if both came in a plug. Then all of it goes to the scheduler.

use alloc::vec::Vec;

use super::tags::Sender;
use super::{Controller, Submission};
use crate::error::EngineError;
use crate::id::{ClientId, GroupId, RequestId};
use crate::time::Instant;
use crate::trace::EventKind;

/// Number of requests after which a plug must be submitted (32 in the kernel since 5.16).
pub const PLUG_MAX: usize = 32;

/// Requests that one client has gathered.
#[derive(Debug, Default)]
pub struct Plug {
    /// In order of submission, with the group that holds the request's slot if a slot was taken.
    pub(super) gathered: Vec<(Submission, Option<GroupId>)>,
    /// What the last submission admitted.
    pub(super) admitted: Vec<(u64, RequestId)>,
}

impl Plug {
    /// An empty plug.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds a request, which is checked when the plug is submitted. Returns true if the plug is full and must be submitted.
    pub fn add(&mut self, submission: Submission) -> bool {
        self.gathered.push((submission, None));
        self.is_full()
    }
    /// The requests that its last submission ([`Controller::unplug`](super::Controller::unplug)) admitted: the caller's
    /// identifiers, and the engine's.
    #[must_use]
    pub fn admitted(&self) -> &[(u64, RequestId)] {
        &self.admitted
    }
    /// Number of requests in the plug.
    #[must_use]
    pub fn len(&self) -> usize {
        self.gathered.len()
    }
    /// Whether it is full and must be submitted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.gathered.len() >= PLUG_MAX
    }
    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }
}

/// Requests that have passed the throttles in the present call.
#[derive(Debug, Default)]
pub(super) struct Plugged {
    /// In the order of their release, with who sends each to the scheduler.
    requests: Vec<(Sender, RequestId)>,
    /// By client: the last of its requests among these, if that came in a plug.
    last: Vec<Option<RequestId>>,
}

impl Plugged {
    pub(super) fn add_client(&mut self, client: ClientId) {
        let bound = self.last.len().max(client.index() + 1);
        self.last.resize(bound, None);
    }
}

impl Controller {
    /// Submits all requests of a plug. On an error, the requests that are left in the plug were not submitted. A plug that was
    /// filled only by [`Self::gather`] is never refused.
    ///
    /// # Errors
    ///
    /// As [`Self::submit`], for the first request that is left in the plug.
    pub fn unplug(&mut self, now: Instant, plug: &mut Plug) -> Result<(), EngineError> {
        let now = self.present(now);
        let mut result = Ok(());
        let mut taken = 0;
        plug.admitted.clear();
        for (submission, group) in &plug.gathered {
            let group = match group.map_or_else(|| self.reserve(submission), Ok) {
                Ok(group) => group,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            let id = self.admit(now, submission, group);
            self.requests.set_plugged(id);
            plug.admitted.push((submission.tag, id));
            taken += 1;
            self.start_admitted(now, id);
        }
        plug.gathered.drain(..taken);
        self.send_plugged(now);
        result
    }

    /// A request has passed all throttles: merges it into the one before it, or keeps it until [`Self::send_plugged`].
    pub(super) fn plug(&mut self, now: Instant, sender: Sender, id: RequestId) {
        let request = &mut self.requests[id];
        request.asked_tag = now;
        let client = request.client.index();
        let max = self.setup.facts.max_request;
        let last = self.plugged.last[client].filter(|_| self.requests.is_plugged(id));
        match last.filter(|last| self.requests.can_merge(*last, id, max)) {
            Some(into) => {
                self.requests.merge_back(into, id);
                self.note(now, id, EventKind::Merged { into });
                self.per_client[client].merged += 1;
            }
            None => {
                self.plugged.last[client] = Some(id).filter(|id| self.requests.is_plugged(*id));
                self.plugged.requests.push((sender, id));
            }
        }
    }
    /// Gives the scheduler what has passed the throttles.
    pub(super) fn send_plugged(&mut self, now: Instant) {
        if self.plugged.requests.is_empty() {
            return;
        }
        let mut requests = core::mem::take(&mut self.plugged.requests);
        for (_, id) in &requests {
            self.plugged.last[self.requests[*id].client.index()] = None;
        }
        for sent in requests.drain(..) {
            self.schedule(now, sent);
        }
        self.plugged.requests = requests;
    }
}
