//! A client's queues, and how its requests are counted.

use iofair_core::minimum::Amount;
use iofair_core::parts::fifo::Fifo;
use iofair_core::request::{Operation, Request};

use super::clock::Kind;
use super::shares::{SIDES, Side};

/// A trim moves no data, but counts this many bytes for minimums, and so does a flush without a write before it, so that a loop
/// of them does not get the whole drive: a long request.
const NO_DATA: u64 = 128 << 10;
/// Most consecutive flushes that count nothing: as many as a client may have requests.
const FLUSHES_FREE: u32 = 1024;
/// Queues of a client, in order of arrival.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Client {
    pub(super) queues: [Fifo; SIDES],
    /// Flushes that count nothing: one for each write so far.
    flushes_free: u32,
}

impl Client {
    /// A write was queued: one more flush counts nothing.
    pub(super) fn on_write(&mut self) {
        self.flushes_free = (self.flushes_free + 1).min(FLUSHES_FREE);
    }
    /// How much a command counts for minimums.
    pub(super) fn amount(&mut self, operation: Operation, bytes: u64) -> Amount {
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

/// The queue that a request belongs to.
pub(super) fn side(request: &Request) -> Side {
    match request.operation {
        Operation::Read => Side::Read,
        Operation::Flush => Side::Flush,
        _ => Side::Write,
    }
}

/// How clocks count a request.
pub(super) fn kind(request: &Request) -> Kind {
    match request.operation {
        Operation::Read => Kind::Read,
        Operation::Flush => Kind::Urgent,
        _ if request.is_sync() => Kind::Urgent,
        _ => Kind::Buffered,
    }
}
