//! The counters of a group's usage, with the same names in all outputs.

use iofair_core::id::GroupId;
use iofair_core::time::Nanos;
use serde::Serialize;

use crate::engine::tally::GroupTally;
use crate::reactor::Seen;

/// Numbers of one group. Counts are of volumes directly in it, since the server started or the group was made.
#[derive(Clone, Serialize)]
pub(super) struct Usage {
    /// In the last second, groups in it included.
    bytes_per_second: u64,
    /// Processor time of the last second in per cent of one core, groups in it included.
    pub(super) cpu_percent: f64,
    /// Now, groups in it included.
    requests_in_flight: u64,
    /// Request slots that it holds now.
    pub(super) request_slots: u64,
    /// Bytes of payload that its clients hold now beyond what each may hold in any case.
    pub(super) memory_bytes: u64,
    cpu_seconds: f64,
    /// Reads, then the rest; so are bytes.
    requests: [u64; 2],
    bytes: [u64; 2],
    flushes: u64,
    trims: u64,
    zeroes: u64,
    block_statuses: u64,
    failed: u64,
    refused: u64,
    stalls: u64,
    control_calls: u64,
    broken_promise_seconds: u64,
}

/// What a group holds at this moment.
#[derive(Clone, Copy)]
pub(super) struct Holds {
    pub(super) slots: u64,
    pub(super) memory: u64,
}

impl Holds {
    pub(super) fn read(seen: &Seen<'_>, group: GroupId) -> Self {
        let slots = seen.engine.controller().slots_of(group);
        Self { slots, memory: seen.memory(group) }
    }
}

impl Usage {
    pub(super) fn new(tally: &GroupTally, holds: Holds) -> Self {
        Self {
            bytes_per_second: tally.last.rate(),
            cpu_percent: tally.last.cpu_percent(),
            requests_in_flight: tally.inside,
            request_slots: holds.slots,
            memory_bytes: holds.memory,
            cpu_seconds: seconds(tally.cpu),
            requests: tally.requests,
            bytes: tally.bytes,
            flushes: tally.flushes,
            trims: tally.trims,
            zeroes: tally.zeroes,
            block_statuses: tally.block_statuses,
            failed: tally.failed,
            refused: tally.refused,
            stalls: tally.stalls,
            control_calls: tally.control_calls,
            broken_promise_seconds: tally.broken_seconds,
        }
    }
    /// That of one group, if it is there.
    pub(super) fn read(seen: &Seen<'_>, path: &str) -> Option<Self> {
        let id = seen.engine.group_named(path)?;
        Some(Self::new(seen.engine.tally(id), Holds::read(seen, id)))
    }
}

pub(super) fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}
