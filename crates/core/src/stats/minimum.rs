//! Is a minimum kept? What a group got, second by second, against a drive of its own that is just as fast as its minimum.
//!
//! Such a drive completes a request at most as long as the request is worth ([`Minimum::worth`]: `b / min` for `b` bytes) after
//! it has completed the one before, or after the request arrived if that was later (guaranteed-rate service: Goyal and Vin, "Generalized guaranteed rate scheduling
//! algorithms", 1997). So the group has a clock, the instant up to which its minimum is kept:
//!
//! ```text
//! the group asks          while reads or writes of it are inside
//! on completion           clock += worth
//! overdue                 while the group asks and now > clock + (mean worth of what is inside)
//! after an overdue time   clock = now - (that worth)               it was counted, and is not owed as well
//! on arrival after a pause g
//!                         clock = max(clock, now)                  a pause is not owed
//!                         clock = max(clock, now + g)              if g >= (worth of all completed since the last pause)
//! always                  clock <= now + 500 ms
//! ```
//!
//! A second is broken if more than a twentieth of it was overdue. For a client that sends its next request when the last
//! one is completed, the overdue part of a second is the part of its throughput that it lost against the drive of its own,
//! whatever its queue depth and its own time between two requests.
//!
//! *Own pace.* A client that pauses for as long as its requests are worth, or longer, could not reach the minimum however
//! fast the drive was. Its next requests may take as long as it paused: a client with requests inside for half of the
//! time or less never counts as short, and neither does one that is slow because the drive's latency is longer than what its
//! few small requests are worth.
//!
//! *What this cannot know.* A client that sends at an even pace just below its minimum, and one that waits for each
//! completion, look alike. A group that asks all the time counts as short though the same client would be too slow on an
//! empty drive: then the minimum is one that the drive cannot keep for such a client.

use crate::minimum::{Amount, Minimum};
use crate::time::{Instant, Nanos};

/// How far a clock runs ahead. Below a second, so that a second with nothing is broken whatever came before; more than
/// schedulers of drives with a head need, which serve a group for 200 ms at a time.
const AHEAD_MAX: Nanos = Nanos::from_millis(500);
/// A second is broken if more than one part of so many was overdue.
const TOLERANCE_PART: u64 = 20;

/// The meter of one group. The caller says at each event what the minimum is, so that it may change at any time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MinimumMeter {
    /// The minimum is kept up to here.
    clock: Instant,
    /// The last event.
    last: Instant,
    /// Requests inside, and how much they are.
    requests: u64,
    inside: Amount,
    /// Completed since the last pause.
    completed: Amount,
    overdue: Nanos,
}

impl MinimumMeter {
    /// A request of so many bytes arrives.
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
    /// A request of so many bytes is completed.
    pub fn complete(&mut self, now: Instant, min: Minimum, bytes: u64) {
        let amount = Amount::of(bytes);
        match min.worth(amount) {
            Some(worth) => {
                self.advance(now, min);
                self.clock = (self.clock + worth.min(AHEAD_MAX * 2)).min(now + AHEAD_MAX);
            }
            // Nothing is owed from before there was a minimum.
            None => self.clock = now,
        }
        self.requests -= 1;
        self.inside -= amount;
        self.completed += amount;
        self.last = now;
    }
    /// When the group begins to be overdue, if nothing of what is inside is completed before; `None` if it asks for nothing.
    pub fn due(&self, min: Minimum) -> Option<Instant> {
        let worth = min.worth(self.inside).filter(|_| self.requests > 0)?;
        Some(self.clock + worth / self.requests)
    }
    /// A second is over, or another span of `length`: was the minimum broken in it?
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
        // Counted, and not owed as well.
        self.clock += now.since(due);
    }
}

#[cfg(test)]
mod tests;
