//! Draws: one run of an experiment with a seed, start offsets and open numbers of its own ([`iofair_experiments::experiment::Numbers`]).

use iofair_core::time::Nanos;
use iofair_drive::profile;
use iofair_experiments::experiment::numbers::hash;
use iofair_experiments::experiment::{Experiment, Results};
use iofair_simulator::outcome::{DriveOutcome, Outcome};
use iofair_simulator::scenario::Scenario;

/// The variants and stacks that claims are about.
fn needed(experiment: &Experiment) -> Vec<(usize, usize)> {
    let places = experiment.claims.iter().flat_map(|claim| &claim.places);
    let mut all: Vec<(usize, usize)> = places.map(|place| (place.variant, place.stack)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What decides the numbers of a draw besides the program: everything about its runs and its drives.
pub fn fingerprint(experiment: &Experiment) -> u64 {
    let mut text = String::new();
    for (variant, stack) in needed(experiment) {
        text += &format!("{:?}", experiment.scenario(variant, stack, 0));
        if let Ok(profile) = profile::read(&experiment.variants[variant].drive) {
            text += &format!("{:?}", profile.model);
        }
    }
    hash(&text)
}

/// A claim's name among the numbers of a draw: what its number is, but not its band.
pub fn key(experiment: &Experiment, claim: usize) -> String {
    let claim = &experiment.claims[claim];
    let mut key = format!("{:?} {}", claim.kind, claim.part);
    for place in &claim.places {
        let (variant, stack) =
            (&experiment.variants[place.variant], &experiment.stacks[place.stack]);
        key += &format!(" | {} | {} | {}", variant.name, stack.0, place.quantity);
    }
    key
}

/// Runs what the claims are about, and reads the number of each claim.
///
/// # Errors
///
/// Those of the simulator, with the run's name.
pub fn numbers(
    experiment: &Experiment,
    simulate: &dyn Fn(&Scenario) -> Result<Outcome, String>,
) -> Result<Vec<f64>, String> {
    let empty = Outcome {
        time: Nanos::ZERO,
        clients: Vec::new(),
        drive: DriveOutcome::default(),
        trace_hash: 0,
        simulated_requests: 0,
        requests: Vec::new(),
    };
    let mut outcomes = vec![empty; experiment.runs()];
    for (variant, stack) in needed(experiment) {
        for repeat in 0..experiment.repeats {
            let outcome =
                simulate(&experiment.scenario(variant, stack, repeat)).map_err(|error| {
                    let (variant, stack) =
                        (&experiment.variants[variant].name, &experiment.stacks[stack].0);
                    format!("{} [{variant}] {stack}: {error}", experiment.name)
                })?;
            let first = (variant * experiment.stacks.len() + stack) * experiment.repeats as usize;
            outcomes[first + repeat as usize] = outcome;
        }
    }
    let results = Results { experiment: experiment.clone(), outcomes };
    Ok(experiment.claims.iter().map(|claim| results.number(claim)).collect())
}
