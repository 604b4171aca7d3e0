//! Random places with unequal probabilities, as fio's `random_distribution` has them.
//!
//! Every distribution becomes pieces: runs of ranks (or of blocks) in which each is as likely as the others, with integer
//! weights. A draw looks up its piece and then takes a place in it. For ranks the pieces are single ranks at first and grow
//! by a sixteenth, so the error of a rank's probability stays below 4 %; weights are computed once, with floats, and rounded to
//! 2^-32. (Rejection-inversion, the alternative, needs logarithms for each draw, whose last bits differ from machine to
//! machine.)

use iofair_drive::random::Random;

use crate::scenario::Distribution;

/// Ranks that have a piece of their own.
const SINGLE: u64 = 64;
/// Pieces of a normal distribution.
const NORMAL: u64 = 512;
/// The sum of all weights.
const ONE: u64 = 1 << 32;

/// Equally likely places in a row.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Sum of the weights up to its end.
    end: u64,
    first: u64,
    count: u64,
}

/// Where the ranks of a distribution lie: rank r is block r times `factor` plus `offset`.
#[derive(Clone, Copy, Debug)]
struct Spread {
    factor: u64,
    offset: u64,
}

/// A distribution over blocks.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pieces: Vec<Piece>,
    blocks: u64,
    spread: Option<Spread>,
}

impl Places {
    /// A distribution over `blocks` blocks. `random` only says where ranks lie.
    pub(crate) fn new(distribution: &Distribution, blocks: u64, random: &mut Random) -> Self {
        let (weighed, spread) = match distribution {
            Distribution::Uniform | Distribution::Once => (vec![(0, blocks, 1.0)], false),
            Distribution::Zipf { theta } => (ranked(blocks, |a, b| zipf(*theta, a, b)), true),
            Distribution::Pareto { h } => {
                // The part of the calls that go to the first x of n blocks.
                let power = (1.0 - h).ln() / h.ln();
                let part = |x: u64| (x as f64 / blocks as f64).powf(power);
                (ranked(blocks, |a, b| part(b) - part(a)), true)
            }
            Distribution::Normal { deviation_percent } => {
                (normal(blocks, *deviation_percent), false)
            }
            Distribution::Zoned(zones) => (zoned(blocks, zones), false),
        };
        let spread = spread.then(|| Spread::new(blocks, random));
        Self { pieces: summed(&weighed), blocks, spread }
    }

    /// The number of a block.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let weight = random.below(ONE);
        let at = self.pieces.partition_point(|piece| piece.end <= weight);
        let Piece { first, count, .. } = self.pieces[at.min(self.pieces.len() - 1)];
        let place = if count > 1 { first + random.below(count) } else { first };
        match self.spread {
            Some(Spread { factor, offset }) => {
                let spread = u128::from(place) * u128::from(factor) + u128::from(offset);
                (spread % u128::from(self.blocks)) as u64
            }
            None => place,
        }
    }
}

impl Spread {
    fn new(blocks: u64, random: &mut Random) -> Self {
        // The golden section leaves neighbouring ranks far from one another.
        let mut factor = (blocks as f64 * 0.618_033_988_749_895) as u64;
        while greatest_divisor(factor.max(1), blocks) != 1 {
            factor += 1;
        }
        Self { factor: factor.max(1), offset: random.below(blocks) }
    }
}

fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// Pieces of ranks, counted from 0: first, number, weight of the ranks from a to before b.
fn ranked(blocks: u64, weight: impl Fn(u64, u64) -> f64) -> Vec<(u64, u64, f64)> {
    let (mut pieces, mut first) = (Vec::new(), 0);
    while first < blocks {
        let count = if first < SINGLE { 1 } else { first / 16 }.min(blocks - first);
        pieces.push((first, count, weight(first, first + count)));
        first += count;
    }
    pieces
}

