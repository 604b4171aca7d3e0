//! The commands of `iofair pool`: create, show, check, repair and import pools that no server uses.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use iofair_config::contracts::{Contracts, Volume};
use iofair_config::shell;
use iofair_core::unit::Count;
use serde::Serialize;
use uuid::Uuid;

use super::format::{BLOCK, Defect, Record, State, Superblock, Table};
use super::import::Found;
use super::medium::{FileMedium, Medium};
use super::table::{Free, total};
use super::{Pool, PoolError, Survey, used};
use crate::back::uring::Storage;
use crate::back::uring::claim::{identity_of, is_below_dev, lock_around};
use crate::error::ServeError;
use crate::layout::{Layout, sidecar, sync_parent};
use crate::trial::{Mode, Trial};

/// The state of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Summary {
    /// Its identity.
    pub pool: Uuid,
    /// Number of changes so far.
    pub generation: u64,
    /// Its length.
    pub bytes: u64,
    /// Bytes that belong to no volume; a file grows when it needs more.
    pub free_bytes: u64,
    /// Bytes of these that must be zeroed before a volume gets them.
    pub dirty_bytes: u64,
    /// Its volumes.
    pub volumes: Vec<VolumeSummary>,
}

/// A volume of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct VolumeSummary {
    /// Its identity.
    pub uuid: Uuid,
    /// Name of the export.
    pub name: String,
    /// Path of its group; empty if unknown.
    pub group: String,
    /// `live` or `kept`; `cut off` if its file is.
    pub state: &'static str,
    /// Its size.
    pub bytes: u64,
    /// First byte and length of each extent.
    pub extents: Vec<(u64, u64)>,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// Whether a server can use the pool as it is.
    pub good: bool,
    /// A description of each copy.
    pub copies: Vec<String>,
    /// The problem, and the command that helps.
    pub problem: Option<String>,
    /// The pool, if it can be read.
    pub summary: Option<Summary>,
}

fn summary(superblock: &Superblock, table: &Table) -> Summary {
    let volume = |record: &Record| VolumeSummary {
        uuid: record.id,
        name: record.name.clone(),
        group: record.group.clone(),
        state: match record.state {
            State::Live => "live",
            State::Kept => "kept",
        },
        bytes: record.size,
        extents: record.extents.iter().map(|e| (e.start * BLOCK, e.blocks * BLOCK)).collect(),
    };
    Summary {
        pool: superblock.pool,
        generation: superblock.generation,
        bytes: superblock.blocks * BLOCK,
        free_bytes: Free::new(table, superblock, false, &[]).blocks() * BLOCK,
        dirty_bytes: total(&table.dirty) * BLOCK,
        volumes: table.volumes.iter().map(volume).collect(),
    }
}

fn complain(path: &Path, message: impl Into<String>) -> ServeError {
    ServeError::Layout { path: path.to_path_buf(), message: message.into() }
}

/// What is wrong with a pool, and which command helps.
pub(crate) fn pool_error(path: &Path, error: PoolError) -> ServeError {
    pool_error_with(path, error, "FILE")
}

/// [`pool_error`], with the contract file, as a word of a shell.
fn pool_error_with(path: &Path, error: PoolError, file: &str) -> ServeError {
    let name = shell::path(path);
    let message = match error {
        PoolError::Absent if fs::exists(sidecar(path)).is_ok_and(|there| there) => format!(
            "it is a pool of an earlier version: `iofair pool import {name} --contracts {file}` takes it over with \
             its data"
        ),
        PoolError::Absent => {
            let force = if used::may_have_data(path) { "--force " } else { "" };
            format!(
                "there is no pool on it: `iofair pool create {force}{name}` makes one, and what is on it is lost; `iofair \
                 pool import {name} --contracts {file}` takes over volumes of an earlier version with their data"
            )
        }
        PoolError::Damaged { what, good: Some(good) } => format!(
            "{what}; the copy of change {good} is good, and `iofair pool check --repair {name}` uses it"
        ),
        PoolError::Damaged { what, good: None } => {
            format!("damaged: {what}, and there is no good copy; restore it from a backup")
        }
        PoolError::Version(version) => {
            format!(
                "a pool of version {version}, which this program does not know: use a newer one"
            )
        }
        PoolError::Shorter { pool, medium } => format!(
            "the pool has {pool} bytes, and there are {medium}: it was cut off; make it {pool} bytes again"
        ),
        PoolError::Room(message) => message,
        PoolError::Table(defect) => format!("refused: {defect}"),
        PoolError::Broken => {
            "a change failed half way; what is durable is read when the server starts again".into()
        }
        PoolError::System(error) => return ServeError::system(path.display().to_string())(error),
    };
    complain(path, message)
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Refuses what can never be a pool, before anything is opened or made.
fn check_kind(path: &Path, may_create: bool) -> Result<(), ServeError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && is_below_dev(path) => {
            Err(complain(path, "a regular file below /dev: delete it, it is no device"))
        }
        Ok(metadata) if metadata.is_file() || metadata.file_type().is_block_device() => Ok(()),
        Ok(metadata) if metadata.is_dir() => {
            let message = "neither a regular file nor a block device; of a pool directory, there are only show and delete";
            Err(complain(path, message))
        }
        Ok(_) => Err(complain(path, "neither a regular file nor a block device")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if is_below_dev(path) {
                return Err(complain(path, "there is no such device"));
            }
            if !may_create {
                let message = format!(
                    "it is not there: `iofair pool create {}` makes a pool in a new file, and so does `back \
                     = \"file:{}\"`; a pool directory is made by the first start of its server",
                    shell::path(path),
                    path.display()
                );
                return Err(complain(path, message));
            }
            Ok(())
        }
        Err(error) => Err(ServeError::system(path.display().to_string())(error)),
    }
}

