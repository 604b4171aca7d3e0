//! Results in fio's own formats: `json+` and the logs of bandwidth, I/Os and latency.
//!
//! One run is one file, as one run of fio is. What is not modelled (processor time, page faults, depths as they were) is left
//! out. Latency in the simulator is that of a call; it is `lat_ns` and `clat_ns` alike, and `slat_ns` is empty. Nothing is read
//! from a clock, so the time stamps are those of 1970, and the same run writes the same bytes.

use iofair_simulator::outcome::{ClientOutcome, DirectionOutcome, Interval, Outcome};
use serde_json::{Map, Value, json};

use iofair_core::stats::histogram::Histogram;
use iofair_core::time::Nanos;

use crate::experiment::Results;
use crate::jobs::JobInfo;

/// The percentiles that fio prints unless it is told otherwise.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
/// Names of the directions in fio's output.
const NAMES: [&str; 3] = ["read", "write", "trim"];

/// A job with its clones, or with all jobs of its reporting group.
struct Entry<'a> {
    info: JobInfo,
    clients: Vec<&'a ClientOutcome>,
    /// Calls of `fsync`; fio does not count those of `fdatasync`.
    fsyncs: u64,
}

/// One run as fio's `json+` has it.
pub fn fio_json(results: &Results, stack: usize, repeat: usize) -> String {
    let experiment = &results.experiment;
    let outcome = &results.repeats(0, stack)[repeat];
    let options = |all: &[(String, String)]| -> Map<String, Value> {
        all.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
    };
    let global = experiment.jobs.as_ref().map(|jobs| options(&jobs.global)).unwrap_or_default();
    let jobs: Vec<Value> = entries(results, outcome)
        .iter()
        .map(|entry| job(entry, &options(&entry.info.options), outcome, experiment.interval))
        .collect();
    let drive = &experiment.variants[0].drive;
    let util = outcome.drive.busy.0 as f64 / outcome.time.0.max(1) as f64 * 100.0;
    let all = json!({
        "fio version": "fio-3.33 (its format, written by iofair)",
        "timestamp": 0,
        "timestamp_ms": 0,
        "time": "Thu Jan  1 00:00:00 1970",
        "iofair": {
            "stack": experiment.stacks[stack].0,
            "drive": drive,
            "seed": experiment.seed.wrapping_add(repeat as u64),
        },
        "global options": global,
        "jobs": jobs,
        "disk_util": [{
            "name": drive,
            "read_ios": outcome.drive.reads,
            "write_ios": outcome.drive.writes,
            "read_sectors": outcome.drive.read_bytes / 512,
            "write_sectors": outcome.drive.written_bytes / 512,
            "util": util,
        }],
    });
    serde_json::to_string_pretty(&all).expect("plain numbers and texts always serialize") + "\n"
}

/// The jobs of a run. A file of experiments has one for each client.
fn entries<'a>(results: &Results, outcome: &'a Outcome) -> Vec<Entry<'a>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    let Some(jobs) = &results.experiment.jobs else {
        let info = |client: &ClientOutcome| JobInfo {
            name: client.name.clone(),
            description: None,
            options: Vec::new(),
            clones: 1,
            group: 0,
            group_reporting: false,
            depth: 1,
            latency: None,
            syncs: (0, 0),
            sync_gap: 0,
            odd_block: None,
        };
        let entry = |client: &'a ClientOutcome| Entry {
            info: info(client),
            clients: vec![client],
            fsyncs: 0,
        };
        return outcome.clients.iter().map(entry).collect();
    };
    let mut clients = outcome.clients.iter();
    for info in &jobs.jobs {
        for client in clients.by_ref().take(info.clones as usize) {
            let same = |entry: &&mut Entry<'a>| {
                info.group_reporting && entry.info.group_reporting && entry.info.group == info.group
            };
            let fsyncs = info.fsyncs(client.sync_latency.count());
            match entries.iter_mut().find(same) {
                Some(entry) => {
                    entry.clients.push(client);
                    entry.fsyncs += fsyncs;
                }
                None => {
                    entries.push(Entry { info: info.clone(), clients: vec![client], fsyncs });
                }
            }
        }
    }
    entries
}

