//! The only clock: monotonic nanoseconds since the server's start, read once per turn of a reactor.

use iofair_core::time::Instant;

/// Where an engine's epoch lies.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// The epoch is now.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }
    /// Time since the epoch.
    pub fn now(&self) -> Instant {
        let nanos = self.0.elapsed().as_nanos();
        Instant(u64::try_from(nanos).expect("584 years have not passed"))
    }
}
