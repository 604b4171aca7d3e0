//! Measurements of one run.

use iofair_core::request::Operation;
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::Nanos;

/// One run's measurements, taken after the ramp.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// Time measured.
    pub time: Nanos,
    /// Per process, in the scenario's order.
    pub clients: Vec<ClientOutcome>,
    /// What went over the wire to and from the drive.
    pub drive: DriveOutcome,
    /// Hash of every dispatch of the run (time, client, sectors): equal runs have equal hashes.
    pub trace_hash: u64,
    /// Requests that the engine completed in the whole run, ramp included.
    pub simulated_requests: u64,
    /// Single requests, if they were kept.
    pub requests: Vec<Timeline>,
}

/// Measurements of one client, as the client itself sees them (calls, not drive requests).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClientOutcome {
    /// Its name.
    pub name: String,
    /// Its group's path.
    pub group: String,
    /// Its group's weight, as written.
    pub weight: u32,
    /// Bytes read or written by finished calls.
    pub bytes: u64,
    /// Bytes of its requests that the drive completed, its read-ahead and the writeback of its pages included; absent
    /// where nobody counts them.
    pub drive_bytes: Option<u64>,
    /// Finished calls.
    pub calls: u64,
    /// Time of each read or write call in nanoseconds, from call to return.
    pub latency: Histogram,
    /// Time of each `fdatasync` in nanoseconds.
    pub sync_latency: Histogram,
    /// Calls by when they ended, in intervals from the end of the ramp on; empty unless the scenario
    /// asks for it.
    pub series: Vec<Interval>,
    /// The same by direction: reads, writes, trims.
    pub directions: [DirectionOutcome; 3],
    /// Time measured, if it is not that of the run, as for clients in steps; else zero.
    pub time: Nanos,
    /// Calls in flight that its search for a depth found.
    pub depth: Option<u32>,
    /// Whether it ended because it got less than its least rate.
    pub too_slow: bool,
}

impl ClientOutcome {
    /// Its measured time in a run.
    pub fn time_in(&self, run: &Outcome) -> Nanos {
        if self.time > Nanos::ZERO { self.time } else { run.time }
    }
    /// The intervals of [`Self::series`] that count as samples: a client that ends by itself rarely ends with an interval, and
    /// what is left in its last one is only the end of calls that were in flight.
    pub fn whole_intervals(&self, interval: Nanos) -> &[Interval] {
        let whole = match self.time.0 / interval.0.max(1) {
            _ if self.time == Nanos::ZERO => self.series.len(),
            whole => (whole as usize).max(1).min(self.series.len()),
        };
        &self.series[..whole]
    }
}

/// Measurements of a client in one direction.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DirectionOutcome {
    /// Bytes of finished calls.
    pub bytes: u64,
    /// Finished calls.
    pub calls: u64,
    /// Time of each call in nanoseconds.
    pub latency: Histogram,
    /// Calls by when they ended; ends with the last interval in which one did.
    pub series: Vec<Interval>,
}

/// The calls that ended in one interval.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Interval {
    /// Number of calls.
    pub calls: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of their times in nanoseconds.
    pub latency: u64,
    /// The longest of them in nanoseconds.
    pub longest: u64,
}

/// Measurements of the drive.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DriveOutcome {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Commands completed.
    pub commands: u64,
    /// Those of them that read.
    pub reads: u64,
    /// Those of them that wrote.
    pub writes: u64,
    /// Time with at least one command.
    pub busy: Nanos,
    /// Bytes both ways in intervals from the end of the ramp on; empty unless the scenario asks for it, and outside.
    pub series: Vec<u64>,
}

/// A request and where its time went. The three parts add up to its latency.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// The process that it was for.
    pub process: String,
    /// Whether the flusher sent it, which writes pages of the process back.
    pub written_back: bool,
    /// Its operation.
    pub operation: Operation,
    /// Its length.
    pub bytes: u64,
    /// When it was submitted, from the end of the ramp on.
    pub submitted: Nanos,
    /// Held by throttles, or behind others of its process, which slept because all tags were in use.
    pub throttled: Nanos,
    /// Waited for a tag and in the scheduler.
    pub scheduled: Nanos,
    /// In the drive.
    pub served: Nanos,
    /// Whether it is one of the longest, and not one by chance.
    pub is_longest: bool,
}

impl Timeline {
    /// From its submission to its completion.
    pub fn latency(&self) -> Nanos {
        self.throttled + self.scheduled + self.served
    }
}
