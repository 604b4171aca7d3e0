//! What the clients of experiments have, beside what they were promised: what two stacks are compared by.

use iofair_experiments::experiment::quantity::{is_process_of, merged};
use iofair_experiments::experiment::{Results, Variant};
use iofair_experiments::report::short;
use iofair_simulator::outcome::Outcome;
use iofair_simulator::scenario::GroupSpec;
use serde::{Deserialize, Serialize};

/// A minimum counts as kept from this part of it on.
const KEPT: f64 = 0.97;

/// A client of a variant of an experiment. Rates are in MB/s and times in milliseconds.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The experiment.
    pub file: String,
    /// The variant.
    pub case: String,
    /// The client.
    pub client: String,
    /// Of all its processes.
    pub rate: f64,
    /// Of its calls.
    pub p99: f64,
    /// Of all its groups together.
    pub minimum: Option<f64>,
    /// The least part of its minimum that one of its groups has.
    pub kept: Option<f64>,
    /// The latency that it was promised.
    pub bound: Option<f64>,
    /// Of the drive.
    pub total: f64,
}

impl Row {
    /// What of its promises it does not have.
    pub fn breaks(&self) -> Option<String> {
        let minimum = self.kept.filter(|kept| *kept < KEPT);
        let minimum = minimum.map(|kept| format!("{} of its minimum", short(kept)));
        let bound = self.bound.filter(|bound| self.p99 > *bound);
        let bound = bound.map(|bound| format!("p99 {} of {} ms", short(self.p99), short(bound)));
        let both: Vec<String> = minimum.into_iter().chain(bound).collect();
        (!both.is_empty()).then(|| format!("{} has {}", self.client, both.join(", ")))
    }
}

/// A row for each client of each variant, on the first stack.
pub fn rows_of(results: &Results) -> Vec<Row> {
    let variants = results.experiment.variants.iter().enumerate();
    let rows = variants.flat_map(|(index, variant)| {
        let outcome = &results.repeats(index, 0)[0];
        variant.subjects.iter().map(move |client| Row {
            file: results.experiment.name.clone(),
            case: variant.name.clone(),
            ..row_of(variant, outcome, client)
        })
    });
    rows.collect()
}

/// Whether a group is this one or inside it.
fn is_in(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn row_of(variant: &Variant, outcome: &Outcome, client: &str) -> Row {
    let mb_s = |bytes: u64| bytes as f64 * 1e3 / outcome.time.0 as f64;
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    let processes = || outcome.clients.iter().filter(|one| is_process_of(&one.name, client));
    // What each group around a process has, and what it was promised.
    let minimums = || {
        let around = |group: &&GroupSpec| processes().any(|one| is_in(&one.group, &group.name));
        variant.groups.iter().filter(around).filter_map(|group| {
            let minimum = group.contract.min.filter(|minimum| *minimum > 0)?;
            let members = outcome.clients.iter().filter(|one| is_in(&one.group, &group.name));
            Some((mb_s(members.map(|one| one.bytes).sum()), minimum as f64 / 1e6))
        })
    };
    let own = |group: &&GroupSpec| processes().any(|one| one.group == group.name);
    let bounds = variant.groups.iter().filter(own).filter_map(|group| group.contract.latency.read);
    let latency = merged(outcome, |name| is_process_of(name, client)).quantile(990_000);
    Row {
        client: client.to_owned(),
        rate: rounded(mb_s(processes().map(|process| process.bytes).sum())),
        p99: rounded(latency as f64 / 1e6),
        minimum: minimums().map(|(_, minimum)| minimum).reduce(|a, b| a + b),
        kept: minimums().map(|(rate, minimum)| rounded(rate / minimum)).reduce(f64::min),
        bound: bounds.min().map(|bound| bound.0 as f64 / 1e6),
        total: rounded(mb_s(outcome.drive.read_bytes + outcome.drive.written_bytes)),
        ..Row::default()
    }
}
