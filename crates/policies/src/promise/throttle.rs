//! The rate of writes and flushes beside minimums that are not reached.
//!
//! Writes fill the drive's cache, and a full cache or a flush holds the drive for as long as it takes to write a part of what
//! the cache holds. While a group with a minimum waits for that, its request is late: the group is more than 20 ms behind.
//! Such a group may send only few requests a second, and each of them may be late by much. The limit on writes is therefore
//! halved for each 20 ms that a late request took, and grows with requests in time and with time:
//!
//! ```text
//! limit = min(limit, rate) / 2^(time of the request / 20 ms)       when a request was late, at most once in 20 ms
//! limit = limit * (257/256 + time since the last request / 4 s)    when a request was in time
//! most / 256 <= most / 16 * 20 ms / lag of the group <= limit      most: of the last limits at which requests became late
//! ```
//!
//! `rate` is the measured rate of writes, or their mean rate over 4 s if that is higher: a limit far above what is written
//! would have to be halved many times.
//!
//! *Stalls.* A request that leaves its group more than 100 ms behind was in a stall. The mean rate of writes in the seconds
//! before it was more than the drive sustains; it is taken as the rate at which the drive is saturated. Up to 3/4 of this
//! rate the limit grows as above, but with 1 s for 4 s, and from there on with time alone, by a factor of e in each time
//! constant:
//!
//! ```text
//! first stall                saturated = mean rate over 4 s, but not above the limit;  time constant = 4 s
//! stall above `saturated`    saturated = max(saturated, mean rate);  time constant doubles, up to 128 s
//! stall below `saturated`    saturated = min(saturated, mean rate)
//! limit >= 2 * saturated     saturated = limit;  time constant is divided by 4, down to 4 s
//! ```
//!
//! A drive that has not become faster is thus tried ever more rarely, and a faster one is found within minutes. If four
//! stalls one after the other come below that rate, writes are not the cause. The rate is then what it was before, and for a
//! minute stalls below it halve the limit once.
//!
//! *Given up.* If late requests take a third of the time although the limit is near the lowest one for 2 s, writes are not the
//! cause: the minimum cannot be kept, or the drive has a limit on reads that the group itself reaches. Late requests do not count
//! for 5 s then, and the limit is half of the highest one. If that is so again and again, they do not count for twice as long each
//! time, up to 80 s, and writes have no limit.
//!
//! The limit is in bytes a second and not a part of the measured rate of writes: a drive that completes some writes in its
//! cache shows the rate of its cache as soon as they are few, and that of its flash as soon as they are many.
//!
//! Sources: Chiu and Jain (1989), additive increase and multiplicative decrease; Ha, Rhee and Xu, "CUBIC" (2008), for slow
//! growth near the rate at which the last loss came; Linux's io.latency, which throttles the groups that disturb others.

use super::pace::{DELAY_MAX, GIVEN_UP, GROWTH, TOGETHER};
use crate::parts::scale::scale;
use iofair_core::time::{Instant, Nanos};

/// How far behind a group is that does not reach its minimum: a fifth of the period over which its service is compared with it.
const FAR: Nanos = Nanos::from_millis(20);
/// The limit that holds no write, in bytes a second.
const UNLIMITED: u64 = 1 << 40;
/// The least limit, in bytes a second.
const LEAST: u64 = 1 << 16;
/// Bytes that a smaller write counts as: drives write whole pages.
const PAGE: u64 = 4096;
/// In this time, requests in time add as much as the limit, however few they are: before the first stall, and after it.
const GROWTH_TIME: Nanos = Nanos::from_secs(4);
const REGAIN_TIME: Nanos = Nanos::from_secs(1);
/// The time constant of growth near saturation, at first and at most.
const TIME_CONSTANT: [Nanos; 2] = [Nanos::from_secs(4), Nanos::from_secs(128)];
/// Near saturation the limit grows at most once in this time.
const GROWS_EVERY: Nanos = Nanos::from_millis(1);
/// A request is in a stall from this lag on.
const STALL: Nanos = Nanos::from_millis(100);
/// Requests are late together until none was for this time.
const CALM: Nanos = Nanos::from_secs(1);
/// What is remembered of the highest limit falls by this part each time.
const FORGETS: u64 = 16;
/// Time over which the mean rate of writes is taken.
const MEAN_TIME: Nanos = Nanos::from_secs(4);
/// After this many stalls below saturation, writes are not the cause.
const OTHER_CAUSE: u32 = 4;
/// They do not count for this time then.
const TRUSTED: Nanos = Nanos::from_secs(60);
/// Whether the minimum can be kept is decided near the lowest limit, over this many requests, at least this time. It cannot if
/// more than one of `LATE_PART` was in a stall, or if late requests took more than one part of `LATE_TIME` of the time.
const TRIAL: u32 = 16;
const TRIAL_TIME: Nanos = Nanos::from_secs(2);
const LATE_PART: u32 = 10;
const LATE_TIME: u64 = 3;
/// How often the time for which late requests do not count is doubled at most.
const VAIN_MAX: u32 = 4;
/// After this time without a request, the limit is doubled.
const ABSENT: Nanos = Nanos::from_secs(1);

