//! The search for the largest number of calls in flight that keeps a latency, as fio's `latency_target` has it: each number is
//! tried for a window; it doubles while the target is kept, and then the search goes on between the best and the worst.

use iofair_core::time::{Instant, Nanos};

use crate::scenario::DepthSearch;

/// The state of a search.
#[derive(Debug)]
pub(crate) struct Search {
    spec: DepthSearch,
    /// Calls that may be in flight now.
    depth: u32,
    /// The largest number that kept the target; the smallest one that did not.
    good: u32,
    bad: u32,
    calls: u64,
    late: u64,
    window_end: Option<Instant>,
    found: bool,
}

impl Search {
    /// Up to `most` calls.
    pub(crate) fn new(spec: DepthSearch, most: u32) -> Self {
        let (depth, good, bad) = (1, 0, most.saturating_add(1));
        Self { spec, depth, good, bad, calls: 0, late: 0, window_end: None, found: false }
    }
    /// Calls that may be in flight now.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }
    /// The number that was found, or the best so far; 0 if none keeps the target.
    pub(crate) fn best(&self) -> u32 {
        self.good
    }
    /// Whether the job ends, because the number is found.
    pub(crate) fn is_over(&self) -> bool {
        self.found && !self.spec.goes_on
    }
    /// A call is complete.
    pub(crate) fn count(&mut self, now: Instant, latency: Nanos) {
        let window_end = *self.window_end.get_or_insert(now + self.spec.window);
        self.calls += 1;
        self.late += u64::from(latency > self.spec.target);
        if now < window_end || self.found {
            return;
        }
        let kept = self.calls - self.late;
        let enough = u128::from(kept) * 1_000_000
            >= u128::from(self.calls) * u128::from(self.spec.per_million);
        match enough {
            true => self.good = self.good.max(self.depth),
            false => self.bad = self.bad.min(self.depth),
        }
        self.depth = match self.good {
            good if good + 1 >= self.bad => {
                self.found = true;
                good.max(1)
            }
            // None failed yet: `bad` is beyond the largest.
            good if enough && good * 2 < self.bad => good * 2,
            good => good + (self.bad - good) / 2,
        };
        (self.calls, self.late, self.window_end) = (0, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the search ends at the largest number that keeps the target. Method: every limit of a drive whose calls take as many
    /// microseconds as there are calls in flight, up to 64.
    #[test]
    fn the_largest_depth_is_found() {
        for limit in 0..=64u64 {
            let (target, window) = (Nanos::from_micros(limit), Nanos::from_millis(1));
            let spec = DepthSearch { target, window, per_million: 1_000_000, goes_on: false };
            let mut search = Search::new(spec, 64);
            let mut now = Instant::ZERO;
            for _ in 0..100_000 {
                let latency = Nanos::from_micros(u64::from(search.depth()));
                now += latency;
                search.count(now, latency);
                if search.is_over() {
                    break;
                }
            }
            assert!(search.is_over(), "{limit}");
            assert_eq!(u64::from(search.best()), limit, "{limit}");
        }
    }

    /// Goal: a percentile allows late calls. Method: one of ten is late; 90 % are enough, 91 % are not kept.
    #[test]
    fn a_percentile_allows_late_calls() {
        for (per_million, best) in [(900_000, 4), (910_000, 0)] {
            let (target, window) = (Nanos(10), Nanos(1_000));
            let mut search =
                Search::new(DepthSearch { target, window, per_million, goes_on: true }, 4);
            for call in 0..10_000u64 {
                let latency = if call % 10 == 9 { Nanos(11) } else { Nanos(10) };
                search.count(Instant(call * 111), latency);
            }
            assert_eq!(search.best(), best);
            assert!(!search.is_over(), "it goes on");
        }
    }
}
