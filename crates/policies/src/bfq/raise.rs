//! Weight raising (`low_latency`): clients that have just started, and clients that must keep a pace, get a higher
//! weight for a while. Many clients that start together are not interactive (a boot or a build) and are not raised.

use iofair_core::id::GroupId;
use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::Bfq;
use super::queue::{QueueId, WeakQueue};
use super::rate::reference;

/// Weight is multiplied by this for an interactive client, and by 100 times as much for a soft
/// real-time one.
const INTERACTIVE: u32 = 30;
const SOFT_REAL_TIME: u32 = 100 * INTERACTIVE;
/// A client that was idle for this long counts as a new start. Splits are not checked for that long.
pub(super) const IDLE_MIN: Nanos = Nanos::from_secs(2);
/// A queue that was idle for this long no longer belongs to the burst in which it was created.
const IDLE_AFTER_BURST: Nanos = Nanos::from_secs(10);
/// Buffered writes are raised again at most this often.
const ASYNC_INTERVAL: Nanos = Nanos::from_millis(500);
/// Bounds of an interactive period; and the service that ends it early.
const INTERACTIVE_MIN: Nanos = Nanos::from_secs(3);
const INTERACTIVE_MAX: Nanos = Nanos::from_secs(25);
const INTERACTIVE_SERVICE: Sectors = Sectors(120_000);
/// A soft real-time period, and the pace up to which a client is soft real-time.
const SOFT_PERIOD: Nanos = Nanos::from_millis(300);
const SOFT_RATE: u64 = 7000;
/// Four ticks of 4 ms (HZ 250), the kernel's allowance for its clock.
const FOUR_TICKS: Nanos = Nanos::from_millis(16);
/// This number of queues, each created within the interval of the previous one, is a large burst.
const BURST_SIZE: usize = 8;
pub(super) const BURST_INTERVAL: Nanos = Nanos::from_millis(180);
/// A queue that was split off within this time is not a new client.
const SPLIT_RECENTLY: Nanos = Nanos::from_millis(10);

/// Why a queue's weight is raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    No,
    Interactive,
    SoftRealTime,
}

/// A queue's raising.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    pub(super) kind: Kind,
    /// Start of the period; after it, its end or the last expiry.
    pub(super) since: Instant,
    pub(super) length: Nanos,
    /// When the interactive period began that a soft real-time one interrupted.
    interrupted: Option<Instant>,
    /// Service since the interactive period began.
    served: Sectors,
    /// A request that arrives after this instant, with nothing outstanding, keeps the pace.
    pub(super) soft_next: Instant,
    /// When it last became busy, and its service since.
    backlogged: Instant,
    served_since_backlogged: Sectors,
    /// Whether [`Self::soft_next`] must be computed when the last outstanding request completes.
    soft_pending: bool,
    pub(super) in_large_burst: bool,
}

impl Raise {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            kind: Kind::No,
            since: now,
            length: Nanos::ZERO,
            interrupted: None,
            served: Sectors::ZERO,
            soft_next: now,
            backlogged: now,
            served_since_backlogged: Sectors::ZERO,
            soft_pending: false,
            in_large_burst: false,
        }
    }
    pub(super) fn coefficient(&self) -> u32 {
        match self.kind {
            Kind::No => 1,
            Kind::Interactive => INTERACTIVE,
            Kind::SoftRealTime => SOFT_REAL_TIME,
        }
    }
    pub(super) fn is_raised(&self) -> bool {
        self.kind != Kind::No
    }
    /// Continues another queue's period.
    pub(super) fn take_over(&mut self, from: &Self) {
        (self.since, self.length) = (from.since, from.length);
        (self.interrupted, self.served) = (from.interrupted, from.served);
    }
    /// Whether it was served since it became busy.
    pub(super) fn served_lately(&self) -> bool {
        self.served_since_backlogged > Sectors::ZERO
    }
    /// Records service. Returns whether it is the first since the queue became busy.
    pub(super) fn on_served(&mut self, sectors: Sectors) -> bool {
        let first = self.served_since_backlogged == Sectors::ZERO;
        if self.is_raised() {
            self.served += sectors;
        }
        self.served_since_backlogged += sectors;
        first
    }
}

