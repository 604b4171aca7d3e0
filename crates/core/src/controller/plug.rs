//! Plugging: a client that is about to submit several requests gathers them first, so that adjacent
//! ones are merged before anybody else sees them.

use alloc::vec::Vec;

use super::Submission;
use crate::group::GroupId;
use crate::request::{Flags, Operation};
use crate::unit::Sectors;

/// A plug holds at most so many requests before it lets them go (the kernel's number, 32 since 5.16).
pub const PLUG_MAX: usize = 32;

/// Requests that one client has gathered.
#[derive(Debug, Default)]
pub struct Plug {
    /// In order of submission; with the group that holds the request slot, if one was taken already.
    pub(super) gathered: Vec<(Submission, Option<GroupId>)>,
}

impl Plug {
    /// Nothing gathered.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Gathers one more, which is checked when the plug is submitted; `true` when the plug is full and must be submitted now.
    pub fn add(&mut self, submission: Submission) -> bool {
        self.gathered.push((submission, None));
        self.is_full()
    }
    /// Requests gathered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.gathered.len()
    }
    /// Must it be submitted now?
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.gathered.len() >= PLUG_MAX
    }
    /// Is nothing gathered?
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
