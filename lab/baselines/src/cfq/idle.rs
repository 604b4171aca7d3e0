//! Waiting for the next request of an empty queue.

use iofair_core::policy::Context;

use super::Cfq;
use super::queue::QueueId;

impl Cfq {
    /// Idles for the active queue, which is empty and whose last request has completed, if that is worthwhile.
    pub(super) fn try_wait(&mut self, cx: &mut Context<'_>, id: QueueId) {
        // Never, if there is no seek to save and the drive does other work meanwhile.
        let flash = !self.rotational && self.hw_tag.queues();
        let queue = &self.queues[id];
        let busy = self.in_driver[0] + self.in_driver[1] > 0;
        let late = queue.habits.thinks_longer_than(queue.slice_left(cx.now));
        if flash || !queue.idle_window() || busy || late {
            return;
        }
        let wait = queue.habits.wait(self.settings.slice_idle);
        self.queues[id].waiting = true;
        self.wait_until = Some(cx.now + wait);
        cx.decide(self.subject(id), "idle: wait; {ns} for its next request", [wait.0, 0]);
    }
    /// Ends idling if its time has passed.
    pub(super) fn check_wait(&mut self, cx: &mut Context<'_>) {
        if self.wait_until.is_none_or(|until| until > cx.now) {
            return;
        }
        self.wait_until = None;
        self.holds = false;
        let Some(active) = self.active else { return };
        // Only if another client wants the drive; otherwise the slice continues.
        if self.queues[active].slice_used(cx.now) || !self.order.is_empty() {
            self.expire(cx, "idle: in vain; {} requests sent", false);
        }
    }
}
