//! Reproducible random numbers: the generator and the distributions are fixed, so that results survive upgrades of
//! libraries.
//!
//! The generator is xoshiro256++ (Blackman and Vigna, 2019). The distributions are our own and use only integers.
//! Every actor (a client, a drive's flash) draws from its own stream, so adding an actor does not change what the
//! others draw.

use iofair_core::time::Nanos;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The stream of random numbers of one actor.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream of actor `stream` in the run with this seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        // Two rounds, so that (seed, stream) and (seed + 1, stream - 1) have nothing in common.
        let mixed = mix(mix(seed).wrapping_add(stream));
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, each equally likely; `bound` must not be zero.
    ///
    /// Lemire's multiplication with rejection ("Fast random integer generation in an interval",
    /// 2019): a division only when the first draw falls into the biased rest.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        let mut product = u128::from(self.bits()) * u128::from(bound);
        if (product as u64) < bound {
            let rest = bound.wrapping_neg() % bound;
            while (product as u64) < rest {
                product = u128::from(self.bits()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "no number lies between {low} and {high}");
        match (high - low).checked_add(1) {
            Some(width) => low + self.below(width),
            None => self.bits(),
        }
    }

    /// `middle`, changed by up to `percent` (at most 100) of it in either direction, uniformly.
    pub fn around(&mut self, middle: u64, percent: u32) -> u64 {
        let spread = u128::from(middle) * u128::from(percent.min(100)) / 100;
        let spread = u64::try_from(spread).expect("at most the middle itself");
        self.between(middle - spread, middle.saturating_add(spread))
    }

    /// A time whose distribution is exponential, with this mean.
    ///
    /// It is the negative logarithm of a uniform number. The logarithm is computed by squaring, in integers, so that it is the
    /// same on any machine.
    pub fn exponential(&mut self, mean: Nanos) -> Nanos {
        // The uniform number is 2^-(whole + 1) times a factor from 1 to 2. `number` is the factor times 2^32, `digits` the first
        // 16 binary digits of its logarithm.
        let (mut number, mut digits) = ((1u64 << 32) | (self.bits() >> 32), 0u64);
        for _ in 0..16 {
            number = ((u128::from(number) * u128::from(number)) >> 32) as u64;
            let two = number >> 33;
            digits = 2 * digits + two;
            number >>= two;
        }
        let whole = u64::from(self.bits().leading_zeros());
        let bits = ((whole + 1) << 16) - digits;
        // The natural logarithm of 2 is 45426 / 65536.
        let nanos = (u128::from(mean.0) * u128::from(bits) * 45_426) >> 32;
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// True with a probability of `percent` / 100.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no upgrade ever changes what a seed means. Method: the first draws of one stream, pinned.
    #[test]
    fn streams_are_pinned() {
        let mut random = Random::new(1, 2);
        let drawn: Vec<u64> = (0..4).map(|_| random.below(1_000_000)).collect();
        assert_eq!(drawn, [731954, 759495, 370159, 336051]);
    }

    /// Goal: streams and seeds are unrelated. Method: neighbours of each share no draw.
    #[test]
    fn streams_differ() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..8).map(|_| random.bits()).collect::<Vec<_>>()
        };
        let all = [draw(1, 1), draw(1, 2), draw(2, 1), draw(2, 0), draw(0, 2)];
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert!(one.iter().all(|value| !other.contains(value)));
            }
        }
        assert_eq!(draw(1, 1), all[0]);
    }

    /// Goal: every value of a range comes, about equally often, and none outside it. Method: count.
    #[test]
    fn ranges_are_uniform() {
        let mut random = Random::new(7, 0);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        for _ in 0..1_000 {
            assert!((75..=125).contains(&random.around(100, 25)));
        }
        assert_eq!(random.between(5, 5), 5);
        assert_eq!(random.around(9, 0), 9);
        assert!(!random.chance(0) && random.chance(100));
        random.between(0, u64::MAX);
    }
}
