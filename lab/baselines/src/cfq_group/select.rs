//! The loop that decides whose request goes to the drive, and what follows from its completion.

use crate::parts::hw_tag::Load;
use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::priority_slice::async_requests;

use super::CfqGroup;
use super::queue::QueueId;

/// Requests in the drive by kind.
const SYNC: usize = 0;
const ASYNC: usize = 1;

impl CfqGroup {
    pub(super) fn on_dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.check_wait(cx);
        // A repeated call without an event gives the same result at any time. So only the end of idling needs a
        // wake-up.
        if self.holds {
            return None;
        }
        let chosen = match self.queued {
            0 => None,
            _ => self.select(cx).filter(|id| self.may_send(cx, *id)),
        };
        self.holds = chosen.is_none();
        chosen.map(|id| self.send(cx, id))
    }

    /// The active queue, or the next one; `None` while CFQ idles for the active one.
    fn select(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        let Some(id) = self.active else { return self.activate_next(cx) };
        let queue = &self.queues[id];
        let over = queue.slice_used(cx.now) && !queue.must_dispatch;
        if queue.wait_busy && !queue.is_empty() {
            self.expire(cx, "slice: over, and the group stays; {} requests sent", false);
            return self.activate_next(cx);
        }
        if over {
            // It used its slice, and CFQ idled for it until then; its request may still come back.
            let alone = self.groups[queue.group.index()].queues == 1;
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
        let group = &self.groups[self.queues[id].group.index()];
        let group_waits = self.settings.group_idle > Nanos::ZERO && group.dispatched > 0;
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
    /// Stops idling for a deep seeky queue if the drive is faster than the queue's client.
    fn distrust_deep(&mut self, now: Instant, id: QueueId) {
        let queue = &mut self.queues[id];
        let had = queue.slice_start.map_or(Nanos::ZERO, |start| now.since(start));
        let early = queue.slice_new || queue.slice_left(now) > had;
        if queue.seeky() && queue.idle_window && early {
            (queue.deep, queue.idle_window) = (false, false);
        }
    }
    fn activate_next(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        let next = self.choose(cx)?;
        self.activate(cx, next);
        Some(next)
    }
    fn activate(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let queue = &mut self.queues[id];
        // The slice begins with its first completion.
        (queue.slice_new, queue.slice_start, queue.activated) = (true, None, cx.now);
        (queue.allocated, queue.slice_sent) = (Nanos::ZERO, 0);
        (queue.waiting, queue.must_dispatch, queue.wait_busy) = (false, false, false);
        queue.backlog.begin_slice();
        self.wait_until = None;
        self.active = Some(id);
        cx.decide(self.subject(id), "slice: begins; {} queues busy", [u64::from(self.busy), 0]);
    }
    /// Ends the active slice. `timed`: its unused or excess time counts in the next turn.
    pub(super) fn expire(&mut self, cx: &mut Context<'_>, rule: &'static str, timed: bool) {
        let Some(id) = self.active.take() else { return };
        self.wait_until = None;
        let whole =
            if timed && self.queues[id].slice_new { self.queue_slice(id) } else { Nanos::ZERO };
        let subject = self.subject(id);
        let queue = &mut self.queues[id];
        (queue.waiting, queue.wait_busy) = (false, false);
        queue.split_asked |= queue.sharing.shared && queue.seeky();
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

    /// Whether this queue may dispatch without disturbing others in the drive.
    fn may_send(&self, cx: &mut Context<'_>, id: QueueId) -> bool {
        let queue = &self.queues[id];
        let rule = if self.in_driver[ASYNC] > 0 && self.should_idle(id) {
            "hold: buffered writes are in the drive"
        } else if !queue.sync && self.in_driver[SYNC] > 0 {
            "hold: synchronous requests are in the drive"
        } else if queue.dispatched >= self.depth(cx, id) {
            "hold: the drive has enough of this queue; {} requests"
        } else {
            return true;
        };
        cx.decide(self.subject(id), rule, [u64::from(queue.dispatched), 0]);
        false
    }
    /// Number of requests of this queue that the drive may have.
    fn depth(&self, cx: &Context<'_>, id: QueueId) -> u32 {
        let (queue, quantum) = (&self.queues[id], self.settings.quantum);
        if queue.is_idle_class() {
            return 1;
        }
        let alone = self.busy == 1 || (queue.sync && self.busy_sync == 1);
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
        let calm = match self.last_late_completion {
            Some(at) => cx.now.since(at),
            None => cx.now.since(Instant::ZERO) + Nanos::from_secs(1),
        };
        let calm = u32::try_from(calm.0 / self.settings.slices.sync.0).unwrap_or(u32::MAX);
        let calm = if calm == 0 && queue.dispatched == 0 { 1 } else { calm };
        depth.min(calm)
    }

    fn send(&mut self, cx: &mut Context<'_>, id: QueueId) -> RequestId {
        let queue = &mut self.queues[id];
        let expire = match queue.sync {
            true => self.settings.fifo_expire_sync,
            false => self.settings.fifo_expire_async,
        };
        let (sorted, rules) = (&mut self.sorted, &self.head.rules);
        let request = queue.backlog.take(sorted, cx.requests, (cx.now, expire), rules);
        queue.dispatched += 1;
        queue.slice_sent += 1;
        queue.must_dispatch = false;
        self.groups[queue.group.index()].dispatched += 1;
        self.in_driver[if queue.sync { SYNC } else { ASYNC }] += 1;
        self.queued -= 1;
        self.head.at = cx.requests[request].end();
        self.place(cx.requests, id);
        let queue = &self.queues[id];
        let writes = async_requests(self.settings.slice_async_rq, queue.level());
        let enough = !queue.sync && queue.slice_sent >= writes;
        if self.busy > 1 && (enough || queue.is_idle_class()) {
            self.expire(cx, "slice: enough requests; {} requests sent", false);
        }
        request
    }

    pub(super) fn on_complete(&mut self, cx: &mut Context<'_>, request: RequestId) {
        self.check_wait(cx);
        self.holds = false;
        let id = self.owners.of(request);
        self.sample_depth();
        let now = cx.now;
        let queue = &mut self.queues[id];
        queue.dispatched -= 1;
        self.in_driver[if queue.sync { SYNC } else { ASYNC }] -= 1;
        let group = &mut self.groups[queue.group.index()];
        group.dispatched -= 1;
        group.pauses.on_completion(now);
        if queue.sync {
            queue.pauses.on_completion(now);
            let tree = queue.service.map_or(queue.service_tree(), |(tree, _)| tree);
            group.trees[tree].pauses.on_completion(now);
            if cx.requests[request].submitted + self.settings.fifo_expire_sync <= now {
                self.last_late_completion = Some(now);
            }
        }
        if self.active == Some(id) {
            self.completed_in_slice(cx, id);
        }
        self.release_if_unused(cx, id);
    }
    fn completed_in_slice(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let now = cx.now;
        if core::mem::take(&mut self.queues[id].slice_new) {
            let slice = self.queue_slice(id);
            let queue = &mut self.queues[id];
            queue.slice_start = Some(now);
            (queue.allocated, queue.slice_end) = (slice, now + slice);
        }
        if self.should_wait_busy(cx, id) {
            let settings = &self.settings;
            let queueless = settings.slice_idle == Nanos::ZERO;
            let extra = if queueless { settings.group_idle } else { settings.slice_idle };
            self.queues[id].slice_end = now + extra;
            self.queues[id].wait_busy = true;
        }
        let queue = &self.queues[id];
        if queue.slice_used(now) || queue.is_idle_class() {
            self.expire(cx, "slice: over; {} requests sent", true);
        } else if queue.is_empty() && queue.sync && self.close_cooperator(id).is_none() {
            self.try_wait(cx, id);
        }
    }
    fn sample_depth(&mut self) {
        let active = self.active.map(|id| &self.queues[id]).filter(|queue| queue.idle_window);
        self.hw_tag.sample(&Load {
            in_driver: self.in_driver[SYNC] + self.in_driver[ASYNC],
            queued: self.queued,
            active_waited_for: active.map(|queue| queue.dispatched + queue.backlog.len() as u32),
        });
    }
}