/// The rate of writes at which the drive is saturated, by the last stalls.
#[derive(Clone, Copy, Debug)]
struct Saturation {
    /// In bytes a second.
    rate: u64,
    /// What it was before the stalls below it.
    before: u64,
    /// How many of those there were, one after the other.
    below: u32,
    /// Until then, stalls below it do not count, since they had another cause.
    trusted: Instant,
    /// The limit grows by a factor of e in this time near it.
    time_constant: Nanos,
}

/// The limit on writes.
#[derive(Debug)]
pub(super) struct Throttle {
    /// In bytes a second.
    limit: u64,
    /// The limit when requests began to be late, and the highest of the last times when they did.
    began: u64,
    highest: u64,
    saturation: Option<Saturation>,
    /// Time with requests in time for which the limit has not grown yet, near saturation.
    grows_for: Nanos,
    /// Whether a request was in a stall since requests began to be late.
    stalled: bool,
    /// When the next write may go.
    next: Instant,
    /// Bytes written, each weighted by its age, and when that was updated.
    written: u64,
    updated: Instant,
    /// When the first of them was written.
    started: Instant,
    /// When a late request last counted.
    cut: Instant,
    /// Requests near the lowest limit, how many of them were in a stall, and when the first one was completed.
    requests: u32,
    late: u32,
    tried: Instant,
    /// Time that late ones of them took, when the last one was completed, and how often in a row the minimum was given up.
    late_time: Nanos,
    late_at: Instant,
    vain: u32,
    /// The lowest limit for the last lag.
    least: u64,
    /// Until then, late requests do not count, since the minimum cannot be kept.
    given_up: Instant,
    /// The last request, or the last time at which the limit was doubled without one.
    last: Instant,
}

