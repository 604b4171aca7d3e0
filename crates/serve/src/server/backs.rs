//! Creates the back end that the contracts name.

use iofair_config::contracts::{Back as BackSpec, Contracts};

use crate::back::emulated::Emulated;
use crate::back::faulty::Faulty;
use crate::back::memory::Memory;
use crate::back::uring::Uring;
use crate::back::{Back, store::Store};
use crate::error::ServeError;
use crate::places::Places;

/// Seed of an emulated drive's random streams: two runs of a server meet the same drive.
const DRIVE_SEED: u64 = 1;

/// The back end, with faults in front of it if they are asked for.
pub(super) fn open_back(
    contracts: &Contracts,
    places: &mut Places,
) -> Result<Box<dyn Back>, ServeError> {
    let back = open_sound_back(contracts, places)?;
    Ok(if contracts.drive.faulty { Box::new(Faulty::new(back)) } else { back })
}

fn open_sound_back(
    contracts: &Contracts,
    places: &mut Places,
) -> Result<Box<dyn Back>, ServeError> {
    match &contracts.drive.back {
        BackSpec::Memory(size) => {
            let memory = Memory::new((*size).max(places.end()));
            Ok(Box::new(memory.map_err(ServeError::system(format!("{size} bytes of memory")))?))
        }
        BackSpec::File(_) => {
            let pool = places.pool().expect("a file or device holds a pool");
            Ok(Box::new(Uring::shared(pool.storage(), contracts.drive.rotational)))
        }
        BackSpec::Directory(path) => {
            let here = places.directory().expect("it was opened");
            let back = Uring::directory(here, contracts.drive.rotational);
            Ok(Box::new(back.map_err(ServeError::system(path.display().to_string()))?))
        }
        BackSpec::Emulated(name) => open_emulated(contracts, name, places),
    }
}

/// `PROFILE[:variant]`, over memory, or over a sparse file with `@PATH` behind it.
fn open_emulated(
    contracts: &Contracts,
    written: &str,
    places: &Places,
) -> Result<Box<dyn Back>, ServeError> {
    let (name, place) = written.split_once('@').unwrap_or((written, "memory"));
    let drive = iofair_drive::profile::load(name, DRIVE_SEED);
    let drive = drive.map_err(|error| contracts.back_error(error.to_string()))?;
    let bytes = drive.facts().capacity.bytes();
    let store = match places.store() {
        None => Store::anonymous(bytes),
        Some(file) => Store::file(file, bytes),
    };
    let store = store.map_err(ServeError::system(format!("room for {written}")))?;
    Ok(Box::new(Emulated::new(&format!("{name} over {place}"), drive, store)))
}
