//! The pace of writes and flushes that are not for minimums.
//!
//! A drive completes a write once it is in its cache, and what it programs later holds reads for longer than any window shows.
//! While a reservation is late, writes therefore have a limit in bytes a second:
//!
//! ```text
//! late                 a minimum is more than 20 ms behind, or a request of a group with a latency took longer
//! limit = limit / 2^n  n: how many times 20 ms the late request took, at least once, and at most once in 20 ms
//! limit >= full / 512  full: what the drive writes; for latencies, full / 16
//! latency given up     for 5 s, if more than one request in 32 misses it although limit <= full / 2
//! limit = limit * (257/256 + time since the last request / 4 s)    with each request in time; up to half of what the limit was
//!                                                                  before, sixteen times as quickly
//! ```
//!
//! Sources: Chiu and Jain (1989), additive increase and multiplicative decrease; Jacobson (1988), for the quick growth up to half
//! of the last limit; Linux's io.latency, which throttles the groups that disturb others.

use crate::parts::scale::scale;
use iofair_core::time::{Instant, Nanos};

/// The limit that holds no write, in bytes a second.
const UNLIMITED: u64 = 1 << 40;
/// The least limit is this part of what the drive writes: for minimums, and for latencies, which many drives cannot keep beside any
/// writes; and a write of 16 KiB in a quarter of a second.
const LEAST_PARTS: [u64; 2] = [512, 16];
const LEAST: u64 = 1 << 16;
/// A request in time adds 1/256, so that less than one in a hundred is late, and time adds as much as the limit in 4 s, for clients
/// with few requests.
const GROWTH: u64 = 256;
const GROWTH_TIME: Nanos = Nanos::from_secs(4);
/// Growth is so many times as quick up to a limit that is known to be good.
const REGAIN: u64 = 16;
/// Late requests within this time count once: a minimum is late from this lag on.
const TOGETHER: Nanos = super::clock::LATE;
/// Longest wait for the next write, since a trim may be as long as the drive; and the time after which no client with a reservation is
/// there.
const ABSENT: Nanos = Nanos::from_secs(1);

/// A latency that more than one in [`LATE_PART`] of so many requests miss at half of the rate or less cannot be kept, and does not count for
/// some time.
const TRIAL: u32 = 256;
const LATE_PART: u32 = 32;
const GIVEN_UP: Nanos = Nanos::from_secs(5);

/// Why a request was late.
#[derive(Clone, Copy, Debug)]
pub(super) enum Late {
    /// It took this time, and its group is behind its minimum.
    Minimum(Nanos),
    /// It took longer than its latency.
    Latency,
}

/// The pace of writes.
#[derive(Debug)]
pub(super) struct Pace {
    /// In bytes a second.
    limit: u64,
    /// What the drive writes a second by the costs of writes.
    full: u64,
    /// Half of the limit when requests began to be late.
    good: u64,
    /// Whether the last request was late.
    is_late: bool,
    /// When the next write may go.
    next: Instant,
    /// When a late request last counted.
    cut: Instant,
    /// The last request that was late or in time.
    last: Instant,
    /// Requests with a latency at half of the rate or less, how many were late, and until when latencies do not count.
    timed: u32,
    late: u32,
    given_up: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        let [next, cut, last, given_up] = [Instant::ZERO; 4];
        let (timed, late) = (0, 0);
        Self {
            limit: UNLIMITED,
            full: 0,
            good: 0,
            is_late: false,
            next,
            cut,
            last,
            timed,
            late,
            given_up,
        }
    }
    /// When the next write may go.
    pub(super) fn next(&self) -> Instant {
        self.next
    }
    /// A request with a latency was completed. Returns whether its latency counts.
    pub(super) fn on_latency(&mut self, now: Instant, is_late: bool) -> bool {
        if now < self.given_up {
            return false;
        }
        if self.limit <= self.full / 2 {
            self.timed += 1;
            self.late += u32::from(is_late);
        }
        if self.timed >= TRIAL {
            if self.late > self.timed / LATE_PART {
                (self.limit, self.given_up) = (UNLIMITED, now + GIVEN_UP);
            }
            (self.timed, self.late) = (0, 0);
        }
        now >= self.given_up
    }
    /// A request with a reservation was completed in time.
    pub(super) fn on_time(&mut self, now: Instant) {
        let passed = now.since(core::mem::replace(&mut self.last, now));
        self.is_late = false;
        if self.limit == UNLIMITED {
            return;
        }
        let (times, most) =
            if self.limit < self.good { (REGAIN, self.good) } else { (1, UNLIMITED) };
        let passed = (passed * times).min(GROWTH_TIME);
        let grown = self.limit * times / GROWTH + scale(self.limit, passed.0, GROWTH_TIME.0) + 1;
        self.limit = (self.limit + grown).min(most);
    }
    /// A request with a reservation was late.
    pub(super) fn on_late(&mut self, now: Instant, late: Late) {
        self.last = now;
        let since = now.since(self.cut);
        if since < TOGETHER && self.cut > Instant::ZERO {
            return;
        }
        self.cut = now;
        self.limit = self.limit.min(self.full).max(LEAST);
        if !core::mem::replace(&mut self.is_late, true) {
            self.good = self.limit / 2;
        }
        let (took, part) = match late {
            Late::Minimum(took) => (took, LEAST_PARTS[0]),
            Late::Latency => (Nanos::ZERO, LEAST_PARTS[1]),
        };
        let least = (self.full / part).max(LEAST).min(self.limit);
        let halvings = (took.min(since).0 / TOGETHER.0).clamp(1, 16);
        self.limit = (self.limit >> halvings).max(least);
    }
    /// A write or flush that is not for a minimum is dispatched; `cost`: its drive time.
    pub(super) fn on_write(&mut self, now: Instant, bytes: u64, cost: Nanos) {
        let full = scale(bytes, 1_000_000_000, cost.0.max(1));
        self.full = full.max(self.full - self.full / 16);
        if now.since(self.last) > ABSENT {
            (self.limit, self.last) = (self.limit.saturating_mul(2).min(UNLIMITED), now);
        }
        self.next = self.next.max(now);
        if self.limit < UNLIMITED {
            let delay = Nanos(scale(cost.0, self.full, self.limit));
            self.next = (self.next + delay).min(now + ABSENT);
        }
    }
    /// The limit in bytes a second.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }
}
