//! Measures whether a minimum is kept: compares the service of a group, second by second, with that of a drive of its own
//! that is exactly as fast as its minimum.
//!
//! Such a drive completes a request at most its *worth* ([`Minimum::worth`]: `b / min` for `b` bytes) after the previous
//! completion, or after the arrival of the request if that was later (guaranteed-rate service: Goyal and Vin, "Generalized
//! guaranteed rate scheduling algorithms", 1997). So the group has a clock, the instant up to which its minimum is kept:
//!
//! ```text
//! the group is busy       while it has pending reads or writes; what waits at a ceiling is not pending
//! on completion           clock += worth
//! overdue                 while the group is busy and now > clock + (mean worth of its pending requests)
//! after an overdue time   clock = now - (that worth)               it was counted, and is not owed as well
//! on arrival after a pause g
//!                         clock = max(clock, now)                  a pause is not owed
//!                         clock = max(clock, now + g)              if g >= (worth of all completed since the last pause)
//! always                  clock <= now + 500 ms
//! ```
//!
//! A second is broken if more than a twentieth of it was overdue. For a client that sends its next request when the previous
//! one is completed, the overdue part of a second is the part of its throughput that it lost against the drive of its own,
//! whatever its queue depth and its think time.
//!
//! *Own pace.* A client that pauses for the worth of its requests, or longer, could not reach the minimum on any drive. Its
//! next requests may therefore take as long as its pause: a client that is busy for half of the time or less never counts as
//! short, and neither does one that is slow because the drive's latency exceeds the worth of its few small requests.
//!
//! *Limits.* A client that sends at an even pace just below its minimum cannot be distinguished from one that waits for each
//! completion. A group that is always busy counts as short even if the same client would be too slow on an idle drive; then
//! the drive cannot keep this minimum for such a client.

use core::ops::Range;

use crate::contract::Limits;
use crate::minimum::{Amount, Minimum};
use crate::request::Direction;
use crate::time::{Instant, Nanos};

/// How far a clock may be ahead. Less than a second, so that a second without service is broken whatever came before; more
/// than the 200 ms for which schedulers of rotational drives serve one group.
const AHEAD_MAX: Nanos = Nanos::from_millis(500);
/// A second is broken if more than 1 / `TOLERANCE_PART` of it was overdue.
const TOLERANCE_PART: u64 = 20;

/// The meter of one group. The caller passes the minimum with each event, so that it may change at any time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MinimumMeter {
    /// The minimum is kept up to here.
    clock: Instant,
    /// The last event.
    last: Instant,
    /// Pending requests, and their amount.
    requests: u64,
    inside: Amount,
    /// Completed since the last pause.
    completed: Amount,
    overdue: Nanos,
}

impl MinimumMeter {
    /// A request of `bytes` arrives.
    pub fn arrive(&mut self, now: Instant, min: Minimum, bytes: u64) {
        if let Some(worth) = min.worth(self.completed) {
            if self.requests == 0 {
                let pause = now.since(self.last);
                let own_pace = pause >= worth;
                let from = if own_pace { now + pause.min(AHEAD_MAX) } else { now };
                self.clock = self.clock.max(from);
            }
            self.advance(now, min);
        }
        if self.requests == 0 {
            self.completed = Amount::default();
        }
        self.requests += 1;
        self.inside += Amount::of(bytes);
        self.last = now;
    }
    /// A request of `bytes` is completed.
    pub fn complete(&mut self, now: Instant, min: Minimum, bytes: u64) {
        let amount = Amount::of(bytes);
        match min.worth(amount) {
            Some(worth) => {
                self.advance(now, min);
                self.clock = (self.clock + worth.min(AHEAD_MAX * 2)).min(now + AHEAD_MAX);
            }
            // Without a minimum nothing is owed.
            None => self.clock = now,
        }
        self.requests -= 1;
        self.inside -= amount;
        self.completed += amount;
        self.last = now;
    }
    /// A request of `bytes` is not pending any more though it is not completed: a ceiling of its group holds the rest of it.
    pub fn withdraw(&mut self, now: Instant, min: Minimum, bytes: u64) {
        self.advance(now, min);
        self.requests -= 1;
        self.inside -= Amount::of(bytes);
        self.last = now;
    }
    /// When the group becomes overdue unless a request is completed before; `None` without a minimum or pending requests.
    pub fn due(&self, min: Minimum) -> Option<Instant> {
        let worth = min.worth(self.inside).filter(|_| self.requests > 0)?;
        Some(self.clock + worth / self.requests)
    }
    /// Ends a second, or another span of `length`. Returns whether the minimum was broken in it.
    pub fn end(&mut self, now: Instant, min: Minimum, length: Nanos) -> bool {
        if self.requests > 0 {
            match min.is_some() {
                true => self.advance(now, min),
                false => self.clock = now,
            }
            self.last = now;
        }
        core::mem::take(&mut self.overdue) > length / TOLERANCE_PART
    }
    /// Counts what was overdue since the last event.
    fn advance(&mut self, now: Instant, min: Minimum) {
        if self.requests == 0 || self.clock >= now {
            return;
        }
        let Some(due) = self.due(min).filter(|due| *due < now) else { return };
        self.overdue += now.since(due.max(self.last));
        // It was counted, so it is not owed as well.
        self.clock += now.since(due);
    }
}

/// Which levels of groups count a request for their minimums, from its own group (0) upwards.
///
/// A minimum is a promise for what has passed the ceilings of the group and of those inside it. While these hold all of the request
/// that is in the engine, only the levels below the first ceiling count it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passage {
    /// Levels below the first ceiling; all if there is none.
    below: usize,
    /// Pieces in the engine that have passed the ceilings.
    passed: u32,
    /// Whether the other levels count it, too.
    is_counted: bool,
}

impl Default for Passage {
    /// Without a ceiling.
    fn default() -> Self {
        Self { below: usize::MAX, passed: 0, is_counted: true }
    }
}

impl Passage {
    /// Below these limits, which are those of its group and the groups above it.
    pub fn new<'a>(limits: impl IntoIterator<Item = &'a Limits>, direction: Direction) -> Self {
        let ceiling = limits.into_iter().position(|limits| limits.limits(direction));
        ceiling.map_or_else(Self::default, |below| Self { below, passed: 0, is_counted: false })
    }
    /// Whether a ceiling can hold it.
    pub const fn is_limited(&self) -> bool {
        self.below < usize::MAX
    }
    /// The levels that count it now.
    pub const fn levels(&self) -> Range<usize> {
        0..if self.is_counted { usize::MAX } else { self.below }
    }
    /// A piece has passed the ceilings ([`Controller::next_passed`](crate::controller::Controller::next_passed)). Returns the levels
    /// that count the request from now on.
    pub fn pass(&mut self) -> Range<usize> {
        self.passed += u32::from(self.is_limited());
        match core::mem::replace(&mut self.is_counted, true) {
            true => 0..0,
            false => self.below..usize::MAX,
        }
    }
    /// A piece is completed, which `has_passed`, and `left` others are in the engine. Returns the levels that do not count the request
    /// any more.
    pub fn end(&mut self, has_passed: bool, left: u32) -> Range<usize> {
        self.passed -= u32::from(has_passed && self.is_limited());
        if !self.is_limited() || !self.is_counted || self.passed > 0 || left == 0 {
            return 0..0;
        }
        self.is_counted = false;
        self.below..usize::MAX
    }
}

#[cfg(test)]
mod tests;
