//! The list of a pool directory, `.iofair.json` in it, and who may use the directory.
//!
//! The list says for which group each file is, including files elsewhere, and files of volumes that are no longer in the
//! contracts. It is replaced as a whole. On a full file system, the new list goes into room that was reserved before, so
//! that volumes can be removed to make room.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iofair_config::contracts::Contracts;
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use super::marker::Marker;
use crate::back::uring::claim::{Birth, layers, lock};
use crate::error::ServeError;
use crate::layout::sync_parent;
use crate::reserve::{Reserve, Room, is_full};
use crate::trial::Mode;

/// The name of the list.
pub(crate) const OWNERS: &str = ".iofair.json";
/// The name of the file that is locked. It is never replaced, unlike the list.
const LOCK: &str = ".iofair.lock";

/// Whose a volume's file is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Owner {
    /// Of a file elsewhere, which is listed by its path: the volume. Empty in lists of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) volume: String,
    /// Empty if an earlier version did not list it.
    pub(super) group: String,
    /// The size of the volume; a shorter file is not the volume's. 0 in lists of earlier versions.
    #[serde(default)]
    pub(super) bytes: u64,
    /// Which file it was, if its file system tells; absent in lists of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<Birth>,
    /// The contracts do not have it any more.
    pub(super) kept: bool,
    /// Its file was about to be deleted, and may be gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) deleting: bool,
}

/// Whose all files are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Owners {
    /// The identity of the pool; absent in lists of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pool: Option<Uuid>,
    /// By the names of the volumes.
    pub(super) volumes: BTreeMap<String, Owner>,
    /// Files elsewhere, by their paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "paths")]
    pub(super) paths: BTreeMap<PathBuf, Owner>,
}

/// Lists of earlier versions have sizes of files elsewhere at most.
fn paths<'de, D: Deserializer<'de>>(source: D) -> Result<BTreeMap<PathBuf, Owner>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Paths {
        Owners(BTreeMap<PathBuf, Owner>),
        Sizes(BTreeMap<PathBuf, u64>),
        Names(BTreeSet<PathBuf>),
    }
    let unknown = |(path, bytes)| {
        let (volume, group) = Default::default();
        (path, Owner { volume, group, bytes, file: None, kept: false, deleting: false })
    };
    Ok(match Paths::deserialize(source)? {
        Paths::Owners(owners) => owners,
        Paths::Sizes(sizes) => sizes.into_iter().map(unknown).collect(),
        Paths::Names(names) => names.into_iter().map(|name| unknown((name, 0))).collect(),
    })
}

impl Owners {
    /// How many volumes are in the contracts, and their bytes.
    pub(super) fn live(&self) -> [u64; 2] {
        let all = self.paths.values().chain(self.volumes.values());
        all.filter(|owner| !owner.kept).fold([0, 0_u64], |[count, bytes], owner| {
            [count + 1, bytes.saturating_add(owner.bytes)]
        })
    }
    /// Whether this is the same list, with what lists of earlier versions lack.
    pub(super) fn only_completes(&self, earlier: &Self) -> bool {
        let mut completed = earlier.clone();
        completed.pool = self.pool;
        let volumes =
            completed.volumes.iter_mut().map(|(name, owner)| (owner, self.volumes.get(name)));
        let paths = completed.paths.iter_mut().map(|(path, owner)| (owner, self.paths.get(path)));
        for (owner, now) in volumes.chain(paths) {
            let Some(now) = now else { continue };
            if owner.bytes == 0 {
                owner.bytes = now.bytes;
            }
            owner.file = owner.file.or(now.file);
            if owner.group.is_empty() {
                (owner.volume, owner.group) = (now.volume.clone(), now.group.clone());
            }
        }
        completed == *self
    }
    /// This list, with no volume larger than in an earlier one.
    pub(super) fn not_larger(&self, earlier: &Self) -> Self {
        let mut list = self.clone();
        let own = list.volumes.iter_mut().map(|(name, now)| (earlier.volumes.get(name), now));
        let elsewhere = list.paths.iter_mut().map(|(path, now)| (earlier.paths.get(path), now));
        for (was, now) in own.chain(elsewhere) {
            // An earlier version did not list sizes.
            let bytes = was.map(|was| was.bytes).filter(|bytes| *bytes > 0);
            now.bytes = now.bytes.min(bytes.unwrap_or(u64::MAX));
        }
        list
    }
    /// What the files are that it has.
    pub(super) fn files(&self) -> Files<'_> {
        let mut files = Files::default();
        for path in self.paths.keys() {
            for (depth, layer) in layers(path).into_iter().enumerate() {
                let known = if depth == 0 { &mut files.elsewhere } else { &mut files.below };
                known.insert(layer.identity, path);
            }
        }
        let own = self.volumes.iter().map(|(name, owner)| (&**name, owner));
        let elsewhere = self.paths.values().map(|owner| (&*owner.volume, owner));
        let born =
            own.chain(elsewhere).filter_map(|(name, owner)| Some((owner.file?, (name, owner))));
        files.born = born.collect();
        files
    }
    /// Forgets volumes whose files are gone, as they should be.
    pub(super) fn forget_deleted(&mut self, directory: &Path) {
        let is_there = |name: &str| {
            let file = directory.join(format!("{name}.img"));
            fs::exists(file).unwrap_or(true)
        };
        self.volumes.retain(|name, owner| !owner.deleting || is_there(name));
    }
    /// A name is a file in the directory, and no path out of it.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let owners: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match owners.volumes.keys().find(|name| name.contains(['/', '\0'])) {
            Some(name) => Err(format!("{name:?} is no name of a volume")),
            None => Ok(owners),
        }
    }
    /// `None`: there is no list.
    pub(super) fn load(directory: &Path) -> Result<Option<Self>, ServeError> {
        let path = directory.join(OWNERS);
        match fs::read(&path) {
            Ok(bytes) => Self::parse(&bytes).map(Some).map_err(|error| {
                let message = format!(
                    "it cannot be understood: {error}; it is damaged, or of a later version, and without it any group \
                     gets any file again"
                );
                ServeError::Layout { path, message }
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ServeError::system(path.display().to_string())(error)),
        }
    }
}

