//! The order of service: one tree of all queues that hold requests, the urgent class first, and in a
//! class by a time at which each is about due.

use iofair_core::group::Change;
use iofair_core::policy::Context;
use iofair_core::priority::{Class, Priority};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;

use super::state::{Early, Key, Order};
use crate::parts::cfq::queue::QueueId;
use crate::parts::cfq::{self, Cfq};

/// A queue of the idle class is placed this far behind the last one (`CFQ_IDLE_DELAY`).
const IDLE_DELAY: Nanos = Nanos::from_millis(200);
/// A preempting queue is placed this far before the first one.
const AHEAD: Nanos = Nanos::from_secs(1);

fn nanos(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
fn at(now: Instant) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

impl cfq::Order for Cfq<Early> {
    fn shared_subject(&self, _id: QueueId) -> Subject {
        Subject::Drive
    }
    fn busy(&self) -> u32 {
        self.version.order.tree.len() as u32
    }
    fn become_busy(&mut self, now: Instant, id: QueueId) {
        if self.queues[id].own.place.is_none() {
            // It counts as busy before its key is computed.
            let class = self.queues[id].priority.class;
            let key = (class, at(now));
            self.put(id, key);
            self.resort(now, id);
        }
    }
    /// Before all others of its class; one of the idle class stays at the end.
    fn put_first(&mut self, now: Instant, id: QueueId, _preempted: Option<QueueId>) {
        if self.queues[id].is_idle_class() {
            return self.resort(now, id);
        }
        let arena = &self.version.order.arena;
        let first = arena.first(&self.version.order.tree);
        let base = first.map_or(at(now), |node| arena.key(node).1);
        let class = self.queues[id].priority.class;
        self.put(id, (class, base.saturating_sub(nanos(AHEAD))));
    }
    /// Its time stays.
    fn set_priority(&mut self, id: QueueId, priority: Priority) {
        self.queues[id].priority = priority;
        if let Some(node) = self.queues[id].own.place {
            let (_, key) = self.version.order.arena.key(node);
            self.put(id, (priority.class, key));
        }
    }
    fn change_group(&mut self, _cx: &Context<'_>, _change: Change) {}
}

impl Cfq<Early> {
    /// Removes a queue that has dispatched its last request.
    pub(super) fn become_idle(&mut self, id: QueueId) {
        if let Some(node) = self.queues[id].own.place.take() {
            let Order { arena, tree } = &mut self.version.order;
            arena.remove(tree, node);
        }
    }
    /// Puts a busy queue at its new position, after its turn or as a new one.
    ///
    /// `key = now + (busy - 1) (slice(sync, 0) - its slice) - residual`: queues with short slices wait longer, and
    /// unused or excess time of the last slice counts.
    pub(super) fn resort(&mut self, now: Instant, id: QueueId) {
        if self.queues[id].own.place.is_none() {
            return;
        }
        let class = self.queues[id].priority.class;
        let key = match class {
            Class::Idle => self.idle_key(now, id),
            _ => {
                let queue = &mut self.queues[id];
                let residual = core::mem::take(&mut queue.residual);
                let less = self.settings.slices.less_than_longest(queue.sync, queue.level());
                let others = self.version.order.tree.len() as u64 - 1;
                at(now).saturating_add(nanos(less * others)).saturating_sub(residual)
            }
        };
        self.put(id, (class, key));
    }
    /// Behind the last queue of any class.
    fn idle_key(&self, now: Instant, id: QueueId) -> i64 {
        let arena = &self.version.order.arena;
        let last = arena.last(&self.version.order.tree).filter(|node| arena.value(*node) != id.0);
        let base = last.map_or(at(now), |node| arena.key(node).1);
        base.saturating_add(nanos(IDLE_DELAY))
    }
    fn put(&mut self, id: QueueId, key: Key) {
        let Order { arena, tree } = &mut self.version.order;
        let place = &mut self.queues[id].own.place;
        match *place {
            None => *place = Some(arena.insert(tree, key, id.0)),
            // Among equal keys, the older one stays first.
            Some(node) if arena.key(node) == key => {}
            Some(node) => arena.replace(tree, node, key, id.0),
        }
    }
}
