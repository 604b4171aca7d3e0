//! The clock of one group. [`super::clock`] describes the rules and keeps the clocks of all groups.

use super::requests::{QueueState, Requests};
use super::shares::EntityId;
use crate::parts::tree::NodeId;
use iofair_core::minimum::{Amount, Minimum};
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};

/// The value of [`Clock::busy_part`] that means 1, its lower bound, and the divisor of its growth.
const BUSY_WHOLE: u64 = 1024;
const BUSY_LEAST: u64 = 64;
const BUSY_FORGETS: u64 = 32;
/// Upper bound of the slack.
const SLACK_MAX: Nanos = Nanos::from_millis(2);
/// The value of [`Clock::kept`] of a minimum that is not cut.
pub(super) const WHOLE: u64 = 1 << 20;
/// A minimum is cut after this many periods (100 ms) behind: to the most that was reached in one of them,
/// minus a margin for other groups.
const CUT_AFTER: u32 = 5;
/// The margin is as large a part as the group missed, but at least 1/32 and at most 1/6.
const MARGIN_PARTS: [u64; 2] = [32, 6];
/// Periods for which a minimum stays cut.
const CUT_PERIODS: u64 = 50;
/// Afterwards it grows by 1/16 in each period.
const RECOVER: u64 = 16;
/// How far a clock may fall behind; older claims expire.
pub(super) const LAG_MAX: Nanos = Nanos::from_secs(1);
/// Buffered writes that are due wait for this long, so that more of them go together.
pub(super) const BATCH_DELAY: Nanos = Nanos::from_millis(10);

/// Order of the groups in a tree of [`super::clock::Clocks`]: the time at which a group is due, then the group. A single
/// number, because comparisons are most of the cost of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct DueKey(u128);

impl DueKey {
    pub(super) const fn new(at: Instant, id: EntityId) -> Self {
        Self((at.0 as u128) << 32 | id.bits() as u128)
    }
    pub(super) const fn at(self) -> Instant {
        Instant((self.0 >> 32) as u64)
    }
    pub(super) const fn id(self) -> EntityId {
        EntityId::from_bits(self.0 as u32)
    }
}

/// `value / of`, in units of `1 / one`, rounded down.
fn ratio(value: u64, of: u64, one: u64) -> u64 {
    // Divisions of 128 bits take several times as long as these.
    if let Some(units) = value.checked_mul(one) {
        return units / of.max(1);
    }
    let units = u128::from(value) * u128::from(one) / u128::from(of.max(1));
    u64::try_from(units).unwrap_or(u64::MAX)
}

/// The node of a group that is in no tree.
pub(super) const NOWHERE: NodeId = NodeId(u32::MAX);

/// A group, with a minimum or without. Its clock begins in the second cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Group {
    pub(super) requests: Requests,
    /// The time in its key, if it is in a tree.
    pub(super) due: Instant,
    /// Its node in the tree of its class and `state`, or [`NOWHERE`].
    pub(super) node: NodeId,
    pub(super) state: QueueState,
    /// Class of its minimum.
    pub(super) class: Class,
    /// Present if it has a minimum.
    pub(super) clock: Option<Clock>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            requests: Requests::default(),
            clock: None,
            due: Instant::ZERO,
            node: NOWHERE,
            state: QueueState::Busy,
            class: Class::default(),
        }
    }
}

