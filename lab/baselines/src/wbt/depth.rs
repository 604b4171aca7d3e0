//! How deep writeback may go: a number of steps down or up from the middle, and the limits that follow.

use iofair_core::time::Nanos;

/// Depth at step 0, the middle, of a drive whose queue is at least this deep.
const DEPTH: u32 = 16;
/// Length of a monitoring window at step 0 and above it.
const WINDOW: Nanos = Nanos::from_millis(100);

/// Steps below the middle are positive, as in the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    drive: u32,
    step: i32,
    at_top: bool,
    max: u32,
}

impl Depth {
    pub(super) fn new(drive: u32) -> Self {
        let mut this = Self { drive, step: 0, at_top: false, max: 0 };
        this.set_max();
        this
    }
    pub(super) const fn step(&self) -> i32 {
        self.step
    }
    /// The whole depth.
    pub(super) const fn max(&self) -> u32 {
        self.max
    }
    /// Limit of background writeback while there was no other I/O of late.
    pub(super) const fn normal(&self) -> u32 {
        if self.max <= 2 { self.max } else { self.max.div_ceil(2) }
    }
    /// Limit of background writeback beside other I/O, and of discards.
    pub(super) const fn background(&self) -> u32 {
        if self.max <= 2 { 1 } else { self.max.div_ceil(4) }
    }
    /// Sets the depth that follows from the step. Returns whether it is the largest.
    fn set_max(&mut self) -> bool {
        if self.drive == 1 {
            // One at the drive, and one ready to follow it.
            self.max = if self.step > 0 { 1 } else { 2 };
            return self.step <= 0;
        }
        let more = DEPTH.min(self.drive) - 1;
        let top = self.drive - self.drive.div_ceil(4);
        self.max = match self.step {
            1.. => 1 + (more >> self.step.min(31)),
            0 => 1 + more,
            _ => 1 + more.saturating_mul(1 << self.step.unsigned_abs().min(31)),
        };
        let above = self.step < 0 && self.max > top;
        if above {
            self.max = top;
        }
        above
    }
    /// Deeper, unless it is as deep as it gets.
    pub(super) fn up(&mut self) -> bool {
        if self.at_top {
            return false;
        }
        self.step -= 1;
        self.at_top = self.set_max();
        true
    }
    /// Less deep, unless one is left; `hard`: from above the middle at once to it.
    pub(super) fn down(&mut self, hard: bool) -> bool {
        if self.max == 1 {
            return false;
        }
        self.step = if self.step < 0 && hard { 0 } else { self.step + 1 };
        self.at_top = false;
        self.set_max();
        true
    }
    /// Whether another step up would change nothing.
    pub(super) const fn is_at_top(&self) -> bool {
        self.at_top
    }
    /// Whether it can return to the middle. With a queue of two the step above the middle has a depth of one, and cannot.
    pub(super) const fn can_return(&self) -> bool {
        self.step > 0 || self.step < 0 && self.max > 1
    }
    /// Length of a monitoring window: 100 ms, below the middle divided by the square root of the steps plus one.
    pub(super) fn window(&self) -> Nanos {
        if self.step <= 0 {
            return WINDOW;
        }
        let root = ((self.step.unsigned_abs() + 1) << 8).isqrt();
        Nanos((WINDOW.0 << 4) / u64::from(root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn limits(depth: &Depth) -> [u32; 3] {
        [depth.max(), depth.normal(), depth.background()]
    }

    /// Goal: the depths and limits of every step. Method: down from the middle to one, and up to three quarters
    /// of the drive's depth, by hand.
    #[test]
    fn steps_of_a_drive_of_32() {
        let mut depth = Depth::new(32);
        assert_eq!(limits(&depth), [16, 8, 4]);
        for expected in [[8, 4, 2], [4, 2, 1], [2, 2, 1], [1, 1, 1]] {
            assert!(depth.down(true));
            assert_eq!(limits(&depth), expected);
        }
        assert!(!depth.down(true) && depth.step() == 4);
        for expected in [2, 4, 8, 16, 24] {
            assert!(depth.up());
            assert_eq!(depth.max(), expected);
        }
        assert!(!depth.up(), "1 + 15 * 2 is more than 24");
        assert!(depth.down(true));
        assert_eq!((depth.step(), depth.max()), (0, 16), "hard: at once to the middle");
    }

    /// Goal: other drives: a deep one goes up further, a shallow one starts lower, one without a queue has two.
    /// Method: each up to its top and down to its bottom.
    #[test]
    fn steps_of_other_drives() {
        for (drive, ups, downs) in [
            (1023, [31, 61, 121, 241, 481, 767].as_slice(), [16, 8, 4, 2, 1].as_slice()),
            (4, &[3], &[4, 2, 1]),
            (1, &[2], &[2, 1]),
        ] {
            let mut depth = Depth::new(drive);
            let mut seen = Vec::new();
            while depth.up() {
                seen.push(depth.max());
            }
            assert_eq!(seen, ups, "{drive} up");
            seen.clear();
            while depth.down(true) {
                seen.push(depth.max());
            }
            assert_eq!(seen, downs, "{drive} down");
        }
        let mut shallow = Depth::new(2);
        assert!(shallow.up() && shallow.max() == 1, "three quarters of two");
        assert!(!shallow.up() && !shallow.down(true) && !shallow.can_return());
    }

    /// Goal: the window shrinks by the root of the steps. Method: 100 ms over the roots of 2, 3 and 4, in sixteenths.
    #[test]
    fn windows_shrink() {
        let mut depth = Depth::new(32);
        let mut windows = Vec::new();
        for _ in 0..4 {
            windows.push(depth.window().as_micros());
            depth.down(true);
        }
        assert_eq!(windows, [100_000, 1_600_000 / 22, 1_600_000 / 27, 50_000]);
        let mut high = Depth::new(32);
        high.up();
        assert_eq!(high.window(), WINDOW);
    }
}
