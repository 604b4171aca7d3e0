//! Turns: which client the disk serves, and for how long.
//!
//! ```text
//! a turn ends       after SLICE (for a minimum SLICE_DUE), or IDLE (PAUSE) without a request of its client; a turn for a
//!                   minimum, when its group has what is promised for the frame; a turn by weight, for a near deadline
//! a write goes      if now + the time to write out the cache with it <= end of the frame, while groups use minimums
//!                   (super::cached); else a read of the client passes it, or the disk is idle and writes out its cache
//! a turn costs      the time that it lasted, and of scattered writes the time to write them out; nothing for the time by which its
//!                   first read takes longer than a distant read after another client's writes
//! ```
//!
//! The next turn begins when nothing is in flight, unless the client is alone. When the time of a turn is over, it still waits IDLE
//! for the next request: a client that sends one at a time would miss the choice of the next turn, whatever its weight.
//!
//! Source: the idling is that of the anticipatory scheduler (Iyer and Druschel, "Anticipatory scheduling", 2001).

use super::Disk;
use super::clock::{PAUSE, frame_end};
use crate::parts::shares::{EntityId, Side};
use iofair_core::id::RequestId;
use iofair_core::parts::fifo::Fifo;
use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;

/// Longest turn: some twenty times what a change of the client costs.
const SLICE: Nanos = Nanos::from_millis(200);
/// Longest turn for a minimum: nearly a frame.
const SLICE_DUE: Nanos = Nanos::from_millis(400);
/// How long a turn waits for the next request of its client: less than the seek that another client would cost.
const IDLE: Nanos = Nanos::from_millis(2);
/// A turn ends this long before the deadline of another client's request, because commands in flight complete first. If there are
/// deadlines, no more are in flight than the disk completes in this time.
const DEADLINE_NEAR: Nanos = Nanos::from_millis(25);
/// A client has deadlines while it is at most this far ahead of its turn: two slices.
const BURST: Nanos = Nanos::from_millis(400);
/// A turn for a minimum is charged while the group is at most this far ahead of its turn by weight: else a group whose minimum is
/// lifted would wait for as long as it was served for it.
const DEBT_MAX: Nanos = Nanos::from_secs(1);

/// The present turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) client: EntityId,
    /// The group for whose minimum it is; `None` for a turn by weight.
    due: Option<EntityId>,
    began: Instant,
    /// The latest end.
    until: Instant,
    /// The end of the frame in which it began.
    frame_end: Instant,
    /// Commands completed in the turn.
    done: u32,
    /// Whether writes were dispatched in it.
    wrote: bool,
}

