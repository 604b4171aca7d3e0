//! The rate of writes and flushes beside reads with a latency contract, or beside a minimum that is not reached.
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
//! The same rule keeps writes from filling the drive's cache beside a group with a minimum. There, a request counts as late
//! while its group is so far behind that it does not reach its minimum: a flush may hold the drive for as long as it takes
//! to write what the cache holds. Such a group may send only few requests a second, and each of them may be late by much.
//! There, the part is therefore halved for each 20 ms that a late request took, and grows with time as well:
//!
//! ```text
//! 1/256 <= 1/16 * 20 ms / lag of the group <= part
//! part = part * (257/256 + time since the last request / 4 s)        when a request was in time
//! ```
//!
//! If the measured rate of writes changes, the rate of paced writes stays the same. A drive that completes some writes in
//! its cache shows the rate of its cache as soon as they are few.
//!
//! Sources: Chiu and Jain (1989), additive increase and multiplicative decrease; Linux's io.latency, which throttles the
//! groups that disturb a latency.

use iofair_core::time::{Instant, Nanos};

/// The value of [`Pace::part`] that means 1, and its lower bound beside a group that is [`FAR`] behind.
const WHOLE: u64 = 1 << 16;
const LEAST: u64 = WHOLE / 16;
/// How far behind a group is that does not reach its minimum: a fifth of the period over which its service is compared with it.
pub(super) const FAR: Nanos = Nanos::from_millis(20);
/// A read in time adds 1/256.
const GROWTH: u64 = 256;
/// Late reads within this time count once.
const TOGETHER: Nanos = Nanos::from_millis(20);
/// How long writes get at least half of the rate if the latency cannot be kept.
const GIVEN_UP: Nanos = Nanos::from_secs(5);
/// The longest wait for the next write. A trim can be as long as the drive.
const DELAY_MAX: Nanos = Nanos::from_secs(1);

/// For what writes are paced.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Lower bound of [`Pace::part`]. It is 1/16 beside a group that is [`FAR`] behind, half of that at twice the lag, and so
    /// on down to this.
    least: u64,
    /// A read counts as very late from this lag on.
    very_late: Nanos,
    /// Whether the latency or the minimum can be kept is decided at less than twice the lowest part, over this many reads
    trial: u32,
    /// and at least this time;
    trial_time: Nanos,
    /// it cannot if more than one of this many was very late.
    late_part: u32,
    /// After this time without a read, the part is doubled.
    absent: Nanos,
    /// In this time, reads in time add as much as the part, however few they are.
    growth_time: Option<Nanos>,
}

/// Writes beside reads with a latency contract.
static LATENCY: Rule = Rule {
    least: LEAST,
    very_late: Nanos(1),
    trial: 256,
    trial_time: Nanos::ZERO,
    late_part: 50,
    absent: Nanos::from_millis(100),
    growth_time: None,
};
/// Writes beside a minimum that is not reached.
static MINIMUM: Rule = Rule {
    least: WHOLE / 256,
    very_late: Nanos::from_millis(100),
    trial: 16,
    trial_time: Nanos::from_secs(2),
    late_part: 10,
    absent: Nanos::from_secs(1),
    growth_time: Some(Nanos::from_secs(4)),
};

/// The pace of writes.
#[derive(Debug)]
pub(super) struct Pace {
    rule: &'static Rule,
    /// The part of the rate that writes get, in units of 1 / [`WHOLE`].
    part: u64,
    /// When the next write may go.
    next: Instant,
    /// The measured rate of writes, in bytes a second.
    rate: u64,
    /// When a late read last counted.
    cut: Instant,
    /// Reads near the lowest rate, how many of them were late, and when the first one was completed.
    reads: u32,
    late: u32,
    tried: Instant,
    /// Until then, late reads do not count, since the latency cannot be kept.
    given_up: Instant,
    /// The last read, or the last time at which the part was doubled without one.
    last: Instant,
}

