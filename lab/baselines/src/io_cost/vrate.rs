//! The device's virtual clock and its rate.

use super::model::{SECOND, scale};
use super::settings::Settings;
use iofair_core::time::{Instant, Nanos};

/// A point of virtual time. It wraps, so points are only ever subtracted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Virtual(u64);

impl Virtual {
    /// How much later this is than `other`; negative when it is earlier.
    pub(super) fn since(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }
    pub(super) fn plus(self, time: i64) -> Self {
        Self(self.0.wrapping_add_signed(time))
    }
}

/// The present, in both times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) at: Instant,
    pub(super) v: Virtual,
}

/// 100 %: virtual time in a microsecond.
pub(super) const WHOLE_RATE: u64 = SECOND / 1_000_000;

/// Percent by which the rate changes, by the absolute busy level; the last one counts for all above.
const STEPS: [(u32, u64); 6] = [(4, 0), (20, 1), (36, 2), (44, 4), (52, 8), (u32::MAX, 16)];
/// A rate outside its bounds returns by this percentage each period.
const CLAMP_STEP: u64 = 4;

/// How far a group's own time may be behind the clock, in virtual time.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Margins {
    /// Nearer than this, a group gives nothing away.
    pub(super) min: i64,
    /// Nearer than this, a group that gave something away takes it back.
    pub(super) low: i64,
    /// What a group is allowed to save up.
    pub(super) target: i64,
}

/// State that continues from period to period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// What the feedback sets, virtual time in a microsecond.
    base: u64,
    /// `base` corrected for budget that groups threw away.
    rate: u64,
    /// When the period began.
    start: Now,
    /// Virtual time granted (negative: lost) beyond what the rate gives.
    error: i64,
    length: Nanos,
    pub(super) margins: Margins,
}

impl Clock {
    pub(super) fn new(length: Nanos) -> Self {
        let start = Now { at: Instant::ZERO, v: Virtual::default() };
        let (base, rate) = (WHOLE_RATE, WHOLE_RATE);
        let mut this = Self { base, rate, start, error: 0, length, margins: Margins::default() };
        this.find_margins();
        this
    }
    /// The feedback's rate, virtual time in a microsecond.
    pub(super) fn base_rate(&self) -> u64 {
        self.base
    }
    /// Length of a period.
    pub(super) fn period(&self) -> Nanos {
        self.length
    }
    /// What a period gives at the present rate.
    pub(super) fn period_virtual(&self) -> i64 {
        (self.length.as_micros() * self.base) as i64
    }
    pub(super) fn read(&self, at: Instant) -> Now {
        let passed = scale(at.since(self.start.at).0, self.rate, 1_000);
        Now { at, v: self.start.v.plus(passed as i64) }
    }
    /// When the present period began.
    pub(super) fn start(&self) -> Now {
        self.start
    }
    pub(super) fn start_period(&mut self, now: Now) {
        self.start = now;
    }
    /// Device time, at the present rate, of an amount of virtual time.
    pub(super) fn time_of(&self, cost: u64) -> Nanos {
        Nanos(scale(cost, 1_000, self.base) as u64)
    }
    /// When the clock will have advanced by this much, rounded up to a microsecond.
    pub(super) fn after(&self, now: Instant, cost: u64) -> Instant {
        now + Nanos(cost.div_ceil(self.base).saturating_mul(1_000))
    }
    /// Groups got this much more than the rate gives (negative: lost).
    pub(super) fn note_error(&mut self, error: i64) {
        self.error = self.error.saturating_add(error);
    }
    pub(super) fn forget_error(&mut self) {
        self.error = 0;
    }
    fn find_margins(&mut self) {
        let percent = |percent| self.period_virtual() / 100 * percent;
        self.margins = Margins { min: percent(10), low: percent(20), target: percent(50) };
    }
    /// Other parameters: the clock starts again at 100 %.
    pub(super) fn restart(&mut self, length: Nanos) {
        (self.base, self.rate, self.length) = (WHOLE_RATE, WHOLE_RATE, length);
        self.find_margins();
    }
    /// Feedback: slower while busy, faster while idle, by how long it has been so.
    pub(super) fn adjust(&mut self, busy_level: i32, lagging: bool, settings: &Settings) {
        if busy_level == 0 || (busy_level < 0 && lagging) {
            return;
        }
        let (slowest, fastest) = settings.rate_range;
        self.base = if self.base < slowest {
            (self.base * (100 + CLAMP_STEP) / 100).min(slowest)
        } else if self.base > fastest {
            (self.base * (100 - CLAMP_STEP) / 100).max(fastest)
        } else {
            let level = busy_level.unsigned_abs();
            let step = STEPS.iter().find(|(below, _)| level < *below).map_or(16, |(_, step)| *step);
            let percent = if busy_level > 0 { 100 - step } else { 100 + step };
            (self.base * percent).div_ceil(100).clamp(slowest, fastest)
        };
        self.find_margins();
    }
    /// No error is made up for.
    pub(super) fn keep_to_base(&mut self) {
        (self.rate, self.error) = (self.base, 0);
    }
    /// Distributes the error over the rest of the period: budget that groups lost makes the clock faster (up to twice
    /// the rate), budget granted twice makes it slower (down to half).
    pub(super) fn compensate(&mut self, now: Instant) {
        let left = (self.start.at + self.length).since(now).as_micros() as i64;
        if left > 0 {
            let base = self.base as i64;
            let more = (-self.error / left).clamp(-(base / 2), base);
            self.error += more * left;
            self.rate = self.base.saturating_add_signed(more);
        }
        let most = self.period_virtual();
        self.error = self.error.clamp(-most, most);
    }
}
