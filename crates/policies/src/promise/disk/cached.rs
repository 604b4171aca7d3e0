//! What a disk has in its cache.
//!
//! A disk with a cache completes scattered writes at once that take seconds to write out. It does not write them out while
//! other commands arrive, and once its cache is nearly full, it writes out a large part of it before it serves any read,
//! which can take a second or more. Small writes of several clients fill the cache together, so the time that it takes to
//! write them out is counted for all turns:
//!
//! ```text
//! access           mean time of a distant read that has the disk to itself
//! time of a write  access / 2 + bytes / RATE, if it does not start where the client's last one ended
//! time             sum over all such writes since the last flush, less the time without commands beyond QUIET
//! ```

use crate::parts::entity::Side;
use iofair_core::time::{Instant, Nanos};

/// A disk writes out its cache after this long without a command.
const QUIET: Nanos = Nanos::from_millis(25);
/// Time of a distant read before one was measured: a seek and half of a revolution.
const ACCESS: Nanos = Nanos::from_millis(10);
/// Rate at which a disk writes, in bytes a second: that of outer tracks. Disks differ by a factor of two to both sides, which is
/// little beside the seek of a scattered write.
const RATE: u64 = 200_000_000;
/// For this time after a write, the disk may still write from its cache.
const SETTLE: Nanos = Nanos::from_millis(100);

/// Writes that are presumably in the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cached {
    /// How long it takes to write them out.
    time: Nanos,
    access: Nanos,
    /// When a distant read was dispatched to the idle disk, unless a command was completed since.
    alone: Option<Instant>,
    last_write: Option<Instant>,
}

impl Cached {
    pub(super) fn new() -> Self {
        Self { time: Nanos::ZERO, access: ACCESS, alone: None, last_write: None }
    }
    /// Mean time of a distant read.
    pub(super) fn access(&self) -> Nanos {
        self.access
    }
    /// Time of a scattered write.
    pub(super) fn write_time(&self, bytes: u64) -> Nanos {
        self.access / 2 + Nanos::for_units_ceil(bytes, RATE)
    }
    /// A scattered write is dispatched that takes this time.
    pub(super) fn on_write(&mut self, time: Nanos) {
        self.time += time;
    }
    /// A command is dispatched after this time without one; `distant`: it is a distant read.
    pub(super) fn on_idle(&mut self, now: Instant, idle: Nanos, distant: bool) {
        self.alone = distant.then_some(now);
        self.time = self.time.saturating_sub(idle.saturating_sub(QUIET));
    }
    /// A command was completed.
    pub(super) fn on_complete(&mut self, now: Instant, side: Side) {
        if let Some(took) = self.alone.take().map(|sent| now.since(sent)) {
            let settled = self.last_write.is_none_or(|at| now.since(at) > SETTLE);
            // While the disk may still write from its cache, a read only gives an upper bound.
            if settled || took < self.access {
                self.access = self.access / 16 * 15 + took / 16;
            }
        }
        match side {
            Side::Read => {}
            Side::Write => self.last_write = Some(now),
            Side::Flush => self.time = Nanos::ZERO,
        }
    }
    /// For how long no command may arrive from now on if all is to be written out, after this time without one.
    pub(super) fn settles_in(&self, idle: Nanos) -> Nanos {
        match self.time {
            Nanos::ZERO => Nanos::ZERO,
            time => (time + QUIET).saturating_sub(idle),
        }
    }
}