/// What files are, by which they are found under other names.
#[derive(Debug, Default)]
pub(super) struct Files<'a> {
    /// Files elsewhere that are there, and their paths in the list.
    elsewhere: BTreeMap<(u64, u64), &'a Path>,
    /// What is below them.
    below: BTreeMap<(u64, u64), &'a Path>,
    /// What files were when the list was written: their volumes.
    born: BTreeMap<Birth, (&'a str, &'a Owner)>,
}

impl<'a> Files<'a> {
    /// The path in the list of a file elsewhere that shares data with this one.
    pub(super) fn find(&self, path: &Path) -> Option<&'a Path> {
        let layers = layers(path);
        let same = layers.iter().find_map(|layer| self.elsewhere.get(&layer.identity));
        let above = || self.below.get(&layers.first()?.identity);
        same.or_else(above).copied()
    }
    /// The volume whose file this was when the list was written.
    pub(super) fn was(&self, path: &Path) -> Option<(&'a str, &'a Owner)> {
        layers(path).iter().find_map(|layer| self.born.get(&layer.birth?)).copied()
    }
}

/// The list as the server knows it.
#[derive(Debug)]
struct Known {
    owners: Owners,
    /// Whether it is stored like this.
    is_stored: bool,
}

/// A pool directory that is this server's alone.
#[derive(Debug)]
pub(super) struct Home {
    /// Where it is, or what stands in for it in a check.
    path: PathBuf,
    marker: Mutex<Marker>,
    known: Mutex<Known>,
    /// Room for lists.
    reserve: Reserve,
    /// The directory, locked as long as it is open.
    directory: File,
    /// Locked as well: NFS shows other hosts locks on files only.
    _lock: Option<File>,
}

