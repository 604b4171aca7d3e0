//! The file of a listening Unix socket: who may replace it, who removes it, and how it comes back if somebody else does.
//!
//! A server locks `PATH.lock` as long as it has the socket. Whether a server is alive cannot be found out by connecting: one that
//! has as many connections as it may have closes further ones at once, as the kernel does for a server that was killed. A
//! lock ends with the process that has it. The lock file is removed with the socket; a lock on a file that was removed
//! meanwhile counts for nothing.
//!
//! A socket has a second name, `PATH.link`. If the file at its path is removed, the second name is linked there again, which
//! never replaces what somebody else has put there. A new socket would need every listener to exchange its descriptor.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How often a lock file is opened again because its last owner has just removed it.
const ATTEMPTS: u32 = 100;

/// The identity of a file: its device and its number there.
fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// The exclusive right to a socket's path, until it is dropped.
#[derive(Debug)]
pub(crate) struct PathLock {
    path: PathBuf,
    file: File,
}

impl PathLock {
    /// Takes the lock; an error if another server has it.
    pub(crate) fn take(socket: &Path) -> io::Result<Self> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        for _ in 0..ATTEMPTS {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.custom_flags(libc::O_NOFOLLOW).open(&path)?;
            // SAFETY: a plain system call on a descriptor of ours.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::WouldBlock {
                    return Err(error);
                }
                return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
            }
            let locked = identity(&file.metadata()?);
            if fs::symlink_metadata(&path).is_ok_and(|found| identity(&found) == locked) {
                return Ok(Self { path, file });
            }
        }
        Err(io::Error::other("other servers remove its lock file again and again"))
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        let locked = self.file.metadata().map(|file| identity(&file)).ok();
        let found = fs::symlink_metadata(&self.path).map(|file| identity(&file)).ok();
        if locked.is_some() && locked == found {
            // Gone already is as good.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What the second name of a socket ends with.
pub(crate) const LINK: &str = ".link";

/// Where a socket of this server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SocketPlace {
    path: PathBuf,
    link: PathBuf,
    identity: (u64, u64),
}

impl SocketPlace {
    fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|file| identity(&file) == self.identity)
    }
    /// Puts the file back if somebody has removed it. What happened, in words; `None`: nothing.
    pub(crate) fn restore(&self) -> Option<String> {
        if self.is_at(&self.path) {
            return None;
        }
        let linked = match self.is_at(&self.link) {
            true => fs::hard_link(&self.link, &self.path),
            false => Err(io::Error::other(format!("{} is gone, too", self.link.display()))),
        };
        let path = self.path.display();
        Some(match linked {
            Ok(()) => format!("the socket {path} was removed, and is there again"),
            Err(error) => format!(
                "the socket {path} was removed, and clients cannot connect: {error}; restart the server"
            ),
        })
    }
}

/// The file of a socket that this server created. Dropping it removes the file, unless another one is in its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    place: SocketPlace,
    _lock: PathLock,
}

impl SocketFile {
    pub(super) fn new(path: &Path, lock: PathLock) -> io::Result<Self> {
        let identity = identity(&fs::symlink_metadata(path)?);
        let mut link = path.as_os_str().to_owned();
        link.push(LINK);
        let (path, link) = (path.to_path_buf(), PathBuf::from(link));
        // A server that was killed may have left one. Without one, a removed socket stays away.
        let _ = fs::remove_file(&link).or(Ok(())).and_then(|()| fs::hard_link(&path, &link));
        Ok(Self { place: SocketPlace { path, link, identity }, _lock: lock })
    }
    /// Where it is.
    pub(crate) fn place(&self) -> &SocketPlace {
        &self.place
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The second name first, so that nobody puts the first one back. Fields are dropped after this, so nobody takes the path
        // meanwhile.
        for path in [&self.place.link, &self.place.path] {
            if self.place.is_at(path) {
                let _ = fs::remove_file(path);
            }
        }
    }
}
