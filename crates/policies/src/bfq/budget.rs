//! Budgets: how much service a queue may get in one slot, how a slot ends, and how its end changes the next budget.
//! Queues that waste drive time are charged for the time.

use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::Bfq;
use super::queue::QueueId;
use super::rate::SHORT;

/// The largest budget until the peak rate is known well enough.
const DEFAULT_MAX: Sectors = Sectors(16 * 1024);
/// The estimate counts once the average of budgets handed out (1/8 new, on a scale of 256) is above
/// this, which takes eleven.
const ASSIGNED_MIN: u64 = 194;
const ASSIGNED_MAX: u64 = 256;
/// The smallest budget, as a part of the largest.
const MIN_PART: u64 = 32;
/// Time charged to slots shorter than [`SPEED_MIN`] on flash; longer ones than [`SPEED_SURE`] show
/// whether the queue was slow.
const SPEED_MIN: Nanos = Nanos::from_millis(1);
const SPEED_SURE: Nanos = Nanos::from_millis(20);

/// Why a slot ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expiry {
    /// No request arrived while BFQ idled.
    TooIdle,
    BudgetTimeout,
    BudgetExhausted,
    /// It is empty, and BFQ does not idle for it.
    NoMoreRequests,
    Preempted,
}

/// The end of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    reason: Expiry,
    /// The time for which BFQ just idled is not charged to the queue.
    after_wait: bool,
}

impl Expiry {
    pub(super) fn after_wait(self) -> End {
        End { reason: self, after_wait: true }
    }
    pub(super) fn now(self) -> End {
        End { reason: self, after_wait: false }
    }
    fn rule(self) -> &'static str {
        match self {
            Self::TooIdle => "expire: too idle; {} of {} sectors used",
            Self::BudgetTimeout => "expire: budget timeout; {} of {} sectors used",
            Self::BudgetExhausted => "expire: budget exhausted; {} of {} sectors used",
            Self::NoMoreRequests => "expire: no more requests; {} of {} sectors used",
            Self::Preempted => "expire: preempted; {} of {} sectors used",
        }
    }
}

impl Bfq {
    fn peak_known(&self) -> bool {
        self.budgets_assigned >= ASSIGNED_MIN
    }
    /// The largest budget in force.
    pub(super) fn max_budget(&self) -> Sectors {
        if self.peak_known() { self.budget_limit } else { DEFAULT_MAX }
    }
    pub(super) fn min_budget(&self) -> Sectors {
        Sectors(self.max_budget().0 / MIN_PART)
    }
    /// What a new queue starts with.
    pub(super) fn first_budget(&self) -> Sectors {
        Sectors(2 * self.max_budget().0 / 3)
    }
    /// The limit before anything was measured.
    pub(super) fn first_limit(max_budget: Option<Sectors>) -> Sectors {
        max_budget.unwrap_or(DEFAULT_MAX)
    }
    /// Sets the drive's peak rate, if it is known from the start.
    pub(super) fn know_peak(&mut self, bytes_per_s: u64) {
        self.rate.know(bytes_per_s);
        self.budgets_assigned = ASSIGNED_MAX;
        self.follow_rate();
    }
    /// The peak rate changed.
    pub(super) fn follow_rate(&mut self) {
        if self.settings.max_budget.is_none() {
            self.budget_limit = self.rate.sectors_in(self.settings.timeout).max(Sectors(MIN_PART));
        }
    }
    /// What sending a request of this length costs its queue.
    pub(super) fn cost(&self, id: QueueId, length: Sectors) -> Sectors {
        let queue = &self.queues[id];
        if queue.sync || queue.raise.is_raised() {
            return length;
        }
        if !self.settings.async_charge_always && self.is_asymmetric(Some(id)) {
            return length;
        }
        let twice = self.settings.async_charge_twice && self.raised_busy > 0;
        Sectors(length.0 * self.settings.async_charge * (1 + u64::from(twice)))
    }
    /// The cost of a queue's next request; zero without one.
    pub(super) fn next_cost(&self, cx: &Context<'_>, id: QueueId) -> Sectors {
        let next = self.queues[id].next;
        next.map_or(Sectors::ZERO, |next| self.cost(id, cx.requests[next].length))
    }
    pub(super) fn next_fits(&self, cx: &Context<'_>, id: QueueId) -> bool {
        let left = self.scheduler.budget_left(self.queues[id].entity);
        self.queues[id].next.is_some() && self.next_cost(cx, id) <= left
    }

