//! Cooperation: queues of a group that work close together become one, until it turns seeky.

use crate::parts::sharing::plan_merge;
use crate::parts::slots::SlotId;
use iofair_core::id::ClientId;
use iofair_core::policy::Context;
use iofair_core::request::Requests;
use iofair_core::trace::Subject;
use iofair_policies::parts::positions::{Marker, nearest};
use iofair_policies::parts::seeks::CLOSE;

use super::CfqGroup;
use super::queue::QueueId;

impl CfqGroup {
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

    /// The queue of the group that would continue near the head.
    pub(super) fn close_cooperator(&self, active: QueueId) -> Option<QueueId> {
        let queue = &self.queues[active];
        let alone = self.groups[queue.group.index()].queues == 1;
        if queue.is_idle_class() || !queue.sync || queue.seeky() || alone {
            return None;
        }
        let tree = &self.position_trees[usize::from(queue.level())];
        let (distance, other) = nearest(&self.positions, tree, self.head.at, active.0)?;
        let other = SlotId(other);
        let theirs = &self.queues[other];
        let alike = theirs.group == queue.group && theirs.is_real_time() == queue.is_real_time();
        (distance <= CLOSE && alike && theirs.sync && !theirs.seeky()).then_some(other)
    }
    pub(super) fn merge_later(&mut self, cx: &mut Context<'_>, from: QueueId, to: QueueId) {
        if let Some((from, to)) = plan_merge(&mut self.queues, from, to) {
            cx.decide(self.subject(from), "merge: will share", [u64::from(to.0), 0]);
        }
    }

    /// Called before a request enters its client's queue: starts to use the shared queue, or leaves it.
    pub(super) fn cooperate(
        &mut self,
        cx: &mut Context<'_>,
        client: ClientId,
        id: QueueId,
    ) -> QueueId {
        let queue = &mut self.queues[id];
        if queue.sharing.shared && queue.split_asked {
            cx.decide(Subject::Client(client), "merge: split", [u64::from(id.0), 0]);
            if queue.sharing.owners > 1 {
                let pauses = queue.pauses;
                let (group, priority) = (queue.group, cx.groups.client(client).priority);
                let own = self.make_client_queue(cx.now, client, group, priority);
                // Think time belongs to a process, positions only to a queue.
                self.queues[own].pauses = pauses;
                self.disown(cx, id, client);
                return own;
            }
            queue.split_asked = false;
            queue.sharing.split(client);
        }
        let Some(target) = self.queues[id].sharing.merge_into else { return id };
        cx.decide(Subject::Client(client), "merge: shares", [u64::from(target.0), 0]);
        self.clients[client.index()] = Some(target);
        self.queues[target].sharing.join();
        self.disown(cx, id, client);
        target
    }
}
