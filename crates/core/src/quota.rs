//! Quota: divides a countable resource (request slots, bytes of memory, connections) over the tree of groups.
//!
//! Dynamic thresholds (Choudhury and Hahne, 1998, for shared-memory switches), with a guarantee. Each group may
//! always hold [`Limits::guaranteed`] units for its own clients. This part lies outside the shared pool, so no
//! other group can use it up. What a group holds beyond its guarantee comes from the pool of
//! [`Limits::shared`] units, in proportion to what is free there:
//!
//! ```text
//! threshold(group) = weight(group) / 100 * free(parent)        used(group) + n <= threshold(group)
//! free(root)  = shared - used(root)                             on every level from the group to the root
//! free(group) = threshold(group) - used(group)                  used: units of the pool, groups below included
//! ```
//!
//! A greedy group of weight `w` that is alone takes `w / (w + 100)` of the pool and leaves the rest as a reserve
//! for those that come later; greedy siblings hold units in proportion to their weights. Nothing is ever taken
//! back: a group above its threshold is refused until it has given back enough. The clients directly in a group
//! that also has child groups (and those of the root) count as one more child, of weight 100.
//!
//! A group that holds nothing of the pool may take whatever fits into it. Without this rule a take that is larger
//! than the guarantee and than every threshold would never be granted. Keep single takes small against the pool.
//!
//! Bound: `guaranteed * groups that hold something + shared` ([`Limits::bound`]). With 10,000 groups, 16
//! guaranteed slots and a pool of 16,384 that is 176,384 slots, of which a slot costs memory only once it is used.
//!
//! Every call is O(depth of the group). Memory grows with the largest group id seen, never with use. Callers are
//! the controller (request slots) and the server (memory, connections).

use alloc::vec::Vec;

use crate::bounds::WEIGHT_DEFAULT;
use crate::group::Groups;
use crate::id::GroupId;

/// How much there is to divide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Units that each group may hold whatever the others hold.
    pub guaranteed: u64,
    /// Units that all groups share beyond their guarantees.
    pub shared: u64,
}

impl Limits {
    /// Most units that this many groups can hold together.
    #[must_use]
    pub fn bound(&self, groups: u64) -> u64 {
        self.guaranteed.saturating_mul(groups).saturating_add(self.shared)
    }
}

/// What one group holds.
#[derive(Clone, Copy, Default, Debug)]
struct Usage {
    /// Units of the group's own clients.
    own: u64,
    /// Units of the shared pool that the group and all groups below it hold.
    shared: u64,
    /// Where `shared` is counted too; recorded when the group starts to hold something.
    parent: Option<GroupId>,
}

/// A resource and who holds how much of it.
///
/// ```
/// use iofair_core::group::Groups;
/// use iofair_core::id::GroupId;
/// use iofair_core::quota::{Limits, Quota};
///
/// let groups = Groups::new();
/// let mut slots = Quota::new(Limits { guaranteed: 2, shared: 4 });
/// assert!(slots.try_take(&groups, GroupId::ROOT, 2), "guaranteed");
/// assert!(!slots.try_take(&groups, GroupId::ROOT, 5), "more than is shared");
/// slots.give(GroupId::ROOT, 2);
/// assert_eq!(slots.held_by_all(), 0);
/// ```
#[derive(Debug)]
pub struct Quota {
    limits: Limits,
    /// By group; missing entries hold nothing.
    usage: Vec<Usage>,
    held: u64,
}

impl Quota {
    /// Nothing is held yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, usage: alloc::vec![Usage::default()], held: 0 }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }
    /// Units that the clients directly in a group hold.
    #[must_use]
    pub fn held(&self, group: GroupId) -> u64 {
        self.usage(group.index()).own
    }
    /// Units that all groups hold together.
    #[must_use]
    pub fn held_by_all(&self) -> u64 {
        self.held
    }
    /// Units of the shared pool that a group and the groups below it hold.
    #[must_use]
    pub fn shared(&self, group: GroupId) -> u64 {
        self.usage(group.index()).shared
    }

