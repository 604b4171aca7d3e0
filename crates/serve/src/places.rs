//! The storage of volumes: extents of a pool, a file each, or ranges of an emulated drive.
//!
//! [`life`] says how the server drives it.

pub mod admin;
mod consent;
mod damaged;
mod directory;
pub(crate) mod free;
pub(crate) mod kept;
pub(crate) mod life;
mod made;
pub(crate) mod marker;
mod own_file;
pub(crate) mod owners;
mod ranges;
pub(crate) mod revocable;
mod store_file;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::absolute;

use iofair_config::contracts::{Back, Contracts, Volume};

use crate::back;
use crate::back::faulty::Faulty;
use crate::back::volume::{PlannedVolume, Stamp};
use crate::consent::Consent;
use crate::error::ServeError;
use crate::pool::served::Served;
use crate::reactor::handle::ReactorHandle;
use crate::trial::Mode;
pub(crate) use consent::{Need, Needs, check, ctl};
pub(crate) use damaged::Damaged;
use directory::Directory;
pub(crate) use free::Free;
use kept::Kept;
use life::{Location, VolumeStore};
use ranges::Ranges;

/// Where volumes are.
#[derive(Debug)]
pub(crate) struct Places(Box<dyn VolumeStore>);

impl Clone for Places {
    fn clone(&self) -> Self {
        Self(self.0.copy())
    }
}

impl Deref for Places {
    type Target = dyn VolumeStore;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for Places {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

impl Places {
    /// Those of a new server: a row for each kind of back end.
    pub(crate) fn open(contracts: &Contracts, mode: &Mode) -> Result<Self, ServeError> {
        Ok(Self(match &contracts.drive.back {
            Back::File(path) => Box::new(Served::open(contracts, path, mode)?),
            Back::Directory(path) => Box::new(Directory::open(contracts, path, mode)?),
            Back::Emulated { profile, file } => {
                Box::new(Ranges::emulated(contracts, profile, file.as_deref(), mode)?)
            }
            Back::Memory(bytes) => Box::new(Ranges::memory(*bytes)),
        }))
    }
    /// What executes commands, with faults in front of it if they are asked for.
    pub(crate) fn open_back(
        &mut self,
        contracts: &Contracts,
    ) -> Result<Box<dyn back::Back>, ServeError> {
        let back = self.0.open_back(contracts)?;
        Ok(if contracts.drive.faulty { Box::new(Faulty::new(back)) } else { back })
    }
    /// [`VolumeStore::place`].
    pub(crate) fn place(
        &mut self,
        contracts: &Contracts,
        consent: &Consent,
    ) -> Result<Vec<Need>, ServeError> {
        consent.check_names(contracts)?;
        self.0.place(contracts, consent)
    }
    /// [`VolumeStore::try_out`].
    pub(crate) fn try_out(
        &mut self,
        contracts: &Contracts,
        consent: &Consent,
        line: &ReactorHandle,
    ) -> Result<Vec<Need>, ServeError> {
        consent.check_names(contracts)?;
        self.0.try_out(contracts, consent, line)
    }
    /// [`VolumeStore::kept`].
    pub(crate) fn kept(&self) -> Vec<Kept> {
        let mut all = self.0.kept();
        // For those who are in another directory.
        for path in all.iter_mut().flat_map(|kept| [&mut kept.path, &mut kept.pool]).flatten() {
            *path = absolute(&*path).unwrap_or_else(|_| path.clone());
        }
        all
    }
    /// Whether the data of a removed volume of this name is kept, and can be deleted.
    pub(crate) fn keeps(&self, name: &str) -> bool {
        self.kept().iter().any(|kept| kept.name == name && kept.pool.is_some())
    }
    /// Volumes for the engine.
    pub(crate) fn plan(&self, volumes: &[Volume]) -> Vec<PlannedVolume> {
        let planned = |volume: &Volume| {
            let Location { id, map, storage } = self.0.plan(volume);
            let Volume { name, group, size_bytes, read_only, entry, .. } = volume.clone();
            let (size, stamp) = (size_bytes, Stamp::default());
            PlannedVolume { id, name, group, map, size, read_only, storage, entry, stamp }
        };
        volumes.iter().map(planned).collect()
    }
    /// Refuses volumes that are new or get another size in a file that somebody has removed or moved: that would be lost
    /// with the file.
    pub(crate) fn check_files(&self, old: &[Volume], new: &[Volume]) -> Result<(), ServeError> {
        let before: BTreeMap<&str, u64> =
            old.iter().map(|volume| (volume.name.as_str(), volume.size_bytes)).collect();
        let has = |volume: &Volume| before.get(volume.name.as_str()).copied();
        let changed = |volume: &&Volume| has(volume) != Some(volume.size_bytes);
        let mut changed = new.iter().filter(changed).peekable();
        if changed.peek().is_none() {
            return Ok(());
        }
        let mut damaged = self.damaged();
        damaged.retain(Damaged::is_gone);
        for volume in changed {
            let is_in = |file: &&Damaged| match &file.volume {
                Some(name) => *name == volume.name && has(volume).is_some(),
                None => true,
            };
            if let Some(file) = damaged.iter().find(is_in) {
                return Err(ServeError::volume(&volume.name, file.message()));
            }
        }
        Ok(())
    }
    /// Whether the data of these volumes, which `new` does not have any more, may be removed. It may be kept since before.
    pub(crate) fn check_removal(
        &self,
        old: &[Volume],
        new: &[Volume],
        remove: &[String],
    ) -> Result<(), ServeError> {
        for name in remove {
            let refuse = |message: &str| Err(ServeError::volume(name, message));
            let volume = old.iter().find(|volume| volume.name == *name);
            if volume.is_none() && !self.keeps(name) {
                return refuse("it is not there");
            }
            if new.iter().any(|volume| volume.name == *name) {
                return refuse("its data cannot be removed while the contracts have it");
            }
            self.check_delete(name)?;
            if volume.is_some_and(|volume| volume.path.is_some()) {
                return refuse(
                    "the server did not create its file or device, and does not delete it",
                );
            }
        }
        Ok(())
    }
}
