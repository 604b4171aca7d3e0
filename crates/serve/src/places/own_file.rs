//! The file of one volume: made, cut off, and never a link.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use iofair_config::contracts::Volume;

use crate::back::uring::Storage;
use crate::error::ServeError;
use crate::pool::medium::{FileMedium, Medium};
use crate::trial::Mode;

/// Takes the end off a volume that had so many bytes. What is behind it in a longer file stays, and a device stays as it is.
pub(super) fn cut_off(storage: &Storage, bytes: u64, had: u64) -> io::Result<()> {
    if storage.is_device() || storage.length()? <= had {
        return storage.shorten(bytes);
    }
    let mut file = FileMedium::new(storage.file().try_clone()?, false);
    file.zero(bytes, had - bytes)?;
    file.sync()
}

/// Refuses a link in the place of a volume's own file: what it leads to may be anybody's, and would not be deleted with it.
pub(super) fn refuse_link(name: &str, path: &Path) -> Result<(), ServeError> {
    if !fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink()) {
        return Ok(());
    }
    let message = format!(
        "{} is a symbolic link; allowed: a regular file. For a file elsewhere, the volume has a `path`",
        path.display()
    );
    Err(ServeError::volume(name, message))
}

/// Opens a volume's file, made if it was not there.
pub(super) fn create(
    path: &Path,
    volume: &Volume,
    mode: &Mode,
    created: &mut Vec<PathBuf>,
) -> io::Result<Storage> {
    let is_new = !fs::exists(path)?;
    let opened = Storage::within(path, volume.size_bytes, mode);
    // One that another server has made meanwhile is not removed with what this change made.
    let is_other = opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy);
    if is_new && !is_other && !mode.is_check() {
        created.push(path.to_path_buf());
    }
    opened
}
