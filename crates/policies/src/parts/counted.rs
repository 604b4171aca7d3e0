//! How much a client's commands count for the minimums of its groups.

use iofair_core::minimum::Amount;
use iofair_core::request::Operation;

/// A trim moves no data, but counts this many bytes, and so does a flush without a write before it, so that a loop of them does not
/// get the whole drive: a long request. As many flushes as writes count nothing.
const NO_DATA: u64 = 128 << 10;
/// Most consecutive flushes that count nothing: as many as a client may have requests.
const FLUSHES_FREE: u32 = 1024;

/// The counter of a client.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counted {
    /// Flushes that count nothing: one for each write so far.
    flushes_free: u32,
}

impl Counted {
    /// A write was queued: one more flush counts nothing.
    pub(crate) fn on_write(&mut self) {
        self.flushes_free = (self.flushes_free + 1).min(FLUSHES_FREE);
    }
    /// How much a command counts.
    pub(crate) fn amount(&mut self, operation: Operation, bytes: u64) -> Amount {
        match operation {
            Operation::Flush if self.flushes_free > 0 => {
                self.flushes_free -= 1;
                Amount::default()
            }
            Operation::Flush | Operation::Discard => Amount::of(NO_DATA),
            Operation::Read | Operation::Write | Operation::WriteZeroes => Amount::of(bytes),
        }
    }
}