impl Disk {
    pub(super) fn dispatch_turn(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let now = cx.now;
        loop {
            let Some(turn) = self.turn else {
                self.turn = Some(self.next_turn(cx)?);
                continue;
            };
            let is_over = self.is_over(now, &turn);
            let oldest = self.oldest(cx, turn.client);
            if oldest.is_some() && !is_over && !self.gives_way(now, &turn) {
                let side = if turn.due.is_some() { oldest } else { self.fitting(cx, turn.client) };
                if let Some(side) = side {
                    let waits = side == Side::Flush && self.writes > 0 || !self.fits(now, &turn);
                    if waits {
                        // A client that is alone begins another turn then.
                        self.wake_at(Some(turn.until).filter(|_| self.is_alone(turn.client)));
                        return None;
                    }
                    return self.send(cx, turn.client, side);
                }
                self.wake_for_changes(cx, frame_end(now));
            }
            if self.in_flight > 0 && !(is_over && self.is_alone(turn.client)) {
                return None;
            }
            let idle = if turn.due.is_some() && !is_over { PAUSE } else { IDLE };
            let until = self.last_done.max(turn.began) + idle;
            if oldest.is_none() && now < until {
                if let Some(client) = cx.groups.client_id(turn.client.member()) {
                    let rule = "turn: idle; {ns} for its next request";
                    cx.decide(Subject::Client(client), rule, [until.since(now).0, 0]);
                }
                self.wake_at(Some(until));
                return None;
            }
            self.end_turn(now, &turn);
        }
    }
    fn is_over(&self, now: Instant, turn: &Turn) -> bool {
        let has_all = |group| self.clocks.kept_until(group) >= turn.frame_end;
        now >= turn.until || turn.due.is_some_and(has_all)
    }
    /// Whether a client has requests queued, and no other.
    fn is_alone(&self, client: EntityId) -> bool {
        let own: usize = self.clients[client.member()].queues.iter().map(Fifo::len).sum();
        own > 0 && own == self.queued as usize
    }
    /// Whether a turn by weight ends for a deadline of another client.
    fn gives_way(&mut self, now: Instant, turn: &Turn) -> bool {
        turn.due.is_none() && self.urgent(now).is_some_and(|client| client != turn.client)
    }
    /// The earliest deadline. A client that is far ahead of its turn loses its deadline until it is served again, so that it does
    /// not hide the deadlines of others.
    fn first_deadline(&mut self) -> Option<(Instant, EntityId)> {
        loop {
            let (deadline, client, side) = self.deadlines.first()?;
            if self.shares.is_within(client, BURST) {
                return Some((deadline, client));
            }
            self.deadlines.set(client, side, None);
        }
    }
    /// A client whose request has a near deadline.
    fn urgent(&mut self, now: Instant) -> Option<EntityId> {
        let (deadline, client) = self.first_deadline()?;
        (deadline <= now + DEADLINE_NEAR).then_some(client)
    }
    /// Whether the disk will complete all commands in flight before the turn ends, and soon enough for a deadline that may come. A
    /// command takes the mean of those completed in this turn, or as long as a distant read before one was.
    fn fits(&self, now: Instant, turn: &Turn) -> bool {
        let mean = match u64::from(turn.done) {
            0 => self.cached.access(),
            done => now.since(turn.began) / done,
        };
        let left = if self.is_alone(turn.client) { Nanos::MAX } else { turn.until.since(now) };
        let most = if self.latencies { left.min(DEADLINE_NEAR) } else { left };
        self.in_flight == 0 || mean * u64::from(self.in_flight) <= most
    }
    /// The side of a client's oldest request.
    fn oldest(&self, cx: &Context<'_>, client: EntityId) -> Option<Side> {
        let age = |side| Some((cx.requests[self.front(client, side)?].sequence, side));
        Side::ALL.into_iter().filter_map(age).min().map(|(_, side)| side)
    }
    /// The side of a client's next request in a turn by weight: that of its oldest one, but a read passes a write that does not fit
    /// into what is left of the frame. `None`: it has only such a write.
    fn fitting(&self, cx: &Context<'_>, client: EntityId) -> Option<Side> {
        let side = self.oldest(cx, client)?;
        if side != Side::Write || !self.is_full(cx, client) {
            return Some(side);
        }
        self.front(client, Side::Read).map(|_| Side::Read)
    }
    /// Whether a client's next write would take longer to be written out than what is left of the frame.
    fn is_full(&self, cx: &Context<'_>, client: EntityId) -> bool {
        let settles = self.settles_in(cx.now);
        let Some(id) = self.front(client, Side::Write).filter(|_| settles > Nanos::ZERO) else {
            return false;
        };
        let time = self.cached.write_time(cx.requests[id].length.bytes());
        cx.now + settles + time > frame_end(cx.now)
    }
    /// For how long no command may arrive from now on if the disk is to write out what it has cached.
    fn settles_in(&self, now: Instant) -> Nanos {
        let idle = if self.in_flight > 0 { Nanos::ZERO } else { now.since(self.last_done) };
        match self.clocks.are_used(now) {
            true => self.cached.settles_in(idle),
            false => Nanos::ZERO,
        }
    }
    /// A write is dispatched in the turn; `far`: a scattered one.
    pub(super) fn count_write(&mut self, now: Instant, bytes: u64, far: bool) {
        let Some(turn) = &mut self.turn else { return };
        turn.wrote = true;
        if far && turn.due.is_none() && self.clocks.are_used(now) {
            let (client, time) = (turn.client, self.cached.write_time(bytes));
            self.cached.on_write(time);
            self.shares.charge(client, time, true);
        }
    }
    /// A command was completed; `took`: its time in the drive.
    pub(super) fn complete_in_turn(&mut self, side: Side, took: Nanos) {
        let Some(turn) = &mut self.turn else { return };
        turn.done += 1;
        let writer = self.writer.take_if(|_| turn.done == 1 && side == Side::Read);
        if writer.is_some_and(|writer| writer != turn.client) {
            turn.began += took.saturating_sub(self.cached.access());
        }
    }
    pub(super) fn end_turn(&mut self, now: Instant, turn: &Turn) {
        self.turn = None;
        self.writer = turn.wrote.then_some(turn.client);
        let (by_share, time) = (turn.due.is_none(), now.since(turn.began));
        if by_share || self.shares.is_within(turn.client, DEBT_MAX) {
            self.shares.charge(turn.client, time, by_share);
        }
    }
    fn next_turn(&mut self, cx: &Context<'_>) -> Option<Turn> {
        let (now, frame_end) = (cx.now, frame_end(cx.now));
        let due = self.clocks.due(now).map(|(group, _)| group);
        let urgent = if due.is_none() { self.urgent(now) } else { None };
        let top = due.unwrap_or(EntityId::ROOT);
        let next = Side::ALL.into_iter().filter_map(|side| self.shares.pick(top, side)).min();
        let client = urgent.or(next.map(|(_, client)| client))?;
        if due.is_none() && self.fitting(cx, client).is_none() {
            self.wake_for_changes(cx, frame_end);
            return None;
        }
        let until = match due {
            Some(_) => now + SLICE_DUE,
            // What would be left of the frame after this turn is too short for another one.
            None if !self.clocks.are_none() && frame_end < now + SLICE + SLICE / 2 => frame_end,
            None => now + SLICE,
        };
        Some(Turn { client, due, began: now, until, frame_end, done: 0, wrote: false })
    }
    /// Sets wake-ups for everything that ends a time in which the disk writes out its cache.
    fn wake_for_changes(&mut self, cx: &Context<'_>, frame_end: Instant) {
        let (now, deadline) = (cx.now, self.first_deadline());
        let deadline = deadline.map(|(deadline, _)| deadline.saturating_sub(DEADLINE_NEAR));
        let (due, unused) = (self.clocks.next_due(), Some(self.clocks.used_until()));
        let settled = Some(frame_end.min(now + self.settles_in(now)));
        for at in [due, deadline, unused, settled] {
            self.wake_at(at.filter(|at| *at > now));
        }
    }
}
