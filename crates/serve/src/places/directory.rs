//! A directory with one file per volume.
//!
//! `.iofair.json` in it records the owner of each file, including files of volumes that are no longer in the
//! contracts: their data is kept for their group, and another group gets it only with consent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use iofair_config::contracts::Volume;
use serde::{Deserialize, Serialize};

use super::Consent;
use crate::back::uring::Storage;
use crate::back::uring::files::{SLOTS_MAX, VOLUME_BYTES_MAX};
use crate::error::ServeError;
use crate::file_system::{FileSystem, allocated};
use crate::layout::{create_private, sync_parent};
use crate::trial::Mode;

/// The name of the file of owners.
const OWNERS: &str = ".iofair.json";

/// Whose a volume's file is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Owner {
    group: String,
    /// The contracts do not have it any more.
    kept: bool,
}

/// Whose all files are, by the names of the volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Owners {
    volumes: BTreeMap<String, Owner>,
}

impl Owners {
    fn load(directory: &Path) -> Result<Self, ServeError> {
        let path = directory.join(OWNERS);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let message = format!(
                    "it cannot be understood: {error}; without it any group gets any file again"
                );
                ServeError::Layout { path, message }
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(ServeError::system(path.display().to_string())(error)),
        }
    }
    /// All or nothing.
    fn save(&self, directory: &Path) -> io::Result<()> {
        let (path, fresh) = (directory.join(OWNERS), directory.join(format!("{OWNERS}.new")));
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let mut file = create_private(&fresh)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        sync_parent(&path)
    }
    fn system(directory: &Path) -> impl FnOnce(io::Error) -> ServeError {
        ServeError::system(directory.join(OWNERS).display().to_string())
    }
}

/// A volume in a file of its own.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) slot: u64,
    /// What clients see of it.
    size: u64,
    /// Alive as long as a request may meet it: this long nobody else gets the slot.
    pub(super) storage: Weak<Storage>,
    /// Its file was removed: a volume with its name is another one.
    removed: bool,
}

/// A directory with a file a volume.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    own: Vec<Own>,
    /// Where in the list the volumes are that may be found, by name and path.
    index: BTreeMap<(String, PathBuf), usize>,
    owners: Owners,
    mode: Mode,
}

/// Files that were made or opened for contracts that are not in force yet. Dropping it removes those that
/// were made.
#[derive(Debug, Default)]
pub(crate) struct Made {
    opened: Vec<Arc<Storage>>,
    created: Vec<PathBuf>,
    /// Whose files were before.
    owners: Option<(PathBuf, Owners)>,
}

impl Made {
    /// The contracts are in force.
    pub(crate) fn keep(mut self) {
        self.created.clear();
        self.owners = None;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.created {
            // It is empty, and what cannot be removed harms nobody.
            let _ = fs::remove_file(path);
        }
        if let Some((directory, owners)) = &self.owners {
            // Volumes that the contracts still have are told anew by the next change.
            let _ = owners.save(directory);
        }
    }
}

