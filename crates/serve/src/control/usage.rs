//! The counters of a group's usage, with the same names in all outputs.

use iofair_core::id::GroupId;
use iofair_core::time::Nanos;
use serde::Serialize;

use crate::engine::tally::GroupTally;
use crate::reactor::Seen;

/// Numbers of one group. Counts are of volumes directly in it, since the server started or the group was made.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Usage {
    /// In the last second, including groups inside it.
    bytes_per_second: u64,
    /// Processor time of the last second in per cent of one core, including groups inside it.
    pub(super) cpu_percent: f64,
    /// Now, including groups inside it.
    requests_in_flight: u64,
    /// Request slots held now by volumes directly in it.
    pub(super) request_slots: u64,
    /// Payload held now by clients of volumes directly in it, beyond 128 KiB each.
    pub(super) memory_bytes: u64,
    /// Processor time spent on volumes directly in it since the start; all counters refer to these volumes and this
    /// time.
    cpu_seconds: f64,
    /// Completed: reads, then all others.
    requests: [u64; 2],
    /// Bytes of these requests.
    bytes: [u64; 2],
    /// Completed.
    flushes: u64,
    /// Completed; also counted in `requests`.
    trims: u64,
    /// Completed; also counted in `requests`.
    zeroes: u64,
    /// Block-status requests.
    block_statuses: u64,
    /// Failed and refused requests.
    failed: u64,
    /// Requests that a front end refused.
    refused: u64,
    /// Times that a client had to wait for a request slot, memory or another block-status request.
    stalls: u64,
    /// Calls to the control socket that named it or a volume directly in it.
    control_calls: u64,
    /// Seconds in which its minimum was not kept.
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