fn exclusive(path: &Path, mode: &Mode) -> Result<Storage, ServeError> {
    Storage::existing(path, mode).map_err(ServeError::system(path.display().to_string()))
}

fn medium(path: &Path, storage: &Storage) -> Result<FileMedium, ServeError> {
    let file = storage.file().try_clone();
    let file = file.map_err(ServeError::system(path.display().to_string()))?;
    Ok(FileMedium::new(file, storage.is_device()))
}

/// A medium that is only read, and who has it does not matter.
fn reader(path: &Path) -> Result<FileMedium, ServeError> {
    let file = File::open(path).map_err(ServeError::system(path.display().to_string()))?;
    Ok(FileMedium::new(file, is_device(path)))
}

/// Opens the pool of these contracts for a server alone; one in a new file is made if it may.
pub(crate) fn open_or_create(
    contracts: &Contracts,
    path: &Path,
    mode: &Mode,
) -> Result<(Pool<FileMedium>, Storage), ServeError> {
    let may_create = contracts.drive.may_create;
    let what = || ServeError::system(path.display().to_string());
    if path.is_dir() {
        let message = format!(
            "neither a regular file nor a block device; a directory is served with `back = \"directory:{}\"`",
            path.display()
        );
        return Err(complain(path, message));
    }
    check_kind(path, may_create)?;
    let new = !fs::exists(path).map_err(what())?;
    let (storage, medium) = match mode.trial() {
        Some(trial) if new => {
            lock_around(path, mode).map_err(what())?;
            let file = trial.stand_in(path).map_err(what())?;
            let stand_in = Trial::name(&file);
            let storage = exclusive(&stand_in, &Mode::Serve)?;
            fill(&storage).map_err(|error| pool_error(path, error))?;
            let medium = medium(path, &storage)?;
            (storage, medium)
        }
        Some(trial) => {
            let storage = exclusive(path, mode)?;
            let growth = trial.growth(path).map_err(what())?;
            let medium = medium(path, &storage)?.unchanged(growth);
            (storage, medium)
        }
        None => {
            if new {
                create(path, &Creation { file: true, ..Creation::default() })?;
            }
            let storage = exclusive(path, mode)?;
            let medium = medium(path, &storage)?;
            (storage, medium)
        }
    };
    let file = shell::path(Path::new(contracts.path()));
    let mut pool = Pool::open(medium).map_err(|error| pool_error_with(path, error, &file))?;
    pool.adopt_length().map_err(|error| pool_error(path, error))?;
    Ok((pool, storage))
}

/// Whether it is the pool that the contracts mean.
pub(crate) fn check_uuid(path: &Path, is: Uuid, wanted: Option<Uuid>) -> Result<(), ServeError> {
    match wanted {
        Some(wanted) if wanted != is => Err(complain(
            path,
            format!("its pool has the UUID {is}, and the contracts say {wanted}"),
        )),
        _ => Ok(()),
    }
}

/// Options for creating a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Creation {
    /// Creates a new file.
    pub file: bool,
    /// Overwrites existing data.
    pub force: bool,
    /// The device reads as zeroes.
    pub blank: bool,
}

