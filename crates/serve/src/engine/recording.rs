//! Recordings begin, are taken and end.

use iofair_core::time::Instant;
use iofair_core::unit::Sectors;
use iofair_trace::record::Metadata;

use super::Engine;
use super::record::{NoRecording, READY_MAX, Recorder, TAKE_MAX, Taken};

impl Engine {
    /// Begins a recording, with what is known about the server.
    pub fn start_recording(&mut self, now: Instant, metadata: Metadata) -> Result<(), NoRecording> {
        if self.recorder.as_ref().is_some_and(|recorder| !recorder.is_forgotten(now)) {
            return Err(NoRecording::Busy);
        }
        let mut metadata = metadata;
        let Sectors(capacity) = self.back.facts().capacity;
        metadata.set(Metadata::CAPACITY, (u128::from(capacity) * 512).to_string());
        self.recordings += 1;
        let recorder = Recorder::new(self.recordings & 0xffff, now, &metadata, READY_MAX)?;
        self.recorder = Some(Box::new(recorder));
        Ok(())
    }
    /// What a recording has from byte `from` on. `None` if there is no recording, or that place is gone.
    pub fn take_recording(&mut self, now: Instant, from: u64) -> Option<Taken> {
        let recorder = self.recorder.as_mut()?;
        recorder.last_taken = now;
        recorder.take(from, TAKE_MAX)
    }
    /// Ends a recording, and returns everything from byte `from` on. Requests in flight are in it without a completion.
    pub(crate) fn stop_recording(&mut self, from: u64) -> Option<Taken> {
        self.recorder.take()?.end(from)
    }
    /// Ends a recording from which nothing has been taken for too long.
    pub(super) fn forget_recording(&mut self, now: Instant) {
        if self.recorder.as_ref().is_some_and(|recorder| recorder.is_forgotten(now)) {
            self.recorder = None;
        }
    }
}
