//! A log-linear histogram of integers: 32 buckets a power of two, so a value is known to 1/32.
//!
//! After the layout of HdrHistogram (Tene), with a fixed range of 64 bits and integer arithmetic only.

use alloc::vec::Vec;

/// Linear steps in a power of two, as a power of two itself.
const STEP_BITS: u32 = 5;
const STEPS: usize = 1 << STEP_BITS;

/// Counts of values; memory grows with the largest value seen, at most 15 KiB.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }
    fn bucket(value: u64) -> usize {
        let bits = 64 - value.leading_zeros();
        if bits <= STEP_BITS {
            return value as usize;
        }
        let shift = bits - STEP_BITS - 1;
        // The top STEP_BITS + 1 bits, of which the first is always one.
        let step = (value >> shift) as usize - STEPS;
        STEPS * (shift as usize + 1) + step
    }
    /// Largest value that falls in a bucket.
    fn upper(bucket: usize) -> u64 {
        if bucket < STEPS {
            return bucket as u64;
        }
        let shift = (bucket / STEPS - 1) as u32;
        let step = (bucket % STEPS + STEPS) as u64;
        (step << shift) + ((1u64 << shift) - 1)
    }
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }
    /// Counts `count` equal values.
    pub fn record_many(&mut self, value: u64, count: u64) {
        if count == 0 {
            return;
        }
        let bucket = Self::bucket(value);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += count;
        self.min = if self.total == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.total += count;
        self.sum += u128::from(value) * u128::from(count);
    }
    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.total == 0 {
            return;
        }
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.min = if self.total == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.total += other.total;
        self.sum += other.sum;
    }
    /// Values counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }
    /// Smallest value, 0 when empty.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.min
    }
    /// Largest value, 0 when empty.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }
    /// Mean, rounded down; 0 when empty.
    #[must_use]
    pub fn mean(&self) -> u64 {
        let mean = self.sum.checked_div(u128::from(self.total)).unwrap_or(0);
        u64::try_from(mean).unwrap_or(u64::MAX)
    }
    /// The value that `per_million` millionths of the values do not exceed, to 1/32; 0 when empty.
    #[must_use]
    pub fn quantile(&self, per_million: u64) -> u64 {
        let rank = u128::from(self.total) * u128::from(per_million.min(1_000_000));
        let rank = (rank.div_ceil(1_000_000) as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Self::upper(bucket).clamp(self.min, self.max);
            }
        }
        self.max
    }
    /// Non-empty buckets: the largest value of each and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (Self::upper(bucket), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every value lies in its bucket, to 1/32. Method: all powers of two and their neighbours.
    #[test]
    fn buckets_hold_their_values() {
        for bit in 0..64 {
            for value in
                [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1, (1u64 << bit) | (1 << bit >> 1)]
            {
                let upper = Histogram::upper(Histogram::bucket(value));
                assert!(upper >= value && upper - value <= value / 32, "{value} {upper}");
            }
        }
    }

    /// Goal: quantiles of a known set. Method: 1..=1000.
    #[test]
    fn quantiles_of_a_ramp() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|v| histogram.record(v));
        assert_eq!((histogram.min(), histogram.max(), histogram.mean()), (1, 1000, 500));
        let p50 = histogram.quantile(500_000);
        assert!((500..=516).contains(&p50), "{p50}");
        assert_eq!(histogram.quantile(1_000_000), 1000);
        let mut many = histogram.clone();
        many.record_many(7, 3);
        assert_eq!((many.count(), many.min(), many.mean()), (1003, 1, 499));
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!((twice.count(), twice.quantile(500_000)), (2000, p50));
    }
}
