//! The arrival of a request: what it shows about its process, and whether its queue preempts the active one.

use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::request::Flags;

use super::state::Early;
use crate::parts::cfq::queue::QueueId;
use crate::parts::cfq::{Arrivals, Cfq};
use crate::parts::habits::WaitRules;

impl Arrivals for Cfq<Early> {
    fn observe_arrival(&mut self, cx: &Context<'_>, id: QueueId, request: RequestId) {
        if !self.queues[id].sync {
            return;
        }
        let spurn_seeky = !self.settings.low_latency && self.hw_tag.queues();
        let rules = WaitRules { slice_idle: self.settings.slice_idle, spurn_seeky };
        let (start, length) = (cx.requests[request].start, cx.requests[request].length);
        self.queues[id].own.habits.on_request(cx.now, start, length, &rules);
        self.note_seekiness(cx.now, id);
    }
    fn preempts(&self, cx: &Context<'_>, id: QueueId, request: RequestId) -> Option<&'static str> {
        let (queue, active) = (&self.queues[id], &self.queues[self.active?]);
        let request = &cx.requests[request];
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
        if queue.is_real_time() && !active.is_real_time() {
            return Some("preempt: real time");
        }
        let as_good = active.waiting && active.own.habits.is_close(self.head.at, request.start);
        as_good.then_some("preempt: close to what is waited for")
    }
}
