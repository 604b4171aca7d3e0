//! A directory with one file per volume.
//!
//! The list in it ([`Owners`]) records the owner of each file, including files elsewhere, and files of volumes that are no longer
//! in the contracts: their data is kept for their group, and another group gets it only with consent. A file that the list has,
//! and that is missing, is made again only with consent, and so is data used that the list does not have.

use std::any::Any;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use iofair_config::contracts::{Contracts, Volume};
use iofair_core::unit::Count;

use super::free::Free;
use super::kept::Kept;
use super::life::{self, Location, VolumeStore};
use super::made::Made;
use super::own_file::{create, cut_off, refuse_link};
use super::owners::{Files, Home, Owner, Owners};
use super::{Consent, Damaged, Need, Needs, check, ctl};
use crate::back::Back;
use crate::back::uring::claim::{Around, identity_of, layers_of};
use crate::back::uring::files::{SLOTS_MAX, VOLUME_BYTES_MAX, slot_base};
use crate::back::uring::{Damage, Storage, Uring};
use crate::error::ServeError;
use crate::file_system::{FileSystem, allocated, has_data};
use crate::layout::sync_parent;
use crate::log;
use crate::pool::zeroing::Zeroing;
use crate::reactor::handle::ReactorHandle;
use crate::reserve::{Room, is_full};
use crate::trial::Mode;

/// A volume in a file of its own.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) slot: u64,
    /// What clients see of it.
    size: u64,
    /// What it had before the change that is being made.
    had: u64,
    /// Alive as long as a request may refer to it: until then, no other volume gets the slot.
    pub(super) storage: Weak<Storage>,
    /// Whether the contracts have it. If not, it is there for requests of clients that stayed.
    listed: bool,
    /// Its file was removed: a volume with its name is another one.
    removed: bool,
}

impl Own {
    /// Whether the file is not at its path any more.
    fn is_gone(&self) -> bool {
        let damage = self.storage.upgrade().and_then(|storage| storage.damage(self.size));
        matches!(damage, Some(Damage::Removed | Damage::Moved))
    }
    /// Whether a change makes its open file longer. One that somebody has cut off stays as it is: zeroes at its end would hide
    /// that from the next start.
    fn grows(
        &self,
        storage: &Storage,
        volume: &Volume,
        consent: &Consent,
    ) -> Result<bool, ServeError> {
        let (Volume { name, size_bytes: wanted, .. }, path) = (volume, self.path.display());
        let what = || ServeError::system(path.to_string());
        let cut = storage.cut(self.size).map_err(what())?;
        let Some(bytes) = cut.filter(|_| !consent.take_over.contains(name)) else {
            return Ok(storage.length().map_err(what())? < *wanted || cut.is_some());
        };
        if *wanted <= self.size {
            return Ok(false);
        }
        let message = format!(
            "{path} was truncated to {}, and does not grow: restore it from a backup, and restart the server",
            Count(bytes, "byte")
        );
        Err(ServeError::volume(name, message))
    }
}

/// A directory with a file a volume.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    home: Arc<Home>,
    /// Its list; in a check, as it would be.
    list: Arc<Owners>,
    own: Vec<Own>,
    /// Where in the list the volumes are that may be found, by name and path.
    index: BTreeMap<(String, PathBuf), usize>,
    /// The directories around files elsewhere.
    around: Around,
    mode: Mode,
    /// Requests of clients are served beside changes.
    is_running: bool,
}

