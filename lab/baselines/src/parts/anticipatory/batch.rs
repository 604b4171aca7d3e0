//! The batches of the anticipatory scheduler: whose turn it is, until when, and how many writes a batch of
//! writes may have so that it takes about as long as it should.

use iofair_core::time::{Instant, Nanos};

/// The two kinds of requests, which alternate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Synchronous requests: reads, and writes flagged so.
    Sync,
    /// All others.
    Async,
}

/// Largest number of writes in a batch.
const WRITES_MAX: u32 = 1 << 20;

/// The current batch, and the size of the next batch of writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) kind: Kind,
    /// Whether the other kind still has requests at the drive: nothing is dispatched until they complete.
    pub(super) changing: bool,
    /// Whether none of its requests has completed, so that its time has not begun.
    pub(super) fresh: bool,
    pub(super) ends: Instant,
    /// Number of writes that it may still dispatch.
    writes_left: u32,
    /// Number of writes in the next batch of writes.
    write_count: u32,
    /// Whether it ran out of writes, or no read waited at its end: it does not show how long writes take.
    pub(super) idled: bool,
    expire: [Nanos; 2],
}

impl Batch {
    /// Before the first request, like the original: in a batch of writes that has none left.
    pub(super) fn new(expire: [Nanos; 2]) -> Self {
        let [sync, writes] = expire;
        Self {
            kind: Kind::Async,
            changing: false,
            fresh: false,
            ends: Instant::ZERO + sync,
            writes_left: 0,
            write_count: (writes.as_millis() / 10).clamp(2, u64::from(WRITES_MAX)) as u32,
            idled: true,
            expire,
        }
    }
    pub(super) const fn write_count(&self) -> u32 {
        self.write_count
    }
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let spent = self.kind == Kind::Async && self.writes_left == 0;
        !self.changing && !self.fresh && (now > self.ends || spent)
    }
    /// Records whether the other kind has no waiting request, or this kind has none, which ends a batch of writes.
    pub(super) fn note_waiting(&mut self, waiting: [bool; 2]) {
        let [sync, writes] = waiting;
        self.idled |= self.kind == Kind::Async && !sync && (self.writes_left == 0 || !writes);
    }
    /// Extends the batch of reads while only reads wait.
    pub(super) fn prolong(&mut self, now: Instant) {
        self.ends = now + self.expire[Kind::Sync as usize];
    }
    pub(super) fn switch_to(&mut self, kind: Kind) {
        if self.kind != kind {
            self.changing = true;
        }
        if kind == Kind::Async {
            if self.kind == Kind::Sync {
                // No read of the old batch may have completed yet.
                self.fresh = false;
            }
            self.writes_left = self.write_count;
            self.idled = false;
        }
        self.kind = kind;
    }
    /// Starts the new batch, because the drive is empty.
    pub(super) fn start(&mut self, now: Instant) {
        self.changing = false;
        match self.kind {
            Kind::Async => self.ends = now + self.expire[Kind::Async as usize],
            Kind::Sync => self.fresh = true,
        }
    }
    pub(super) fn on_dispatch(&mut self, kind: Kind) {
        if kind == Kind::Async {
            self.writes_left = self.writes_left.saturating_sub(1);
        }
    }
    /// Records a completion; `last`: the drive is empty now.
    pub(super) fn on_complete(&mut self, now: Instant, kind: Kind, last: bool) {
        if self.changing && last {
            self.ends = now + self.expire[self.kind as usize];
            self.changing = false;
            self.fresh |= self.kind == Kind::Sync;
        }
        if self.fresh && self.kind == kind {
            self.tune(now);
            self.ends = now + self.expire[Kind::Sync as usize];
            self.fresh = false;
        }
    }
    /// Adjusts the number of writes of the next batch when the first read after a batch of writes completes, by the
    /// time since that batch began (or should have ended).
    fn tune(&mut self, now: Instant) {
        let target = self.expire[Kind::Async as usize];
        let took = Nanos((now + target).since(self.ends).0);
        let count = self.write_count;
        self.write_count = if took > target && !self.idled {
            if took.0 > target.0.saturating_mul(3) { count / 2 } else { count - 1 }
        } else if took < target && self.writes_left == 0 {
            if target.0 > took.0.saturating_mul(3) { count.saturating_mul(2) } else { count + 1 }
        } else {
            count
        };
        self.write_count = self.write_count.clamp(1, WRITES_MAX);
    }
    /// Interrupts the batch while other sets have the drive.
    pub(super) fn interrupt(&mut self) {
        self.changing = false;
        self.idled = true;
    }
    /// The rest of its time, for later; all of it if the batch has not really begun.
    pub(super) fn left(&self, now: Instant) -> Nanos {
        match self.changing || self.fresh {
            true => self.expire[self.kind as usize],
            false => self.ends.since(now),
        }
    }
}