fn job(
    entry: &Entry<'_>,
    options: &Map<String, Value>,
    outcome: &Outcome,
    interval: Option<Nanos>,
) -> Value {
    let Entry { info, clients, fsyncs } = entry;
    let time = clients.iter().map(|client| client.time_in(outcome)).max().unwrap_or_default();
    let mut all = Histogram::new();
    let mut sync = Histogram::new();
    for client in clients {
        all.merge(&client.latency);
        sync.merge(&client.sync_latency);
    }
    let (target, window, per_million) =
        info.latency.unwrap_or((Nanos::ZERO, Nanos::ZERO, 1_000_000));
    let depth = clients.iter().find_map(|client| client.depth).unwrap_or(info.depth);
    let mut job = Map::new();
    let mut put = |key: &str, value: Value| job.insert(key.to_owned(), value);
    put("jobname", info.name.as_str().into());
    put("groupid", info.group.into());
    put("error", 0.into());
    put("eta", 0.into());
    put("elapsed", time.0.div_ceil(1_000_000_000).into());
    if let Some(description) = &info.description {
        put("desc", description.as_str().into());
    }
    put("job options", options.clone().into());
    for (index, name) in NAMES.iter().enumerate() {
        let sides: Vec<&DirectionOutcome> =
            clients.iter().map(|client| &client.directions[index]).collect();
        put(name, direction(&sides, time, interval));
    }
    put("sync", json!({ "total_ios": fsyncs, "lat_ns": latencies(&sync, true) }));
    put("job_runtime", (time.0 / 1_000_000).into());
    for (unit, scale, bounds) in [
        ("latency_ns", 1, &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000][..]),
        ("latency_us", 1_000, &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000]),
        ("latency_ms", 1_000_000, &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000]),
    ] {
        put(unit, shares(&all, scale, bounds));
    }
    put("latency_depth", depth.into());
    put("latency_target", (target.0 / 1_000).into());
    put("latency_percentile", (f64::from(per_million) / 1e4).into());
    put("latency_window", (window.0 / 1_000).into());
    job.into()
}

/// The number of calls in a second, or bytes.
fn per_second(count: u64, time: Nanos) -> f64 {
    count as f64 * 1e9 / time.0.max(1) as f64
}

fn direction(sides: &[&DirectionOutcome], time: Nanos, interval: Option<Nanos>) -> Value {
    let mut latency = Histogram::new();
    sides.iter().for_each(|side| latency.merge(&side.latency));
    let bytes: u64 = sides.iter().map(|side| side.bytes).sum();
    let calls: u64 = sides.iter().map(|side| side.calls).sum();
    let bytes_per_s = per_second(bytes, time);
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| all.insert(key.to_owned(), value);
    put("io_bytes", bytes.into());
    put("io_kbytes", (bytes >> 10).into());
    put("bw_bytes", (bytes_per_s as u64).into());
    put("bw", (bytes_per_s as u64 >> 10).into());
    put("iops", per_second(calls, time).into());
    put("runtime", (if calls > 0 { time.0 / 1_000_000 } else { 0 }).into());
    put("total_ios", calls.into());
    put("short_ios", 0.into());
    put("drop_ios", 0.into());
    put("slat_ns", json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 }));
    put("clat_ns", latencies(&latency, true));
    put("lat_ns", latencies(&latency, false));
    let samples_of = |value: &dyn Fn(&Interval) -> f64| samples(sides, time, interval, value);
    for (name, values) in [
        ("bw", samples_of(&|part| part.bytes as f64 / 1024.0)),
        ("iops", samples_of(&|part| part.calls as f64)),
    ] {
        let (mean, deviation) = mean_and_deviation(&values);
        let least = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(0.0);
        put(&format!("{name}_min"), (least as u64).into());
        put(&format!("{name}_max"), (most as u64).into());
        if name == "bw" {
            put("bw_agg", (if calls > 0 { 100.0 } else { 0.0 }).into());
        }
        put(&format!("{name}_mean"), mean.into());
        put(&format!("{name}_{}", if name == "bw" { "dev" } else { "stddev" }), deviation.into());
        put(&format!("{name}_samples"), values.len().into());
    }
    all.into()
}

