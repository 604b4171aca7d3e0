//! A client's queues, and how its requests are counted.

use iofair_core::minimum::Amount;
use iofair_core::parts::fifo::Fifo;
use iofair_core::request::{Operation, Request};
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;

use super::requests::{Kind, Requests};
use super::shares::{SIDES, Side};

/// A trim moves no data, but counts this many bytes for minimums, and so does a flush without a write before it, so that
/// a loop of them does not get the whole drive. As many flushes as writes count nothing.
const NO_DATA: u64 = 128 << 10;
/// Most consecutive flushes that count nothing.
const FLUSHES_FREE: u32 = 1024;

/// Queues of a client, in order of arrival. What a read needs is in the first cache line.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C, align(64))]
pub(super) struct Client {
    pub(super) requests: Requests,
    /// Where its last read and its last write ended.
    ends: [Sectors; 2],
    pub(super) queues: [Fifo; SIDES],
    /// Flushes that count nothing: one for each write so far.
    flushes_free: u32,
    /// What it gets at least beside writes.
    pub(super) floor: super::late::Floor,
    /// Until when the delays of late reads have been compensated by pauses of writes.
    pub(super) compensated: Instant,
    /// Until then, its writes for a minimum pass its flushes: as long after its last flush as that took.
    pub(super) next_flush: Instant,
}

impl Client {
    /// Whether it flushed so recently that its next flush will come before more of its writes are gathered.
    pub(super) fn flushed_recently(&self, now: Instant) -> bool {
        now < self.next_flush + super::group_clock::BATCH_DELAY
    }
    /// A write was queued: one more flush counts nothing.
    pub(super) fn on_write(&mut self) {
        self.flushes_free = (self.flushes_free + 1).min(FLUSHES_FREE);
    }
    /// How much a command counts for minimums.
    pub(super) fn promised_amount(&mut self, operation: Operation, bytes: u64) -> Amount {
        match operation {
            Operation::Flush if self.flushes_free > 0 => {
                self.flushes_free -= 1;
                Amount::default()
            }
            Operation::Flush | Operation::Discard => Amount::of(NO_DATA),
            Operation::Read | Operation::Write | Operation::WriteZeroes => Amount::of(bytes),
        }
    }
    /// Notes a command from `start` to `end`, and returns whether it does not start where the last one of its side ended.
    pub(super) fn is_far(&mut self, side: Side, start: Sectors, end: Sectors) -> bool {
        core::mem::replace(&mut self.ends[usize::from(side != Side::Read)], end) != start
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
        Operation::Flush => Kind::Flush,
        _ if request.is_sync() => Kind::Urgent,
        _ => Kind::Buffered,
    }
}

/// Bytes by which a command is charged: its length, also for trims and zeroes, which move no data. The length of a flush
/// is what the drive could have written meanwhile.
pub(super) fn bytes(request: &Request) -> u64 {
    request.length.bytes()
}
