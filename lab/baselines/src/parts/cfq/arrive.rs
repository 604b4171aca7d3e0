//! The arrival of a request: it enters its queue, and may end the slice of the active one.

use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::unit::Sectors;
use iofair_policies::parts::sorted_fifo::Entry;

use super::queue::QueueId;
use super::{Arrivals, Cfq, Order, Rules, Slices, Version};

/// A request longer than one page is dispatched without waiting for others to merge with.
const PAGE: Sectors = Sectors(8);

impl<V: Version> Cfq<V>
where
    Self: Rules,
{
    pub(super) fn on_submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.check_wait(cx);
        self.holds = false;
        let queue = self.queue_for(cx, id);
        let entry = Entry { id, arrived: cx.now };
        self.queues[queue].backlog.insert(&mut self.sorted, cx.requests, entry, &self.head);
        self.queued += 1;
        self.owners.set(id, queue);
        self.become_busy(cx.now, queue);
        self.place(cx.requests, queue);
        self.observe_arrival(cx, queue, id);
        if self.active == Some(queue) {
            self.stop_waiting_for(cx, queue, id);
        } else if let Some(rule) = self.preempts(cx, queue, id) {
            self.preempt(cx, queue, rule);
        }
    }
    /// Stops idling, because the active queue gets a request.
    fn stop_waiting_for(&mut self, cx: &Context<'_>, id: QueueId, request: RequestId) {
        let others = self.busy() > 1;
        let queue = &mut self.queues[id];
        if core::mem::take(&mut queue.waiting) {
            self.wait_until = None;
            // The original leaves a small request of the only queue until the submitter unplugs, which is at once,
            // and dispatches it even if the slice is over by then.
            queue.must_dispatch = cx.requests[request].length <= PAGE && !others;
        }
    }
    fn preempt(&mut self, cx: &mut Context<'_>, id: QueueId, rule: &'static str) {
        let preempted = self.active;
        cx.decide(self.subject(id), rule, [u64::from(self.busy()), 0]);
        self.expire(cx, "slice: preempted; {} requests sent", true);
        self.put_first(cx.now, id, preempted);
    }

    /// Merges a new request into one in its client's queue.
    pub(super) fn on_try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let Some(queue_id) = self.existing_queue_for(cx, id) else { return false };
        let backlog = &mut self.queues[queue_id].backlog;
        let fewer = backlog.try_merge(&mut self.sorted, cx, id, &self.head);
        let Some(fewer) = fewer else { return false };
        self.holds = false;
        self.queued -= fewer;
        self.place(cx.requests, queue_id);
        true
    }
}