    /// May the group take `count` more units now? Refusals end when units are given back, or when weights or
    /// limits change.
    #[must_use]
    pub fn has_room(&self, groups: &Groups, group: GroupId, count: u64) -> bool {
        self.room(groups, group, count).is_some()
    }
    /// Takes `count` units for a group, or refuses and changes nothing.
    ///
    /// # Panics
    ///
    /// If the group does not exist, or if its id belonged to a group that was removed while it held units.
    #[must_use = "a refused group has taken nothing"]
    pub fn try_take(&mut self, groups: &Groups, group: GroupId, count: u64) -> bool {
        let Some(from_pool) = self.room(groups, group, count) else { return false };
        let parent = groups.group(group).parent;
        match self.usage.get(group.index()) {
            Some(usage) if usage.own > 0 => {
                assert!(usage.parent == parent, "{group:?} was removed while it held units");
            }
            _ => self.record_path(groups, group),
        }
        self.usage[group.index()].own += count;
        self.held += count;
        if from_pool > 0 {
            self.each_above(group.index(), |usage| usage.shared += from_pool);
        }
        true
    }
    /// Gives `count` units back that the group took.
    ///
    /// # Panics
    ///
    /// If the group holds fewer units.
    pub fn give(&mut self, group: GroupId, count: u64) {
        let before = self.held(group);
        assert!(before >= count, "{group:?} gives back {count} of {before}");
        if count == 0 {
            return;
        }
        self.usage[group.index()].own -= count;
        self.held -= count;
        let given = self.beyond(before) - self.beyond(before - count);
        if given > 0 {
            self.each_above(group.index(), |usage| usage.shared -= given);
        }
    }
    /// Makes room for a group's entry, so that its first take allocates nothing.
    pub fn add_group(&mut self, group: GroupId) {
        if group.index() >= self.usage.len() {
            self.usage.resize(group.index() + 1, Usage::default());
        }
    }
    /// Sets other limits. Groups keep what they hold, also where that is more than they could take now. Visits
    /// every group.
    pub fn resize(&mut self, limits: Limits) {
        self.limits = limits;
        for usage in &mut self.usage {
            usage.shared = 0;
        }
        for index in 0..self.usage.len() {
            let beyond = self.beyond(self.usage[index].own);
            if beyond > 0 {
                self.each_above(index, |usage| usage.shared += beyond);
            }
        }
    }

    fn usage(&self, index: usize) -> Usage {
        self.usage.get(index).copied().unwrap_or_default()
    }
    /// The part of `own` units that the guarantee does not cover.
    fn beyond(&self, own: u64) -> u64 {
        own.saturating_sub(self.limits.guaranteed)
    }
    /// The part of `count` more units that comes from the pool, if the group may take them.
    fn room(&self, groups: &Groups, group: GroupId, count: u64) -> Option<u64> {
        let own = self.usage(group.index()).own;
        let from_pool = self.beyond(own.checked_add(count)?) - self.beyond(own);
        (from_pool == 0 || self.pool_has_room(groups, group, from_pool)).then_some(from_pool)
    }
    /// A group starts to hold something: where that counts, which cannot change until it holds nothing.
    fn record_path(&mut self, groups: &Groups, group: GroupId) {
        let mut next = Some(group);
        while let Some(id) = next {
            self.add_group(id);
            next = groups.group(id).parent;
            self.usage[id.index()].parent = next;
        }
    }
    /// Calls `each` for the group with this index and for all above it, as recorded when they started to hold something.
    fn each_above(&mut self, index: usize, mut each: impl FnMut(&mut Usage)) {
        let mut next = Some(index);
        while let Some(index) = next {
            let usage = &mut self.usage[index];
            each(usage);
            next = usage.parent.map(GroupId::index);
        }
    }

    fn pool_has_room(&self, groups: &Groups, group: GroupId, count: u64) -> bool {
        let free_in_pool = self.limits.shared.saturating_sub(self.shared(GroupId::ROOT));
        if count > free_in_pool {
            return false;
        }
        let Some(free) = self.free_for(groups, group, count) else { return false };
        let own = self.beyond(self.usage(group.index()).own);
        let has_siblings = group == GroupId::ROOT || !groups.group(group).children.is_empty();
        !has_siblings || own == 0 || fits(own, count, threshold(WEIGHT_DEFAULT, free))
    }
    /// What is free in this group for those inside, if `count` more units fit on this level and all above it.
    fn free_for(&self, groups: &Groups, group: GroupId, count: u64) -> Option<u64> {
        let known = groups.group(group);
        let used = self.shared(group);
        let Some(parent) = known.parent else {
            return Some(self.limits.shared.saturating_sub(used));
        };
        let threshold = threshold(known.contract.weight, self.free_for(groups, parent, count)?);
        let may = used == 0 || fits(used, count, threshold);
        may.then(|| threshold.saturating_sub(used))
    }
}

fn fits(used: u64, count: u64, threshold: u64) -> bool {
    used.checked_add(count).is_some_and(|after| after <= threshold)
}

/// `free * weight / 100`, rounded down.
fn threshold(weight: u32, free: u64) -> u64 {
    let product = u128::from(free) * u128::from(weight) / u128::from(WEIGHT_DEFAULT);
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
