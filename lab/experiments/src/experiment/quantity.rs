//! What can be read off a run, and in which unit the source printed it.
//!
//! A quantity is written `"target"`, `"total"` or `"target p99"`: whose, and which number of it.

use core::fmt;
use std::str::FromStr;

use iofair_core::stats::histogram::Histogram;
use iofair_core::time::Nanos;
use iofair_simulator::outcome::{ClientOutcome, Interval, Outcome};
use serde::{Deserialize, Serialize};

/// How rates are printed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Units {
    /// Megabytes of 10^6 bytes a second, everywhere.
    #[default]
    Si,
    /// As the S suite prints: a client's rate is fio's KiB/s divided by 1000, the total is iostat's
    /// MiB/s. Both are called MB/s by the sources.
    Suite,
    /// KiB a second, everywhere, as fio prints.
    Kib,
}

impl Units {
    /// What the source calls its unit of rates.
    pub const fn rate(self) -> &'static str {
        match self {
            Self::Si | Self::Suite => "MB/s",
            Self::Kib => "KiB/s",
        }
    }
    /// Bytes in one of a client's.
    pub fn of_client(self) -> f64 {
        self.bytes(&Subject::Client(String::new()))
    }
    /// Bytes in one.
    fn bytes(self, subject: &Subject) -> f64 {
        match (self, subject) {
            (Self::Si, _) => 1e6,
            (Self::Suite, Subject::Total) => 1024.0 * 1024.0,
            (Self::Suite, Subject::Client(_)) => 1024.0 * 1000.0,
            (Self::Kib, _) => 1024.0,
        }
    }
}

/// The subject of a quantity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// What went to and from the drive.
    Total,
    /// The clients of this name, together when there are several.
    Client(String),
}

/// Which number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Metric {
    /// Bytes a second, in the experiment's unit.
    Rate,
    /// Bytes a second at the drive, in the experiment's unit; not a number where nobody counts them.
    Drive,
    /// Calls (commands, for the total) a second.
    Iops,
    /// Mean latency.
    Mean,
    /// Median latency.
    P50,
    /// Latency that 99 % do not exceed.
    P99,
    /// Latency that 99.9 % do not exceed.
    P999,
    /// Largest latency.
    Max,
    /// Time of an `fdatasync` that 99 % do not exceed; of a client only.
    SyncP99,
    /// Bytes a second in the worst of the file's intervals, in the experiment's unit; of a client only.
    Least,
    /// Bytes a second of the fastest of the client's processes; of a client only.
    Fastest,
    /// Bytes a second of the slowest of them.
    Slowest,
    /// Percent of the time in which the drive had work; of the total only.
    Busy,
    /// Jain's index of what the groups got for their weight: 1 when all got the same, 1/n when one of n got all.
    Fairness,
}

const METRICS: [(&str, Metric); 14] = [
    ("rate", Metric::Rate),
    ("drive", Metric::Drive),
    ("iops", Metric::Iops),
    ("mean", Metric::Mean),
    ("p50", Metric::P50),
    ("p99", Metric::P99),
    ("p999", Metric::P999),
    ("max", Metric::Max),
    ("sync_p99", Metric::SyncP99),
    ("least", Metric::Least),
    ("fastest", Metric::Fastest),
    ("slowest", Metric::Slowest),
    ("busy", Metric::Busy),
    ("fairness", Metric::Fairness),
];

/// One number of a run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Quantity {
    /// The subject.
    pub subject: Subject,
    /// Which.
    pub metric: Metric,
}

