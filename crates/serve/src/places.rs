//! The storage of volumes: extents of a pool, a file each, or ranges of an emulated drive.
//!
//! [`Places::place`] decides without changing anything. [`Places::make`] then creates and extends files, before the
//! engine knows of them. Once the contract file has the new sizes, [`Places::enlarge`] lists volumes as larger.
//! [`Places::finish`] truncates and removes. Requests for what is removed may still be in flight
//! then: a file keeps its data while it is open, and a pool gives room away only when no request can touch it. All of this
//! happens on the thread that changes the contracts, never on the reactor's.

pub mod admin;
mod consent;
mod damaged;
mod directory;
mod free;
pub(crate) mod kept;
mod made;
pub(crate) mod marker;
pub(crate) mod owners;
mod store_file;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, absolute};
use std::sync::Arc;

use iofair_config::contracts::{Back, Contracts, Volume};

use crate::back::uring::files::slot_base;
use crate::back::volume::{Map, PlannedVolume, Stamp, VolumeId};
use crate::consent::Consent;
use crate::error::ServeError;
use crate::file_system::free_beyond;
use crate::layout::{self, Layout};
use crate::pool::served::{self, Served};
use crate::pool::zeroing::Demand;
use crate::reactor::handle::ReactorHandle;
use crate::trial::Mode;
pub(crate) use consent::{Need, Needs, check, ctl};
pub(crate) use damaged::Damaged;
use directory::Directory;
pub(crate) use free::Free;
use kept::Kept;
use store_file::StoreFile;

/// Where volumes are.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// On an emulated drive, perhaps with a file, or in memory.
    Shared(Layout, Option<Arc<StoreFile>>),
    /// On the pool of a device or file.
    Pool(Served),
    /// In a file or on a device each.
    Own(Directory),
}

/// What a change has made for contracts that are not in force yet. Dropping it takes that back.
pub(crate) trait Revocable {
    /// The contracts are in force.
    fn keep(self);
}

impl Revocable for () {
    fn keep(self) {}
}

/// Several steps, the last first.
impl<A: Revocable, B: Revocable, C: Revocable> Revocable for (A, B, C) {
    fn keep(self) {
        let (last, middle, first) = self;
        last.keep();
        middle.keep();
        first.keep();
    }
}

/// What was made where volumes are.
#[derive(Debug)]
pub(crate) enum Made {
    Layout(layout::Made),
    Files(made::Made),
    Extents(served::Made),
}

impl Revocable for Made {
    fn keep(self) {
        match self {
            Self::Layout(made) => made.keep(),
            Self::Files(made) => made.keep(),
            Self::Extents(made) => made.keep(),
        }
    }
}

