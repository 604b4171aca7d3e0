//! From outcomes to scores.

use iofair_core::time::Nanos;
use serde::Serialize;

use crate::experiment::Results;
use crate::experiment::quantity::jains_index;
use crate::outcome::{ClientOutcome, Outcome};

use super::workload::{FAIRNESS, Facts, NEIGHBOURS, Times};
use super::{BASE, Question, Scorecard};

/// A reader is served again when it has this part of its minimum on average, over so many intervals and to the end.
const SERVED: f64 = 0.9;
const NEXT: usize = 10;
/// A minimum counts as kept from this part of it on.
pub(super) const KEPT: f64 = 0.97;

/// How good a number is.
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
    fn low(value: f64, (good, fair): (f64, f64)) -> Self {
        match value {
            it if it <= good => Self::Good,
            it if it <= fair => Self::Fair,
            _ => Self::Poor,
        }
    }
    /// Where large numbers are good.
    fn high(value: f64, (good, fair): (f64, f64)) -> Self {
        Self::low(-value, (-good, -fair))
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

/// What a minimum became beside one kind of neighbours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Kept {
    /// The neighbours.
    pub neighbours: &'static str,
    /// The reader's rate as a part of its minimum.
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
        self.shares.iter().map(|it| it.jain).fold(1.0, f64::min)
    }
    /// The lowest part of the minimum.
    pub fn part(&self) -> f64 {
        self.kept.iter().map(|it| it.part).fold(f64::INFINITY, f64::min)
    }
    /// Beside how many kinds of neighbours the minimum is kept.
    pub fn kept_count(&self) -> usize {
        self.kept.iter().filter(|it| it.part >= KEPT).count()
    }
    /// The lowest use of the drive.
    pub fn usage(&self) -> f64 {
        self.kept.iter().map(|it| it.usage).fold(f64::INFINITY, f64::min)
    }
    /// The longest 99th percentile in nanoseconds.
    pub fn p99(&self) -> f64 {
        self.kept.iter().map(|it| it.p99_ns).fold(0.0, f64::max)
    }
    /// The longest time until a reader that comes back is served, in nanoseconds.
    pub fn served(&self) -> f64 {
        self.kept.iter().filter_map(|it| it.served_ns).fold(0.0, f64::max)
    }
    /// Grades of overhead, fairness, minimum, use, latency and bursts.
    pub fn grades(&self, card: &Scorecard) -> [Grade; 6] {
        let burst = if card.has_head { (2e9, 5e9) } else { (10e6, 50e6) };
        let times = self.p99() / card.alone.reader_p99_ns.max(1.0);
        [
            Grade::low(self.overhead(), (0.03, 0.1)),
            Grade::high(self.fairness(), (0.95, 0.8)),
            Grade::high(self.part(), (KEPT, 0.8)),
            Grade::high(self.usage(), (0.85, 0.5)),
            Grade::low(times, (4.0, 12.0)),
            Grade::low(self.served(), burst),
        ]
    }
}

/// Bytes a second of all clients.
pub(super) fn total(outcome: &Outcome) -> f64 {
    let bytes: u64 = outcome.clients.iter().map(|it| it.bytes).sum();
    bytes as f64 / seconds(outcome.time)
}

/// The mean over the repeats.
pub(super) fn mean(outcomes: &[Outcome], of: &dyn Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(of).sum::<f64>() / outcomes.len().max(1) as f64
}

fn seconds(time: Nanos) -> f64 {
    time.0.max(1) as f64 / 1e9
}

fn target(outcome: &Outcome) -> &ClientOutcome {
    &outcome.clients[0]
}