impl Quantity {
    /// The rate of the whole drive.
    pub const TOTAL: Self = Self { subject: Subject::Total, metric: Metric::Rate };
    /// A number of the clients of a name.
    pub fn of_client(client: &str, metric: Metric) -> Self {
        Self { subject: Subject::Client(client.to_owned()), metric }
    }
    /// Whether it is the mean latency of a client.
    pub fn is_client_mean(&self) -> bool {
        self.metric == Metric::Mean && self.subject != Subject::Total
    }
    /// The unit in which [`Self::read`] gives it.
    pub const fn unit(&self, units: Units) -> &'static str {
        match self.metric {
            Metric::Rate | Metric::Drive => units.rate(),
            Metric::Least | Metric::Fastest | Metric::Slowest => units.rate(),
            Metric::Iops => "IOPS",
            Metric::Fairness => "",
            Metric::Busy => "%",
            Metric::Mean | Metric::P50 | Metric::P99 | Metric::P999 | Metric::Max => "ms",
            Metric::SyncP99 => "ms",
        }
    }
    /// The rates of a client, or of the total, in each interval of a run that kept them.
    pub fn rates(&self, outcome: &Outcome, interval: Nanos, units: Units) -> Vec<f64> {
        let scale = interval.0 as f64 / 1e9 * units.bytes(&self.subject);
        let rate = |bytes: u64| bytes as f64 / scale;
        let Subject::Client(name) = &self.subject else {
            return outcome.drive.series.iter().map(|bytes| rate(*bytes)).collect();
        };
        let mine: Vec<_> =
            outcome.clients.iter().filter(|client| is_process_of(&client.name, name)).collect();
        let mine: Vec<_> = mine.iter().map(|client| client.whole_intervals(interval)).collect();
        let intervals = mine.iter().map(|series| series.len()).max().unwrap_or_default();
        let bytes = |index: usize| mine.iter().map(|series| bytes_at(series, index)).sum();
        (0..intervals).map(|at| rate(bytes(at))).collect()
    }
    /// Its value in an outcome: rates in `units`, latencies in milliseconds.
    pub fn read(&self, outcome: &Outcome, units: Units) -> f64 {
        let seconds = outcome.time.0 as f64 / 1e9;
        let Subject::Client(name) = &self.subject else {
            let drive = &outcome.drive;
            let bytes = (drive.read_bytes + drive.written_bytes) as f64;
            return match self.metric {
                Metric::Rate | Metric::Drive => bytes / seconds / units.bytes(&self.subject),
                Metric::Iops => drive.commands as f64 / seconds,
                Metric::Busy => drive.busy.0 as f64 / outcome.time.0 as f64 * 100.0,
                Metric::Fairness => jain(outcome.clients.iter()),
                latency => latency_ms(latency, &merged(outcome, |_| true)),
            };
        };
        let mine = || outcome.clients.iter().filter(|c| is_process_of(&c.name, name));
        // Clients in steps have times of their own.
        let own = mine().map(|client| client.time.0).max().filter(|time| *time > 0);
        let seconds = own.map_or(seconds, |own| own as f64 / 1e9);
        match self.metric {
            Metric::Rate | Metric::Fastest | Metric::Slowest => {
                let each = mine().map(|c| c.bytes);
                let bytes = match self.metric {
                    Metric::Fastest => each.max().unwrap_or_default(),
                    Metric::Slowest => each.min().unwrap_or_default(),
                    _ => each.sum(),
                };
                bytes as f64 / seconds / units.bytes(&self.subject)
            }
            Metric::Drive => {
                let bytes: Option<u64> = mine().map(|c| c.drive_bytes).sum();
                bytes.map_or(f64::NAN, |bytes| bytes as f64) / seconds / units.bytes(&self.subject)
            }
            Metric::Iops => mine().map(|c| c.calls).sum::<u64>() as f64 / seconds,
            Metric::Fairness => jain(mine()),
            Metric::Least => {
                let intervals = mine().map(|client| client.series.len()).max().unwrap_or_default();
                let bytes = |at: usize| mine().map(|c| bytes_at(&c.series, at)).sum::<u64>();
                let least = (0..intervals).map(bytes).min().unwrap_or_default() as f64;
                least * intervals as f64 / seconds / units.bytes(&self.subject)
            }
            Metric::SyncP99 => {
                let mut all = Histogram::new();
                mine().for_each(|client| all.merge(&client.sync_latency));
                latency_ms(Metric::P99, &all)
            }
            latency => latency_ms(latency, &merged(outcome, |c| is_process_of(c, name))),
        }
    }
}

/// Jain, Chiu and Hawe (1984): the square of the sum over n times the sum of squares.
pub fn jains_index(values: impl Iterator<Item = f64>) -> f64 {
    let add = |(count, sum, squares), value| (count + 1.0, sum + value, squares + value * value);
    let (count, sum, squares) = values.fold((0.0, 0.0, 0.0), add);
    sum * sum / (count * squares)
}

/// Bytes of an interval; none after the last one.
fn bytes_at(series: &[Interval], index: usize) -> u64 {
    series.get(index).map_or(0, |interval| interval.bytes)
}

