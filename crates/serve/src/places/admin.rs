//! The part of `iofair pool` that is about pool directories: their volumes, kept ones included, and the end of kept ones.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use iofair_config::shell;
use serde::Serialize;
use uuid::Uuid;

use super::owners::{Home, Owner, Owners};
use crate::error::ServeError;
use crate::file_system::FileSystem;
use crate::layout::sync_parent;
use crate::reserve::Room;

/// The state of a pool directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Summary {
    /// Its identity; a list of an earlier version has none.
    pub pool: Option<Uuid>,
    /// Free bytes of its file system.
    pub free_bytes: u64,
    /// Its volumes.
    pub volumes: Vec<VolumeSummary>,
}

/// A volume of a pool directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct VolumeSummary {
    /// Name of the export.
    pub name: String,
    /// Path of its group.
    pub group: String,
    /// `live` or `kept`.
    pub state: &'static str,
    /// Its size.
    pub bytes: u64,
    /// Its file.
    pub path: PathBuf,
}

fn summary(path: &Path, owners: &Owners) -> Result<Summary, ServeError> {
    let free =
        FileSystem::query(path).map_err(ServeError::system(path.display().to_string()))?.free;
    let volume = |(name, owner): (&String, &Owner)| VolumeSummary {
        name: name.clone(),
        group: owner.group.clone(),
        state: if owner.kept { "kept" } else { "live" },
        bytes: owner.bytes,
        path: file(path, name),
    };
    let volumes = owners.volumes.iter().map(volume).collect();
    Ok(Summary { pool: owners.pool, free_bytes: free, volumes })
}

fn file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.img"))
}

fn no_list(path: &Path) -> ServeError {
    let message = "no server has used this directory as its pool: it has no list of volumes";
    ServeError::Layout { path: path.to_path_buf(), message: message.into() }
}

/// Reads the list of a pool directory, even while it is in use.
pub fn show(path: &Path) -> Result<Summary, ServeError> {
    let owners = Owners::load(path)?.ok_or_else(|| no_list(path))?;
    summary(path, &owners)
}

/// Deletes the kept data of a removed volume.
pub fn delete(path: &Path, name: &str) -> Result<Summary, ServeError> {
    let home = Home::alone(path)?.ok_or_else(|| no_list(path))?;
    let mut owners = home.owners();
    let known: Vec<&str> = owners.volumes.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    let refuse = |message: String| Err(ServeError::volume(name, message));
    let Some(owner) = owners.volumes.get_mut(name) else {
        return refuse(format!("the pool has no such volume; it has {known}"));
    };
    if !owner.kept {
        let command = format!("`iofair ctl volume remove {}`", shell::word(name));
        return refuse(format!(
            "the contracts have it: take it out of them first, with {command} while the server runs"
        ));
    }
    // After a crash, the list shows that the file was to be removed.
    owner.deleting = true;
    save(&home, &owners)?;
    let file = file(path, name);
    let removed = match fs::remove_file(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    let removed = removed.and_then(|()| sync_parent(&file));
    removed.map_err(ServeError::system(file.display().to_string()))?;
    owners.volumes.remove(name);
    save(&home, &owners)?;
    summary(path, &owners)
}

/// Replaces the list by one that belongs to the same user, who may not be the one that runs this program.
fn save(home: &Home, owners: &Owners) -> Result<(), ServeError> {
    let list = home.list();
    let saved = fs::metadata(&list).and_then(|before| {
        home.save(owners, Room::Reserved)?;
        let (now, own) = (fs::metadata(&list)?, (before.uid(), before.gid()));
        if (now.uid(), now.gid()) == own { Ok(()) } else { chown(&list, Some(own.0), Some(own.1)) }
    });
    saved.map_err(home.system())
}
