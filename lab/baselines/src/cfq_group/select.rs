//! The choice of the next queue, and the end of a slice.

use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};

use super::Grouped;
use crate::parts::cfq::queue::QueueId;
use crate::parts::cfq::{Cfq, Idling, Slices};

impl Slices for Cfq<Grouped> {
    fn select(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        let Some(id) = self.active else { return self.activate_next(cx) };
        let queue = &self.queues[id];
        let over = queue.slice_used(cx.now) && !queue.must_dispatch;
        if queue.own.wait_busy && !queue.is_empty() {
            self.expire(cx, "slice: over, and the group stays; {} requests sent", false);
            return self.activate_next(cx);
        }
        if over {
            // It used its slice, and CFQ idled for it until then; its request may still come back.
            let alone = self.version.groups[queue.group.index()].queues == 1;
            let outstanding = alone && queue.is_empty() && queue.dispatched > 0;
            if outstanding && self.should_idle(id) {
                return None;
            }
        } else {
            if !queue.is_empty() {
                return Some(id);
            }
            if let Some(other) = self.close_cooperator(id) {
                self.merge_later(cx, id, other);
                self.expire(cx, "slice: another queue is close; {} requests sent", false);
                self.activate(cx, other);
                return Some(other);
            }
            if self.wait_until.is_some() {
                return None;
            }
            self.distrust_deep(cx.now, id);
            if self.queues[id].dispatched > 0 && self.should_idle(id) {
                return None;
            }
        }
        let group = &self.version.groups[self.queues[id].group.index()];
        let group_waits = self.version.settings.group_idle > Nanos::ZERO && group.dispatched > 0;
        if group_waits && self.is_last_of_quick_group(id) {
            return None;
        }
        self.expire(
            cx,
            if over {
                "slice: over; {} requests sent"
            } else {
                "slice: nothing queued; {} requests sent"
            },
            false,
        );
        self.activate_next(cx)
    }
    fn begin(&mut self, now: Instant, id: QueueId) {
        let own = &mut self.queues[id].own;
        (own.slice_start, own.activated) = (None, now);
        (own.allocated, own.wait_busy) = (Nanos::ZERO, false);
    }
    fn expire(&mut self, cx: &mut Context<'_>, rule: &'static str, timed: bool) {
        let Some(id) = self.active.take() else { return };
        self.wait_until = None;
        let whole =
            if timed && self.queues[id].slice_new { self.queue_slice(id) } else { Nanos::ZERO };
        let subject = self.subject(id);
        let queue = &mut self.queues[id];
        (queue.waiting, queue.own.wait_busy) = (false, false);
        queue.own.split_asked |= queue.sharing.shared && queue.own.seeky();
        if timed {
            let end = if queue.slice_new { cx.now + whole } else { queue.slice_end };
            let left = i128::from(end.0) - i128::from(cx.now.0);
            queue.residual = left.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        }
        cx.decide(subject, rule, [queue.slice_sent, 0]);
        self.charge(cx, id);
        match self.queues[id].is_empty() {
            true => self.become_idle(id),
            false => self.resort(cx.now, id),
        }
    }
    fn depth(&self, cx: &Context<'_>, id: QueueId) -> u32 {
        let (queue, quantum) = (&self.queues[id], self.settings.quantum);
        if queue.is_idle_class() {
            return 1;
        }
        let alone = self.version.busy == 1 || (queue.sync && self.version.busy_sync == 1);
        let soon = || cx.now + self.settings.slice_idle * u64::from(queue.dispatched);
        let depth = match alone {
            true => u32::MAX,
            false if queue.slice_new || soon() > queue.slice_end => (quantum / 2).max(1),
            false => quantum,
        };
        if queue.sync || !self.settings.low_latency {
            return depth;
        }
        // The more recent the last late read, the more slowly buffered writes are admitted.
        let calm = match self.version.last_late_completion {
            Some(at) => cx.now.since(at),
            None => cx.now.since(Instant::ZERO) + Nanos::from_secs(1),
        };
        let calm = u32::try_from(calm.0 / self.settings.slices.sync.0).unwrap_or(u32::MAX);
        let calm = if calm == 0 && queue.dispatched == 0 { 1 } else { calm };
        depth.min(calm)
    }
    fn sent(&mut self, id: QueueId) {
        self.version.groups[self.queues[id].group.index()].dispatched += 1;
    }
    fn completed(&mut self, cx: &Context<'_>, id: QueueId, request: RequestId) {
        let (now, queue) = (cx.now, &mut self.queues[id]);
        let group = &mut self.version.groups[queue.group.index()];
        group.dispatched -= 1;
        group.pauses.on_completion(now);
        if queue.sync {
            queue.own.pauses.on_completion(now);
            let tree = queue.own.service.map_or(queue.service_tree(), |(tree, _)| tree);
            group.trees[tree].pauses.on_completion(now);
            if cx.requests[request].submitted + self.settings.fifo_expire_sync <= now {
                self.version.last_late_completion = Some(now);
            }
        }
    }
    fn completed_in_slice(&mut self, cx: &mut Context<'_>, id: QueueId, _request: RequestId) {
        let now = cx.now;
        if core::mem::take(&mut self.queues[id].slice_new) {
            let slice = self.queue_slice(id);
            let queue = &mut self.queues[id];
            queue.own.slice_start = Some(now);
            (queue.own.allocated, queue.slice_end) = (slice, now + slice);
        }
        if self.should_wait_busy(cx, id) {
            let settings = &self.settings;
            let queueless = settings.slice_idle == Nanos::ZERO;
            let extra =
                if queueless { self.version.settings.group_idle } else { settings.slice_idle };
            self.queues[id].slice_end = now + extra;
            self.queues[id].own.wait_busy = true;
        }
        let queue = &self.queues[id];
        if queue.slice_used(now) || queue.is_idle_class() {
            self.expire(cx, "slice: over; {} requests sent", true);
        } else if queue.is_empty() && queue.sync && self.close_cooperator(id).is_none() {
            self.try_wait(cx, id);
        }
    }
}

impl Cfq<Grouped> {
    /// Stops idling for a deep seeky queue if the drive is faster than the queue's client.
    fn distrust_deep(&mut self, now: Instant, id: QueueId) {
        let queue = &mut self.queues[id];
        let had = queue.own.slice_start.map_or(Nanos::ZERO, |start| now.since(start));
        let early = queue.slice_new || queue.slice_left(now) > had;
        if queue.own.seeky() && queue.own.idle_window && early {
            (queue.own.deep, queue.own.idle_window) = (false, false);
        }
    }
    fn activate_next(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        let next = self.choose(cx)?;
        self.activate(cx, next);
        Some(next)
    }
}