/// Jain's index of the bytes of each group divided by its weight. Processes of one group count together; a group without
/// processes is none.
fn jain<'a>(clients: impl Iterator<Item = &'a ClientOutcome>) -> f64 {
    let mut groups: Vec<(&str, u32, u64)> = Vec::new();
    for client in clients {
        match groups.iter_mut().find(|(name, ..)| *name == client.group) {
            Some((.., bytes)) => *bytes += client.bytes,
            None => groups.push((&client.group, client.weight, client.bytes)),
        }
    }
    jains_index(groups.iter().map(|(_, weight, bytes)| *bytes as f64 / f64::from(*weight)))
}

/// The latencies of all clients whose name is wanted, in one histogram.
pub fn merged(outcome: &Outcome, wanted: impl Fn(&str) -> bool) -> Histogram {
    let mut all = Histogram::new();
    outcome.clients.iter().filter(|c| wanted(&c.name)).for_each(|c| all.merge(&c.latency));
    all
}

/// Whether `process` is the client `name` or one of its numbered processes (`name.3`).
pub fn is_process_of(process: &str, name: &str) -> bool {
    match process.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('.').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())),
        None => false,
    }
}

fn latency_ms(metric: Metric, latency: &Histogram) -> f64 {
    let nanos = match metric {
        Metric::Mean => latency.mean(),
        Metric::P50 => latency.quantile(500_000),
        Metric::P99 => latency.quantile(990_000),
        Metric::P999 => latency.quantile(999_000),
        Metric::Max => latency.max(),
        _ => 0,
    };
    nanos as f64 / 1e6
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total => f.write_str("total"),
            Self::Client(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = METRICS.iter().find(|(_, metric)| metric == self);
        f.write_str(row.expect("every metric has its row").0)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.metric {
            Metric::Rate => write!(f, "{}", self.subject),
            metric => write!(f, "{} {metric}", self.subject),
        }
    }
}

impl FromStr for Quantity {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (subject, metric) = match text.trim().split_once(' ') {
            None => (text.trim(), Metric::Rate),
            Some((subject, word)) => {
                let found = METRICS.iter().find(|(name, _)| *name == word.trim());
                let known = METRICS.map(|(name, _)| name).join(", ");
                let unknown = || format!("no number \"{}\"; there are: {known}", word.trim());
                (subject, found.ok_or_else(unknown)?.1)
            }
        };
        let subject = match subject {
            "" => return Err("an empty name; write \"total\" or a client's name".to_owned()),
            "total" => Subject::Total,
            name => Subject::Client(name.to_owned()),
        };
        if metric == Metric::Busy && subject != Subject::Total {
            return Err("only the total has \"busy\"".to_owned());
        }
        let of_client = matches!(metric, Metric::Least | Metric::Fastest | Metric::Slowest);
        if of_client && subject == Subject::Total {
            return Err(format!("only a client has \"{metric}\""));
        }
        Ok(Self { subject, metric })
    }
}

