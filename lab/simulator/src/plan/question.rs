//! The question that a plan answers, and errors.

use iofair_config::ConfigError;
use iofair_config::contracts::Contracts;
use iofair_core::time::Nanos;

use super::load::{self, Loads};

/// The question.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The server's contracts.
    pub contracts: &'a Contracts,
    /// Drive profile: a name, or the path of a `.toml` file.
    pub drive: String,
    /// Expected loads of clients.
    pub loads: Loads,
    /// Warm-up of each run; `None`: 1 s on flash, 5 s on disks.
    pub ramp: Option<Nanos>,
    /// Measured time of each run; `None`: 2 s on flash, 20 s on disks.
    pub time: Option<Nanos>,
    /// Seed of the first repeat.
    pub seed: u64,
    /// Runs of each mix, with different seeds.
    pub repeats: u32,
    /// Neighbours of worst mixes; all are [`load::NEIGHBOURS`].
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
