//! The time by which commands of an emulated drive complete early, and by which they completed late.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

/// A command is late if it completes later than this part of its time in the model, in percent.
const LATE_PERCENT: u64 = 5;

/// The timing of an emulated drive, shared with whoever measures the path to it.
///
/// The *lead* is what the path between the drive and its users takes, and by how much commands therefore complete
/// earlier than in the model. No command completes before it has arrived. While several commands are in the drive, a
/// command that arrives after the model was advanced is submitted up to this much late; a drive that is busy anyway
/// does not notice.
#[derive(Debug, Default)]
pub struct Timing {
    fixed: AtomicU64,
    per_mib: AtomicU64,
    completed: AtomicU64,
    late: AtomicU64,
    late_max: AtomicU64,
    sleeps: AtomicBool,
    forgets: AtomicBool,
}

/// How late commands completed, after the lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lateness {
    /// Completed commands.
    pub completed: u64,
    /// Those that took more than 5 % longer than they should.
    pub late: u64,
    /// The longest delay.
    pub max: Nanos,
}

impl Timing {
    /// Sets the lead of each command, and what is added to it for each MiB.
    pub fn set_lead(&self, fixed: Nanos, per_mib: Nanos) {
        self.fixed.store(fixed.0, Relaxed);
        self.per_mib.store(per_mib.0, Relaxed);
    }
    /// The lead of a command of this length.
    pub(super) fn lead(&self, length: Sectors) -> Nanos {
        let bytes = u128::from(self.per_mib.load(Relaxed)) * u128::from(length.bytes());
        let more = u64::try_from(bytes >> 20).unwrap_or(u64::MAX);
        Nanos(self.fixed.load(Relaxed).saturating_add(more))
    }
    /// Whether the reactor polls for the last microseconds before an event of the drive (the default), or sleeps: then
    /// completions are late, and its processor time is that of its work alone.
    pub fn set_polling(&self, polls: bool) {
        self.sleeps.store(!polls, Relaxed);
    }
    pub(super) fn polls(&self) -> bool {
        !self.sleeps.load(Relaxed)
    }
    /// Whether a drive in memory that is given this timing discards what is written, for clients that only measure: then data
    /// costs neither memory nor the time to map it.
    pub fn set_forgetting(&self, forgets: bool) {
        self.forgets.store(forgets, Relaxed);
    }
    pub(super) fn forgets(&self) -> bool {
        self.forgets.load(Relaxed)
    }
    /// A command that takes this long in the model completed this much late.
    pub(super) fn record(&self, took: Nanos, late: Nanos) {
        self.completed.fetch_add(1, Relaxed);
        self.late.fetch_add(u64::from(late.0 > took.0 / 100 * LATE_PERCENT), Relaxed);
        self.late_max.fetch_max(late.0, Relaxed);
    }
    /// How late commands completed since the last call.
    pub fn take_lateness(&self) -> Lateness {
        let [completed, late, max] =
            [&self.completed, &self.late, &self.late_max].map(|counter| counter.swap(0, Relaxed));
        Lateness { completed, late, max: Nanos(max) }
    }
}