/// The queues created most recently, each shortly after the previous one.
#[derive(Debug)]
pub(super) struct Burst {
    members: [Option<WeakQueue>; BURST_SIZE],
    size: usize,
    large: bool,
    last: Option<Instant>,
    group: GroupId,
}

impl Burst {
    pub(super) fn new() -> Self {
        Self {
            members: [None; BURST_SIZE],
            size: 0,
            large: false,
            last: None,
            group: GroupId::ROOT,
        }
    }
}

/// Properties of an arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) interactive: bool,
    soft: bool,
    idle_long: bool,
    /// Whether the queue is raised or will be.
    pub(super) deserves: bool,
}

fn passed(since: Option<Instant>, span: Nanos, now: Instant) -> bool {
    since.is_none_or(|since| since + span < now)
}

impl Bfq {
    /// How long an interactive start takes on this drive.
    fn interactive_period(&self) -> Nanos {
        let (rate, duration) = reference(self.rotational);
        let scaled = Nanos(duration.0 * rate / self.rate.rate());
        scaled.clamp(INTERACTIVE_MIN, INTERACTIVE_MAX)
    }
    /// Changes why a queue is raised, and its weight with it from its next activation on.
    pub(super) fn set_raise(&mut self, id: QueueId, kind: Kind) {
        let queue = &mut self.queues[id];
        let was = core::mem::replace(&mut queue.raise.kind, kind) != Kind::No;
        if queue.busy {
            self.raised_busy += u32::from(kind != Kind::No);
            self.raised_busy -= u32::from(was);
        }
        let weight = queue.base_weight() * queue.raise.coefficient();
        self.scheduler.set_weight(queue.entity, weight);
        self.recount(id);
    }
    pub(super) fn end_raise(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let queue = &mut self.queues[id];
        (queue.raise.length, queue.raise.since) = (Nanos::ZERO, cx.now);
        let served = queue.raise.served.0;
        self.set_raise(id, Kind::No);
        cx.decide(self.subject(id), "raise: ends; {} sectors served", [served, 0]);
    }
    fn back_to_interactive(&mut self, cx: &mut Context<'_>, id: QueueId, since: Instant) {
        let length = self.interactive_period();
        let raise = &mut self.queues[id].raise;
        (raise.since, raise.length, raise.interrupted) = (since, length, None);
        self.set_raise(id, Kind::Interactive);
        cx.decide(self.subject(id), "raise: back to interactive", [0, 0]);
    }
    /// The interactive period that a soft real-time one interrupted, if it still has time.
    fn interrupted_period(&self, id: QueueId, now: Instant) -> Option<Instant> {
        let since = self.queues[id].raise.interrupted?;
        (since + self.interactive_period() >= now).then_some(since)
    }

