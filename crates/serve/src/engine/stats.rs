//! Counters per volume, and the drive's busy time.

use iofair_core::request::Direction;
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::{Instant, Nanos};

use super::runs::Failing;

/// A volume's counters. Arrays are indexed by [`Direction`]; trims and zeroes count as writes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VolumeStats {
    /// Completed requests.
    pub requests: [u64; 2],
    /// Bytes of completed requests; trims have none.
    pub bytes: [u64; 2],
    /// Nanoseconds from a request's arrival in the engine to its completion.
    pub latency: [Histogram; 2],
    /// Completed flushes.
    pub flushes: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Failed flushes after which completed writes may be lost.
    pub losses: u64,
}

impl VolumeStats {
    /// Counts a completed request.
    pub(super) fn count(&mut self, direction: Direction, bytes: u64, latency: Nanos) {
        let i = direction as usize;
        self.requests[i] += 1;
        self.bytes[i] += bytes;
        self.latency[i].record(latency.0);
    }
}

/// A server's counters since its start (or since the last snapshot with a reset).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Snapshot {
    /// The time since then.
    pub time: Nanos,
    /// The part of it in which the drive had at least one command.
    pub busy: Nanos,
    /// Open connections.
    pub connections: usize,
    /// Requests in flight.
    pub pending: usize,
    /// By volume, in order of creation: name, group, counters.
    pub volumes: Vec<VolumeSnapshot>,
}

impl Snapshot {
    /// The part of the time in which the drive had a command, per million.
    pub fn utilisation_ppm(&self) -> u64 {
        let ppm = u128::from(self.busy.0) * 1_000_000 / u128::from(self.time.0.max(1));
        u64::try_from(ppm).unwrap_or(u64::MAX)
    }
}

/// One volume of a [`Snapshot`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeSnapshot {
    /// Its name.
    pub name: String,
    /// Its group's path.
    pub group: String,
    /// Open connections to it.
    pub connections: u32,
    /// Its counters.
    pub stats: VolumeStats,
}

/// A volume as its operator sees it.
pub(crate) struct VolumeReport<'a> {
    pub(crate) name: &'a str,
    pub(crate) group: &'a str,
    /// Open connections to it.
    pub(crate) connections: u32,
    pub(crate) stats: &'a VolumeStats,
    /// Its last requests of a kind, if they have all failed.
    pub(crate) failing: Option<Failing>,
}

/// How long the drive had a command.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Busy {
    total: Nanos,
    since: Option<Instant>,
}

impl Busy {
    pub(super) fn update(&mut self, now: Instant, busy: bool) {
        match (self.since, busy) {
            (None, true) => self.since = Some(now),
            (Some(since), false) => {
                self.total += now.since(since);
                self.since = None;
            }
            _ => {}
        }
    }
    pub(super) fn total(&self, now: Instant) -> Nanos {
        self.total + self.since.map_or(Nanos::ZERO, |since| now.since(since))
    }
}
