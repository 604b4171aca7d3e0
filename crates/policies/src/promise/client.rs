//! A client's queues, and how its requests are counted.

use iofair_core::parts::fifo::Fifo;
use iofair_core::request::{Operation, Request};
use iofair_core::time::Instant;

use super::requests::{Kind, Requests};
use super::shares::SIDES;
use crate::parts::counted::Counted;

/// Queues of a client, in order of arrival. What a read needs is in the first cache line.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C, align(64))]
pub(super) struct Client {
    pub(super) requests: Requests,
    pub(super) queues: [Fifo; SIDES],
    /// How its commands count for minimums.
    pub(super) counted: Counted,
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
