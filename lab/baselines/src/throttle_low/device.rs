//! What holds for the whole drive: the state LOW or MAX, how far limits have grown since the upgrade, and
//! how long requests usually take.

use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// The kernel's clocks run since boot, long before the engine's epoch, and zero means never.
const UPTIME: Nanos = Nanos::from_secs(300);
const MS: u64 = 1_000_000;
/// The largest `scale` (`throtl_adjusted_limit`).
const SCALE_MAX: u64 = 4096;
/// Sizes of requests: up to 4 KiB, then twice as much each, the last 1 MiB and more
/// (`LATENCY_BUCKET_SIZE`).
const SIZES: usize = 9;
/// Fewest completions for a mean.
const SAMPLES_MIN: u64 = 32;
/// Time between two means, in milliseconds.
const LEARN_EVERY: u64 = 1000;
/// On a drive with a head: the usual time of a request (`DFL_HD_BASELINE_LATENCY`), and the latency below which a
/// completion is not counted, because it does not show the time of others (`LATENCY_FILTERED_HD`).
const ROTATIONAL_USUAL: u64 = 4000;
const ROTATIONAL_COUNTED: u64 = 1000;

/// Ticks of a millisecond.
pub(super) fn jiffies(now: Instant) -> u64 {
    (now.0 + UPTIME.0) / MS
}
/// The kernel's microseconds of 1,024 ns.
pub(super) fn micros(now: Instant) -> u64 {
    (now.0 + UPTIME.0) >> 10
}

/// Completions of one size and direction since the last mean.
#[derive(Clone, Copy, Default, Debug)]
struct Measured {
    took: u64,
    samples: u64,
}

/// The usual time of a size and direction.
#[derive(Clone, Copy, Default, Debug)]
struct Usual {
    took: u64,
    is_known: bool,
}

/// The state of the drive; times in ticks.
pub(super) struct Device {
    pub(super) slice_ms: u64,
    rotational: bool,
    /// Number of groups with low limits.
    pub(super) lows: u32,
    pub(super) is_low: bool,
    pub(super) upgraded: u64,
    pub(super) downgraded: u64,
    /// Slices since the upgrade, at the last check of a limit.
    pub(super) scale: u64,
    measured: [[Measured; SIZES]; 2],
    usual: [[Usual; SIZES]; 2],
    learned: u64,
}

impl Device {
    pub(super) fn new(slice_ms: u64, rotational: bool) -> Self {
        let took = if rotational { ROTATIONAL_USUAL } else { 0 };
        Self {
            slice_ms,
            rotational,
            lows: 0,
            is_low: false,
            upgraded: 0,
            downgraded: 0,
            scale: 0,
            measured: [[Measured::default(); SIZES]; 2],
            usual: [[Usual { took, is_known: false }; SIZES]; 2],
            learned: 0,
        }
    }
    /// The value to which a low limit has grown in MAX.
    pub(super) fn grown(&mut self, low: u64, now: Instant) -> u64 {
        let now = jiffies(now);
        if self.scale < SCALE_MAX && now >= self.upgraded + self.scale * self.slice_ms {
            self.scale = (now - self.upgraded) / self.slice_ms;
        }
        low.saturating_add((low / 2).saturating_mul(self.scale))
    }
    /// Halves the growth, because a group misses its low limit; at zero, the state is LOW. Returns the scale.
    pub(super) fn downgrade(&mut self, now: u64) -> u64 {
        self.scale /= 2;
        if self.scale > 0 {
            self.upgraded = now - self.scale * self.slice_ms;
        } else {
            (self.is_low, self.downgraded) = (true, now);
        }
        self.scale
    }
    /// The smallest latency that is counted.
    pub(super) fn latency_counted(&self) -> u64 {
        if self.rotational { ROTATIONAL_COUNTED } else { 0 }
    }
    /// The usual time of a request of this size.
    pub(super) fn usual(&self, direction: usize, length: Sectors) -> u64 {
        self.usual[direction][size(length)].took
    }
    /// Records a completion and its time.
    pub(super) fn measure(&mut self, operation: Operation, length: Sectors, took: u64) {
        let direction = match operation {
            Operation::Read => 0,
            Operation::Write => 1,
            _ => return,
        };
        if self.is_low && !self.rotational {
            let measured = &mut self.measured[direction][size(length)];
            measured.took += took;
            measured.samples += 1;
        }
    }
    /// Computes usual times from the completions of the last second.
    pub(super) fn learn(&mut self, now: u64) {
        if self.rotational || self.lows == 0 || now < self.learned + LEARN_EVERY {
            return;
        }
        self.learned = now;
        for (measured, usual) in self.measured.iter_mut().zip(&mut self.usual) {
            // The usual time of the next smaller size with a new mean.
            let mut least = 0;
            for (measured, usual) in measured.iter_mut().zip(usual) {
                let mut mean = 0;
                if measured.samples >= SAMPLES_MIN {
                    mean = measured.took / measured.samples;
                    *measured = Measured::default();
                }
                if mean == 0 {
                    usual.took = usual.took.max(least);
                    continue;
                }
                if usual.is_known {
                    mean = (usual.took * 7 + mean) >> 3;
                }
                least = mean.max(least);
                *usual = Usual { took: least, is_known: true };
            }
        }
    }
}

/// The index of a size: the logarithm of 4 KiB units, rounded up.
fn size(length: Sectors) -> usize {
    let order = length.0.max(1).next_power_of_two().trailing_zeros() as usize;
    order.saturating_sub(3).min(SIZES - 1)
}
