//! The runs, and their lines.

use iofair_core::time::Nanos;
use iofair_drive::profile;
use iofair_experiments::experiment::quantity::jains_index;
use iofair_experiments::experiment::{self, Overrides, Runner};
use iofair_simulator::outcome::{ClientOutcome, Outcome};

use super::line::{Line, STATES};
use super::load::{LOADS, Load, Promised};

/// Warm-up and measured time of a run: several batches of collection.
const TIMES: [Nanos; 2] = [Nanos::from_millis(1_000), Nanos::from_millis(3_000)];

/// A load on a drive in a state.
struct Case<'a> {
    drive: &'a str,
    class: String,
    state: &'static str,
    load: &'static Load,
    promised: Promised,
}

/// Runs all loads on these drives, and returns a line for each run. The first stack is what the others are compared with, and the last
/// one is told of the minimum itself, not as a weight.
///
/// # Errors
/// A drive that does not exist, or a run that fails.
pub fn stacks_csv(
    drives: &[String],
    stacks: &[&str],
    runner: &Runner<'_>,
) -> Result<String, String> {
    let (weights, minimum) = stacks.split_at(stacks.len() - 1);
    let told_apart = [weights, minimum];
    let (mut cases, mut experiments) = (Vec::new(), Vec::new());
    for drive in drives {
        let profile = profile::read(drive).map_err(|error| error.to_string())?;
        let promised = Promised::new(&profile.reaches());
        for (state, load) in
            STATES.iter().flat_map(|state| LOADS.iter().map(move |load| (state, load)))
        {
            let name = format!("{drive}:{state}");
            for stacks in told_apart {
                let text = load.text(&name, &promised, TIMES, stacks);
                let parsed = experiment::parse("stacks.toml", &text, &Overrides::default());
                experiments.push(parsed.map_err(|error| error.to_string())?);
            }
            cases.push(Case { drive, class: profile.class.clone(), state, load, promised });
        }
    }
    let results = experiment::run(experiments, runner)?;
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (case, results) in cases.iter().zip(results.chunks(told_apart.len())) {
        let base =
            rate(results[0].repeats(0, 0)[0].clients.iter().map(|client| client.bytes).sum());
        for results in results {
            for (index, (stack, _)) in results.experiment.stacks.iter().enumerate() {
                let line = case.line(stack, base, &results.repeats(0, index)[0]);
                writer.serialize(line).map_err(|error| error.to_string())?;
            }
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

impl Case<'_> {
    /// What a run gave, where all clients have `base` without control.
    fn line(&self, stack: &str, base: f64, outcome: &Outcome) -> Line {
        let Self { load, promised, .. } = self;
        let [reader, others @ ..] = &outcome.clients[..] else {
            unreachable!("every load has a reader")
        };
        let of_direction = |direction: usize| {
            let bytes = |client: &ClientOutcome| client.directions[direction].bytes;
            rate(outcome.clients.iter().map(bytes).sum())
        };
        let jain =
            || jains_index(others.iter().map(|other| other.bytes as f64 / f64::from(other.weight)));
        let part = |rate: f64| rate / mb(promised.alone);
        let minimum = load.minimum.then(|| mb(promised.minimum));
        let reserved = minimum.unwrap_or(0.0);
        let wanted = (1.0 - part(reserved)) * base + reserved;
        let share = part(rate(reader.bytes)) * f64::from(load.clients());
        Line {
            drive: self.drive.to_owned(),
            class: self.class.clone(),
            state: self.state.to_owned(),
            load: load.name.to_owned(),
            stack: stack.to_owned(),
            minimum: minimum.map(round),
            bound: load.latency.then(|| round(millis(promised.latency.0))),
            jain: load.is_one_kind.then(|| round(jain())),
            share: (load.is_one_kind && !load.latency).then(|| round(share)),
            wanted: round(wanted),
            reader: round(rate(reader.bytes)),
            reads: round(of_direction(0)),
            writes: round(of_direction(1)),
            mean: round(millis(reader.latency.mean())),
            p99: round(millis(reader.latency.quantile(990_000))),
        }
    }
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
/// MB/s of these bytes in a run.
fn rate(bytes: u64) -> f64 {
    mb(bytes) * 1e9 / TIMES[1].0 as f64
}
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
/// Four digits behind the point.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
