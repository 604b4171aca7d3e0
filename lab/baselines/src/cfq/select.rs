//! The loop that decides whose request goes to the drive, and what follows from its completion.

use crate::parts::hw_tag::Load;
use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::request::Flags;
use iofair_policies::parts::priority_slice::async_requests;

use super::Cfq;
use super::queue::QueueId;

/// Requests in the drive by kind.
const SYNC: usize = 0;
const ASYNC: usize = 1;

impl Cfq {
    pub(super) fn on_dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.check_wait(cx);
        // A repeated call without an event gives the same result at any time. So only the end of idling needs a
        // wake-up.
        if self.holds {
            return None;
        }
        let chosen = match self.order.is_empty() {
            true => None,
            false => self.select(cx).filter(|id| self.may_send(cx, *id)),
        };
        self.holds = chosen.is_none();
        chosen.map(|id| self.send(cx, id))
    }

    /// The active queue, or the next one; `None` while CFQ idles for the active one.
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
        if self.wait_until.is_some() || (queue.dispatched > 0 && queue.idle_window()) {
            return None;
        }
        self.expire(cx, "slice: nothing queued, not waited for; {} requests sent", false);
        self.activate_first(cx)
    }
    fn activate_first(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        let first = self.order.first()?;
        // This is its regular turn, so it may be jumped to again.
        self.queues[first].jumped_to = false;
        self.activate(cx, first);
        Some(first)
    }
    fn activate(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let queue = &mut self.queues[id];
        // The slice begins with its first completion.
        (queue.slice_new, queue.slice_sent) = (true, 0);
        (queue.waiting, queue.must_dispatch) = (false, false);
        queue.backlog.begin_slice();
        self.wait_until = None;
        self.active = Some(id);
        cx.decide(self.subject(id), "slice: begins; {} queues busy", [self.order.busy() as u64, 0]);
    }
    /// Ends the active slice. `timed`: its unused or excess time counts in the next turn.
    pub(super) fn expire(&mut self, cx: &mut Context<'_>, rule: &'static str, timed: bool) {
        let Some(id) = self.active.take() else { return };
        let subject = self.subject(id);
        let queue = &mut self.queues[id];
        (queue.waiting, self.wait_until) = (false, None);
        if timed && !queue.slice_new {
            let left = i128::from(queue.slice_end.0) - i128::from(cx.now.0);
            queue.slice_residual = left.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        }
        cx.decide(subject, rule, [queue.slice_sent, 0]);
        self.resort(cx.now, id);
    }

    /// Whether this queue may dispatch without disturbing others in the drive.
    fn may_send(&self, cx: &mut Context<'_>, id: QueueId) -> bool {
        let queue = &self.queues[id];
        let rule = if queue.idle_window() && self.in_driver[ASYNC] > 0 {
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
        let depth = match (queue.is_idle_class(), self.order.busy() > 1) {
            (true, _) => 1,
            (false, true) => quantum,
            // The only queue may have more, but only after it has its quantum; the result is the same.
            (false, false) => quantum.saturating_mul(4),
        };
        if queue.sync || !self.settings.low_latency {
            return depth;
        }
        // The more recent the last read, the more slowly buffered writes are admitted.
        let calm = cx.now.since(self.last_sync_completion).0 / self.settings.slices.sync.0;
        let calm = u32::try_from(calm).unwrap_or(u32::MAX);
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
        self.in_driver[if queue.sync { SYNC } else { ASYNC }] += 1;
        self.queued -= 1;
        self.head.at = cx.requests[request].end();
        self.place(cx.requests, id);
        if self.queues[id].is_empty() {
            self.become_idle(id);
        }
        let queue = &self.queues[id];
        let writes = async_requests(self.settings.slice_async_rq, queue.level());
        let enough = !queue.sync && queue.slice_sent >= writes;
        if self.order.busy() > 1 && (enough || queue.is_idle_class()) {
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
        if queue.sync {
            self.in_driver[SYNC] -= 1;
            self.last_sync_completion = now;
            queue.habits.on_completion(now);
        } else {
            self.in_driver[ASYNC] -= 1;
        }
        if self.active == Some(id) {
            self.completed_in_slice(cx, id, request);
        }
        self.release_if_unused(cx, id);
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
    fn sample_depth(&mut self) {
        let active = self.active.map(|id| &self.queues[id]).filter(|queue| queue.idle_window());
        self.hw_tag.sample(&Load {
            in_driver: self.in_driver[SYNC] + self.in_driver[ASYNC],
            queued: self.queued,
            active_waited_for: active.map(|queue| queue.dispatched + queue.backlog.len() as u32),
        });
    }
}
