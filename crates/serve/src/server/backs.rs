//! Creates the back end that the contracts name.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use iofair_config::contracts::{Back as BackSpec, Contracts};

use crate::back::emulated::Emulated;
use crate::back::faulty::Faulty;
use crate::back::memory::Memory;
use crate::back::uring::Uring;
use crate::back::{Back, store::Store};
use crate::error::ServeError;
use crate::layout::sync_parent;
use crate::places::Places;
use crate::trial::Mode;

/// Seed of an emulated drive's random streams: two runs of a server meet the same drive.
const DRIVE_SEED: u64 = 1;

/// The back end, with faults in front of it if they are asked for.
pub(super) fn open_back(
    contracts: &Contracts,
    places: &mut Places,
    mode: &Mode,
) -> Result<Box<dyn Back>, ServeError> {
    let back = open_sound_back(contracts, places, mode)?;
    Ok(if contracts.drive.faulty { Box::new(Faulty::new(back)) } else { back })
}

fn open_sound_back(
    contracts: &Contracts,
    places: &mut Places,
    mode: &Mode,
) -> Result<Box<dyn Back>, ServeError> {
    match &contracts.drive.back {
        BackSpec::Memory(size) => {
            let memory = Memory::new((*size).max(places.end()));
            Ok(Box::new(memory.map_err(ServeError::system(format!("{size} bytes of memory")))?))
        }
        BackSpec::File(_) => {
            let pool = places.pool().expect("a file or device holds a pool");
            Ok(Box::new(Uring::shared(pool.storage())))
        }
        BackSpec::Directory(path) => {
            let what = || ServeError::system(path.display().to_string());
            if !fs::exists(path).map_err(what())? {
                let made = match mode.trial() {
                    None => fs::DirBuilder::new().mode(0o700).create(path),
                    Some(trial) => trial.make_directory(path, false),
                };
                made.and_then(|()| sync_parent(path)).map_err(what())?;
            }
            let path = mode.trial().map_or_else(|| path.clone(), |trial| trial.directory(path));
            Ok(Box::new(Uring::directory(&path).map_err(what())?))
        }
        BackSpec::Emulated(name) => open_emulated(contracts, name, mode),
    }
}

/// `PROFILE[:variant]`, over memory, or over a sparse file with `@PATH` behind it.
fn open_emulated(
    contracts: &Contracts,
    written: &str,
    mode: &Mode,
) -> Result<Box<dyn Back>, ServeError> {
    let (name, path) = match written.split_once('@') {
        Some((name, path)) => (name, Some(PathBuf::from(path))),
        None => (written, None),
    };
    let drive = iofair_drive::profile::load(name, DRIVE_SEED);
    let drive = drive.map_err(|error| contracts.back_error(error.to_string()))?;
    let bytes = drive.facts().capacity.bytes();
    let store = match &path {
        None => Store::anonymous(bytes),
        Some(path) => open_store(path, mode).and_then(|file| Store::file(&file, bytes)),
    };
    let store = store.map_err(ServeError::system(format!("room for {written}")))?;
    let place = path.map_or("memory".into(), |path| path.display().to_string());
    Ok(Box::new(Emulated::new(&format!("{name} over {place}"), drive, store)))
}

/// The file behind an emulated drive, or for a check what stands in for it.
fn open_store(path: &Path, mode: &Mode) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).truncate(false);
    match mode.trial() {
        None => options.create(true).open(path),
        Some(trial) if !fs::exists(path)? => trial.stand_in(path),
        Some(trial) => {
            let length = options.open(path)?.metadata()?.len();
            let file = trial.growth(path)?;
            file.set_len(length)?;
            Ok(file)
        }
    }
}