impl Pace {
    /// The pace beside reads with a latency contract.
    pub(super) fn beside_latencies() -> Self {
        Self::new(&LATENCY)
    }
    /// The pace beside minimums.
    pub(super) fn beside_minimums() -> Self {
        Self::new(&MINIMUM)
    }
    fn new(rule: &'static Rule) -> Self {
        let zero = Instant::ZERO;
        let (next, cut, tried, given_up, last) = (zero, zero, zero, zero, zero);
        Self { rule, part: WHOLE, next, rate: 0, cut, reads: 0, late: 0, tried, given_up, last }
    }
    /// A read was completed while nothing was written. It only shows that its client is still active.
    pub(super) fn on_read_alone(&mut self, now: Instant) {
        self.last = now;
    }
    /// A read was completed beside writes, or a moment after writes, or another request of a group with a minimum. `lag`:
    /// how far its group is behind if it was late, otherwise zero; `took`: the time for which it counts if it was late.
    pub(super) fn on_read(&mut self, now: Instant, lag: Nanos, took: Nanos) {
        let passed = now.since(self.last);
        self.last = now;
        if now < self.given_up || self.gives_up(now, lag) {
            return;
        }
        if lag == Nanos::ZERO {
            let by_time = self
                .rule
                .growth_time
                .map_or(0, |time| self.part.saturating_mul(passed.0.min(time.0)) / time.0);
            self.part = (self.part + self.part / GROWTH + by_time).min(WHOLE);
        } else if now >= self.cut + TOGETHER {
            let cuts = (took.min(now.since(self.cut)).0 / TOGETHER.0).clamp(1, 16);
            let least = (LEAST * FAR.0 / lag.0.max(FAR.0)).max(self.rule.least);
            self.part = (self.part >> cuts).max(least.min(self.part));
            self.cut = now;
        }
    }
    /// Whether enough reads were late at nearly the lowest part: writes then get half of the rate for a while.
    fn gives_up(&mut self, now: Instant, lag: Nanos) -> bool {
        if self.part >= 2 * self.rule.least {
            return false;
        }
        if self.reads == 0 {
            self.tried = now;
        }
        self.reads += 1;
        self.late += u32::from(lag >= self.rule.very_late);
        if self.reads < self.rule.trial || now.since(self.tried) < self.rule.trial_time {
            return false;
        }
        if self.late > self.reads / self.rule.late_part {
            (self.part, self.given_up) = (WHOLE / 2, now + GIVEN_UP);
        }
        (self.reads, self.late) = (0, 0);
        true
    }
    /// The measured rate of writes, in bytes a second; if it changes, paced writes stay as fast as they are.
    pub(super) fn on_rate(&mut self, rate: u64) {
        if rate != self.rate && self.part < WHOLE {
            let part = u128::from(self.part) * u128::from(self.rate) / u128::from(rate.max(1));
            let part = u64::try_from(part).unwrap_or(WHOLE);
            self.part = part.clamp(self.rule.least, WHOLE);
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
        if now.since(self.last) > self.rule.absent {
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

    /// A lag at which the lowest part is in force.
    const LONG: Nanos = Nanos::from_millis(400);

    /// Runs reads at even intervals, each of which is late if writes get more than `good` percent. Returns, for the second
    /// half of the run, the mean part in percent and how many of 1000 reads were late.
    fn run(good: u64, every: Nanos) -> (u64, u64) {
        let mut pace = Pace::beside_latencies();
        let (mut now, mut sum, mut late) = (Instant::ZERO, 0, 0);
        const READS: u64 = 20_000;
        for read in 0..READS {
            now += every;
            let is_late = pace.part > good * WHOLE / 100;
            pace.on_read(now, if is_late { FAR } else { Nanos::ZERO }, Nanos::ZERO);
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
        let mut pace = Pace::beside_latencies();
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
        let (mut pace, mut now) = (Pace::beside_latencies(), Instant::ZERO);
        for _ in 0..4 {
            now += TOGETHER;
            pace.on_read(now, FAR, Nanos::ZERO);
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

    /// Goal: beside a minimum whose client sends few requests, writes are slowed at once and recover in seconds. Method: a
    /// flush that took a second, then a request in time every 100 ms.
    #[test]
    fn few_requests_of_a_minimum_count_for_their_time() {
        let (mut pace, mut now) = (Pace::beside_minimums(), Instant(2_000_000_000));
        pace.on_read(now, LONG, Nanos::from_secs(1));
        assert_eq!(pace.part, WHOLE / 256);
        let mut seconds = 0;
        while pace.part < WHOLE && seconds < 100 {
            for _ in 0..10 {
                now += Nanos::from_millis(100);
                pace.on_read(now, Nanos::ZERO, Nanos::from_millis(1));
            }
            seconds += 1;
        }
        assert!((10..=30).contains(&seconds), "{seconds}");
    }

    /// Goal: late requests of the same time count once. Method: sixteen requests that waited for the same 100 ms.
    #[test]
    fn requests_that_were_late_together_count_once() {
        let (mut pace, mut now) = (Pace::beside_minimums(), Instant(2_000_000_000));
        for _ in 0..16 {
            pace.on_read(now, LONG, Nanos::from_millis(100));
            now += Nanos::from_millis(2);
        }
        assert_eq!(pace.part, WHOLE >> 6);
    }

    /// Goal: paced writes stay as fast as they are when the measured rate jumps to that of the drive's cache. Method: a
    /// tenth of 100 MB/s, measured as 400 MB/s.
    #[test]
    fn a_new_rate_does_not_change_the_pace() {
        let mut pace = Pace { part: WHOLE / 10, ..Pace::beside_minimums() };
        pace.rate = 100_000_000;
        pace.on_rate(400_000_000);
        assert_eq!(pace.part, WHOLE / 10 / 4);
        pace.on_rate(1_000_000);
        assert_eq!(pace.part, WHOLE, "all that the drive can write");
    }

    /// Goal: writes are not slowed for ever beside a minimum that is missed for another reason. Method: a minute of requests
    /// that are late whatever is written.
    #[test]
    fn an_infeasible_minimum_does_not_starve_writes() {
        let (mut pace, mut now, mut sum) = (Pace::beside_minimums(), Instant(2_000_000_000), 0);
        for _ in 0..600 {
            now += Nanos::from_millis(100);
            pace.on_read(now, LONG, Nanos::from_millis(100));
            sum += pace.percent();
        }
        assert!(sum / 600 > 25, "{}", sum / 600);
    }
}
