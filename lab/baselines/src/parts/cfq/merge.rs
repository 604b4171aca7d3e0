//! Cooperation: queues that work close together become one, until it is split again.

use crate::parts::sharing::plan_merge;
use crate::parts::slots::SlotId;
use iofair_core::id::ClientId;
use iofair_core::policy::Context;
use iofair_core::request::Requests;
use iofair_core::trace::Subject;
use iofair_core::unit::Sectors;
use iofair_policies::parts::positions::nearest;

use super::queue::{Member, QueueId};
use super::{Cfq, Rules, Splits, Version};

impl<V: Version> Cfq<V>
where
    Self: Rules,
{
    /// Puts a queue at the position of its next request.
    pub(super) fn place(&mut self, requests: &Requests, id: QueueId) {
        self.unplace(id);
        let queue = &self.queues[id];
        let Some(next) = queue.backlog.next().filter(|_| !queue.is_idle_class()) else { return };
        let tree = &mut self.position_trees[usize::from(queue.level())];
        let node = self.positions.insert(tree, requests[next].start, id.0);
        self.queues[id].position = Some(node);
    }
    pub(super) fn unplace(&mut self, id: QueueId) {
        let queue = &mut self.queues[id];
        let level = queue.level();
        if let Some(node) = queue.position.take() {
            self.positions.remove(&mut self.position_trees[usize::from(level)], node);
        }
    }
    /// The other queue of its level that would continue nearest to the head, and how far away.
    pub(crate) fn nearest_to_head(&self, id: QueueId) -> Option<(Sectors, QueueId)> {
        let tree = &self.position_trees[usize::from(self.queues[id].level())];
        let (distance, other) = nearest(&self.positions, tree, self.head.at, id.0)?;
        Some((distance, SlotId(other)))
    }
    pub(crate) fn merge_later(&mut self, cx: &mut Context<'_>, from: QueueId, to: QueueId) {
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
        let is_shared = self.queues[id].sharing.shared;
        if is_shared && self.wants_split(cx.now, id) {
            cx.decide(Subject::Client(client), "merge: split", [u64::from(id.0), 0]);
            let queue = &mut self.queues[id];
            if queue.sharing.owners > 1 {
                let (group, priority) = (queue.group, cx.groups.client(client).priority);
                let member = Member { group, priority, client: Some(client) };
                let own = self.make_queue(cx.now, member);
                self.after_split(id, Some(own));
                self.disown(cx, id, client);
                return own;
            }
            queue.sharing.split(client);
            self.after_split(id, None);
        }
        let Some(target) = self.queues[id].sharing.merge_into else { return id };
        cx.decide(Subject::Client(client), "merge: shares", [u64::from(target.0), 0]);
        self.clients[client.index()] = Some(target);
        self.queues[target].sharing.join();
        self.disown(cx, id, client);
        target
    }
}
