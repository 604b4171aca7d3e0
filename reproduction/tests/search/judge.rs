//! Runs a case under a stack, and under others, and says what is wrong.

use std::fmt;

use iofair_experiments::experiment::{self, Overrides};
use iofair_simulator::RunError;
use iofair_simulator::outcome::{ClientOutcome, Outcome};

use crate::draw::{Case, Client};
use crate::keep;

/// A promise counts as kept with this much of it, in hundredths: all of the time measured, and each second.
pub(crate) const KEPT: u64 = 97;
pub(crate) const KEPT_SECOND: u64 = 90;
/// A client without a minimum starves below this part of its share of what promises leave, in hundredths.
pub(crate) const STARVED: u64 = 25;
/// Another stack beats `promise` by more than this, in hundredths of its total.
pub(crate) const BEATEN: u64 = 108;
/// Stacks that share fairly or keep promises, after the one without control.
const OTHERS: &[&str] = &["none-none", "prop-bfq", "low+prop-bfq", "complete"];

/// The stacks that a case is compared with: all of them, or, to be quick, no control and one of the others.
fn others(case: &Case, quick: bool) -> impl Iterator<Item = &'static str> {
    let one = 1 + case.seed as usize % (OTHERS.len() - 1);
    let chosen = move |index: usize| !quick || index == 0 || index == one;
    OTHERS.iter().enumerate().filter(move |(index, _)| chosen(*index)).map(|(_, stack)| *stack)
}

/// What can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Broken,
    Second,
    Starved,
    Beaten,
}

impl Kind {
    /// Its name in reproduction/evidence/search.csv.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Second => "second",
            Self::Starved => "starved",
            Self::Beaten => "beaten",
        }
    }
}

/// What is wrong.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    /// Promised and got, bytes a second.
    Broken { client: String, promised: u64, got: u64 },
    /// The same in the worst second.
    Second { client: String, promised: u64, got: u64 },
    /// What its share would give and what it got.
    Starved { client: String, share: u64, got: u64 },
    /// A stack that keeps all promises and starves nobody has a larger total.
    Beaten { stack: String, total: u64, ours: u64 },
}

impl Finding {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Broken { .. } => Kind::Broken,
            Self::Second { .. } => Kind::Second,
            Self::Starved { .. } => Kind::Starved,
            Self::Beaten { .. } => Kind::Beaten,
        }
    }
    /// The client or the stack, what was expected, and what it got, bytes a second.
    pub(crate) fn row(&self) -> (&str, u64, u64) {
        match self {
            Self::Broken { client, promised, got } | Self::Second { client, promised, got } => {
                (client, *promised, *got)
            }
            Self::Starved { client, share, got } => (client, *share, *got),
            Self::Beaten { stack, total, ours } => (stack, *total, *ours),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |rate: &u64| *rate as f64 / 1e6;
        match self {
            Self::Broken { client, promised, got } => {
                write!(f, "broken: {client} {:.2} of {:.2} MB/s", mb(got), mb(promised))
            }
            Self::Second { client, promised, got } => {
                write!(f, "second: {client} {:.2} of {:.2} MB/s", mb(got), mb(promised))
            }
            Self::Starved { client, share, got } => {
                write!(f, "starved: {client} {:.3} of {:.3} MB/s", mb(got), mb(share))
            }
            Self::Beaten { stack, total, ours } => {
                write!(f, "beaten: {stack} {:.1}, promise {:.1} MB/s", mb(total), mb(ours))
            }
        }
    }
}

/// A case as an experiment, and what was found.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) seed: u64,
    /// The kind of drive.
    pub(crate) on: &'static str,
    pub(crate) drive: String,
    pub(crate) text: String,
    pub(crate) findings: Vec<Finding>,
}

fn run(text: &str, stack: &str) -> Outcome {
    try_run(text, stack).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Stacks with admission control refuse some of the cases.
fn try_run(text: &str, stack: &str) -> Result<Outcome, RunError> {
    let overrides = Overrides { stacks: Some(vec![stack.to_owned()]), ..Overrides::default() };
    let experiment = experiment::parse("case.toml", text, &overrides)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    iofair_simulator::simulate(&experiment.scenario(0, 0, 0))
}

fn a_second(bytes: u64, outcome: &Outcome) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(outcome.time.0)) as u64
}
/// What the drive carried; clients count what they write to the page cache as well.
fn total(outcome: &Outcome) -> u64 {
    a_second(outcome.drive.read_bytes + outcome.drive.written_bytes, outcome)
}

