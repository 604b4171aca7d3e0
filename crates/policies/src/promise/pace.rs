//! The rate of writes and flushes beside reads with a latency contract.
//!
//! A drive completes a write once it is in the drive's cache, and reads wait while the cache is written out, which the
//! drive does not report. The rate of writes is therefore controlled by the latency of reads:
//!
//! ```text
//! rate = measured rate of writes * part            1/16 <= part <= 1
//! part = part / 2          when a read missed its latency, at most once in 20 ms
//! part = part * 257/256    when a read met its latency
//! ```
//!
//! In equilibrium, less than one read in a hundred is late. If reads are late at a sixteenth of the rate, too, the drive
//! cannot keep the latency beside writes; writes then get at least half of the rate for some seconds. While no read
//! completes for 100 ms, the part is doubled, again and again.
//!
//! Sources: Chiu and Jain (1989), additive increase and multiplicative decrease; Linux's io.latency, which throttles the
//! groups that disturb a latency.

use crate::parts::scale::scale;
use iofair_core::time::{Instant, Nanos};

/// The value of [`Pace::part`] that means 1, and its lower bound.
const WHOLE: u64 = 1 << 16;
const LEAST: u64 = WHOLE / 16;
/// A read in time adds 1/256.
pub(super) const GROWTH: u64 = 256;
/// Late reads within this time count once.
pub(super) const TOGETHER: Nanos = Nanos::from_millis(20);
/// How long writes get at least half of the rate if the latency cannot be kept.
pub(super) const GIVEN_UP: Nanos = Nanos::from_secs(5);
/// The longest wait for the next write. A trim can be as long as the drive.
pub(super) const DELAY_MAX: Nanos = Nanos::from_secs(1);

/// Whether the latency can be kept is decided at less than twice the lowest part, over this many reads; it cannot if more
/// than one of `LATE_PART` was late.
const TRIAL: u32 = 256;
const LATE_PART: u32 = 50;
/// After this time without a read, the part is doubled.
const ABSENT: Nanos = Nanos::from_millis(100);

/// The pace of writes.
#[derive(Debug)]
pub(super) struct Pace {
    /// The part of the rate that writes get, in units of 1 / [`WHOLE`].
    part: u64,
    /// When the next write may go.
    next: Instant,
    /// The measured rate of writes, in bytes a second.
    rate: u64,
    /// When a late read last counted.
    cut: Instant,
    /// Reads near the lowest rate, and how many of them were late.
    reads: u32,
    late: u32,
    /// Until then, late reads do not count, since the latency cannot be kept.
    given_up: Instant,
    /// The last read, or the last time at which the part was doubled without one.
    last: Instant,
}

