//! Volumes as ranges of one drive that is emulated, or of memory.

use std::io;
use std::path::Path;
use std::sync::Arc;

use iofair_config::ConfigError;
use iofair_config::contracts::{Contracts, Volume};

use super::free::Free;
use super::kept::Kept;
use super::life::{Location, Made, VolumeStore};
use super::store_file::StoreFile;
use super::{Damaged, Need, Needs, check};
use crate::back::Back;
use crate::back::emulated::Emulated;
use crate::back::memory::Memory;
use crate::back::store::Store;
use crate::consent::Consent;
use crate::error::ServeError;
use crate::file_system::free_beyond;
use crate::layout::Layout;
use crate::pool::zeroing::Zeroing;
use crate::reactor::handle::ReactorHandle;
use crate::trial::Mode;

/// Seed of an emulated drive's random streams: two runs of a server meet the same drive.
const DRIVE_SEED: u64 = 1;

/// What has the ranges.
#[derive(Clone, Debug)]
enum Drive {
    Memory {
        bytes: u64,
    },
    Emulated {
        profile: String,
        /// Its data, or else memory.
        file: Option<Arc<StoreFile>>,
    },
}

/// A drive, and which volume has which range of it.
#[derive(Clone, Debug)]
pub(super) struct Ranges {
    drive: Drive,
    layout: Layout,
    /// Once the back end is open.
    capacity: u64,
    /// Requests of clients are served beside changes.
    is_running: bool,
}

impl Ranges {
    const fn new(drive: Drive, layout: Layout) -> Self {
        Self { drive, layout, capacity: u64::MAX, is_running: false }
    }
    /// Of memory.
    pub(super) fn memory(bytes: u64) -> Self {
        Self::new(Drive::Memory { bytes }, Layout::default())
    }
    /// Of an emulated drive.
    pub(super) fn emulated(
        contracts: &Contracts,
        profile: &str,
        file: Option<&Path>,
        mode: &Mode,
    ) -> Result<Self, ServeError> {
        let opened = file.map(|file| StoreFile::open(contracts, file, mode)).transpose()?;
        let (file, layout) = opened.map(|(file, layout)| (Arc::new(file), layout)).unzip();
        let profile = profile.to_string();
        Ok(Self::new(Drive::Emulated { profile, file }, layout.unwrap_or_default()))
    }
    fn file(&self) -> Option<&StoreFile> {
        match &self.drive {
            Drive::Emulated { file, .. } => file.as_deref(),
            Drive::Memory { .. } => None,
        }
    }
    /// Whether the data with the name of a volume is kept for another group.
    fn foreign(&self, Volume { name, group, .. }: &Volume) -> Option<Need> {
        let kept = self.layout.kept_for(name).filter(|kept| kept != group)?;
        let why = format!(
            "its data is kept for group \"{kept}\", and the contracts have it in group \"{group}\""
        );
        Some(Need { volume: name.clone(), needs: Needs::TakeOver, why })
    }
    fn shorter(&self, volume: &Volume) -> Option<Need> {
        let has = self.layout.larger(&volume.name, volume.size_bytes)?;
        Some(Need::shrink(volume, has))
    }
}

impl VolumeStore for Ranges {
    fn copy(&self) -> Box<dyn VolumeStore> {
        Box::new(self.clone())
    }
    fn open_back(&mut self, contracts: &Contracts) -> Result<Box<dyn Back>, ServeError> {
        let back: Box<dyn Back> = match &self.drive {
            Drive::Memory { bytes } => {
                let memory = Memory::new((*bytes).max(self.layout.end()));
                Box::new(memory.map_err(ServeError::system(format!("{bytes} bytes of memory")))?)
            }
            Drive::Emulated { profile, file } => {
                let drive = iofair_drive::profile::load(profile, DRIVE_SEED);
                let drive = drive.map_err(|error| contracts.back_error(error.to_string()))?;
                let bytes = drive.facts().capacity.bytes();
                let (store, place, written) = match file {
                    None => (Store::anonymous(bytes), "memory".to_string(), profile.clone()),
                    Some(file) => {
                        let path = file.path().display().to_string();
                        let written = format!("{profile}@{path}");
                        (Store::file(file.file(), bytes), path, written)
                    }
                };
                let store = store.map_err(ServeError::system(format!("room for {written}")))?;
                Box::new(Emulated::new(&format!("{profile} over {place}"), drive, store))
            }
        };
        self.capacity = back.facts().capacity.bytes();
        Ok(back)
    }
    fn place(&mut self, contracts: &Contracts, consent: &Consent) -> Result<Vec<Need>, ServeError> {
        let needs = contracts.volumes.iter();
        let needs = needs.flat_map(|volume| [self.foreign(volume), self.shorter(volume)]);
        let needs = check(needs.flatten().collect(), contracts, consent, self.is_running)?;
        self.layout.place(&contracts.volumes).map(|()| needs)
    }
    fn check_room(&self, contracts: &Contracts) -> Result<(), ServeError> {
        let (end, capacity) = (self.layout.end(), self.capacity);
        if end <= capacity {
            return Ok(());
        }
        let full = |error: ConfigError| ServeError::Full(Box::new(error.into()));
        contracts.check_capacity(capacity).map_err(full)?;
        let message = format!(
            "the volumes need {end} bytes with those that were removed but keep their place, and the \
             drive has {capacity}",
        );
        Err(full(contracts.back_error(message)))
    }
    fn check_delete(&self, name: &str) -> Result<(), ServeError> {
        let message = "its data is on an emulated drive or in memory, and cannot be deleted; the volume can be removed \
                       without deleting its data";
        Err(ServeError::volume(name, message))
    }
    fn make(&mut self, _: &[Volume], _: &Consent) -> Result<Made, ServeError> {
        let made = self.layout.save(false)?;
        if let Some(file) = self.file().filter(|_| self.layout.is_saved()) {
            file.mark();
        }
        Ok(Box::new(made))
    }
    fn enlarge(&mut self) -> Result<Made, ServeError> {
        Ok(Box::new(self.layout.save(true)?))
    }
    fn plan(&self, volume: &Volume) -> Location {
        let place = self.layout.find(&volume.name).expect("every volume was placed");
        Location::linear(place.base, volume.size_bytes)
    }
    fn run(&mut self, _: &ReactorHandle) -> Result<Option<Zeroing>, ServeError> {
        self.is_running = true;
        Ok(None)
    }
    fn kept(&self) -> Vec<Kept> {
        let path = self.file().map(|file| file.path().to_path_buf());
        let kept = |(name, group, size_bytes): (&str, &str, u64)| Kept {
            name: name.into(),
            group: group.into(),
            size_bytes,
            path: path.clone(),
            pool: None,
            is_elsewhere: false,
        };
        self.layout.kept().map(kept).collect()
    }
    fn free(&self) -> io::Result<Free> {
        let end = self.layout.end();
        let drive = self.capacity.saturating_sub(end);
        let below = self.file().map(|file| free_beyond(file.file(), end)).transpose()?;
        let new = below.map_or(drive, |below| below.min(drive));
        Ok(Free { new, here: None, elsewhere: Vec::new() })
    }
    fn is_sparse(&self) -> bool {
        // A drive that is full of volumes may have all the room for them.
        self.file().is_some() && self.layout.end() != self.capacity
    }
    fn damaged(&self) -> Vec<Damaged> {
        self.file().and_then(|file| file.damaged(self.layout.end())).into_iter().collect()
    }
}
