//! Runs experiments: every repeat of every variant on every stack is a run of its own, shared out to
//! threads and put back in order, so the number of threads changes no byte of any result.

use iofair_simulator::outcome::{Interval, Outcome};
use iofair_simulator::scenario::Scenario;

use super::claim::{Claim, Kind, Place, SECOND, Verdict};
use super::quantity::{Quantity, Subject, is_process_of};
use super::resolved::Experiment;
use super::statistics::Statistics;
use super::step;
use crate::parallel;

/// How runs are made and watched.
pub struct Runner<'a> {
    /// Threads, at least one.
    pub jobs: usize,
    /// Makes one run: the lab's own simulator, or a test's.
    pub simulate: &'a (dyn Fn(&Scenario) -> Result<Outcome, String> + Sync),
    /// Told of each finished run: which experiment it belongs to.
    pub finished: &'a (dyn Fn(usize) + Sync),
}

/// An experiment with all its outcomes.
#[derive(Clone, Debug)]
pub struct Results {
    /// What was run.
    pub experiment: Experiment,
    /// By variant, stack, repeat.
    pub outcomes: Vec<Outcome>,
}

/// A run of one experiment.
#[derive(Clone, Copy)]
struct Task {
    experiment: usize,
    variant: usize,
    stack: usize,
    repeat: u32,
}

/// Runs them all. The first failure stops the rest and is returned with the run's name.
pub fn run(experiments: Vec<Experiment>, runner: &Runner<'_>) -> Result<Vec<Results>, String> {
    let mut tasks = Vec::new();
    for (index, experiment) in experiments.iter().enumerate() {
        for variant in 0..experiment.variants.len() {
            for stack in 0..experiment.stacks.len() {
                let repeats = 0..experiment.repeats;
                tasks.extend(repeats.map(|repeat| Task {
                    experiment: index,
                    variant,
                    stack,
                    repeat,
                }));
            }
        }
    }
    let work = |task: &Task| {
        let experiment = &experiments[task.experiment];
        let mut outcome =
            (runner.simulate)(&experiment.scenario(task.variant, task.stack, task.repeat));
        if let (Some(jobs), Ok(outcome)) = (&experiment.jobs, &mut outcome) {
            jobs.count_calls(outcome);
        }
        (runner.finished)(task.experiment);
        outcome.map_err(|error| describe(experiment, task, &error))
    };
    let mut outcomes = parallel(runner.jobs, &tasks, &work)?.into_iter();
    let results = |experiment: Experiment| {
        let outcomes = outcomes.by_ref().take(experiment.runs()).collect();
        Results { experiment, outcomes }
    };
    Ok(experiments.into_iter().map(results).collect())
}

fn describe(experiment: &Experiment, task: &Task, error: &str) -> String {
    let (variant, stack) = (&experiment.variants[task.variant], &experiment.stacks[task.stack]);
    let seed = experiment.seed.wrapping_add(u64::from(task.repeat));
    format!("{} [{}] {} seed {seed}: {error}", experiment.name, variant.name, stack.0)
}

