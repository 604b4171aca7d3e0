//! Plugging: adjacent requests become one before the scheduler sees them.
//!
//! A client that submits several requests at once gathers them in a [`Plug`]. Each of them passes the throttles on its own, so
//! that ceilings count what the client sent. What leaves the last throttle in the same call is gathered again: a request that
//! follows the last one of its client there is merged into it, if both came in a plug. Then all of it goes to the scheduler.

use alloc::vec::Vec;

use super::exchange::Submission;
use super::tags::Sender;
use crate::id::{ClientId, GroupId, RequestId};

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
    pub(super) requests: Vec<(Sender, RequestId)>,
    /// By client: the last of its requests among these, if that came in a plug.
    pub(super) last: Vec<Option<RequestId>>,
    /// Requests that have passed, if the caller wants to know ([`Controller::keep_passed`](super::Controller::keep_passed)).
    pub(super) passed: Option<Vec<Submission>>,
}

impl Plugged {
    pub(super) fn add_client(&mut self, client: ClientId) {
        let bound = self.last.len().max(client.index() + 1);
        self.last.resize(bound, None);
    }
}