/// Creates an empty pool.
pub fn create(path: &Path, how: &Creation) -> Result<Summary, ServeError> {
    check_kind(path, how.file)?;
    let new = !fs::exists(path).map_err(ServeError::system(path.display().to_string()))?;
    if new {
        return create_file(path).map_err(|error| pool_error(path, error));
    }
    let _drive = used::lock_drive(path)?;
    let storage = exclusive(path, &Mode::Serve)?;
    let found = medium(path, &storage)?;
    if !how.force {
        let data = used::data(path, &storage, &found);
        if let Some(why) = data.map_err(|error| pool_error(path, error.into()))? {
            return Err(complain(path, why));
        }
    }
    let pool = Pool::create(found, how.blank).map_err(|error| pool_error(path, error))?;
    Ok(summary(pool.superblock(), pool.table()))
}

/// Makes a file with a pool: there whole or not at all, also when the program is killed. Another program that makes it
/// at the same time waits for the lock of the unfinished file, and then finds that the pool is there.
fn create_file(path: &Path) -> Result<Summary, PoolError> {
    let mut fresh = path.as_os_str().to_os_string();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    let storage = Storage::open(&fresh, 0, &Mode::Serve)?;
    // A link leads to somebody else's file.
    let is_ours = fs::symlink_metadata(&fresh).is_ok_and(|file| {
        file.is_file() && file.nlink() == 1 && identity_of(&file) == storage.identity()
    });
    if !is_ours || fs::exists(path)? {
        let message = "another program has just made it";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message).into());
    }
    // One that was killed may have left a part of it.
    storage.shorten(0)?;
    let summary = fill(&storage)?;
    fs::rename(&fresh, path)?;
    sync_parent(path)?;
    Ok(summary)
}

/// Makes a pool of an empty file.
fn fill(storage: &Storage) -> Result<Summary, PoolError> {
    let pool = Pool::create(FileMedium::new(storage.file().try_clone()?, false), true)?;
    Ok(summary(pool.superblock(), pool.table()))
}

/// Reads a pool, even while it is in use.
pub fn show(path: &Path) -> Result<Summary, ServeError> {
    check_kind(path, false)?;
    let medium = reader(path)?;
    let survey = Survey::read(&medium).map_err(|error| pool_error(path, error.into()))?;
    let (superblock, table) = survey.in_force().map_err(|error| pool_error(path, error))?;
    let length = medium.length().map_err(|error| pool_error(path, error.into()))?;
    let mut summary = summary(&superblock, &table);
    let is_cut =
        |volume: &&mut VolumeSummary| volume.extents.iter().any(|(at, bytes)| at + bytes > length);
    summary.volumes.iter_mut().filter(is_cut).for_each(|volume| volume.state = "cut off");
    Ok(summary)
}

/// Checks every copy.
pub fn check(path: &Path) -> Result<Report, ServeError> {
    check_kind(path, false)?;
    let medium = reader(path)?;
    let survey = Survey::read(&medium).map_err(|error| pool_error(path, error.into()))?;
    let mut copies = Vec::new();
    for (name, found) in ["first", "second"].iter().zip(&survey.superblocks) {
        copies.push(match found {
            Ok(superblock) => format!("{name} superblock: good, change {}", superblock.generation),
            Err(defect) => format!("{name} superblock: {defect}"),
        });
    }
    if let Some(newest) = survey.newest() {
        for (slot, found) in survey.tables.iter().enumerate() {
            let generation = newest.tables[slot].generation;
            let name = if slot == newest.current { "table in force" } else { "table before it" };
            copies.push(match found {
                Ok(table) => {
                    format!(
                        "{name}: good, change {generation}, {}",
                        Count(table.volumes.len(), "volume")
                    )
                }
                Err(Defect::Absent) if generation == 0 => format!("{name}: never written"),
                Err(defect) => format!("{name}: change {generation} is {defect}"),
            });
        }
    }
    let length = medium.length().map_err(|error| pool_error(path, error.into()))?;
    let found = survey.in_force().and_then(|(superblock, table)| {
        super::check_length(&superblock, length)?;
        Ok(summary(&superblock, &table))
    });
    let (problem, summary) = match found {
        Ok(summary) => (None, Some(summary)),
        Err(error) => (Some(pool_error(path, error).to_string()), None),
    };
    let damaged = survey.superblocks.iter().any(Result::is_err);
    let good = summary.is_some() && !damaged;
    let problem = problem.or_else(|| {
        let message =
            "one superblock is damaged, the other is as new: a server writes it again, and so does";
        damaged.then(|| format!("{message} `iofair pool check --repair {}`", shell::path(path)))
    });
    Ok(Report { good, copies, problem, summary })
}

/// Uses the newest valid copy, and rewrites everything.
pub fn repair(path: &Path) -> Result<Summary, ServeError> {
    check_kind(path, false)?;
    let storage = exclusive(path, &Mode::Serve)?;
    let repaired = match Pool::open(medium(path, &storage)?) {
        Err(PoolError::Damaged { .. }) => Pool::repair(medium(path, &storage)?),
        opened => opened,
    };
    let pool = repaired.map_err(|error| pool_error(path, error))?;
    Ok(summary(pool.superblock(), pool.table()))
}