impl Throttle {
    /// No write is held until a request is late.
    pub(super) fn new() -> Self {
        let zero = Instant::ZERO;
        Self {
            limit: UNLIMITED,
            began: UNLIMITED,
            highest: 0,
            saturation: None,
            grows_for: Nanos::ZERO,
            stalled: false,
            next: zero,
            written: 0,
            updated: zero,
            started: zero,
            cut: zero,
            requests: 0,
            late: 0,
            tried: zero,
            late_time: Nanos::ZERO,
            late_at: zero,
            vain: 0,
            least: 0,
            given_up: zero,
            last: zero,
        }
    }
    /// A request of a group with a minimum was completed beside writes or a moment after writes. `lag`: how far its group is
    /// behind if the request was late, otherwise zero; `took`: its time; `rate`: measured rate of writes, in bytes a second.
    pub(super) fn on_request(&mut self, now: Instant, lag: Nanos, took: Nanos, rate: u64) {
        let passed = now.since(self.last);
        self.last = now;
        if now < self.given_up || self.gives_up(now, lag, took) {
            return;
        }
        if lag == Nanos::ZERO {
            self.grow(passed);
            return;
        }
        let calm = now.since(self.cut);
        if calm < TOGETHER {
            return;
        }
        self.limit = self.limit.min(rate.max(self.mean(now))).max(LEAST.min(self.limit));
        if calm >= CALM || self.cut == Instant::ZERO {
            self.began = self.limit;
            self.highest = self.began.max(self.highest - self.highest / FORGETS);
            self.stalled = false;
        }
        if lag >= STALL && !core::mem::replace(&mut self.stalled, true) {
            self.on_stall(now);
        }
        let other_cause = self.saturation.is_some_and(|at| now < at.trusted);
        let cuts = if other_cause { 1 } else { (took.min(calm).0 / TOGETHER.0).clamp(1, 16) };
        let least = scale(self.highest / 16, FAR.0, lag.0.max(FAR.0)).max(self.highest / 256);
        self.limit = (self.limit >> cuts).max(least.min(self.limit));
        (self.cut, self.least) = (now, least);
    }
    fn grow(&mut self, passed: Nanos) {
        if self.limit == UNLIMITED {
            return;
        }
        let Some(mut at) = self.saturation else {
            self.limit = self.grown(passed, GROWTH_TIME);
            return;
        };
        let near = at.rate - at.rate / 4;
        if self.limit < near {
            self.limit = self.grown(passed, REGAIN_TIME).min(near);
            return;
        }
        // Growth in a few microseconds would round to nothing.
        self.grows_for += passed.min(at.time_constant);
        if self.grows_for < GROWS_EVERY {
            return;
        }
        let time = core::mem::replace(&mut self.grows_for, Nanos::ZERO);
        let by_time = scale(self.limit, time.0.min(at.time_constant.0), at.time_constant.0);
        self.limit = (self.limit + by_time).min(UNLIMITED);
        if self.limit >= at.rate * 2 {
            at.time_constant = Nanos(at.time_constant.0 / 4).max(TIME_CONSTANT[0]);
            (at.rate, at.before, at.below) = (self.limit, self.limit, 0);
            self.saturation = Some(at);
        }
    }
    fn grown(&self, passed: Nanos, time: Nanos) -> u64 {
        let by_time = scale(self.limit, passed.0.min(time.0), time.0);
        (self.limit + self.limit / GROWTH + by_time).min(UNLIMITED)
    }
    /// The first request of a stall was completed.
    fn on_stall(&mut self, now: Instant) {
        let (began, rate) = (self.began, self.began.min(self.mean(now)).max(LEAST));
        let Some(at) = &mut self.saturation else {
            self.saturation = Some(Saturation {
                rate,
                before: rate,
                below: 0,
                trusted: now,
                time_constant: TIME_CONSTANT[0],
            });
            return;
        };
        if began > at.rate {
            at.time_constant = Nanos(at.time_constant.0 * 2).min(TIME_CONSTANT[1]);
            (at.rate, at.below) = (rate.max(at.rate), 0);
            at.before = at.rate;
        } else if at.below >= OTHER_CAUSE {
            (at.rate, at.below, at.trusted) = (at.before, 0, now + TRUSTED);
        } else if now >= at.trusted {
            at.rate = rate.min(at.rate);
            at.below += 1;
        }
    }
    /// Whether enough requests were in stalls, or late for long enough, near the lowest limit: writes then get half of what they
    /// had for a while, or all.
    fn gives_up(&mut self, now: Instant, lag: Nanos, took: Nanos) -> bool {
        if self.limit >= (self.highest / 128).max(self.least * 4) {
            return false;
        }
        if self.requests == 0 {
            (self.tried, self.late_at) = (now, now);
        } else if lag > Nanos::ZERO {
            // Requests that were late together count once.
            self.late_time += took.min(now.since(self.late_at));
            self.late_at = now;
        }
        self.requests += 1;
        self.late += u32::from(lag >= STALL);
        let time = now.since(self.tried);
        if self.requests < TRIAL || time < TRIAL_TIME {
            return false;
        }
        let late_long = self.late_time.0.saturating_mul(LATE_TIME) > time.0;
        if self.late > self.requests / LATE_PART || late_long {
            self.limit = if self.vain == 0 { self.highest / 2 } else { UNLIMITED };
            self.given_up = now + Nanos(GIVEN_UP.0 << self.vain);
            self.vain = (self.vain + 1).min(VAIN_MAX);
            self.cut = self.given_up;
        } else {
            self.vain = 0;
        }
        (self.requests, self.late, self.late_time) = (0, 0, Nanos::ZERO);
        true
    }
    /// Mean rate of writes over the last seconds, in bytes a second.
    fn mean(&self, now: Instant) -> u64 {
        let time = now.since(self.started).clamp(TOGETHER, MEAN_TIME);
        scale(self.left(now), 1_000_000_000, time.0)
    }
    /// What is left of the weights of bytes written, by now.
    fn left(&self, now: Instant) -> u64 {
        let passed = now.since(self.updated).0.min(MEAN_TIME.0);
        scale(self.written, MEAN_TIME.0 - passed, MEAN_TIME.0)
    }
    /// The limit in percent of the measured rate of writes, in bytes a second.
    pub(super) fn percent(&self, rate: u64) -> u64 {
        scale(self.limit, 100, rate.max(1)).min(100)
    }
    /// When the next write may go.
    pub(super) fn next(&self) -> Instant {
        self.next
    }
    /// A write is dispatched; or a trim or a flush, which takes the drive as long as writing this many bytes.
    pub(super) fn on_write(&mut self, now: Instant, bytes: u64, is_write: bool) {
        let bytes = bytes.max(PAGE);
        if is_write {
            let left = self.left(now);
            if left == 0 {
                self.started = now;
            }
            (self.written, self.updated) = (left.saturating_add(bytes), now);
        }
        if now.since(self.last) > ABSENT {
            (self.limit, self.last) = ((self.limit * 2).min(UNLIMITED), now);
        }
        self.next = self.next.max(now);
        if self.limit < UNLIMITED {
            let delay = Nanos(scale(bytes, 1_000_000_000, self.limit));
            self.next = (self.next + delay).min(now + DELAY_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lag at which the lowest limit is in force.
    const LONG: Nanos = Nanos::from_millis(400);
    const MIB: u64 = 1 << 20;

    /// A drive that writes from a cache of `cache` bytes. Once that is full, it serves nothing for 300 ms.
    struct Cached {
        throttle: Throttle,
        now: Instant,
        /// Bytes in the cache.
        held: u64,
        /// Bytes written so far.
        written: u64,
        stalls: u32,
    }

    impl Cached {
        fn new() -> Self {
            let now = Instant(2_000_000_000);
            Self { throttle: Throttle::new(), now, held: 0, written: 0, stalls: 0 }
        }
        /// Writes all that is allowed for some seconds, in writes of 64 KiB. A request of a minimum is completed every
        /// `every`; it was late if it came in a stall. `stall`: whether the drive stalls now, by what its cache holds.
        fn run(&mut self, seconds: u64, drain: u64, every: Nanos, stall: impl Fn(&Self) -> bool) {
            let end = self.now + Nanos::from_secs(seconds);
            let mut next = self.now + every;
            while self.now < end {
                let tick = Nanos::from_millis(1);
                for _ in 0..16 {
                    if self.now + tick <= self.throttle.next() {
                        break;
                    }
                    self.throttle.on_write(self.now, 65_536, true);
                    (self.held, self.written) = (self.held + 65_536, self.written + 65_536);
                }
                let stalls = stall(self);
                let time = Nanos::from_millis(if stalls { 300 } else { 1 });
                self.now += time;
                self.stalls += u32::from(stalls);
                self.held = self.held.saturating_sub(scale(drain, time.0, 1_000_000_000));
                if stalls || self.now >= next {
                    let lag = if stalls { time } else { Nanos::ZERO };
                    self.throttle.on_request(self.now, lag, time, 50_000_000);
                    next = self.now + every;
                }
            }
        }
        fn mean(&mut self, seconds: u64) -> u64 {
            core::mem::take(&mut self.written) / seconds
        }
    }

    /// Goal: a cache that takes seconds to be written is filled rarely, and the drive still writes nearly all that it can.
    /// Method: caches of 0.3 and 5 s, with many and with few requests; the first minutes are not counted.
    #[test]
    fn a_slow_cache_is_filled_rarely() {
        for (cache, every) in [(40, 1), (40, 100), (40, 1000), (3, 1), (3, 100)] {
            let mut drive = Cached::new();
            let (full, every) = (cache * MIB, Nanos::from_millis(every));
            drive.run(200, 8_000_000, every, |drive| drive.held >= full);
            (drive.stalls, drive.written) = (0, 0);
            drive.run(600, 8_000_000, every, |drive| drive.held >= full);
            let (stalls, mean) = (drive.stalls, drive.mean(600));
            assert!(stalls <= 20, "{cache} MiB, {every:?}: {stalls} stalls, {mean} B/s");
            assert!(mean >= 6_000_000, "{cache} MiB, {every:?}: {stalls} stalls, {mean} B/s");
        }
    }

    /// Goal: writes use a drive that becomes faster. Method: ten minutes at 8 MB/s, then 200 MB/s.
    #[test]
    fn a_faster_drive_is_found() {
        let mut drive = Cached::new();
        drive.run(600, 8_000_000, Nanos::from_millis(2), |drive| drive.held >= 40 * MIB);
        drive.run(150, 200_000_000, Nanos::from_millis(2), |drive| drive.held >= 40 * MIB);
        drive.written = 0;
        drive.run(60, 200_000_000, Nanos::from_millis(2), |drive| drive.held >= 40 * MIB);
        let mean = drive.mean(60);
        assert!(mean >= 100_000_000, "{mean}");
    }

    /// Goal: stalls that have another cause do not starve writes. Method: a stall every three seconds, whatever is written.
    #[test]
    fn other_causes_do_not_starve_writes() {
        let mut drive = Cached::new();
        drive.run(5, 8_000_000, Nanos::from_millis(2), |drive| drive.held >= 40 * MIB);
        drive.written = 0;
        drive.run(600, 8_000_000, Nanos::from_millis(2), |drive| {
            drive.held >= 40 * MIB || drive.now.0 % 3_000_000_000 < 2_000_000
        });
        let mean = drive.mean(600);
        assert!(mean >= 3_000_000, "{mean}");
    }

    /// Goal: the limit grows near saturation however often requests are completed. Method: a stall at 1 MB/s, then a request
    /// in time every 2 us.
    #[test]
    fn frequent_requests_do_not_stop_growth() {
        let (mut throttle, mut now) = (Throttle::new(), Instant(2_000_000_000));
        for _ in 0..400 {
            now += Nanos::from_millis(10);
            throttle.on_write(now, 10_000, true);
        }
        throttle.on_request(now, LONG, LONG, 1_000_000);
        let stalled = throttle.saturation.expect("a stall").rate;
        for _ in 0..8_000_000 / 2 {
            now += Nanos::from_micros(2);
            throttle.on_request(now, Nanos::ZERO, Nanos::ZERO, 1_000_000);
        }
        assert!(throttle.limit > stalled * 2, "{} after {stalled}", throttle.limit);
    }

    /// Goal: late requests of the same time count once. Method: sixteen requests that waited for the same 100 ms.
    #[test]
    fn requests_that_were_late_together_count_once() {
        let (mut throttle, mut now) = (Throttle::new(), Instant(2_000_000_000));
        for _ in 0..16 {
            throttle.on_request(now, Nanos(99_000_000), Nanos::from_millis(100), 1 << 30);
            now += Nanos::from_millis(2);
        }
        assert_eq!(throttle.limit, (1 << 30) >> 6);
    }

    /// Goal: writes are not slowed beside reads that are late for another reason. Method: a limit on reads that lets 300 reads
    /// pass in a tenth of each 100 ms, whatever is written.
    #[test]
    fn a_limit_on_reads_does_not_slow_writes() {
        let (mut throttle, mut now, mut sum) = (Throttle::new(), Instant(2_000_000_000), 0);
        for read in 0..300 * 600 {
            let waits = read % 300 == 0;
            let took = if waits { Nanos::from_millis(76) } else { Nanos::from_micros(80) };
            now += took;
            throttle.on_write(now, 65_536, true);
            let lag = if waits { took } else { Nanos::ZERO };
            throttle.on_request(now, lag, took, 50_000_000);
            sum += throttle.percent(50_000_000);
        }
        assert!(sum / (300 * 600) > 70, "{}", sum / (300 * 600));
    }

    /// Goal: writes are not slowed for ever beside a minimum that is missed for another reason. Method: a minute of requests
    /// that are late whatever is written.
    #[test]
    fn an_infeasible_minimum_does_not_starve_writes() {
        let (mut throttle, mut now, mut sum) = (Throttle::new(), Instant(2_000_000_000), 0);
        for _ in 0..600 {
            now += Nanos::from_millis(100);
            throttle.on_request(now, LONG, Nanos::from_millis(100), 50_000_000);
            sum += throttle.percent(50_000_000);
        }
        assert!(sum / 600 > 25, "{}", sum / 600);
    }
}
