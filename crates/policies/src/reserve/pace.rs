//! The pace of writes and flushes that are not for reservations.
//!
//! A drive completes a write once it is in its cache, and what it programs later holds reads for longer than any window shows.
//! While a reservation is late, writes therefore have a limit in bytes a second:
//!
//! ```text
//! late                 a minimum is more than 20 ms behind, or a read of a group with a latency is late
//! limit = limit / 2^n  n: how many times 20 ms the late request took, at least once, and at most once in 20 ms
//! limit >= full / 512  full: what the drive writes; for latencies, full / 16
//! limit = limit * (17/16 + time since the last request / 250 ms)    with each request in time, up to half of what it was before
//! limit = limit * (257/256 + time since the last request / 4 s)     from there on
//! ```
//!
//! *Stalls.* A request that leaves its group more than 100 ms behind was in a stall: a full cache, or a long flush. The rate of
//! writes before it was more than the drive sustains. Up to 3/4 of that rate (instead of half of the limit before) the limit grows quickly, and from there on by a
//! factor of e in each time constant: 4 s at first, twice as long after each stall above that rate, up to 128 s. A limit of twice
//! the rate without a stall is the new rate, and the time constant is divided by 4.
//!
//! If requests are late for 2 s at the least limit, writes are not the cause, and have no limit for 5 s.
//!
//! Sources: Chiu and Jain (1989), additive increase and multiplicative decrease; Linux's io.latency, which throttles the groups
//! that disturb others.

use crate::parts::scale::scale;
use iofair_core::time::{Instant, Nanos};

/// The limit that holds no write, in bytes a second.
const UNLIMITED: u64 = 1 << 40;
/// The least limit is this part of what the drive writes: for minimums, and for latencies, which many drives cannot keep beside any
/// writes; and a write of 16 KiB in a quarter of a second.
const LEAST_PARTS: [u64; 2] = [512, 16];
const LEAST: u64 = 1 << 16;
/// A request in time adds 1/256, and time adds as much as the limit in 4 s.
const GROWTH: u64 = 256;
const GROWTH_TIME: Nanos = Nanos::from_secs(4);
/// The same up to a rate that is known to be good: sixteen times as quickly.
const REGAIN: u64 = 16;
const REGAIN_TIME: Nanos = Nanos::from_millis(250);
/// Near the rate of a stall, the limit grows at most once in this time.
const GROWS_EVERY: Nanos = Nanos::from_millis(1);
/// Late requests within this time count once.
const TOGETHER: Nanos = Nanos::from_millis(20);
/// Time over which the rate of writes is taken, and after which nobody with a reservation is there.
const CALM: Nanos = Nanos::from_secs(1);
/// After this time late at the least limit, writes are not the cause, and are trusted for some time.
const VAIN: Nanos = Nanos::from_secs(2);
const TRUSTED: Nanos = Nanos::from_secs(5);
/// A smaller write counts as a page.
const PAGE: u64 = 4096;
/// The longest wait for the next write: a trim may be as long as the drive.
const DELAY_MAX: Nanos = Nanos::from_secs(1);

/// A request that leaves its group this far behind was in a stall.
const STALL: Nanos = Nanos::from_millis(100);
/// The time constant of growth near the rate of the last stall, at first and at most: caches fill within seconds, and a drive that
/// has become faster is found within minutes.
const TIME_CONSTANT: [Nanos; 2] = [Nanos::from_secs(4), Nanos::from_secs(128)];

/// Why a request was late.
#[derive(Clone, Copy, Debug)]
pub(super) enum Late {
    /// It took this time, and its group is so far behind its minimum.
    Minimum { took: Nanos, lag: Nanos },
    /// It is a read that took longer than its latency.
    Latency,
}

/// What the last stall has shown.
#[derive(Clone, Copy, Debug)]
struct Stalled {
    /// The rate of writes before it, in bytes a second.
    rate: u64,
    time_constant: Nanos,
}

