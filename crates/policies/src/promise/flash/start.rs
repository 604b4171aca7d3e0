//! Starts: programs that begin, with reads one after the other, go first.
//!
//! A client that had no request for a second *starts*. For a while its reads go before those of others, and alone:
//!
//! ```text
//! starts   no request for 1 s; ends after 1 s, or with more than 32 requests at once
//! alone    nothing goes by share while a read of a start is in flight, and for 1 ms after it, except requests of clients that had
//!          none for longer than their last one took
//! in all   at most 1/8 of the time, and 500 ms at once; counts towards the share, by which nobody is more than 50 ms ahead after it
//! ```
//!
//! Source: the weight raising of BFQ (Valente and Andreolini, "Improving application responsiveness with the BFQ disk I/O scheduler",
//! 2012), with a bound in time in place of a weight.

use iofair_core::time::{Instant, Nanos};

/// Pause before a start: longer than clients pause that share a drive all the time.
const PAUSE: Nanos = Nanos::from_secs(1);
/// Longest start: twice what a terminal takes on an idle SATA SSD.
const LONGEST: Nanos = Nanos::from_secs(1);
/// A client with more requests at once does not wait for each of them, nor reads ahead as a page cache does.
const DEPTH: u64 = 32;
/// How long the next read is waited for: as long as a program computes between two reads.
const THINK: Nanos = Nanos::from_millis(1);
/// All starts together hold others for at most this part of the time, and for this time at once: twice what an office program reads.
const PART: u64 = 8;
const BURST: Nanos = Nanos::from_millis(500);

/// The start of a client.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Start {
    until: Instant,
    /// When a request of the client arrived or was completed last, and how long that was in the drive.
    last: Instant,
    took: Nanos,
    /// Whether its last request found no other, and came later than another one would have been completed.
    pub(super) pauses: bool,
}

impl Start {
    /// A request arrives at its client, which has `others`.
    pub(super) fn arrive(&mut self, now: Instant, others: u64) {
        if others == 0 && now.since(self.last) >= PAUSE {
            self.until = now + LONGEST;
        } else if others >= DEPTH {
            self.until = now;
        }
        self.pauses = others == 0 && now.since(self.last) > self.took;
        self.last = now;
    }
    /// A request of its client was completed.
    pub(super) fn rest(&mut self, now: Instant, took: Nanos) {
        (self.last, self.took) = (now, took);
    }
}

/// What all starts have together.
#[derive(Default, Debug)]
pub(super) struct Starts {
    /// The time for which they held others, less [`PART`] of all time, and up to when.
    held: Nanos,
    counted: Instant,
    in_flight: u32,
    /// When a read of a start was completed last, and until when the next one is waited for.
    completed: Instant,
    until: Instant,
}

impl Starts {
    /// Whether the reads of this client go first.
    pub(super) fn is_starting(&mut self, now: Instant, start: &Start) -> bool {
        self.held = self.held.saturating_sub(now.since(self.counted) / PART);
        self.counted = now;
        now < start.until && self.held < BURST
    }
    pub(super) fn dispatch(&mut self) {
        self.in_flight += 1;
    }
    /// A read of a start was completed; `took`: its time in the drive.
    pub(super) fn complete(&mut self, now: Instant, start: &Start, took: Nanos) {
        self.in_flight -= 1;
        let since = now.since(core::mem::replace(&mut self.completed, now));
        self.held += since.min(took + THINK);
        self.until = if self.is_starting(now, start) { now + THINK } else { now };
    }
    /// Whether nothing goes by share now, and until when, unless something is completed.
    pub(super) fn holds(&self, now: Instant) -> Option<Option<Instant>> {
        match self.in_flight > 0 {
            true => Some(None),
            false => (now < self.until).then_some(Some(self.until)),
        }
    }
}
