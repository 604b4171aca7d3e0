//! Measurement of the drive: its peak rate, from which budgets and the length of weight raising follow, and whether
//! it executes several commands at once.

use crate::parts::seeks::is_seek;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::{SECTOR_BYTES, Sectors};

/// Binary digits after the point of a rate in sectors a microsecond.
pub(super) const RATE_SHIFT: u32 = 16;
/// Samples that an observation needs, and the time that it must and should last.
const SAMPLES_MIN: u64 = 32;
const OBSERVE_MIN: Nanos = Nanos::from_millis(300);
const OBSERVE: Nanos = Nanos::from_secs(1);
/// An idle drive ends the observation after this time.
const GAP: Nanos = Nanos::from_millis(100);
/// Two milliseconds, CFQ's and BFQ's shortest time that means something (`BFQ_MIN_TT`).
pub(super) const SHORT: Nanos = Nanos::from_millis(2);
/// Rates above 20 sectors a microsecond (10 GB/s) are considered wrong.
const RATE_MAX: u64 = 20 << RATE_SHIFT;

/// The reference drives' rate (rotating 109 MB/s, flash 258 MB/s), and how long an interactive start
/// takes on them.
pub(super) const fn reference(rotational: bool) -> (u64, Nanos) {
    match rotational {
        true => (14_000, Nanos::from_millis(7_000)),
        false => (33_000, Nanos::from_millis(2_500)),
    }
}

/// The estimate of the peak rate: sectors dispatched over one second, trusted the more the more of
/// them were sequential.
#[derive(Debug)]
pub(super) struct PeakRate {
    rotational: bool,
    /// Sectors a microsecond, with [`RATE_SHIFT`] binary digits after the point.
    rate: u64,
    samples: u64,
    sequential: u64,
    dispatched: Sectors,
    largest: Sectors,
    first: Instant,
    last: Instant,
    span: Nanos,
    last_completion: Instant,
    /// Where the last dispatched request ended.
    last_position: Sectors,
}

impl PeakRate {
    pub(super) fn new(rotational: bool) -> Self {
        Self {
            rotational,
            rate: reference(rotational).0 * 2 / 3,
            samples: 0,
            sequential: 0,
            dispatched: Sectors::ZERO,
            largest: Sectors::ZERO,
            first: Instant::ZERO,
            last: Instant::ZERO,
            span: Nanos::ZERO,
            last_completion: Instant::ZERO,
            last_position: Sectors::ZERO,
        }
    }
    /// Sets the estimate from a rate that is known.
    pub(super) fn know(&mut self, bytes_per_s: u64) {
        let rate = (bytes_per_s.min(1 << 40) << RATE_SHIFT) / (SECTOR_BYTES * 1_000_000);
        self.rate = rate.clamp(1, RATE_MAX);
    }
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }
    pub(super) fn bytes_per_s(&self) -> u64 {
        (Sectors(self.rate * 1_000_000).bytes()) >> RATE_SHIFT
    }
    pub(super) fn last_position(&self) -> Sectors {
        self.last_position
    }
    pub(super) fn last_completion(&self) -> Instant {
        self.last_completion
    }
    /// The sectors that the drive does at its peak in `time`.
    pub(super) fn sectors_in(&self, time: Nanos) -> Sectors {
        Sectors((self.rate * 1000 * time.as_millis()) >> RATE_SHIFT)
    }
    /// Records a request that is dispatched to the drive, which has `in_driver` others. Returns whether the estimate
    /// changed.
    pub(super) fn on_dispatch(
        &mut self,
        now: Instant,
        in_driver: u32,
        start: Sectors,
        length: Sectors,
    ) -> bool {
        let updated = self.observe(now, in_driver, start, length);
        self.last_position = start + length;
        self.last = now;
        updated
    }
    fn observe(&mut self, now: Instant, in_driver: u32, start: Sectors, length: Sectors) -> bool {
        if self.samples == 0 {
            self.restart(now, length);
            return false;
        }
        if now.since(self.last) > GAP && in_driver == 0 {
            let updated = self.update();
            self.restart(now, length);
            return updated;
        }
        self.samples += 1;
        let kept_busy = in_driver > 0 || now.since(self.last_completion) < SHORT;
        if kept_busy && !is_seek(self.rotational, self.last_position, start, length) {
            self.sequential += 1;
        }
        self.dispatched += length;
        self.largest = match self.samples.is_multiple_of(32) {
            true => length,
            false => self.largest.max(length),
        };
        self.span = now.since(self.first);
        if self.span < OBSERVE {
            return false;
        }
        let updated = self.update();
        self.restart(now, length);
        updated
    }
    /// Records a completion. Returns whether the estimate changed.
    pub(super) fn on_complete(&mut self, now: Instant) -> bool {
        let took = now.since(self.last_completion);
        // Slower than 1/1024 sector a microsecond: the drive was not at its peak.
        let slow = took > SHORT && (self.largest.0 << 10) / took.as_micros() < 1;
        let updated = slow && self.update();
        if slow {
            self.samples = 0;
        }
        self.last_completion = now;
        updated
    }
    fn restart(&mut self, now: Instant, length: Sectors) {
        (self.first, self.samples, self.sequential) = (now, 1, 0);
        (self.dispatched, self.largest, self.span) = (length, length, Nanos::ZERO);
    }
    fn update(&mut self) -> bool {
        if self.samples < SAMPLES_MIN || self.span < OBSERVE_MIN {
            return false;
        }
        let span = self.span.max(self.last_completion.since(self.first));
        let rate = (self.dispatched.0 << RATE_SHIFT) / span.as_micros();
        let scattered = self.sequential < 3 * self.samples / 4;
        if (scattered && rate <= self.rate) || rate > RATE_MAX {
            return false;
        }
        let weight = 9 * self.sequential / self.samples;
        let weight = (weight * span.0 / OBSERVE.0).min(8);
        let divisor = 10 - weight;
        self.rate = (self.rate * (divisor - 1) / divisor + rate / divisor).max(1);
        true
    }
}

