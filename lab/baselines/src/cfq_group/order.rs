//! The order of service in a group: a tree for each class and workload, in each of them a time at which
//! every queue is about due; which of the trees is served, and for how long.

use crate::parts::slots::SlotId;
use iofair_core::group::Change;
use iofair_core::id::GroupId;
use iofair_core::policy::Context;
use iofair_core::priority::{Class, Priority};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_policies::parts::tree::{Arena, NodeId};

use super::Grouped;
use super::groups::GroupState;
use super::queue::{Workload, tree_index};
use super::settings::TICK;
use crate::parts::cfq::queue::QueueId;
use crate::parts::cfq::{Cfq, Order};

/// A queue of the idle class is placed this far behind the last one (`CFQ_IDLE_DELAY`).
const IDLE_DELAY: i64 = 200_000_000;
/// A preempting queue is placed this far before the first one.
const AHEAD: i64 = 1_000_000_000;

/// Nodes of all service trees; the key is a time in nanoseconds that may be before the epoch.
pub(super) type ServiceArena = Arena<i64, u32>;

/// The workload in service, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serving {
    pub(super) group: GroupId,
    pub(super) class: Class,
    pub(super) workload: Workload,
    /// `None`: a new choice is due.
    pub(super) until: Option<Instant>,
}

fn nanos(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
fn at(now: Instant) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

impl Order for Cfq<Grouped> {
    fn shared_subject(&self, id: QueueId) -> Subject {
        Subject::Group(self.queues[id].group)
    }
    fn busy(&self) -> u32 {
        self.version.busy
    }
    fn become_busy(&mut self, now: Instant, id: QueueId) {
        if self.queues[id].own.service.is_some() {
            return;
        }
        self.version.busy += 1;
        self.version.busy_sync += u32::from(self.queues[id].sync);
        self.resort(now, id);
        self.add_to_group(self.queues[id].group);
    }
    /// Before all others of its tree.
    fn put_first(&mut self, now: Instant, id: QueueId, preempted: Option<QueueId>) {
        let preempted = preempted.map(|id| self.queues[id].workload());
        let queue = &self.queues[id];
        if preempted != Some(queue.workload()) {
            // Otherwise the group would continue with the preempted queue.
            self.version.groups[queue.group.index()].saved = None;
        }
        let (group, tree) = (queue.group, queue.service_tree());
        let first = self.first_in(group, tree).map(|node| self.version.services.key(node));
        self.put(id, tree, first.unwrap_or(at(now)).saturating_sub(AHEAD));
    }
    fn set_priority(&mut self, id: QueueId, priority: Priority) {
        self.queues[id].priority = priority;
    }
    fn change_group(&mut self, cx: &Context<'_>, change: Change) {
        let weight = |id| u64::from(cx.groups.group(id).contract.weight.max(1));
        match change {
            Change::GroupAdded(id) => {
                // Ids are dense: each new one is the next number.
                while self.version.groups.len() <= id.index() {
                    self.version.groups.push(GroupState::new(cx.now, None, 1));
                }
                let parent = cx.groups.group(id).parent;
                self.version.groups[id.index()] = GroupState::new(cx.now, parent, weight(id));
            }
            Change::GroupUpdated(id) => self.version.groups[id.index()].reweigh(weight(id)),
            _ => {}
        }
    }
}

/// Keys and trees.
impl Cfq<Grouped> {
    fn first_in(&self, group: GroupId, tree: usize) -> Option<NodeId> {
        self.version.services.first(&self.version.groups[group.index()].trees[tree].tree)
    }
    /// Removes an empty queue, which is then no longer active.
    pub(super) fn become_idle(&mut self, id: QueueId) {
        let queue = &mut self.queues[id];
        let Some((tree, node)) = queue.own.service.take() else { return };
        self.version.busy -= 1;
        self.version.busy_sync -= u32::from(queue.sync);
        let group = queue.group;
        self.version
            .services
            .remove(&mut self.version.groups[group.index()].trees[tree].tree, node);
        self.remove_from_group(group);
    }
    /// Puts a queue at its new position, after its turn or as a new one.
    pub(super) fn resort(&mut self, now: Instant, id: QueueId) {
        let queue = &mut self.queues[id];
        let (group, tree) = (queue.group, queue.service_tree());
        let key = if queue.is_idle_class() {
            let service = &self.version.groups[group.index()].trees[tree].tree;
            let last = self.version.services.last(service);
            let last = last.filter(|node| self.version.services.value(*node) != id.0);
            last.map_or(at(now), |node| self.version.services.key(node)).saturating_add(IDLE_DELAY)
        } else {
            let residual = core::mem::take(&mut queue.residual);
            let less = self.settings.slices.less_than_longest(queue.sync, queue.level());
            // A queue that is not in its group yet is not counted.
            let others = i64::from(self.version.groups[group.index()].queues) - 1;
            let later = nanos(less).saturating_mul(others);
            at(now).saturating_add(later).saturating_sub(residual)
        };
        self.put(id, tree, key);
    }
    fn put(&mut self, id: QueueId, tree: usize, key: i64) {
        let queue = &mut self.queues[id];
        let trees = &mut self.version.groups[queue.group.index()].trees;
        if let Some((old, node)) = queue.own.service {
            if old == tree && self.version.services.key(node) == key {
                return;
            }
            self.version.services.remove(&mut trees[old].tree, node);
        }
        let node = self.version.services.insert(&mut trees[tree].tree, key, id.0);
        queue.own.service = Some((tree, node));
    }
}

/// The choice of the tree to serve.
impl Cfq<Grouped> {
    /// Chooses the next group, class and workload, and returns the first queue there.
    pub(super) fn choose(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        let group = self.first_group(cx.groups)?;
        self.version.serving.group = group;
        self.version.serving.until = None;
        if let Some(saved) = self.version.groups[group.index()].saved {
            let (class, workload, until) = (saved.class, saved.workload, Some(cx.now + saved.left));
            self.version.serving = Serving { group, class, workload, until };
        }
        self.choose_workload(cx);
        let tree = tree_index(self.version.serving.class, self.version.serving.workload);
        self.first_in(group, tree).map(|node| {
            let queue = self.version.services.value(node);
            SlotId(queue)
        })
    }
    fn choose_workload(&mut self, cx: &mut Context<'_>) {
        let group = &self.version.groups[self.version.serving.group.index()];
        let before = self.version.serving.class;
        let class = Class::ALL.into_iter().find(|class| group.busy(*class) > 0);
        self.version.serving.class = class.expect("a group in the tree has queues");
        if self.version.serving.class == Class::Idle {
            self.version.serving.until = Some(cx.now + TICK);
            return;
        }
        let tree = &group.trees
            [tree_index(self.version.serving.class, self.version.serving.workload)]
        .tree;
        let lasts = self.version.serving.until.is_some_and(|until| cx.now <= until);
        if before == self.version.serving.class && !tree.is_empty() && lasts {
            return;
        }
        self.version.serving.workload = self.due_workload();
        let slice = self.workload_slice();
        self.version.serving.until = Some(cx.now + slice);
        let subject = Subject::Group(self.version.serving.group);
        let rule = match self.version.serving.workload {
            Workload::Async => "workload: buffered writes; {ns} for all of them",
            Workload::NoIdle => "workload: queues not waited for; {ns} for all of them",
            Workload::Sync => "workload: queues waited for; {ns} for all of them",
        };
        cx.decide(subject, rule, [slice.0, 0]);
    }
    /// The workload of the queue with the lowest key; in case of a tie that of writes, then the one without idling.
    fn due_workload(&self) -> Workload {
        let Serving { group, class, .. } = self.version.serving;
        let first = |workload: &Workload| self.first_in(group, tree_index(class, *workload));
        let keys = Workload::ALL.into_iter().filter_map(|workload| {
            first(&workload).map(|node| (self.version.services.key(node), workload))
        });
        keys.min_by_key(|(key, _)| *key).expect("the class has queues").1
    }
    /// How long the workload is served: the group's time, divided by the workloads' numbers of queues.
    fn workload_slice(&self) -> Nanos {
        let Serving { group, class, workload, .. } = self.version.serving;
        let group = &self.version.groups[group.index()];
        let count = group.trees[tree_index(class, workload)].tree.len() as u64;
        let average = group.busy_average[average_index(class)];
        let all = u64::from(average.max(group.busy(class)));
        let slice = group.part_of(self.version.settings.target_latency) * count / all;
        let slice = if workload == Workload::Async {
            let of_all = u64::from(group.busy_async());
            let fair = self.version.settings.target_latency * of_all / u64::from(self.version.busy);
            let slices = self.settings.slices;
            let scaled = u128::from(slice.min(fair).0) * u128::from(slices.asynchronous.0);
            Nanos((scaled / u128::from(slices.sync.0)) as u64)
        } else {
            slice.max(self.settings.slice_idle * 2)
        };
        slice.max(TICK * 2)
    }

    /// The slice of a queue: by its level, and shorter if its group's time does not suffice for all queues.
    pub(super) fn queue_slice(&mut self, id: QueueId) -> Nanos {
        let queue = &self.queues[id];
        let slices = self.settings.slices;
        let slice = slices.slice(queue.sync, queue.level());
        if !self.settings.low_latency {
            return slice;
        }
        let class = if queue.is_real_time() { Class::RealTime } else { Class::BestEffort };
        let group = &mut self.version.groups[queue.group.index()];
        let busy = group.busy(class);
        let average = &mut group.busy_average[average_index(class)];
        *average = (3 * busy.max(*average) + busy.min(*average) + 2) / 4;
        let wanted = slices.sync * u64::from(*average);
        let has = group.part_of(self.version.settings.target_latency);
        if wanted <= has {
            return slice;
        }
        let scaled = |time: Nanos, by: Nanos| {
            Nanos((u128::from(slice.0) * u128::from(time.0) / u128::from(by.0)) as u64)
        };
        let least = slice.min(scaled(self.settings.slice_idle * 2, slices.sync));
        scaled(has, wanted).max(least)
    }
}

/// Averages are kept for two classes.
fn average_index(class: Class) -> usize {
    usize::from(class == Class::RealTime)
}
