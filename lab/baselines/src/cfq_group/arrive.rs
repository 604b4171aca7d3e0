//! A request comes: what it says of its process, and whether its queue preempts the active one.

use iofair_core::id::{GroupId, RequestId};
use iofair_core::policy::Context;
use iofair_core::request::Flags;
use iofair_core::time::Nanos;
use iofair_policies::parts::seeks::CLOSE;

use super::Grouped;
use super::queue::Workload;
use crate::parts::cfq::queue::QueueId;
use crate::parts::cfq::{Arrivals, Cfq, Idling};

/// This many requests at once make a queue deep.
const DEEP: usize = 4;

impl Arrivals for Cfq<Grouped> {
    fn observe_arrival(&mut self, cx: &Context<'_>, id: QueueId, request: RequestId) {
        let (now, slice_idle) = (cx.now, self.settings.slice_idle);
        let queue = &mut self.queues[id];
        let group = &mut self.version.groups[queue.group.index()];
        group.pauses.on_request(now, self.version.settings.group_idle);
        let (start, length) = (cx.requests[request].start, cx.requests[request].length);
        queue.own.seeks.note_cfq(self.rotational, start, length);
        if !queue.sync {
            return;
        }
        queue.own.pauses.on_request(now, slice_idle);
        let (tree, _) = queue.own.service.expect("it has a request");
        group.trees[tree].pauses.on_request(now, slice_idle);
        if queue.is_idle_class() {
            return;
        }
        queue.own.deep |= queue.backlog.len() >= DEEP;
        if slice_idle == Nanos::ZERO || (!queue.own.deep && queue.own.seeky()) {
            queue.own.idle_window = false;
        } else if let Some(mean) = queue.own.pauses.think.mean() {
            queue.own.idle_window = mean <= slice_idle;
        }
    }
    fn preempts(&self, cx: &Context<'_>, id: QueueId, request: RequestId) -> Option<&'static str> {
        let active_id = self.active?;
        let (queue, active) = (&self.queues[id], &self.queues[active_id]);
        if queue.is_idle_class() {
            return None;
        }
        if active.is_idle_class() {
            return Some("preempt: the active queue is of the idle class");
        }
        if active.is_real_time() && !queue.is_real_time() {
            return None;
        }
        if queue.sync && !active.sync && !active.must_dispatch {
            return Some("preempt: synchronous over buffered writes");
        }
        // The remaining rules only apply inside a group and to the groups above it.
        if !self.is_below(cx, active.group, queue.group) {
            return None;
        }
        if active.slice_used(cx.now) {
            return Some("preempt: the active slice is over");
        }
        if queue.is_real_time() && !active.is_real_time() {
            return Some("preempt: real time");
        }
        let no_idle = queue.workload() == Workload::NoIdle;
        if no_idle && self.version.serving.workload == Workload::NoIdle && active.is_empty() {
            return Some("preempt: another queue not waited for");
        }
        if cx.requests[request].flags.has(Flags::METADATA) && active.backlog.metadata() == 0 {
            return Some("preempt: metadata");
        }
        if active.is_empty() && !self.should_idle(active_id) {
            return Some("preempt: the active queue is not worth a wait");
        }
        let as_good = active.waiting && self.head.at.distance(cx.requests[request].start) <= CLOSE;
        as_good.then_some("preempt: close to what is waited for")
    }
}

impl Cfq<Grouped> {
    /// Whether `group` is the other one, or somewhere below it.
    fn is_below(&self, cx: &Context<'_>, group: GroupId, above: GroupId) -> bool {
        !self.by_groups || cx.groups.ancestry(group).any(|id| id == above)
    }
}
