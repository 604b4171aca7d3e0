//! Volumes and their connections as front ends see them, and the client that opens one.

use std::collections::BTreeMap;

use iofair_config::contracts::Entry;
use iofair_core::group::Groups;
use iofair_core::id::GroupId;
use iofair_core::quota::{Limits, Quota};

/// Connections that a group is guaranteed at most, out of those that there may be.
const GUARANTEED_MAX: u64 = 16;

/// A volume as clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The owner's id for it, returned when a client chooses it.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether the drive is rotational.
    pub rotational: bool,
    /// The clients that may open it.
    pub entry: Entry,
    /// Number of NBD connections to it.
    pub connections: u32,
}

/// How a client is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// Over a Unix socket, with this user id.
    Unix(u32),
    /// Over TCP.
    Tcp,
}

/// All exports, by id and by name, and their numbers of connections.
///
/// A connection counts for its volume, for every group with a limit above it, and in total. Groups share connections
/// by weight ([`Quota`]): clients of one group cannot take the connections that others are guaranteed. If only one
/// group has volumes, it has all connections.
#[derive(Debug)]
pub struct Exports {
    /// In the order of their ids.
    list: Vec<Export>,
    /// The group of each, in the same order.
    groups: Vec<GroupId>,
    ids: BTreeMap<String, u32>,
    limit: u32,
    quota: Quota,
    /// Connections of groups with a limit, those of groups in them included.
    by_group: BTreeMap<String, u32>,
    /// Connections that exports still have which are not offered any more, and may be again.
    retired: BTreeMap<u32, u32>,
}

/// Exports as they are offered to a client, with the groups that share their connections.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The exports.
    pub exports: &'a Exports,
    /// The groups.
    pub groups: &'a Groups,
}

impl Exports {
    /// Without exports, and with this limit on connections.
    pub fn new(limit: u32) -> Self {
        let (list, groups, ids, by_group) =
            (Vec::new(), Vec::new(), BTreeMap::new(), BTreeMap::new());
        let quota = Quota::new(limits(limit, 0));
        Self { list, groups, ids, limit, quota, by_group, retired: BTreeMap::new() }
    }
    /// Replaces all exports, in the order of their ids, with their groups. Existing connections are kept.
    pub fn set(&mut self, limit: u32, offered: Vec<(Export, GroupId)>, groups: &Groups) {
        let old = std::mem::take(&mut self.list);
        let mut with_volumes: Vec<GroupId> = offered.iter().map(|(_, group)| *group).collect();
        (self.list, self.groups) = offered.into_iter().unzip();
        with_volumes.sort_unstable();
        with_volumes.dedup();
        self.ids = self.list.iter().map(|export| (export.name.clone(), export.id)).collect();
        (self.limit, self.quota) = (limit, Quota::new(limits(limit, with_volumes.len() as u64)));
        self.by_group.clear();
        for export in &mut self.list {
            export.connections = 0;
        }
        let retired = std::mem::take(&mut self.retired);
        let before = old.into_iter().map(|export| (export.id, export.connections)).chain(retired);
        for (id, connections) in before.filter(|(_, connections)| *connections > 0) {
            match self.index(id) {
                Some(_) => (0..connections).for_each(|_| self.enter(id, groups)),
                None => drop(self.retired.insert(id, connections)),
            }
        }
    }
    /// The export with this name.
    pub fn find(&self, name: &str) -> Option<&Export> {
        self.get(*self.ids.get(name)?)
    }
    /// The export with this id.
    pub fn get(&self, id: u32) -> Option<&Export> {
        self.index(id).map(|index| &self.list[index])
    }
    fn index(&self, id: u32) -> Option<usize> {
        self.list.binary_search_by_key(&id, |export| export.id).ok()
    }
    /// All exports from an id on, in the order of their ids.
    pub(crate) fn starting_at(&self, id: u32) -> &[Export] {
        &self.list[self.list.partition_point(|export| export.id < id)..]
    }
    /// Records that a client opened an export.
    pub fn enter(&mut self, id: u32, groups: &Groups) {
        let Some(index) = self.index(id) else { return };
        let Self { list, by_group, quota, .. } = self;
        list[index].connections += 1;
        for (name, _) in &list[index].entry.groups {
            match by_group.get_mut(name) {
                Some(connections) => *connections += 1,
                None => drop(by_group.insert(name.clone(), 1)),
            }
        }
        // After a reload there may be more than it would get now; those are not counted twice.
        let _ = quota.try_take(groups, self.groups[index], 1);
    }
    /// Records that a client closed an export.
    pub fn leave(&mut self, id: u32) {
        let Some(index) = self.index(id) else {
            self.retired.entry(id).and_modify(|connections| *connections -= 1);
            self.retired.retain(|_, connections| *connections > 0);
            return;
        };
        let Self { list, by_group, quota, groups, .. } = self;
        list[index].connections -= 1;
        for (name, _) in &list[index].entry.groups {
            if let Some(connections) = by_group.get_mut(name) {
                *connections -= 1;
            }
        }
        quota.give(groups[index], quota.held(groups[index]).min(1));
    }
}

impl Default for Exports {
    fn default() -> Self {
        Self::new(u32::MAX)
    }
}

impl From<Vec<Export>> for Exports {
    /// These, in the order of their ids, all in the root.
    fn from(list: Vec<Export>) -> Self {
        let mut exports = Self::default();
        let offered = list.into_iter().map(|export| (export, GroupId::ROOT)).collect();
        exports.set(u32::MAX, offered, &Groups::new());
        exports
    }
}

impl Offer<'_> {
    /// Whether there is no room for another connection to an export.
    pub fn is_full(&self, export: &Export) -> bool {
        let Exports { limit, quota, by_group, groups, .. } = self.exports;
        let Entry { connections, groups: limited, .. } = &export.entry;
        let held = |name: &String| by_group.get(name).copied().unwrap_or(0);
        let group = self.exports.index(export.id).map_or(GroupId::ROOT, |index| groups[index]);
        export.connections >= *connections
            || limited.iter().any(|(name, most)| held(name) >= *most)
            || quota.held_by_all() >= u64::from(*limit)
            || !quota.has_room(self.groups, group, 1)
    }
}

/// How this many connections are divided over this many groups with volumes.
fn limits(connections: u32, groups: u64) -> Limits {
    let connections = u64::from(connections);
    if groups <= 1 {
        return Limits { guaranteed: connections, shared: 0 };
    }
    let guaranteed = (connections / (2 * groups)).clamp(1, GUARANTEED_MAX);
    Limits { guaranteed, shared: connections.saturating_sub(guaranteed * groups) }
}

#[cfg(test)]
mod tests;