impl Directory {
    pub(super) fn open(path: &Path, mode: &Mode) -> Result<Self, ServeError> {
        let owners = Owners::load(path)?;
        let (path, index, mode) = (path.to_path_buf(), BTreeMap::new(), mode.clone());
        Ok(Self { path, own: Vec::new(), index, owners, mode })
    }
    fn file(&self, volume: &Volume) -> PathBuf {
        let own = || self.path.join(format!("{}.img", volume.name));
        volume.path.clone().unwrap_or_else(own)
    }
    pub(super) fn find(&self, volume: &Volume) -> Option<&Own> {
        self.position(volume).map(|index| &self.own[index])
    }
    fn position(&self, volume: &Volume) -> Option<usize> {
        self.index.get(&(volume.name.clone(), self.file(volume))).copied()
    }
    /// Bytes that new volumes can have: what the file system has beyond the holes of all files in the directory.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let here = self.own.iter().filter(|own| !own.removed && own.path.starts_with(&self.path));
        let mut holes = 0_u64;
        for own in here {
            holes += own.size.saturating_sub(allocated(&own.path)?);
        }
        Ok(FileSystem::of(&self.path)?.free.saturating_sub(holes))
    }
    fn build_index(&mut self) {
        let found = self.own.iter().enumerate().filter(|(_, own)| !own.removed);
        self.index =
            found.map(|(index, own)| ((own.name.clone(), own.path.clone()), index)).collect();
    }
    pub(super) fn place(
        &mut self,
        volumes: &[Volume],
        consent: &Consent,
    ) -> Result<(), ServeError> {
        self.own.retain(|own| own.storage.strong_count() > 0);
        self.build_index();
        let taken: BTreeSet<u64> = self.own.iter().map(|own| own.slot).collect();
        let mut free = (0..SLOTS_MAX).filter(|slot| !taken.contains(slot));
        for volume in volumes {
            if volume.size_bytes > VOLUME_BYTES_MAX {
                let message = format!("a volume has at most {VOLUME_BYTES_MAX} bytes here");
                return Err(ServeError::volume(&volume.name, message));
            }
            self.refuse_foreign(volume, consent)?;
            self.refuse_shorter(volume, consent)?;
            if self.find(volume).is_some() {
                continue;
            }
            let Some(slot) = free.next() else {
                return Err(ServeError::volume(&volume.name, "too many volumes"));
            };
            let (name, path) = (volume.name.clone(), self.file(volume));
            let size = volume.size_bytes;
            self.index.insert((name.clone(), path.clone()), self.own.len());
            self.own.push(Own { name, path, slot, size, storage: Weak::new(), removed: false });
        }
        Ok(())
    }
    pub(super) fn make(&mut self, volumes: &[Volume]) -> Result<Made, ServeError> {
        let mut made = Made::default();
        let open = self.own.iter().filter_map(|own| Some((own.storage.upgrade()?, &own.name)));
        let mut identities: BTreeMap<(u64, u64), String> =
            open.map(|(storage, name)| (storage.identity(), name.clone())).collect();
        for volume in volumes {
            let index = self.position(volume).expect("every volume was placed");
            let own = &self.own[index];
            let what = || ServeError::system(own.path.display().to_string());
            let storage = match own.storage.upgrade() {
                Some(storage) => {
                    storage.lengthen(volume.size_bytes).map_err(what())?;
                    storage
                }
                None => {
                    refuse_twin(own, &identities)?;
                    let created = create(&own.path, volume, &self.mode, &mut made.created);
                    Arc::new(created.map_err(what())?)
                }
            };
            identities.insert(storage.identity(), own.name.clone());
            let own = &mut self.own[index];
            (own.storage, own.size) = (Arc::downgrade(&storage), volume.size_bytes);
            made.opened.push(storage);
        }
        let parents: BTreeSet<_> = made.created.iter().map(|path| path.parent()).collect();
        for path in parents.into_iter().flatten().map(|parent| parent.join(".")) {
            sync_parent(&path).map_err(ServeError::system(path.display().to_string()))?;
        }
        let mut owners = self.owners.clone();
        owners.volumes.values_mut().for_each(|owner| owner.kept = true);
        for volume in volumes.iter().filter(|volume| volume.path.is_none()) {
            let owner = Owner { group: volume.group.clone(), kept: false };
            owners.volumes.insert(volume.name.clone(), owner);
        }
        if let Some(trial) = self.mode.trial().filter(|_| owners != self.owners) {
            let fresh = self.path.join(format!("{OWNERS}.new"));
            drop(trial.stand_in(&fresh).map_err(Owners::system(&self.path))?);
        } else if owners != self.owners {
            owners.save(&self.path).map_err(Owners::system(&self.path))?;
            made.owners = Some((self.path.clone(), std::mem::replace(&mut self.owners, owners)));
        }
        Ok(made)
    }
    /// Whether its file is kept for another group.
    fn refuse_foreign(&self, volume: &Volume, consent: &Consent) -> Result<(), ServeError> {
        let Volume { name, group, .. } = volume;
        let kept = self.owners.volumes.get(name).filter(|owner| owner.kept);
        let Some(owner) = kept.filter(|owner| owner.group != *group) else { return Ok(()) };
        let file = self.file(volume);
        if volume.path.is_some() || consent.take_over.contains(name) || !file.exists() {
            return Ok(());
        }
        let message = format!(
            "{} is kept for group \"{}\"; group \"{group}\" gets it with `--take-over {name}` only, or delete it",
            file.display(),
            owner.group
        );
        Err(ServeError::volume(name, message))
    }
    /// Whether a change or a start would truncate data.
    fn refuse_shorter(&self, volume: &Volume, consent: &Consent) -> Result<(), ServeError> {
        let Volume { name, size_bytes: wanted, .. } = volume;
        let stored = || {
            let metadata = fs::metadata(self.file(volume)).ok()?;
            (volume.path.is_none() && metadata.is_file()).then_some(metadata.len())
        };
        let has = self.find(volume).map(|own| own.size).or_else(stored).unwrap_or(0);
        if has <= *wanted || consent.shrink.contains(name) {
            return Ok(());
        }
        let message = format!(
            "it has {has} bytes, and {wanted} would cut data off: `iofair ctl volume resize {name} {wanted} --shrink` \
             does it, or `iofair serve --shrink {name}`"
        );
        Err(ServeError::volume(name, message))
    }
    /// Cuts files of volumes that shall be shorter, and removes those of deleted ones.
    pub(super) fn finish(&mut self, new: &[Volume], consent: &Consent) -> Result<(), ServeError> {
        for volume in new.iter().filter(|volume| consent.shrink.contains(&volume.name)) {
            let Some(own) = self.find(volume) else { continue };
            if let Some(storage) = own.storage.upgrade() {
                let cut = storage.shorten(volume.size_bytes);
                cut.map_err(ServeError::system(own.path.display().to_string()))?;
            }
        }
        consent.delete.iter().try_for_each(|name| self.remove(name))
    }
    fn remove(&mut self, name: &str) -> Result<(), ServeError> {
        for own in self.own.iter_mut().filter(|own| own.name == name) {
            own.removed = true;
        }
        self.build_index();
        let path = self.path.join(format!("{name}.img"));
        let removed = fs::remove_file(&path).and_then(|()| sync_parent(&path));
        removed.map_err(ServeError::system(path.display().to_string()))?;
        if self.owners.volumes.remove(name).is_some() {
            self.owners.save(&self.path).map_err(Owners::system(&self.path))?;
        }
        Ok(())
    }
}

/// Whether a volume's file already belongs to another volume, under any path.
fn refuse_twin(own: &Own, identities: &BTreeMap<(u64, u64), String>) -> Result<(), ServeError> {
    let Ok(metadata) = fs::metadata(&own.path) else { return Ok(()) };
    let Some(twin) = identities.get(&Storage::identity_of(&metadata)) else { return Ok(()) };
    let path = own.path.display();
    let message = format!("{path} is volume \"{twin}\" already, which may still have clients");
    Err(ServeError::volume(&own.name, message))
}

/// Opens a volume's file, made if it was not there.
fn create(
    path: &Path,
    volume: &Volume,
    mode: &Mode,
    created: &mut Vec<PathBuf>,
) -> io::Result<Storage> {
    let is_new = !fs::exists(path)?;
    if is_new && !mode.is_check() {
        created.push(path.to_path_buf());
    }
    Storage::open(path, volume.size_bytes, mode)
}
