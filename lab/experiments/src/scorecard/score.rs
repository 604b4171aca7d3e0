//! The question that a scorecard answers, and its numbers.

use iofair_core::time::Nanos;
use serde::Serialize;

/// The stack that all others are compared with.
pub(super) const BASE: &str = "none-none";

/// A minimum counts as kept from this part of it on.
pub(super) const KEPT: f64 = 0.97;

/// The question.
#[derive(Clone, Debug)]
pub struct Question {
    /// Names of stacks.
    pub stacks: Vec<String>,
    /// Name or path of a drive profile.
    pub drive: String,
    /// Another measured time of each run.
    pub time: Option<Nanos>,
    /// Seed of the first repeat.
    pub seed: u64,
    /// Runs of each mix, with different seeds.
    pub repeats: u32,
}

/// What the drive gives without control, in bytes a second and nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Alone {
    /// A reader of 4 KiB at random, one request at a time.
    pub reader_bytes_per_s: f64,
    /// Mean latency of that reader.
    pub reader_mean_ns: f64,
    /// 99th percentile of its latency.
    pub reader_p99_ns: f64,
}

/// All scores of one drive.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Scorecard {
    /// The drive.
    pub drive: String,
    /// Whether it has a head that moves.
    pub has_head: bool,
    /// What the preferred reader has alone.
    pub alone: Alone,
    /// Its minimum in bytes a second.
    pub minimum_bytes_per_s: u64,
    /// Its latency target in nanoseconds, for stacks that know only latencies.
    pub latency_ns: u64,
    /// Measured time of a run in seconds, and the number of runs of each mix.
    pub seconds: f64,
    /// See above.
    pub repeats: u32,
    /// A score for each stack.
    pub scores: Vec<Score>,
}

/// Grade of a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Not what a client should have to live with.
    Poor,
    /// Usable.
    Fair,
    /// As one would wish.
    Good,
}

impl Grade {
    /// Where small numbers are good.
    fn low(value: f64, good: f64, fair: f64) -> Self {
        match value {
            _ if value <= good => Self::Good,
            _ if value <= fair => Self::Fair,
            _ => Self::Poor,
        }
    }
    /// Where large numbers are good.
    fn high(value: f64, good: f64, fair: f64) -> Self {
        Self::low(-value, -good, -fair)
    }
}

/// Shares in one mix.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Shares {
    /// The mix.
    pub mix: &'static str,
    /// Jain's index of what the clients got, each as a part of what four of its kind have together, by weight.
    pub jain: f64,
    /// The sum of these parts: 1 if the mix gets as much of the drive as its kinds alone.
    pub sum: f64,
}

/// How well a minimum was kept beside one kind of neighbours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Kept {
    /// The neighbours.
    pub neighbours: &'static str,
    /// The reader's rate as a part of its minimum, in the run in which it got least.
    pub part: f64,
    /// The 99th percentile of its latency and the longest one, in nanoseconds.
    pub p99_ns: f64,
    /// See above.
    pub max_ns: f64,
    /// Total of all clients as a part of the total without control.
    pub usage: f64,
    /// Nanoseconds until the reader, coming back, has its rate; infinite: never in the run. Not measured beside all.
    pub served_ns: Option<f64>,
}

/// All about a stack on a drive.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Score {
    /// The stack.
    pub stack: String,
    /// Mean latency of one reader, and rate of sixteen, as a part of that without control.
    pub reader_latency: f64,
    /// See above.
    pub readers_rate: f64,
    /// Shares.
    pub shares: Vec<Shares>,
    /// Minimums.
    pub kept: Vec<Kept>,
}

impl Score {
    /// What the mechanism costs, as a part: the worse of both numbers.
    pub fn overhead(&self) -> f64 {
        (self.reader_latency - 1.0).max(1.0 - self.readers_rate).max(0.0)
    }
    /// The worst index of all mixes.
    pub fn fairness(&self) -> f64 {
        self.shares.iter().map(|share| share.jain).fold(1.0, f64::min)
    }
    /// The lowest part of the minimum.
    pub fn part(&self) -> f64 {
        self.kept.iter().map(|kept| kept.part).fold(f64::INFINITY, f64::min)
    }
    /// Beside how many kinds of neighbours the minimum is kept.
    pub fn kept_count(&self) -> usize {
        self.kept.iter().filter(|kept| kept.part >= KEPT).count()
    }
    /// The lowest use of the drive.
    pub fn usage(&self) -> f64 {
        self.kept.iter().map(|kept| kept.usage).fold(f64::INFINITY, f64::min)
    }
    /// The longest 99th percentile in nanoseconds.
    pub fn p99(&self) -> f64 {
        self.kept.iter().map(|kept| kept.p99_ns).fold(0.0, f64::max)
    }
    /// The longest time until a reader that comes back is served, in nanoseconds.
    pub fn served(&self) -> f64 {
        self.kept.iter().filter_map(|kept| kept.served_ns).fold(0.0, f64::max)
    }
    /// Grades of overhead, fairness, minimum, use, latency and bursts.
    pub fn grades(&self, card: &Scorecard) -> [Grade; 6] {
        let burst = if card.has_head { (2e9, 5e9) } else { (10e6, 50e6) };
        let times = self.p99() / card.alone.reader_p99_ns.max(1.0);
        [
            Grade::low(self.overhead(), 0.03, 0.1),
            Grade::high(self.fairness(), 0.95, 0.8),
            Grade::high(self.part(), KEPT, 0.8),
            Grade::high(self.usage(), 0.85, 0.5),
            Grade::low(times, 4.0, 12.0),
            Grade::low(self.served(), burst.0, burst.1),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: grades have the right direction. Method: numbers on both sides of each bound.
    #[test]
    fn grades_have_a_direction() {
        let low = [0.01, 0.05, 0.5].map(|value| Grade::low(value, 0.03, 0.1));
        let high = [0.99, 0.9, 0.5].map(|value| Grade::high(value, 0.97, 0.8));
        assert_eq!(low, [Grade::Good, Grade::Fair, Grade::Poor]);
        assert_eq!(high, low);
    }
}
