//! Runs a case under a stack, and under others, and says what is wrong.

use iofair_experiments::experiment::{self, Overrides};
use iofair_simulator::RunError;
use iofair_simulator::outcome::{ClientOutcome, Outcome};

use super::draw::{Case, Client};
use super::finding::{BEATEN, Finding, KEPT, KEPT_SECOND, Kind, SLICED, STARVED};
use super::keep;

/// Stacks that share fairly or keep promises, after the one without control.
const OTHERS: &[&str] = &["none-none", "prop-bfq", "low+prop-bfq", "complete"];

/// The stacks that a case is compared with: all of them, or, to be quick, no control and one of the others.
fn others(case: &Case, quick: bool) -> impl Iterator<Item = &'static str> {
    let one = 1 + case.seed as usize % (OTHERS.len() - 1);
    let chosen = move |index: usize| !quick || index == 0 || index == one;
    OTHERS.iter().enumerate().filter(move |(index, _)| chosen(*index)).map(|(_, stack)| *stack)
}

/// How cases are judged.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The stack that is judged.
    pub stack: &'a str,
    /// Beside two other stacks, not all of them.
    pub quick: bool,
    /// Whether all together must have what time slicing leaves.
    pub slicing: bool,
    /// Whether readers without a minimum have latency contracts.
    pub latencies: bool,
}

/// A case as an experiment, and what was found.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Its seed.
    pub seed: u64,
    /// The kind of drive.
    pub on: &'static str,
    /// The drive.
    pub drive: String,
    /// The experiment.
    pub text: String,
    /// What was found.
    pub findings: Vec<Finding>,
    /// Bytes a second of the drive.
    pub total: u64,
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
pub fn broken_by_latencies(case: &Case) -> Vec<Finding> {
    let (alone, minimums) = measure(case);
    let broken = |case: &Case| {
        let text = case.experiment(&["promise"], "", &minimums);
        let mut findings = faults(case, &alone, &minimums, &run(&text, "promise"));
        findings.retain(|finding| finding.kind == Kind::Broken);
        findings
    };
    let hasty = case.with_latencies();
    if broken(case).is_empty() { broken(&hasty) } else { Vec::new() }
}

/// Runs a case under a stack, and under others to compare: all of them, or two if it is to be quick.
pub(super) fn judge(case: &Case, question: &Question<'_>) -> Verdict {
    let (alone, minimums) = measure(case);
    let text = case.experiment(&[question.stack], "", &minimums);
    let ours = run(&text, question.stack);
    let mut findings = faults(case, &alone, &minimums, &ours);
    if question.slicing {
        findings.extend(less_than_slices(case, &alone, &minimums, [&run(&text, OTHERS[0]), &ours]));
    }
    if findings.is_empty() {
        for stack in others(case, question.quick) {
            let Ok(theirs) = try_run(&text, stack) else { continue };
            let better = total(&theirs) * 100 > total(&ours) * BEATEN
                && progress(case, &alone, &theirs) * 100 > progress(case, &alone, &ours) * BEATEN;
            if better && faults(case, &alone, &minimums, &theirs).is_empty() {
                let (of, expected, got) = (stack.to_owned(), total(&theirs), total(&ours));
                findings.push(Finding { kind: Kind::Beaten, of, expected, got });
            }
        }
    }
    let text = keep::experiment(case, &minimums, &findings);
    let (on, drive, total) = (case.drive_kind(), case.drive.clone(), total(&ours));
    Verdict { seed: case.seed, on, drive, text, findings, total }
}

/// Slices of time for the minimums, each as long as its client needs alone, leave no control the rest of the time. Both in bytes and
/// in what each client reaches alone, or a stack that serves short requests would count as slow.
fn less_than_slices(
    case: &Case,
    alone: &[u64],
    minimums: &[u64],
    [none, ours]: [&Outcome; 2],
) -> Option<Finding> {
    let slices: u64 = case.parts.iter().sum();
    let left = |whole: u64| whole * (1000 - slices) / 1000;
    let sliced = left(total(none)) + minimums.iter().sum::<u64>();
    let of_progress = left(progress(case, alone, none)) + slices;
    let is_less = total(ours) * 100 < sliced * SLICED
        && progress(case, alone, ours) * 100 < of_progress * SLICED;
    let of = "all".to_owned();
    is_less.then(|| Finding { kind: Kind::Sliced, of, expected: sliced, got: total(ours) })
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
            let of = process.name.clone();
            if client.promised {
                let promised = minimums[index];
                // The measured time may end just before a request.
                let request = a_second(client.unit, outcome);
                if (got + request) * 100 < promised * KEPT {
                    findings.push(Finding { kind: Kind::Broken, of, expected: promised, got });
                } else if let Some(got) = worst_second(process)
                    && got + 2 * client.unit < promised * KEPT_SECOND / 100
                {
                    findings.push(Finding { kind: Kind::Second, of, expected: promised, got });
                }
            } else {
                let share = alone[index] * left / 1000 * client.weight / weights;
                let turns = !case.disk || left * client.weight * 20 / weights > 1000;
                if got * 100 < share * STARVED && !is_small(client, share) && turns {
                    findings.push(Finding { kind: Kind::Starved, of, expected: share, got });
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
