//! A start that is only tried: `iofair serve --check`.
//!
//! A check runs the code of a start. Where a start would make or change something on disk, the check uses a *stand-in*
//! instead: a file without a name in the directory where the real one would be, so that the kernel applies the same rules
//! (permissions, read-only file systems, largest sizes) and nothing is left behind. Files that exist are locked as by a start,
//! and opened for reading: the end of a writer is told to whoever watches a file, udev reads a device again then, and an overlay
//! copies a file that is opened for writing.
//!
//! A check may run beside the server that it is about: before a restart, and as the first step of a reload. What that
//! server uses (sockets, locks, mounts, devices) counts as free, and so do sockets that systemd holds for a start.
//!
//! A check connects to no socket: systemd would take that for a client, and start the server.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::log;
use crate::supervisor::unit::{self, Place};

/// Whether a server is started, or only a trial start is made.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// It is started.
    Serve,
    /// Nothing on disk changes.
    Check(Arc<Trial>),
}

/// A check in flight.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// The process of a server that runs with the same contract file.
    server: Option<u32>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Directories that a start would make, and those that stand in for them.
    directories: BTreeMap<PathBuf, PathBuf>,
    /// Unix sockets that a start would make.
    sockets: BTreeSet<PathBuf>,
    /// What the operator should know.
    notes: Vec<String>,
}

impl Mode {
    /// The check, if it is one.
    pub(crate) fn trial(&self) -> Option<&Trial> {
        match self {
            Self::Serve => None,
            Self::Check(trial) => Some(trial),
        }
    }
    /// Whether it is a check.
    pub(crate) fn is_check(&self) -> bool {
        self.trial().is_some()
    }
    /// Whether the server that a check is about is the user of something in use. `process`: the user, if known.
    pub(crate) fn is_own(&self, process: Option<u32>) -> bool {
        self.trial().is_some_and(|trial| trial.is_own(process))
    }
    /// The process of the server that a check is about, if it runs.
    pub(crate) fn server(&self) -> Option<u32> {
        self.trial()?.server
    }
    /// Whether this is a check, and systemd listens at this place, to pass the socket to the server that it starts.
    pub(crate) fn is_held(&self, place: &Place) -> bool {
        let Some((trial, unit)) = self.trial().zip(unit::unit_at(place)) else {
            return false;
        };
        let note =
            format!("{unit} of systemd listens at {place}; the check is about a start by systemd");
        trial.seen().notes.push(note);
        true
    }
    /// Opens a file that is there as a server does: with these options, which are for writing. A check only finds out whether it may
    /// be written.
    pub(crate) fn open(&self, path: &Path, options: &OpenOptions) -> io::Result<File> {
        if !self.is_check() {
            return options.open(path);
        }
        let mut options = options.clone();
        let file = options.read(true).write(false).append(false).create(false).open(path)?;
        may(path, libc::W_OK)?;
        match file.metadata()?.is_dir() {
            true => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            false => Ok(file),
        }
    }
    /// Tells the operator something: a check in its result, a start in the log.
    pub(crate) fn note(&self, note: String) {
        match self {
            Self::Serve => log::tell("server", &note),
            Self::Check(trial) => trial.seen().notes.push(note),
        }
    }
    /// What a check found that the operator should know, besides errors.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.trial().map(|trial| trial.seen().notes.clone()).unwrap_or_default()
    }
}

impl Trial {
    /// A check beside the process of a server that runs with the same contract file, or without one.
    pub(crate) fn new(server: Option<u32>) -> Self {
        Self { server, seen: Mutex::default() }
    }
    fn is_own(&self, process: Option<u32>) -> bool {
        self.server.is_some_and(|server| process.is_none_or(|process| process == server))
    }
    /// A file for reading and writing, without a name, in the directory where `path` would be made.
    pub(crate) fn stand_in(&self, path: &Path) -> io::Result<File> {
        // A name that is too long, or a loop of links.
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let directory = self.directory(parent(path));
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
        match options.open(&directory) {
            // Its file system has no files without names.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
                may(&directory, libc::W_OK | libc::X_OK)?;
                memory()
            }
            file => file,
        }
    }
    /// A file that may grow in place of one that is there.
    pub(crate) fn growth(&self, path: &Path) -> io::Result<File> {
        // A file may grow in a directory that takes no new ones.
        self.stand_in(path).or_else(|_| memory())
    }
    /// The name under which a stand-in can be opened again.
    pub(crate) fn name(file: &File) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }
    /// A start would make this directory, and with `parents` those above it.
    pub(crate) fn make_directory(&self, path: &Path, parents: bool) -> io::Result<()> {
        let mut above = parent(path);
        while parents && !fs::exists(above)? {
            above = parent(above);
        }
        drop(self.stand_in(&above.join("iofair"))?);
        let above = self.directory(above);
        self.seen().directories.insert(path.to_path_buf(), above);
        Ok(())
    }
    /// The directory itself, or what stands in for it.
    pub(crate) fn directory(&self, path: &Path) -> PathBuf {
        self.seen().directories.get(path).cloned().unwrap_or_else(|| path.to_path_buf())
    }
    /// A start would make this socket; `false`: it would have made it already.
    pub(crate) fn take_socket(&self, path: &Path) -> bool {
        let directory = fs::canonicalize(parent(path)).unwrap_or_else(|_| parent(path).into());
        let whole = directory.join(path.file_name().unwrap_or_default());
        self.seen().sockets.insert(whole)
    }
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether this user may do this: `W_OK` and the like.
fn may(path: &Path, mode: libc::c_int) -> io::Result<()> {
    let (path, flags) = (CString::new(path.as_os_str().as_bytes())?, libc::AT_EACCESS);
    // SAFETY: a plain system call with a path that outlives it.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn memory() -> io::Result<File> {
    // SAFETY: makes a descriptor and touches no memory.
    match unsafe { libc::memfd_create(c"iofair-check".as_ptr(), libc::MFD_CLOEXEC) } {
        // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
        file @ 0.. => Ok(unsafe { File::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}
