//! Plugging: a client that submits several requests at once gathers them first, so that adjacent ones are merged before
//! any policy sees them.

use alloc::vec::Vec;

use super::Submission;
use crate::group::GroupId;
use crate::request::{Flags, Operation};
use crate::unit::Sectors;

/// Number of requests after which a plug must be submitted (32 in the kernel since 5.16).
pub const PLUG_MAX: usize = 32;

/// Requests that one client has gathered.
#[derive(Debug, Default)]
pub struct Plug {
    /// In order of submission, with the group that holds the request's slot if a slot was taken.
    pub(super) gathered: Vec<(Submission, Option<GroupId>)>,
}

impl Plug {
    /// An empty plug.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds a request, which is checked when the plug is submitted. Returns true if the plug is full and must be submitted.
    pub fn add(&mut self, submission: Submission) -> bool {
        self.gathered.push((submission, None));
        self.is_full()
    }
    /// Number of requests in the plug.
    #[must_use]
    pub fn len(&self) -> usize {
        self.gathered.len()
    }
    /// Whether it is full and must be submitted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.gathered.len() >= PLUG_MAX
    }
    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }
}

/// May `next` be appended to `last` (both as submitted), `length` being what `last` has grown to?
pub(super) fn follows(last: &Submission, length: Sectors, next: &Submission, max: Sectors) -> bool {
    matches!(last.operation, Operation::Read | Operation::Write)
        && last.operation == next.operation
        && last.client == next.client
        && last.flags == next.flags
        && !last.flags.has(Flags::NO_MERGE)
        && last.start + length == next.start
        && length + next.length <= max
}
