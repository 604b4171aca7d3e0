//! Where volumes are: places on a drive that they share, or a file each.
//!
//! [`Places::place`] decides without touching anything; [`Places::make`] then makes files and lengthens
//! them, before the engine knows of them; [`Places::finish`] shortens and removes, after no request can meet
//! what goes. All of it happens on the thread of whoever changes the contracts, never on the reactor's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use iofair_config::contracts::{Back, Contracts, Volume};

use crate::back::uring::Storage;
use crate::back::uring::files::{SLOTS_MAX, VOLUME_BYTES_MAX, slot_base};
use crate::back::volume::{Map, PlannedVolume, Stamp, VolumeId};
use crate::error::ServeError;
use crate::layout::{Layout, sync_parent};

/// Where volumes are.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// On a drive that they share.
    Shared(Layout),
    /// In a file or on a device each.
    Own(Directory),
}

/// A volume in a file of its own.
#[derive(Clone, Debug)]
struct Own {
    name: String,
    path: PathBuf,
    slot: u64,
    /// Alive as long as a request may meet it: so long nobody else gets the slot.
    storage: Weak<Storage>,
    /// Its file was removed: a volume with its name is another one.
    removed: bool,
}

/// A directory with a file a volume.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    own: Vec<Own>,
}

/// Files that were made or opened for contracts that are not in force yet. Dropping it removes those that
/// were made.
#[derive(Debug, Default)]
pub(crate) struct Made {
    opened: Vec<Arc<Storage>>,
    created: Vec<PathBuf>,
}

impl Made {
    /// The contracts are in force.
    pub(crate) fn keep(mut self) {
        self.created.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.created {
            // It is empty, and what cannot be removed harms nobody.
            let _ = fs::remove_file(path);
        }
    }
}

impl Places {
    /// Those of a new server.
    pub(crate) fn open(contracts: &Contracts) -> Result<Self, ServeError> {
        Ok(match &contracts.drive.back {
            Back::File(path) if is_device(path) => Self::Shared(Layout::in_order()),
            Back::File(path) => Self::Shared(Layout::beside(path)?),
            Back::Emulated(name) => match name.split_once('@') {
                Some((_, path)) => Self::Shared(Layout::beside(Path::new(path))?),
                None => Self::Shared(Layout::default()),
            },
            Back::Memory(_) => Self::Shared(Layout::default()),
            Back::Directory(path) => {
                let path = path.clone();
                Self::Own(Directory { path, own: Vec::new() })
            }
        })
    }
    /// Finds every volume's place.
    pub(crate) fn place(&mut self, volumes: &[Volume]) -> Result<(), ServeError> {
        match self {
            Self::Shared(layout) => layout.place(volumes),
            Self::Own(directory) => directory.place(volumes),
        }
    }
    /// The end of the last volume on a shared drive.
    pub(crate) fn end(&self) -> u64 {
        match self {
            Self::Shared(layout) => layout.end(),
            Self::Own(_) => 0,
        }
    }
    /// Makes and lengthens files, durably.
    pub(crate) fn make(&mut self, contracts: &Contracts) -> Result<Made, ServeError> {
        match self {
            Self::Shared(layout) => {
                if let Back::File(path) = &contracts.drive.back {
                    lengthen(path, layout.end())
                        .map_err(ServeError::system(path.display().to_string()))?;
                }
                layout.save()?;
                Ok(Made::default())
            }
            Self::Own(directory) => directory.make(&contracts.volumes),
        }
    }
    /// Volumes for the engine.
    pub(crate) fn plan(&self, volumes: &[Volume]) -> Vec<PlannedVolume> {
        let planned = |volume: &Volume| {
            let (base, storage) = match self {
                Self::Shared(layout) => {
                    (layout.find(&volume.name).expect("every volume was placed").base, None)
                }
                Self::Own(directory) => {
                    let own = directory.find(volume).expect("every volume was placed");
                    (slot_base(own.slot), own.storage.upgrade())
                }
            };
            let Volume { name, group, size_bytes, read_only, entry, .. } = volume.clone();
            let (size, stamp) = (size_bytes, Stamp::default());
            // No two volumes that are there together begin at the same byte.
            let (id, map) = (VolumeId(base.into()), Arc::new(Map::linear(base, size)));
            PlannedVolume { id, name, group, map, size, read_only, storage, entry, stamp }
        };
        volumes.iter().map(planned).collect()
    }
    /// The engine has taken the contracts over: cuts the files of volumes that became shorter, and removes
    /// those of deleted volumes, so named.
    pub(crate) fn finish(
        &mut self,
        old: &[Volume],
        new: &[Volume],
        remove: &[String],
    ) -> Result<(), ServeError> {
        let Self::Own(directory) = self else { return Ok(()) };
        for volume in new {
            let shorter = old.iter().any(|old| {
                old.name == volume.name
                    && old.path == volume.path
                    && old.size_bytes > volume.size_bytes
            });
            let own = directory.find(volume).filter(|_| shorter);
            if let Some(own) = own
                && let Some(storage) = own.storage.upgrade()
            {
                let cut = storage.shorten(volume.size_bytes);
                cut.map_err(ServeError::system(own.path.display().to_string()))?;
            }
        }
        remove.iter().try_for_each(|name| directory.remove(name))
    }
    /// May the data of these volumes be removed, which `new` does not have any more?
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
            if matches!(self, Self::Shared(_)) {
                return refuse("its data lies on a drive that volumes share, and stays there");
            }
            if volume.path.is_some() {
                return refuse("what it lies on was not made here, and is not removed here");
            }
        }
        Ok(())
    }
}

