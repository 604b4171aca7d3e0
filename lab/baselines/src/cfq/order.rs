//! The order of service: one tree of all queues that hold requests, the urgent class first, and in a
//! class by a time at which each is about due.

use crate::parts::slots::SlotId;
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::positions::Marker;
use iofair_policies::parts::tree::{Arena, Tree};

use super::Cfq;
use super::queue::QueueId;

/// A queue of the idle class is placed this far behind the last one (`CFQ_IDLE_DELAY`).
const IDLE_DELAY: Nanos = Nanos::from_millis(200);
/// A preempting queue is placed this far before the first one.
const AHEAD: Nanos = Nanos::from_secs(1);

/// Class, and a time in nanoseconds that may be before the epoch.
type Key = (Class, i64);

/// The tree of queues with requests.
#[derive(Debug, Default)]
pub(super) struct Order {
    arena: Arena<Key, Marker>,
    tree: Tree,
}

fn nanos(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
fn at(now: Instant) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

impl Order {
    /// Number of queues with requests (`busy_queues`).
    pub(super) fn busy(&self) -> usize {
        self.tree.len()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }
    pub(super) fn first(&self) -> Option<QueueId> {
        self.arena.first(&self.tree).map(|node| SlotId(self.arena.value(node).0))
    }
}

impl Cfq {
    /// Adds a queue that gets its first request.
    pub(super) fn become_busy(&mut self, now: Instant, id: QueueId) {
        if self.queues[id].place.is_none() {
            // It counts as busy before its key is computed.
            let class = self.queues[id].priority.class;
            let key = (class, at(now));
            self.put(id, key);
            self.resort(now, id);
        }
    }
    /// Removes a queue that has dispatched its last request.
    pub(super) fn become_idle(&mut self, id: QueueId) {
        if let Some(node) = self.queues[id].place.take() {
            self.order.arena.remove(&mut self.order.tree, node);
        }
    }
    /// Puts a busy queue at its new position, after its turn or as a new one.
    ///
    /// `key = now + (busy - 1) (slice(sync, 0) - its slice) - residual`: queues with short slices wait longer, and
    /// unused or excess time of the last slice counts.
    pub(super) fn resort(&mut self, now: Instant, id: QueueId) {
        if self.queues[id].place.is_none() {
            return;
        }
        let class = self.queues[id].priority.class;
        let key = match class {
            Class::Idle => self.idle_key(now, id),
            _ => {
                let queue = &mut self.queues[id];
                let residual = core::mem::take(&mut queue.slice_residual);
                let less = self.settings.slices.less_than_longest(queue.sync, queue.level());
                let others = self.order.busy() as u64 - 1;
                at(now).saturating_add(nanos(less * others)).saturating_sub(residual)
            }
        };
        self.put(id, (class, key));
    }
    /// Behind the last queue of any class.
    fn idle_key(&self, now: Instant, id: QueueId) -> i64 {
        let arena = &self.order.arena;
        let last = arena.last(&self.order.tree).filter(|node| arena.value(*node).0 != id.0);
        let base = last.map_or(at(now), |node| arena.key(node).1);
        base.saturating_add(nanos(IDLE_DELAY))
    }
    /// Puts a busy queue before all others of its class; one of the idle class stays at the end.
    pub(super) fn put_first(&mut self, now: Instant, id: QueueId) {
        if self.queues[id].is_idle_class() {
            return self.resort(now, id);
        }
        let arena = &self.order.arena;
        let first = arena.first(&self.order.tree);
        let base = first.map_or(at(now), |node| arena.key(node).1);
        let class = self.queues[id].priority.class;
        self.put(id, (class, base.saturating_sub(nanos(AHEAD))));
    }
    /// Changes the class of a queue; its time stays.
    pub(super) fn reclass(&mut self, id: QueueId, class: Class) {
        self.queues[id].priority.class = class;
        if let Some(node) = self.queues[id].place {
            let (_, key) = self.order.arena.key(node);
            self.put(id, (class, key));
        }
    }
    fn put(&mut self, id: QueueId, key: Key) {
        let Order { arena, tree } = &mut self.order;
        let place = &mut self.queues[id].place;
        match *place {
            None => *place = Some(arena.insert(tree, key, Marker(id.0))),
            // Among equal keys, the older one stays first.
            Some(node) if arena.key(node) == key => {}
            Some(node) => arena.replace(tree, node, key, Marker(id.0)),
        }
    }
}
