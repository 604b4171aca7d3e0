//! Counts of queues and groups with requests, by weight. With them, an asymmetric scenario is detected in constant
//! time.

use alloc::vec::Vec;

use crate::parts::wf2q::{Arrival, EntityId, Leave};
use iofair_core::bounds::WEIGHT_MAX;
use iofair_core::time::Instant;

use super::Bfq;
use super::queue::{QueueId, level_weight};

/// The number of members of each weight, for a small range of weights, and the number of different weights.
#[derive(Debug)]
struct ByWeight {
    counts: Vec<u32>,
    distinct: u32,
}

impl ByWeight {
    fn new(bound: usize) -> Self {
        Self { counts: alloc::vec![0; bound], distinct: 0 }
    }
    fn add(&mut self, weight: usize) {
        self.distinct += u32::from(self.counts[weight] == 0);
        self.counts[weight] += 1;
    }
    fn remove(&mut self, weight: usize) {
        self.counts[weight] -= 1;
        self.distinct -= u32::from(self.counts[weight] == 0);
    }
}

/// Unraised queues with requests (queued or in the drive) by priority level, and groups by weight.
#[derive(Debug)]
pub(super) struct Activity {
    levels: ByWeight,
    group_weights: ByWeight,
    groups: u32,
    /// Groups with two such queues or more.
    crowded: u32,
    /// Such queues right below the root.
    in_root: u32,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            levels: ByWeight::new(8),
            group_weights: ByWeight::new(WEIGHT_MAX as usize + 1),
            groups: 0,
            crowded: 0,
            in_root: 0,
        }
    }
    /// The smallest weight among unraised queues: the largest level.
    fn lowest_level(&self) -> Option<u8> {
        (0..8u8).rev().find(|level| self.levels.counts[usize::from(*level)] > 0)
    }
    pub(super) fn groups(&self) -> u32 {
        self.groups
    }
}

impl Bfq {
    /// Whether queues must be treated unequally, because serving the first one with a request would not keep their
    /// shares. `of`: the queue for which this is decided, if any.
    pub(super) fn is_asymmetric(&self, of: Option<QueueId>) -> bool {
        let (settings, activity) = (&self.settings, &self.activity);
        let smallest = settings.spare_smallest_weight
            && of.is_some_and(|id| {
                let counted = self.queues[id].counted;
                counted.is_some() && counted == activity.lowest_level()
            });
        let varied = activity.levels.distinct > 1 && !smallest;
        let groups = match settings.busy_groups {
            // As 4.18 has it: differing weights, or a group in which several take turns.
            0 => activity.group_weights.distinct > 1 || activity.crowded > 0,
            1 => activity.groups > 0,
            enough => activity.groups + u32::from(activity.in_root > 0) >= enough,
        };
        varied || groups || self.busy_classes() > 1
    }

    /// Brings the counts in line with what a queue has to do now.
    pub(super) fn recount(&mut self, id: QueueId) {
        let queue = &mut self.queues[id];
        let pending = queue.busy || queue.dispatched > 0;
        let level = queue.priority.level.min(7);
        let counted = (pending && !queue.raise.is_raised()).then_some(level);
        let before = core::mem::replace(&mut queue.counted, counted);
        let was_pending = core::mem::replace(&mut queue.pending, pending);
        let entity = queue.entity;
        if before != counted {
            if let Some(level) = before {
                self.activity.levels.remove(usize::from(level));
            }
            if let Some(level) = counted {
                self.activity.levels.add(usize::from(level));
            }
        }
        if was_pending != pending {
            self.count_groups(entity, pending);
        }
    }
    fn count_groups(&mut self, queue: EntityId, pending: bool) {
        let mut at = self.scheduler.parent(queue);
        if at == EntityId::ROOT {
            self.activity.in_root = match pending {
                true => self.activity.in_root + 1,
                false => self.activity.in_root - 1,
            };
        }
        while at != EntityId::ROOT {
            let group = self.group_of[at.index()];
            let state = &mut self.groups[group.index()];
            if pending {
                state.pending += 1;
                self.activity.crowded += u32::from(state.pending == 2);
                if state.pending == 1 {
                    state.counted_weight = self.scheduler.weight(at);
                    self.activity.groups += 1;
                    self.activity.group_weights.add(state.counted_weight as usize);
                }
            } else {
                self.activity.crowded -= u32::from(state.pending == 2);
                state.pending -= 1;
                if state.pending == 0 {
                    self.activity.groups -= 1;
                    self.activity.group_weights.remove(state.counted_weight as usize);
                }
            }
            at = self.scheduler.parent(at);
        }
    }

    /// A queue with something to do becomes known to the scheduler.
    pub(super) fn become_busy(&mut self, now: Instant, id: QueueId) {
        let queue = &mut self.queues[id];
        queue.busy = true;
        let (entity, raise) = (queue.entity, queue.raise.coefficient());
        let arrival = match core::mem::take(&mut queue.expected) {
            true => Arrival::InTime { raising: raise },
            false => Arrival::Plain,
        };
        self.raised_busy += u32::from(raise > 1);
        self.recount(id);
        self.scheduler.activate(now, entity, arrival);
        self.queues.list(id);
    }
    /// A queue with nothing to do is forgotten by the scheduler, in service or not.
    pub(super) fn become_idle(&mut self, now: Instant, id: QueueId) {
        let queue = &mut self.queues[id];
        queue.busy = false;
        let entity = queue.entity;
        self.raised_busy -= u32::from(queue.raise.is_raised());
        self.recount(id);
        self.queues.unlist(id);
        self.scheduler.deactivate(now, entity, Leave::Remembered);
        self.apply_priority(id);
    }
    /// Puts a changed priority in force; the queue must not be busy.
    pub(super) fn apply_priority(&mut self, id: QueueId) {
        let queue = &mut self.queues[id];
        if queue.busy || queue.priority == queue.wanted {
            return;
        }
        queue.priority = queue.wanted;
        let weight = level_weight(queue.priority.level) * queue.raise.coefficient();
        let (entity, class) = (queue.entity, queue.priority.class);
        self.scheduler.set_weight(entity, weight);
        self.scheduler.set_class(entity, class);
        self.recount(id);
    }
}