/// Clock of a group's minimum. What each command needs is in the first cache line, and `promised` in the second one.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Clock {
    /// The clock: `kept` has been served up to this time.
    pub(super) at: Instant,
    /// The part of `promised` that is kept now, in units of 1 / [`WHOLE`].
    pub(super) kept: u64,
    /// Worth of the last command.
    pub(super) grant: Nanos,
    /// Worth of all commands since the group last became busy.
    pub(super) burst: Nanos,
    /// Worth of the service in this period, by the whole minimum.
    pub(super) served: Nanos,
    /// Begin of the present period.
    pub(super) period: Instant,
    /// If not zero, the group has only flushes, and until then it counts as between two data requests.
    pub(super) data_until: Instant,
    /// Whether the last command that was dispatched is urgent.
    pub(super) awaited: bool,
    /// A batch of buffered writes is being served; it ends when the clock is ahead.
    pub(super) batch: bool,
    /// Whether the clock was behind throughout this period.
    pub(super) behind: bool,
    pub(super) promised: Minimum,
    /// When the group last had nothing queued or in flight.
    pub(super) idle_since: Instant,
    /// Until then, the group counts as between two requests.
    pub(super) idle_until: Instant,
    /// Mean pause between requests, except pauses longer than [`SLACK_MAX`].
    pub(super) pause: Nanos,
    /// When the group last became busy.
    pub(super) began: Instant,
    /// The least time that a burst took, divided by its increment, in units of 1 / [`BUSY_WHOLE`]; grows slowly.
    pub(super) busy_part: u64,
    /// Consecutive periods behind.
    pub(super) missed: u32,
    /// The most that was reached in one of them, in units of 1 / [`WHOLE`].
    pub(super) reached: u64,
    /// Until when the minimum stays cut.
    pub(super) cut_until: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            promised: Minimum::NONE,
            kept: WHOLE,
            at: Instant::ZERO,
            awaited: false,
            batch: false,
            idle_since: Instant::ZERO,
            idle_until: Instant::ZERO,
            data_until: Instant::ZERO,
            pause: Nanos::ZERO,
            grant: Nanos::ZERO,
            burst: Nanos::ZERO,
            began: Instant::ZERO,
            busy_part: BUSY_WHOLE / 2,
            period: Instant::ZERO,
            served: Nanos::ZERO,
            behind: false,
            missed: 0,
            reached: 0,
            cut_until: Instant::ZERO,
        }
    }
    /// Whether the group, which has nothing queued or in flight, began a pause when that came to be.
    pub(super) fn pauses(&self) -> bool {
        self.idle_until > self.idle_since
    }
    /// By how much an amount moves the clock, by the part of the minimum that is kept now.
    pub(super) fn increment(&self, amount: Amount) -> Nanos {
        self.kept_increment(self.promised.worth(amount).unwrap_or(Nanos::ZERO))
    }
    /// The increment by the part of the minimum that is kept now, if it is `whole` by all of it.
    pub(super) fn kept_increment(&self, whole: Nanos) -> Nanos {
        if self.kept == WHOLE {
            return whole;
        }
        Nanos(ratio(whole.0, self.kept, WHOLE))
    }
    pub(super) fn slack(&self) -> Nanos {
        let learned = Nanos(self.pause.0.saturating_mul(2));
        // How long its pauses may be if it is to reach its minimum at its own pace.
        let room = Nanos(self.burst.0 / BUSY_WHOLE * (BUSY_WHOLE - self.busy_part));
        let fits = self.pause + self.pause / 4 <= room;
        let most = if fits { room } else { self.burst / 2 };
        learned.max(self.burst / 4).min(most).min(SLACK_MAX)
    }
    /// The group has nothing queued or in flight any more: updates `busy_part`, and begins a pause.
    pub(super) fn rest(&mut self, now: Instant) {
        let part = ratio(now.since(self.began).0, self.burst.0, BUSY_WHOLE);
        let slower = self.busy_part + self.busy_part / BUSY_FORGETS + 1;
        let part = part.min(slower);
        self.busy_part = part.clamp(BUSY_LEAST, BUSY_WHOLE / 2);
        (self.idle_since, self.idle_until) = (now, now + self.slack());
    }
    /// Limits how far the clock is behind.
    pub(super) fn forget(&mut self, now: Instant, most: Nanos) {
        self.at = self.at.max(now.saturating_sub(most));
    }
    pub(super) fn end_period(&mut self, now: Instant, period: Nanos) {
        let time = now.since(self.period);
        if time < period {
            return;
        }
        let reached = ratio(self.served.0, time.0, WHOLE);
        self.reached = self.reached.max(reached);
        self.missed += 1;
        // A group that gets more than its minimum is catching up.
        if !self.behind || reached >= self.kept {
            (self.missed, self.reached) = (0, 0);
            if now >= self.cut_until {
                self.kept = WHOLE.min(self.kept + self.kept / RECOVER + 1);
            }
        } else if self.missed >= CUT_AFTER {
            let missing = WHOLE - self.reached.min(WHOLE);
            let left = u128::from(self.reached) * u128::from(missing) / u128::from(WHOLE);
            let [least, most] = MARGIN_PARTS.map(|part| self.reached / part);
            let left = u64::try_from(left).unwrap_or(most).clamp(least, most);
            self.kept = self.kept.min(self.reached - left).max(1);
            (self.at, self.cut_until) = (now, now + Nanos(period.0 * CUT_PERIODS));
            (self.missed, self.reached) = (0, 0);
        }
        (self.period, self.served, self.behind) = (now, Nanos::ZERO, true);
    }
    /// When its queued requests are due; `urgent`: at least one of them is urgent.
    pub(super) fn due(&self, urgent: bool) -> Instant {
        if urgent || self.batch { self.at } else { self.at + BATCH_DELAY }
    }
    /// A request arrives, and the group had nothing queued or in flight.
    pub(super) fn wake(&mut self, now: Instant) {
        let pause = now.since(self.idle_since);
        let first = self.idle_since == Instant::ZERO;
        if first || now > self.idle_until {
            if self.at <= now {
                let own = now.since(self.idle_until);
                self.at = if first { now } else { (self.at + own).min(now) };
            }
            (self.period, self.served, self.behind) = (now, Nanos::ZERO, true);
            (self.missed, self.reached) = (0, 0);
        }
        if pause <= SLACK_MAX {
            self.pause = Nanos(self.pause.0 - self.pause.0 / 8 + pause.0 / 8);
        }
        self.forget(now, LAG_MAX);
        (self.burst, self.began) = (Nanos::ZERO, now);
    }
}
