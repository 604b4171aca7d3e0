//! Results for programs: every run, the statistics over repeats, every claim.

use std::collections::BTreeMap;

use iofair_core::stats::histogram::Histogram;
use iofair_simulator::outcome::{ClientOutcome, DirectionOutcome, Outcome};
use serde::Serialize;

use super::clients::ClientRow;
use super::summarize::summarize;
use super::summary::{ClaimRow, Row, Summary};
use super::tally::{Count, Tally};
use crate::experiment::dedicated::{self, Sizing};
use crate::experiment::{Metric, Quantity, Results, Statistics, Subject, Units};

#[derive(Serialize)]
struct Experiment<'a> {
    experiment: &'a str,
    title: &'a str,
    source: &'a str,
    /// The result in a sentence or two.
    synopsis: &'a str,
    /// What makes the numbers mislead.
    warnings: &'a [String],
    /// What a reader should know besides.
    #[serde(skip_serializing_if = "str::is_empty")]
    note: &'a str,
    drive: &'a str,
    seed: u64,
    repeats: u32,
    units: Units,
    runs: Vec<Run<'a>>,
    statistics: Vec<Number<'a>>,
    /// Clients with a guaranteed minimum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    minimums: Vec<Minimum<'a>>,
    /// Held-out published claims.
    headline: Count,
    expect: &'a [ClaimRow],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dedicated: Vec<Sizing>,
}

#[derive(Serialize)]
struct Run<'a> {
    variant: &'a str,
    /// Keys that sweeps set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    swept: BTreeMap<&'a str, &'a str>,
    drive: &'a str,
    stack: &'a str,
    repeat: usize,
    seed: u64,
    seconds: f64,
    total: Total,
    clients: Vec<Client<'a>>,
    trace_hash: String,
}

#[derive(Serialize)]
struct Total {
    bytes_per_s: u64,
    iops: u64,
    busy_percent: f64,
}

#[derive(Serialize)]
struct Client<'a> {
    name: &'a str,
    group: &'a str,
    bytes_per_s: u64,
    /// What reached the drive of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    drive_bytes_per_s: Option<u64>,
    iops: u64,
    latency_ns: Latency,
    /// Of `fdatasync`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sync_latency_ns: Option<Latency>,
    /// Time of which its rates are means, if it is not that of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// Reads, writes and trims apart, of jobs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    directions: BTreeMap<&'static str, Side>,
    /// Whether it ended because it got less than its least rate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    too_slow: bool,
}

/// What a client got in a direction.
#[derive(Serialize)]
struct Side {
    bytes: u64,
    calls: u64,
    bytes_per_s: u64,
    iops: u64,
    latency_ns: Latency,
}

#[derive(Serialize)]
struct Latency {
    mean: u64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

#[derive(Serialize)]
struct Number<'a> {
    variant: &'a str,
    stack: &'a str,
    of: String,
    unit: &'static str,
    #[serde(flatten)]
    statistics: Statistics,
}

#[derive(Serialize)]
struct Minimum<'a> {
    variant: &'a str,
    stack: &'a str,
    client: &'a str,
    minimum: f64,
    unit: &'static str,
    /// In how many of the runs it was kept, less 5 %, on the mean.
    runs_kept: usize,
    runs: usize,
}

fn minimums<'a>(summary: &'a Summary) -> Vec<Minimum<'a>> {
    let clients = summary.rows.iter().flat_map(|row| row.clients.iter().map(move |of| (row, of)));
    let minimum = |(row, client): (&'a Row, &'a ClientRow)| Minimum {
        variant: &row.variant,
        stack: &row.stack,
        client: &client.name,
        minimum: client.minimum,
        unit: summary.rate_unit,
        runs_kept: client.runs_kept(),
        runs: client.rates.len(),
    };
    clients.filter(|(_, client)| client.minimum > 0.0).map(minimum).collect()
}

