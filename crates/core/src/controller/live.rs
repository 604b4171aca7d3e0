//! Changes of groups, clients and contracts while requests are in flight.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Context, Controller, context};
use crate::bounds::DEPTH_MAX;
use crate::contract::Contract;
use crate::error::EngineError;
use crate::group::{Change, Client};
use crate::id::{ClientId, GroupId};
use crate::priority::Priority;
use crate::stats::counters::Counters;
use crate::time::Instant;
use crate::unit::Sectors;

/// Checks that a path has non-empty components, and not too many.
fn check_path(path: &str) -> Result<(), EngineError> {
    if path.split('/').any(str::is_empty) {
        return Err(EngineError::BadName(path.to_string()));
    }
    if path.split('/').count() > DEPTH_MAX {
        return Err(EngineError::TooDeep(path.to_string()));
    }
    Ok(())
}

impl Controller {
    fn tell(&mut self, now: Instant, change: Change) {
        for stage in 0..self.throttles.len() {
            self.throttles[stage].change(&mut context!(self, now), change);
        }
        self.scheduler.change(&mut context!(self, now), change);
    }
    /// Notifies new policies of all groups and clients.
    pub(super) fn tell_everything(&mut self, now: Instant) {
        let mut order: Vec<GroupId> = alloc::vec![GroupId::ROOT];
        let mut next = 0;
        while let Some(id) = order.get(next) {
            order.extend_from_slice(&self.groups.group(*id).children.clone());
            next += 1;
        }
        for id in order {
            self.tell(now, Change::GroupAdded(id));
        }
        let clients: Vec<ClientId> = self.groups.iter_clients().map(|(id, _)| id).collect();
        for id in clients {
            self.tell(now, Change::ClientAdded(id));
        }
    }

    /// Adds a group by its path. Missing parent groups are added with the default contract.
    ///
    /// # Errors
    ///
    /// [`EngineError::BadName`], [`EngineError::TooDeep`], [`EngineError::Exists`], or what [`Contract::check`] returns.
    pub fn add_group(
        &mut self,
        now: Instant,
        path: &str,
        contract: Contract,
    ) -> Result<GroupId, EngineError> {
        check_path(path)?;
        contract.check()?;
        if self.groups.find(path).is_some() {
            return Err(EngineError::Exists(path.to_string()));
        }
        let parent = match path.rsplit_once('/') {
            None => GroupId::ROOT,
            Some((above, _)) => match self.groups.find(above) {
                Some(id) => id,
                None => self.add_group(now, above, Contract::default())?,
            },
        };
        self.add_group_under(now, path, parent, contract)
    }
    /// Adds a group under an existing parent; `path` is the whole path of the new group.
    ///
    /// # Errors
    ///
    /// As [`Self::add_group`], and [`EngineError::NoGroup`] if there is no such parent.
    pub fn add_group_under(
        &mut self,
        now: Instant,
        path: &str,
        parent: GroupId,
        contract: Contract,
    ) -> Result<GroupId, EngineError> {
        check_path(path)?;
        contract.check()?;
        self.known_group(parent)?;
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        if self.groups.group(parent).name != above {
            return Err(EngineError::BadName(path.to_string()));
        }
        if self.groups.find(path).is_some() {
            return Err(EngineError::Exists(path.to_string()));
        }
        let now = self.present(now);
        let id = self.groups.add_group(path, parent, contract);
        self.slots.add_group(id);
        self.tell(now, Change::GroupAdded(id));
        Ok(id)
    }
    /// Replaces the contract of a group.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoGroup`], or what [`Contract::check`] returns.
    pub fn update_group(
        &mut self,
        now: Instant,
        id: GroupId,
        contract: Contract,
    ) -> Result<(), EngineError> {
        contract.check()?;
        self.known_group(id)?;
        let now = self.present(now);
        self.groups.group_mut(id).contract = contract;
        self.tell(now, Change::GroupUpdated(id));
        Ok(())
    }
    /// Removes a group that contains no groups, clients or requests.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoGroup`]; [`EngineError::Busy`] if it holds groups, clients or requests, or is the root.
    pub fn remove_group(&mut self, now: Instant, id: GroupId) -> Result<(), EngineError> {
        self.known_group(id)?;
        let group = self.groups.group(id);
        let busy = group.clients > 0 || !group.children.is_empty() || id == GroupId::ROOT;
        if busy || self.slots.has_group(id) {
            return Err(EngineError::Busy(group.name.clone()));
        }
        let now = self.present(now);
        self.tell(now, Change::GroupRemoved(id));
        self.groups.remove_group(id);
        Ok(())
    }
    fn known_group(&self, id: GroupId) -> Result<(), EngineError> {
        self.groups.try_group(id).map(|_| ()).ok_or(EngineError::NoGroup(id))
    }
    fn known_client(&self, id: ClientId) -> Result<(), EngineError> {
        self.groups.try_client(id).map(|_| ()).ok_or(EngineError::NoClient(id))
    }

    /// Adds a client to a group.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoGroup`] or [`EngineError::BadLevel`].
    pub fn add_client(
        &mut self,
        now: Instant,
        group: GroupId,
        priority: Priority,
    ) -> Result<ClientId, EngineError> {
        self.known_group(group)?;
        priority.check()?;
        let now = self.present(now);
        let id = self.groups.add_client(Client { group, priority });
        if id.index() >= self.per_client.len() {
            self.per_client.resize(id.index() + 1, Counters::default());
            self.positions.resize(id.index() + 1, Sectors::ZERO);
            self.throttled.resize(id.index() + 1, 0);
        }
        self.per_client[id.index()] = Counters::default();
        self.positions[id.index()] = Sectors::ZERO;
        self.tags.add_client(id);
        self.plugged.add_client(id);
        self.slots.add_client(id);
        self.tell(now, Change::ClientAdded(id));
        Ok(id)
    }
    /// Changes the group and the priority of a client. Requests that were submitted earlier keep the old ones.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoClient`], [`EngineError::NoGroup`] or [`EngineError::BadLevel`].
    pub fn update_client(
        &mut self,
        now: Instant,
        id: ClientId,
        group: GroupId,
        priority: Priority,
    ) -> Result<(), EngineError> {
        self.known_client(id)?;
        self.known_group(group)?;
        priority.check()?;
        let now = self.present(now);
        self.groups.update_client(id, Client { group, priority });
        self.tell(now, Change::ClientUpdated(id));
        Ok(())
    }
    /// Removes a client that has no pending requests.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoClient`]; [`EngineError::Busy`] if it has requests.
    pub fn remove_client(&mut self, now: Instant, id: ClientId) -> Result<(), EngineError> {
        self.known_client(id)?;
        if self.slots.has_client(id) {
            return Err(EngineError::Busy(alloc::format!("client {}", id.index())));
        }
        let now = self.present(now);
        self.tell(now, Change::ClientRemoved(id));
        self.groups.remove_client(id);
        Ok(())
    }

    /// Limits the requests that the scheduler and the drive have together to `tags`, at least 1.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoTags`] if `tags` is zero.
    pub fn set_tags(&mut self, tags: u32) -> Result<(), EngineError> {
        if tags == 0 {
            return Err(EngineError::NoTags);
        }
        self.setup.tags = tags;
        self.tags.set_total(tags);
        Ok(())
    }
}