impl Directory {
    pub(super) fn open(
        contracts: &Contracts,
        path: &Path,
        mode: &Mode,
    ) -> Result<Self, ServeError> {
        let home = Home::open(contracts, path, mode)?;
        let (path, index, mode) = (path.to_path_buf(), BTreeMap::new(), mode.clone());
        let (home, list, own) = (Arc::new(home), Arc::default(), Vec::new());
        let (around, is_running) = (Around::default(), false);
        let mut this = Self { path, home, list, own, index, around, mode, is_running };
        this.list = Arc::new(this.home.owners());
        Ok(this)
    }
    fn file(&self, volume: &Volume) -> PathBuf {
        volume.path.clone().unwrap_or_else(|| self.own_file(&volume.name))
    }
    fn own_file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.img"))
    }
    fn find(&self, volume: &Volume) -> Option<&Own> {
        self.position(volume).map(|index| &self.own[index])
    }
    fn position(&self, volume: &Volume) -> Option<usize> {
        self.index.get(&(volume.name.clone(), self.file(volume))).copied()
    }
    fn build_index(&mut self) {
        let found = self.own.iter().enumerate().filter(|(_, own)| !own.removed);
        self.index =
            found.map(|(index, own)| ((own.name.clone(), own.path.clone()), index)).collect();
    }
    /// Makes the list as it is with these volumes.
    fn list_anew(&mut self, volumes: &[Volume], consent: &Consent) {
        self.list = Arc::new(self.owners_of(volumes, consent));
    }
    /// Replaces the list. Returns what it was, if it changed.
    fn save(&self, owners: &Owners) -> Result<Option<(Arc<Home>, Owners)>, ServeError> {
        let is_saved = self.home.is_saved(owners);
        if let Some(trial) = self.mode.trial() {
            if !is_saved {
                drop(trial.stand_in(&self.home.fresh()).map_err(self.home.system())?);
            }
            return Ok(None);
        }
        let mut before = None;
        if !is_saved {
            let old = self.home.owners();
            match self.home.save(owners, Room::for_change(owners.live(), old.live())) {
                Ok(()) => before = Some((Arc::clone(&self.home), old)),
                Err(error) if is_full(&error) && owners.only_completes(&old) => {
                    let message =
                        format!("the list of volumes stays that of an earlier version: {error}");
                    log::tell("pool", &message);
                }
                Err(error) => return Err(self.home.system()(error)),
            }
        }
        self.home.mark();
        self.home.reserve();
        Ok(before)
    }
    /// The list for these volumes.
    fn owners_of(&self, volumes: &[Volume], consent: &Consent) -> Owners {
        let before = self.home.owners();
        let (files, mut owners) = (before.files(), before.clone());
        owners.forget_deleted(self.home.path());
        for (name, owner) in &mut owners.volumes {
            (owner.kept, owner.deleting) = (true, consent.delete.contains(name));
        }
        owners.paths.values_mut().for_each(|owner| owner.kept = true);
        let elsewhere = volumes.iter().filter_map(|volume| volume.path.as_deref());
        for known in elsewhere.filter_map(|path| files.find(path)) {
            owners.paths.remove(known);
        }
        for volume in volumes {
            let Volume { name, group, path, size_bytes, .. } = volume;
            let (group, bytes) = (group.clone(), *size_bytes);
            let file =
                self.find(volume).and_then(|own| own.storage.upgrade()).and_then(|storage| {
                    let found = storage.file().metadata().ok()?;
                    layers_of(&found).first()?.birth
                });
            let (volume, kept, deleting) = (String::new(), false, false);
            let owner = Owner { volume, group, bytes, file, kept, deleting };
            match path {
                Some(path) => {
                    owners.paths.insert(path.clone(), Owner { volume: name.clone(), ..owner })
                }
                None => owners.volumes.insert(name.clone(), owner),
            };
        }
        // An earlier version did not say whose they are.
        owners.paths.retain(|_, owner| !owner.group.is_empty());
        owners
    }
    /// Whether its file is another group's, or nobody knows whose.
    fn foreign(&self, volume: &Volume, listed: Option<&Owner>) -> Option<Need> {
        let Volume { name, group, path, .. } = volume;
        let file = self.file(volume);
        if !file.exists() {
            return None;
        }
        let what = match listed {
            Some(owner) if owner.group.is_empty() || owner.group == *group => return None,
            Some(Owner { group, kept: true, .. }) => format!("is kept for group \"{group}\""),
            Some(Owner { volume, group, .. }) if path.is_some() && volume != name => {
                format!("is volume \"{volume}\" of group \"{group}\"")
            }
            // One that is there as a crash has left it is empty.
            None if path.is_none() && has_data(&file).unwrap_or(true) => {
                "has data, and is not in the pool's list of volumes: it may be any group's".into()
            }
            _ => return None,
        };
        let why =
            format!("{} {what}, and the contracts have it in group \"{group}\"", file.display());
        Some(Need { volume: name.clone(), needs: Needs::TakeOver, why })
    }
    /// Whether its file was another volume's when the list was written.
    fn exchanged(
        &self,
        volume: &Volume,
        listed: Option<&Owner>,
        files: &Files<'_>,
    ) -> Option<Need> {
        let file = self.file(volume);
        let (name, owner) = files.was(&file).filter(|_| !self.is_open(volume))?;
        if listed.is_some_and(|listed| listed.file == owner.file) {
            return None;
        }
        let why = format!(
            "{} was the file of volume \"{name}\" of group \"{}\" before: put the right one back, or begin with its data",
            file.display(),
            owner.group
        );
        Some(Need { volume: volume.name.clone(), needs: Needs::TakeOver, why })
    }
    fn is_open(&self, volume: &Volume) -> bool {
        self.find(volume).is_some_and(|own| own.storage.strong_count() > 0)
    }
    /// Volumes that go, and whose data would be lost since somebody has removed the file. It is an error if data is to be deleted
    /// and its file was moved.
    fn lost(&self, contracts: &Contracts, consent: &Consent) -> Result<Vec<Need>, ServeError> {
        let mut needs = Vec::new();
        let stay = contracts.volumes.iter().filter_map(|volume| self.position(volume));
        let stay: BTreeSet<usize> = stay.collect();
        let goes = self.index.values().filter(|index| !stay.contains(*index));
        for own in goes.map(|index| &self.own[*index]) {
            let storage = own.storage.upgrade();
            let damage = storage.and_then(|storage| storage.damage(own.size));
            let path = own.path.display();
            if consent.delete.contains(&own.name) {
                refuse_link(&own.name, &own.path)?;
            }
            let is_removed = match (damage, consent.delete.contains(&own.name)) {
                // The server does not keep data elsewhere.
                (Some(Damage::Removed), _) if own.path != self.own_file(&own.name) => continue,
                (Some(Damage::Removed), _) => true,
                (Some(Damage::Moved), true) => false,
                _ => continue,
            };
            // Or all of the directory was moved.
            self.check_place()?;
            if !is_removed {
                let message = format!(
                    "{path} was moved, so its data is not deleted: put it back, or remove the volume without --delete-data"
                );
                return Err(ServeError::volume(&own.name, message));
            }
            let why = format!(
                "{path} was removed, so its data cannot be kept: save it as `{} status` says, or give it up",
                ctl(contracts)
            );
            needs.push(Need { volume: own.name.clone(), needs: Needs::Delete, why });
        }
        Ok(needs)
    }
    /// Whether its file was there and is not any more, or was longer.
    fn missing(&self, volume: &Volume, listed: Option<u64>) -> Result<Option<Need>, ServeError> {
        let name = &volume.name;
        let file = self.file(volume);
        let is_served = self.find(volume).is_some_and(|own| own.listed);
        let Some(bytes) = listed.filter(|_| !is_served) else { return Ok(None) };
        let what = match fs::metadata(&file) {
            Ok(there) if there.is_file() && there.len() < bytes => format!(
                "has {}, although this volume had {bytes}: it was cut off, or is another file.",
                Count(there.len(), "byte")
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "is missing, although it was this volume: is its file system mounted?".into()
            }
            found => {
                let found = found.map_err(ServeError::system(file.display().to_string()));
                return found.map(|_| None);
            }
        };
        let why = format!(
            "{} {what} Put the right one back, or begin with zeroes for what is missing",
            file.display()
        );
        Ok(Some(Need { volume: name.clone(), needs: Needs::TakeOver, why }))
    }
    /// Whether the directory is still at its path.
    fn check_place(&self) -> Result<(), ServeError> {
        let place = self.home.check_place();
        place.map_err(ServeError::system(self.path.display().to_string()))
    }
    /// How much a volume has. What others have appended to a file is not the volume's.
    fn has(&self, volume: &Volume, listed: Option<u64>) -> u64 {
        let stored = || {
            let metadata = fs::metadata(self.file(volume)).ok()?;
            (volume.path.is_none() && metadata.is_file()).then_some(metadata.len())
        };
        let known = self.find(volume).map(|own| own.size).or(listed.filter(|bytes| *bytes > 0));
        known.or_else(stored).unwrap_or(0)
    }
    fn remove(&mut self, name: &str) -> Result<(), ServeError> {
        self.check_place()?;
        for own in self.own.iter_mut().filter(|own| own.name == name) {
            own.removed = true;
        }
        self.build_index();
        let path = self.own_file(name);
        let removed = match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        let removed = removed.and_then(|()| sync_parent(&path));
        removed.map_err(ServeError::system(path.display().to_string()))?;
        let mut owners = self.home.owners();
        owners.volumes.remove(name);
        match self.home.save(&owners, Room::Reserved) {
            Ok(()) => self.home.reserve(),
            // The list says that the file may be gone; the next change writes it again.
            Err(error) if is_full(&error) => {
                log::tell("pool", &format!("the list of volumes could not be shortened: {error}"));
            }
            Err(error) => return Err(self.home.system()(error)),
        }
        Ok(())
    }
}

