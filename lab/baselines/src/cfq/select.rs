//! The choice of the next queue, and the end of a slice.

use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::request::Flags;
use iofair_core::time::Instant;

use super::state::Early;
use crate::parts::cfq::queue::QueueId;
use crate::parts::cfq::{Cfq, Idling, Order, Slices};

impl Slices for Cfq<Early> {
    fn select(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        let Some(id) = self.active else { return self.activate_first(cx) };
        let queue = &self.queues[id];
        if queue.slice_used(cx.now) && !queue.must_dispatch {
            self.expire(cx, "slice: over; {} requests sent", false);
            return self.activate_first(cx);
        }
        if !queue.is_empty() {
            return Some(id);
        }
        if let Some(other) = self.close_cooperator(id) {
            self.follow_cooperator(cx, id, other);
            self.expire(cx, "slice: another queue is close; {} requests sent", false);
            self.activate(cx, other);
            return Some(other);
        }
        if self.wait_until.is_some() || (queue.dispatched > 0 && self.idle_window(id)) {
            return None;
        }
        self.expire(cx, "slice: nothing queued, not waited for; {} requests sent", false);
        self.activate_first(cx)
    }
    fn begin(&mut self, _now: Instant, _id: QueueId) {}
    fn expire(&mut self, cx: &mut Context<'_>, rule: &'static str, timed: bool) {
        let Some(id) = self.active.take() else { return };
        let subject = self.subject(id);
        let queue = &mut self.queues[id];
        (queue.waiting, self.wait_until) = (false, None);
        if timed && !queue.slice_new {
            let left = i128::from(queue.slice_end.0) - i128::from(cx.now.0);
            queue.residual = left.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        }
        cx.decide(subject, rule, [queue.slice_sent, 0]);
        self.resort(cx.now, id);
    }
    fn depth(&self, cx: &Context<'_>, id: QueueId) -> u32 {
        let (queue, quantum) = (&self.queues[id], self.settings.quantum);
        let depth = match (queue.is_idle_class(), self.busy() > 1) {
            (true, _) => 1,
            (false, true) => quantum,
            // The only queue may have more, but only after it has its quantum; the result is the same.
            (false, false) => quantum.saturating_mul(4),
        };
        if queue.sync || !self.settings.low_latency {
            return depth;
        }
        // The more recent the last read, the more slowly buffered writes are admitted.
        let calm = cx.now.since(self.version.last_sync_completion).0 / self.settings.slices.sync.0;
        let calm = u32::try_from(calm).unwrap_or(u32::MAX);
        let calm = if calm == 0 && queue.dispatched == 0 { 1 } else { calm };
        depth.min(calm)
    }
    fn sent(&mut self, id: QueueId) {
        if self.queues[id].is_empty() {
            self.become_idle(id);
        }
    }
    fn completed(&mut self, cx: &Context<'_>, id: QueueId, _request: RequestId) {
        let queue = &mut self.queues[id];
        if queue.sync {
            self.version.last_sync_completion = cx.now;
            queue.own.habits.on_completion(cx.now);
        }
    }
    fn completed_in_slice(&mut self, cx: &mut Context<'_>, id: QueueId, request: RequestId) {
        let may_wait = !cx.requests[request].flags.has(Flags::NO_IDLE);
        let queue = &mut self.queues[id];
        if core::mem::take(&mut queue.slice_new) {
            let slice = self.settings.slices.slice(queue.sync, queue.level());
            queue.slice_end = cx.now + slice;
        }
        if queue.slice_used(cx.now) || queue.is_idle_class() {
            self.expire(cx, "slice: over; {} requests sent", true);
        } else if queue.is_empty() && queue.sync && self.close_cooperator(id).is_none() && may_wait
        {
            self.try_wait(cx, id);
        }
    }
}

impl Cfq<Early> {
    fn activate_first(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        let first = self.version.order.first()?;
        // This is its regular turn, so it may be jumped to again.
        self.queues[first].own.jumped_to = false;
        self.activate(cx, first);
        Some(first)
    }
}
