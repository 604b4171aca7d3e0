//! The mixes, as texts of experiments. Their numbers follow what the drive gives alone.

use core::fmt::Write;

use iofair_core::time::Nanos;
use iofair_simulator::outcome::Outcome;

use crate::experiment::Results;

use super::score::Alone;

/// Runs that measure the drive, and mixes that each stack runs.
pub(super) const ALONE: usize = 10;
pub(super) const MIXES: usize = 2 + 4 + 4 + 3;

/// The preferred reader's weight; all others have 100.
const WEIGHT: u32 = 1000;
/// A latency target is this many times the reader's mean latency alone.
const LATENCY: f64 = 2.0;
/// A reader that comes back does so after this many warm-ups.
const BACK: u64 = 2;

/// Terms in which a stack is given the promise to the preferred reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Terms {
    /// A minimum and a weight.
    Minimum,
    /// A latency target.
    Latency,
    /// A low limit.
    Low,
}

impl Terms {
    pub(super) const ALL: [Self; 3] = [Self::Minimum, Self::Latency, Self::Low];

    /// Terms of a stack, by the throttles in its name.
    pub(super) fn for_stack(stack: &str) -> Self {
        let has_throttle = |name| stack.split(['+', '-']).any(|part| part == name);
        match (has_throttle("lat"), has_throttle("low")) {
            (true, _) => Self::Latency,
            (_, true) => Self::Low,
            _ => Self::Minimum,
        }
    }
    /// The keys of the preferred client.
    fn keys(self, facts: &Facts) -> String {
        match self {
            Self::Minimum => format!("min = \"{}B/s\"\nweight = {WEIGHT}", facts.minimum()),
            Self::Latency => format!("latency = \"{}ns\"", facts.latency()),
            Self::Low => format!("low = \"{}B/s\"", facts.minimum()),
        }
    }
}

/// How long runs are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    ramp: Nanos,
    pub(super) time: Nanos,
    /// Of the series of a client.
    pub(super) interval: Nanos,
}

impl Times {
    pub(super) fn new(has_head: bool, time: Option<Nanos>) -> Self {
        let millis = Nanos::from_millis;
        let (ramp, usual, interval) = match has_head {
            true => (millis(3_000), millis(10_000), millis(200)),
            false => (millis(500), millis(1_000), millis(5)),
        };
        Self { ramp, time: time.unwrap_or(usual), interval }
    }
    /// When a reader comes back, after the start and after the warm-up.
    pub(super) fn back(&self) -> (Nanos, Nanos) {
        (self.ramp * BACK, self.ramp * (BACK - 1))
    }
    /// Measured time of runs in which a reader comes back.
    fn bursts(&self) -> Self {
        Self { time: self.back().1 + self.time, ..*self }
    }
}

/// What the drive gives without control.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) alone: Alone,
    /// Rates of four clients of each kind in [`FAIRNESS`] together: random reads of 16 KiB and 128 KiB, writes of 64 KiB.
    pub(super) kinds: [f64; 3],
    /// io.cost's model: bytes a second, sequential and random requests a second, for reads and for writes.
    model: [f64; 6],
}

impl Facts {
    pub(super) fn from_results(alone: &Results) -> Self {
        let rate = |variant: usize| mean(alone.repeats(variant, 0), &total);
        let latency = |of: &dyn Fn(&Outcome) -> f64| mean(alone.repeats(0, 0), of);
        let requests = |variant| rate(variant) / 4096.0;
        Self {
            alone: Alone {
                reader_bytes_per_s: rate(0),
                reader_mean_ns: latency(&|run| run.clients[0].latency.mean() as f64),
                reader_p99_ns: latency(&|run| run.clients[0].latency.quantile(990_000) as f64),
            },
            kinds: [rate(1), rate(2), rate(3)],
            model: [rate(4), requests(5), requests(9), rate(6), requests(7), requests(8)],
        }
    }
    /// Bytes a second: a third of what the reader has alone.
    pub(super) fn minimum(&self) -> u64 {
        (self.alone.reader_bytes_per_s / 3.0) as u64
    }
    pub(super) fn latency(&self) -> u64 {
        (self.alone.reader_mean_ns * LATENCY) as u64
    }
}

/// Bytes a second of all clients.
pub(super) fn total(outcome: &Outcome) -> f64 {
    let bytes: u64 = outcome.clients.iter().map(|client| client.bytes).sum();
    bytes as f64 / seconds(outcome.time)
}

/// The mean over the repeats.
pub(super) fn mean(outcomes: &[Outcome], of: &dyn Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(of).sum::<f64>() / outcomes.len().max(1) as f64
}

/// The measured time in seconds.
pub(super) fn seconds(time: Nanos) -> f64 {
    time.0.max(1) as f64 / 1e9
}

/// What all experiments begin with.
pub(super) fn head(drive: &str, times: &Times, stacks: &[&str]) -> String {
    let quoted: Vec<String> = stacks.iter().map(|stack| format!("{stack:?}")).collect();
    format!(
        "title = \"a scorecard\"\nsource = \"iofair-lab compare\"\nbasis = \"own\"\ndrive = {drive:?}\n\
         time = \"{}ns\"\nramp = \"{}ns\"\ninterval = \"{}ns\"\nstacks = [{}]\n",
        times.time.0,
        times.ramp.0,
        times.interval.0,
        quoted.join(", ")
    )
}

