//! Room for volumes on the file systems below them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::file_system::FileSystem;

/// Room for volumes.
#[derive(Clone, Debug)]
pub(crate) struct Free {
    /// Bytes that new volumes can have.
    pub(crate) new: u64,
    /// The number of the file system with these, if files elsewhere may be on it, too.
    pub(crate) here: Option<u64>,
    /// Bytes that other file systems have beyond the holes of volumes on them, by a directory on each.
    pub(crate) elsewhere: Vec<(PathBuf, u64)>,
}

impl Free {
    /// The least room of all file systems if volumes, each with the path that it has of its own, grow by so many bytes.
    pub(crate) fn least<'a>(
        &self,
        growth: impl IntoIterator<Item = (Option<&'a Path>, i128)>,
    ) -> u64 {
        let (mut new, mut systems) = (i128::from(self.new), BTreeMap::new());
        for (directory, free) in &self.elsewhere {
            systems.extend(number_of(directory).map(|number| (number, i128::from(*free))));
        }
        for (path, bytes) in growth {
            let Some(path) = path else {
                new -= bytes;
                continue;
            };
            let directory = path.parent().unwrap_or(path);
            let is_device =
                fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
            match number_of(directory).filter(|_| !is_device) {
                None => {}
                number if number == self.here => new -= bytes,
                Some(number) => {
                    let free = || FileSystem::query(directory).map_or(u64::MAX, |found| found.free);
                    *systems.entry(number).or_insert_with(|| free().into()) -= bytes;
                }
            }
        }
        let least = systems.into_values().fold(new, i128::min);
        u64::try_from(least.max(0)).unwrap_or(u64::MAX)
    }
}

/// The number of the file system that a directory is on.
fn number_of(directory: &Path) -> Option<u64> {
    fs::metadata(directory).ok().map(|found| found.dev())
}