/// Deletes the kept data of a removed volume, or of one that these contracts do not have.
pub fn delete(
    path: &Path,
    name: &str,
    contracts: Option<&Contracts>,
) -> Result<Summary, ServeError> {
    check_kind(path, false)?;
    let storage = exclusive(path, &Mode::Serve)?;
    let mut pool = Pool::open(medium(path, &storage)?).map_err(|error| pool_error(path, error))?;
    let mut table = pool.table().clone();
    let found = table.volumes.iter_mut().find(|volume| volume.name == name);
    let Some(found) = found else {
        let known: Vec<&str> = pool.table().volumes.iter().map(|volume| &*volume.name).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        return Err(ServeError::volume(
            name,
            format!("the pool has no such volume; it has {known}"),
        ));
    };
    if found.state == State::Live {
        check_unused(path, name, contracts)?;
        found.state = State::Kept;
    }
    let table = table.cut(&[name.to_string()]);
    pool.commit(table, &mut |_, _| {}).map_err(|error| pool_error(path, error))?;
    Ok(summary(pool.superblock(), pool.table()))
}

/// Whether the contracts are about this pool.
fn check_back(path: &Path, contracts: &Contracts) -> Result<(), ServeError> {
    let whole = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let back = &contracts.drive.back;
    if back.profile().is_none() && back.path().is_some_and(|back| whole(back) == whole(path)) {
        return Ok(());
    }
    let message = "the contracts have another back end: those are needed that it was served with";
    Err(complain(path, message))
}

/// Whether a volume that the last server had is not in the contracts any more.
pub(crate) fn check_unused(
    path: &Path,
    name: &str,
    contracts: Option<&Contracts>,
) -> Result<(), ServeError> {
    let word = shell::word(name);
    let remove = format!("`iofair ctl volume remove {word}` while the server runs");
    let message = match contracts {
        None => format!(
            "the contracts have it, as far as the last server knew: take it out of them with {remove}; if it is not in them any \
             more: `iofair pool delete {} {word} --contracts FILE`",
            shell::path(path)
        ),
        Some(contracts) => {
            check_back(path, contracts)?;
            let is_there = |volume: &Volume| volume.name == name && volume.path.is_none();
            if !contracts.volumes.iter().any(is_there) {
                return Ok(());
            }
            format!("{} has it: take it out first, with {remove}", contracts.path())
        }
    };
    Err(ServeError::volume(name, message))
}

/// Converts a pool of an earlier version, with its data.
pub fn import(path: &Path, contracts: &Contracts) -> Result<Summary, ServeError> {
    check_kind(path, false)?;
    check_back(path, contracts)?;
    let storage = exclusive(path, &Mode::Serve)?;
    let found = found(path, contracts)?;
    let pool =
        Pool::import(medium(path, &storage)?, &found).map_err(|error| pool_error(path, error))?;
    let old = sidecar(path);
    if fs::exists(&old).is_ok_and(|there| there) {
        // The pool has its table now; what is beside it would only mislead.
        let mut kept = old.clone().into_os_string();
        kept.push(".imported");
        let moved = fs::rename(&old, PathBuf::from(kept)).and_then(|()| sync_parent(&old));
        moved.map_err(ServeError::system(old.display().to_string()))?;
    }
    Ok(summary(pool.superblock(), pool.table()))
}

/// Where an earlier version has its volumes.
fn found(path: &Path, contracts: &Contracts) -> Result<Vec<Found>, ServeError> {
    let mut layout = match is_device(path) {
        true => Layout::in_order(),
        false if fs::exists(sidecar(path)).is_ok_and(|there| there) => Layout::beside(path)?,
        false => {
            let message = format!("there is no {} beside it", sidecar(path).display());
            return Err(complain(path, message + ", so nothing says where its volumes lie"));
        }
    };
    if is_device(path) {
        layout.place(&contracts.volumes)?;
    }
    let found = |(name, base, size): (&str, u64, u64)| {
        if base % BLOCK != 0 {
            let message =
                format!("volume \"{name}\" begins at {base}, which is no multiple of {BLOCK}");
            return Err(complain(&sidecar(path), message));
        }
        let volume = contracts.volumes.iter().find(|volume| volume.name == name);
        let group = volume.map(|volume| volume.group.clone());
        Ok(Found { name: name.to_string(), group, base, size })
    };
    layout.places().map(found).collect()
}
