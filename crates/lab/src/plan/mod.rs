//! Planning: do the promises of a contract file fit a drive, which breaks first, and how many drives do the same clients need?
//!
//! Every answer comes from runs of the simulator. A promise is judged as the server judges it
//! ([`iofair_core::stats::minimum`]), in a finite set of mixes ([`load::NEIGHBOURS`]). The format of load files and the method
//! are described in `docs/plan.md`. Called by `iofair plan`.

mod bench;
mod drives;
mod edge;
mod fit;
pub mod load;
mod meter;
mod mix;
mod page;
mod picture;
mod set;
mod text;

use iofair_config::ConfigError;
use iofair_config::contracts::Contracts;
use iofair_core::time::Nanos;
use serde::Serialize;

pub use bench::Runner;
pub use drives::Approach;
pub use edge::Edge;
pub use fit::{Row, Verdict};
pub use load::{Load, Loads};
pub use mix::Breach;
pub use page::page;
pub use picture::picture;
pub use text::text;

use bench::Bench;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The server's contracts.
    pub contracts: &'a Contracts,
    /// Drive profile: a name, or the path of a `.toml` file.
    pub drive: String,
    /// What clients are expected to do.
    pub loads: Loads,
    /// Warm-up of each run; `None`: 1 s on flash, 5 s on disks.
    pub ramp: Option<Nanos>,
    /// Measured time of each run; `None`: 2 s on flash, 20 s on disks.
    pub time: Option<Nanos>,
    /// Seed of the first repeat.
    pub seed: u64,
    /// Runs of each mix, with different seeds.
    pub repeats: u32,
    /// What neighbours are tried in worst mixes; all are [`load::NEIGHBOURS`].
    pub neighbours: Vec<load::Neighbours>,
    /// Also find out how many drives the clients need?
    pub drives: bool,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The drive's profile is wrong.
    #[error(transparent)]
    Drive(#[from] iofair_drive::profile::ProfileError),
    /// The question cannot be answered.
    #[error("{0}")]
    Refused(String),
    /// A run failed.
    #[error("{0}")]
    Run(String),
    /// The caller ended it.
    #[error("interrupted after {0} runs")]
    Interrupted(usize),
}

/// What admission, the server's own check, says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Admission {
    /// Are the contracts admitted?
    pub admitted: bool,
    /// Why not, and what would be.
    pub refusal: Option<String>,
}

/// The answers.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Drive profile.
    pub drive: String,
    /// The stack of the contracts.
    pub stack: String,
    /// Warm-up of each run, in nanoseconds.
    pub ramp_ns: u64,
    /// Measured time of each run, in nanoseconds.
    pub time_ns: u64,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Runs that were made.
    pub runs: usize,
    /// What the others did, one mix each.
    pub neighbours: Vec<load::Neighbours>,
    /// What admission says of the contracts on this drive.
    pub admission: Admission,
    /// Groups with clients or promises, parents first.
    pub rows: Vec<Row>,
    /// Is every promise kept in every worst mix?
    pub worst_mix: Verdict,
    /// Is every promise kept in the expected mix?
    pub expected_mix: Verdict,
    /// Which promise breaks first; `None` if there is no promise.
    pub edge: Option<Edge>,
    /// How many drives the clients need.
    pub approaches: Vec<Approach>,
}

impl Plan {
    /// Is every promise kept in every mix?
    pub fn fits(&self) -> bool {
        self.worst_mix.is_kept() && self.expected_mix.is_kept()
    }
}

/// Answers a question.
///
/// # Errors
///
/// Files that are wrong, drives that do not exist, runs that cannot be made, and an interruption.
pub fn plan(question: &Question<'_>, runner: &Runner<'_>) -> Result<Plan, PlanError> {
    let bench = Bench::new(question, runner)?;
    let alone = mix::Alone::measure(&bench)?;
    let set = set::Set::new(question, &bench, &alone)?;
    let admission = set.admission.clone();
    let mixes = mix::mixes(&set, &alone);
    let fit = fit::fit(&set, &bench, &mixes)?;
    let edge = edge::edge(&set, &bench, &mixes)?;
    let approaches = match question.drives {
        true => drives::approaches(&set, &bench, &alone)?,
        false => Vec::new(),
    };
    Ok(Plan {
        drive: question.drive.clone(),
        stack: set.stack.name().to_owned(),
        ramp_ns: bench.ramp.0,
        time_ns: bench.time.0,
        seeds: bench.seeds().collect(),
        runs: bench.runs(),
        neighbours: question.neighbours.clone(),
        admission,
        rows: fit.rows,
        worst_mix: fit.worst,
        expected_mix: fit.expected,
        edge,
        approaches,
    })
}
