//! One group: its limits, how much it sent, when it had enough, and whether it is idle. Times are in
//! ticks or the kernel's microseconds, as `device.rs` makes them; zero is never.

use super::device::{Device, jiffies, micros};
use iofair_core::contract::Limits;
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::levels::Account;
use iofair_policies::parts::meter::Limit;

/// The limits in LOW of a leaf without low limit: bytes and requests a second (`MIN_THROTL_BPS`, `MIN_THROTL_IOPS`).
const LEAST: [u64; 2] = [320 * 1024, 10];
/// Longest time without completion of a group that is not idle, in microseconds (`MAX_IDLE_TIME`).
const SILENCE_MAX: u64 = 5_000_000;
/// Number of counted requests at which counts are halved.
const COUNTED_MAX: u64 = 1024;
/// One bad request among fewer than this number makes a group not idle.
const BAD_PART: u64 = 5;

/// Values from the contract; limits by direction: bytes, requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    max: [[Option<u64>; 2]; 2],
    /// Zero means none.
    low: [[u64; 2]; 2],
    latency: u64,
    idle: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(Limits::default(), Limits::default(), [Nanos::ZERO; 2])
    }
}

impl Settings {
    /// Thresholds are latency and idle.
    pub(super) fn new(max: Limits, low: Limits, thresholds: [Nanos; 2]) -> Self {
        let by_direction = |limits: &Limits| {
            [0, 1].map(|d| [limits.bytes_per_s[d], limits.iops[d]].map(|l| l.map(|l| l.max(1))))
        };
        let [max, low] = [by_direction(&max), by_direction(&low)];
        let [latency, idle] = thresholds.map(Nanos::as_micros);
        let is_dropped = latency == 0 || idle == 0;
        let capped = |d: usize, kind: usize| match low[d][kind] {
            Some(low) if !is_dropped => low.min(max[d][kind].unwrap_or(u64::MAX)),
            _ => 0,
        };
        let low = [0, 1].map(|d| [0, 1].map(|kind| capped(d, kind)));
        Self { max, low, latency, idle }
    }
    fn limits(&self, direction: usize) -> bool {
        self.low[direction] != [0; 2]
    }
    pub(super) fn has_low(&self) -> bool {
        self.limits(0) || self.limits(1)
    }
    pub(super) fn same_low(&self, other: &Self) -> bool {
        (self.low, self.thresholds()) == (other.low, other.thresholds())
    }
    /// Latency and idle; a group without low limit has no thresholds, which counts as idle.
    pub(super) fn thresholds(&self) -> [u64; 2] {
        if self.has_low() { [self.latency, self.idle] } else { [u64::MAX, 0] }
    }
}

/// How long a request took, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) took: u64,
    /// Such requests usually take this.
    pub(super) usual: u64,
    /// The smallest latency that is counted.
    pub(super) counts_from: u64,
}

/// One group.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Share {
    pub(super) is_live: bool,
    pub(super) children: u32,
    pub(super) settings: Settings,
    /// For each direction: whether there may be a limit here or above.
    pub(super) limited: [bool; 2],
    /// Thresholds in force, in microseconds.
    pub(super) latency: u64,
    pub(super) idle: u64,
    /// For each direction: when the group last reached its low limit.
    pub(super) overflow: [u64; 2],
    /// When it was last checked, and the bytes and requests since then by direction.
    pub(super) looked: u64,
    pub(super) sent: [[u64; 2]; 2],
    /// The last completion, and the one from which think time was last counted.
    completed: u64,
    thought_since: u64,
    think_time: u64,
    counted: u64,
    bad: u64,
    /// When the counts are halved again.
    halve: u64,
}

impl Share {
    pub(super) fn new(settings: Settings) -> Self {
        Self { is_live: true, settings, ..Self::default() }
    }
    fn limit_of(
        &self,
        device: &mut Device,
        now: Instant,
        direction: usize,
        kind: usize,
    ) -> Option<u64> {
        let low = self.settings.low[direction];
        match (device.is_low, low[kind]) {
            (true, 0) if self.children > 0 || low[1 - kind] > 0 => None,
            (true, 0) => Some(LEAST[kind]),
            (true, low) => Some(low),
            (false, 0) => self.settings.max[direction][kind],
            (false, low) => {
                let max = self.settings.max[direction][kind].unwrap_or(u64::MAX);
                Some(if low == max { max } else { device.grown(low, now).min(max) })
            }
        }
    }
    /// When it last reached its low limit, in the direction in which that is longest ago.
    pub(super) fn last_overflow(&self, now: u64) -> u64 {
        let of = |d: usize| if self.settings.limits(d) { self.overflow[d] } else { now };
        of(0).min(of(1))
    }
    /// Whether it has no low limit, or has requests waiting (`waits`) in all directions with one.
    pub(super) fn has_enough_waiting(&self, waits: [bool; 2]) -> bool {
        (0..2).all(|d| waits[d] || !self.settings.limits(d))
    }
    /// Detects overflows of the rates since the last check, this many ticks ago.
    pub(super) fn find_overflows(&mut self, now: u64, elapsed: u64) {
        for direction in 0..2 {
            for kind in 0..2 {
                let low = self.settings.low[direction][kind];
                if low > 0 && self.sent[direction][kind] * 1000 / elapsed >= low {
                    self.overflow[direction] = now;
                }
            }
        }
    }
    pub(super) fn is_idle(&self, now: u64) -> bool {
        self.latency == u64::MAX
            || self.idle == 0
            || now.saturating_sub(self.completed) > SILENCE_MAX.min(4 * self.idle)
            || self.think_time > self.idle
            || (self.latency > 0 && self.counted > 0 && self.bad * BAD_PART < self.counted)
    }
    /// Records the arrival of a request.
    pub(super) fn came(&mut self, now: u64) {
        if self.completed == 0 || now <= self.completed || self.thought_since == self.completed {
            return;
        }
        self.think_time = (self.think_time * 7 + now - self.completed) >> 3;
        self.thought_since = self.completed;
    }
    /// Records a completion. `slice_ms`: the length of a slice.
    pub(super) fn completed(&mut self, now: Instant, latency: Latency, slice_ms: u64) {
        let Latency { took, usual, counts_from } = latency;
        self.completed = micros(now);
        if took == 0 {
            return;
        }
        if self.latency > 0 && took >= counts_from {
            self.bad += u64::from(took > usual.saturating_add(self.latency));
            self.counted += 1;
        }
        if jiffies(now) > self.halve || self.counted > COUNTED_MAX {
            self.halve = jiffies(now) + slice_ms;
            self.counted /= 2;
            self.bad /= 2;
        }
    }
}

impl Account for Share {
    type State = Device;
    fn limit(&self, device: &mut Device, now: Instant, direction: usize) -> Limit {
        match self.is_live {
            true => Limit([0, 1].map(|kind| self.limit_of(device, now, direction, kind))),
            false => Limit::default(),
        }
    }
    fn charged(&mut self, direction: usize, cost: [u64; 2]) {
        for (sent, cost) in self.sent[direction].iter_mut().zip(cost) {
            *sent += cost;
        }
    }
}