/// What all clients get, each in thousandths of what it reaches alone: bytes alone would favour long requests.
fn progress(case: &Case, alone: &[u64], outcome: &Outcome) -> u64 {
    let counts = case.clients.iter().zip(alone);
    let each = counts.flat_map(|(client, alone)| vec![(*alone).max(1); client.count as usize]);
    let parts = each.zip(&outcome.clients);
    parts.map(|(alone, client)| a_second(client.bytes, outcome) * 1000 / alone).sum()
}

/// What each client reaches alone, and the minimums, bytes a second.
fn measure(case: &Case) -> (Vec<u64>, Vec<u64>) {
    let alone: Vec<u64> = case
        .clients
        .iter()
        .map(|client| {
            let outcome = run(&case.alone(client), "none-none");
            // What a client writes to the page cache is not yet on the drive.
            let drive = outcome.drive.read_bytes + outcome.drive.written_bytes;
            a_second(outcome.clients[0].bytes.min(drive), &outcome)
        })
        .collect();
    let parts = case.parts.iter();
    let minimums = alone.iter().zip(parts).map(|(alone, part)| (alone * part / 1000).max(1));
    let minimums = minimums.collect();
    (alone, minimums)
}

/// The minimums that are kept, but not if readers have latency contracts.
pub(crate) fn broken_by_latencies(case: &Case) -> Vec<Finding> {
    let (alone, minimums) = measure(case);
    let broken = |case: &Case| {
        let text = case.experiment(&["promise"], "", &minimums);
        let mut findings = faults(case, &alone, &minimums, &run(&text, "promise"));
        findings.retain(|finding| finding.kind() == Kind::Broken);
        findings
    };
    let hasty = case.with_latencies();
    if broken(case).is_empty() { broken(&hasty) } else { Vec::new() }
}

/// Runs a case under `stack`, and under others to compare: all of them, or two if it is to be `quick`.
pub(crate) fn judge(case: &Case, stack: &str, quick: bool) -> Verdict {
    let (alone, minimums) = measure(case);
    let text = case.experiment(&[stack], "", &minimums);
    let ours = run(&text, stack);
    let mut findings = faults(case, &alone, &minimums, &ours);
    if findings.is_empty() {
        for stack in others(case, quick) {
            let Ok(theirs) = try_run(&text, stack) else { continue };
            let better = total(&theirs) * 100 > total(&ours) * BEATEN
                && progress(case, &alone, &theirs) * 100 > progress(case, &alone, &ours) * BEATEN;
            if better && faults(case, &alone, &minimums, &theirs).is_empty() {
                let (total, ours) = (total(&theirs), total(&ours));
                findings.push(Finding::Beaten { stack: stack.to_owned(), total, ours });
            }
        }
    }
    let text = keep::experiment(case, &minimums, &findings);
    Verdict { seed: case.seed, on: case.drive_kind(), drive: case.drive.clone(), text, findings }
}

fn faults(case: &Case, alone: &[u64], minimums: &[u64], outcome: &Outcome) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut processes = outcome.clients.iter();
    let weights: u64 = case.clients.iter().map(|client| client.weight * client.count).sum();
    // On a disk a share of less than a second of the run is a turn or none.
    let left = 1000 - case.parts.iter().sum::<u64>();
    for (index, client) in case.clients.iter().enumerate() {
        let before = findings.len();
        for _ in 0..client.count {
            let process = processes.next().expect("an outcome for each process");
            let got = a_second(process.bytes, outcome);
            let name = process.name.clone();
            if client.promised {
                let promised = minimums[index];
                // The measured time may end just before a request.
                let request = a_second(client.unit, outcome);
                if (got + request) * 100 < promised * KEPT {
                    findings.push(Finding::Broken { client: name, promised, got });
                } else if let Some(got) = worst_second(process)
                    && got + 2 * client.unit < promised * KEPT_SECOND / 100
                {
                    findings.push(Finding::Second { client: name, promised, got });
                }
            } else {
                let share = alone[index] * left / 1000 * client.weight / weights;
                let turns = !case.disk || left * client.weight * 20 / weights > 1000;
                if got * 100 < share * STARVED && !is_small(client, share) && turns {
                    findings.push(Finding::Starved { client: name, share, got });
                }
            }
        }
        // Equal processes: the first one speaks for all.
        findings.truncate(before + 1);
    }
    findings
}

/// Too little to be measured in this time: a few calls a second.
fn is_small(client: &Client, share: u64) -> bool {
    share < 4 * client.block
}

/// The fewest bytes in one of the intervals, which are seconds.
fn worst_second(process: &ClientOutcome) -> Option<u64> {
    process.series.iter().map(|interval| interval.bytes).min()
}
