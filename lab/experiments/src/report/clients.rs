//! The numbers of each client: what its calls got, what reached the drive, and how long its calls took.

use crate::distinct;
use std::collections::{BTreeMap, BTreeSet};

use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::stats::histogram::Histogram;
use iofair_simulator::outcome::ClientOutcome;

use crate::experiment::quantity::{is_process_of, merged};
use crate::experiment::{Metric, Quantity, Results, Statistics, Variant};

/// A minimum counts as kept if the mean rate of a run is at least this part of it.
const KEPT: f64 = 0.95;
/// Calls that take less are no stalls, in ms.
const STALL_MS: f64 = 10.0;

/// One client in one variant on one stack: all of its processes together, over the repeats.
#[derive(Clone, Debug)]
pub struct ClientRow {
    /// Its name.
    pub name: String,
    /// Its processes.
    pub processes: usize,
    /// Rate of its calls, page cache hits and pages that stayed in memory included.
    pub rate: Statistics,
    /// Rate of its requests at the drive; absent where nobody counts them.
    pub drive: Option<Statistics>,
    /// Mean rates of its slowest and of its fastest process.
    pub each: (f64, f64),
    /// Mean latency, ms.
    pub mean: Statistics,
    /// Median latency, ms.
    pub p50: Statistics,
    /// Latency that 99 % of the calls do not exceed, ms.
    pub p99: Statistics,
    /// The longest call of all repeats, ms.
    pub longest: f64,
    /// Mean, median, 99th percentile and longest of its `fdatasync` calls, ms; absent if none ended.
    pub syncs: Option<[f64; 4]>,
    /// Calls that ended, in all repeats.
    pub calls: u64,
    /// Bytes at the drive in all repeats, where they are counted.
    pub drive_bytes: Option<u64>,
    /// Guaranteed minimum of all its processes, in the unit of the rate; 0 without one.
    pub minimum: f64,
    /// Its rate in each repeat.
    pub(super) rates: Vec<f64>,
    /// Part of the drive that its weight stands for if all clients are busy.
    pub entitlement: f64,
    /// Latencies of all repeats: nanoseconds and share of calls not above, ascending.
    pub distribution: Vec<(u64, f64)>,
    /// Mean latencies by intervals, ms; empty unless the file asks for them.
    pub series: Vec<Option<f64>>,
    /// The longest latencies of the intervals, ms.
    pub longest_series: Vec<Option<f64>>,
}

impl ClientRow {
    /// The clients that do I/O, in the file's order.
    pub(super) fn all(results: &Results, variant: usize, stack: usize) -> Vec<Self> {
        let entitlements = entitlements(&results.experiment.variants[variant]).into_iter();
        let row = |(name, part): (String, f64)| Self {
            entitlement: part,
            ..Self::new(results, variant, stack, &name)
        };
        entitlements.map(row).collect()
    }

    fn new(results: &Results, variant: usize, stack: usize, name: &str) -> Self {
        let statistics =
            |metric| results.statistics(variant, stack, &Quantity::of_client(name, metric));
        let (drive, longest) = (statistics(Metric::Drive), statistics(Metric::Max));
        let repeats = results.repeats(variant, stack);
        let mine = |client: &&ClientOutcome| is_process_of(&client.name, name);
        let outcomes = || repeats.iter().flat_map(|outcome| &outcome.clients).filter(mine);
        Self {
            name: name.to_owned(),
            processes: outcomes().count() / repeats.len().max(1),
            rate: statistics(Metric::Rate),
            drive: drive.mean.is_finite().then_some(drive),
            each: (statistics(Metric::Slowest).mean, statistics(Metric::Fastest).mean),
            mean: statistics(Metric::Mean),
            p50: statistics(Metric::P50),
            p99: statistics(Metric::P99),
            longest: longest.max,
            syncs: syncs(outcomes()),
            calls: outcomes().map(|client| client.calls).sum(),
            drive_bytes: outcomes().map(|client| client.drive_bytes).sum(),
            minimum: minimum(results, variant, name),
            rates: results.samples(variant, stack, &Quantity::of_client(name, Metric::Rate)),
            entitlement: 0.0,
            distribution: distribution(results, variant, stack, name),
            series: results.series(variant, stack, name),
            longest_series: results.longest_series(variant, stack, name),
        }
    }

    /// Its name, with the number of its processes if there are several.
    pub fn label(&self) -> String {
        match self.processes {
            0 | 1 => self.name.clone(),
            processes => format!("{} ({processes})", self.name),
        }
    }
    /// In how many of the repeats it got its minimum.
    pub(super) fn runs_kept(&self) -> usize {
        self.rates.iter().filter(|rate| **rate >= self.minimum * KEPT).count()
    }
    /// Whether what its calls got is not what the drive did for it.
    pub fn uses_cache(&self) -> bool {
        let differs =
            |drive: &Statistics| (drive.mean - self.rate.mean).abs() > 0.05 * self.rate.mean;
        self.drive.as_ref().is_some_and(differs)
    }
    /// Whether its 99th percentile hides long calls: the mean is above it, and the longest is far above it. A sequential
    /// reader's mean alone says nothing, since most of its calls are page cache hits.
    pub fn hides_stalls(&self) -> bool {
        let outside = self.mean.mean > self.p99.mean && self.longest > self.p99.mean * 100.0;
        self.calls > 0 && outside && self.longest >= STALL_MS
    }
}