/// The results of the four questions, in groups of stacks that are told of contracts in the same terms.
pub(super) fn scorecard(
    question: &Question,
    facts: &Facts,
    has_head: bool,
    results: &[Results],
) -> Scorecard {
    let times = Times::new(has_head, question.time);
    let find = |question: usize, stack: &str| {
        let mut groups = results.chunks(4);
        groups.find_map(|group| {
            let stacks = &group[question].experiment.stacks;
            let index = stacks.iter().position(|it| it.0 == stack)?;
            Some((&group[question], index))
        })
    };
    let outcomes = |asked: usize, variant: usize, stack: &str| -> &[Outcome] {
        let (results, index) = find(asked, stack).expect("every stack runs every mix");
        results.repeats(variant, index)
    };
    let score = |stack: &String| {
        let beside = |asked, variant, of: &dyn Fn(&Outcome) -> f64| {
            mean(outcomes(asked, variant, stack), of) / mean(outcomes(asked, variant, BASE), of)
        };
        let shares = FAIRNESS.iter().enumerate().map(|(variant, (mix, clients))| {
            let parts = parts(outcomes(1, variant, stack), clients, facts);
            Shares { mix, jain: jain(&parts, clients), sum: parts.iter().sum() }
        });
        let kept = NEIGHBOURS.iter().enumerate().map(|(variant, (neighbours, _))| {
            let of = |of: &dyn Fn(&Outcome) -> f64| mean(outcomes(2, variant, stack), of);
            let rate = of(&|it| target(it).bytes as f64 / seconds(it.time));
            let served = (variant < NEIGHBOURS.len() - 1).then(|| {
                let of = |it: &Outcome| served(it, facts.minimum(), &times);
                mean(outcomes(3, variant, stack), &of)
            });
            Kept {
                neighbours,
                part: rate / (facts.minimum() as f64).max(1.0),
                p99_ns: of(&|it| target(it).latency.quantile(990_000) as f64),
                max_ns: of(&|it| target(it).latency.max() as f64),
                usage: beside(2, variant, &total),
                served_ns: served,
            }
        });
        Score {
            stack: stack.clone(),
            reader_latency: beside(0, 0, &|it| target(it).latency.mean() as f64),
            readers_rate: beside(0, 1, &total),
            shares: shares.collect(),
            kept: kept.collect(),
        }
    };
    Scorecard {
        drive: question.drive.clone(),
        has_head,
        alone: facts.alone,
        minimum_bytes_per_s: facts.minimum(),
        latency_ns: facts.latency(),
        seconds: seconds(times.time),
        repeats: question.repeats.max(1),
        scores: question.stacks.iter().map(score).collect(),
    }
}

/// What each client got as a part of what four of its kind have together.
fn parts(outcomes: &[Outcome], clients: &[(usize, u32); 4], facts: &Facts) -> Vec<f64> {
    let of = |(index, (kind, _)): (usize, &(usize, u32))| {
        let rate = mean(outcomes, &|it| it.clients[index].bytes as f64 / seconds(it.time));
        rate / facts.kinds[*kind].max(1.0)
    };
    clients.iter().enumerate().map(of).collect()
}

/// Jain's index of parts by weight.
fn jain(parts: &[f64], clients: &[(usize, u32); 4]) -> f64 {
    jains_index(parts.iter().zip(clients).map(|(part, (_, weight))| part / f64::from(*weight)))
}

/// Nanoseconds from a reader's return to the interval from which on it has its minimum on average, over the next intervals and
/// to the end.
fn served(outcome: &Outcome, minimum: u64, times: &Times) -> f64 {
    let interval = times.interval.0.max(1);
    let first = (times.back().1.0 / interval) as usize;
    let bytes: Vec<u64> = target(outcome).series.iter().skip(first).map(|it| it.bytes).collect();
    let wanted = SERVED * minimum as f64 * (interval as f64 / 1e9);
    let has = |part: &[u64]| part.iter().sum::<u64>() as f64 >= wanted * part.len() as f64;
    let from = |index: usize| {
        let rest = &bytes[index..];
        has(&rest[..rest.len().min(NEXT)]) && has(rest)
    };
    let earliest = (0..bytes.len()).find(|index| from(*index));
    earliest.map_or(f64::INFINITY, |index| (index as u64 * interval) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: equal parts by weight are fair, and all for one of four is 1/4. Method: by hand.
    #[test]
    fn jains_index_is_by_weight() {
        let weights = FAIRNESS[1].1;
        assert!((jain(&[0.1, 0.2, 0.3, 0.4], &weights) - 1.0).abs() < 1e-9);
        assert!((jain(&[0.5, 0.0, 0.0, 0.0], &weights) - 0.25).abs() < 1e-9);
    }

    /// Goal: grades have the right direction. Method: numbers on both sides of each bound.
    #[test]
    fn grades_have_a_direction() {
        let low = [0.01, 0.05, 0.5].map(|it| Grade::low(it, (0.03, 0.1)));
        let high = [0.99, 0.9, 0.5].map(|it| Grade::high(it, (0.97, 0.8)));
        assert_eq!(low, [Grade::Good, Grade::Fair, Grade::Poor]);
        assert_eq!(high, low);
    }
}
