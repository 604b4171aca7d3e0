//! Groups: whose turn it is, and what a turn costs.
//!
//! A group with queues stands in one tree by its virtual time. A turn costs the time that it took over
//! the group's fraction of the drive: its part among its siblings that have something to do, times its
//! parent's, and so on to the root. A group's own clients compete with the groups in it, as if they were
//! one more of weight `leaf_weight`. Fractions are made when a group enters the tree, and at each charge.

use iofair_core::group::Groups;
use iofair_core::id::GroupId;
use iofair_core::policy::Context;
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::ewma::Pauses;
use iofair_policies::parts::tree::{Arena, NodeId, Tree};

use super::Grouped;
use super::queue::{TREES, Workload};
use super::settings::TICK;
use crate::parts::cfq::Cfq;
use crate::parts::cfq::queue::QueueId;

/// Binary digits after the point of a fraction (`CFQ_SERVICE_SHIFT`).
const SHIFT: u32 = 12;
/// A new group is placed this far behind the last one in virtual time; in nanoseconds, or in requests.
const DELAY_TIME: u128 = 200_000_000;
const DELAY_REQUESTS: u128 = 200;

/// The queues of a class and workload, or of the idle class.
#[derive(Debug)]
pub(super) struct ServiceTree {
    pub(super) tree: Tree,
    /// Of all its synchronous queues together.
    pub(super) pauses: Pauses,
}

/// The unused time of a workload when its group's turn ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    pub(super) left: Nanos,
    pub(super) class: Class,
    pub(super) workload: Workload,
}

/// The state of a group.
#[derive(Debug)]
pub(super) struct GroupState {
    parent: Option<GroupId>,
    /// The weight in force, and the one from its next activation on.
    weight: u64,
    wanted: u64,
    /// Sum of the weights of its active children: groups, and its own clients.
    children_weight: u64,
    /// Number of active children.
    active: u32,
    /// Its fraction of the whole drive, with [`SHIFT`] binary digits; valid while it is in the tree.
    fraction: u64,
    time: u128,
    node: Option<NodeId>,
    /// Queues in its service trees.
    pub(super) queues: u32,
    /// Averages of the number of busy queues, real time last.
    pub(super) busy_average: [u32; 2],
    pub(super) trees: [ServiceTree; TREES],
    pub(super) saved: Option<Saved>,
    /// Requests in the drive.
    pub(super) dispatched: u32,
    pub(super) pauses: Pauses,
}

impl GroupState {
    pub(super) fn new(now: Instant, parent: Option<GroupId>, weight: u64) -> Self {
        let service_tree = |_| ServiceTree { tree: Tree::new(), pauses: Pauses::new(now) };
        Self {
            parent,
            weight,
            wanted: weight,
            children_weight: 0,
            active: 0,
            fraction: 1,
            time: 0,
            node: None,
            queues: 0,
            busy_average: [0; 2],
            trees: core::array::from_fn(service_tree),
            saved: None,
            dispatched: 0,
            pauses: Pauses::new(now),
        }
    }
    pub(super) fn reweigh(&mut self, weight: u64) {
        self.wanted = weight;
    }
    /// Its part of a time of the whole drive.
    pub(super) fn part_of(&self, time: Nanos) -> Nanos {
        Nanos(((u128::from(time.0) * u128::from(self.fraction)) >> SHIFT) as u64)
    }
    /// Queues of a class.
    pub(super) fn busy(&self, class: Class) -> u32 {
        let count = |index: usize| self.trees[index].tree.len() as u32;
        match class {
            Class::RealTime => count(0) + count(1) + count(2),
            Class::BestEffort => count(3) + count(4) + count(5),
            Class::Idle => count(6),
        }
    }
    /// Queues of buffered writes.
    pub(super) fn busy_async(&self) -> u32 {
        (self.trees[0].tree.len() + self.trees[3].tree.len()) as u32
    }
}

/// Groups with queues, by virtual time.
#[derive(Debug, Default)]
pub(super) struct GroupOrder {
    arena: Arena<u128, u32>,
    tree: Tree,
    minimum: u128,
}

