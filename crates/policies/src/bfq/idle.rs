//! Idling for an empty queue: when it increases throughput, when it is needed for fairness, and for how long.

use iofair_core::policy::Context;
use iofair_core::priority::Class;
use iofair_core::time::Nanos;

use super::Bfq;
use super::budget::Expiry;
use super::queue::QueueId;
use super::rate::SHORT;

/// From this number of requests of others in the drive on, BFQ idles for a raised queue.
const CROWD: u32 = 4;

impl Bfq {
    /// Whether the drive is flash that executes several commands at once. Only there nothing is lost without idling.
    pub(super) fn is_queueing_flash(&self) -> bool {
        !self.rotational && self.queueing.seen
    }
    /// Classes that have busy queues.
    pub(super) fn busy_classes(&self) -> usize {
        Class::ALL.iter().filter(|class| self.scheduler.busy_queues(**class) > 0).count()
    }
    fn may_idle(&self, id: QueueId) -> bool {
        let queue = &self.queues[id];
        self.settings.slice_idle > Nanos::ZERO && queue.sync && queue.priority.class != Class::Idle
    }
    /// Whether idling for this queue increases throughput and does not slow down a raised queue.
    pub(super) fn idling_boosts_throughput(&self, id: QueueId) -> bool {
        let deserted = self.queues[id].owners == 0 && !self.settings.idle_deserted;
        if !self.may_idle(id) || deserted {
            return false;
        }
        let habits = &self.queues[id].habits;
        let one_by_one = self.rotational && !self.queueing.seen;
        let sequential = !habits.seeky() && habits.io_bound && habits.short_think;
        let boosts = one_by_one || (!self.is_queueing_flash() && sequential);
        boosts && self.raised_busy == 0
    }
    /// Whether other queues would take this queue's share if BFQ did not idle for it.
    pub(super) fn idling_is_owed(&self, id: QueueId) -> bool {
        let queue = &self.queues[id];
        if !self.may_idle(id) || queue.owners == 0 {
            return false;
        }
        let busy = self.scheduler.busy_queues_total();
        let crowded = self.in_driver >= queue.dispatched + CROWD;
        let raised = queue.raise.is_raised()
            && (self.raised_busy < busy || (self.settings.idle_raised_in_crowd && crowded));
        raised || self.is_asymmetric(Some(id)) || (self.settings.idle_alone && busy == 1)
    }
    pub(super) fn better_to_idle(&self, id: QueueId) -> bool {
        self.settings.strict_guarantees
            || self.idling_boosts_throughput(id)
            || self.idling_is_owed(id)
    }
    /// Whether the queue is empty and BFQ should idle for it.
    pub(super) fn must_idle(&self, id: QueueId) -> bool {
        self.queues[id].is_empty() && self.better_to_idle(id)
    }

    /// Starts to idle for the queue in service.
    pub(super) fn start_waiting(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let queue = &self.queues[id];
        let raised = queue.raise.is_raised();
        let mut wait = self.settings.slice_idle;
        if queue.habits.seeky() && !raised && !self.is_asymmetric(Some(id)) {
            wait = wait.min(SHORT);
        } else if raised {
            wait = wait.max(self.settings.slice_idle_raised);
        }
        self.queues[id].waiting = true;
        self.wait_started = cx.now;
        self.wait_until = Some(cx.now + wait);
        cx.decide(self.subject(id), "idle: wait; {ns} for its next request", [wait.0, 0]);
    }
    pub(super) fn stop_waiting(&mut self, id: QueueId) {
        self.queues[id].waiting = false;
        self.wait_until = None;
    }
    /// Ends idling if its time has passed without a request.
    pub(super) fn check_wait(&mut self, cx: &mut Context<'_>) {
        if self.wait_until.is_none_or(|until| until > cx.now) {
            return;
        }
        self.wait_until = None;
        self.holds = false;
        let Some(id) = self.in_service else { return };
        self.queues[id].waiting = false;
        if self.budget_timed_out(cx.now, id) {
            self.expire(cx, id, Expiry::BudgetTimeout.after_wait());
        } else if self.queues[id].is_empty() {
            self.expire(cx, id, Expiry::TooIdle.after_wait());
        }
    }
}