/// Completions between two judgements of [`Queueing`].
const QUEUEING_SAMPLES: u32 = 32;

/// Whether the drive executes several commands at once. This is observed from the commands that it gets.
#[derive(Debug)]
pub(super) struct Queueing {
    /// Whether it does, or nothing is known yet.
    pub(super) seen: bool,
    /// Whether this was observed; it is not checked again then.
    sure: bool,
    /// Largest number of commands in it since the last check.
    pub(super) peak: u32,
    samples: u32,
    threshold: u32,
    in_waits: bool,
}

impl Queueing {
    /// `in_waits`: also count commands of a queue with few requests that has the drive to itself.
    pub(super) fn new(threshold: u32, in_waits: bool) -> Self {
        Self { seen: true, sure: false, peak: 0, samples: 0, threshold, in_waits }
    }
    /// Called before a completion is counted. `load(threshold)` returns the number of requests in and before the
    /// drive, and whether a queue with few requests holds back the others.
    pub(super) fn sample(&mut self, in_driver: u32, load: impl FnOnce(u32) -> (u32, bool)) {
        self.peak = self.peak.max(in_driver);
        if self.sure {
            return;
        }
        let (all, holds_back) = load(self.threshold);
        let enough = match self.in_waits {
            true => all >= self.threshold,
            false => all > self.threshold && !holds_back,
        };
        if !enough {
            return;
        }
        self.samples += 1;
        if self.samples <= QUEUEING_SAMPLES {
            return;
        }
        self.seen = self.peak > self.threshold;
        self.sure = self.seen;
        self.peak = 0;
        self.samples = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a sequential second moves the estimate nearly all the way, exactly by the filter; a
    /// scattered slower one not at all; a scattered faster one a little. Method: 128 KiB requests at
    /// known intervals.
    #[test]
    fn the_estimate_follows_sequential_rates() {
        let mut rate = PeakRate::new(false);
        assert_eq!(rate.rate(), 22_000);
        let (mut now, mut at) = (Instant(1), Sectors::ZERO);
        let mut run = |rate: &mut PeakRate, micros: u64, stride: u64, length: u64| {
            loop {
                let updated = rate.on_dispatch(now, 1, at, Sectors(length));
                at += Sectors(stride);
                now += Nanos::from_micros(micros);
                if updated || rate.samples == 1 {
                    return updated;
                }
            }
        };
        run(&mut rate, 250, 256, 256);
        assert!(run(&mut rate, 250, 256, 256), "a full second of 1.024 sectors a microsecond");
        // 4001 samples of 256 sectors in 1 s; weight 8 of 9 sequential, so the divisor is 2.
        let measured = ((4001 * 256) << RATE_SHIFT) / 1_000_000;
        assert_eq!(rate.rate(), 22_000 / 2 + measured / 2);
        let before = rate.rate();
        assert!(!run(&mut rate, 1000, 100_000, 8), "slow and scattered says nothing");
        assert_eq!(rate.rate(), before);
        now += Nanos::from_secs(2);
        rate.on_dispatch(now, 0, Sectors(0), Sectors(8));
        assert_eq!(rate.samples, 1, "a gap ends the observation");
        assert_eq!(rate.rate(), before);
    }

    /// Goal: a drive counts as queueing only if it gets more than the threshold, and then for good; what it gets
    /// while a queue is waited for says nothing, but did so until 4.20. Method: 33 samples each, with threshold 3.
    #[test]
    fn queueing_is_seen_not_asked() {
        let sample = |queueing: &mut Queueing, in_driver, all, holds_back| {
            for _ in 0..33 {
                queueing.sample(in_driver, |threshold| (all, holds_back && threshold == 3));
            }
        };
        let mut queueing = Queueing::new(3, false);
        assert!(queueing.seen);
        sample(&mut queueing, 3, 3, false);
        sample(&mut queueing, 3, 9, true);
        assert!(queueing.seen, "no sample counted");
        sample(&mut queueing, 3, 4, false);
        assert!(!queueing.seen);
        sample(&mut queueing, 4, 4, false);
        assert!(queueing.seen);
        sample(&mut queueing, 1, 9, false);
        assert!(queueing.seen, "for good");
        assert_eq!(queueing.peak, 1, "counted since it was seen");
        let mut early = Queueing::new(3, true);
        sample(&mut early, 1, 3, true);
        assert!(!early.seen);
    }
}