/// `count` in a run of `nanos`, a second.
fn per_second(count: u64, nanos: u64) -> u64 {
    let rate = u128::from(count) * 1_000_000_000 / u128::from(nanos.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

impl Latency {
    fn from_histogram(latency: &Histogram) -> Self {
        Self {
            mean: latency.mean(),
            p50: latency.quantile(500_000),
            p99: latency.quantile(990_000),
            p999: latency.quantile(999_000),
            max: latency.max(),
        }
    }
}

/// A client; of jobs, with reads, writes and trims apart.
fn client<'a>(client: &'a ClientOutcome, run: &Outcome) -> Client<'a> {
    let nanos = client.time_in(run).0;
    let own = client.time.0 > 0;
    let names = ["read", "write", "trim"].into_iter().zip(&client.directions);
    let used = names.filter(|(_, side)| own && side.calls > 0);
    let side = |side: &DirectionOutcome| Side {
        bytes: side.bytes,
        calls: side.calls,
        bytes_per_s: per_second(side.bytes, nanos),
        iops: per_second(side.calls, nanos),
        latency_ns: Latency::from_histogram(&side.latency),
    };
    Client {
        name: &client.name,
        group: &client.group,
        bytes_per_s: per_second(client.bytes, nanos),
        drive_bytes_per_s: client.drive_bytes.map(|bytes| per_second(bytes, nanos)),
        iops: per_second(client.calls, nanos),
        latency_ns: Latency::from_histogram(&client.latency),
        sync_latency_ns: (client.sync_latency.count() > 0)
            .then(|| Latency::from_histogram(&client.sync_latency)),
        seconds: own.then_some(nanos as f64 / 1e9),
        directions: used.map(|(name, direction)| (name, side(direction))).collect(),
        too_slow: client.too_slow,
    }
}

fn runs(results: &Results) -> Vec<Run<'_>> {
    let experiment = &results.experiment;
    let mut runs = Vec::new();
    for (v, variant) in experiment.variants.iter().enumerate() {
        let swept = variant.swept.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let swept: BTreeMap<_, _> = swept.collect();
        for (s, (stack, _)) in experiment.stacks.iter().enumerate() {
            for (repeat, outcome) in results.repeats(v, s).iter().enumerate() {
                let Outcome { time, drive, .. } = outcome;
                let bytes = drive.read_bytes + drive.written_bytes;
                runs.push(Run {
                    variant: &variant.name,
                    swept: swept.clone(),
                    drive: &variant.drive,
                    stack,
                    repeat,
                    seed: experiment.seed.wrapping_add(repeat as u64),
                    seconds: time.0 as f64 / 1e9,
                    total: Total {
                        bytes_per_s: per_second(bytes, time.0),
                        iops: per_second(drive.commands, time.0),
                        busy_percent: drive.busy.0 as f64 / time.0 as f64 * 100.0,
                    },
                    clients: outcome.clients.iter().map(|each| client(each, outcome)).collect(),
                    trace_hash: format!("{:016x}", outcome.trace_hash),
                });
            }
        }
    }
    runs
}

fn statistics(results: &Results) -> Vec<Number<'_>> {
    let experiment = &results.experiment;
    let mut numbers = Vec::new();
    for (v, variant) in experiment.variants.iter().enumerate() {
        for (s, (stack, _)) in experiment.stacks.iter().enumerate() {
            let busy = Quantity { subject: Subject::Total, metric: Metric::Busy };
            let mut quantities = vec![Quantity::TOTAL, busy];
            for name in &variant.subjects {
                let metrics = [Metric::Rate, Metric::Mean, Metric::P50, Metric::P99, Metric::Max];
                quantities.extend(metrics.map(|metric| Quantity::of_client(name, metric)));
            }
            numbers.extend(quantities.iter().map(|quantity| Number {
                variant: &variant.name,
                stack,
                of: quantity.to_string(),
                unit: quantity.unit(experiment.units),
                statistics: results.statistics(v, s, quantity),
            }));
        }
    }
    numbers
}

/// One experiment as a JSON object.
pub fn json_of_one(results: &Results) -> String {
    let experiment = &results.experiment;
    let summary = summarize(results);
    let text = serde_json::to_string_pretty(&Experiment {
        experiment: &experiment.name,
        title: &experiment.title,
        source: &experiment.source,
        synopsis: &summary.synopsis,
        warnings: &summary.warnings,
        note: if experiment.jobs.is_some() { &experiment.note } else { "" },
        drive: &experiment.variants[0].drive,
        seed: experiment.seed,
        repeats: experiment.repeats,
        units: experiment.units,
        runs: runs(results),
        statistics: statistics(results),
        minimums: minimums(&summary),
        headline: Tally::from_summaries([&summary]).headline(),
        expect: &summary.claims,
        dedicated: dedicated::sizings(results),
    });
    text.expect("plain numbers and texts always serialize") + "\n"
}

/// Experiments as JSON: the object itself for one, an array for several.
pub fn json(results: &[Results]) -> String {
    match results {
        [one] => json_of_one(one),
        several => {
            let all: Vec<_> = several.iter().map(json_of_one).collect();
            format!("[\n{}]\n", all.join(",\n"))
        }
    }
}
