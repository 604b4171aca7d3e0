//! Detects whether the drive has a head that moves.
//!
//! What the system reports is often wrong: a virtual disk on flash is reported as rotational. It is therefore only the
//! first guess. What takes a disk a seek decides: a distant read (far from where its client read last) on the idle drive,
//! and a turn in which a client reads elsewhere than the client before it.
//!
//! ```text
//! score += 1   when the distant read is the first command to complete, within 2 ms
//! score += 1   when 16 MiB of the turn are read, and no completion came more than 2 ms after the one before
//! score -= 4   when either takes more than 3 ms, down to 0
//! score  = 8   there is no head: no disk seeks and waits for half a revolution so quickly, so often
//! ```
//!
//! The turn counts because sequential readers have no distant reads. Its first reads alone would not do: a disk has often
//! read them ahead. Until three of them were slow, or 32 turns followed one of another client, a turn ends when it has
//! raised the score, or after 10 ms if it cannot raise it, so that flash is detected soon.
//!
//! A drive that is reported as rotational is treated as a disk again when reads that have it to themselves take more
//! than 5 ms. The score required for the next change is then doubled, so that a client whose reads hit the disk's cache
//! cannot cause changes often. A change happens only while the drive is idle.

use super::shares::{EntityId, Side};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

const FAST: Nanos = Nanos::from_millis(2);
const SLOW: Nanos = Nanos::from_millis(3);
const SCORE: u32 = 8;
const SCORE_MAX: u32 = 1 << 20;
const PENALTY: u32 = 4;
/// More than a disk reads ahead.
const TURN_READS: u64 = 16 << 20;
/// A turn does not count if it begins this near to what was read or written in the turn before: a disk may have it cached.
const NEAR: Sectors = Sectors::from_bytes_ceil(64 << 20);
/// Slow reads, or turns after one of another client, from which on turns have their usual length.
const SLOW_READS: u32 = 3;
const SHORT_TURNS: u32 = 32;
/// Until then, the length of a turn that cannot show what the drive is.
const SHORT_TURN: Nanos = Nanos::from_millis(10);
/// Assumed time of a distant read, before any was measured.
const ACCESS: Nanos = Nanos::from_millis(10);
/// A read alone on a disk takes longer than this.
const DISK: Nanos = Nanos::from_millis(5);

/// The present turn, and what of it shows whether the drive has a head.
#[derive(Clone, Copy, Default, Debug)]
struct Turn {
    client: Option<EntityId>,
    /// First and last sector that was read or written in it, and in the turn of the client before.
    span: Option<[Sectors; 2]>,
    before: Option<[Sectors; 2]>,
    /// Bytes read so far, if the turn counts.
    read: Option<u64>,
    /// The last completion, or when a command was dispatched to the idle drive.
    since: Instant,
    began: Instant,
}

impl Turn {
    fn begin(&mut self, now: Instant, client: EntityId) {
        (self.read, self.began) = (None, now);
        if self.client != Some(client) {
            self.before = self.span.take();
            self.client = Some(client);
        }
    }
    fn on_dispatch(&mut self, side: Side, [start, end]: [Sectors; 2]) {
        match self.span {
            _ if side == Side::Flush => self.read = None,
            None => {
                let far = |[first, last]: [Sectors; 2]| end + NEAR < first || start > last + NEAR;
                self.read = (side == Side::Read && self.before.is_some_and(far)).then_some(0);
                self.span = Some([start, end]);
            }
            Some([first, last]) => {
                self.read = self.read.filter(|_| side == Side::Read);
                self.span = Some([first.min(start), last.max(end)]);
            }
        }
    }
    /// A command was completed. How quickly the drive went to another place, at most, once this is known.
    fn on_complete(&mut self, now: Instant, bytes: u64) -> Option<Nanos> {
        let gap = now.since(self.since);
        let read = self.read? + bytes;
        self.read = (gap <= FAST && read < TURN_READS).then_some(read);
        self.read.is_none().then_some(gap)
    }
}

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
    /// Reads that took as long as on a disk.
    slow: u32,
    /// Turns after one of another client.
    turns: u32,
    turn: Turn,
}

impl Head {
    pub(super) fn new(rotational: bool) -> Self {
        Self {
            reported: rotational,
            present: rotational,
            score: 0,
            wanted: SCORE,
            sent: None,
            access: ACCESS,
            slow: 0,
            turns: 0,
            turn: Turn::default(),
        }
    }
    /// Whether the drive is treated as one with a head.
    pub(super) const fn is_present(&self) -> bool {
        self.present
    }
    /// A turn of a client begins.
    pub(super) fn begin_turn(&mut self, now: Instant, client: EntityId) {
        self.turns = self.turns.saturating_add(u32::from(self.turn.client != Some(client)));
        self.turn.begin(now, client);
    }
    /// A command is dispatched.
    pub(super) fn on_dispatch(&mut self, side: Side, place: [Sectors; 2]) {
        if self.present {
            self.turn.on_dispatch(side, place);
        }
    }
    /// The same while nothing is in flight; `is_distant`: it is a distant read.
    pub(super) fn on_dispatch_alone(&mut self, now: Instant, is_distant: bool) {
        if self.present {
            self.sent = is_distant.then_some(now);
            self.turn.since = now;
        }
    }
    /// Mean time of a distant read.
    pub(super) const fn access(&self) -> Nanos {
        self.access
    }
    /// A command with this many bytes was completed. `settled`: nothing was written recently. Returns whether the present turn
    /// is to end if other clients wait, since it showed a sign of flash, or will not show any, and few reads were slow so far.
    pub(super) fn on_complete(&mut self, now: Instant, settled: bool, bytes: u64) -> bool {
        if !self.present {
            return false;
        }
        let distant = self.sent.take().map(|sent| now.since(sent));
        // While the drive may still write from its cache, a read only gives an upper bound.
        if let Some(took) = distant.filter(|took| settled || *took < self.access) {
            self.access = Nanos(self.access.0 - self.access.0 / 16 + took.0 / 16);
        }
        let in_turn = self.turn.on_complete(now, bytes);
        self.turn.since = now;
        let before = self.score;
        match distant.or(in_turn) {
            Some(took) if took <= FAST => self.score += 1,
            Some(took) if took > SLOW => {
                self.score = self.score.saturating_sub(PENALTY);
                self.slow = self.slow.saturating_add(1);
            }
            _ => {}
        }
        let shows = self.turn.read.is_some() || now.since(self.turn.began) < SHORT_TURN;
        let is_unknown = self.slow < SLOW_READS && self.turns <= SHORT_TURNS;
        is_unknown && (self.score > before || !shows)
    }
    /// Decides again while the drive is idle, and returns whether the answer has changed. `latency`: time of a read that
    /// has the drive to itself.
    pub(super) fn changes(&mut self, latency: Nanos) -> bool {
        let is =
            if self.present { self.score < self.wanted } else { self.reported && latency > DISK };
        let changes = is != self.present;
        if changes {
            (self.present, self.score, self.sent) = (is, 0, None);
            self.turn = Turn::default();
            if is {
                self.slow = SLOW_READS;
                self.wanted = (self.wanted * 2).min(SCORE_MAX);
            }
        }
        changes
    }
}
