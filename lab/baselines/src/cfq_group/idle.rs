//! Idling: for the next request of a queue, for that of the last queue of a workload, and for that of the last queue
//! of a group, so that the group keeps its place.

use iofair_core::policy::Context;
use iofair_core::time::Nanos;

use super::queue::QueueId;
use super::{CfqGroup, TICK};

impl CfqGroup {
    fn queueing_flash(&self) -> bool {
        !self.rotational && self.hw_tag.queues()
    }
    /// Whether idling for the queue is worthwhile, for itself or as the last one of its service tree.
    pub(super) fn should_idle(&self, id: QueueId) -> bool {
        let queue = &self.queues[id];
        let slice_idle = self.settings.slice_idle;
        if slice_idle == Nanos::ZERO || queue.is_idle_class() {
            return false;
        }
        if queue.idle_window && !self.queueing_flash() {
            return true;
        }
        let Some((tree, _)) = queue.service else { return false };
        let service = &self.groups[queue.group.index()].trees[tree];
        queue.sync && service.tree.len() == 1 && !service.pauses.longer_than(slice_idle)
    }
    /// Whether it is the only queue of its group, and the group is likely to continue soon.
    pub(super) fn is_last_of_quick_group(&self, id: QueueId) -> bool {
        let group = &self.groups[self.queues[id].group.index()];
        group.queues == 1 && !group.pauses.longer_than(self.settings.group_idle)
    }

    /// Whether the active queue's slice, which is over or nearly so, should be extended until the next request
    /// arrives, so that its group stays in the tree.
    pub(super) fn should_wait_busy(&self, cx: &Context<'_>, id: QueueId) -> bool {
        let queue = &self.queues[id];
        if !queue.is_empty() || !self.is_last_of_quick_group(id) {
            return false;
        }
        let left = queue.slice_left(cx.now);
        queue.slice_used(cx.now) || queue.pauses.longer_than(left) || left <= TICK
    }

    /// Idles for the active queue, which is empty and whose last request has completed, if that is worthwhile.
    pub(super) fn try_wait(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let settings = &self.settings;
        let queue = &self.queues[id];
        let group_wait = !self.should_idle(id);
        let wait = if group_wait { settings.group_idle } else { settings.slice_idle };
        let busy = queue.dispatched > 0 || queue.sharing.owners == 0;
        let late = queue.pauses.longer_than(queue.slice_left(cx.now));
        if wait == Nanos::ZERO || busy || late {
            return;
        }
        if group_wait && !self.is_last_of_quick_group(id) {
            return;
        }
        self.queues[id].waiting = true;
        self.wait_until = Some(cx.now + wait);
        let rule = if group_wait {
            "idle: wait for the group; {ns} for its next request"
        } else {
            "idle: wait; {ns} for its next request"
        };
        cx.decide(self.subject(id), rule, [wait.0, 0]);
    }
    /// Ends idling if its time has passed.
    pub(super) fn check_wait(&mut self, cx: &mut Context<'_>) {
        if self.wait_until.is_none_or(|until| until > cx.now) {
            return;
        }
        self.wait_until = None;
        self.holds = false;
        if let Some(active) = self.active {
            let queue = &mut self.queues[active];
            // Unless it used its time anyway, idling for it as a deep queue is not worthwhile.
            queue.deep &= queue.slice_used(cx.now);
            self.expire(cx, "idle: in vain; {} requests sent", false);
        }
    }
}