impl Places {
    /// Those of a new server.
    pub(crate) fn open(contracts: &Contracts, mode: &Mode) -> Result<Self, ServeError> {
        Ok(match &contracts.drive.back {
            Back::File(path) => Self::Pool(Served::open(contracts, path, mode)?),
            Back::Emulated(name) => match name.split_once('@') {
                Some((_, path)) => {
                    let (file, layout) = StoreFile::open(contracts, Path::new(path), mode)?;
                    Self::Shared(layout, Some(Arc::new(file)))
                }
                None => Self::Shared(Layout::default(), None),
            },
            Back::Memory(_) => Self::Shared(Layout::default(), None),
            Back::Directory(path) => Self::Own(Directory::open(contracts, path, mode)?),
        })
    }
    /// Finds every volume's place. Returns what needs consent, all of which was given.
    pub(crate) fn place(
        &mut self,
        contracts: &Contracts,
        consent: &Consent,
    ) -> Result<Vec<Need>, ServeError> {
        consent.check_names(contracts)?;
        match self {
            Self::Shared(layout, _) => {
                let foreign = |Volume { name, group, .. }: &Volume| {
                    let kept = layout.kept_for(name).filter(|kept| kept != group)?;
                    let why = format!(
                        "its data is kept for group \"{kept}\", and the contracts have it in group \"{group}\""
                    );
                    Some(Need { volume: name.clone(), needs: Needs::TakeOver, why })
                };
                let shorter = |volume: &Volume| {
                    let has = layout.larger(&volume.name, volume.size_bytes)?;
                    Some(Need::shrink(volume, has))
                };
                let needs = contracts.volumes.iter();
                let needs = needs
                    .flat_map(|volume| foreign(volume).into_iter().chain(shorter(volume)))
                    .collect();
                let needs = check(needs, contracts, consent, layout.is_running)?;
                layout.place(&contracts.volumes).map(|()| needs)
            }
            Self::Own(directory) => directory.place(contracts, consent),
            Self::Pool(pool) => pool.place(contracts, consent),
        }
    }
    /// Removed volumes whose data is kept, once [`Self::make`] has made those of the contracts.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        let mut all = match self {
            Self::Shared(layout, store) => {
                let path = store.as_ref().map(|store| store.path().to_path_buf());
                let kept = |(name, group, size_bytes): (&str, &str, u64)| Kept {
                    name: name.into(),
                    group: group.into(),
                    size_bytes,
                    path: path.clone(),
                    pool: None,
                    is_elsewhere: false,
                };
                layout.kept().map(kept).collect()
            }
            Self::Own(directory) => directory.kept(),
            Self::Pool(pool) => pool.kept(),
        };
        // For those who are in another directory.
        for path in all.iter_mut().flat_map(|kept| [&mut kept.path, &mut kept.pool]).flatten() {
            *path = absolute(&*path).unwrap_or_else(|_| path.clone());
        }
        all
    }
    /// The room for volumes. `capacity`: that of a shared drive.
    pub(crate) fn free(&self, capacity: Option<u64>) -> io::Result<Free> {
        let new = match self {
            Self::Shared(layout, store) => {
                let drive = capacity.unwrap_or(0).saturating_sub(layout.end());
                let file = store.as_ref().map(|store| free_beyond(store.file(), layout.end()));
                file.transpose()?.map_or(drive, |free| free.min(drive))
            }
            Self::Own(directory) => return directory.free(),
            Self::Pool(pool) => pool.free_bytes()?,
        };
        Ok(Free { new, elsewhere: Vec::new() })
    }
    /// Whether volumes may together be larger than the room for them, since files are sparse.
    pub(crate) fn is_sparse(&self) -> bool {
        match self {
            Self::Shared(_, store) => store.is_some(),
            Self::Own(_) => true,
            Self::Pool(pool) => !pool.storage().is_device(),
        }
    }
    /// The end of the last volume on a shared drive.
    pub(crate) fn end(&self) -> u64 {
        match self {
            Self::Shared(layout, _) => layout.end(),
            Self::Own(_) | Self::Pool(_) => 0,
        }
    }
    /// The file of an emulated drive.
    pub(crate) fn store(&self) -> Option<&fs::File> {
        match self {
            Self::Shared(_, Some(store)) => Some(store.file()),
            _ => None,
        }
    }
    /// Where a directory with a file per volume is, or what stands in for it in a check.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match self {
            Self::Own(directory) => Some(directory.path()),
            _ => None,
        }
    }
    /// Files that are not as they should be.
    pub(crate) fn damaged(&self) -> Vec<Damaged> {
        let only = match self {
            Self::Shared(_, None) => return Vec::new(),
            Self::Own(directory) => return directory.damaged(),
            Self::Shared(layout, Some(store)) => store.damaged(layout.end()),
            Self::Pool(served) => {
                let (storage, path) = (served.storage(), served.path());
                let damage = storage.damage(served.bytes());
                damage.map(|damage| Damaged::new(None, path, storage.file(), damage))
            }
        };
        only.into_iter().collect()
    }
    /// From now on requests of clients are served beside changes.
    pub(crate) fn run(&mut self) {
        match self {
            Self::Pool(pool) => pool.run(),
            Self::Own(directory) => directory.run(),
            Self::Shared(layout, _) => layout.is_running = true,
        }
    }
    /// The pool, if it is one.
    pub(crate) fn pool(&mut self) -> Option<&mut Served> {
        match self {
            Self::Pool(pool) => Some(pool),
            _ => None,
        }
    }
    /// [`Self::place`] of a running server for a dry run, after which [`Self::kept`] is as the change would make it. Room that must be
    /// zeroed before counts as room.
    pub(crate) fn try_out(
        &mut self,
        contracts: &Contracts,
        consent: &Consent,
        line: &ReactorHandle,
    ) -> Result<Vec<Need>, ServeError> {
        if let Self::Pool(pool) = self {
            consent.check_names(contracts)?;
            pool.release(line)?;
            return pool.try_out(contracts, consent);
        }
        let needs = self.place(contracts, consent)?;
        if let Self::Own(directory) = self {
            directory.list_anew(&contracts.volumes, consent);
        }
        Ok(needs)
    }
    /// What of a running server's pool must be zeroed before every volume has a place.
    pub(crate) fn lacking(
        &self,
        contracts: &Contracts,
        consent: &Consent,
        line: &ReactorHandle,
    ) -> Result<Vec<Demand>, ServeError> {
        let Self::Pool(pool) = self else { return Ok(Vec::new()) };
        pool.release(line)?;
        pool.lacking(contracts, consent)
    }
    /// Makes volumes and lengthens them, durably. None is listed as larger than before.
    pub(crate) fn make(
        &mut self,
        contracts: &Contracts,
        consent: &Consent,
    ) -> Result<Made, ServeError> {
        Ok(match self {
            Self::Shared(layout, store) => {
                let made = layout.save(false)?;
                if let Some(store) = store.as_ref().filter(|_| layout.is_saved()) {
                    store.mark();
                }
                Made::Layout(made)
            }
            Self::Own(directory) => Made::Files(directory.make(&contracts.volumes, consent)?),
            Self::Pool(pool) => Made::Extents(pool.make(false)?),
        })
    }
    /// The contract file has the sizes for which [`Self::make`] was called: so does the list.
    pub(crate) fn enlarge(&mut self) -> Result<Made, ServeError> {
        Ok(match self {
            Self::Shared(layout, _) => Made::Layout(layout.save(true)?),
            Self::Own(directory) => Made::Files(directory.enlarge()?),
            Self::Pool(pool) => Made::Extents(pool.make(true)?),
        })
    }
    /// These are in force again after `other` were, whose requests may be in flight.
    pub(crate) fn remember(&mut self, other: &Self) {
        if let (Self::Own(directory), Self::Own(other)) = (self, other) {
            directory.remember(other);
        }
    }
    /// Volumes for the engine.
    pub(crate) fn plan(&self, volumes: &[Volume]) -> Vec<PlannedVolume> {
        let planned = |volume: &Volume| {
            let linear = |base: u64| {
                // No two volumes that are there together begin at the same byte.
                (VolumeId(base.into()), Arc::new(Map::linear(base, volume.size_bytes)))
            };
            let ((id, map), storage) = match self {
                Self::Shared(layout, _) => {
                    let place = layout.find(&volume.name).expect("every volume was placed");
                    (linear(place.base), None)
                }
                Self::Own(directory) => {
                    let own = directory.find(volume).expect("every volume was placed");
                    (linear(slot_base(own.slot)), own.storage.upgrade())
                }
                Self::Pool(pool) => (pool.plan(volume), None),
            };
            let Volume { name, group, size_bytes, read_only, entry, .. } = volume.clone();
            let (size, stamp) = (size_bytes, Stamp::default());
            PlannedVolume { id, name, group, map, size, read_only, storage, entry, stamp }
        };
        volumes.iter().map(planned).collect()
    }
    /// The engine has taken the contracts over: cuts volumes that shall be shorter, and removes the data of deleted
    /// ones.
    pub(crate) fn finish(&mut self, new: &[Volume], consent: &Consent) -> Result<(), ServeError> {
        match self {
            Self::Shared(..) => Ok(()),
            Self::Own(directory) => directory.finish(new, &consent.delete),
            Self::Pool(pool) => pool.finish(&consent.delete),
        }
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
    /// Whether the data of these volumes, which `new` does not have any more, may be removed.
    pub(crate) fn check_removal(
        &self,
        old: &[Volume],
        new: &[Volume],
        remove: &[String],
    ) -> Result<(), ServeError> {
        for name in remove {
            let refuse = |message: &str| Err(ServeError::volume(name, message));
            let Some(volume) = old.iter().find(|volume| volume.name == *name) else {
                return refuse("it is not there");
            };
            if new.iter().any(|volume| volume.name == *name) {
                return refuse("its data cannot be removed while the contracts have it");
            }
            if matches!(self, Self::Shared(..)) {
                return refuse(
                    "its data is on an emulated drive or in memory, and cannot be deleted; the volume can be removed \
                     without deleting its data",
                );
            }
            if volume.path.is_some() {
                return refuse(
                    "the server did not create its file or device, and does not delete it",
                );
            }
        }
        Ok(())
    }
}
