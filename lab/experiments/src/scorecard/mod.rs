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
mod score;
mod text;
mod workload;

use crate::distinct;
use iofair_drive::profile::{self, ProfileError};

use crate::experiment::{self, Experiment, Overrides, Results, Runner};

pub use page::page;
pub use score::{Alone, Grade, Kept, Question, Score, Scorecard, Shares};
pub use text::text;

use score::BASE;

/// Stacks that are compared if none is named.
pub const STACKS: [&str; 6] =
    ["none-none", "none-mq-deadline", "prop-bfq", "lat-none", "cost-none", "promise"];
/// Drives on which they are compared if none is named: a SATA SSD, an NVMe SSD, and a disk.
pub const DRIVES: [&str; 3] = ["plextor-px256m5s", "samsung-970-pro", "hitachi-hts727550a9e364"];

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

/// Runs everything. The number of runs is known before with [`runs`].
pub fn scorecard(question: &Question, runner: &Runner<'_>) -> Result<Scorecard, ScorecardError> {
    let drive = Drive::read(question)?;
    let [alone] = run(vec![drive.parse(&workload::alone(), &drive.times, &[BASE])?], runner)?;
    let facts = workload::Facts::from_results(&alone);
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
        question.stacks.len() + usize::from(!question.stacks.iter().any(|stack| stack == BASE));
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
        let stacks = question.stacks.iter().map(String::as_str);
        let names = distinct([BASE].into_iter().chain(stacks));
        let times = workload::Times::new(has_head, question.time);
        Ok(Self { question, has_head, times, names })
    }
    /// The stacks that are told of a contract in these terms.
    fn stacks(&self, terms: workload::Terms) -> Vec<&'a str> {
        let has_terms = |name: &&str| workload::Terms::for_stack(name) == terms;
        self.names.iter().copied().filter(has_terms).collect()
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
