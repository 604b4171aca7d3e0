//! A mount in the mount table, where others may remove it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Weak;

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
        let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return false };
        let path = in_mount_table(&self.path);
        let is_it = |line: &str| {
            let mut words = line.split(' ').skip(2);
            words.next() == Some(&*self.device)
                && words.nth(1) == Some(&*path)
                && line.split(" - ").nth(1).and_then(|what| what.split(' ').nth(1))
                    == Some("iofair")
        };
        !mounts.lines().any(is_it)
    }
    /// Where it was.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A path as the kernel writes it into the mount table.
pub(super) fn in_mount_table(path: &Path) -> String {
    let escaped =
        |text: String, letter: char| text.replace(letter, &format!("\\{:03o}", letter as u32));
    ['\\', ' ', '\t', '\n'].into_iter().fold(path.to_string_lossy().into_owned(), escaped)
}