impl Cfq<Grouped> {
    /// The group whose turn it is.
    pub(super) fn first_group(&mut self, groups: &Groups) -> Option<GroupId> {
        let GroupOrder { arena, tree, minimum } = &mut self.version.group_order;
        let node = arena.first(tree)?;
        *minimum = arena.key(node).max(*minimum);
        groups.group_id(arena.value(node) as usize)
    }
    /// Counts a queue that gets requests.
    pub(super) fn add_to_group(&mut self, id: GroupId) {
        self.version.groups[id.index()].queues += 1;
        if self.version.groups[id.index()].node.is_some() {
            return;
        }
        let delay = if self.counts_requests() { DELAY_REQUESTS } else { DELAY_TIME };
        let GroupOrder { arena, tree, minimum } = &self.version.group_order;
        let last = arena.last(tree).map(|node| arena.key(node) + delay);
        self.version.groups[id.index()].time = last.unwrap_or(*minimum);
        self.enter(id);
    }
    /// Counts a queue that becomes empty.
    pub(super) fn remove_from_group(&mut self, id: GroupId) {
        let group = &mut self.version.groups[id.index()];
        group.queues -= 1;
        if group.queues == 0 {
            group.saved = None;
            self.leave(id);
        }
    }
    fn enter(&mut self, id: GroupId) {
        let leaf = self.version.settings.leaf_weight;
        let group = &mut self.version.groups[id.index()];
        let GroupOrder { arena, tree, .. } = &mut self.version.group_order;
        group.node = Some(arena.insert(tree, group.time, id.index() as u32));
        let mut fresh = group.active == 0;
        group.active += 1;
        group.children_weight += leaf;
        let mut fraction = (leaf << SHIFT) / group.children_weight;
        let mut at = id;
        while let Some(parent) = self.version.groups[at.index()].parent {
            let group = &mut self.version.groups[at.index()];
            if fresh {
                group.weight = group.wanted;
            }
            let weight = group.weight;
            let above = &mut self.version.groups[parent.index()];
            if fresh {
                fresh = above.active == 0;
                above.active += 1;
                above.children_weight += weight;
            }
            fraction = fraction * weight / above.children_weight;
            at = parent;
        }
        self.version.groups[id.index()].fraction = fraction.max(1);
    }
    fn leave(&mut self, id: GroupId) {
        let leaf = self.version.settings.leaf_weight;
        let group = &mut self.version.groups[id.index()];
        let node = group.node.take().expect("a group with queues is in the tree");
        self.version.group_order.arena.remove(&mut self.version.group_order.tree, node);
        group.active -= 1;
        group.children_weight -= leaf;
        let mut at = id;
        while self.version.groups[at.index()].active == 0 {
            let Some(parent) = self.version.groups[at.index()].parent else { break };
            let weight = self.version.groups[at.index()].weight;
            let above = &mut self.version.groups[parent.index()];
            above.active -= 1;
            above.children_weight -= weight;
            at = parent;
        }
    }

    /// Charges the turn of a queue to its group.
    pub(super) fn charge(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let queue = &self.queues[id];
        let group_id = queue.group;
        let group = &self.version.groups[group_id.index()];
        let sync_queues = group.queues - group.busy_async() - group.busy(Class::Idle);
        let cost = if self.counts_requests() {
            queue.slice_sent
        } else if !queue.sync && sync_queues == 0 {
            queue.own.allocated.0
        } else {
            match queue.own.slice_start.filter(|start| *start != cx.now) {
                // There is only the time before its first completion: it counts, or a group could seek for free.
                None => cx.now.since(queue.own.activated).max(TICK).0,
                // At most what it was granted.
                Some(start) => cx.now.since(start).min(queue.own.allocated).0,
            }
        };
        let fraction = group.fraction;
        self.leave(group_id);
        let group = &mut self.version.groups[group_id.index()];
        group.time += (u128::from(cost) << (2 * SHIFT)) / u128::from(fraction);
        let left = self.version.serving.until.map_or(Nanos::ZERO, |until| until.since(cx.now));
        let (class, workload) = (self.version.serving.class, self.version.serving.workload);
        group.saved = (left > Nanos::ZERO).then_some(Saved { left, class, workload });
        self.enter(group_id);
        let rule = match self.counts_requests() {
            true => "group: charged; {} requests, its part is {} of 4096",
            false => "group: charged; {ns}, its part is {} of 4096",
        };
        cx.decide(iofair_core::trace::Subject::Group(group_id), rule, [cost, fraction]);
    }
}
