//! Idling: for the next request of a queue, for that of the last queue of a workload, and for that of the last queue
//! of a group, so that the group keeps its place.

use iofair_core::policy::Context;
use iofair_core::time::Nanos;

use super::Grouped;
use super::settings::TICK;
use crate::parts::cfq::queue::QueueId;
use crate::parts::cfq::{Cfq, Idling, Slices};

impl Idling for Cfq<Grouped> {
    fn idle_window(&self, id: QueueId) -> bool {
        self.queues[id].own.idle_window
    }
    /// For itself or as the last one of its service tree.
    fn should_idle(&self, id: QueueId) -> bool {
        let queue = &self.queues[id];
        let slice_idle = self.settings.slice_idle;
        if slice_idle == Nanos::ZERO || queue.is_idle_class() {
            return false;
        }
        if queue.own.idle_window && !self.queueing_flash() {
            return true;
        }
        let Some((tree, _)) = queue.own.service else { return false };
        let service = &self.version.groups[queue.group.index()].trees[tree];
        queue.sync && service.tree.len() == 1 && !service.pauses.longer_than(slice_idle)
    }
    fn stop_idling(&mut self, cx: &mut Context<'_>, active: QueueId) {
        let queue = &mut self.queues[active];
        // Unless it used its time anyway, idling for it as a deep queue is not worthwhile.
        queue.own.deep &= queue.slice_used(cx.now);
        self.expire(cx, "idle: in vain; {} requests sent", false);
    }
}

impl Cfq<Grouped> {
    fn queueing_flash(&self) -> bool {
        !self.rotational && self.hw_tag.queues()
    }
    /// Whether it is the only queue of its group, and the group is likely to continue soon.
    pub(super) fn is_last_of_quick_group(&self, id: QueueId) -> bool {
        let group = &self.version.groups[self.queues[id].group.index()];
        group.queues == 1 && !group.pauses.longer_than(self.version.settings.group_idle)
    }

    /// Whether the active queue's slice, which is over or nearly so, should be extended until the next request
    /// arrives, so that its group stays in the tree.
    pub(super) fn should_wait_busy(&self, cx: &Context<'_>, id: QueueId) -> bool {
        let queue = &self.queues[id];
        if !queue.is_empty() || !self.is_last_of_quick_group(id) {
            return false;
        }
        let left = queue.slice_left(cx.now);
        queue.slice_used(cx.now) || queue.own.pauses.longer_than(left) || left <= TICK
    }

    /// Idles for the active queue, which is empty and whose last request has completed, if that is worthwhile.
    pub(super) fn try_wait(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let settings = &self.settings;
        let queue = &self.queues[id];
        let group_wait = !self.should_idle(id);
        let wait = if group_wait { self.version.settings.group_idle } else { settings.slice_idle };
        let busy = queue.dispatched > 0 || queue.sharing.owners == 0;
        let late = queue.own.pauses.longer_than(queue.slice_left(cx.now));
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
}