/// Kinds of clients alone; the numbers of [`Facts`] are in this order.
pub(super) fn alone() -> String {
    let mut text = client("client", "randread", "4KiB", 1);
    let model = [("read", "256KiB", 8), ("read", "4KiB", 32), ("write", "256KiB", 8)];
    let last = [("write", "4KiB", 32), ("randwrite", "4KiB", 32), ("randread", "4KiB", 128)];
    text.push_str("[[variant]]\nname = \"0\"\n");
    for (index, (job, block, depth)) in KINDS.into_iter().chain(model).chain(last).enumerate() {
        let _ = writeln!(
            text,
            "[[variant]]\nname = \"{}\"\nclient.client = {{ job = \"{job}\", block = \"{block}\", depth = {depth}, count = {} }}",
            index + 1,
            if index < KINDS.len() { 4 } else { 1 }
        );
    }
    text
}

/// The four questions, in the order of [`super::card::scorecard`], with the times of their runs.
pub(super) fn questions(facts: &Facts, terms: Terms, times: &Times) -> [(String, Times); 4] {
    let policies = policies(facts);
    [
        (overhead(), *times),
        (fairness(), *times),
        (minimum(facts, terms), *times),
        (bursts(facts, terms, times), times.bursts()),
    ]
    .map(|(text, times)| (policies.clone() + &text, times))
}

/// Parameters that a careful operator would set.
fn policies(facts: &Facts) -> String {
    let [rbps, rseqiops, rrandiops, wbps, wseqiops, wrandiops] =
        facts.model.map(|number| (number as u64).max(1));
    format!(
        "[policy.bfq]\nlow_latency = false\n[policy.io-cost]\nrbps = \"{rbps}B/s\"\nrseqiops = {rseqiops}\n\
         rrandiops = {rrandiops}\nwbps = \"{wbps}B/s\"\nwseqiops = {wseqiops}\nwrandiops = {wrandiops}\nrpct = 95\n\
         rlat = \"{}ns\"\nmin = 25\nmax = 150\n",
        facts.latency()
    )
}

fn client(name: &str, job: &str, block: &str, depth: u32) -> String {
    format!(
        "[[client]]\nname = \"{name}\"\njob = \"{job}\"\nblock = \"{block}\"\ndepth = {depth}\nbuffered = false\n"
    )
}

/// One reader and sixteen of them, beside groups that do nothing.
fn overhead() -> String {
    let mut text = client("target", "randread", "4KiB", 1);
    text.push_str(&client("idle", "randread", "4KiB", 1));
    text.push_str(
        "count = 32\ninactive = true\n[[variant]]\nname = \"one reader\"\n[[variant]]\nname = \"16 readers\"\n\
         client.target.count = 16\n",
    );
    text
}

/// Names of the mixes of shares, and for each of four clients the kind and the weight.
pub(super) const FAIRNESS: [(&str, [(usize, u32); 4]); 4] = [
    ("equal weights", [(0, 100), (0, 100), (0, 100), (0, 100)]),
    ("weights 1 to 4", [(0, 100), (0, 200), (0, 300), (0, 400)]),
    ("16 KiB and 128 KiB", [(0, 100), (0, 100), (1, 100), (1, 100)]),
    ("reads and writes", [(1, 100), (1, 100), (2, 100), (2, 100)]),
];
/// Job, block and depth of each kind: enough that four of them have to share the drive, also where a process can send 100,000 requests a
/// second at most.
const KINDS: [(&str, &str, u32); 3] =
    [("randread", "16KiB", 64), ("randread", "128KiB", 16), ("randwrite", "64KiB", 32)];

fn fairness() -> String {
    let mut text: String =
        (0..4).map(|number| client(&number.to_string(), "randread", "4KiB", 32)).collect();
    for (name, clients) in FAIRNESS {
        let _ = writeln!(text, "[[variant]]\nname = \"{name}\"");
        for (index, (kind, weight)) in clients.into_iter().enumerate() {
            let (job, block, depth) = KINDS[kind];
            let _ = writeln!(
                text,
                "client.{index} = {{ job = \"{job}\", block = \"{block}\", depth = {depth}, weight = {weight} }}"
            );
        }
    }
    text
}

/// Neighbours of a reader with a minimum: name and keys of each of four.
pub(super) const NEIGHBOURS: [(&str, &str); 4] = [
    ("random readers", "job = \"randread\", block = \"4KiB\", depth = 32"),
    ("sequential readers", "job = \"read\", block = \"256KiB\", depth = 4"),
    ("random writers", "job = \"randwrite\", block = \"64KiB\", depth = 8"),
    ("writers that flush", "job = \"randwrite\", block = \"16KiB\", depth = 1, fdatasync = 1"),
];

fn minimum(facts: &Facts, terms: Terms) -> String {
    preferred(facts, terms, "", &NEIGHBOURS)
}

fn bursts(facts: &Facts, terms: Terms, times: &Times) -> String {
    let start = format!("start = \"{}ns\"\n", times.back().0.0);
    preferred(facts, terms, &start, &NEIGHBOURS[..3])
}

fn preferred(facts: &Facts, terms: Terms, keys: &str, neighbours: &[(&str, &str)]) -> String {
    let mut text = client("target", "randread", "4KiB", 1);
    let _ = writeln!(text, "{}\n{keys}", terms.keys(facts));
    text.push_str(&client("other", "randread", "4KiB", 32));
    text.push_str("count = 4\n");
    for (name, keys) in neighbours {
        let _ = writeln!(text, "[[variant]]\nname = \"{name}\"\nclient.other = {{ {keys} }}");
    }
    text
}
