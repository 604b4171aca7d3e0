//! A request comes: what it says of its process, and whether its queue preempts the active one.

use iofair_core::id::{GroupId, RequestId};
use iofair_core::policy::Context;
use iofair_core::request::Flags;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_policies::parts::seeks::CLOSE;
use iofair_policies::parts::sorted_fifo::{Entry, MergeRules};

use super::CfqGroup;
use super::queue::{QueueId, Workload};

/// A request longer than one page is dispatched without waiting for others to merge with.
const PAGE: Sectors = Sectors(8);
/// This many requests at once make a queue deep.
const DEEP: usize = 4;

impl CfqGroup {
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
        let (now, settings) = (cx.now, &self.settings);
        let queue = &mut self.queues[id];
        let group = &mut self.groups[queue.group.index()];
        group.pauses.on_request(now, settings.group_idle);
        let (start, length) = (cx.requests[request].start, cx.requests[request].length);
        queue.seeks.note_cfq(self.rotational, start, length);
        if !queue.sync {
            return;
        }
        queue.pauses.on_request(now, settings.slice_idle);
        let (tree, _) = queue.service.expect("it has a request");
        group.trees[tree].pauses.on_request(now, settings.slice_idle);
        if queue.is_idle_class() {
            return;
        }
        queue.deep |= queue.backlog.len() >= DEEP;
        if settings.slice_idle == Nanos::ZERO || (!queue.deep && queue.seeky()) {
            queue.idle_window = false;
        } else if let Some(mean) = queue.pauses.think.mean() {
            queue.idle_window = mean <= settings.slice_idle;
        }
    }
    /// Stops idling, because the active queue gets a request.
    fn stop_waiting_for(&mut self, cx: &Context<'_>, id: QueueId, request: RequestId) {
        let others = self.busy > 1;
        let queue = &mut self.queues[id];
        if core::mem::take(&mut queue.waiting) {
            self.wait_until = None;
            // As in `cfq`: a small request of the only queue would wait for its submitter to unplug.
            queue.must_dispatch = cx.requests[request].length <= PAGE && !others;
        }
    }

    /// Whether `group` is the other one, or somewhere below it.
    fn is_below(&self, cx: &Context<'_>, group: GroupId, above: GroupId) -> bool {
        !self.by_groups || cx.groups.ancestry(group).any(|id| id == above)
    }
    /// The rule by which a request of another queue ends the active slice, if any.
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
        if no_idle && self.serving.workload == Workload::NoIdle && active.is_empty() {
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
    fn preempt(&mut self, cx: &mut Context<'_>, id: QueueId, rule: &'static str) {
        let before = self.active.map(|active| self.queues[active].workload());
        cx.decide(self.subject(id), rule, [u64::from(self.busy), 0]);
        self.expire(cx, "slice: preempted; {} requests sent", true);
        let queue = &self.queues[id];
        if before != Some(queue.workload()) {
            // Otherwise the group would continue with the preempted queue.
            self.groups[queue.group.index()].saved = None;
        }
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