    /// A queue comes into service: its slot starts.
    pub(super) fn start_slot(&mut self, now: Instant, id: QueueId) {
        self.budgets_assigned = (self.budgets_assigned * 7 + 256) / 8;
        self.hold_soft_period(now, id);
        let queue = &mut self.queues[id];
        queue.fifo_checked = false;
        let stretch = match queue.raise.kind {
            super::raise::Kind::SoftRealTime => 1,
            _ => u64::from((self.scheduler.weight(queue.entity) / queue.base_weight()).max(1)),
        };
        queue.budget_timeout = Some(now + self.settings.timeout * stretch);
        self.slot_started = now;
        self.injected = Sectors::ZERO;
    }
    pub(super) fn budget_timed_out(&self, now: Instant, id: QueueId) -> bool {
        self.queues[id].budget_timeout.is_none_or(|timeout| timeout <= now)
    }
    fn third_left(&self, id: QueueId) -> bool {
        let entity = self.queues[id].entity;
        self.scheduler.budget_left(entity).0 >= self.scheduler.budget(entity).0 / 3
    }
    /// Whether the slot's time is used up, and ending it now would not interrupt idling in vain.
    pub(super) fn may_time_out(&self, now: Instant, id: QueueId) -> bool {
        (!self.queues[id].waiting || self.third_left(id)) && self.budget_timed_out(now, id)
    }

    /// Whether the queue in service was slow, and how long it had the drive.
    fn judge_speed(&self, id: QueueId, end: Instant) -> (bool, Nanos) {
        let queue = &self.queues[id];
        if !queue.sync {
            return (false, Nanos::ZERO);
        }
        let (time, seeky) = (end.since(self.slot_started), queue.habits.seeky());
        if time < SPEED_MIN {
            let counted = if self.rotational { self.settings.slice_idle } else { SHORT };
            return (seeky, counted);
        }
        if time <= SPEED_SURE {
            return (seeky, time);
        }
        let half = Sectors(self.max_budget().0 / 2);
        (self.scheduler.service(queue.entity) < half, time)
    }
    /// Charges the part of the largest budget that the time is of the longest slot, in whole
    /// milliseconds as the kernel has it. Here the estimate counts from the first slot on.
    fn charge_time(&mut self, id: QueueId, time: Nanos) {
        let longest = self.settings.timeout.as_millis();
        let time = time.as_millis().min(longest);
        let due = Sectors(self.budget_limit.0 * time / longest);
        self.scheduler.charge_up_to(self.queues[id].entity, due);
    }

