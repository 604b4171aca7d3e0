//! Latencies of one domain, in quarters of its target, and the conditions for computing a percentile.

use iofair_core::time::{Instant, Nanos};

/// Buckets, each a quarter of the target wide; the last one also counts all longer latencies.
const BUCKETS: usize = 8;
/// The number of buckets within the target.
pub(super) const GOOD: usize = 4;
/// Samples that are enough at once; with fewer, [`SAMPLE_TIME_MAX`] must pass.
const ENOUGH: u64 = 500;
const SAMPLE_TIME_MAX: Nanos = Nanos::from_secs(1);

/// Counts of latencies.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Buckets([u64; BUCKETS]);

impl Buckets {
    /// A latency of exactly a quarter of the target is still in the first bucket.
    fn add(&mut self, latency: Nanos, target: Nanos) {
        let width = (target.0 / GOOD as u64).max(1);
        let bucket = latency.0.saturating_sub(1) / width;
        self.0[bucket.min(BUCKETS as u64 - 1) as usize] += 1;
    }
    /// The bucket in which `percent` of the latencies are reached.
    fn percentile(&self, percent: u64) -> usize {
        let mut rank = (self.0.iter().sum::<u64>() * percent).div_ceil(100);
        for (bucket, count) in self.0[..BUCKETS - 1].iter().enumerate() {
            if *count >= rank {
                return bucket;
            }
            rank -= count;
        }
        BUCKETS - 1
    }
}

/// Measurements of one domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latencies {
    target: Nanos,
    /// From the request's arrival in the scheduler to its completion.
    total: Buckets,
    /// From the drive alone.
    drive: Buckets,
    /// When fewer samples than [`ENOUGH`] suffice, for the percentile that is computed first.
    sample_time_ends: Option<Instant>,
    /// The last p99 of `total` that was not yet used against congestion.
    remembered: Option<usize>,
}

impl Latencies {
    pub(super) fn new(target: Nanos) -> Self {
        let (total, drive) = Default::default();
        Self { target, total, drive, sample_time_ends: None, remembered: None }
    }
    pub(super) fn add(&mut self, total: Nanos, drive: Nanos) {
        self.total.add(total, self.target);
        self.drive.add(drive, self.target);
    }
    fn ripe(&mut self, now: Instant, samples: u64) -> bool {
        if samples == 0 {
            return false;
        }
        let ends = *self.sample_time_ends.get_or_insert(now + SAMPLE_TIME_MAX);
        let ripe = samples >= ENOUGH || now >= ends;
        if ripe {
            self.sample_time_ends = None;
        }
        ripe
    }
    /// Whether this domain shows congestion: the p90 of the drive's part is above the target. Consumes the samples.
    pub(super) fn is_congested(&mut self, now: Instant) -> bool {
        if !self.ripe(now, self.drive.0.iter().sum()) {
            return false;
        }
        core::mem::take(&mut self.drive).percentile(90) >= GOOD
    }
    /// The p99 by which the domain's depth is scaled, in quarters of the target minus one. If there are too few
    /// samples and the drive is congested, the previous value, once.
    pub(super) fn p99(&mut self, now: Instant, congested: bool) -> Option<usize> {
        let fresh = self.ripe(now, self.total.0.iter().sum());
        let p99 = fresh.then(|| core::mem::take(&mut self.total).percentile(99));
        if congested {
            let remembered = self.remembered.take();
            return p99.or(remembered);
        }
        self.remembered = p99.or(self.remembered);
        p99
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Nanos = Nanos::from_millis(2);

    const fn us(n: u64) -> Nanos {
        Nanos::from_micros(n)
    }
    const fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    /// Goal: buckets end at whole quarters of the target, these included. Method: both sides of borders, and of
    /// the last bucket; a target of nothing.
    #[test]
    fn buckets_are_quarters() {
        for (latency, target, bucket) in [
            (0, TARGET, 0),
            (500_000, TARGET, 0),
            (500_001, TARGET, 1),
            (2_000_000, TARGET, 3),
            (2_000_001, TARGET, 4),
            (3_500_000, TARGET, 6),
            (3_500_001, TARGET, 7),
            (u64::MAX, TARGET, 7),
            (1, Nanos::ZERO, 0),
            (9, Nanos::ZERO, 7),
        ] {
            let mut buckets = Buckets::default();
            buckets.add(Nanos(latency), target);
            assert_eq!(buckets.0[bucket], 1, "{latency}");
        }
    }

    /// Goal: ranks are rounded up. Method: 99 and 98 of 100, 9 and 8 of 10.
    #[test]
    fn percentiles_round_up() {
        let of = |counts, percent| Buckets(counts).percentile(percent);
        assert_eq!(of([99, 0, 0, 0, 1, 0, 0, 0], 99), 0);
        assert_eq!(of([98, 0, 0, 0, 2, 0, 0, 0], 99), 4);
        assert_eq!(of([9, 0, 0, 0, 0, 0, 0, 1], 90), 0);
        assert_eq!(of([8, 0, 1, 0, 0, 0, 0, 1], 90), 2);
        assert_eq!(of([9, 0, 0, 0, 0, 0, 0, 2], 90), 7);
    }

    /// Goal: 500 samples at once, or fewer a second after they were first looked at. Method: both, to one sample and
    /// one nanosecond.
    #[test]
    fn percentiles_want_samples_or_time() {
        let mut latencies = Latencies::new(TARGET);
        (0..499).for_each(|_| latencies.add(us(100), us(3000)));
        assert!(!latencies.is_congested(ms(100)));
        latencies.add(us(100), us(3000));
        assert!(latencies.is_congested(ms(200)));
        assert!(!latencies.is_congested(ms(5000)), "used up");
        latencies.add(us(100), us(3000));
        assert!(!latencies.is_congested(ms(6000)));
        assert!(!latencies.is_congested(Instant(ms(7000).0 - 1)));
        assert!(latencies.is_congested(ms(7000)));
    }

    /// Goal: the oddity: the drive's percentile starts the second anew before the other is looked at. Method: a few
    /// samples judged every 100 ms; then silence.
    #[test]
    fn few_samples_tell_p99_only_in_silence() {
        let mut latencies = Latencies::new(TARGET);
        for window in 0..30 {
            latencies.add(us(1200), us(100));
            latencies.is_congested(ms(100 * window));
            assert_eq!(latencies.p99(ms(100 * window), false), None);
        }
        for now in [4000, 5100] {
            latencies.is_congested(ms(now));
        }
        // Nothing more came, so only the whole times are left to wait their second.
        assert_eq!(latencies.p99(ms(5100), false), None);
        latencies.is_congested(ms(6200));
        assert_eq!(latencies.p99(ms(6200), false), Some(2));
    }

    /// Goal: in congestion an older p99 does, once. Method: one told before, then congestion three times.
    #[test]
    fn an_older_p99_counts_once() {
        let mut latencies = Latencies::new(TARGET);
        (0..500).for_each(|_| latencies.add(us(600), us(600)));
        assert_eq!(latencies.p99(ms(100), false), Some(1));
        assert_eq!(latencies.p99(ms(200), false), None);
        assert_eq!(latencies.p99(ms(300), true), Some(1));
        assert_eq!(latencies.p99(ms(400), true), None);
        (0..500).for_each(|_| latencies.add(us(600), us(600)));
        assert_eq!(latencies.p99(ms(500), true), Some(1));
        assert_eq!(latencies.p99(ms(600), true), None, "used at once, not remembered");
    }
}
