//! How fast writes and flushes go while reads have a latency contract, or a minimum that is not reached.
//!
//! A drive answers a write when it has it in its cache, and reads wait for what it writes afterwards, of which nobody tells. So
//! the rate of writes is found by what reads say:
//!
//! ```text
//! rate = rate of writes * part                   parts of 1, at most 1
//! part = part / 2      when a read was later than its latency, at most once in 20 ms
//! part = part * 257/256  when one was not
//! ```
//!
//! In balance one read in some hundred is late. Where a sixteenth of the rate is not slow enough either, the drive cannot keep the
//! latency beside writes; then they have at least half of it for some seconds.
//!
//! Where nobody reads for 100 ms, the part is doubled, again and again.
//!
//! The same keeps writes from filling the drive's cache beside a group with a minimum: there a read counts as late while its group
//! is so far behind that it does not reach its minimum.
//!
//! Source: Chiu and Jain (1989), additive increase and multiplicative decrease; slowing down whoever disturbs a latency: io.latency
//! of Linux.

use iofair_core::time::{Instant, Nanos};

/// All of the rate, and the least of it.
const WHOLE: u64 = 1 << 16;
const LEAST: u64 = WHOLE / 16;
/// A part of so many is added for a read in time.
const GROWTH: u64 = 256;
/// Reads that are late together count once.
const TOGETHER: Nanos = Nanos::from_millis(20);
/// Reads at less than twice the least rate that tell whether the latency can be kept, and how many of them may be late.
const TRIAL: u32 = 256;
const LATE_MAX: u32 = 5;
/// How long writes have half of the rate after that.
const GIVEN_UP: Nanos = Nanos::from_secs(5);

/// Where nobody reads for so long, writes get twice as fast, again and again.
const ABSENT: Nanos = Nanos::from_millis(100);

/// The longest wait for the next write: a trim may be as long as the drive.
const DELAY_MAX: Nanos = Nanos::from_secs(1);

/// The pace of writes.
#[derive(Debug)]
pub(super) struct Pace {
    part: u64,
    /// When the next write may go.
    next: Instant,
    /// The next late read counts from then on.
    counts: Instant,
    /// Reads near the least rate, and the late ones.
    reads: u32,
    late: u32,
    given_up: Instant,
    /// The last read, or when the part grew without one.
    last: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        let (next, counts, given_up) = (Instant::ZERO, Instant::ZERO, Instant::ZERO);
        let last = Instant::ZERO;
        Self { part: WHOLE, next, counts, reads: 0, late: 0, given_up, last }
    }
}

impl Pace {
    /// A read with a latency contract was completed while nothing was written: its client is still there.
    pub(super) fn on_read_alone(&mut self, now: Instant) {
        self.last = now;
    }
    /// A read with a latency contract was completed while writes were about, or had been a moment ago.
    pub(super) fn on_read(&mut self, now: Instant, late: bool) {
        self.last = now;
        if now < self.given_up {
            return;
        }
        if self.part < 2 * LEAST {
            self.reads += 1;
            self.late += u32::from(late);
            if self.reads >= TRIAL {
                if self.late > LATE_MAX {
                    (self.part, self.given_up) = (WHOLE / 2, now + GIVEN_UP);
                }
                (self.reads, self.late) = (0, 0);
                return;
            }
        }
        if !late {
            self.part = (self.part + self.part / GROWTH).min(WHOLE);
        } else if now >= self.counts {
            self.part = (self.part / 2).max(LEAST);
            self.counts = now + TOGETHER;
        }
    }
    /// What writes may have of their rate.
    pub(super) fn percent(&self) -> u64 {
        self.part * 100 / WHOLE
    }
    /// When the next write may go.
    pub(super) fn next(&self) -> Instant {
        self.next
    }
    /// Writes pause, after other pauses.
    pub(super) fn pause(&mut self, now: Instant, time: Nanos) {
        self.delay(now, time);
    }
    fn delay(&mut self, now: Instant, time: Nanos) {
        self.next = (self.next.max(now) + time).min(now + DELAY_MAX);
    }
    /// A write goes that takes the drive so long.
    pub(super) fn on_write(&mut self, now: Instant, time: Nanos) {
        if now.since(self.last) > ABSENT {
            (self.part, self.last) = ((self.part * 2).min(WHOLE), now);
        }
        if self.part == WHOLE {
            self.next = self.next.max(now);
            return;
        }
        let time = u128::from(time.0) * u128::from(WHOLE) / u128::from(self.part);
        self.delay(now, Nanos(u64::try_from(time).unwrap_or(u64::MAX)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads at an even pace, each of which is late if the writes have more than so many parts of 100; the mean part of the
    /// last half, and the part of reads that were late.
    fn run(good: u64, every: Nanos) -> (u64, u64) {
        let mut pace = Pace::default();
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

    /// Goal: writes are as fast as the latency allows, and few reads are late. Method: drives on which writes may have 30 to
    /// 100 % of the rate.
    #[test]
    fn writes_are_as_fast_as_reads_allow() {
        for good in [30, 60, 100] {
            let (part, late) = run(good, Nanos::from_millis(5));
            assert!(part >= good * 6 / 10 && part <= good, "{part} of {good}");
            assert!(late <= 10, "{late} of 1000");
        }
    }

    /// Goal: pauses add up, and a write that may go in one does not end it. Method: two pauses, and a write.
    #[test]
    fn pauses_add_up() {
        let mut pace = Pace::default();
        pace.pause(Instant(1_000), Nanos(300));
        pace.pause(Instant(1_100), Nanos(200));
        pace.on_write(Instant(1_200), Nanos(50));
        assert_eq!(pace.next(), Instant(1_500));
        pace.on_write(Instant(2_000), Nanos(50));
        assert_eq!(pace.next(), Instant(2_000));
    }

    /// Goal: writes are not slow for a reader that is gone. Method: reads that are late; then writes and no read for a second.
    #[test]
    fn writes_are_not_slow_for_ever() {
        let (mut pace, mut now) = (Pace::default(), Instant::ZERO);
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
    fn what_cannot_be_kept_is_given_up() {
        let (part, _) = run(0, Nanos::from_millis(5));
        assert!(part > 30, "{part}");
    }
}