/// The sum of k to the power of minus theta for the ranks after a up to b; a long sum as its integral.
fn zipf(theta: f64, a: u64, b: u64) -> f64 {
    if b - a == 1 {
        return (b as f64).powf(-theta);
    }
    let integral = |x: f64| match theta {
        1.0 => x.ln(),
        _ => x.powf(1.0 - theta) / (1.0 - theta),
    };
    integral(b as f64 + 0.5) - integral(a as f64 + 0.5)
}

fn normal(blocks: u64, deviation_percent: f64) -> Vec<(u64, u64, f64)> {
    let number = NORMAL.min(blocks);
    let deviation = (deviation_percent / 100.0).max(0.5 / number as f64);
    let piece = |index: u64| {
        let (first, next) = (index * blocks / number, (index + 1) * blocks / number);
        let middle = (first + next) as f64 / 2.0 / blocks as f64;
        let distance = (middle - 0.5) / deviation;
        (first, next - first, (-distance * distance / 2.0).exp())
    };
    (0..number).map(piece).collect()
}

fn zoned(blocks: u64, zones: &[(u32, u32)]) -> Vec<(u64, u64, f64)> {
    let (mut pieces, mut percent) = (Vec::new(), 0);
    for (calls, range) in zones {
        let first = (blocks * u64::from(percent) / 100).min(blocks - 1);
        percent += range;
        let next = (blocks * u64::from(percent) / 100).max(first + 1);
        pieces.push((first, next - first, f64::from(*calls)));
    }
    pieces
}

/// Weights as integers, each with the sum of those before it.
fn summed(weighed: &[(u64, u64, f64)]) -> Vec<Piece> {
    let all: f64 = weighed.iter().map(|zone| zone.2).sum();
    let mut sum = 0.0;
    let piece = |&(first, count, weight): &(u64, u64, f64)| {
        sum += weight;
        Piece { end: (sum / all * ONE as f64).round() as u64, first, count }
    };
    weighed.iter().map(piece).collect()
}

/// All blocks in random order, one after the other: a Feistel network of four rounds over the next power of four, with the
/// numbers beyond the blocks skipped. (A map of the blocks that are left, as fio has it, would take memory and a search.)
#[derive(Clone, Debug)]
pub(crate) struct Order {
    blocks: u64,
    half_bits: u32,
    keys: [u64; 4],
    next: u64,
}