impl Directory {
    fn file(&self, volume: &Volume) -> PathBuf {
        let own = || self.path.join(format!("{}.img", volume.name));
        volume.path.clone().unwrap_or_else(own)
    }
    fn find(&self, volume: &Volume) -> Option<&Own> {
        let path = self.file(volume);
        let is = |own: &&Own| !own.removed && own.name == volume.name && own.path == path;
        self.own.iter().find(is)
    }
    fn place(&mut self, volumes: &[Volume]) -> Result<(), ServeError> {
        self.own.retain(|own| own.storage.strong_count() > 0);
        for volume in volumes {
            if volume.size_bytes > VOLUME_BYTES_MAX {
                let message = format!("a volume has at most {VOLUME_BYTES_MAX} bytes here");
                return Err(ServeError::volume(&volume.name, message));
            }
            if self.find(volume).is_some() {
                continue;
            }
            let taken = |slot: &u64| self.own.iter().any(|own| own.slot == *slot);
            let Some(slot) = (0..SLOTS_MAX).find(|slot| !taken(slot)) else {
                return Err(ServeError::volume(&volume.name, "too many volumes"));
            };
            let (name, path) = (volume.name.clone(), self.file(volume));
            self.own.push(Own { name, path, slot, storage: Weak::new(), removed: false });
        }
        Ok(())
    }
    fn make(&mut self, volumes: &[Volume]) -> Result<Made, ServeError> {
        let mut made = Made::default();
        for volume in volumes {
            let own = self.find(volume).expect("every volume was placed");
            let what = || ServeError::system(own.path.display().to_string());
            let storage = match own.storage.upgrade() {
                Some(storage) => {
                    storage.lengthen(volume.size_bytes).map_err(what())?;
                    storage
                }
                None => {
                    self.refuse_twin(own)?;
                    Arc::new(create(&own.path, volume, &mut made.created).map_err(what())?)
                }
            };
            let slot = own.slot;
            let place = self.own.iter_mut().find(|own| own.slot == slot).expect("just found");
            place.storage = Arc::downgrade(&storage);
            made.opened.push(storage);
        }
        Ok(made)
    }
    /// Is what a volume would lie on another one's already, by whatever path?
    fn refuse_twin(&self, own: &Own) -> Result<(), ServeError> {
        let Ok(metadata) = fs::metadata(&own.path) else { return Ok(()) };
        let identity = Storage::identity_of(&metadata);
        let twin = |other: &&Own| {
            other.storage.upgrade().is_some_and(|storage| storage.identity() == identity)
        };
        let Some(twin) = self.own.iter().find(twin) else { return Ok(()) };
        let message = format!(
            "{} is volume \"{}\" already, which may still have clients",
            own.path.display(),
            twin.name
        );
        Err(ServeError::volume(&own.name, message))
    }
    fn remove(&mut self, name: &str) -> Result<(), ServeError> {
        for own in self.own.iter_mut().filter(|own| own.name == name) {
            own.removed = true;
        }
        let path = self.path.join(format!("{name}.img"));
        let removed = fs::remove_file(&path).and_then(|()| sync_parent(&path));
        removed.map_err(ServeError::system(path.display().to_string()))
    }
}

/// Opens a volume's file, made and durable in its directory if it was not there.
fn create(path: &Path, volume: &Volume, created: &mut Vec<PathBuf>) -> io::Result<Storage> {
    let is_new = !fs::exists(path)?;
    if is_new {
        created.push(path.to_path_buf());
    }
    let storage = Storage::open(path, volume.size_bytes)?;
    if is_new {
        sync_parent(path)?;
    }
    Ok(storage)
}

/// Makes a pool's file at least so long, past the back end that has it open.
fn lengthen(path: &Path, bytes: u64) -> io::Result<()> {
    if is_device(path) || !fs::exists(path)? {
        return Ok(());
    }
    let file = fs::OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.len() >= bytes {
        return Ok(());
    }
    file.set_len(bytes)?;
    file.sync_all()
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}