/// The pace of writes.
#[derive(Debug)]
pub(super) struct Pace {
    /// In bytes a second.
    limit: u64,
    /// What the drive writes a second by the costs of writes.
    full: u64,
    /// The limit when requests began to be late.
    base: u64,
    /// Whether the last request was late.
    is_late: bool,
    stalled: Option<Stalled>,
    /// Whether a request was in a stall since requests began to be late.
    in_stall: bool,
    /// Time for which the limit has not grown yet, near the rate of a stall.
    grows_for: Nanos,
    /// When the next write may go.
    next: Instant,
    /// Bytes written in the last second, each weighted by its age, and when that was updated.
    written: u64,
    updated: Instant,
    /// When a late request last counted, and since when requests are late at the least limit.
    cut: Instant,
    vain: Option<Instant>,
    trusted: Instant,
    /// The last request that was late or in time.
    last: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        let [next, updated, cut, trusted, last] = [Instant::ZERO; 5];
        let (limit, base, written, vain) = (UNLIMITED, UNLIMITED, 0, None);
        let (stalled, in_stall, grows_for) = (None, false, Nanos::ZERO);
        Self {
            limit,
            full: 0,
            base,
            is_late: false,
            stalled,
            in_stall,
            grows_for,
            next,
            written,
            updated,
            cut,
            vain,
            trusted,
            last,
        }
    }
    /// When the next write may go.
    pub(super) fn next(&self) -> Instant {
        self.next
    }
    /// A request with a reservation was completed in time.
    pub(super) fn on_time(&mut self, now: Instant) {
        let passed = now.since(self.last).min(GROWTH_TIME);
        (self.last, self.is_late) = (now, false);
        if self.limit == UNLIMITED {
            return;
        }
        let limit = self.limit;
        let known = self.stalled.map_or(self.base / 2, |stalled| stalled.rate / 4 * 3);
        if limit < known {
            let passed = passed.min(REGAIN_TIME);
            let grown = limit / REGAIN + scale(limit, passed.0, REGAIN_TIME.0) + 1;
            self.limit = (limit + grown).min(known);
            return;
        }
        let Some(Stalled { rate, time_constant }) = self.stalled else {
            let grown = limit / GROWTH + scale(limit, passed.0, GROWTH_TIME.0) + 1;
            self.limit = (limit + grown).min(UNLIMITED);
            return;
        };
        // Growth in a few microseconds would round to nothing.
        self.grows_for += passed;
        if self.grows_for < GROWS_EVERY {
            return;
        }
        let time = core::mem::replace(&mut self.grows_for, Nanos::ZERO);
        self.limit += scale(limit, time.0, time_constant.0);
        if self.limit >= rate * 2 {
            let time_constant = (time_constant / 4).max(TIME_CONSTANT[0]);
            self.stalled = Some(Stalled { rate: self.limit, time_constant });
        }
    }
    /// The first request of a stall was completed.
    fn on_stall(&mut self, now: Instant) {
        let rate = self.base.min(self.rate(now)).max(LEAST);
        let time_constant = match self.stalled {
            None => TIME_CONSTANT[0],
            Some(last) if rate > last.rate => (last.time_constant * 2).min(TIME_CONSTANT[1]),
            Some(last) => last.time_constant,
        };
        self.stalled = Some(Stalled { rate, time_constant });
    }
    /// A request with a reservation was late.
    pub(super) fn on_late(&mut self, now: Instant, late: Late) {
        self.last = now;
        let calm = now.since(self.cut);
        if now < self.trusted || calm < TOGETHER && self.cut > Instant::ZERO {
            return;
        }
        if !core::mem::replace(&mut self.is_late, true) {
            (self.base, self.in_stall) = (self.limit.min(self.full).max(LEAST), false);
            self.limit = self.base;
        }
        let (took, part) = match late {
            Late::Minimum { took, lag } => {
                if lag >= STALL && !core::mem::replace(&mut self.in_stall, true) {
                    self.on_stall(now);
                }
                (took, LEAST_PARTS[0])
            }
            Late::Latency => (Nanos::ZERO, LEAST_PARTS[1]),
        };
        let least = (self.full / part).max(LEAST);
        let halvings = (took.min(calm).0 / TOGETHER.0).clamp(1, 16);
        self.limit = (self.limit >> halvings).max(least.min(self.limit));
        self.cut = now;
        if self.limit > least * 2 {
            self.vain = None;
        } else if now.since(*self.vain.get_or_insert(now)) >= VAIN {
            (self.limit, self.vain, self.trusted) = (UNLIMITED, None, now + TRUSTED);
        }
    }
    /// Bytes written in about the last second.
    fn rate(&self, now: Instant) -> u64 {
        let passed = now.since(self.updated).0.min(CALM.0);
        scale(self.written, CALM.0 - passed, CALM.0)
    }
    /// A write or flush without a reservation is dispatched; `cost`: its drive time.
    pub(super) fn on_write(&mut self, now: Instant, bytes: u64, cost: Nanos) {
        let full = scale(bytes, 1_000_000_000, cost.0.max(1));
        self.full = full.max(self.full - self.full / 16);
        let bytes = bytes.max(PAGE);
        (self.written, self.updated) = (self.rate(now).saturating_add(bytes), now);
        if now.since(self.last) > CALM {
            // Nobody with a reservation is there.
            (self.limit, self.last) = (self.limit.saturating_mul(2).min(UNLIMITED), now);
        }
        self.next = self.next.max(now);
        if self.limit < UNLIMITED {
            let delay = Nanos(scale(bytes, 1_000_000_000, self.limit));
            self.next = (self.next + delay).min(now + DELAY_MAX);
        }
    }
    /// The limit in bytes a second.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }
}
