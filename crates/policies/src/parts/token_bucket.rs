//! A token bucket in exact integers: a rate, and how much may be saved up while nobody asks.
//!
//! The bucket counts in units times nanoseconds, so neither filling nor waiting rounds anything away:
//! over any time t from full, what was let go is at most `rate * (t + burst)` and one request. A request
//! larger than the bucket goes when the bucket is full and leaves a debt that the next one waits for.
//!
//! A request that waits is let go by a wake-up, which comes late: timers are coarse, and the processor has other work.
//! Meanwhile a small bucket would be full, and the rate would not be reached. Therefore the request is taken out as of the
//! time at which it was due ([`due`]), and what was let go exceeds the bound by what the rate gives in that time.

use iofair_core::time::{Instant, Nanos};

/// Nanoseconds in a second: one unit, in the bucket's own measure.
const UNIT: i128 = 1_000_000_000;

/// Longest time by which a wake-up may come late without a loss: a turn of the processor of another program (3 to 4 ms on
/// Linux).
pub const LATE_MAX: Nanos = Nanos::from_millis(5);

/// The time as of which a request is taken out of buckets that were `ready` for it, where a wake-up at `planned` came `now`:
/// at most [`LATE_MAX`] ago.
pub fn due(now: Instant, planned: Instant, ready: Instant) -> Instant {
    ready.max(planned).max(now.saturating_sub(LATE_MAX)).min(now)
}

/// A bucket that fills at a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    /// Units a second.
    rate: u64,
    /// In units times nanoseconds, as `level`; negative while in debt.
    capacity: i128,
    level: i128,
    /// When `level` was right.
    at: Instant,
}

