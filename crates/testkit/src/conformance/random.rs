//! Random numbers for tests: SplitMix64 (Steele, Lea, Flood 2014). Pinned here, so that a seed means the
//! same run for ever.

/// A stream of numbers; the same seed gives the same stream on every machine.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Below `n`, which is not zero.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1).max(1))
    }
    /// True once in `n`.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
    /// Between `low` and `high`, small numbers as likely as large ones.
    pub(super) fn scale(&mut self, low: u64, high: u64) -> u64 {
        let low_bits = 64 - u64::from(low.leading_zeros());
        let high_bits = 64 - u64::from(high.leading_zeros());
        let bits = self.between(low_bits, high_bits);
        let value = self.next() & if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        value.clamp(low, high)
    }
}
