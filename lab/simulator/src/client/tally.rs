//! Calls of a process in the measured time. A call counts when it ends in that time.

use iofair_core::stats::histogram::Histogram;
use iofair_core::time::{Instant, Nanos};

use super::pace::Batch;
use crate::outcome::{DirectionOutcome, Interval};
use crate::scenario::Direction;

/// Counts of one process.
#[derive(Debug)]
pub(crate) struct Tally {
    after: Instant,
    until: Instant,
    /// Of reads, writes and trims.
    pub(crate) sides: [DirectionOutcome; 3],
    pub(crate) sync_latency: Histogram,
    /// Of the process' requests, and of the flusher's for it.
    pub(crate) drive_bytes: u64,
    interval: Option<Nanos>,
}

impl Tally {
    /// Counts what ends after `after` and not later than `until`.
    pub(crate) fn new(after: Instant, until: Instant) -> Self {
        let (sides, sync_latency) = (Default::default(), Histogram::new());
        Self { after, until, sides, sync_latency, drive_bytes: 0, interval: None }
    }
    /// Also counts by intervals.
    pub(crate) fn with_interval(self, interval: Option<Nanos>) -> Self {
        Self { interval, ..self }
    }
    /// Counts what ends after `after`, however late.
    pub(crate) fn restart(&mut self, after: Instant) {
        (self.after, self.until) = (after, Instant::MAX);
    }
    /// Counts nothing that ends later.
    pub(crate) fn stop(&mut self, until: Instant) {
        self.until = self.until.min(until);
    }
    /// When counting begins.
    pub(crate) fn after(&self) -> Instant {
        self.after
    }
    /// The interval of this number in a direction.
    fn interval(&mut self, direction: Direction, index: usize) -> &mut Interval {
        let series = &mut self.sides[direction.index()].series;
        if index >= series.len() {
            series.resize(index + 1, Interval::default());
        }
        &mut series[index]
    }
    /// Calls in all directions.
    pub(crate) fn calls(&self) -> u64 {
        self.sides.iter().map(|side| side.calls).sum()
    }
    /// All intervals until `end`, in all directions together; empty unless they were asked for.
    pub(crate) fn series(&self, end: Instant) -> Vec<Interval> {
        let Some(interval) = self.interval else { return Vec::new() };
        let until = self.until.min(end);
        let intervals = until.since(self.after).0.div_ceil(interval.0.max(1));
        let mut all = vec![Interval::default(); intervals as usize];
        for (sum, one) in self.sides.iter().flat_map(|side| all_of(&side.series)) {
            if sum >= all.len() {
                all.resize(sum + 1, Interval::default());
            }
            let sum = &mut all[sum];
            sum.calls += one.calls;
            sum.bytes += one.bytes;
            sum.latency += one.latency;
            sum.longest = sum.longest.max(one.longest);
        }
        all
    }
    /// Calls of a batch that end in order, those after the first `from` up to `to`.
    fn count_series(&mut self, direction: Direction, batch: &Batch, from: u64, to: u64) {
        let Some(interval) = self.interval else { return };
        let mut counted = from;
        while counted < to {
            let index = self.index(batch.end(counted + 1), interval);
            let border = self.after + interval * (index as u64 + 1);
            let next = batch.ended_by(border).clamp(counted + 1, to);
            let sum = self.interval(direction, index);
            sum.calls += next - counted;
            sum.bytes += (next - counted) * batch.block();
            sum.latency += (next - counted) * batch.cost().0;
            sum.longest = sum.longest.max(batch.cost().0);
            counted = next;
        }
    }
    /// An end at a border belongs to the interval before it, as the end of the run does.
    fn index(&self, end: Instant, interval: Nanos) -> usize {
        ((end.since(self.after).0 - 1) / interval.0) as usize
    }
    fn is_measured(&self, end: Instant) -> bool {
        end > self.after && end <= self.until
    }
    /// The drive completed a request of the process, or of the flusher for it.
    pub(crate) fn count_drive(&mut self, now: Instant, bytes: u64) {
        if self.is_measured(now) {
            self.drive_bytes += bytes;
        }
    }
    /// A read or write call ended.
    pub(crate) fn count(&mut self, direction: Direction, end: Instant, bytes: u64, latency: Nanos) {
        if self.is_measured(end) {
            let side = &mut self.sides[direction.index()];
            side.bytes += bytes;
            side.calls += 1;
            side.latency.record(latency.0);
            if let Some(interval) = self.interval {
                let index = self.index(end, interval);
                let sum = self.interval(direction, index);
                sum.calls += 1;
                sum.bytes += bytes;
                sum.latency += latency.0;
                sum.longest = sum.longest.max(latency.0);
            }
        }
    }
    /// The first `calls` calls of a batch end as it says.
    pub(crate) fn count_batch(&mut self, direction: Direction, batch: &Batch, calls: u64) {
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
        let side = &mut self.sides[direction.index()];
        side.bytes += counted * batch.block();
        side.calls += counted;
        side.latency.record_many(batch.cost().0, counted);
        self.count_series(direction, batch, before, ended);
    }
    /// An `fdatasync` ended.
    pub(crate) fn count_sync(&mut self, end: Instant, latency: Nanos) {
        if self.is_measured(end) {
            self.sync_latency.record(latency.0);
        }
    }
}

/// Intervals with their numbers.
fn all_of(series: &[Interval]) -> impl Iterator<Item = (usize, &Interval)> {
    series.iter().enumerate()
}

#[cfg(test)]
mod tests {
    use super::super::pace::{Pacer, PacerSetup, Plan};
    use super::*;
    use iofair_drive::random::Random;

    /// Goal: calls count in the interval in which they end, one at a time or as a batch. Method: calls at and
    /// beside the borders of 1 ms, and a batch of 250 us a call over 2.5 ms from the ramp's end on.
    #[test]
    fn calls_count_where_they_end() {
        let at = |us: u64| Instant::ZERO + Nanos::from_micros(us);
        let tally = Tally::new(at(1_000), at(4_500));
        let mut tally = tally.with_interval(Some(Nanos::from_millis(1)));
        for us in [900, 1_000, 1_001, 2_000, 2_001, 4_500, 4_501] {
            tally.count(Direction::Read, at(us), 1, Nanos(7));
        }
        let counts = |tally: &Tally| {
            tally.series(at(4_500)).iter().map(|interval| interval.calls).collect::<Vec<_>>()
        };
        assert_eq!(counts(&tally), [2, 1, 0, 1]);
        let first = tally.series(at(4_500))[0];
        assert_eq!((first.latency, first.longest), (14, 7));
        let (start, stop) = (Instant::ZERO, Instant::MAX);
        let setup = PacerSetup { start, stop, ramp_end: at(1_000), ..PacerSetup::default() };
        let mut pacer = Pacer::new(setup, Random::new(1, 1));
        let cost = Nanos::from_micros(250);
        let batch = pacer.start_batch(Plan {
            ready: at(500),
            calls: 10,
            block: 4096,
            cost,
            think: Nanos::ZERO,
        });
        tally.count_batch(Direction::Read, &batch, 10);
        // They end at 750, 1000, 1250, ... 3000 us.
        assert_eq!(counts(&tally), [6, 5, 0, 1]);
        assert_eq!(tally.series(at(4_500))[1].latency, 7 + 4 * cost.0);
        assert_eq!(tally.series(at(4_500))[1].bytes, 1 + 4 * 4096);
        assert_eq!(tally.series(at(4_500))[1].longest, cost.0);
    }
}