impl VolumeStore for Directory {
    fn copy(&self) -> Box<dyn VolumeStore> {
        Box::new(self.clone())
    }
    fn open_back(&mut self, contracts: &Contracts) -> Result<Box<dyn Back>, ServeError> {
        // In a check, what stands in for it.
        let back = Uring::directory(self.home.path(), contracts.drive.rotational);
        Ok(Box::new(back.map_err(ServeError::system(self.path.display().to_string()))?))
    }
    fn place(&mut self, contracts: &Contracts, consent: &Consent) -> Result<Vec<Need>, ServeError> {
        let volumes = contracts.volumes.as_slice();
        self.own.retain(|own| own.storage.strong_count() > 0);
        for own in self.own.iter_mut().filter(|own| !own.listed) {
            own.removed |= own.is_gone();
        }
        self.build_index();
        let mut needs = self.lost(contracts, consent)?;
        let owners = self.home.owners();
        let files = owners.files();
        let taken: BTreeSet<u64> = self.own.iter().map(|own| own.slot).collect();
        let mut free = (0..SLOTS_MAX).filter(|slot| !taken.contains(slot));
        for volume in volumes {
            if volume.size_bytes > VOLUME_BYTES_MAX {
                let message = format!("a volume has at most {VOLUME_BYTES_MAX} bytes here");
                return Err(ServeError::volume(&volume.name, message));
            }
            let listed = match &volume.path {
                Some(path) => {
                    let at_path = owners.paths.get(files.find(path).unwrap_or(path));
                    // One of the pool is not its volume's any more.
                    let moved = || files.was(path).filter(|(_, owner)| !owner.volume.is_empty());
                    at_path.or_else(|| moved().map(|(_, owner)| owner))
                }
                None => owners.volumes.get(&volume.name),
            };
            if volume.path.is_none() && !self.is_open(volume) {
                refuse_link(&volume.name, &self.file(volume))?;
            }
            let exchanged = || self.exchanged(volume, listed, &files);
            needs.extend(self.foreign(volume, listed).or_else(exchanged));
            let listed = listed.filter(|one| !one.deleting);
            let bytes = listed.map(|owner| owner.bytes);
            needs.extend(self.missing(volume, bytes)?);
            let had = self.has(volume, bytes);
            needs.extend((had > volume.size_bytes).then(|| Need::shrink(volume, had)));
            if let Some(index) = self.position(volume) {
                self.own[index].had = had;
                continue;
            }
            let Some(slot) = free.next() else {
                return Err(ServeError::volume(&volume.name, "too many volumes"));
            };
            let (name, path) = (volume.name.clone(), self.file(volume));
            let size = volume.size_bytes;
            self.index.insert((name.clone(), path.clone()), self.own.len());
            let (storage, listed, removed) = (Weak::new(), true, false);
            self.own.push(Own { name, path, slot, size, had, storage, listed, removed });
        }
        check(needs, contracts, consent, self.is_running)
    }
    fn try_out(
        &mut self,
        contracts: &Contracts,
        consent: &Consent,
        _: &ReactorHandle,
    ) -> Result<Vec<Need>, ServeError> {
        let needs = self.place(contracts, consent)?;
        self.list_anew(&contracts.volumes, consent);
        Ok(needs)
    }
    fn make(&mut self, volumes: &[Volume], consent: &Consent) -> Result<life::Made, ServeError> {
        let (mut made, mut fresh) = (Made::default(), BTreeMap::new());
        self.own.iter_mut().for_each(|own| own.listed = false);
        let open = self.own.iter().filter_map(|own| Some((own.storage.upgrade()?, &own.name)));
        let mut identities: BTreeMap<(u64, u64), String> =
            open.map(|(storage, name)| (storage.identity(), name.clone())).collect();
        for volume in volumes {
            let index = self.position(volume).expect("every volume was placed");
            let own = &self.own[index];
            let what = || ServeError::system(own.path.display().to_string());
            let (storage, length) = match own.storage.upgrade() {
                Some(storage) => {
                    let mut length = None;
                    if own.grows(&storage, volume, consent)? {
                        self.check_place()?;
                        length = Some(storage.length().map_err(what())?);
                        storage.lengthen(volume.size_bytes).map_err(what())?;
                    }
                    (storage, length)
                }
                None => {
                    self.check_place()?;
                    refuse_twin(own, &identities)?;
                    refuse_fresh_twin(own, &mut fresh)?;
                    let length = fs::metadata(&own.path).ok().map(|file| file.len());
                    let around = match volume.path {
                        Some(_) => self.around.lock(&own.path, &self.mode).map_err(what())?,
                        None => None,
                    };
                    let created = create(&own.path, volume, &self.mode, &mut made.created);
                    (Arc::new(created.map_err(what())?.keeping(around)), length)
                }
            };
            let bytes = volume.size_bytes;
            let shorter = length.filter(|length| *length < bytes && !storage.is_device());
            if let Some(length) = shorter.filter(|_| !self.mode.is_check()) {
                made.grown.push((Arc::clone(&storage), length, bytes));
            }
            identities.insert(storage.identity(), own.name.clone());
            let own = &mut self.own[index];
            (own.storage, own.size) = (Arc::downgrade(&storage), volume.size_bytes);
            own.listed = true;
            made.opened.push(storage);
        }
        let parents: BTreeSet<_> = made.created.iter().map(|path| path.parent()).collect();
        for path in parents.into_iter().flatten().map(|parent| parent.join(".")) {
            sync_parent(&path).map_err(ServeError::system(path.display().to_string()))?;
        }
        self.list_anew(volumes, consent);
        let first = self.list.not_larger(&self.home.owners());
        made.owners = self.save(&first)?;
        Ok(Box::new(made))
    }
    fn enlarge(&mut self) -> Result<life::Made, ServeError> {
        let mut made = Made::default();
        made.owners = self.save(&self.list)?;
        Ok(Box::new(made))
    }
    fn plan(&self, volume: &Volume) -> Location {
        let own = self.find(volume).expect("every volume was placed");
        let storage = own.storage.upgrade();
        Location { storage, ..Location::linear(slot_base(own.slot), volume.size_bytes) }
    }
    fn finish(&mut self, new: &[Volume], consent: &Consent) -> Result<(), ServeError> {
        for volume in new {
            let Some(own) = self.find(volume).filter(|own| own.had > volume.size_bytes) else {
                continue;
            };
            if let Some(storage) = own.storage.upgrade() {
                let cut = cut_off(&storage, volume.size_bytes, own.had);
                cut.map_err(ServeError::system(own.path.display().to_string()))?;
            }
        }
        consent.delete.iter().try_for_each(|name| self.remove(name))
    }
    fn run(&mut self, _: &ReactorHandle) -> Result<Option<Zeroing>, ServeError> {
        self.is_running = true;
        Ok(None)
    }
    fn remember(&mut self, other: &dyn VolumeStore) {
        let other: &dyn Any = other;
        let other: &Self = other.downcast_ref().expect("a back end stays of its kind");
        let known: BTreeSet<u64> = self.own.iter().map(|own| own.slot).collect();
        let more = other.own.iter().filter(|own| !known.contains(&own.slot));
        self.own.extend(more.map(|own| Own { listed: false, ..own.clone() }));
    }
    fn kept(&self) -> Vec<Kept> {
        let Owners { volumes, paths, .. } = &*self.list;
        let own = volumes.iter().map(|(name, owner)| (name, owner, self.own_file(name), false));
        let elsewhere =
            paths.iter().map(|(path, owner)| (&owner.volume, owner, path.clone(), true));
        let all = own.chain(elsewhere).filter(|(_, owner, ..)| owner.kept && !owner.deleting);
        let kept = |(name, owner, path, is_elsewhere): (&String, &Owner, PathBuf, bool)| Kept {
            name: name.clone(),
            group: owner.group.clone(),
            size_bytes: owner.bytes,
            path: Some(path),
            pool: (!is_elsewhere).then(|| self.path.clone()),
            is_elsewhere,
        };
        all.map(kept).collect()
    }
    fn free(&self) -> io::Result<Free> {
        let here = fs::metadata(&self.path)?.dev();
        let own = (self.path.clone(), FileSystem::query(&self.path)?.free);
        let mut systems = BTreeMap::from([(here, own)]);
        for own in self.own.iter().filter(|own| !own.removed) {
            let storage = own.storage.upgrade();
            let Some(storage) = storage.filter(|storage| !storage.is_device()) else { continue };
            let (_, free) = match systems.entry(storage.identity().0) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let directory = own.path.parent().unwrap_or(&own.path);
                    new.insert((directory.into(), FileSystem::of(storage.file())?.free))
                }
            };
            *free = free.saturating_sub(own.size.saturating_sub(allocated(storage.file())?));
        }
        let (_, new) = systems.remove(&here).expect("it is there");
        Ok(Free { new, here: Some(here), elsewhere: systems.into_values().collect() })
    }
    fn is_sparse(&self) -> bool {
        true
    }
    fn damaged(&self) -> Vec<Damaged> {
        let damaged = |own: &Own| {
            let storage = own.storage.upgrade()?;
            let damage = storage.damage(own.size)?;
            Some(Damaged::new(Some(own.name.clone()), &own.path, storage.file(), damage))
        };
        self.own.iter().filter(|own| !own.removed).filter_map(damaged).collect()
    }
}

/// Whether a volume's file already belongs to another volume, under any path.
fn refuse_twin(own: &Own, identities: &BTreeMap<(u64, u64), String>) -> Result<(), ServeError> {
    let Ok(metadata) = fs::metadata(&own.path) else { return Ok(()) };
    identities.get(&identity_of(&metadata)).map_or(Ok(()), |twin| Err(is_twin(own, twin)))
}

/// The same of a file that is not there yet: a check makes none.
fn refuse_fresh_twin(own: &Own, fresh: &mut BTreeMap<PathBuf, String>) -> Result<(), ServeError> {
    let (Some(above), Some(name)) = (own.path.parent(), own.path.file_name()) else {
        return Ok(());
    };
    let Ok(above) = fs::canonicalize(above) else { return Ok(()) };
    let twin = fresh.insert(above.join(name), own.name.clone());
    twin.map_or(Ok(()), |twin| Err(is_twin(own, &twin)))
}

fn is_twin(own: &Own, twin: &str) -> ServeError {
    let path = own.path.display();
    let message = format!("{path} is volume \"{twin}\" already, which may still have clients");
    ServeError::volume(&own.name, message)
}
