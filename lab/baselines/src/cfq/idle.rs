//! Waiting for the next request of an empty queue.

use iofair_core::policy::Context;

use super::state::Early;
use crate::parts::cfq::queue::QueueId;
use crate::parts::cfq::{Cfq, Idling, Slices};

impl Idling for Cfq<Early> {
    fn idle_window(&self, id: QueueId) -> bool {
        let queue = &self.queues[id];
        let habits = &queue.own.habits;
        queue.sync && queue.sharing.owners > 0 && !queue.is_idle_class() && habits.idle_window()
    }
    fn should_idle(&self, id: QueueId) -> bool {
        self.idle_window(id)
    }
    fn stop_idling(&mut self, cx: &mut Context<'_>, active: QueueId) {
        // Only if another client wants the drive; otherwise the slice continues.
        if self.queues[active].slice_used(cx.now) || self.queued > 0 {
            self.expire(cx, "idle: in vain; {} requests sent", false);
        }
    }
}

impl Cfq<Early> {
    /// Idles for the active queue, which is empty and whose last request has completed, if that is worthwhile.
    pub(super) fn try_wait(&mut self, cx: &mut Context<'_>, id: QueueId) {
        // Never, if there is no seek to save and the drive does other work meanwhile.
        let flash = !self.rotational && self.hw_tag.queues();
        let queue = &self.queues[id];
        let busy = self.in_driver[0] + self.in_driver[1] > 0;
        let late = queue.own.habits.thinks_longer_than(queue.slice_left(cx.now));
        if flash || !self.idle_window(id) || busy || late {
            return;
        }
        let wait = queue.own.habits.wait(self.settings.slice_idle);
        self.queues[id].waiting = true;
        self.wait_until = Some(cx.now + wait);
        cx.decide(self.subject(id), "idle: wait; {ns} for its next request", [wait.0, 0]);
    }
}
