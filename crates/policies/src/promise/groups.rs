//! The tree of groups and clients: changes of contracts, and the clocks that a client's requests count for.

use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::group::Groups;
use iofair_core::id::{ClientId, GroupId};
use iofair_core::minimum::Minimum;
use iofair_core::policy::Context;
use iofair_core::priority::Class;

use super::Promise;
use super::clock::Clocks;
use super::shares::EntityId;

/// The class of a group's minimum: the least urgent class of the group and all groups above it.
pub(super) fn class_of(groups: &Groups, id: GroupId) -> Class {
    let above = groups.ancestry(id).map(|id| groups.group(id).contract.class);
    above.max().unwrap_or_default()
}

impl Promise {
    /// The groups with a minimum that contain a client.
    pub(super) fn clocks_above(
        &self,
        client: EntityId,
    ) -> impl Iterator<Item = EntityId> + use<'_> {
        let first = if self.clocks.are_none() { None } else { self.shares.parent(client) };
        let up = core::iter::successors(first, |id| self.shares.parent(*id));
        up.filter(|id| self.clocks.has_minimum(*id))
    }
    /// Calls `each` for each group that contains a client, except the root, which has no minimum.
    #[inline(never)]
    pub(super) fn each_clock(
        &mut self,
        client: EntityId,
        mut each: impl FnMut(&mut Clocks, EntityId),
    ) {
        let mut at = self.shares.parent(client);
        while let Some(id) = at.filter(|id| *id != EntityId::ROOT) {
            each(&mut self.clocks, id);
            at = self.shares.parent(id);
        }
    }

    /// Adds a group, or applies its changed contract.
    pub(super) fn set_group(&mut self, cx: &Context<'_>, id: GroupId) {
        let (group, entity) = (cx.groups.group(id), EntityId::group(id));
        if group.contract.latency.is_some() {
            self.latencies = true;
            self.drive.keep_pieces();
        }
        let counts = self.groups && group.parent.is_some();
        let minimum = if counts { group.contract.minimum() } else { Minimum::NONE };
        if minimum.is_some() {
            self.count_requests();
        }
        self.clocks.set(cx.now, entity, minimum, class_of(cx.groups, id));
        if let Some(parent) = group.parent.filter(|_| self.groups) {
            let parent = EntityId::group(parent);
            self.shares.set(entity, parent, group.contract.weight, group.contract.class);
        }
    }
    /// Starts counting requests by group, if that has not begun.
    fn count_requests(&mut self) {
        if core::mem::replace(&mut self.counts, true) {
            return;
        }
        for index in 0..self.clients.len() {
            let requests = self.clients[index].requests;
            let client = EntityId::client(ClientId::from_bits(index as u64));
            self.each_clock(client, |clocks, group| clocks.move_requests(group, requests, true));
        }
    }
    /// Applies the changed contract of a group, and the class that it passes on to groups inside.
    pub(super) fn update_group(&mut self, cx: &Context<'_>, id: GroupId) {
        let entity = EntityId::group(id);
        let before = self.clocks.class(entity);
        self.set_group(cx, id);
        // A changed class may change the classes of the groups inside.
        if self.clocks.class(entity) != before {
            for child in &cx.groups.group(id).children {
                self.update_group(cx, *child);
            }
        }
    }
    /// Adds a client, or moves it with its requests to another group or class.
    pub(super) fn set_client(&mut self, cx: &Context<'_>, id: ClientId) {
        let client = cx.groups.client(id);
        let group = if self.groups { client.group } else { GroupId::ROOT };
        let entity = EntityId::client(id);
        let requests = self.clients[id.index()].requests;
        if self.counts {
            self.each_clock(entity, |clocks, group| clocks.move_requests(group, requests, false));
        }
        self.shares.set(entity, EntityId::group(group), WEIGHT_DEFAULT, client.priority.class);
        if self.counts {
            self.each_clock(entity, |clocks, group| clocks.move_requests(group, requests, true));
        }
    }
}
