//! Cooperating processes: they work close together with alternating requests, so idling for each of them alone would
//! be in vain.
//!
//! If the active queue is empty and another queue of its level would continue near the head, that queue is served at
//! once. In 2.6.32 the two are also *merged*: processes of the queue with fewer processes send their next requests to
//! the other queue, until that queue has been seeky for a second and is split again. In 2.6.31 there is only the
//! jump, once, and then not again before the queue's regular turn.

use crate::parts::sharing::plan_merge;
use crate::parts::slots::SlotId;
use iofair_core::id::ClientId;
use iofair_core::policy::Context;
use iofair_core::request::Requests;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_policies::parts::positions::{Marker, nearest};

use super::Cfq;
use super::queue::QueueId;

/// A shared queue that was seeky for longer is split (`CFQQ_COOP_TOUT`).
const SPLIT_AFTER: Nanos = Nanos::from_secs(1);

impl Cfq {
    /// Puts a queue at the position of its next request.
    pub(super) fn place(&mut self, requests: &Requests, id: QueueId) {
        self.unplace(id);
        let queue = &self.queues[id];
        let Some(next) = queue.backlog.next().filter(|_| !queue.is_idle_class()) else { return };
        let tree = &mut self.position_trees[usize::from(queue.level())];
        let node = self.positions.insert(tree, requests[next].start, Marker(id.0));
        self.queues[id].position = Some(node);
    }
    pub(super) fn unplace(&mut self, id: QueueId) {
        let queue = &mut self.queues[id];
        let level = queue.level();
        if let Some(node) = queue.position.take() {
            self.positions.remove(&mut self.position_trees[usize::from(level)], node);
        }
    }

    /// The queue that would continue near the position of the active one.
    pub(super) fn close_cooperator(&self, active: QueueId) -> Option<QueueId> {
        let queue = &self.queues[active];
        if !queue.sync || queue.habits.seeky() {
            return None;
        }
        let tree = &self.position_trees[usize::from(queue.level())];
        let (distance, other) = nearest(&self.positions, tree, self.head.at, active.0)?;
        let close = distance <= queue.habits.distance.reach();
        let other = Some(SlotId(other)).filter(|_| close)?;
        let theirs = &self.queues[other];
        let free = self.settings.queue_merge || !theirs.jumped_to;
        (theirs.sync && !theirs.habits.seeky() && free).then_some(other)
    }
    /// Moves service from one queue to a close one.
    pub(super) fn follow_cooperator(&mut self, cx: &mut Context<'_>, from: QueueId, to: QueueId) {
        if !self.settings.queue_merge {
            self.queues[to].jumped_to = true;
        } else if let Some((from, to)) = plan_merge(&mut self.queues, from, to) {
            cx.decide(self.subject(from), "merge: will share", [u64::from(to.0), 0]);
        }
    }

    /// Called before a request enters its client's queue: starts to use the shared queue, or leaves it.
    pub(super) fn cooperate(
        &mut self,
        cx: &mut Context<'_>,
        client: ClientId,
        mut id: QueueId,
    ) -> QueueId {
        let queue = &mut self.queues[id];
        let split =
            queue.sharing.shared && queue.seeky_since.is_some_and(|at| at + SPLIT_AFTER < cx.now);
        if split {
            cx.decide(Subject::Client(client), "merge: split", [u64::from(id.0), 0]);
            if queue.sharing.owners > 1 {
                return self.split_off(cx, client, id);
            }
            queue.seeky_since = None;
            queue.sharing.split(client);
        }
        if let Some(target) = self.queues[id].sharing.merge_into {
            cx.decide(Subject::Client(client), "merge: shares", [u64::from(target.0), 0]);
            self.clients[client.index()] = Some(target);
            self.queues[target].sharing.join();
            self.disown(cx, id, client);
            id = target;
        }
        id
    }
    fn split_off(&mut self, cx: &mut Context<'_>, client: ClientId, id: QueueId) -> QueueId {
        let think = self.queues[id].habits.pauses.think;
        let priority = cx.groups.client(client).priority;
        let own = self.make_client_queue(cx, client, priority);
        // Think time belongs to a process, positions only to a queue.
        self.queues[own].habits.pauses.think = think;
        self.disown(cx, id, client);
        own
    }
    /// Records since when a shared queue has been seeky.
    pub(super) fn note_seekiness(&mut self, now: Instant, id: QueueId) {
        let queue = &mut self.queues[id];
        if !queue.habits.seeky() {
            queue.seeky_since = None;
        } else if queue.sharing.shared {
            queue.seeky_since.get_or_insert(now);
        }
    }
}
