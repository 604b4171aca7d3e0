//! Cooperating processes: they work close together with alternating requests, so idling for each of them alone would
//! be in vain.
//!
//! If the active queue is empty and another queue of its level would continue near the head, that queue is served at
//! once. In 2.6.32 the two are also *merged*: processes of the queue with fewer processes send their next requests to
//! the other queue, until that queue has been seeky for a second and is split again. In 2.6.31 there is only the
//! jump, once, and then not again before the queue's regular turn.

use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};

use super::state::Early;
use crate::parts::cfq::queue::QueueId;
use crate::parts::cfq::{Cfq, Splits};

/// A shared queue that was seeky for longer is split (`CFQQ_COOP_TOUT`).
const SPLIT_AFTER: Nanos = Nanos::from_secs(1);

impl Cfq<Early> {
    /// The queue that would continue near the position of the active one.
    pub(super) fn close_cooperator(&self, active: QueueId) -> Option<QueueId> {
        let queue = &self.queues[active];
        if !queue.sync || queue.own.habits.seeky() {
            return None;
        }
        let (distance, other) = self.nearest_to_head(active)?;
        let theirs = &self.queues[other];
        let close = distance <= queue.own.habits.distance.reach();
        let free = self.version.queue_merge || !theirs.own.jumped_to;
        (close && theirs.sync && !theirs.own.habits.seeky() && free).then_some(other)
    }
    /// Moves service from one queue to a close one.
    pub(super) fn follow_cooperator(&mut self, cx: &mut Context<'_>, from: QueueId, to: QueueId) {
        if self.version.queue_merge {
            self.merge_later(cx, from, to);
        } else {
            self.queues[to].own.jumped_to = true;
        }
    }
    /// Records since when a shared queue has been seeky.
    pub(super) fn note_seekiness(&mut self, now: Instant, id: QueueId) {
        let queue = &mut self.queues[id];
        if !queue.own.habits.seeky() {
            queue.own.seeky_since = None;
        } else if queue.sharing.shared {
            queue.own.seeky_since.get_or_insert(now);
        }
    }
}

impl Splits for Cfq<Early> {
    fn wants_split(&self, now: Instant, id: QueueId) -> bool {
        self.queues[id].own.seeky_since.is_some_and(|at| at + SPLIT_AFTER < now)
    }
    fn after_split(&mut self, id: QueueId, own: Option<QueueId>) {
        match own {
            None => self.queues[id].own.seeky_since = None,
            // Think time belongs to a process, positions only to a queue.
            Some(own) => {
                let think = self.queues[id].own.habits.pauses.think;
                self.queues[own].own.habits.pauses.think = think;
            }
        }
    }
}
