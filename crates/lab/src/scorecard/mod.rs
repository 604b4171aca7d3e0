//! A scorecard of policy stacks on a drive: the four questions of isolation, as isol-bench asks them (IISWC 2025), scaled
//! to what the drive can do.
//!
//! ```text
//! overhead   what an idle mechanism costs one reader, and sixteen of them
//! fairness   shares of equal and of weighted groups, of small and large requests, of readers and writers
//! minimum    a reader with a minimum of a third of what it has alone, beside four kinds of neighbours
//! bursts     how long such a reader waits for its rate when it comes back
//! ```
//!
//! Every stack is told of the preferred reader in its own terms: a minimum and a weight, or a latency target, or a low
//! limit. io.cost gets a model of the drive from four runs on it.

mod card;
mod page;
mod text;
mod workload;

use iofair_core::time::Nanos;
use iofair_drive::profile::{self, ProfileError};
use serde::Serialize;

use crate::experiment::{self, Experiment, Overrides, Results, Runner};

pub use card::{Grade, Kept, Score, Shares};
pub use page::page;
pub use text::text;

/// Stacks that are compared if none is named.
pub const STACKS: [&str; 6] =
    ["none-none", "none-mq-deadline", "prop-bfq", "lat-none", "cost-none", "promise"];
/// Drives on which they are compared if none is named: a SATA SSD, an NVMe SSD, and a disk.
pub const DRIVES: [&str; 3] = ["plextor-px256m5s", "samsung-970-pro", "hitachi-hts727550a9e364"];
/// What all others are compared with.
const BASE: &str = "none-none";

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Names of stacks.
    pub stacks: Vec<String>,
    /// Name or path of a drive profile.
    pub drive: String,
    /// Another measured time of each run.
    pub time: Option<Nanos>,
    /// Seed of the first repeat.
    pub seed: u64,
    /// Runs of each mix, with different seeds.
    pub repeats: u32,
}

/// Why there is no scorecard.
#[derive(Debug, thiserror::Error)]
pub enum ScorecardError {
    /// There is no such drive, or its file is wrong.
    #[error(transparent)]
    Drive(#[from] ProfileError),
    /// There is no such stack, or it cannot be told of a contract.
    #[error("{0}")]
    Stack(String),
    /// A run failed or was interrupted.
    #[error("{0}")]
    Run(String),
}

/// What the drive gives without control, in bytes a second and nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Alone {
    /// A reader of 4 KiB at random, one request at a time.
    pub reader_bytes_per_s: f64,
    /// Mean latency of that reader.
    pub reader_mean_ns: f64,
    /// 99th percentile of its latency.
    pub reader_p99_ns: f64,
}

/// All scores of one drive.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Scorecard {
    /// The drive.
    pub drive: String,
    /// Whether it has a head that moves.
    pub has_head: bool,
    /// What the preferred reader has alone.
    pub alone: Alone,
    /// Its minimum in bytes a second.
    pub minimum_bytes_per_s: u64,
    /// Its latency target in nanoseconds, for stacks that know only latencies.
    pub latency_ns: u64,
    /// Measured time of a run in seconds, and the number of runs of each mix.
    pub seconds: f64,
    /// See above.
    pub repeats: u32,
    /// A score for each stack.
    pub scores: Vec<Score>,
}

/// Runs everything. The number of runs is known before with [`runs`].
pub fn scorecard(question: &Question, runner: &Runner<'_>) -> Result<Scorecard, ScorecardError> {
    let drive = Drive::read(question)?;
    let [alone] = run(vec![drive.parse(&workload::alone(), &drive.times, &[BASE])?], runner)?;
    let facts = workload::Facts::of(&alone);
    let mut experiments = Vec::new();
    for terms in workload::Terms::ALL {
        let stacks: Vec<&str> = drive.stacks(terms);
        if !stacks.is_empty() {
            for (text, times) in workload::questions(&facts, terms, &drive.times) {
                experiments.push(drive.parse(&text, &times, &stacks)?);
            }
        }
    }
    let results = experiment::run(experiments, runner).map_err(ScorecardError::Run)?;
    Ok(card::scorecard(question, &facts, drive.has_head, &results))
}

/// How many runs a question takes: those that measure the drive, and those that compare.
pub fn runs(question: &Question) -> usize {
    let compared =
        question.stacks.len() + usize::from(!question.stacks.iter().any(|it| it == BASE));
    (workload::ALONE + workload::MIXES * compared) * question.repeats.max(1) as usize
}

/// One experiment at a time has one result.
fn run<const N: usize>(
    experiments: Vec<Experiment>,
    runner: &Runner<'_>,
) -> Result<[Results; N], ScorecardError> {
    let results = experiment::run(experiments, runner).map_err(ScorecardError::Run)?;
    results.try_into().map_err(|_| ScorecardError::Run("an experiment has no result".into()))
}

/// The drive, and how long runs on it are.
struct Drive<'a> {
    question: &'a Question,
    has_head: bool,
    times: workload::Times,
    /// With [`BASE`], each once.
    names: Vec<&'a str>,
}

impl<'a> Drive<'a> {
    fn read(question: &'a Question) -> Result<Self, ScorecardError> {
        let has_head = profile::read(&question.drive)?.reaches().has_head();
        let mut names = vec![BASE];
        for name in &question.stacks {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let times = workload::Times::new(has_head, question.time);
        Ok(Self { question, has_head, times, names })
    }
    /// The stacks that are told of a contract in these terms.
    fn stacks(&self, terms: workload::Terms) -> Vec<&'a str> {
        self.names.iter().copied().filter(|name| workload::Terms::of(name) == terms).collect()
    }
    fn parse(
        &self,
        text: &str,
        times: &workload::Times,
        stacks: &[&str],
    ) -> Result<Experiment, ScorecardError> {
        let Question { drive, seed, repeats, .. } = self.question;
        let head = workload::head(drive, times, stacks);
        let overrides =
            Overrides { seed: Some(*seed), repeats: Some(*repeats), ..Overrides::default() };
        experiment::parse("compare.toml", &(head + text), &overrides)
            .map_err(|error| ScorecardError::Stack(error.to_string()))
    }
}
