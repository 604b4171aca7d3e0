//! Admission: requests are checked and get slots, one by one or gathered in a plug.

use super::exchange::DATALESS_MAX;
use super::tags::Sender;
use super::{Controller, Plug, Submission};
use crate::error::EngineError;
use crate::id::{ClientId, GroupId, RequestId};
use crate::request::{Operation, Request};
use crate::time::Instant;
use crate::trace::EventKind;
use crate::unit::Sectors;

impl Controller {
    /// Checks a request, takes a slot for it and puts it into a plug, so that [`Self::unplug`] does not refuse it. The plug
    /// must be submitted to this controller; if it is dropped, the slots are lost.
    ///
    /// # Errors
    ///
    /// As [`Self::submit`]; the request is then not in the plug.
    pub fn gather(&mut self, plug: &mut Plug, submission: Submission) -> Result<(), EngineError> {
        let group = self.reserve(&submission)?;
        plug.gathered.push((submission, Some(group)));
        Ok(())
    }
    /// Checks a request and takes a slot for it. Returns the group that holds the slot.
    pub(super) fn reserve(&mut self, submission: &Submission) -> Result<GroupId, EngineError> {
        let Submission { client, operation, start, length, .. } = *submission;
        let known = self.groups.try_client(client).ok_or(EngineError::NoClient(client))?;
        let capacity = self.setup.facts.capacity;
        let is_flush = operation == Operation::Flush;
        let end = start.0.saturating_add(length.0);
        if is_flush != (length == Sectors::ZERO) || (!is_flush && end > capacity.0) {
            return Err(EngineError::BadRange { start, length, capacity });
        }
        let longest = match operation {
            Operation::Read | Operation::Write => self.setup.facts.max_request,
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => DATALESS_MAX,
        };
        if length > longest {
            return Err(EngineError::TooLong { length, longest });
        }
        let group = known.group;
        self.slots.try_take(&self.groups, group, client)?;
        Ok(group)
    }

    /// Whether this many more requests of a client would be accepted now. False for an unknown client.
    #[must_use]
    pub fn has_room(&self, client: ClientId, requests: u32) -> bool {
        let Some(known) = self.groups.try_client(client) else { return false };
        self.slots.client_has_room(client, requests)
            && self.slots.quota.has_room(&self.groups, known.group, u64::from(requests))
    }
    /// Number of requests of one client in the engine or in a plug ([`Self::gather`]); 0 for an unknown client.
    #[must_use]
    pub fn pending_of(&self, client: ClientId) -> u32 {
        self.groups.try_client(client).map_or(0, |_| self.slots.clients[client.index()])
    }
    /// Request slots that the clients directly in one group hold; 0 for an unknown group.
    #[must_use]
    pub fn slots_of(&self, group: GroupId) -> u64 {
        self.groups.try_group(group).map_or(0, |_| self.slots.quota.held(group))
    }

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
        if let Some(passed) = &mut self.plugged.passed {
            let Request { tag, client, operation, flags, start, length, .. } = *request;
            passed.push(Submission { tag, client, operation, flags, start, length });
        }
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
    /// From now on, keeps each request that has passed all throttles, for [`Self::next_passed`].
    pub fn keep_passed(&mut self) {
        self.plugged.passed.get_or_insert_default();
    }
    /// A request that has passed all throttles, once, in no certain order. Call it until there is none after each call of
    /// [`Self::submit`], [`Self::unplug`] and [`Self::dispatch`].
    pub fn next_passed(&mut self) -> Option<Submission> {
        self.plugged.passed.as_mut()?.pop()
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
        for (sender, id) in requests.drain(..) {
            self.schedule(now, sender, id);
        }
        self.plugged.requests = requests;
    }
}
