//! What holds for the whole drive: the state LOW or MAX, how far limits have grown since the upgrade, and
//! how long requests usually take.

use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// The kernel's clocks run since boot, long before the engine's epoch, and zero means never.
const UPTIME: Nanos = Nanos::from_secs(300);
const MS: u64 = 1_000_000;
/// `scale` grows no further (`throtl_adjusted_limit`).
const SCALE_MAX: u64 = 4096;
/// Sizes of requests: up to 4 KiB, then twice as much each, the last 1 MiB and more
/// (`LATENCY_BUCKET_SIZE`).
const SIZES: usize = 9;
/// Fewest answers that make a mean.
const SAMPLES_MIN: u64 = 32;
/// From one mean to the next, in milliseconds.
const LEARN_EVERY: u64 = 1000;
/// With a moving head: what a request usually takes (`DFL_HD_BASELINE_LATENCY`), and the latency below
/// which it is not counted, since it tells nothing of others (`LATENCY_FILTERED_HD`).
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

/// Answers of one size and direction since the last mean.
#[derive(Clone, Copy, Default, Debug)]
struct Measured {
    took: u64,
    samples: u64,
}

/// What a size and direction usually takes.
#[derive(Clone, Copy, Default, Debug)]
struct Usual {
    took: u64,
    is_known: bool,
}

/// The state of the drive; times in ticks.
pub(super) struct Device {
    pub(super) slice_ms: u64,
    rotational: bool,
    /// Groups with low limits.
    pub(super) lows: u32,
    pub(super) is_low: bool,
    pub(super) upgraded: u64,
    pub(super) downgraded: u64,
    /// Slices since the upgrade, as of the last look at a limit.
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
    /// What a low limit has grown to in MAX.
    pub(super) fn grown(&mut self, low: u64, now: Instant) -> u64 {
        let now = jiffies(now);
        if self.scale < SCALE_MAX && now >= self.upgraded + self.scale * self.slice_ms {
            self.scale = (now - self.upgraded) / self.slice_ms;
        }
        low.saturating_add((low / 2).saturating_mul(self.scale))
    }
    /// A group misses its low limit: the growth is halved, and nothing of it left is LOW. Returns the
    /// scale.
    pub(super) fn downgrade(&mut self, now: u64) -> u64 {
        self.scale /= 2;
        if self.scale > 0 {
            self.upgraded = now - self.scale * self.slice_ms;
        } else {
            (self.is_low, self.downgraded) = (true, now);
        }
        self.scale
    }
    /// The least latency that counts.
    pub(super) fn latency_counted(&self) -> u64 {
        if self.rotational { ROTATIONAL_COUNTED } else { 0 }
    }
    /// What a request of this size usually takes.
    pub(super) fn usual(&self, direction: usize, length: Sectors) -> u64 {
        self.usual[direction][size(length)].took
    }
    /// The drive answered a request after so long.
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
    /// Once a second: usual times from the answers since.
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

/// Which of the sizes: the logarithm of 4 KiB units, rounded up.
fn size(length: Sectors) -> usize {
    let order = length.0.max(1).next_power_of_two().trailing_zeros() as usize;
    order.saturating_sub(3).min(SIZES - 1)
}