    /// Classifies a queue that gets a request after having had none.
    pub(super) fn judge_arrival(&self, now: Instant, id: QueueId) -> Arrived {
        let queue = &self.queues[id];
        let idle_long = queue.dispatched == 0 && passed(queue.budget_timeout, IDLE_MIN, now);
        let usual = self.settings.early_habits || queue.wanted.level == 4;
        let candidate = !queue.raise.in_large_burst && usual;
        let interactive = candidate && idle_long;
        let soft = candidate
            && !queue.habits.totally_seeky()
            && queue.raise.soft_next < now
            && queue.dispatched == 0;
        let alone = queue.client.is_some() || queue.stably_merged;
        let deserves = self.settings.low_latency
            && (queue.raise.is_raised() || (queue.sync && alone && (interactive || soft)));
        Arrived { interactive, soft, idle_long, deserves }
    }
    /// Starts, restarts or ends raising when such a queue becomes busy.
    pub(super) fn raise_on_arrival(&mut self, cx: &mut Context<'_>, id: QueueId, what: Arrived) {
        let now = cx.now;
        let queue = &mut self.queues[id];
        let long_after_burst = passed(queue.budget_timeout, IDLE_AFTER_BURST, now);
        if !queue.just_created && what.idle_long && long_after_burst {
            queue.raise.in_large_burst = false;
        }
        queue.just_created = false;
        if self.settings.low_latency && passed(queue.split_at, IDLE_MIN, now) {
            self.update_raise_on_arrival(cx, id, what);
        }
        let raise = &mut self.queues[id].raise;
        (raise.backlogged, raise.served_since_backlogged) = (now, Sectors::ZERO);
        raise.soft_pending = false;
    }
    fn update_raise_on_arrival(&mut self, cx: &mut Context<'_>, id: QueueId, what: Arrived) {
        let now = cx.now;
        let period = self.interactive_period();
        let raise = &mut self.queues[id].raise;
        if !raise.is_raised() {
            if !what.deserves {
                return;
            }
            let kind = if what.interactive { Kind::Interactive } else { Kind::SoftRealTime };
            match kind {
                Kind::Interactive => (raise.served, raise.length) = (Sectors::ZERO, period),
                _ => (raise.interrupted, raise.length) = (None, SOFT_PERIOD),
            }
            self.set_raise(id, kind);
            cx.decide(self.subject(id), rule(kind), [self.queues[id].raise.length.0, 0]);
            let entity = self.queues[id].entity;
            let budget = self.scheduler.budget(entity).min(Sectors(2 * self.min_budget().0));
            self.scheduler.set_budget(now, entity, budget);
        } else if what.interactive {
            raise.length = period;
            self.set_raise(id, Kind::Interactive);
        } else if raise.in_large_burst {
            self.set_raise(id, Kind::No);
        } else if what.soft {
            let was = raise.kind;
            if was != Kind::SoftRealTime {
                raise.interrupted = Some(raise.since);
                raise.length = SOFT_PERIOD;
            }
            raise.since = now;
            self.set_raise(id, Kind::SoftRealTime);
            if was != Kind::SoftRealTime {
                cx.decide(self.subject(id), rule(Kind::SoftRealTime), [SOFT_PERIOD.0, 0]);
            }
        }
    }
    /// Handles a buffered write that arrives at its busy queue.
    pub(super) fn raise_async(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let period = self.interactive_period();
        let queue = &mut self.queues[id];
        if queue.sync || queue.raise.is_raised() || queue.raise.since + ASYNC_INTERVAL >= cx.now {
            return;
        }
        (queue.raise.served, queue.raise.length) = (Sectors::ZERO, period);
        self.set_raise(id, Kind::Interactive);
        cx.decide(self.subject(id), rule(Kind::Interactive), [period.0, 1]);
    }
    /// Ends raising in service when its time or its service is used up.
    pub(super) fn check_raise(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let raise = self.queues[id].raise;
        if raise.is_raised() {
            if raise.in_large_burst {
                self.end_raise(cx, id);
            } else if raise.since + raise.length < cx.now {
                self.end_period(cx, id);
            }
            let raise = self.queues[id].raise;
            if raise.kind == Kind::Interactive && raise.served > INTERACTIVE_SERVICE {
                self.end_raise(cx, id);
            }
        }
        let queue = &self.queues[id];
        let weight_raised = self.scheduler.weight(queue.entity) > queue.base_weight();
        if weight_raised != queue.raise.is_raised() {
            self.scheduler.apply_weight(queue.entity);
        }
    }
    /// Ends a period; an interactive one that was interrupted may continue.
    fn end_period(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let soft = self.queues[id].raise.kind == Kind::SoftRealTime;
        match self.interrupted_period(id, cx.now).filter(|_| soft) {
            Some(since) => self.back_to_interactive(cx, id, since),
            None => self.end_raise(cx, id),
        }
    }
    /// Ends the soft real-time raising of a queue that only seeks.
    pub(super) fn drop_seeky_soft(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let queue = &self.queues[id];
        if queue.raise.kind == Kind::SoftRealTime && queue.habits.totally_seeky() {
            self.end_period(cx, id);
        }
    }
    /// Stops the clock of a soft real-time period while its queue waits for service.
    pub(super) fn hold_soft_period(&mut self, now: Instant, id: QueueId) {
        let queue = &mut self.queues[id];
        let Some(left) = queue.budget_timeout.filter(|left| *left < now) else { return };
        if queue.raise.kind != Kind::SoftRealTime || queue.raise.since >= now {
            return;
        }
        queue.raise.since = match left > queue.raise.since {
            true => queue.raise.since + now.since(left),
            false => now,
        };
    }

