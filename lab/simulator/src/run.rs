//! Running a scenario.

use iofair_core::unit::Sectors;
use iofair_drive::Drive;
use iofair_drive::behind::Behind;
use iofair_drive::paced::Paced;
use iofair_drive::profile::{self, ProfileError};
use iofair_drive::random::Random;
use iofair_drive::stripe::Stripe;

use crate::error::RunError;
use crate::observe::{Nobody, Observer};
use crate::outcome::Outcome;
use crate::scenario::{Control, Scenario};
use crate::world::build::build;

/// Most drives of a stripe: a guard against a slip of the pen.
const STRIPE_MAX: u32 = 64;

/// The stream of random numbers of the path to the drive.
const STREAM_PATH: u64 = 1 << 40;

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
    let mut world = build(scenario, drives, observer)?;
    world.run();
    Ok(world.finish())
}
