//! Completed writes that were lost before they were durable.
//!
//! The operating system reports an error of write-back once, to whichever flush comes first, and the next flush succeeds.
//! Other clients of the volume would take that for their own writes. Therefore the engine remembers a loss until every
//! client that had the volume open was told, each by one failed flush (like `errseq_t` in Linux, lib/errseq.c, but for each
//! connection). Until the reply to one of them was handed over, clients that open the volume are told, too.

use std::collections::BTreeMap;

use iofair_core::time::Instant;

use crate::request::op::Op;

/// What a volume has lost, and who knows.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// How often.
    count: u64,
    /// The error number of the last one.
    status: i32,
    /// Whether no reply with the last loss was handed over yet.
    unseen: bool,
    /// By client: the losses that were reported to it or happened before it opened the volume.
    told: BTreeMap<u64, u64>,
    /// When the last write was completed.
    pub(super) written: Option<Instant>,
}

impl Losses {
    pub(super) fn add(&mut self, status: i32) {
        (self.count, self.status, self.unseen) = (self.count + 1, status, true);
    }
    /// A client opens the volume.
    pub(super) fn join(&mut self, owner: u64) {
        self.told.insert(owner, self.count - u64::from(self.unseen));
    }
    /// A client closes the volume.
    pub(super) fn leave(&mut self, owner: u64) {
        self.told.remove(&owner);
    }
    /// A flush is completed: it fails if a loss was not reported to its client yet, and thereby reports it.
    pub(super) fn flushed(&mut self, op: &mut Op) {
        let Some(told) = self.told.get_mut(&op.owner) else { return };
        if op.status == 0 && *told < self.count {
            op.status = self.status;
        }
        if op.status != 0 {
            *told = self.count;
        }
    }
    /// The replies to a client's flushes were handed over.
    pub(super) fn heard(&mut self, owner: u64) {
        if self.told.get(&owner) == Some(&self.count) {
            self.unseen = false;
        }
    }
}
