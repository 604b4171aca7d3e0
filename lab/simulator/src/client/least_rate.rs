//! The end of jobs that are too slow: fio's `rate_min` and `rate_iops_min`.

use iofair_core::time::{Instant, Nanos};

use super::tally::Tally;
use crate::scenario::LeastRate;

/// Checks a rate once a cycle.
#[derive(Debug)]
pub(crate) struct LeastRateCheck {
    least: LeastRate,
    since: Option<Instant>,
    /// Bytes and calls of each direction at that time.
    counted: [(u64, u64); 3],
}

impl LeastRateCheck {
    pub(crate) fn new(least: LeastRate) -> Self {
        Self { least, since: None, counted: [(0, 0); 3] }
    }
    /// Whether the cycle that ends now was too slow in a direction.
    pub(super) fn is_below(&mut self, now: Instant, tally: &Tally) -> bool {
        let since = *self.since.get_or_insert(tally.after());
        let spent = now.since(since);
        if spent < self.least.cycle {
            return false;
        }
        let counted = tally.sides.each_ref().map(|side| (side.bytes, side.calls));
        let before = std::mem::replace(&mut self.counted, counted);
        self.since = Some(now);
        let is_less = |new: u64, old: u64, least: Option<u64>| {
            let got = u128::from(new - old) * u128::from(Nanos::from_secs(1).0);
            least.is_some_and(|least| got < u128::from(least) * u128::from(spent.0))
        };
        let both = counted.iter().zip(&before).enumerate();
        both.into_iter().any(|(at, (new, old))| {
            is_less(new.0, old.0, self.least.bytes[at])
                || is_less(new.1, old.1, self.least.calls[at])
        })
    }
}