fn syncs<'a>(outcomes: impl Iterator<Item = &'a ClientOutcome>) -> Option<[f64; 4]> {
    let mut all = Histogram::new();
    outcomes.for_each(|client| all.merge(&client.sync_latency));
    let nanos = [all.mean(), all.quantile(500_000), all.quantile(990_000), all.max()];
    (all.count() > 0).then(|| nanos.map(|nanos| nanos as f64 / 1e6))
}

/// The guaranteed minimum of all groups of a client's processes, in the unit of its rate.
fn minimum(results: &Results, variant: usize, name: &str) -> f64 {
    let variant = &results.experiment.variants[variant];
    let clients = variant.clients.iter().filter(|client| is_process_of(&client.name, name));
    let groups = distinct(clients.map(|client| client.group.as_str()));
    let min = |group: &&iofair_simulator::scenario::GroupSpec| group.contract.min;
    let mine = variant.groups.iter().filter(|group| groups.contains(&group.name.as_str()));
    let bytes: u64 = mine.filter_map(|group| min(&group)).sum();
    bytes as f64 / results.experiment.units.of_client()
}

fn distribution(results: &Results, variant: usize, stack: usize, name: &str) -> Vec<(u64, f64)> {
    let mut all = Histogram::new();
    for outcome in results.repeats(variant, stack) {
        all.merge(&merged(outcome, |process| is_process_of(process, name)));
    }
    let (mut seen, count, longest) = (0, all.count(), all.max());
    let share = |(upper, n): (u64, u64)| {
        seen += n;
        (upper.min(longest), seen as f64 / count as f64)
    };
    all.buckets().map(share).collect()
}

/// The part of the drive that each client's weight stands for if all clients are busy: the weights of a group's children, and of the
/// clients directly in it, divide the group's part. By the names of the subjects.
fn entitlements(variant: &Variant) -> Vec<(String, f64)> {
    fn parent(path: &str) -> &str {
        path.rsplit_once('/').map_or("", |(parent, _)| parent)
    }
    let lone = f64::from(WEIGHT_DEFAULT);
    let weights = variant.groups.iter().map(|group| (group.name.as_str(), group.contract.weight));
    let weights: BTreeMap<&str, u32> = weights.collect();
    let weight = |group: &str| weights.get(group).map_or(lone, |weight| f64::from(*weight));
    // The weights of all that is in a group.
    let mut inside: BTreeMap<&str, f64> = BTreeMap::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for client in &variant.clients {
        let mut path = client.group.as_str();
        *inside.entry(path).or_default() += lone * f64::from(client.processes);
        while !path.is_empty() && known.insert(path) {
            *inside.entry(parent(path)).or_default() += weight(path);
            path = parent(path);
        }
    }
    // The part of one of the clients directly in a group.
    let part = |group: &str| {
        let mut part = lone / inside[group];
        let mut path = group;
        while !path.is_empty() {
            part *= weight(path) / inside[parent(path)];
            path = parent(path);
        }
        part
    };
    let entitlement = |name: &String| {
        let mine = variant.clients.iter().filter(|client| is_process_of(&client.name, name));
        (name.clone(), mine.map(|client| part(&client.group) * f64::from(client.processes)).sum())
    };
    variant.subjects.iter().map(entitlement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Overrides, parse};

    /// Goal: weights divide a group's part among what is in it. Method: groups of 300 and 100, the second with two clients, each in a
    /// group of its own of 100 and 300.
    #[test]
    fn weights_divide() {
        let text = r#"
            title = "Nested"
            source = "x"
            drive = "plextor-px256m5s"
            time = "1s"
            stacks = ["none-none"]
            [[group]]
            name = "a"
            weight = 300
            [[group]]
            name = "b"
            weight = 100
            [[client]]
            name = "one"
            job = "randread"
            group = "a"
            [[client]]
            name = "two"
            job = "randread"
            group = "b/two"
            weight = 100
            [[client]]
            name = "three"
            job = "randread"
            group = "b/three"
            weight = 300
        "#;
        let experiment = parse("e.toml", text, &Overrides::default()).expect("a good file");
        let found = entitlements(&experiment.variants[0]);
        let found: Vec<(&str, f64)> =
            found.iter().map(|(name, part)| (name.as_str(), *part)).collect();
        assert_eq!(found, [("one", 0.75), ("two", 0.0625), ("three", 0.1875)]);
    }
}
