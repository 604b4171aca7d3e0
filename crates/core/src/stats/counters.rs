//! What passed, by direction.

use crate::request::Direction;
use crate::time::Nanos;

/// Sums over requests of one group, client or drive; arrays are indexed by [`Direction`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Requests completed.
    pub requests: [u64; 2],
    /// Bytes completed, trimmed and zeroed ones too; stops at the largest number.
    pub bytes: [u64; 2],
    /// Sum of the times from submission to completion.
    pub latency: [Nanos; 2],
    /// Merges of requests into others.
    pub merged: u64,
    /// Flushes completed.
    pub flushes: u64,
}

impl Counters {
    /// Counts one completed request.
    pub fn count(&mut self, direction: Direction, bytes: u64, latency: Nanos) {
        let i = direction as usize;
        self.requests[i] += 1;
        self.bytes[i] = self.bytes[i].saturating_add(bytes);
        self.latency[i] += latency;
    }
}
