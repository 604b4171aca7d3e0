//! Running a scenario.

use iofair_core::attainable::Unattainable;
use iofair_core::contract::Refusal;
use iofair_core::error::EngineError;
use iofair_core::unit::Sectors;
use iofair_drive::Drive;
use iofair_drive::behind::Behind;
use iofair_drive::paced::Paced;
use iofair_drive::profile::{self, ProfileError};
use iofair_drive::random::Random;
use iofair_drive::stripe::Stripe;

use crate::observe::{Nobody, Observer};
use crate::outcome::Outcome;
use crate::scenario::{Control, Scenario};
use crate::world;

/// Most drives of a stripe: a guard against a slip of the pen.
const STRIPE_MAX: u32 = 64;

/// The stream of random numbers of the path to the drive.
const STREAM_PATH: u64 = 1 << 40;

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No such drive, or its profile is wrong.
    #[error(transparent)]
    Drive(#[from] ProfileError),
    /// The groups do not make a tree.
    #[error(transparent)]
    Group(#[from] EngineError),
    /// The drive cannot keep the minimums.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No scheduler could keep the minimums on this drive.
    #[error("{0}; allowed is {fitting}", fitting = .0.fitting())]
    Unattainable(#[from] Unattainable),
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
    /// Elsewhere something went wrong, or cannot be.
    #[error("{0}")]
    Outside(String),
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

/// The scenario's drive, behind the host's path to it.
///
/// # Errors
///
/// Profiles that do not exist.
pub fn load_drive(scenario: &Scenario) -> Result<Box<dyn Drive + Send>, ProfileError> {
    let drive = profile::load(&scenario.drive, scenario.seed)?;
    Ok(match scenario.host.path {
        Some(path) => {
            let random = Random::new(scenario.seed, STREAM_PATH);
            Box::new(Behind::new(drive, path, random))
        }
        None => drive,
    })
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
    let Some(stripe) = scenario.stripe else {
        let drive = load_drive(scenario)?;
        return simulate_on(scenario, drive, observer);
    };
    let most = STRIPE_MAX;
    if !(1..=most).contains(&stripe.geometry.drives) {
        return Err(RunError::Host("a stripe has 1 to 64 drives"));
    }
    if stripe.geometry.chunk == Sectors::ZERO || !stripe.geometry.chunk.0.is_multiple_of(8) {
        return Err(RunError::Host("chunks of a stripe are multiples of 4KiB"));
    }
    let seed = |drive: u32| scenario.seed.wrapping_add(u64::from(drive) << 32);
    let load = |drive| profile::load(&scenario.drive, seed(drive));
    let drives = (0..stripe.geometry.drives).map(load).collect::<Result<Vec<_>, _>>()?;
    match stripe.control {
        Control::Leaf => run(scenario, drives, observer),
        Control::Logical => {
            run(scenario, vec![Box::new(Stripe::new(stripe.geometry, drives))], observer)
        }
    }
}

/// The same on a drive that is given; a stripe is controlled as a whole then.
pub fn simulate_on(
    scenario: &Scenario,
    drive: Box<dyn Drive + Send>,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    run(scenario, vec![drive], observer)
}

fn run(
    scenario: &Scenario,
    drives: Vec<Box<dyn Drive + Send>>,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    let (mut drives, paces) = (drives, scenario.paces());
    if !paces.is_empty() {
        let paced = |drive| Box::new(Paced::new(drive, &paces)) as Box<dyn Drive + Send>;
        drives = drives.into_iter().map(paced).collect();
    }
    let mut world = world::build(scenario, drives, observer)?;
    world.run();
    Ok(world.finish())
}
