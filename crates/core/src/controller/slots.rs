//! Request slots, which bound the number of requests of each group and of each client.
//!
//! Every request holds one slot of its group from admission (or [`Controller::gather`]) to completion, also if it was
//! merged into another one. Groups share slots by weight ([`crate::quota`]); a client may hold at most
//! [`Setup::client_limit`] of them.

use alloc::vec::Vec;

use super::{Controller, DATALESS_MAX, Plug, Setup, Submission};
use crate::error::EngineError;
use crate::group::Groups;
use crate::id::{ClientId, GroupId};
use crate::quota::{Limits, Quota};
use crate::request::{Operation, Request};
use crate::unit::Sectors;

/// Slots by group and by client.
#[derive(Debug)]
pub(super) struct Slots {
    quota: Quota,
    /// By client: slots that it holds.
    clients: Vec<u32>,
    /// Maximum for each client.
    client_limit: u32,
}

impl Slots {
    pub(super) fn new(setup: &Setup) -> Self {
        let (guaranteed, shared) = (setup.guaranteed as u64, setup.queue_limit as u64);
        let quota = Quota::new(Limits { guaranteed, shared });
        Self { quota, clients: Vec::new(), client_limit: setup.client_limit }
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
    /// Whether the client may hold `count` more slots.
    fn client_has_room(&self, client: ClientId, count: u32) -> bool {
        let held = self.clients[client.index()];
        held.checked_add(count).is_some_and(|after| after <= self.client_limit)
    }
    fn try_take(
        &mut self,
        groups: &Groups,
        group: GroupId,
        client: ClientId,
    ) -> Result<(), EngineError> {
        if !self.client_has_room(client, 1) {
            return Err(EngineError::ClientFull { client, limit: self.client_limit });
        }
        if !self.quota.try_take(groups, group, 1) {
            return Err(EngineError::Full(group));
        }
        self.clients[client.index()] += 1;
        Ok(())
    }
    /// Gives back the slot of a completed request.
    pub(super) fn give(&mut self, request: &Request) {
        self.quota.give(request.group, 1);
        self.clients[request.client.index()] -= 1;
    }
}

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
}
