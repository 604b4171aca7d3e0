//! A mount in the mount table, where others may remove it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Weak;

const MOUNTS: &str = "/proc/self/mountinfo";

/// A mount of this server.
#[derive(Clone, Debug)]
pub(crate) struct MountPlace {
    path: PathBuf,
    /// Its device, as the mount table writes it. Another file system may get the same number before the session notices its end.
    device: String,
    session: Weak<()>,
}

impl MountPlace {
    /// The file system that is mounted there now.
    pub(super) fn now(path: &Path, session: Weak<()>) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let device = fs::metadata(&path)?.dev();
        let device = format!("{}:{}", libc::major(device), libc::minor(device));
        Ok(Self { path, device, session })
    }
    /// Whether somebody has unmounted or moved it. Programs that had opened a file before may go on.
    pub(crate) fn is_gone(&self) -> bool {
        if self.session.strong_count() == 0 {
            return true;
        }
        let Ok(mounts) = fs::read_to_string(MOUNTS) else { return false };
        !mounts.lines().any(|line| self.is_in(line))
    }
    /// Whether it is what programs find at its path: nothing is mounted over it. Asks the kernel, and not the session.
    pub(super) fn is_on_top(&self) -> bool {
        on_top(&self.path).is_ok_and(|line| self.is_in(&line))
    }
    /// Whether something else is mounted over it.
    pub(crate) fn is_covered(&self) -> bool {
        on_top(&self.path).is_ok_and(|line| !self.is_in(&line)) && !self.is_gone()
    }
    /// Cuts the connection of the kernel to the session.
    pub(super) fn abort(&self) -> io::Result<()> {
        let (_, minor) = self.device.split_once(':').expect("a colon");
        fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1")
    }
    /// Whether a line of the mount table is about it.
    fn is_in(&self, line: &str) -> bool {
        let mut words = line.split(' ').skip(2);
        words.next() == Some(&*self.device)
            && words.nth(1) == Some(&*in_mount_table(&self.path))
            && is_ours(line)
    }
    /// Where it was.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The line of the mount table about what programs find at a path.
pub(super) fn on_top(path: &Path) -> io::Result<String> {
    let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", place.as_raw_fd()))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")).unwrap_or_default().trim();
    let mounts = fs::read_to_string(MOUNTS)?;
    let found = mounts.lines().find(|line| line.split(' ').next() == Some(id));
    found.map(str::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Whether a line of the mount table is about volumes of a server.
pub(super) fn is_ours(line: &str) -> bool {
    let source = line.split(" - ").nth(1).and_then(|what| what.split(' ').nth(1));
    source == Some("iofair")
}

/// A path as the kernel writes it into the mount table.
fn in_mount_table(path: &Path) -> String {
    let escaped =
        |text: String, letter: char| text.replace(letter, &format!("\\{:03o}", letter as u32));
    ['\\', ' ', '\t', '\n'].into_iter().fold(path.to_string_lossy().into_owned(), escaped)
}
