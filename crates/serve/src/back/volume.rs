//! A volume as the engine and the back end are told of it.

use std::sync::Arc;

use iofair_config::contracts::Entry;
use iofair_core::group::Priority;
use iofair_core::request::Flags;

use super::uring::Storage;

/// A volume and its place on the drive.
#[derive(Clone, Debug)]
pub struct PlannedVolume {
    /// Its name.
    pub name: String,
    /// Path of its group.
    pub group: String,
    /// Its first byte on the drive.
    pub base: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Are writes refused?
    pub read_only: bool,
    /// The file or device that is this volume alone, if there is one.
    pub storage: Option<Arc<Storage>>,
    /// Who may open it.
    pub entry: Entry,
    /// What its requests bear.
    pub stamp: Stamp,
}

/// What all requests of a volume bear, which no protocol says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Class and level inside the group.
    pub priority: Priority,
    /// Flags of its reads.
    pub reads: Flags,
    /// Flags of all else. Clients wait for their writes, so these are synchronous unless somebody knows better.
    pub writes: Flags,
}

impl Default for Stamp {
    fn default() -> Self {
        Self { priority: Priority::default(), reads: Flags::SYNC, writes: Flags::SYNC }
    }
}
