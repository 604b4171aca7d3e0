//! What a disk has in its cache.
//!
//! A disk with a cache completes scattered writes at once that take seconds to write out. It does not write them out while
//! other commands arrive, and once its cache is nearly full, it writes out a large part of it before it serves any read,
//! which can take a second or more. Small writes of several clients fill the cache together, so the time that it takes to
//! write them out is counted for all turns:
//!
//! ```text
//! time of a write    half of a distant read + bytes / rate, if it does not start where the client's last one ended
//! time               sum over all such writes since the last flush, less the time without commands beyond [`QUIET`]
//! ```

use iofair_core::time::Nanos;

/// A disk writes out its cache after this long without a command.
const QUIET: Nanos = Nanos::from_millis(25);
/// Up to this many scattered writes, their time is neglected.
const SCATTERED: u32 = 3;
/// More is not counted: whatever a client writes, others wait no longer for it.
const MOST: Nanos = Nanos::from_secs(2);

/// Writes that are presumably in the cache.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cached {
    /// How long it takes to write them out.
    time: Nanos,
    scattered: u32,
}

impl Cached {
    /// A scattered write is dispatched that takes this time.
    pub(super) fn on_write(&mut self, time: Nanos) {
        self.time = (self.time + time).min(MOST);
        self.scattered += 1;
    }
    /// A flush was completed.
    pub(super) fn on_flush(&mut self) {
        *self = Self::default();
    }
    /// A command is dispatched after this time without one.
    pub(super) fn on_idle(&mut self, idle: Nanos) {
        self.time = self.time.saturating_sub(idle.saturating_sub(QUIET));
        if self.time == Nanos::ZERO {
            self.scattered = 0;
        }
    }
    /// For how long no command may arrive from now on if all is to be written out, after this time without one; zero if
    /// what is cached is too little to matter.
    pub(super) fn settles_in(&self, idle: Nanos) -> Nanos {
        match self.scattered > SCATTERED {
            true => (self.time + QUIET).saturating_sub(idle),
            false => Nanos::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the rules. Method: scattered writes of 6 ms each, and times without commands.
    #[test]
    fn scattered_writes_add_up_until_the_disk_is_idle() {
        let (ms, mut cached) = (Nanos::from_millis, Cached::default());
        for _ in 0..3 {
            cached.on_write(ms(6));
        }
        assert_eq!(cached.settles_in(Nanos::ZERO), Nanos::ZERO, "too little");
        cached.on_write(ms(6));
        assert_eq!(cached.settles_in(Nanos::ZERO), ms(24 + 25));
        assert_eq!(cached.settles_in(ms(30)), ms(19));
        cached.on_idle(ms(20));
        assert_eq!(cached.settles_in(Nanos::ZERO), ms(24 + 25), "it did not begin");
        cached.on_idle(ms(35));
        assert_eq!(cached.settles_in(Nanos::ZERO), ms(14 + 25));
        cached.on_idle(ms(39));
        assert_eq!(cached.settles_in(Nanos::ZERO), Nanos::ZERO);
    }

    /// Goal: no write keeps the disk idle for long. Method: writes that would take an hour.
    #[test]
    fn a_long_write_counts_for_seconds() {
        let mut cached = Cached::default();
        (0..4).for_each(|_| cached.on_write(Nanos::from_secs(3600)));
        assert_eq!(cached.settles_in(Nanos::ZERO), MOST + QUIET);
    }
}
