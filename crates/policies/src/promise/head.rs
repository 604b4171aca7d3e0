//! Detects whether the drive has a head that moves.
//!
//! What the system reports is often wrong: a virtual disk on flash is reported as rotational. It is therefore only the
//! first guess. The time of a distant read (far from where its client read last) on the idle drive decides:
//!
//! ```text
//! score += 1   when the first completion comes within 2 ms
//! score -= 4   when it takes more than 3 ms, down to 0
//! score  = 8   there is no head: no disk seeks and waits for half a revolution so quickly, so often
//! ```
//!
//! A drive that is reported as rotational is treated as a disk again when reads that have it to themselves take more
//! than 5 ms. The score required for the next change is then doubled, so that a client whose reads hit the disk's cache
//! cannot cause changes often. A change happens only while the drive is idle.

use iofair_core::time::{Instant, Nanos};

const FAST: Nanos = Nanos::from_millis(2);
const SLOW: Nanos = Nanos::from_millis(3);
const SCORE: u32 = 8;
const SCORE_MAX: u32 = 1 << 20;
const PENALTY: u32 = 4;
/// Assumed time of a distant read, before any was measured.
const ACCESS: Nanos = Nanos::from_millis(10);
/// A read alone on a disk takes longer than this.
const DISK: Nanos = Nanos::from_millis(5);

/// State of the detection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Whether the system reports the drive as rotational.
    reported: bool,
    present: bool,
    score: u32,
    /// The score at which the drive is treated as flash.
    wanted: u32,
    /// When a distant read was dispatched to the idle drive.
    sent: Option<Instant>,
    /// Mean time of a distant read.
    access: Nanos,
}

impl Head {
    pub(super) const fn new(rotational: bool) -> Self {
        Self {
            reported: rotational,
            present: rotational,
            score: 0,
            wanted: SCORE,
            sent: None,
            access: ACCESS,
        }
    }
    /// Whether the drive is treated as one with a head.
    pub(super) const fn is_present(&self) -> bool {
        self.present
    }
    /// A command is dispatched; `idle`: nothing else is in flight; `far`: it is a distant read.
    pub(super) fn on_dispatch(&mut self, now: Instant, idle: bool, far: bool) {
        if idle {
            self.sent = (self.present && far).then_some(now);
        }
    }
    /// Mean time of a distant read.
    pub(super) const fn access(&self) -> Nanos {
        self.access
    }
    /// A command was completed. `settled`: nothing was written recently.
    pub(super) fn on_complete(&mut self, now: Instant, settled: bool) {
        let Some(sent) = self.sent.take() else { return };
        let took = now.since(sent);
        // While the drive may still write from its cache, a read only gives an upper bound.
        if settled || took < self.access {
            self.access = Nanos(self.access.0 - self.access.0 / 16 + took.0 / 16);
        }
        if took <= FAST {
            self.score += 1;
        } else if took > SLOW {
            self.score = self.score.saturating_sub(PENALTY);
        }
    }
    /// Decides again while the drive is idle, and returns whether the answer has changed. `latency`: time of a read that
    /// has the drive to itself.
    pub(super) fn changes(&mut self, latency: Nanos) -> bool {
        let is =
            if self.present { self.score < self.wanted } else { self.reported && latency > DISK };
        let changes = is != self.present;
        if changes {
            (self.present, self.score, self.sent) = (is, 0, None);
            if is {
                self.wanted = (self.wanted * 2).min(SCORE_MAX);
            }
        }
        changes
    }
}