impl Order {
    pub(crate) fn new(blocks: u64, random: &mut Random) -> Self {
        let half_bits = (64 - blocks.max(2).leading_zeros()).div_ceil(2);
        let keys = std::array::from_fn(|_| random.bits());
        Self { blocks, half_bits, keys, next: 0 }
    }
    /// Whether all blocks have had their turn.
    pub(crate) fn is_through(&self) -> bool {
        self.next == self.blocks
    }
    /// The number of the next block.
    pub(crate) fn next(&mut self, random: &mut Random) -> u64 {
        if self.is_through() {
            *self = Self::new(self.blocks, random);
        }
        let mut number = self.next;
        self.next += 1;
        loop {
            number = self.mixed(number);
            if number < self.blocks {
                return number;
            }
        }
    }
    fn mixed(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            // The multiplier of SplitMix64.
            let hash = (right ^ key).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (left, right) = (right, left ^ ((hash ^ (hash >> 32)) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each block comes once before any comes again, in an order that is none. Method: all small numbers, and a larger one
    /// whose neighbours in the order are as far apart as by chance.
    #[test]
    fn each_block_comes_once() {
        let mut random = Random::new(1, 1);
        for blocks in (1..200).chain([10_000]) {
            let mut order = Order::new(blocks, &mut random);
            for _ in 0..2 {
                let drawn: Vec<u64> = (0..blocks).map(|_| order.next(&mut random)).collect();
                let mut sorted = drawn.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..blocks), "{blocks}");
                if blocks == 10_000 {
                    let far: u64 = drawn.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
                    // A third of the range, as of two random numbers.
                    assert!((3_200..3_470).contains(&(far / blocks)), "{far}");
                }
            }
        }
    }

    const DRAWS: usize = 200_000;

    /// How often each block is drawn, most frequent first where ranks are spread.
    fn counts(distribution: &Distribution, blocks: u64) -> Vec<f64> {
        let mut random = Random::new(3, 5);
        let places = Places::new(distribution, blocks, &mut random);
        let mut counts = vec![0u32; blocks as usize];
        (0..DRAWS).for_each(|_| counts[places.draw(&mut random) as usize] += 1);
        if places.spread.is_some() {
            counts.sort_unstable_by(|a, b| b.cmp(a));
        }
        counts.iter().map(|count| f64::from(*count) / DRAWS as f64).collect()
    }

    /// Goal: the k-th block has its part of Zipf's law. Method: 1,024 blocks, exponents below, at and above 1, against the
    /// formula; single ranks and, beyond those, all ranks from 257 on.
    #[test]
    fn zipf_follows_its_formula() {
        for theta in [0.8, 1.0, 1.2] {
            let counts = counts(&Distribution::Zipf { theta }, 1024);
            let all: f64 = (1..=1024).map(|k| f64::from(k).powf(-theta)).sum();
            for k in [1, 2, 3, 10] {
                let wanted = f64::from(k).powf(-theta) / all;
                let got = counts[k as usize - 1];
                assert!((got / wanted - 1.0).abs() < 0.06, "{theta} {k}: {got} {wanted}");
            }
            let wanted: f64 = (257..=1024).map(|k| f64::from(k).powf(-theta)).sum();
            let got: f64 = counts[256..].iter().sum();
            assert!((got / (wanted / all) - 1.0).abs() < 0.06, "{theta}: {got} {}", wanted / all);
        }
    }

    /// Goal: a part h of the blocks has the part 1 - h of the calls, in the whole and in its most frequent part. Method: the
    /// 80-20 rule and another one.
    #[test]
    fn pareto_is_self_similar() {
        for h in [0.2, 0.3] {
            let counts = counts(&Distribution::Pareto { h }, 1_000);
            for depth in 1..=2 {
                let blocks = (1_000.0 * h.powi(depth)) as usize;
                let (got, wanted) = (counts[..blocks].iter().sum::<f64>(), (1.0 - h).powi(depth));
                assert!((got - wanted).abs() < 0.015, "{h} {depth}: {got} {wanted}");
            }
        }
    }

    /// Goal: mean and deviation of a normal distribution. Method: 10 % of 10,000 blocks.
    #[test]
    fn normal_has_its_deviation() {
        let counts = counts(&Distribution::Normal { deviation_percent: 10.0 }, 10_000);
        let mean: f64 = counts.iter().enumerate().map(|(at, part)| at as f64 * part).sum();
        let square = |(at, part): (usize, &f64)| (at as f64 - mean).powi(2) * part;
        let deviation = counts.iter().enumerate().map(square).sum::<f64>().sqrt();
        assert!((mean - 5_000.0).abs() < 25.0 && (deviation - 1_000.0).abs() < 25.0);
    }

    /// Goal: zones get their parts and nothing lies outside. Method: fio's own example; blocks fewer than zones.
    #[test]
    fn zones_get_their_parts() {
        let zones = vec![(60, 10), (30, 20), (8, 30), (2, 40)];
        let found = counts(&Distribution::Zoned(zones.clone()), 1_000);
        let part = |range: std::ops::Range<usize>| found[range].iter().sum::<f64>();
        for (got, wanted) in [
            (part(0..100), 0.6),
            (part(100..300), 0.3),
            (part(300..600), 0.08),
            (part(600..1000), 0.02),
        ] {
            assert!((got - wanted).abs() < 0.01, "{got} {wanted}");
        }
        assert_eq!(counts(&Distribution::Zoned(zones), 2).len(), 2);
    }

    /// Goal: any number of blocks has its ranks in it, each at one place. Method: small numbers, all ranks.
    #[test]
    fn ranks_lie_at_different_places() {
        for blocks in 1..200 {
            let Spread { factor, offset } = Spread::new(blocks, &mut Random::new(1, blocks));
            let mut seen: Vec<u64> =
                (0..blocks).map(|block| (block * factor + offset) % blocks).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..blocks), "{blocks}");
        }
    }
}
