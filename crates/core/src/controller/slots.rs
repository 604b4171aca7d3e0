//! Request slots, which bound the number of requests of each group and of each client.
//!
//! Every request holds one slot of its group from admission (or [`Controller::gather`](super::Controller::gather)) to
//! completion, also if it was merged into another one. Groups share slots by weight ([`crate::quota`]); a client may hold
//! at most [`Setup::client_limit`] of them.

use alloc::vec::Vec;

use super::exchange::Setup;
use crate::error::EngineError;
use crate::group::Groups;
use crate::id::{ClientId, GroupId};
use crate::quota::{Limits, Quota};
use crate::request::Request;

/// Slots by group and by client.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) quota: Quota,
    /// By client: slots that it holds.
    pub(super) clients: Vec<u32>,
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
    pub(super) fn client_has_room(&self, client: ClientId, count: u32) -> bool {
        let held = self.clients[client.index()];
        held.checked_add(count).is_some_and(|after| after <= self.client_limit)
    }
    pub(super) fn try_take(
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
