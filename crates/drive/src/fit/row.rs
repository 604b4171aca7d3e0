//! A row of a calibration: a load, and the quantities of its outcome that count.

use std::io;

use iofair_core::request::Operation;

use crate::measure::{Device, Load, Outcome, Simulated, run};
use crate::profile::{Model, Profile};
use crate::ssd;

/// Seed of the places in all rows, and of the drives that are simulated.
pub const SEED: u64 = 11;

/// Small and large requests.
pub(super) const SMALL: u64 = 4 << 10;
pub(super) const LARGE: u64 = 256 << 10;
/// Names of rows.
pub(super) const LONE_READS: &str = "4 KiB random reads, QD1";
pub(super) const MIX: &str = "4 KiB random writes, QD16, and reads, QD16, steady";
pub(super) const DISK_MIX: &str = "4 KiB random reads, QD4, beside 4 KiB random writes, QD4";
pub(super) const READS: &str = "256 KiB sequential reads, QD8";
pub(super) const SUSTAINED_SMALL: &str = "4 KiB random reads, as many as possible";
pub(super) const SUSTAINED: &str = "256 KiB sequential reads, QD32";
pub(super) const FLUSH: &str = "flush alone";
pub(super) const FILL_SHORT: &str = "256 KiB sequential writes, the first 16 MiB";
pub(super) const STEADY: &str = "256 KiB sequential writes, QD8, steady";
pub(super) const FILL: &str = "256 KiB sequential writes until the rate is steady";

/// One request in this many is too slow to count in a deviation.
const SLOWEST_ONE_IN: u64 = 200;

/// A number of an outcome; its argument is the stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Quantity {
    /// Mean latency of reads or writes, in nanoseconds.
    Latency(usize),
    /// Standard deviation of that latency without the slowest half percent, in nanoseconds.
    Deviation(usize),
    /// Longest latency, in nanoseconds.
    Longest(usize),
    /// Mean latency of flushes, in nanoseconds.
    Flush(usize),
    /// Bytes a second.
    Rate(usize),
    /// This many millionths of the latencies are at most as long, in nanoseconds.
    Percentile(usize, u32),
}

/// A load and what counts of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Its name, unique in a calibration.
    pub name: String,
    /// The load.
    pub load: Load,
    /// What counts.
    pub quantities: Vec<Quantity>,
    /// Relative error of its means in an exact model, since the places of its requests are a sample.
    pub tolerance: f64,
    /// Whether it is only used to verify the fit.
    pub held_out: bool,
    /// What was done with the drive before, if that is known.
    pub state: Option<ssd::State>,
}

/// A measured number of a row.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// The row.
    pub row: String,
    /// The quantity, as [`Quantity::name`] says it.
    pub quantity: String,
    /// The number, in nanoseconds or bytes a second.
    pub value: f64,
}

/// What a row gave.
#[derive(Clone, PartialEq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// The row.
    pub row: String,
    /// Its numbers.
    pub numbers: Vec<Measured>,
    /// Bytes of the first stream and the time in nanoseconds after each window, if the row has windows.
    pub series: Vec<(u64, u64)>,
    /// Why it has no numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

impl Record {
    /// Its number of a quantity.
    pub(super) fn number(&self, quantity: Quantity) -> Option<f64> {
        let name = quantity.name();
        self.numbers.iter().find(|number| number.quantity == name).map(|number| number.value)
    }
}

