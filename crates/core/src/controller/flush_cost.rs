//! What a flush costs: the work that the drive did not do because of it.
//!
//! Measured, since drives differ by orders of magnitude (a drive with a protected cache completes a flush at once, a
//! rotating one takes 20 ms) and some go on with other commands meanwhile:
//!
//! ```text
//! rate = bytes / busy time, while the drive has reads or writes and no flush (mean over windows of 50 ms)
//! lost = rate * time with a flush in flight - bytes completed in that time
//! cost = mean of lost / flushes, each shared command counted as many flushes as it stands for
//! ```
//!
//! So the costs of all flushes add up to the lost work, whoever shares a command with whom. Integer arithmetic,
//! rounded down; nothing is known before the first window and the first flush, and a flush costs a page then.

use crate::time::{Instant, Nanos};
use crate::unit::Sectors;

/// Busy time that makes a sample of the rate: long against a command, short against a change of load.
const WINDOW: Nanos = Nanos::from_millis(50);
/// Means follow a new sample by one part in four.
const FOLLOW: u64 = 4;
/// The least cost: a page, what a throttle with a cost model takes for a write without sectors.
const COST_MIN: Sectors = Sectors(8);
/// The most, in commands of the greatest length. A scheduler that holds one request of this length still keeps its
/// promises about latency; a drive of 500 MB/s does 16 MiB in 34 ms, more than flushes of drives usually take.
const COST_MAX_COMMANDS: u64 = 16;

/// Bytes completed in some time.
#[derive(Clone, Copy, Default, Debug)]
struct Work {
    time: Nanos,
    bytes: u64,
}

/// Watches the drive.
#[derive(Debug)]
pub(super) struct FlushCost {
    limit: Sectors,
    /// In flight: reads and writes, commands that flush.
    data: u32,
    flushes: u32,
    /// Up to when time was counted.
    at: Instant,
    /// Without a flush in flight, in this window.
    clean: Work,
    /// With one, since the last flush was completed.
    flushing: Work,
    /// Bytes a second without flushes.
    rate: Option<u64>,
    /// Bytes.
    cost: u64,
}

impl FlushCost {
    pub(super) fn new(max_request: Sectors) -> Self {
        Self {
            limit: Sectors(max_request.0.saturating_mul(COST_MAX_COMMANDS)),
            data: 0,
            flushes: 0,
            at: Instant::ZERO,
            clean: Work::default(),
            flushing: Work::default(),
            rate: None,
            cost: 0,
        }
    }
    /// What the next flush costs.
    pub(super) fn cost(&self) -> Sectors {
        Sectors(self.cost / Sectors(1).bytes()).clamp(COST_MIN, self.limit.max(COST_MIN))
    }
    /// A read or a write goes to the drive.
    pub(super) fn on_data(&mut self, now: Instant) {
        self.pass(now);
        self.data += 1;
    }
    /// A read or a write was completed.
    pub(super) fn on_data_done(&mut self, now: Instant, bytes: u64) {
        self.pass(now);
        self.data -= 1;
        let work = if self.flushes > 0 { &mut self.flushing } else { &mut self.clean };
        work.bytes = work.bytes.saturating_add(bytes);
        if self.clean.time >= WINDOW {
            let Work { time, bytes } = core::mem::take(&mut self.clean);
            let sample = bytes_in(bytes, time, Nanos::from_secs(1));
            self.rate = Some(self.rate.map_or(sample, |rate| follow(rate, sample)));
        }
    }
    /// A command that flushes goes to the drive.
    pub(super) fn on_flush(&mut self, now: Instant) {
        self.pass(now);
        self.flushes += 1;
    }
    /// A command that stood for this many flushes was completed.
    pub(super) fn on_flush_done(&mut self, now: Instant, flushes: u64) {
        self.pass(now);
        self.flushes -= 1;
        let Work { time, bytes } = core::mem::take(&mut self.flushing);
        if let Some(rate) = self.rate {
            let lost = bytes_in(rate, Nanos::from_secs(1), time).saturating_sub(bytes);
            // Weighted by flushes: a command that stands for many is as many samples.
            for _ in 0..flushes.min(u64::from(u8::MAX)) {
                self.cost = follow(self.cost, lost / flushes.max(1));
            }
        }
    }
    /// Time passes, with what is in flight now.
    fn pass(&mut self, now: Instant) {
        let passed = now.since(self.at);
        self.at = self.at.max(now);
        if self.flushes > 0 {
            self.flushing.time += passed;
        } else if self.data > 0 {
            self.clean.time += passed;
        }
    }
}

/// `bytes` in `time` are how many in `other`? Rounded down.
fn bytes_in(bytes: u64, time: Nanos, other: Nanos) -> u64 {
    let product = u128::from(bytes) * u128::from(other.0) / u128::from(time.0.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

fn follow(mean: u64, sample: u64) -> u64 {
    if sample > mean {
        mean + (sample - mean).div_ceil(FOLLOW)
    } else {
        mean - (mean - sample) / FOLLOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    /// 100 ms of 100 KiB a millisecond, one command at a time.
    fn drive() -> (FlushCost, u64) {
        let mut cost = FlushCost::new(Sectors(2048));
        let mut now = MS;
        for _ in 0..100 {
            cost.on_data(Instant(now));
            now += MS;
            cost.on_data_done(Instant(now), 100 << 10);
        }
        (cost, now)
    }

    /// Goal: a flush that stops the drive costs what the drive does in its time. Method: 2 ms at 100 KiB/ms is 400
    /// sectors; flushes that share a command share the cost.
    #[test]
    fn a_flush_costs_the_work_lost() {
        for (shared, wanted) in [(1, 400), (4, 100)] {
            let (mut cost, mut now) = drive();
            assert_eq!(cost.cost(), COST_MIN, "nothing known");
            for _ in 0..40 {
                cost.on_flush(Instant(now));
                now += 2 * MS;
                cost.on_flush_done(Instant(now), shared);
                now += MS;
            }
            assert!(cost.cost().0.abs_diff(wanted) <= 1, "{:?}", cost.cost());
        }
    }

    /// Goal: a flush beside which the drive goes on costs what it slows down, and one that costs nothing a page.
    /// Method: while a flush takes 2 ms the drive does 150 KiB, three quarters; then the whole 200.
    #[test]
    fn work_beside_a_flush_is_not_lost() {
        for (done, wanted) in [(150 << 10, 100), (200 << 10, 8), (900 << 10, 8)] {
            let (mut cost, mut now) = drive();
            for _ in 0..40 {
                cost.on_flush(Instant(now));
                cost.on_data(Instant(now));
                now += 2 * MS;
                cost.on_data_done(Instant(now), done);
                cost.on_flush_done(Instant(now), 1);
                now += MS;
            }
            assert!(cost.cost().0.abs_diff(wanted) <= 1, "{:?}", cost.cost());
        }
    }

    /// Goal: the cost is bounded, and no number overflows. Method: a flush of years, a drive of impossible speed.
    #[test]
    fn the_cost_is_bounded() {
        let mut cost = FlushCost::new(Sectors(64));
        cost.on_data(Instant(0));
        cost.on_data_done(Instant(51 * MS), u64::MAX);
        cost.on_flush(Instant(51 * MS));
        cost.on_flush_done(Instant(u64::MAX), 1);
        assert_eq!(cost.cost(), Sectors(64 * COST_MAX_COMMANDS));
        cost.on_flush(Instant(5 * US));
        cost.on_flush_done(Instant(0), u64::MAX);
        assert!(cost.cost() <= Sectors(64 * COST_MAX_COMMANDS));
    }
}
