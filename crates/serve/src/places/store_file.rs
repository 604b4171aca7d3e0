//! The file of an emulated drive, who may use it, and where volumes are on it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use iofair_config::contracts::Contracts;
use iofair_config::shell;
use iofair_core::unit::Count;
use uuid::Uuid;

use super::Damaged;
use super::marker::Marker;
use crate::back::uring::claim::{identity_of, lock, lock_around, refuse_looped};
use crate::back::uring::damage;
use crate::error::ServeError;
use crate::file_system::has_data;
use crate::layout::{Layout, sidecar};
use crate::trial::{Mode, Trial};

/// A file that is this server's alone, or for a check what stands in for it.
#[derive(Debug)]
pub(crate) struct StoreFile {
    path: PathBuf,
    file: File,
    drive: Uuid,
    marker: Mutex<Marker>,
    /// The directory around it, which is no pool of another server meanwhile.
    _around: Option<File>,
}

impl StoreFile {
    /// Opens a file for this server alone, made if there was none before, and the list of its volumes.
    pub(super) fn open(
        contracts: &Contracts,
        path: &Path,
        mode: &Mode,
    ) -> Result<(Self, Layout), ServeError> {
        let what = || ServeError::system(path.display().to_string());
        let around = lock_around(path, mode).map_err(what())?;
        let there = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found.map_err(what())?),
        };
        let file = there.is_some().then(|| open(path, mode)).transpose().map_err(what())?;
        let mut layout = Layout::beside(path)?;
        let marker = Marker::read(contracts, path)?;
        let refuse =
            |message: String| Err(ServeError::Layout { path: path.to_path_buf(), message });
        let list = sidecar(path);
        let begin = format!("`rm {}` accepts an empty drive", marker.files(&[&list]));
        if layout.is_new() {
            marker.check_absent()?;
            marker.note_other(mode);
            // Files without data may have been made for it.
            if there.as_ref().is_some_and(fs::Metadata::is_file) && has_data(path).map_err(what())?
            {
                return refuse(format!(
                    "it has data, and there is no list of its volumes, {}: is it another program's? Name another file, or \
                     move it away with `mv {} ELSEWHERE`",
                    list.display(),
                    shell::path(path)
                ));
            }
        }
        let (has, end) = (there.as_ref().map(fs::Metadata::len), layout.end());
        if has.is_none() && end > 0 {
            return refuse(format!(
                "it is missing, although {} has volumes on it: is its file system mounted? {begin}",
                list.display()
            ));
        }
        if let Some(has) = has.filter(|has| *has < end) {
            return refuse(format!(
                "it has {}, although {} has volumes up to byte {end}: it was cut off, or is another file; {begin}",
                Count(has, "byte"),
                list.display()
            ));
        }
        let drive = marker.check(layout.drive)?;
        layout.drive = Some(drive);
        let file = match file {
            Some(file) => file,
            None => make(path, mode).map_err(what())?,
        };
        let (path, marker) = (path.to_path_buf(), Mutex::new(marker));
        Ok((Self { path, file, drive, marker, _around: around }, layout.under(mode)))
    }
    pub(super) fn file(&self) -> &File {
        &self.file
    }
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    /// Notes which drive is there.
    pub(super) fn mark(&self) {
        self.marker.lock().unwrap_or_else(PoisonError::into_inner).write(self.drive);
    }
    /// Whether somebody has done something to it; volumes need this many bytes.
    pub(super) fn damaged(&self, bytes: u64) -> Option<Damaged> {
        let damage = damage(&self.file, &self.path, bytes)?;
        Some(Damaged::new(None, &self.path, &self.file, damage))
    }
}

/// Opens a file that is there; a check gets one that it may change.
fn open(path: &Path, mode: &Mode) -> io::Result<File> {
    let file = mode.open(path, OpenOptions::new().read(true).write(true))?;
    lock(&file, mode)?;
    refuse_looped(identity_of(&file.metadata()?), mode)?;
    let Some(trial) = mode.trial() else { return Ok(file) };
    let growth = trial.growth(path)?;
    growth.set_len(file.metadata()?.len())?;
    Ok(growth)
}

fn make(path: &Path, mode: &Mode) -> io::Result<File> {
    if let Some(trial) = mode.trial() {
        return Trial::stand_in(trial, path);
    }
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
    lock(&file, mode)?;
    Ok(file)
}
