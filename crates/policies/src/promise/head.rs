//! Has the drive a head to move?
//!
//! Systems tell, and are often wrong: a virtual disk on flash says that it rotates. So what a drive says is only the first
//! guess. A read far from where its client read last, sent to an idle drive, shows what the drive is:
//!
//! ```text
//! score += 1   when the first completion comes within 2 ms
//! score -= 4   when it takes more than 3 ms, down to 0
//! score  = 8   there is no head: no disk moves its arm and waits for half a revolution so quickly, so often
//! ```
//!
//! A drive that said that it rotates is taken for a disk again when reads that have it to themselves take more than 5 ms. The
//! score that is asked for is then twice as high: a client that reads what a disk has in its memory cannot change the
//! answer often. The drive is idle when the answer changes.

use iofair_core::time::{Instant, Nanos};

const FAST: Nanos = Nanos::from_millis(2);
const SLOW: Nanos = Nanos::from_millis(3);
const SCORE: u32 = 8;
const SCORE_MAX: u32 = 1 << 20;
const PENALTY: u32 = 4;
/// Time of a read far away, before any is known.
const ACCESS: Nanos = Nanos::from_millis(10);
/// Latency alone of a disk.
const DISK: Nanos = Nanos::from_millis(5);

/// What is known of the head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Did the drive say that it rotates?
    said: bool,
    is: bool,
    score: u32,
    /// The score that is asked for.
    wanted: u32,
    /// When a read far from its client's last one was sent to the idle drive.
    sent: Option<Instant>,
    /// Mean time of such a read.
    access: Nanos,
}

impl Head {
    pub(super) const fn new(rotational: bool) -> Self {
        Self {
            said: rotational,
            is: rotational,
            score: 0,
            wanted: SCORE,
            sent: None,
            access: ACCESS,
        }
    }
    /// Is there one?
    pub(super) const fn is(&self) -> bool {
        self.is
    }
    /// A command goes to the drive; `far`: a read that is not where its client's last one ended.
    pub(super) fn on_dispatch(&mut self, now: Instant, idle: bool, far: bool) {
        if idle {
            self.sent = (self.is && far).then_some(now);
        }
    }
    /// Mean time of a read far from where its client read last.
    pub(super) const fn access(&self) -> Nanos {
        self.access
    }
    /// The first completion since the drive was idle, or any other one. `settled`: nothing was written lately.
    pub(super) fn on_complete(&mut self, now: Instant, settled: bool) {
        let Some(sent) = self.sent.take() else { return };
        let took = now.since(sent);
        // Where the drive may still be writing, a read tells no more than that one does not take longer.
        if settled || took < self.access {
            self.access = Nanos(self.access.0 - self.access.0 / 16 + took.0 / 16);
        }
        if took <= FAST {
            self.score += 1;
        } else if took > SLOW {
            self.score = self.score.saturating_sub(PENALTY);
        }
    }
    /// The drive is idle, and a read that has it to itself takes so long. Is the answer another one now?
    pub(super) fn changes(&mut self, latency: Nanos) -> bool {
        let is = if self.is { self.score < self.wanted } else { self.said && latency > DISK };
        let changes = is != self.is;
        if changes {
            (self.is, self.score, self.sent) = (is, 0, None);
            if is {
                self.wanted = (self.wanted * 2).min(SCORE_MAX);
            }
        }
        changes
    }
}