impl Quantity {
    /// The stream whose number it is.
    pub fn stream(self) -> usize {
        match self {
            Self::Latency(stream)
            | Self::Deviation(stream)
            | Self::Longest(stream)
            | Self::Flush(stream)
            | Self::Rate(stream)
            | Self::Percentile(stream, _) => stream,
        }
    }
    /// Its name, such as `latency of 0`.
    pub fn name(self) -> String {
        let (name, stream) = match self {
            Self::Latency(stream) => ("latency", stream),
            Self::Deviation(stream) => ("deviation", stream),
            Self::Longest(stream) => ("longest", stream),
            Self::Flush(stream) => ("flush", stream),
            Self::Rate(stream) => ("rate", stream),
            Self::Percentile(stream, part) => return format!("p{} of {stream}", percent(part)),
        };
        format!("{name} of {stream}")
    }
    /// Whether it is bytes a second, and not nanoseconds.
    pub fn is_rate(self) -> bool {
        matches!(self, Self::Rate(_))
    }
    /// Its relative error where that of means is `of_means`.
    pub(super) fn tolerance(self, of_means: f64) -> f64 {
        match self {
            Self::Latency(_) | Self::Flush(_) | Self::Rate(_) => of_means,
            Self::Deviation(_) | Self::Percentile(_, ..=990_000) => 3.0 * of_means,
            Self::Longest(_) | Self::Percentile(..) => 10.0 * of_means,
        }
    }
    /// Its value; 0 where nothing was counted.
    pub fn value_in(self, outcome: &Outcome) -> f64 {
        match self {
            Self::Latency(stream) => outcome.latency(stream),
            Self::Deviation(stream) => deviation(outcome, stream),
            Self::Longest(stream) => outcome.streams[stream].latency.max() as f64,
            Self::Flush(stream) => outcome.streams[stream].flush.mean() as f64,
            Self::Rate(stream) => outcome.rate(stream),
            Self::Percentile(stream, part) => {
                outcome.streams[stream].latency.quantile(u64::from(part)) as f64
            }
        }
    }
}

/// Millionths as percent, such as 99.9.
fn percent(part: u32) -> f64 {
    f64::from(part) / 10_000.0
}

/// From the buckets of the histogram, whose rounding is the same for all, without the slowest requests: a single pause of
/// the host would outweigh all others.
fn deviation(outcome: &Outcome, stream: usize) -> f64 {
    let histogram = &outcome.streams[stream].latency;
    let mut rest = histogram.count() - histogram.count() / SLOWEST_ONE_IN;
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for (value, times) in histogram.buckets() {
        let times = times.min(rest);
        rest -= times;
        let (value, times) = (value as f64, times as f64);
        count += times;
        sum += value * times;
        squares += value * value * times;
    }
    let mean = sum / f64::max(count, 1.0);
    (squares / f64::max(count, 1.0) - mean * mean).max(0.0).sqrt()
}

