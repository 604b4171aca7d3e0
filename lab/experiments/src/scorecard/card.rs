//! From outcomes to scores.

use iofair_simulator::outcome::{ClientOutcome, Outcome};

use super::score::{BASE, Kept, Question, Score, Scorecard, Shares};
use super::workload::{FAIRNESS, Facts, NEIGHBOURS, Times, mean, seconds, total};
use crate::experiment::Results;
use crate::experiment::quantity::jains_index;

/// A reader is served again when it has this part of its minimum on average, over [`NEXT`] intervals and to the end.
const SERVED: f64 = 0.9;
const NEXT: usize = 10;
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
            let index = stacks.iter().position(|known| known.0 == stack)?;
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
            let mean_of = |of: &dyn Fn(&Outcome) -> f64| mean(outcomes(2, variant, stack), of);
            let rate = |outcome: &Outcome| target(outcome).bytes as f64 / seconds(outcome.time);
            let least = outcomes(2, variant, stack).iter().map(rate).fold(f64::INFINITY, f64::min);
            let served = (variant < NEIGHBOURS.len() - 1).then(|| {
                let served_after = |outcome: &Outcome| served(outcome, facts.minimum(), &times);
                mean(outcomes(3, variant, stack), &served_after)
            });
            Kept {
                neighbours,
                part: least / (facts.minimum() as f64).max(1.0),
                p99_ns: mean_of(&|outcome| target(outcome).latency.quantile(990_000) as f64),
                max_ns: mean_of(&|outcome| target(outcome).latency.max() as f64),
                usage: beside(2, variant, &total),
                served_ns: served,
            }
        });
        Score {
            stack: stack.clone(),
            reader_latency: beside(0, 0, &|outcome| target(outcome).latency.mean() as f64),
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
    let part = |(index, (kind, _)): (usize, &(usize, u32))| {
        let rate = mean(outcomes, &|run| run.clients[index].bytes as f64 / seconds(run.time));
        rate / facts.kinds[*kind].max(1.0)
    };
    clients.iter().enumerate().map(part).collect()
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
    let bytes: Vec<u64> =
        target(outcome).series.iter().skip(first).map(|part| part.bytes).collect();
    let wanted = SERVED * minimum as f64 * (interval as f64 / 1e9);
    let has_minimum = |part: &[u64]| part.iter().sum::<u64>() as f64 >= wanted * part.len() as f64;
    let from = |index: usize| {
        let rest = &bytes[index..];
        has_minimum(&rest[..rest.len().min(NEXT)]) && has_minimum(rest)
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
}
