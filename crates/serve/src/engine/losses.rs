//! Completed writes that were lost before they were durable.
//!
//! The operating system reports an error of write-back once, to whichever flush comes first, and the next flush succeeds.
//! Other clients of the volume would take that for their own writes. Therefore the engine remembers a loss until every
//! client that had the volume open was told, each by one failed flush (like `errseq_t` in Linux, lib/errseq.c, but for each
//! connection). If no client was told, the next one that opens the volume is.

use std::collections::BTreeMap;

use iofair_core::time::Instant;

use super::{Engine, Volume};
use crate::back::Loss;
use crate::log;
use crate::request::op::Op;

/// What a volume has lost, and who knows.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// How often.
    count: u64,
    /// The error number of the last one.
    status: i32,
    /// No client was told of the last one.
    unseen: bool,
    /// The losses that each client was told, or that were before its time.
    told: BTreeMap<u64, u64>,
    /// When the last write was completed.
    pub(super) written: Option<Instant>,
}

impl Losses {
    fn add(&mut self, status: i32) {
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
    /// A flush is completed: it fails if its client was not told of a loss, and tells it.
    pub(super) fn flushed(&mut self, op: &mut Op) {
        let Some(told) = self.told.get_mut(&op.owner) else { return };
        if op.status == 0 && *told < self.count {
            op.status = self.status;
        }
        if op.status != 0 {
            (*told, self.unseen) = (self.count, false);
        }
    }
}

impl Engine {
    /// A client opens a volume, and is told of what the volume loses from now on. See [`Self::attach`].
    pub(crate) fn join(&mut self, volume: usize, owner: u64) {
        self.volumes[volume].losses.join(owner);
    }
    /// A client closes a volume.
    pub(crate) fn leave(&mut self, volume: usize, owner: u64) {
        self.volumes[volume].losses.leave(owner);
    }
    /// Takes the back end's losses.
    pub(super) fn take_losses(&mut self) {
        let Some(losses) = self.back.take_losses().filter(|losses| !losses.is_empty()) else {
            return;
        };
        for Loss { range, status } in std::mem::take(losses) {
            // What was written before the last flush of a shared drive is durable.
            let durable = self.durable;
            let is_met = |volume: &Volume| {
                let mut places = volume.map().places(0..volume.plan.size);
                let is_later = |written| Some(written) >= durable;
                volume.losses.written.is_some_and(is_later)
                    && places.any(|place| place.start < range.end && range.start < place.end)
            };
            for (_, volume) in self.volumes.iter_mut().filter(|(_, volume)| is_met(volume)) {
                volume.lose(status);
            }
        }
    }
    /// A flush failed, and these completions, from `first` on, are of those that waited for it.
    pub(super) fn flush_failed(&mut self, status: i32, first: usize) {
        for completion in &self.completions[first..] {
            let op = self.ops.piece(&completion.part).op;
            self.volumes[self.ops[op].volume].lose(status);
        }
    }
    /// The same for a flush that was too late, and this piece of it, whose volume may be gone.
    pub(super) fn late_flush_failed(&mut self, status: i32, tag: u64) {
        let volume = self.ops[self.ops.op_of(tag)].volume;
        if let Some(volume) = self.volumes.get_mut(volume) {
            volume.lose(status);
        }
    }
    /// Everything on a shared drive is durable that was completed before a flush began.
    pub(super) fn flush_succeeded(&mut self, started: Instant) {
        if !self.back.separate_flushes() {
            self.durable = self.durable.max(Some(started));
        }
    }
}

impl Volume {
    fn lose(&mut self, status: i32) {
        self.losses.add(status);
        self.stats.losses += 1;
        let error = std::io::Error::from_raw_os_error(status);
        let message = format!(
            "a flush failed, and writes that were completed before it may be lost; the next flush of each client \
             fails, too: {error}"
        );
        log::tell(&format!("volume \"{}\"", self.plan.name), &message);
    }
}
