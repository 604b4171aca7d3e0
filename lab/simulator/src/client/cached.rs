//! Buffered writes of jobs whose calls differ, and what `fdatasync` has to write of them first: one call after the other, each
//! with an event. (Writes that are alike are counted in batches, see [`super::write`].)

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::base::{Base, Range};
use super::write::NO_ROOM_SLEEP;
use crate::cache::Cache;
use crate::cache::pages::COST_WINDOW;
use crate::engine::Engine;

/// A process' file in the page cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedFile {
    /// Its place among the page cache's files.
    pub(crate) file: usize,
    /// Time to copy 256 KiB.
    pub(crate) produce_window: Nanos,
    /// Longest request of `fdatasync`.
    pub(crate) longest: Sectors,
}

impl CachedFile {
    /// Copies a call into the page cache: when that is done, or `None` if there is no room yet; then the caller asks again at the
    /// returned time.
    pub(super) fn copy(
        &self,
        engine: &Engine<'_>,
        cache: &mut Cache,
        offset: Sectors,
        length: Sectors,
    ) -> Result<Instant, Instant> {
        let now = engine.now;
        if !cache.has_room(self.file, length.bytes()) {
            return Err(now + NO_ROOM_SLEEP);
        }
        cache.dirty(self.file, offset, length, now);
        Ok(now + Nanos(self.produce_window.0 * length.bytes() / COST_WINDOW))
    }
    /// The pause that the page cache demands after a call.
    pub(super) fn balance(
        &self,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        length: Sectors,
    ) -> Nanos {
        let pause = cache.balance(self.file, length.bytes(), engine.now);
        cache.write_back(self.file, engine);
        pause
    }
    /// Sends what is dirty, as `fdatasync` does; the number of requests.
    pub(super) fn send_dirty(
        &self,
        base: &Base,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        slot: u32,
    ) -> u32 {
        let mut parts = 0;
        while let Some((offset, length)) = cache.take_dirty(self.file, self.longest) {
            let (operation, flags) = (Operation::Write, base.flags().with(Flags::SYNC));
            parts +=
                base.send(engine, Range { slot, operation, flags, offset, length }, self.longest);
        }
        parts
    }
}
