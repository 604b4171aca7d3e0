//! The part of `iofair pool` that is about pool directories: their volumes, kept ones included, and the end of kept ones.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use iofair_config::contracts::Contracts;
use serde::Serialize;
use uuid::Uuid;

use super::own_file::refuse_link;
use super::owners::{Home, Owner, Owners};
use crate::error::ServeError;
use crate::file_system::FileSystem;
use crate::layout::sync_parent;
use crate::pool::admin::check_unused;
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
    /// `live` or `kept`; `missing` or `cut off` if its file is.
    pub state: &'static str,
    /// Its size.
    pub bytes: u64,
    /// Its file.
    pub path: PathBuf,
}

fn summary(path: &Path, owners: &Owners) -> Result<Summary, ServeError> {
    let free =
        FileSystem::query(path).map_err(ServeError::system(path.display().to_string()))?.free;
    let volume = |(name, owner, path): (&String, &Owner, PathBuf)| VolumeSummary {
        name: name.clone(),
        group: owner.group.clone(),
        state: state(owner, &path),
        bytes: owner.bytes,
        path,
    };
    let own = owners.volumes.iter().map(|(name, owner)| (name, owner, file(path, name)));
    let elsewhere = owners.paths.iter().map(|(path, owner)| (&owner.volume, owner, path.clone()));
    let volumes = own.chain(elsewhere).map(volume).collect();
    Ok(Summary { pool: owners.pool, free_bytes: free, volumes })
}

fn state(owner: &Owner, file: &Path) -> &'static str {
    match fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => "missing",
        Ok(there) if there.is_file() && there.len() < owner.bytes => "cut off",
        _ if owner.kept => "kept",
        _ => "live",
    }
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

/// Deletes the kept data of a removed volume, or of one that these contracts do not have.
pub fn delete(
    path: &Path,
    name: &str,
    contracts: Option<&Contracts>,
) -> Result<Summary, ServeError> {
    let home = Home::alone(path)?.ok_or_else(|| no_list(path))?;
    let mut owners = home.owners();
    let known: Vec<&str> = owners.volumes.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    let refuse = |message: String| Err(ServeError::volume(name, message));
    if let Some((path, _)) = owners.paths.iter().find(|(_, owner)| owner.volume == name) {
        let path = path.display();
        return refuse(format!("the server did not create {path}, and does not delete it"));
    }
    let Some(owner) = owners.volumes.get_mut(name) else {
        return refuse(format!("the pool has no such volume; it has {known}"));
    };
    if !owner.kept {
        check_unused(path, name, contracts)?;
    }
    refuse_link(name, &file(path, name))?;
    // After a crash, the list shows that the file was to be removed.
    (owner.kept, owner.deleting) = (true, true);
    save(&home, &owners)?;
    let file = file(path, name);
    let removed = match fs::remove_file(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
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
