//! What a change has made in a pool directory so far.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::owners::{Home, Owners};
use super::revocable::Revocable;
use crate::back::uring::Storage;
use crate::log;
use crate::reserve::Room;

/// Files that were made, opened or lengthened for contracts that are not in force yet. Dropping it removes those that
/// were made, and cuts those that were lengthened.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(super) opened: Vec<Arc<Storage>>,
    pub(super) created: Vec<PathBuf>,
    /// Files that are longer than before, how long they were, and how long they were made.
    pub(super) grown: Vec<(Arc<Storage>, u64, u64)>,
    /// Whose files were before.
    pub(super) owners: Option<(Arc<Home>, Owners)>,
}

impl Revocable for Made {
    fn keep(mut self: Box<Self>) {
        self.created.clear();
        self.grown.clear();
        self.owners = None;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // The list needs a descriptor.
        self.opened.clear();
        // The list first: what it has must be there.
        if let Some((home, owners)) = &self.owners
            && home.save(owners, Room::Reserved).is_err()
        {
            return;
        }
        for path in &self.created {
            // It is empty, and what cannot be removed harms nobody.
            let _ = fs::remove_file(path);
        }
        for (storage, had, bytes) in &self.grown {
            // What others have appended since is theirs.
            let is_ours = storage.length().map(|length| length == *bytes);
            let cut = is_ours.and_then(|ours| if ours { storage.shorten(*had) } else { Ok(()) });
            if let Err(error) = cut {
                log::tell("pool", &format!("{} stays longer: {error}", storage.path().display()));
            }
        }
    }
}