/// Rates of whole intervals, of all clients together.
fn samples(
    sides: &[&DirectionOutcome],
    time: Nanos,
    interval: Option<Nanos>,
    value: &dyn Fn(&Interval) -> f64,
) -> Vec<f64> {
    let Some(interval) = interval.filter(|interval| interval.0 > 0) else { return Vec::new() };
    if sides.iter().all(|side| side.calls == 0) {
        return Vec::new();
    }
    let whole = (time.0 / interval.0) as usize;
    let rate = |index: usize| {
        let in_it = sides.iter().filter_map(|side| side.series.get(index));
        in_it.map(value).sum::<f64>() * 1e9 / interval.0 as f64
    };
    (0..whole).map(rate).collect()
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// The middle of a histogram's bucket, from its largest value.
fn middle(upper: u64) -> u64 {
    // A bucket is a 32nd of its power of two wide.
    let width = (upper.checked_ilog2().unwrap_or(0)).saturating_sub(5);
    upper - (1u64 << width) / 2
}

fn latencies(of: &Histogram, in_full: bool) -> Value {
    let count = of.count();
    let mean = of.mean() as f64;
    let square =
        |(upper, number): (u64, u64)| (middle(upper) as f64 - mean).powi(2) * number as f64;
    let deviation = match count {
        0 | 1 => 0.0,
        count => (of.buckets().map(square).sum::<f64>() / (count - 1) as f64).sqrt(),
    };
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| all.insert(key.to_owned(), value);
    put("min", of.min().into());
    put("max", of.max().into());
    put("mean", mean.into());
    put("stddev", deviation.into());
    put("N", count.into());
    if in_full && count > 0 {
        let percentile = |percent: &f64| {
            let value = of.quantile((percent * 10_000.0).round() as u64);
            (format!("{percent:.6}"), Value::from(value))
        };
        put("percentile", PERCENTILES.iter().map(percentile).collect::<Map<_, _>>().into());
        let bin = |(upper, number): (u64, u64)| (middle(upper).to_string(), Value::from(number));
        put("bins", of.buckets().map(bin).collect::<Map<_, _>>().into());
    }
    all.into()
}

/// Percent of the calls with latencies in each range, named by its end in the unit. A range begins where the one before
/// ends, the first one where those of the smaller unit end.
fn shares(of: &Histogram, scale: u64, bounds: &[u64]) -> Value {
    let count = of.count().max(1) as f64;
    let mut low = if scale == 1 { 0 } else { scale };
    let mut all = Map::new();
    let share = |low: u64, high: u64| {
        let inside = of.buckets().filter(|(upper, _)| (low..high).contains(&middle(*upper)));
        inside.map(|bin| bin.1).sum::<u64>() as f64 / count * 100.0
    };
    for bound in bounds {
        let high = bound * scale;
        all.insert(bound.to_string(), share(low, high).into());
        low = high;
    }
    if scale == 1_000_000 {
        all.insert(">=2000".to_owned(), share(low, u64::MAX).into());
    }
    all.into()
}

/// The logs of a run: names and contents. Each client has those of `write_bw_log`, `write_iops_log` and `write_lat_log`, with
/// an entry for each interval and direction.
pub fn fio_logs(results: &Results, stack: usize, repeat: usize) -> Vec<(String, String)> {
    let outcome = &results.repeats(0, stack)[repeat];
    let Some(interval) = results.experiment.interval.filter(|interval| interval.0 > 0) else {
        return Vec::new();
    };
    let mut logs = Vec::new();
    for (index, client) in outcome.clients.iter().enumerate() {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
        let name: String = client.name.chars().map(plain).collect();
        let time = client.time_in(outcome);
        let mut texts = [String::new(), String::new(), String::new()];
        let longest = client.directions.iter().map(|side| side.series.len()).max().unwrap_or(0);
        for at in 0..longest {
            let (from, until) = (interval * at as u64, (interval * (at as u64 + 1)).min(time));
            let length = until.saturating_sub(from);
            for (number, side) in client.directions.iter().enumerate() {
                let part = side.series.get(at).filter(|part| part.calls > 0);
                let Some(part) = part else { continue };
                let millis = until.0 / 1_000_000;
                let values = [
                    per_second(part.bytes, length) as u64 >> 10,
                    per_second(part.calls, length) as u64,
                    part.latency / part.calls,
                ];
                for (text, value) in texts.iter_mut().zip(values) {
                    *text += &format!("{millis}, {value}, {number}, 0, 0\n");
                }
            }
        }
        for (kind, text) in ["bw", "iops", "lat"].into_iter().zip(texts) {
            logs.push((format!("{name}_{kind}.{}.log", index + 1), text));
        }
    }
    logs
}
