//! The arrival of a request: what it shows about its process, and whether its queue preempts the active one.

use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::priority::Class;
use iofair_core::request::Flags;
use iofair_core::unit::Sectors;
use iofair_policies::parts::sorted_fifo::{Entry, MergeRules};

use super::Cfq;
use super::queue::QueueId;

/// A request longer than one page is dispatched without waiting for others to merge with.
const PAGE: Sectors = Sectors(8);

impl Cfq {
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
    fn observe_arrival(&mut self, cx: &Context<'_>, id: QueueId, request: RequestId) {
        if !self.queues[id].sync {
            return;
        }
        let rules = self.settings.wait_rules(self.hw_tag.queues());
        let (start, length) = (cx.requests[request].start, cx.requests[request].length);
        self.queues[id].habits.on_request(cx.now, start, length, &rules);
        self.note_seekiness(cx.now, id);
    }
    /// Stops idling, because the active queue gets a request.
    fn stop_waiting_for(&mut self, cx: &Context<'_>, id: QueueId, request: RequestId) {
        let others = self.order.busy() > 1;
        let queue = &mut self.queues[id];
        if core::mem::take(&mut queue.waiting) {
            self.wait_until = None;
            // The original leaves a small request of the only queue until the submitter unplugs, which is at once,
            // and dispatches it even if the slice is over by then.
            queue.must_dispatch = cx.requests[request].length <= PAGE && !others;
        }
    }

    /// The rule by which a request of another queue ends the active slice, if any.
    fn preempts(&self, cx: &Context<'_>, id: QueueId, request: RequestId) -> Option<&'static str> {
        let (queue, active) = (&self.queues[id], &self.queues[self.active?]);
        let request = &cx.requests[request];
        let real_time = |class| class == Class::RealTime;
        if active.slice_used(cx.now) {
            return Some("preempt: the active slice is over");
        }
        if queue.is_idle_class() {
            return None;
        }
        if active.is_idle_class() {
            return Some("preempt: the active queue is of the idle class");
        }
        if queue.sync && !active.sync {
            return Some("preempt: synchronous over buffered writes");
        }
        if request.flags.has(Flags::METADATA) && active.backlog.metadata() == 0 {
            return Some("preempt: metadata");
        }
        if real_time(queue.priority.class) && !real_time(active.priority.class) {
            return Some("preempt: real time");
        }
        let as_good = active.waiting && active.habits.is_close(self.head.at, request.start);
        as_good.then_some("preempt: close to what is waited for")
    }
    fn preempt(&mut self, cx: &mut Context<'_>, id: QueueId, rule: &'static str) {
        let subject = self.subject(id);
        cx.decide(subject, rule, [self.order.busy() as u64, 0]);
        self.expire(cx, "slice: preempted; {} requests sent", true);
        self.put_first(cx.now, id);
    }

    /// Merges a new request into one in its client's queue.
    pub(super) fn on_try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let Some(queue_id) = self.existing_queue_for(cx, id) else { return false };
        let rules = MergeRules { front: true, max: cx.facts.max_request };
        let backlog = &mut self.queues[queue_id].backlog;
        let fewer = backlog.try_merge(&mut self.sorted, cx.requests, (id, rules), &self.head);
        let Some(fewer) = fewer else { return false };
        self.holds = false;
        self.queued -= fewer;
        self.place(cx.requests, queue_id);
        true
    }
}
