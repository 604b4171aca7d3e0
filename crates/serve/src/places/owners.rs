//! The list of a pool directory, `.iofair.json` in it, and who may use the directory.
//!
//! The list says for which group each file is, including files of volumes that are no longer in the contracts. It is
//! replaced as a whole. On a full file system, the new list goes into room that was reserved before, so that volumes can be
//! removed to make room.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iofair_config::contracts::Contracts;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::marker::Marker;
use crate::back::uring::claim::lock;
use crate::error::ServeError;
use crate::layout::sync_parent;
use crate::trial::Mode;

/// The name of the list.
const OWNERS: &str = ".iofair.json";
/// Lists that find room on a full file system: removing a volume writes two.
const RESERVED: usize = 2;
/// Least bytes of such room; lists grow.
const RESERVED_BYTES_MIN: u64 = 16 << 10;

/// Whose a volume's file is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) group: String,
    /// The contracts do not have it any more.
    pub(super) kept: bool,
    /// Its file was about to be deleted, and may be gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) deleting: bool,
}

/// Whose all files are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Owners {
    /// The identity of the pool; absent in lists of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<Uuid>,
    /// By the names of the volumes.
    pub(super) volumes: BTreeMap<String, Owner>,
    /// Files elsewhere that are volumes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) paths: BTreeSet<PathBuf>,
}

impl Owners {
    /// Forgets volumes whose files are gone, as they should be.
    pub(super) fn forget_deleted(&mut self, directory: &Path) {
        let is_there = |name: &str| {
            let file = directory.join(format!("{name}.img"));
            fs::exists(file).unwrap_or(true)
        };
        self.volumes.retain(|name, owner| !owner.deleting || is_there(name));
    }
    /// `None`: there is no list.
    fn load(directory: &Path) -> Result<Option<Self>, ServeError> {
        let path = directory.join(OWNERS);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                let message = format!(
                    "it cannot be understood: {error}; without it any group gets any file again"
                );
                ServeError::Layout { path, message }
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ServeError::system(path.display().to_string())(error)),
        }
    }
}

/// A pool directory that is this server's alone.
#[derive(Debug)]
pub(super) struct Home {
    /// Where it is, or what stands in for it in a check.
    path: PathBuf,
    marker: Mutex<Marker>,
    /// The list, and whether it is stored like this.
    owners: Mutex<(Owners, bool)>,
    /// Room for lists, in files without names.
    reserved: Mutex<Vec<File>>,
    /// Locked as long as it is open.
    _lock: File,
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
        let found = if here == path { Owners::load(&here)? } else { None };
        if found.is_none() {
            marker.check_absent()?;
        }
        let mut owners = found.unwrap_or_default();
        let stored = owners.clone();
        owners.forget_deleted(&here);
        owners.pool = Some(marker.check(owners.pool)?);
        let is_stored = owners == stored;
        let (marker, reserved) = (Mutex::new(marker), Mutex::default());
        let this = Self {
            path: here,
            marker,
            owners: Mutex::new((owners, is_stored)),
            reserved,
            _lock: directory,
        };
        if !mode.is_check() {
            this.reserve(&stored);
        }
        Ok(this)
    }
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    /// The error of [`Self::save`].
    pub(super) fn system(&self) -> impl FnOnce(io::Error) -> ServeError + use<> {
        ServeError::system(self.path.join(OWNERS).display().to_string())
    }
    /// Notes beside the directory which pool is in it.
    pub(super) fn mark(&self) {
        let pool = held(&self.owners).0.pool;
        if let Some(pool) = pool {
            held(&self.marker).write(pool);
        }
    }
    /// The list.
    pub(super) fn owners(&self) -> Owners {
        held(&self.owners).0.clone()
    }
    /// Whether this is the list as it is stored.
    pub(super) fn is_saved(&self, owners: &Owners) -> bool {
        let known = held(&self.owners);
        known.1 && known.0 == *owners
    }
    /// Where a check may write a list.
    pub(super) fn fresh(&self) -> PathBuf {
        self.path.join(format!("{OWNERS}.new"))
    }
    /// Replaces the list, all or nothing.
    pub(super) fn save(&self, owners: &Owners) -> io::Result<()> {
        let mut known = held(&self.owners);
        let bytes = serde_json::to_vec_pretty(owners).map_err(io::Error::other)?;
        let (path, fresh) = (self.path.join(OWNERS), self.fresh());
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let named = || named(&fresh, &bytes);
        match self.nameless(&bytes) {
            Ok(Some(file)) => link(&file, &fresh).or_else(|_| named())?,
            Ok(None) => named()?,
            Err(error) => return Err(error),
        }
        fs::rename(&fresh, &path)?;
        sync_parent(&path)?;
        *known = (owners.clone(), true);
        self.reserve(owners);
        Ok(())
    }
    /// A file without a name with these bytes, in reserved room if there is no other; `None`: the file system has none.
    fn nameless(&self, bytes: &[u8]) -> io::Result<Option<File>> {
        let Ok(file) = self.temporary() else { return Ok(None) };
        let fill = |file: &File| {
            file.write_all_at(bytes, 0)?;
            file.set_len(bytes.len() as u64)?;
            file.sync_all()
        };
        let Err(error) = fill(&file) else { return Ok(Some(file)) };
        let mut reserved = held(&self.reserved);
        match reserved.pop() {
            Some(room) if is_full(&error) => fill(&room).map(|()| Some(room)),
            _ => Err(error),
        }
    }
    fn temporary(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(&self.path)
    }
    /// Reserves room for lists somewhat longer than this one, if there is any.
    fn reserve(&self, owners: &Owners) {
        let length = serde_json::to_vec_pretty(owners).map_or(0, |bytes| bytes.len() as u64);
        let has = |file: &File| file.metadata().is_ok_and(|it| it.len() >= length + length / 4);
        let mut reserved = held(&self.reserved);
        let mut kept: Vec<File> = std::mem::take(&mut *reserved);
        kept.retain(has);
        while kept.len() < RESERVED {
            let Ok(file) = self.temporary() else { break };
            let bytes = (2 * length).max(RESERVED_BYTES_MIN) as libc::off_t;
            // SAFETY: a plain system call on a descriptor that is open.
            if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) } != 0 {
                break;
            }
            kept.push(file);
        }
        *reserved = kept;
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it is for want of room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Makes a file with these bytes, durably.
fn named(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()
}

/// Gives a file without a name one.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: a plain system call with two paths that outlive it.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
