//! The batches of the anticipatory scheduler: whose turn it is, until when, and how many writes a batch of
//! writes may have so that it takes about as long as it should.

use iofair_core::time::{Instant, Nanos};

/// The two kinds of requests that take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Somebody waits: reads, and writes flagged so.
    Sync,
    /// The others.
    Async,
}

/// No batch of writes is ever larger.
const WRITES_MAX: u32 = 1 << 20;

/// The running batch, and the size of the next one of writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) kind: Kind,
    /// The other kind still has requests at the drive: nothing goes out until they are answered.
    pub(super) changing: bool,
    /// None of its requests was answered yet: its time has not begun.
    pub(super) fresh: bool,
    pub(super) ends: Instant,
    /// Writes that it may still give.
    writes_left: u32,
    /// Writes that the next batch of writes may have.
    write_count: u32,
    /// It ran out of writes, or nobody wanted to follow it: it tells nothing of how long writes take.
    pub(super) idled: bool,
    expire: [Nanos; 2],
}

impl Batch {
    /// Before the first request, as the original begins: in a batch of writes that has none left.
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
    /// Nobody of the other kind waits, or nothing of this one: is this the end of its writes?
    pub(super) fn note_waiting(&mut self, waiting: [bool; 2]) {
        let [sync, writes] = waiting;
        self.idled |= self.kind == Kind::Async && !sync && (self.writes_left == 0 || !writes);
    }
    /// Reads alone wait: their batch goes on for as long as they do.
    pub(super) fn prolong(&mut self, now: Instant) {
        self.ends = now + self.expire[Kind::Sync as usize];
    }
    pub(super) fn switch_to(&mut self, kind: Kind) {
        if self.kind != kind {
            self.changing = true;
        }
        if kind == Kind::Async {
            if self.kind == Kind::Sync {
                // No read of the old batch may have been answered yet.
                self.fresh = false;
            }
            self.writes_left = self.write_count;
            self.idled = false;
        }
        self.kind = kind;
    }
    /// The drive is empty: the new kind may start now.
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
    /// An answer; `last`: the drive has nothing more.
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
    /// The first read after a batch of writes was answered: the time since that batch began (or should
    /// have ended) tells how many writes the next one may have.
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
    /// Others have the drive for a while.
    pub(super) fn interrupt(&mut self) {
        self.changing = false;
        self.idled = true;
    }
    /// Time that is left, for later: all of it if the batch has not really begun.
    pub(super) fn left(&self, now: Instant) -> Nanos {
        match self.changing || self.fresh {
            true => self.expire[self.kind as usize],
            false => self.ends.since(now),
        }
    }
}
