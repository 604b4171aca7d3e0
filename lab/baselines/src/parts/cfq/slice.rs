//! A slice: the active queue's requests go to the drive and are completed.

use crate::parts::hw_tag::Load;
use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_policies::parts::priority_slice::async_requests;

use super::queue::QueueId;
use super::{ASYNC, Cfq, Idling, Order, Rules, SYNC, Slices, Version};

impl<V: Version> Cfq<V>
where
    Self: Rules,
{
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
    pub(crate) fn activate(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let queue = &mut self.queues[id];
        // The slice begins with its first completion.
        (queue.slice_new, queue.slice_sent) = (true, 0);
        (queue.waiting, queue.must_dispatch) = (false, false);
        queue.backlog.begin_slice();
        self.begin(cx.now, id);
        self.wait_until = None;
        self.active = Some(id);
        cx.decide(self.subject(id), "slice: begins; {} queues busy", [u64::from(self.busy()), 0]);
    }
    /// Ends idling if its time has passed.
    pub(super) fn check_wait(&mut self, cx: &mut Context<'_>) {
        if self.wait_until.is_none_or(|until| until > cx.now) {
            return;
        }
        self.wait_until = None;
        self.holds = false;
        if let Some(active) = self.active {
            self.stop_idling(cx, active);
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
    fn send(&mut self, cx: &mut Context<'_>, id: QueueId) -> RequestId {
        let queue = &mut self.queues[id];
        let expire = match queue.sync {
            true => self.settings.fifo_expire_sync,
            false => self.settings.fifo_expire_async,
        };
        let (sorted, rules) = (&mut self.sorted, &self.head.rules);
        let request = queue.backlog.take(sorted, cx, expire, rules);
        queue.dispatched += 1;
        queue.slice_sent += 1;
        queue.must_dispatch = false;
        self.in_driver[if queue.sync { SYNC } else { ASYNC }] += 1;
        self.queued -= 1;
        self.head.at = cx.requests[request].end();
        self.place(cx.requests, id);
        self.sent(id);
        let queue = &self.queues[id];
        let writes = async_requests(self.settings.slice_async_rq, queue.level());
        let enough = !queue.sync && queue.slice_sent >= writes;
        if self.busy() > 1 && (enough || queue.is_idle_class()) {
            self.expire(cx, "slice: enough requests; {} requests sent", false);
        }
        request
    }
    pub(super) fn on_complete(&mut self, cx: &mut Context<'_>, request: RequestId) {
        self.check_wait(cx);
        self.holds = false;
        let id = self.owners.queue(request);
        self.sample_depth();
        let queue = &mut self.queues[id];
        queue.dispatched -= 1;
        self.in_driver[if queue.sync { SYNC } else { ASYNC }] -= 1;
        self.completed(cx, id, request);
        if self.active == Some(id) {
            self.completed_in_slice(cx, id, request);
        }
        self.release_if_unused(cx, id);
    }
    fn sample_depth(&mut self) {
        let active = self.active.filter(|id| self.idle_window(*id)).map(|id| &self.queues[id]);
        self.hw_tag.sample(&Load {
            in_driver: self.in_driver[SYNC] + self.in_driver[ASYNC],
            queued: self.queued,
            active_waited_for: active.map(|queue| queue.dispatched + queue.backlog.len() as u32),
        });
    }
}
