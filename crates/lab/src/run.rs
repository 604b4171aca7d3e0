//! Running a scenario.

use iofair_core::contract::Refusal;
use iofair_core::group::GroupError;
use iofair_core::unit::Sectors;
use iofair_drive::Drive;
use iofair_drive::profile::{self, ProfileError};

use crate::observe::{Nobody, Observer};
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::world;

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No such drive, or its profile is wrong.
    #[error(transparent)]
    Drive(#[from] ProfileError),
    /// The groups do not make a tree.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The drive cannot keep the minimums.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A client names a group that is not there.
    #[error("there is no group \"{0}\"")]
    NoGroup(String),
    /// A client's job cannot be done.
    #[error("client \"{client}\": {what}")]
    Job {
        /// The client.
        client: String,
        /// What is allowed.
        what: &'static str,
    },
    /// The host cannot be.
    #[error("host: {0}")]
    Host(&'static str),
    /// Nobody, or a crowd.
    #[error("{given} processes: a run has at least 1 and at most {most}")]
    Processes {
        /// Processes asked for.
        given: u64,
        /// Most allowed.
        most: u64,
    },
    /// The files are larger than the drive.
    #[error("the clients' files do not fit on a drive of {} MiB", capacity.bytes() >> 20)]
    NoRoom {
        /// The drive.
        capacity: Sectors,
    },
}

/// Runs a scenario on the drive that it names.
pub fn simulate(scenario: &Scenario) -> Result<Outcome, RunError> {
    simulate_with(scenario, &mut Nobody)
}

/// The same, watched.
pub fn simulate_with(
    scenario: &Scenario,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    let drive = profile::load(&scenario.drive, scenario.seed)?;
    simulate_on(scenario, drive, observer)
}

/// The same on a drive that is given.
pub fn simulate_on(
    scenario: &Scenario,
    drive: Box<dyn Drive + Send>,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    let mut world = world::build(scenario, drive, observer)?;
    world.run();
    Ok(world.finish())
}