/// Reads a published value (`"235MB/s"`, `"39ms"`, `"72800IOPS"`, `"97%"`) in the quantity's unit.
///
/// `MB/s` means whatever the experiment's [`Units`] print under that name.
pub fn parse_value(text: &str, unit: &'static str) -> Result<f64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let scale = match (unit, text[split..].trim()) {
        (unit, given) if unit == given => 1.0,
        ("ms", "s") => 1e3,
        ("ms", "us") | ("s", "ms") => 1e-3,
        _ => return Err(format!("\"{text}\" is not a number of {unit}, such as \"10{unit}\"")),
    };
    let number: f64 = text[..split].parse().map_err(|_| format!("\"{text}\" has no number"))?;
    Ok(number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_simulator::outcome::DriveOutcome;

    fn outcome() -> Outcome {
        let mut latency = Histogram::new();
        latency.record(2_000_000);
        let client = |name: &str, bytes| ClientOutcome {
            name: name.into(),
            group: name.into(),
            weight: if name == "target" { 200 } else { 100 },
            bytes,
            drive_bytes: Some(bytes / 2),
            calls: bytes / 4096,
            latency: latency.clone(),
            ..ClientOutcome::default()
        };
        let drive = DriveOutcome {
            read_bytes: 200 << 20,
            written_bytes: 56 << 20,
            commands: 1000,
            busy: Nanos::from_secs(1),
            ..DriveOutcome::default()
        };
        let clients = vec![
            client("target", 20_480_000),
            client("reader.0", 1_024_000),
            client("reader.1", 1_024_000),
            client("reader-x", 7),
        ];
        let time = Nanos::from_secs(2);
        let requests = Vec::new();
        Outcome { time, clients, drive, trace_hash: 1, simulated_requests: 1000, requests }
    }

    /// Goal: numbers read as the source prints them. Method: one outcome, both units.
    #[test]
    fn numbers_in_the_units_of_the_source() {
        let read = |text: &str, units| {
            text.parse::<Quantity>().expect("known quantity").read(&outcome(), units)
        };
        assert_eq!(read("target", Units::Suite), 10.0);
        assert_eq!(read("target", Units::Si), 10.24);
        assert_eq!(read("total", Units::Suite), 128.0);
        assert_eq!(read("total", Units::Si), 134.217728);
        assert_eq!(read("reader", Units::Suite), 1.0);
        assert_eq!(
            (read("reader drive", Units::Suite), read("total drive", Units::Si)),
            (0.5, 134.217728)
        );
        assert_eq!(read("target mean", Units::Si), 2.0);
        assert_eq!(read("total busy", Units::Si), 50.0);
        assert_eq!(read("total iops", Units::Si), 500.0);
    }

    /// Goal: fairness is Jain's index of bytes by weight, group by group. Method: by hand: 102,400 of the target for
    /// each unit of weight, 10,240 of both readers, 0.07 of the last; then both readers in one group.
    #[test]
    fn fairness_is_jains_index() {
        let read = |text: &str, outcome: &Outcome| {
            text.parse::<Quantity>().expect("known quantity").read(outcome, Units::Si)
        };
        let (mut outcome, sum) = (outcome(), 102_400.0 + 2.0 * 10_240.0 + 0.07);
        let squares = 102_400f64.powi(2) + 2.0 * 10_240f64.powi(2);
        assert!((read("total fairness", &outcome) - sum * sum / (4.0 * squares)).abs() < 1e-9);
        assert_eq!(read("reader fairness", &outcome), 1.0);
        outcome.clients[2].bytes = 0;
        assert_eq!(read("reader fairness", &outcome), 0.5);
        outcome.clients.iter_mut().for_each(|client| client.group = "all".to_owned());
        assert_eq!(read("total fairness", &outcome), 1.0);
    }

    /// Goal: the worst interval of a client, its processes together. Method: two processes that are slow in turn, and
    /// both in the third of four intervals of half a second.
    #[test]
    fn the_worst_interval() {
        let mut outcome = outcome();
        for (client, bytes) in [(1, [1, 9, 2, 9]), (2, [9, 1, 3, 9])] {
            let interval = |mb: &u64| Interval { bytes: mb * 1_000_000, ..Interval::default() };
            outcome.clients[client].series = bytes.iter().map(interval).collect();
        }
        let least: Quantity = "reader least".parse().expect("known quantity");
        assert_eq!(least.read(&outcome, Units::Si), 10.0);
        assert_eq!(least.unit(Units::Si), "MB/s");
    }

    /// Goal: the fastest and the slowest process of a client. Method: two readers, one of them twice as fast.
    #[test]
    fn the_fastest_and_the_slowest_process() {
        let mut outcome = outcome();
        outcome.clients[2].bytes = 2_048_000;
        let read = |text: &str| {
            text.parse::<Quantity>().expect("known quantity").read(&outcome, Units::Suite)
        };
        assert_eq!(
            (read("reader fastest"), read("reader slowest"), read("reader")),
            (1.0, 0.5, 1.5)
        );
    }

    /// Goal: nonsense is refused with what there is. Method: one text a rule.
    #[test]
    fn unknown_numbers_are_refused() {
        let error = "target p98".parse::<Quantity>().unwrap_err();
        assert!(error.contains("p98") && error.contains("p99"), "{error}");
        assert!("target busy".parse::<Quantity>().is_err());
        assert!("total least".parse::<Quantity>().is_err());
        assert!("total slowest".parse::<Quantity>().is_err());
        assert!(parse_value("10MB/s", "ms").is_err());
        assert_eq!(parse_value("1.5s", "ms"), Ok(1500.0));
        assert_eq!(parse_value("235MB/s", "MB/s"), Ok(235.0));
    }
}
