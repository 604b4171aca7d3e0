//! What flushes tell of lost writes, and to whom.

use iofair_core::time::Instant;

use super::Engine;
use super::volume::Volume;
use crate::back::Loss;

impl Engine {
    /// A client opens a volume, and gets reports of what the volume loses from now on. See [`Self::attach`].
    pub(crate) fn join(&mut self, volume: usize, owner: u64) {
        self.volumes[volume].losses.join(owner);
    }
    /// A client closes a volume.
    pub(crate) fn leave(&mut self, volume: usize, owner: u64) {
        self.volumes[volume].losses.leave(owner);
    }
    /// The replies to a client's failed flushes were handed over.
    pub(crate) fn heard(&mut self, volume: usize, owner: u64) {
        self.volumes[volume].losses.heard(owner);
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