    /// Earliest time at which the next request may come for the queue to be soft real-time.
    fn compute_soft_next(&self, now: Instant, id: QueueId) -> Instant {
        let raise = &self.queues[id].raise;
        // A queue may be backlogged for days; from some terabytes on, its pace is a month away.
        let served = raise.served_since_backlogged.0;
        let pace = Nanos(served.saturating_mul(1_000_000_000) / SOFT_RATE);
        let idle = now + self.settings.slice_idle + FOUR_TICKS;
        raise.soft_next.max(raise.backlogged + pace).max(idle)
    }
    /// Handles the expiry of a queue; if it is empty, its pace is checked now or at its last completion.
    pub(super) fn raise_on_expiry(&mut self, now: Instant, id: QueueId) {
        if !self.settings.low_latency {
            return;
        }
        let next = self.compute_soft_next(now, id);
        // Until 5.3 the pace is not judged in an interactive period.
        let early = self.settings.early_habits;
        let queue = &mut self.queues[id];
        if !queue.raise.is_raised() {
            queue.raise.since = now;
        }
        if queue.is_quiet() {
            if early && queue.raise.kind == Kind::Interactive {
                return;
            }
            queue.raise.soft_next = next;
        } else if queue.is_empty() {
            queue.raise.soft_pending = true;
        }
    }
    pub(super) fn raise_on_complete(&mut self, now: Instant, id: QueueId) {
        let queue = &self.queues[id];
        let interactive = queue.raise.kind == Kind::Interactive;
        if queue.raise.soft_pending && queue.is_quiet() && !interactive {
            self.queues[id].raise.soft_next = self.compute_soft_next(now, id);
        }
    }
    /// Handles a queue that is split off: its old raising continues if it still has time.
    pub(super) fn resume_raise(&mut self, cx: &mut Context<'_>, id: QueueId, saved: Raise) {
        let now = cx.now;
        let in_large_burst = self.queues[id].raise.in_large_burst || saved.in_large_burst;
        self.queues[id].raise = Raise { kind: self.queues[id].raise.kind, in_large_burst, ..saved };
        let over = in_large_burst || saved.since + saved.length < now;
        match self.interrupted_period(id, now) {
            _ if !over => self.set_raise(id, saved.kind),
            Some(since) if saved.kind == Kind::SoftRealTime && !in_large_burst => {
                self.back_to_interactive(cx, id, since);
            }
            _ => self.set_raise(id, Kind::No),
        }
    }

    /// Handles a new queue: detects bursts.
    pub(super) fn note_burst(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let queue = &self.queues[id];
        let split = queue.split_at.is_some_and(|at| at + SPLIT_RECENTLY >= cx.now);
        let weak = self.queues.weak(id);
        let member = self.burst.members[..self.burst.size].contains(&Some(weak));
        if split || member || queue.raise.in_large_burst {
            return;
        }
        let burst = &mut self.burst;
        if passed(burst.last, BURST_INTERVAL, cx.now) || burst.group != queue.group {
            (burst.large, burst.size, burst.group) = (false, 1, queue.group);
            burst.members[0] = Some(weak);
        } else if burst.large {
            self.queues[id].raise.in_large_burst = true;
        } else {
            burst.members[burst.size] = Some(weak);
            burst.size += 1;
            if burst.size == BURST_SIZE {
                self.mark_large_burst(cx);
            }
        }
        self.burst.last = Some(cx.now);
    }
    fn mark_large_burst(&mut self, cx: &mut Context<'_>) {
        self.burst.large = true;
        for weak in &mut self.burst.members {
            if let Some(id) = weak.take().and_then(|weak| self.queues.alive(weak)) {
                self.queues[id].raise.in_large_burst = true;
            }
        }
        self.burst.size = 0;
        cx.decide(iofair_core::trace::Subject::Drive, "raise: large burst", [BURST_SIZE as u64, 0]);
    }
}

fn rule(kind: Kind) -> &'static str {
    match kind {
        Kind::No => "raise: none",
        Kind::Interactive => "raise: interactive; for {ns}",
        Kind::SoftRealTime => "raise: soft real-time; for {ns}",
    }
}