impl Home {
    /// Opens a directory for this server alone, made if there was no pool in it before, and reads its list.
    pub(super) fn open(
        contracts: &Contracts,
        path: &Path,
        mode: &Mode,
    ) -> Result<Self, ServeError> {
        let what = || ServeError::system(path.display().to_string());
        let marker = Marker::read(contracts, path)?;
        if !fs::exists(path).map_err(what())? {
            marker.check_absent()?;
            let made = match mode.trial() {
                None => DirBuilder::new().mode(0o700).create(path),
                Some(trial) => trial.make_directory(path, false),
            };
            made.and_then(|()| sync_parent(path)).map_err(what())?;
        }
        let here = mode.trial().map_or_else(|| path.to_path_buf(), |trial| trial.directory(path));
        let directory = File::open(&here).map_err(what())?;
        // A directory that a check would make is somebody else's until then.
        if here == path {
            lock(&directory, mode).map_err(what())?;
        }
        let list = here.join(OWNERS);
        // Nothing is made where the pool is missing.
        if here != path || !fs::exists(&list).map_err(what())? {
            marker.check_absent()?;
            marker.note_other(mode);
        }
        let lock = if here == path { lock_file(&here.join(LOCK), mode)? } else { None };
        let found = if here == path { Owners::load(&here)? } else { None };
        let mut owners = found.unwrap_or_default();
        let stored = owners.clone();
        owners.forget_deleted(&here);
        owners.pool = Some(marker.check(owners.pool)?);
        let is_stored = owners == stored;
        let (marker, reserve) = (Mutex::new(marker), Reserve::beside(&list));
        Ok(Self {
            path: here,
            marker,
            known: Mutex::new(Known { owners, is_stored }),
            reserve,
            directory,
            _lock: lock,
        })
    }
    /// Opens the directory of a pool for this program alone, as it is. `None`: there is no list in it.
    pub(super) fn alone(path: &Path) -> Result<Option<Self>, ServeError> {
        let (path, mode) = (path.to_path_buf(), Mode::Serve);
        let what = || ServeError::system(path.display().to_string());
        let directory = File::open(&path).map_err(what())?;
        lock(&directory, &mode).map_err(what())?;
        let _lock = lock_file(&path.join(LOCK), &mode)?;
        let Some(owners) = Owners::load(&path)? else { return Ok(None) };
        let (marker, reserve) = (Marker::without_notes(&path), Reserve::beside(&path.join(OWNERS)));
        let known = Mutex::new(Known { owners, is_stored: true });
        Ok(Some(Self { path, marker: Mutex::new(marker), known, reserve, directory, _lock }))
    }
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    /// Refuses to make, lengthen or remove anything while another directory is at its path.
    pub(super) fn check_place(&self) -> io::Result<()> {
        let there = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(identity(&found?)),
        };
        if there == Some(identity(&self.directory.metadata()?)) {
            return Ok(());
        }
        let message = "the pool of this server is not at this path any more: it was moved or unmounted, or a file system \
                       is mounted over it; put it back, or restart the server";
        Err(io::Error::other(message))
    }
    /// The error of [`Self::save`].
    pub(super) fn system(&self) -> impl FnOnce(io::Error) -> ServeError + use<> {
        ServeError::system(self.path.join(OWNERS).display().to_string())
    }
    /// Notes beside the directory which pool is in it, once its list says so.
    pub(super) fn mark(&self) {
        let known = held(&self.known);
        let pool = known.owners.pool.filter(|_| known.is_stored);
        drop(known);
        if let Some(pool) = pool {
            held(&self.marker).write(pool);
        }
    }
    /// The list.
    pub(super) fn owners(&self) -> Owners {
        held(&self.known).owners.clone()
    }
    /// Whether this is the list as it is stored.
    pub(super) fn is_saved(&self, owners: &Owners) -> bool {
        let known = held(&self.known);
        known.is_stored && known.owners == *owners
    }
    /// Where the list is.
    pub(super) fn list(&self) -> PathBuf {
        self.path.join(OWNERS)
    }
    /// Where a check may write a list.
    pub(super) fn fresh(&self) -> PathBuf {
        self.path.join(format!("{OWNERS}.new"))
    }
    /// Replaces the list, all or nothing.
    pub(super) fn save(&self, owners: &Owners, room: Room) -> io::Result<()> {
        self.check_place()?;
        let mut known = held(&self.known);
        let bytes = serde_json::to_vec_pretty(owners).map_err(io::Error::other)?;
        let (path, fresh) = (self.path.join(OWNERS), self.fresh());
        drop(self.reserve.create(&fresh, &bytes, room)?);
        fs::rename(&fresh, &path)?;
        sync_parent(&path)?;
        *known = Known { owners: owners.clone(), is_stored: true };
        Ok(())
    }
    /// Reserves room for lists somewhat longer than this one, if the directory is at its path.
    pub(super) fn reserve(&self) {
        if self.check_place().is_err() {
            return;
        }
        let list = serde_json::to_vec_pretty(&held(&self.known).owners);
        self.reserve.hold(list.map_or(0, |bytes| bytes.len() as u64));
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a file in a pool directory for this server alone, made if it is not there. `None`: this is a check, or no file can be
/// made there.
fn lock_file(path: &Path, mode: &Mode) -> Result<Option<File>, ServeError> {
    let what = || ServeError::system(path.display().to_string());
    let mut options = OpenOptions::new();
    // NFS wants to be able to write what is locked.
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let opened = match mode.open(path, &options) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match mode.is_check() {
            true => return Ok(None),
            false => options.create(true).open(path),
        },
        opened => opened.or_else(|_| File::open(path)),
    };
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) if is_full(&error) => return Ok(None),
        opened => opened.map_err(what())?,
    };
    lock(&file, mode).map_err(what())?;
    Ok(Some(file))
}

fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
