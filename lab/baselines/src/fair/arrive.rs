//! The arrival of a request: which queue it enters, and whether it preempts the queue in service.

use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::request::{Flags, Operation};

use super::Fair;
use super::leaf::Leaf;
use super::queue::QueueId;
use super::turn::{Turn, WaitOf};

impl<L: Leaf> Fair<L> {
    pub(super) fn on_submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.check_wait(cx);
        self.holds = false;
        let queue = self.queue_for(cx, id);
        self.owners.set(id, queue);
        self.leaf.insert(cx, &mut self.queues[queue].content, id, self.head);
        let entity = self.queues[queue].entity;
        if !self.service.is_busy(entity) {
            self.service.activate(entity);
            self.busy_queues += 1;
        }
        let Some(turn) = self.turn else { return };
        if turn.queue == queue {
            self.stop_waiting();
        } else if let Some(rule) = self.preempts(cx, &turn, queue, id) {
            self.expire(cx, rule);
            self.service.put_in_front(entity);
        } else if turn.wait.is_some_and(|wait| wait.of == WaitOf::Group)
            && !self.group_would_leave(turn.queue)
        {
            // The group keeps its place without the queue for which the layer idled.
            self.stop_waiting();
        }
    }

    /// The rule by which a request of `queue` preempts the queue in service, if any.
    ///
    /// Classes are compared between direct competitors, queues or groups. Between sibling groups, a preemption must
    /// not take more than a group's share: the group that preempts must be due then.
    fn preempts(
        &self,
        cx: &Context<'_>,
        turn: &Turn,
        queue: QueueId,
        id: RequestId,
    ) -> Option<&'static str> {
        let (new, active) = (&self.queues[queue], &self.queues[turn.queue]);
        let (a, b) = self.service.competitors(new.entity, active.entity);
        let (class_a, class_b) = (self.service.class(a), self.service.class(b));
        if class_a != class_b {
            return (class_a < class_b).then_some("preempt: class");
        }
        let same_group = new.group == active.group;
        let cost = turn.cost(cx.now, &self.settings);
        let may = same_group || self.service.is_due_before(a, b, cost);
        if !may || !new.sync {
            return None;
        }
        if !active.sync {
            return Some("preempt: reader over writer");
        }
        let request = &cx.requests[id];
        let metadata = request.operation == Operation::Read && request.flags.has(Flags::METADATA);
        if metadata && L::QUEUE_A_CLIENT && !self.leaf.has_metadata(&active.content) {
            return Some("preempt: metadata");
        }
        let waits = turn.wait.is_some_and(|wait| wait.of == WaitOf::Queue);
        let close = || self.leaf.is_close(cx, &active.content, id, self.head);
        (same_group && waits && close()).then_some("preempt: close")
    }

    /// Merges a new request into one in its queue.
    pub(super) fn on_try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let Some(queue) = self.existing_queue_for(cx, id) else { return false };
        let merged = self.leaf.try_merge(cx, &mut self.queues[queue].content, id, self.head);
        self.holds &= !merged;
        merged
    }
}