impl Row {
    /// Whether it writes to the target.
    pub fn writes(&self) -> bool {
        self.load.streams.iter().any(|stream| stream.operation == Operation::Write)
    }
    /// The part of a model on which this row depends; everything else has fixed values.
    pub(super) fn model(&self, model: &Model) -> Model {
        let streams = &self.load.streams;
        let reads = streams.iter().filter(|stream| stream.operation == Operation::Read).count();
        let flushes = streams.iter().any(|stream| stream.flush_every > 0);
        let only_reads = reads == streams.len() && !flushes;
        match model {
            Model::Ssd(ssd) if only_reads => Model::Ssd(ssd.of_reads()),
            Model::Ssd(ssd) if reads == 0 => Model::Ssd(ssd.of_writes()),
            other => other.clone(),
        }
    }
    /// What it gave.
    pub fn record(&self, outcome: &Outcome) -> Record {
        let series = outcome.series.iter().map(|(bytes, at)| (*bytes, at.0)).collect();
        Record { row: self.name.clone(), numbers: self.measured(outcome), series, left_out: None }
    }
    /// Its numbers from an outcome. A stream that the other one starved until the row ended has none.
    fn measured(&self, outcome: &Outcome) -> Vec<Measured> {
        let of = |quantity: &Quantity| Measured {
            row: self.name.clone(),
            quantity: quantity.name(),
            value: quantity.value_in(outcome),
        };
        let is_counted = |name: &&Quantity| name.stream() == 0 || outcome.iops(name.stream()) > 0.0;
        self.quantities.iter().filter(is_counted).map(of).collect()
    }
    /// A quantity for readers, such as `latency of 4 KiB reads`, or `latency` where all requests are alike.
    pub fn describe(&self, quantity: Quantity) -> String {
        let what;
        let (what, stream) = match quantity {
            Quantity::Latency(stream) => ("latency", stream),
            Quantity::Deviation(stream) => ("deviation", stream),
            Quantity::Longest(stream) => ("longest latency", stream),
            Quantity::Flush(_) => return "latency of flushes".to_owned(),
            Quantity::Rate(stream) => ("rate", stream),
            Quantity::Percentile(stream, part) => {
                what = format!("p{}", percent(part));
                (what.as_str(), stream)
            }
        };
        if self.load.streams.len() == 1 {
            return what.to_owned();
        }
        let stream = &self.load.streams[stream];
        let kind = if stream.operation == Operation::Write { "writes" } else { "reads" };
        format!("{what} of {} KiB {kind}", stream.block >> 10)
    }
    /// Runs it on a device.
    pub fn run(&self, device: &mut dyn Device, is_over: &dyn Fn() -> bool) -> io::Result<Outcome> {
        run(device, &self.load, SEED, is_over)
    }
    /// Runs it on a model at rest, in simulated time.
    pub fn simulate(&self, profile: &Profile) -> Outcome {
        let mut profile = profile.clone();
        if let (Some(state), Model::Ssd(ssd)) = (self.state, &mut profile.model)
            && let Some(ftl) = &mut ssd.ftl
        {
            ftl.state = state;
        }
        let mut device = Simulated::new(profile.build(SEED));
        // A disk's capacity follows from its geometry, and may be a little less than what was measured.
        let capacity = device.facts().capacity.bytes();
        let mut row = self.clone();
        for stream in &mut row.load.streams {
            let whole = capacity / stream.block * stream.block;
            let bytes = if stream.area.1 == 0 { whole } else { stream.area.1.min(whole) };
            let last = (capacity - bytes) / stream.block * stream.block;
            stream.area = (stream.area.0.min(last), bytes);
        }
        row.run(&mut device, &|| false).expect("a model refuses nothing within its capacity")
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::time::Nanos;

    use super::*;
    use crate::measure::{Amount, Counted};

    /// Goal: a stream that got nothing has no number, so that the drive is not refused for it. Method: one of two streams is
    /// starved.
    #[test]
    fn a_starved_stream_has_no_numbers() {
        let mut counted = Counted { bytes: 4096, ..Counted::default() };
        counted.latency.record(100_000);
        let streams = vec![counted, Counted::default()];
        let outcome = Outcome { time: Nanos::from_secs(1), streams, series: Vec::new() };
        let quantities = vec![Quantity::Rate(0), Quantity::Rate(1), Quantity::Latency(1)];
        let nothing = Amount { requests: 0, time: Nanos::ZERO };
        let load = Load { streams: Vec::new(), warm_up: nothing, measured: nothing, window: 0 };
        let row = Row {
            name: "x".into(),
            load,
            quantities,
            tolerance: 0.01,
            held_out: false,
            state: None,
        };
        let measured = row.measured(&outcome);
        assert!(matches!(measured.as_slice(), [only] if only.quantity == "rate of 0"));
    }

    /// Goal: one pause of the host does not look like a drive whose latency varies. Method: 999 equal latencies and a long
    /// one, and two latencies in turn.
    #[test]
    fn a_single_pause_is_no_deviation() {
        let of = |latencies: &[u64]| {
            let mut counted = Counted::default();
            latencies.iter().for_each(|latency| counted.latency.record(*latency));
            deviation(&Outcome { streams: vec![counted], ..Outcome::default() }, 0)
        };
        let mut pause = vec![100_000; 999];
        pause.push(50_000_000);
        assert!(of(&pause) < 1.0, "{}", of(&pause));
        let turns: Vec<u64> = (0..1000).map(|turn| 50_000 + turn % 2 * 100_000).collect();
        assert!((of(&turns) - 50_000.0).abs() < 2_000.0, "{}", of(&turns));
    }
}
