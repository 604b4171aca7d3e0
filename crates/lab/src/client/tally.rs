//! What a process got in the time that is measured. A call counts when it ends in that time.

use iofair_core::stats::histogram::Histogram;
use iofair_core::time::{Instant, Nanos};

use super::pace::Batch;

/// Counts of one process.
#[derive(Debug)]
pub(crate) struct Tally {
    after: Instant,
    until: Instant,
    pub(crate) bytes: u64,
    pub(crate) calls: u64,
    pub(crate) latency: Histogram,
    pub(crate) sync_latency: Histogram,
}

impl Tally {
    /// Counts what ends after `after` and not later than `until`.
    pub(crate) fn new(after: Instant, until: Instant) -> Self {
        let (latency, sync_latency) = (Histogram::new(), Histogram::new());
        Self { after, until, bytes: 0, calls: 0, latency, sync_latency }
    }
    fn is_measured(&self, end: Instant) -> bool {
        end > self.after && end <= self.until
    }
    /// A read or write call ended.
    pub(crate) fn count(&mut self, end: Instant, bytes: u64, latency: Nanos) {
        if self.is_measured(end) {
            self.bytes += bytes;
            self.calls += 1;
            self.latency.record(latency.0);
        }
    }
    /// The first `calls` calls of a batch end as it says.
    pub(crate) fn count_batch(&mut self, batch: &Batch, calls: u64) {
        if calls == 0 {
            return;
        }
        let before = match batch.end(1) > self.after {
            true => 0,
            false => batch.ended_by(self.after).min(calls),
        };
        let ended = match batch.end(calls) <= self.until {
            true => calls,
            false => batch.ended_by(self.until).min(calls),
        };
        let counted = ended.saturating_sub(before);
        self.bytes += counted * batch.block();
        self.calls += counted;
        self.latency.record_many(batch.cost().0, counted);
    }
    /// An `fdatasync` ended.
    pub(crate) fn count_sync(&mut self, end: Instant, latency: Nanos) {
        if self.is_measured(end) {
            self.sync_latency.record(latency.0);
        }
    }
}