impl TokenBucket {
    /// A full bucket of what `rate` gives in `burst`. The rate is at least 1 a second.
    pub fn new(now: Instant, rate: u64, burst: Nanos) -> Self {
        let capacity = i128::from(rate.max(1)) * i128::from(burst.0);
        Self { rate: rate.max(1), capacity, level: capacity, at: now }
    }
    /// A full bucket of `units`, whatever its rate.
    pub(crate) fn of_depth(now: Instant, rate: u64, units: u64) -> Self {
        let capacity = i128::from(units) * UNIT;
        Self { rate: rate.max(1), capacity, level: capacity, at: now }
    }
    /// Units a second.
    pub const fn rate(&self) -> u64 {
        self.rate
    }
    /// The rate and depth of `fresh` from now on. What was saved stays as far as it fits. What was owed stays the same
    /// amount or the same time at the rate, whichever is waited for less: a debt made at one rate must not become an hour at
    /// another.
    pub(crate) fn change_to(&mut self, now: Instant, fresh: Self) {
        self.fill(now);
        let level = match self.level {
            owed if owed < 0 && fresh.rate < self.rate => {
                owed / i128::from(self.rate) * i128::from(fresh.rate)
            }
            level => level,
        };
        *self = Self { level: level.min(fresh.capacity), at: self.at, ..fresh };
    }
    /// Another rate from now on. What was saved or owed stays the same *time* at the rate: a bucket
    /// half full stays half full, a debt of 10 ms one of 10 ms.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: u64, burst: Nanos) {
        self.fill(now);
        let fresh = Self::new(now, rate, burst);
        let level = self.level / i128::from(self.rate) * i128::from(fresh.rate);
        *self = Self { level: level.min(fresh.capacity), ..fresh };
    }
    /// When `units` may go if no others are taken before; `now` or earlier means at once.
    pub(crate) fn ready_at(&self, units: u64) -> Instant {
        let missing = (i128::from(units) * UNIT).min(self.capacity) - self.level;
        if missing <= 0 {
            return self.at;
        }
        let wait = (missing as u128).div_ceil(u128::from(self.rate));
        self.at + Nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }
    /// Takes `units` out, whether or not they are there; not before the last time that anything was taken.
    pub fn take(&mut self, now: Instant, units: u64) {
        self.fill(now);
        self.level -= i128::from(units) * UNIT;
    }
    fn fill(&mut self, now: Instant) {
        let gained = i128::from(now.since(self.at).0).saturating_mul(self.rate.into());
        self.level = self.level.saturating_add(gained).min(self.capacity);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Goal: a full bucket lets its burst go at once, then the rate. Method: 1,000 units a second, 50 ms:
    /// the numbers by hand.
    #[test]
    fn first_the_burst_then_the_rate() {
        let mut bucket = TokenBucket::new(Instant(0), 1000, Nanos(50 * MS));
        for _ in 0..5 {
            assert_eq!(bucket.ready_at(10), Instant(0));
            bucket.take(Instant(0), 10);
        }
        for turn in 1..=5 {
            let ready = bucket.ready_at(10);
            assert_eq!(ready, Instant(turn * 10 * MS));
            bucket.take(ready, 10);
        }
        // Left alone it fills, but no more than the burst.
        bucket.take(Instant(1000 * MS), 50);
        assert_eq!(bucket.ready_at(1), Instant(1001 * MS));
        // Larger than the bucket: when full, and the debt is waited for.
        assert_eq!(bucket.ready_at(200), Instant(1050 * MS));
        bucket.take(Instant(1050 * MS), 200);
        assert_eq!(bucket.ready_at(10), Instant(1210 * MS));
    }

    /// Goal: a new rate keeps what was saved and owed in time. Method: a debt of 20 ms at two rates.
    #[test]
    fn a_new_rate_keeps_the_time_owed() {
        let mut bucket = TokenBucket::new(Instant(0), 1000, Nanos(10 * MS));
        bucket.take(Instant(0), 30);
        bucket.set_rate(Instant(0), 4000, Nanos(10 * MS));
        assert_eq!(bucket.ready_at(4), Instant(21 * MS));
    }

    /// Goal: another rate or depth neither gives nor forgives, and makes nobody wait longer than before for what is owed.
    /// Method: by hand, something saved under other depths and a debt of 20 ms under other rates.
    #[test]
    fn another_rate_and_depth() {
        let full = |rate, units| TokenBucket::of_depth(Instant(0), rate, units);
        for (depth, left) in [(5, 5), (50, 10)] {
            let mut bucket = full(1000, 10);
            bucket.change_to(Instant(0), full(1000, depth));
            bucket.take(Instant(0), left);
            assert_eq!(bucket.ready_at(1), Instant(MS), "{depth}");
        }
        for (rate, ready) in [(1000, 20), (4000, 5), (10, 20)] {
            let mut bucket = full(1000, 0);
            bucket.take(Instant(0), 20);
            bucket.change_to(Instant(0), full(rate, 0));
            assert_eq!(bucket.ready_at(0), Instant(ready * MS), "{rate}");
        }
    }

    /// Goal: what comes late is not lost, as far as it may come late, and no time is counted twice. Method: a bucket of one
    /// unit, 1,000 a second, each taken half a unit late; then one after a second, and one that was not late.
    #[test]
    fn what_is_taken_late_counts_as_of_its_time() {
        let mut bucket = TokenBucket::of_depth(Instant(0), 1000, 1);
        bucket.take(Instant(0), 1);
        for turn in 1..=100 {
            let ready = bucket.ready_at(1);
            assert_eq!(ready, Instant(turn * MS));
            bucket.take(due(Instant(ready.0 + MS / 2), ready, ready), 1);
        }
        let late = Instant(1000 * MS);
        bucket.take(due(late, Instant(0), bucket.ready_at(1)), 1);
        assert_eq!(bucket.ready_at(1), Instant(late.0 - LATE_MAX.0 + MS));
        bucket.take(due(late, late, bucket.ready_at(1)), 1);
        assert_eq!(bucket.ready_at(1), Instant(late.0 + MS));
    }

    /// Goal: exact over long runs, whatever the sizes. Method: random requests, each taken when ready.
    #[test]
    fn the_rate_is_exact() {
        let mut state = 1u64;
        for rate in [1, 7, 999_983, 10_000_000, 3_500_000_000] {
            let burst = Nanos(100 * MS);
            let mut bucket = TokenBucket::new(Instant(0), rate, burst);
            let (mut now, mut taken, mut last) = (Instant(0), 0u64, 0);
            for _ in 0..2000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                last = 1 + (state >> 44);
                now = now.max(bucket.ready_at(last));
                bucket.take(now, last);
                taken += last;
            }
            let most = now.since(Instant(0)) + burst;
            assert!(taken - last <= most.units_floor(rate), "{rate}");
            let least = now.since(Instant(0)).units_floor(rate);
            assert!(taken + 1 >= least, "{rate}: {taken} of {least}");
        }
    }
}
