//! Makes a trace playable on a drive: times count from 0 and never go back, requests lie on the drive and have a length
//! that a drive takes. What is repaired or skipped is counted, never silently.
//!
//! Each volume of a trace has addresses of its own, which begin at 0. On the drive they begin at different places, or else
//! all would share their first sectors: volume `v` begins at the fraction `v * (golden ratio)` of the drive, and wraps at
//! its end. The first volume begins at 0, so the addresses of a trace with one volume stay.

use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::{SECTOR_BYTES, Sectors};

use crate::error::Result;
use crate::record::{Metadata, Record, Stream};
use crate::source::{Notes, Source};

/// Longest read or write that is played. Trims and requests for zeroes may be as long as the drive.
pub(crate) const DATA_MAX: u64 = 64 << 20;

/// The notes.
pub const BACKWARDS: &str = "times earlier than the one before, which were moved to it";
/// See [`BACKWARDS`].
pub const EMPTY: &str = "requests of 0 bytes, which were skipped";
/// See [`BACKWARDS`].
pub const LONG: &str = "reads and writes longer than 64 MiB or than the drive, which were skipped";
/// See [`BACKWARDS`].
pub const SHORTENED: &str =
    "trims and requests for zeroes longer than the drive, which were shortened";
/// See [`BACKWARDS`].
pub const BEYOND: &str = "requests beyond the end of the drive, whose addresses were wrapped";
/// See [`BACKWARDS`].
pub const PARTIAL: &str = "requests of parts of sectors, which were played as whole ones";
/// See [`BACKWARDS`].
pub const FAILED: &str = "requests that had failed, which are played as others";

/// See [`BACKWARDS`].
pub const TOO_LATE: &str = "requests more than 146 years after the first one, which were skipped";
/// Times beyond this are not played: 146 years leave room for every sum.
pub const TIME_MAX: Nanos = Nanos(u64::MAX / 4);

/// The fractional part of the golden ratio, as a part of 2^64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A request on a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Playable {
    /// As recorded, except that its time counts from the first request of the trace.
    pub record: Record,
    /// First sector on the drive.
    pub start: Sectors,
    /// Length; zero for a flush.
    pub length: Sectors,
}

/// A trace for a drive.
pub struct Clean<S> {
    source: S,
    capacity: u64,
    first: Option<Instant>,
    last: Nanos,
    notes: Notes,
}

impl<S: Source> Clean<S> {
    /// A trace for a drive of this capacity, which must not be zero.
    pub fn new(source: S, capacity: Sectors) -> Self {
        assert!(capacity > Sectors::ZERO, "a drive has sectors");
        Self {
            source,
            capacity: capacity.0,
            first: None,
            last: Nanos::ZERO,
            notes: Notes::default(),
        }
    }
    /// The next request.
    pub fn next_request(&mut self) -> Result<Option<Playable>> {
        while let Some(record) = self.source.next_record()? {
            if let Some(playable) = self.place(record) {
                return Ok(Some(playable));
            }
        }
        Ok(None)
    }
    /// The streams seen so far.
    pub fn streams(&self) -> &[Stream] {
        self.source.streams()
    }
    /// What is known about the trace.
    pub fn metadata(&self) -> Metadata {
        self.source.metadata()
    }
    /// What was left out or repaired so far.
    pub fn notes(&self) -> Notes {
        let mut notes = self.source.notes();
        notes.merge(&self.notes);
        notes
    }
    fn place(&mut self, mut record: Record) -> Option<Playable> {
        let first = *self.first.get_or_insert(record.at);
        let mut at = Nanos(record.at.0.saturating_sub(first.0));
        if at > TIME_MAX {
            // A wild time changes none of those behind it.
            self.notes.count(TOO_LATE);
            return None;
        }
        if record.at < first || at < self.last {
            self.notes.count(BACKWARDS);
            at = self.last;
        }
        self.last = at;
        record.at = Instant(at.0);
        if record.completion.is_some_and(|completion| completion.failed) {
            self.notes.count(FAILED);
        }
        if record.operation == Operation::Flush {
            return Some(Playable { record, start: Sectors::ZERO, length: Sectors::ZERO });
        }
        if record.length == 0 {
            self.notes.count(EMPTY);
            return None;
        }
        let head = record.offset % SECTOR_BYTES;
        let mut sectors = record.length.saturating_add(head).div_ceil(SECTOR_BYTES);
        let has_data = matches!(record.operation, Operation::Read | Operation::Write);
        if has_data && (record.length > DATA_MAX || sectors > self.capacity) {
            self.notes.count(LONG);
            return None;
        }
        if head > 0 || !record.length.is_multiple_of(SECTOR_BYTES) {
            self.notes.count(PARTIAL);
        }
        if sectors > self.capacity {
            self.notes.count(SHORTENED);
            sectors = self.capacity;
        }
        let own = record.offset / SECTOR_BYTES;
        let volume = self.source.streams()[record.stream as usize].volume;
        if own > self.capacity - sectors {
            self.notes.count(BEYOND);
        }
        let part = u128::from(GOLDEN.wrapping_mul(u64::from(volume)));
        // Whole MiB, so that alignments stay.
        let base = ((part * u128::from(self.capacity)) >> 64) as u64 / 2048 * 2048;
        let start = (own % self.capacity + base) % self.capacity;
        let start = start.min(self.capacity - sectors);
        Some(Playable { record, start: Sectors(start), length: Sectors(sectors) })
    }
}
