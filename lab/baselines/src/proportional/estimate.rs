//! What the drive can do: throughput over the time that it was busy.

use iofair_core::time::{Instant, Nanos};

/// A sample needs a drive that was busy for this percentage of the period (as in TencentOS-kernel's throttle).
const BUSY_PERCENT: u64 = 25;

/// How an estimate follows its samples: by 1/n of the distance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Follow {
    pub(super) up: u64,
    pub(super) down: u64,
}

/// The work in this period, and the estimate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    follow: Follow,
    /// Requests between this policy and their completion.
    inside: u64,
    busy_since: Option<Instant>,
    busy: Nanos,
    /// Completed units of cost.
    done: u64,
    start: Instant,
    /// Units a second.
    capacity: Option<u64>,
}

impl Estimate {
    pub(super) fn new(follow: Follow) -> Self {
        Self {
            follow,
            inside: 0,
            busy_since: None,
            busy: Nanos::ZERO,
            done: 0,
            start: Instant::ZERO,
            capacity: None,
        }
    }
    /// Units a second; `None` before the first sample.
    pub(super) fn capacity(&self) -> Option<u64> {
        self.capacity
    }
    /// Records a request that goes to the drive.
    pub(super) fn enter(&mut self, now: Instant) {
        self.inside += 1;
        self.busy_since.get_or_insert(now);
    }
    /// Records completed requests.
    pub(super) fn leave(&mut self, now: Instant, requests: u64, units: u64) {
        self.inside -= requests;
        self.done += units;
        if self.inside > 0 {
            return;
        }
        if let Some(since) = self.busy_since.take() {
            self.busy += now.since(since.max(self.start));
        }
    }
    /// Starts a period without history.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.start, self.busy, self.done) = (now, Nanos::ZERO, 0);
    }
    /// Ends a period and takes its sample, if it is valid.
    pub(super) fn sample(&mut self, now: Instant) {
        let mut busy = self.busy;
        if let Some(since) = self.busy_since {
            busy += now.since(since.max(self.start));
        }
        if busy == Nanos::ZERO || busy * 100 < now.since(self.start) * BUSY_PERCENT {
            return;
        }
        let rate = u128::from(self.done) * 1_000_000_000 / u128::from(busy.0);
        let sample = u64::try_from(rate).unwrap_or(u64::MAX);
        self.capacity = Some(match self.capacity {
            None => sample,
            Some(old) if sample < old => old - (old - sample) / self.follow.down,
            Some(old) => old + (sample - old) / self.follow.up,
        });
    }
}