impl Results {
    /// The repeats of one variant on one stack.
    pub fn repeats(&self, variant: usize, stack: usize) -> &[Outcome] {
        let repeats = self.experiment.repeats as usize;
        let first = (variant * self.experiment.stacks.len() + stack) * repeats;
        &self.outcomes[first..first + repeats]
    }
    /// A number over the repeats.
    pub fn statistics(&self, variant: usize, stack: usize, quantity: &Quantity) -> Statistics {
        Statistics::from_samples(&self.samples(variant, stack, quantity))
    }
    /// A number in each repeat.
    pub(crate) fn samples(&self, variant: usize, stack: usize, quantity: &Quantity) -> Vec<f64> {
        let read = |outcome: &Outcome| quantity.read(outcome, self.experiment.units);
        self.repeats(variant, stack).iter().map(read).collect()
    }
    /// Mean at a place.
    pub fn value(&self, place: &Place) -> f64 {
        self.statistics(place.variant, place.stack, &place.quantity).mean
    }
    /// Mean latencies in milliseconds by intervals, over all repeats together; `None` where no call ended.
    pub fn series(&self, variant: usize, stack: usize, client: &str) -> Vec<Option<f64>> {
        let mut sums: Vec<Interval> = Vec::new();
        let length = self.experiment.interval.unwrap_or_default();
        let outcomes = self.repeats(variant, stack).iter().flat_map(|outcome| &outcome.clients);
        for outcome in outcomes.filter(|outcome| is_process_of(&outcome.name, client)) {
            let series = outcome.whole_intervals(length);
            sums.resize(series.len().max(sums.len()), Interval::default());
            for (sum, interval) in sums.iter_mut().zip(series) {
                sum.calls += interval.calls;
                sum.latency += interval.latency;
            }
        }
        let mean = |interval: &Interval| {
            (interval.calls > 0).then(|| interval.latency as f64 / interval.calls as f64 / 1e6)
        };
        sums.iter().map(mean).collect()
    }
    /// The longest latencies in milliseconds by intervals, of all repeats; `None` where no call ended.
    pub fn longest_series(&self, variant: usize, stack: usize, client: &str) -> Vec<Option<f64>> {
        let mut all: Vec<Option<u64>> = Vec::new();
        let length = self.experiment.interval.unwrap_or_default();
        let outcomes = self.repeats(variant, stack).iter().flat_map(|outcome| &outcome.clients);
        for outcome in outcomes.filter(|outcome| is_process_of(&outcome.name, client)) {
            let series = outcome.whole_intervals(length);
            all.resize(series.len().max(all.len()), None);
            for (longest, interval) in all.iter_mut().zip(series) {
                let here = (interval.calls > 0).then_some(interval.longest);
                *longest = (*longest).max(here);
            }
        }
        all.iter().map(|longest| longest.map(|nanos| nanos as f64 / 1e6)).collect()
    }
    /// The seconds from which on a client's latency stays below `limit` ms; infinite when it never does.
    fn falls_at(&self, place: &Place, limit: f64) -> f64 {
        let (Subject::Client(name), Some(interval)) =
            (&place.quantity.subject, self.experiment.interval)
        else {
            return f64::INFINITY;
        };
        let series = self.series(place.variant, place.stack, name);
        let is_below = |mean: &Option<f64>| mean.is_some_and(|mean| mean < limit);
        let above = series.iter().rposition(|mean| !is_below(mean)).map_or(0, |last| last + 1);
        match above < series.len() {
            true => above as f64 * interval.0 as f64 / 1e9,
            false => f64::INFINITY,
        }
    }
    /// The seconds from which on a rate is what the claim says, in the latest of all repeats; infinite when it never is.
    fn steps_at(&self, claim: &Claim) -> f64 {
        let Some(interval) = self.experiment.interval else { return f64::INFINITY };
        let place = &claim.places[0];
        let time = |outcome: &Outcome| {
            let rates = place.quantity.rates(outcome, interval, self.experiment.units);
            let index = match claim.kind {
                Kind::RisesAt => {
                    step::rises_at(&rates, (SECOND.0 / interval.0) as usize, claim.part)
                }
                _ => step::settles_at(&rates, claim.part),
            };
            index.map_or(f64::INFINITY, |index| index as f64 * interval.0 as f64 / 1e9)
        };
        self.repeats(place.variant, place.stack).iter().map(time).fold(0.0, f64::max)
    }
    /// Our number for a claim.
    pub fn number(&self, claim: &Claim) -> f64 {
        match claim.kind {
            Kind::FallsAt => {
                let limit = self.value(&claim.places[1]) * claim.part;
                self.falls_at(&claim.places[0], limit)
            }
            Kind::RisesAt | Kind::SettlesAt => self.steps_at(claim),
            _ => {
                let values = claim.places.iter().map(|place| self.value(place));
                claim.number(&values.collect::<Vec<_>>())
            }
        }
    }
    /// Our number and the verdict for each claim, in order.
    pub fn verdicts(&self) -> Vec<(f64, Verdict)> {
        let judge = |claim: &Claim| {
            let number = self.number(claim);
            (number, claim.verdict(number))
        };
        self.experiment.claims.iter().map(judge).collect()
    }
    /// Hard claims that do not hold.
    pub fn hard_misses(&self) -> usize {
        let verdicts = self.verdicts();
        let pairs = self.experiment.claims.iter().zip(&verdicts);
        pairs.filter(|(claim, (_, v))| claim.hard && *v == Verdict::DoesNotHold).count()
    }
}
