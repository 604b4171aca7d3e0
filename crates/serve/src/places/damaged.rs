//! Files of volumes that are not as the server left them.

use std::fs;
use std::mem::discriminant;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use iofair_config::shell;
use iofair_core::unit::Count;

use crate::back::uring::Damage;

/// A file that somebody has removed, moved or cut off while it is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Damaged {
    /// The only volume in it; `None`: all volumes are.
    pub(crate) volume: Option<String>,
    /// Where it was.
    pub(crate) path: PathBuf,
    damage: Damage,
    /// Its descriptor.
    descriptor: i32,
}

impl Damaged {
    pub(crate) fn new(
        volume: Option<String>,
        path: &Path,
        file: &fs::File,
        damage: Damage,
    ) -> Self {
        Self { volume, path: path.to_path_buf(), damage, descriptor: file.as_raw_fd() }
    }
    /// Whether the same has happened to the same file.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.path == other.path && discriminant(&self.damage) == discriminant(&other.damage)
    }
    /// Whether it is not at its path any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.damage, Damage::Removed | Damage::Moved)
    }
    /// What happened, and what saves the data.
    pub(crate) fn message(&self) -> String {
        // Whoever reads this may be in another directory than the server.
        let whole = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let (path, process) = (whole.display(), std::process::id());
        let place = format!("/proc/{process}/fd/{}", self.descriptor);
        match self.damage {
            Damage::Removed => format!(
                "{path} was removed, and its data is lost when the server ends; to keep it, let its clients close it, \
                 then `cp -p --sparse=always {place} {}`, then restart the server",
                shell::path(&whole)
            ),
            Damage::Moved => {
                let now = fs::read_link(&place).ok().filter(|now| now.exists());
                let now = now.map_or_else(
                    || format!("under another name, a hard link ({place} is the same file)"),
                    |now| format!("at {} (`ls -l {place}`)", now.display()),
                );
                format!(
                    "the file of {path} is not there any more, but {now}; put it back, or the next start does not find its \
                     data"
                )
            }
            Damage::Cut(bytes) => format!(
                "{path} was truncated to {}, and requests for what was behind them fail: restore it from a \
                 backup, and restart the server",
                Count(bytes, "byte")
            ),
        }
    }
}
