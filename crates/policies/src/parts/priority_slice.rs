//! The effect of a priority level in CFQ: the length of a slice, and the number of buffered writes.
//!
//! ```text
//! slice = base + base / 5 * (4 - level)          sync base 100 ms: 180, 160, ... 100 (level 4), ... 40
//! writes = 2 (rq + rq (7 - level))               rq 2: 32 at level 0 to 4 at level 7
//! ```
//!
//! Source: Linux `block/cfq-iosched.c`, `CFQ_SLICE_SCALE` 5 and `slice_async_rq` 2.

use iofair_core::priority::{Class, Priority};
use iofair_core::time::Nanos;

/// Lowest level.
const LEVEL_MAX: u8 = 7;

/// Slices at level 4, from which those of the other levels follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrioritySlices {
    /// For synchronous queues.
    pub sync: Nanos,
    /// For buffered writes.
    pub asynchronous: Nanos,
}

impl Default for PrioritySlices {
    fn default() -> Self {
        Self { sync: Nanos::from_millis(100), asynchronous: Nanos::from_millis(40) }
    }
}

impl PrioritySlices {
    /// The slice of a queue of this level.
    pub fn slice(&self, sync: bool, level: u8) -> Nanos {
        let base = if sync { self.sync } else { self.asynchronous };
        let step = base / 5;
        match level.min(LEVEL_MAX) {
            level @ 0..=4 => base + step * u64::from(4 - level),
            level => base - step * u64::from(level - 4),
        }
    }
    /// How much longer the longest slice is than this queue's.
    pub fn less_than_longest(&self, sync: bool, level: u8) -> Nanos {
        self.slice(true, 0).saturating_sub(self.slice(sync, level))
    }
}

/// Number of buffered writes that a queue of this level may dispatch in one slice while others wait.
pub fn async_requests(base: u64, level: u8) -> u64 {
    2 * (base + base * u64::from(LEVEL_MAX - level.min(LEVEL_MAX)))
}

/// Number of shared queues for buffered writes: eight levels of two classes, and one for the idle class.
pub const SHARED: usize = 17;

/// The index of the shared queue for buffered writes of this priority.
pub fn shared_index(priority: Priority) -> usize {
    let level = usize::from(priority.level.min(LEVEL_MAX));
    match priority.class {
        Class::RealTime => level,
        Class::BestEffort => 8 + level,
        Class::Idle => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Goal: the published tables. Method: all levels.
    #[test]
    fn slices_by_level() {
        let slices = PrioritySlices::default();
        let all = |sync| (0..8).map(|p| slices.slice(sync, p).as_millis()).collect::<Vec<_>>();
        assert_eq!(all(true), [180, 160, 140, 120, 100, 80, 60, 40]);
        assert_eq!(all(false), [72, 64, 56, 48, 40, 32, 24, 16]);
        assert_eq!(slices.less_than_longest(true, 0), Nanos::ZERO);
        assert_eq!(slices.less_than_longest(false, 4), Nanos::from_millis(140));
        let writes: Vec<_> = (0..8).map(|level| async_requests(2, level)).collect();
        assert_eq!(writes, [32, 28, 24, 20, 16, 12, 8, 4]);
    }
}
