//! The only clock: monotonic nanoseconds since the server's start, read once per turn of a reactor. Also the time of
//! day, for log files.

use std::cell::Cell;

use iofair_core::time::{Instant, Nanos};

/// A clock with the epoch of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }
    /// Time since the epoch.
    pub fn now(&self) -> Instant {
        let nanos = self.0.elapsed().as_nanos();
        Instant(u64::try_from(nanos).expect("584 years have not passed"))
    }
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_time() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the local; the clock is one that every thread has.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

thread_local! {
    /// What [`thread_time`] said when [`spent`] was asked last.
    static TOLD: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
}

/// Processor time that the calling thread has used since it asked this last.
pub(crate) fn spent() -> Nanos {
    let now = thread_time();
    Nanos(now.0 - TOLD.replace(now).0)
}

/// A moment of a thread that waits and has no engine's epoch.
pub(crate) type Moment = std::time::Instant;

/// The present moment.
pub(crate) fn moment() -> Moment {
    Moment::now()
}

/// Lets this thread's timers fire when they are due and not up to 50 us later.
pub(crate) fn sharpen_timers() {
    // SAFETY: sets one number of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// The time of day.
pub(crate) type WallTime = std::time::SystemTime;

/// The time of day, now.
pub(crate) fn wall() -> WallTime {
    WallTime::now()
}

/// The time of day, in milliseconds since 1970.
pub(crate) fn unix_millis() -> u64 {
    let since = wall().duration_since(WallTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
