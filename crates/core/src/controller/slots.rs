//! Request slots: who may bring one more request in, and who has how many inside.
//!
//! Every submission inside holds one slot of its group from admission (or [`Controller::gather`]) to completion, also
//! where it was merged into another one. So the slots of one group tell whether the group has requests.

use alloc::vec::Vec;

use super::{Controller, DATALESS_MAX, Plug, Setup, Submission};
use crate::error::EngineError;
use crate::group::{ClientId, GroupId, Groups};
use crate::quota::{Limits, Quota};
use crate::request::{Operation, Request};
use crate::unit::Sectors;

/// Slots by group and by client.
#[derive(Debug)]
pub(super) struct Slots {
    quota: Quota,
    /// By client: slots that it holds.
    clients: Vec<u32>,
}

impl Slots {
    pub(super) fn new(setup: &Setup) -> Self {
        let (guaranteed, shared) = (setup.guaranteed as u64, setup.queue_limit as u64);
        Self { quota: Quota::new(Limits { guaranteed, shared }), clients: Vec::new() }
    }
    pub(super) fn add_group(&mut self, group: GroupId) {
        self.quota.add_group(group);
    }
    pub(super) fn add_client(&mut self, client: ClientId) {
        let bound = self.clients.len().max(client.index() + 1);
        self.clients.resize(bound, 0);
    }
    pub(super) fn has_group(&self, group: GroupId) -> bool {
        self.quota.held(group) > 0
    }
    pub(super) fn has_client(&self, client: ClientId) -> bool {
        self.clients[client.index()] > 0
    }
    fn try_take(&mut self, groups: &Groups, group: GroupId, client: ClientId) -> bool {
        let granted = self.quota.try_take(groups, group, 1);
        self.clients[client.index()] += u32::from(granted);
        granted
    }
    /// A submission was completed.
    pub(super) fn give(&mut self, request: &Request) {
        self.quota.give(request.group, 1);
        self.clients[request.client.index()] -= 1;
    }
}

impl Controller {
    /// Checks a submission, takes its request slot and puts it into a plug, so that [`Self::unplug`] will not refuse
    /// it. Such a plug must be submitted to this controller; dropping it loses the slots.
    ///
    /// # Errors
    ///
    /// As [`Self::submit`]; the submission is not in the plug then.
    pub fn gather(&mut self, plug: &mut Plug, submission: Submission) -> Result<(), EngineError> {
        let group = self.reserve(&submission)?;
        plug.gathered.push((submission, Some(group)));
        Ok(())
    }
    /// Checks a submission and takes a request slot for it; says which group holds the slot.
    pub(super) fn reserve(&mut self, submission: &Submission) -> Result<GroupId, EngineError> {
        let Submission { client, operation, start, length, .. } = *submission;
        let known = self.groups.try_client(client).ok_or(EngineError::NoClient(client))?;
        let capacity = self.setup.facts.capacity;
        let is_flush = operation == Operation::Flush;
        let end = start.0.saturating_add(length.0);
        if is_flush != (length == Sectors::ZERO) || end > capacity.0 {
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
        if self.slots.try_take(&self.groups, group, client) {
            Ok(group)
        } else {
            Err(EngineError::Full(group))
        }
    }

    /// May a client bring this many more requests in at once? False for an unknown client.
    #[must_use]
    pub fn has_room(&self, client: ClientId, requests: u32) -> bool {
        let client = self.groups.try_client(client);
        let quota = &self.slots.quota;
        client.is_some_and(|it| quota.has_room(&self.groups, it.group, u64::from(requests)))
    }
    /// Submissions of one client inside or in a plug ([`Self::gather`]).
    #[must_use]
    pub fn pending_of(&self, client: ClientId) -> u32 {
        self.slots.clients.get(client.index()).copied().unwrap_or(0)
    }
    /// Request slots that the clients directly in one group hold.
    #[must_use]
    pub fn slots_of(&self, group: GroupId) -> u64 {
        self.slots.quota.held(group)
    }
}
