//! What the demo found: numbers, the verdict, and the JSON of both.

use serde::Serialize;

use super::client::{Got, Work};
use iofair_core::unit::Count;
use iofair_simulator::calibration::Disturbed;

/// A promise counts as kept from here on, in percent: a limit of exactly 10 MB/s, measured over a few
/// seconds, reads a little less.
pub(crate) const KEPT_PERCENT: u64 = 95;

/// With this many threads waiting for a processor, the numbers measure the machine rather than the policies.
const BUSY_MACHINE: f64 = 0.25;

/// The whole demo.
#[derive(Serialize)]
pub(crate) struct Outcome {
    /// The profile of an emulated drive, or a directory on a real one.
    pub(crate) drive: String,
    pub(crate) is_real: bool,
    /// Target and readers together.
    pub(crate) clients: usize,
    /// Measured time of each stack.
    pub(crate) seconds: f64,
    /// What the target was promised.
    pub(crate) promised_bytes_per_s: u64,
    pub(crate) disturbed: Disturbed,
    pub(crate) stacks: Vec<StackOutcome>,
}

/// One stack.
#[derive(Serialize)]
pub(crate) struct StackOutcome {
    pub(crate) stack: String,
    pub(crate) target: ClientOutcome,
    pub(crate) total: Total,
    /// Part of the measured time in which the drive had a command, 0 to 1.
    pub(crate) drive_utilisation: f64,
    /// How many threads of server and clients waited for a processor, on average.
    pub(crate) processor_wait: f64,
    /// Part of the processors' time that the host of this machine gave to others, 0 to 1.
    pub(crate) stolen: f64,
    pub(crate) promise_kept: bool,
    /// The others.
    pub(crate) readers: Vec<ClientOutcome>,
    /// Samples over the run.
    pub(crate) samples: Vec<Sample>,
}

/// All clients together.
#[derive(Serialize)]
pub(crate) struct Total {
    pub(crate) bytes_per_s: u64,
    pub(crate) iops: u64,
}

/// One client, measured by itself.
#[derive(Clone, Serialize)]
pub(crate) struct ClientOutcome {
    pub(crate) name: String,
    pub(crate) bytes_per_s: u64,
    pub(crate) iops: u64,
    pub(crate) latency_ns: Latency,
}

/// From sending a read to having its data.
#[derive(Clone, Serialize)]
pub(crate) struct Latency {
    pub(crate) mean: u64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

/// A sample of a run in progress, warm-up included.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Sample {
    /// Since the clients started.
    pub(crate) seconds: f64,
    pub(crate) target_bytes_per_s: u64,
    pub(crate) total_bytes_per_s: u64,
}

impl Outcome {
    /// What was measured, in one sentence: of the runs in which the promise was kept, the one in which the clients got most.
    pub(crate) fn summary(&self) -> Option<String> {
        let best = self.stacks.iter().filter(|run| run.promise_kept);
        let best = best.max_by_key(|run| run.total.bytes_per_s)?;
        let most = self.stacks.iter().map(|run| run.total.bytes_per_s).max()?;
        let mb = |rate: u64| rate as f64 / 1e6;
        let (runs, seconds) = (Count(self.stacks.len(), "run"), self.seconds);
        let own = || self.stacks.iter().filter(|run| run.stack == best.stack);
        let kept = match (own().filter(|run| run.promise_kept).count(), own().count()) {
            (1, 1) => "kept the promise, and gave".to_string(),
            (kept, all) => format!("kept the promise in {kept} of {all}, and at best gave"),
        };
        let others = match self.stacks.len() {
            1 => String::new(),
            _ => format!("; the most in any of them is {:.0} MB/s", mb(most)),
        };
        Some(format!(
            "in {runs} of {seconds} s, {} {kept} all clients together {:.0} MB/s{others}",
            best.stack,
            mb(best.total.bytes_per_s),
        ))
    }
    /// A warning if the machine or its host was too busy for the numbers to be believed.
    pub(crate) fn warning(&self) -> Option<String> {
        let all = [self.busy().unwrap_or_default(), self.disturbed.text()].join(" ");
        Some(all.trim().to_owned()).filter(|text| !text.is_empty())
    }
    fn busy(&self) -> Option<String> {
        let waits = self.stacks.iter().map(|stack| stack.processor_wait);
        let worst = waits.fold(0.0, f64::max);
        (worst >= BUSY_MACHINE).then(|| {
            format!(
                "this machine was busy: up to {worst:.1} threads of server and clients waited for a \
                 processor. A drive that waits for its clients looks idle; try again on a quiet machine."
            )
        })
    }
}

impl ClientOutcome {
    pub(crate) fn new(name: &str, got: &Got, seconds: f64) -> Self {
        let latency = &got.latency;
        Self {
            name: name.to_string(),
            bytes_per_s: per_second(got.bytes, seconds),
            iops: per_second(latency.count(), seconds),
            latency_ns: Latency {
                mean: latency.mean(),
                p50: latency.quantile(500_000),
                p99: latency.quantile(990_000),
                p999: latency.quantile(999_000),
                max: latency.max(),
            },
        }
    }
}

/// A count a second, rounded.
pub(crate) fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds.max(1e-9)).round() as u64
}

