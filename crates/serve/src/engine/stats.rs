//! What passed: per volume, and how busy the drive was.

use iofair_core::request::Direction;
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::{Instant, Nanos};

/// One volume's numbers; arrays are indexed by [`Direction`], trims and zeroes count as writes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VolumeStats {
    /// Requests answered.
    pub requests: [u64; 2],
    /// Bytes answered.
    pub bytes: [u64; 2],
    /// Nanoseconds from a request's arrival in the engine to its answer.
    pub latency: [Histogram; 2],
    /// Flushes answered.
    pub flushes: u64,
    /// Requests that failed.
    pub failed: u64,
}

impl VolumeStats {
    /// Counts an answered request.
    pub(super) fn count(&mut self, direction: Direction, bytes: u64, latency: Nanos) {
        let i = direction as usize;
        self.requests[i] += 1;
        self.bytes[i] += bytes;
        self.latency[i].record(latency.0);
    }
}

/// What a server did since its start (or since the last snapshot that asked for a fresh start).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Snapshot {
    /// Time since then.
    pub time: Nanos,
    /// The part of it in which the drive had at least one command.
    pub busy: Nanos,
    /// Connections open now.
    pub connections: usize,
    /// Requests inside now.
    pub pending: usize,
    /// By volume, in the order in which they came into being: name, group, numbers.
    pub volumes: Vec<VolumeSnapshot>,
}

impl Snapshot {
    /// Parts per million of the time in which the drive had a command.
    pub fn utilisation_ppm(&self) -> u64 {
        let ppm = u128::from(self.busy.0) * 1_000_000 / u128::from(self.time.0.max(1));
        u64::try_from(ppm).unwrap_or(u64::MAX)
    }
}

/// One volume of a [`Snapshot`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeSnapshot {
    /// The volume.
    pub name: String,
    /// Its group's path.
    pub group: String,
    /// Connections to it now.
    pub connections: u32,
    /// Its numbers.
    pub stats: VolumeStats,
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