    /// Ends the slot of the queue in service.
    pub(super) fn expire(&mut self, cx: &mut Context<'_>, id: QueueId, end: End) {
        let End { reason, after_wait } = end;
        let entity = self.queues[id].entity;
        let until = if after_wait { self.wait_started } else { cx.now };
        let (slow, time) = self.judge_speed(id, until);
        let received = self.scheduler.service(entity);
        cx.decide(self.subject(id), reason.rule(), [received.0, self.scheduler.budget(entity).0]);
        let raised = self.queues[id].raise.is_raised();
        if !raised && (slow || (reason == Expiry::BudgetTimeout && self.third_left(id))) {
            self.charge_time(id, time);
        }
        self.judge_wait(id, reason);
        self.raise_on_expiry(cx.now, id);
        self.stop_sampling();
        self.learn_budget(cx, id, reason);
        self.leave_service(cx, id, reason);
        if !self.queues[id].busy
            && !matches!(reason, Expiry::BudgetTimeout | Expiry::BudgetExhausted)
        {
            self.queues[id].expected = true;
        }
        self.release_if_unused(id);
    }
    /// Until 5.3, idling in vain decides whether a queue is busy nearly always.
    fn judge_wait(&mut self, id: QueueId, reason: Expiry) {
        let entity = self.queues[id].entity;
        let little = self.scheduler.service(entity).0 <= 2 * self.scheduler.budget(entity).0 / 10;
        if self.settings.early_habits && reason == Expiry::TooIdle && little {
            self.queues[id].habits.io_bound = false;
        }
    }
    fn leave_service(&mut self, cx: &mut Context<'_>, id: QueueId, reason: Expiry) {
        self.stop_waiting(id);
        let queue = &mut self.queues[id];
        if queue.shared && queue.habits.seeky() {
            queue.split_asked = true;
        }
        let keeps_place = reason == Expiry::Preempted && self.idling_is_owed(id);
        self.in_service = None;
        let queue = &mut self.queues[id];
        let (entity, prioritised) = (queue.entity, queue.priority != queue.wanted);
        if queue.is_empty() && !keeps_place {
            if queue.dispatched == 0 {
                queue.budget_timeout = Some(cx.now);
            }
            self.become_idle(cx.now, id);
        } else if prioritised {
            self.become_idle(cx.now, id);
            self.become_busy(cx.now, id);
            self.place(cx, id);
        } else {
            self.scheduler.requeue(cx.now, entity);
            self.queues.list(id);
            self.place(cx, id);
        }
    }
    /// Derives the next budget from how the queue used this one.
    fn learn_budget(&mut self, cx: &Context<'_>, id: QueueId, reason: Expiry) {
        let (max, min) = (self.max_budget().0, self.min_budget().0);
        let queue = &self.queues[id];
        let before = queue.max_budget.0;
        let service = self.scheduler.service(queue.entity).0;
        let budget = match reason {
            _ if !queue.sync => max,
            // A small constant one keeps latencies low.
            _ if queue.raise.is_raised() => 2 * min,
            Expiry::TooIdle if queue.dispatched > 0 => (2 * before).min(max),
            Expiry::TooIdle if before > 5 * min => before - 4 * min,
            Expiry::TooIdle => min,
            Expiry::BudgetTimeout => (2 * before).min(max),
            Expiry::BudgetExhausted => (4 * before).min(max),
            Expiry::NoMoreRequests => service.max(min),
            Expiry::Preempted => before,
        };
        let capped = self.peak_known() && self.settings.max_budget.is_none();
        let budget = Sectors(if capped { budget.min(max) } else { budget });
        self.queues[id].max_budget = budget;
        let next_cost = self.next_cost(cx, id);
        if self.queues[id].next.is_some() {
            let entity = self.queues[id].entity;
            self.scheduler.set_budget(cx.now, entity, budget.max(next_cost));
        }
    }
    /// Adapts the budget of a waiting queue whose next request changed: the budget must cover it.
    pub(super) fn follow_next(&mut self, cx: &Context<'_>, id: QueueId) {
        let queue = &self.queues[id];
        if queue.next.is_none() || !queue.busy || self.in_service == Some(id) {
            return;
        }
        let entity = queue.entity;
        let budget = queue.max_budget.max(self.next_cost(cx, id));
        let budget = budget.max(self.scheduler.service(entity));
        if self.scheduler.budget(entity) != budget {
            self.scheduler.set_budget(cx.now, entity, budget);
            self.queues.list(id);
        }
    }
    /// Whether a request that arrives now comes soon enough after the queue's last completion for BFQ to have idled
    /// for it.
    pub(super) fn is_in_time(&self, now: Instant, id: QueueId) -> bool {
        now <= self.queues[id].last_end + self.settings.slice_idle * 3
    }
    /// Sets the budget of a queue that becomes busy. Returns true if the queue wants to preempt, because it did not
    /// cause its own wait. Until preemption by weight (5.3), also because it is raised or about to be.
    pub(super) fn grant_budget(&mut self, cx: &Context<'_>, id: QueueId, deserves: bool) -> bool {
        let queue = &self.queues[id];
        let in_time = self.is_in_time(cx.now, id);
        let left = self.scheduler.budget_left(queue.entity);
        let (entity, max_budget) = (queue.entity, queue.max_budget);
        if queue.expected && in_time && left > Sectors::ZERO {
            self.scheduler.set_budget(cx.now, entity, left.min(max_budget));
            return true;
        }
        self.queues[id].expected = false;
        let budget = max_budget.max(self.next_cost(cx, id));
        self.scheduler.set_budget(cx.now, entity, budget);
        deserves && !self.settings.preempt_lower
    }
}
