//! The order of service in a group: a tree for each class and workload, in each of them a time at which
//! every queue is about due; which of the trees is served, and for how long.

use crate::parts::slots::SlotId;
use iofair_core::id::GroupId;
use iofair_core::policy::Context;
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_policies::parts::positions::Marker;
use iofair_policies::parts::tree::{Arena, NodeId};

use super::queue::{QueueId, Workload, tree_index};
use super::{CfqGroup, TICK};

/// A queue of the idle class is placed this far behind the last one (`CFQ_IDLE_DELAY`).
const IDLE_DELAY: i64 = 200_000_000;
/// A preempting queue is placed this far before the first one.
const AHEAD: i64 = 1_000_000_000;

/// Nodes of all service trees; the key is a time in nanoseconds that may be before the epoch.
pub(super) type ServiceArena = Arena<i64, Marker>;

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

/// Keys and trees.
impl CfqGroup {
    fn first_in(&self, group: GroupId, tree: usize) -> Option<NodeId> {
        self.services.first(&self.groups[group.index()].trees[tree].tree)
    }
    /// Adds a queue that gets its first request.
    pub(super) fn become_busy(&mut self, now: Instant, id: QueueId) {
        if self.queues[id].service.is_some() {
            return;
        }
        self.busy += 1;
        self.busy_sync += u32::from(self.queues[id].sync);
        self.resort(now, id);
        self.add_to_group(self.queues[id].group);
    }
    /// Removes an empty queue, which is then no longer active.
    pub(super) fn become_idle(&mut self, id: QueueId) {
        let queue = &mut self.queues[id];
        let Some((tree, node)) = queue.service.take() else { return };
        self.busy -= 1;
        self.busy_sync -= u32::from(queue.sync);
        let group = queue.group;
        self.services.remove(&mut self.groups[group.index()].trees[tree].tree, node);
        self.remove_from_group(group);
    }
    /// Puts a queue at its new position, after its turn or as a new one.
    pub(super) fn resort(&mut self, now: Instant, id: QueueId) {
        let queue = &mut self.queues[id];
        let (group, tree) = (queue.group, queue.service_tree());
        let key = if queue.is_idle_class() {
            let service = &self.groups[group.index()].trees[tree].tree;
            let last = self.services.last(service);
            let last = last.filter(|node| self.services.value(*node).0 != id.0);
            last.map_or(at(now), |node| self.services.key(node)).saturating_add(IDLE_DELAY)
        } else {
            let residual = core::mem::take(&mut queue.residual);
            let less = self.settings.slices.less_than_longest(queue.sync, queue.level());
            // A queue that is not in its group yet is not counted.
            let others = i64::from(self.groups[group.index()].queues) - 1;
            let later = nanos(less).saturating_mul(others);
            at(now).saturating_add(later).saturating_sub(residual)
        };
        self.put(id, tree, key);
    }
    /// Puts a busy queue before all others of its tree.
    pub(super) fn put_first(&mut self, now: Instant, id: QueueId) {
        let queue = &self.queues[id];
        let (group, tree) = (queue.group, queue.service_tree());
        let first = self.first_in(group, tree).map(|node| self.services.key(node));
        self.put(id, tree, first.unwrap_or(at(now)).saturating_sub(AHEAD));
    }
    fn put(&mut self, id: QueueId, tree: usize, key: i64) {
        let queue = &mut self.queues[id];
        let trees = &mut self.groups[queue.group.index()].trees;
        if let Some((old, node)) = queue.service {
            if old == tree && self.services.key(node) == key {
                return;
            }
            self.services.remove(&mut trees[old].tree, node);
        }
        let node = self.services.insert(&mut trees[tree].tree, key, Marker(id.0));
        queue.service = Some((tree, node));
    }
}

/// The choice of the tree to serve.
impl CfqGroup {
    /// Chooses the next group, class and workload, and returns the first queue there.
    pub(super) fn choose(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        let group = self.first_group(cx.groups)?;
        self.serving.group = group;
        self.serving.until = None;
        if let Some(saved) = self.groups[group.index()].saved {
            let (class, workload, until) = (saved.class, saved.workload, Some(cx.now + saved.left));
            self.serving = Serving { group, class, workload, until };
        }
        self.choose_workload(cx);
        let tree = tree_index(self.serving.class, self.serving.workload);
        self.first_in(group, tree).map(|node| {
            let Marker(queue) = self.services.value(node);
            SlotId(queue)
        })
    }
    fn choose_workload(&mut self, cx: &mut Context<'_>) {
        let group = &self.groups[self.serving.group.index()];
        let before = self.serving.class;
        let class = Class::ALL.into_iter().find(|class| group.busy(*class) > 0);
        self.serving.class = class.expect("a group in the tree has queues");
        if self.serving.class == Class::Idle {
            self.serving.until = Some(cx.now + TICK);
            return;
        }
        let tree = &group.trees[tree_index(self.serving.class, self.serving.workload)].tree;
        let lasts = self.serving.until.is_some_and(|until| cx.now <= until);
        if before == self.serving.class && !tree.is_empty() && lasts {
            return;
        }
        self.serving.workload = self.due_workload();
        let slice = self.workload_slice();
        self.serving.until = Some(cx.now + slice);
        let subject = Subject::Group(self.serving.group);
        let rule = match self.serving.workload {
            Workload::Async => "workload: buffered writes; {ns} for all of them",
            Workload::NoIdle => "workload: queues not waited for; {ns} for all of them",
            Workload::Sync => "workload: queues waited for; {ns} for all of them",
        };
        cx.decide(subject, rule, [slice.0, 0]);
    }
    /// The workload of the queue with the lowest key; in case of a tie that of writes, then the one without idling.
    fn due_workload(&self) -> Workload {
        let Serving { group, class, .. } = self.serving;
        let first = |workload: &Workload| self.first_in(group, tree_index(class, *workload));
        let keys = Workload::ALL.into_iter().filter_map(|workload| {
            first(&workload).map(|node| (self.services.key(node), workload))
        });
        keys.min_by_key(|(key, _)| *key).expect("the class has queues").1
    }
    /// How long the workload is served: the group's time, divided by the workloads' numbers of queues.
    fn workload_slice(&self) -> Nanos {
        let Serving { group, class, workload, .. } = self.serving;
        let group = &self.groups[group.index()];
        let count = group.trees[tree_index(class, workload)].tree.len() as u64;
        let average = group.busy_average[average_index(class)];
        let all = u64::from(average.max(group.busy(class)));
        let slice = group.part_of(self.settings.target_latency) * count / all;
        let slice = if workload == Workload::Async {
            let of_all = u64::from(group.busy_async());
            let fair = self.settings.target_latency * of_all / u64::from(self.busy);
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
        let group = &mut self.groups[queue.group.index()];
        let busy = group.busy(class);
        let average = &mut group.busy_average[average_index(class)];
        *average = (3 * busy.max(*average) + busy.min(*average) + 2) / 4;
        let wanted = slices.sync * u64::from(*average);
        let has = group.part_of(self.settings.target_latency);
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
