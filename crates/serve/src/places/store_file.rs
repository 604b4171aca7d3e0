//! The file of an emulated drive, and who may use it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use iofair_config::shell;

use super::Unlinked;
use crate::back::uring::claim::lock;
use crate::back::uring::is_unlinked;
use crate::error::ServeError;
use crate::layout::{Layout, sidecar};
use crate::trial::{Mode, Trial};

/// A file that is this server's alone, or for a check what stands in for it.
#[derive(Debug)]
pub(crate) struct StoreFile {
    path: PathBuf,
    file: File,
}

impl StoreFile {
    /// Opens a file for this server alone, made if there was none before.
    pub(super) fn open(path: &Path, mode: &Mode) -> Result<Self, ServeError> {
        let what = || ServeError::system(path.display().to_string());
        if !fs::exists(path).map_err(what())? && Layout::beside(path)?.places().next().is_some() {
            let list = sidecar(path);
            let message = format!(
                "it is missing, although {} has volumes on it: is its file system mounted? `rm {}` accepts an empty drive",
                list.display(),
                shell::path(&list)
            );
            return Err(ServeError::Layout { path: path.to_path_buf(), message });
        }
        let file = match mode.trial() {
            None => make(path),
            Some(trial) => stand_in(path, trial, mode),
        };
        Ok(Self { path: path.to_path_buf(), file: file.map_err(what())? })
    }
    pub(super) fn file(&self) -> &File {
        &self.file
    }
    pub(super) fn unlinked(&self) -> Option<Unlinked> {
        is_unlinked(&self.file).then(|| Unlinked::new(None, &self.path, &self.file))
    }
}

fn make(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    lock(&file, &Mode::Serve)?;
    Ok(file)
}

fn stand_in(path: &Path, trial: &Trial, mode: &Mode) -> io::Result<File> {
    if !fs::exists(path)? {
        return trial.stand_in(path);
    }
    let there = OpenOptions::new().read(true).write(true).open(path)?;
    lock(&there, mode)?;
    let file = trial.growth(path)?;
    file.set_len(there.metadata()?.len())?;
    Ok(file)
}
