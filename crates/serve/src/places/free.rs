//! Room for volumes on the file systems below them.

use std::path::PathBuf;

/// Room for volumes.
#[derive(Clone, Debug)]
pub(crate) struct Free {
    /// Bytes that new volumes can have.
    pub(crate) new: u64,
    /// Bytes that other file systems have beyond the holes of volumes on them, by a directory on each.
    pub(crate) elsewhere: Vec<(PathBuf, u64)>,
}

impl Free {
    /// The least room of all file systems if volumes grow by so many bytes.
    pub(crate) fn least(&self, growth: u64) -> u64 {
        let elsewhere = self.elsewhere.iter().map(|(_, free)| *free);
        elsewhere.fold(self.new.saturating_sub(growth), u64::min)
    }
}