impl StackOutcome {
    /// From what the clients got, the target first.
    pub(crate) fn new(stack: &str, clients: Vec<(String, Work, Got)>, run: &Measured) -> Self {
        let outcomes =
            clients.iter().map(|(name, _, got)| ClientOutcome::new(name, got, run.seconds));
        let mut outcomes: Vec<ClientOutcome> = outcomes.collect();
        let total = Total {
            bytes_per_s: outcomes.iter().map(|client| client.bytes_per_s).sum(),
            iops: outcomes.iter().map(|client| client.iops).sum(),
        };
        let target = outcomes.remove(0);
        Self {
            stack: stack.to_string(),
            promise_kept: is_kept(target.bytes_per_s, run.promised),
            target,
            total,
            drive_utilisation: run.utilisation,
            processor_wait: run.processor_wait,
            stolen: 0.0,
            readers: outcomes,
            samples: run.samples.clone(),
        }
    }
    /// One sentence: what this stack did to the promise and to the drive.
    pub(crate) fn verdict(&self, promised: u64) -> String {
        let mb = |rate: u64| rate as f64 / 1e6;
        let got = mb(self.target.bytes_per_s);
        let word = if self.promise_kept { "kept" } else { "BROKEN" };
        format!(
            "promise {word}: {got:.1} of {} MB/s (p99 {}, worst {}), all clients together {:.0} MB/s",
            megabytes(promised),
            milliseconds(self.target.latency_ns.p99),
            milliseconds(self.target.latency_ns.max),
            mb(self.total.bytes_per_s),
        )
    }
}

/// How a run was measured.
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) utilisation: f64,
    pub(crate) processor_wait: f64,
    pub(crate) promised: u64,
    pub(crate) samples: Vec<Sample>,
}

fn is_kept(got: u64, promised: u64) -> bool {
    u128::from(got) * 100 >= u128::from(promised) * u128::from(KEPT_PERCENT)
}

/// A promise for people: `10`, or `8.6` when it was measured.
pub(crate) fn megabytes(rate: u64) -> String {
    let places = usize::from(!rate.is_multiple_of(1_000_000));
    format!("{:.places$}", rate as f64 / 1e6)
}

/// A latency for people.
pub(crate) fn milliseconds(nanos: u64) -> String {
    let ms = nanos as f64 / 1e6;
    match ms {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the verdict is what was measured, within the stated slack. Method: both sides of it.
    #[test]
    fn verdicts_follow_the_numbers() {
        assert!(is_kept(9_500_000, 10_000_000));
        assert!(!is_kept(9_499_999, 10_000_000));
        assert!(is_kept(0, 0));
        assert_eq!([10_000_000, 8_630_000].map(megabytes), ["10", "8.6"]);
    }

    /// Goal: the summary says no more than what was measured. Method: one run, several stacks, and one stack that was run twice and
    /// broke its promise once.
    #[test]
    fn summaries_say_what_was_measured() {
        let run = |stack: &str, target: u64, total: u64| {
            let got = |bytes| Got { bytes, ..Got::default() };
            let measured = Measured {
                seconds: 1.0,
                utilisation: 0.5,
                processor_wait: 0.0,
                promised: 10_000_000,
                samples: vec![],
            };
            let clients = vec![
                ("target".to_string(), Work::Random, got(target)),
                ("reader-1".to_string(), Work::Sequential, got(total - target)),
            ];
            StackOutcome::new(stack, clients, &measured)
        };
        let summary = |stacks: Vec<StackOutcome>| {
            let outcome = Outcome {
                drive: "d".into(),
                is_real: false,
                clients: 2,
                seconds: 0.5,
                promised_bytes_per_s: 10_000_000,
                disturbed: Disturbed::default(),
                stacks,
            };
            outcome.summary()
        };
        let (kept, low) = (|| run("a", 12_000_000, 90_000_000), || run("a", 2_000_000, 80_000_000));
        let one = "in 1 run of 0.5 s, a kept the promise, and gave all clients together 90 MB/s";
        assert_eq!(summary(vec![kept()]).as_deref(), Some(one));
        let told = summary(vec![run("b", 1_000_000, 95_000_000), kept()]).expect("one kept it");
        let two = one.replace("1 run", "2 runs") + "; the most in any of them is 95 MB/s";
        assert_eq!(told, two);
        let told = summary(vec![low(), kept()]).expect("once");
        assert!(told.contains("a kept the promise in 1 of 2, and at best gave all"), "{told}");
        assert_eq!(summary(vec![low()]), None);
    }

    /// Goal: the JSON has the documented core. Method: a made-up run.
    #[test]
    fn json_has_the_documented_core() {
        let mut got = Got { bytes: 20_000_000, ..Got::default() };
        got.latency.record(1_000_000);
        let measured = Measured {
            seconds: 2.0,
            utilisation: 0.5,
            processor_wait: 0.0,
            promised: 10_000_000,
            samples: vec![],
        };
        let clients = vec![
            ("target".to_string(), Work::Random, got),
            ("reader-1".to_string(), Work::Sequential, Got::default()),
        ];
        let stack = StackOutcome::new("none-none", clients, &measured);
        let json = serde_json::to_value(&stack).expect("it is plain data");
        assert_eq!(json["stack"], "none-none");
        assert_eq!(json["target"]["bytes_per_s"], 10_000_000);
        assert_eq!(json["total"]["bytes_per_s"], 10_000_000);
        assert_eq!(json["promise_kept"], true);
        assert!(stack.verdict(10_000_000).contains("promise kept: 10.0 of 10 MB/s"));
    }
}