impl Pace {
    /// Writes get all of the rate until a read is late.
    pub(super) fn new() -> Self {
        let [next, cut, given_up, last] = [Instant::ZERO; 4];
        Self { part: WHOLE, next, rate: 0, cut, reads: 0, late: 0, given_up, last }
    }
    /// A read was completed while nothing was written. It only shows that its client is still active.
    pub(super) fn on_read_alone(&mut self, now: Instant) {
        self.last = now;
    }
    /// A read with a latency contract was completed beside writes, or a moment after writes.
    pub(super) fn on_read(&mut self, now: Instant, is_late: bool) {
        self.last = now;
        if now < self.given_up || self.gives_up(now, is_late) {
            return;
        }
        if !is_late {
            self.part = (self.part + self.part / GROWTH).min(WHOLE);
        } else if now >= self.cut + TOGETHER {
            self.part = (self.part / 2).max(LEAST.min(self.part));
            self.cut = now;
        }
    }
    /// Whether enough reads were late at nearly the lowest part: writes then get half of the rate for a while.
    fn gives_up(&mut self, now: Instant, is_late: bool) -> bool {
        if self.part >= 2 * LEAST {
            return false;
        }
        self.reads += 1;
        self.late += u32::from(is_late);
        if self.reads < TRIAL {
            return false;
        }
        if self.late > self.reads / LATE_PART {
            (self.part, self.given_up) = (WHOLE / 2, now + GIVEN_UP);
        }
        (self.reads, self.late) = (0, 0);
        true
    }
    /// The measured rate of writes, in bytes a second; if it changes, paced writes stay as fast as they are.
    pub(super) fn on_rate(&mut self, rate: u64) {
        if rate != self.rate && self.part < WHOLE {
            self.part = scale(self.part, self.rate, rate.max(1)).clamp(LEAST, WHOLE);
        }
        self.rate = rate;
    }
    /// The part of the rate that writes get, in percent.
    pub(super) fn percent(&self) -> u64 {
        self.part * 100 / WHOLE
    }
    /// When the next write may go.
    pub(super) fn next(&self) -> Instant {
        self.next
    }
    /// Makes writes pause for some time, which is added to a pause that has not ended.
    pub(super) fn pause(&mut self, now: Instant, time: Nanos) {
        self.delay(now, time);
    }
    fn delay(&mut self, now: Instant, time: Nanos) {
        self.next = (self.next.max(now) + time).min(now + DELAY_MAX);
    }
    /// A write is dispatched; `time`: the drive time that it takes.
    pub(super) fn on_write(&mut self, now: Instant, time: Nanos) {
        if now.since(self.last) > ABSENT {
            (self.part, self.last) = ((self.part * 2).min(WHOLE), now);
        }
        if self.part == WHOLE {
            self.next = self.next.max(now);
            return;
        }
        self.delay(now, Nanos(scale(time.0, WHOLE, self.part)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs reads at even intervals, each of which is late if writes get more than `good` percent. Returns, for the second
    /// half of the run, the mean part in percent and how many of 1000 reads were late.
    fn run(good: u64, every: Nanos) -> (u64, u64) {
        let mut pace = Pace::new();
        let (mut now, mut sum, mut late) = (Instant::ZERO, 0, 0);
        const READS: u64 = 20_000;
        for read in 0..READS {
            now += every;
            let is_late = pace.part > good * WHOLE / 100;
            pace.on_read(now, is_late);
            if read >= READS / 2 {
                sum += pace.part * 100 / WHOLE;
                late += u64::from(is_late);
            }
        }
        (sum / (READS / 2), late * 1000 / (READS / 2))
    }

    /// Goal: writes are as fast as the latency allows, and few reads are late. Method: drives on which the latency allows
    /// 30 to 100 % of the rate.
    #[test]
    fn writes_are_as_fast_as_reads_allow() {
        for good in [30, 60, 100] {
            let (part, late) = run(good, Nanos::from_millis(5));
            assert!(part >= good * 6 / 10 && part <= good, "{part} of {good}");
            assert!(late <= 10, "{late} of 1000");
        }
    }

    /// Goal: pauses add up, and a write during a pause does not end it. Method: two pauses and two writes.
    #[test]
    fn pauses_accumulate() {
        let mut pace = Pace::new();
        pace.pause(Instant(1_000), Nanos(300));
        pace.pause(Instant(1_100), Nanos(200));
        pace.on_write(Instant(1_200), Nanos(50));
        assert_eq!(pace.next(), Instant(1_500));
        pace.on_write(Instant(2_000), Nanos(50));
        assert_eq!(pace.next(), Instant(2_000));
    }

    /// Goal: writes recover after the reader has gone. Method: late reads; then writes and no read for a second.
    #[test]
    fn writes_recover_without_reads() {
        let (mut pace, mut now) = (Pace::new(), Instant::ZERO);
        for _ in 0..4 {
            now += TOGETHER;
            pace.on_read(now, true);
        }
        assert_eq!(pace.percent(), 6);
        for _ in 0..100 {
            now += Nanos::from_millis(10);
            pace.on_write(now, Nanos(1_000));
        }
        assert_eq!(pace.percent(), 100);
    }

    /// Goal: a latency that cannot be kept does not slow writes down for ever. Method: reads that are always late.
    #[test]
    fn an_infeasible_latency_is_given_up() {
        let (part, _) = run(0, Nanos::from_millis(5));
        assert!(part > 30, "{part}");
    }

    /// Goal: paced writes stay as fast as they are when the measured rate jumps to that of the drive's cache. Method: a
    /// half of 100 MB/s, measured as 400 MB/s.
    #[test]
    fn a_new_rate_does_not_change_the_pace() {
        let mut pace = Pace { part: WHOLE / 2, ..Pace::new() };
        pace.rate = 100_000_000;
        pace.on_rate(400_000_000);
        assert_eq!(pace.part, WHOLE / 2 / 4);
        pace.on_rate(1_000_000);
        assert_eq!(pace.part, WHOLE, "all that the drive can write");
    }
}
