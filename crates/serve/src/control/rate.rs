//! Rate limits of calls: a token bucket per caller.
//!
//! A call beyond the rate waits for its turn, and is refused if that would take too long. So a script that changes
//! contracts in a loop runs at the permitted rate and uses a bounded part of the reactor's time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use iofair_core::time::{Instant, Nanos};

use super::gate::Key;

/// Callers with a bucket each; further callers share one.
const CALLERS_MAX: usize = 1024;

/// A rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Time between two calls, in the long run.
    pub(super) interval: Nanos,
    /// Calls that may come at once.
    pub(super) burst: u64,
    /// A call waits no longer than this.
    pub(super) wait_max: Nanos,
}

/// By caller, the time at which its bucket is full again.
#[derive(Debug)]
pub(super) struct Buckets {
    rate: Rate,
    full_at: Mutex<BTreeMap<Option<Key>, Instant>>,
}

impl Buckets {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, full_at: Mutex::default() }
    }
    /// Takes a token. Returns how long the call has to wait, or as an error the time after which the caller may retry.
    pub(super) fn take(&self, now: Instant, key: &Key) -> Result<Nanos, Nanos> {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = Some(key.clone());
        if !full_at.contains_key(&key) && full_at.len() >= CALLERS_MAX {
            full_at.retain(|_, full| *full > now);
            if full_at.len() >= CALLERS_MAX {
                key = None;
            }
        }
        let full = full_at.entry(key).or_insert(now);
        let next = (*full).max(now) + self.rate.interval;
        let room = Nanos(self.rate.interval.0 * self.rate.burst);
        let wait = next.since(now).saturating_sub(room);
        if wait > self.rate.wait_max {
            return Err(wait);
        }
        *full = next;
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a burst passes at once, what follows comes at the rate, what would wait too long is refused, and one
    /// caller's calls are nobody else's. Method: two callers against a bucket of three.
    #[test]
    fn calls_come_at_the_rate() {
        let (interval, burst) = (Nanos(100), 3);
        let buckets = Buckets::new(Rate { interval, burst, wait_max: Nanos(200) });
        let take = |at: u64, uid| buckets.take(Instant(at), &Key::User(uid)).map(|wait| wait.0);
        assert_eq!([take(0, 1), take(0, 1), take(0, 1)], [Ok(0); 3]);
        assert_eq!([take(0, 1), take(0, 1)], [Ok(100), Ok(200)]);
        assert_eq!(take(0, 1), Err(Nanos(300)));
        assert_eq!(take(0, 2), Ok(0));
        assert_eq!(take(100, 1), Ok(200), "a refused call costs nothing");
        assert_eq!(take(10_000, 1), Ok(0), "and a quiet caller has its burst again");
    }

    /// Goal: memory is bounded, whatever callers come. Method: more callers than are remembered, all busy.
    #[test]
    fn unknown_callers_share_a_bucket() {
        let rate = Rate { interval: Nanos(100), burst: 1, wait_max: Nanos(0) };
        let buckets = Buckets::new(rate);
        for uid in 0..2 * CALLERS_MAX as u32 {
            let _ = buckets.take(Instant(0), &Key::User(uid));
        }
        let count = |buckets: &Buckets| buckets.full_at.lock().unwrap().len();
        assert_eq!(count(&buckets), CALLERS_MAX + 1);
        assert!(buckets.take(Instant(0), &Key::User(9_999)).is_err());
        assert!(buckets.take(Instant(1_000), &Key::User(9_999)).is_ok());
        assert!(count(&buckets) < 3, "the quiet ones are forgotten");
    }
}
