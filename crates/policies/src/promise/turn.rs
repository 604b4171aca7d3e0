//! Dispatch order for drives with a head, which serve one client at a time.
//!
//! A turn lasts [`SLICE`], or until its client has had no request for [`IDLE`]. A turn for a minimum also ends when its
//! group has what is promised for the present frame (see [`super::clock`]), and a turn by weight ends with the frame if a
//! group is due then. The next turn begins when nothing is in flight. A turn is charged with the time that it lasted.
//!
//! *Scattered writes.* While groups use minimums, no turn by weight gets more scattered writes than the disk can write out
//! before the frame ends, with all that its cache has already ([`super::cached`]), and such turns end early enough for that:
//!
//! ```text
//! a write goes               if the time to write out all writes + QUIET ends before the frame; else a read passes it
//! turns by weight end at     end of the frame - time to write out all writes - QUIET;  then the disk is kept idle, but for
//!                            reads whose deadline is near
//! ```
//!
//! The first read of the next turn waits for cached writes. The time by which it takes longer than twice the latency alone
//! is charged to the client that wrote.

use super::shares::{EntityId, Side};
use super::{Charge, FRAME, Gate, Promise, SendOptions};
use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;

/// Longest turn.
pub(super) const SLICE: Nanos = Nanos::from_millis(200);
/// How long a turn waits for the next request of its client.
const IDLE: Nanos = Nanos::from_millis(2);
/// The same in a turn for a minimum: losing the turn would cost the client a whole turn of another one.
const IDLE_DUE: Nanos = Nanos::from_millis(8);
/// The same if the group did not get what was promised for the previous frame.
const IDLE_BEHIND: Nanos = Nanos::from_millis(32);

/// A turn by weight ends early if a group is further behind than this, within a frame. A client that always has requests
/// queued could catch up in its own turn; one that thinks between requests could not.
const LAG_MAX: Nanos = Nanos::from_millis(100);
/// A turn ends this long before the deadline of another client's read, because commands in flight complete first.
const DEADLINE_NEAR: Nanos = Nanos::from_millis(25);
/// Commands in flight before the first one of a turn is completed.
const FIRST: u64 = 4;

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
    /// Whether its group has what is promised for the frame.
    over: bool,
    /// Commands completed in the turn.
    done: u32,
    /// Whether its group did not get what was promised for the previous frame.
    behind: bool,
    /// Whether writes were dispatched in the turn.
    writes: bool,
}

impl Promise {
    pub(super) fn dispatch_turn(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let now = cx.now;
        loop {
            let Some(turn) = self.turn else {
                let turn = self.next_turn(cx)?;
                self.head.begin_turn(now, turn.client);
                self.turn = Some(turn);
                continue;
            };
            if let Some(oldest) = self.oldest(cx, turn.client)
                && !Self::is_over(now, &turn)
                && !self.gives_way(now, &turn)
            {
                let side = if turn.due.is_some() {
                    Some(oldest)
                } else {
                    self.next_by_weight(cx, turn.client)
                };
                let Some(side) = side else {
                    if self.in_flight > 0 {
                        return None;
                    }
                    self.end_turn(now, &turn);
                    continue;
                };
                if side == Side::Flush && self.writes > 0 || !self.fits(now, &turn) {
                    return None;
                }
                let how = SendOptions { split: false, charge: Charge::Share };
                let sent = self.send(cx, turn.client, side, how);
                let writes = turn.writes || side == Side::Write;
                let kept = turn.due.and_then(|group| self.clocks.kept_until(group));
                let over = kept.is_some_and(|kept| kept >= turn.frame_end);
                let turn = self.turn.unwrap_or(turn);
                self.turn = Some(Turn { over, writes, ..turn });
                return sent;
            }
            if self.in_flight > 0 {
                return None;
            }
            let idle = match turn.due {
                Some(_) if turn.behind => IDLE_BEHIND,
                Some(_) => IDLE_DUE,
                None => IDLE,
            };
            let idle_until = self.last_done.max(turn.began) + idle;
            let empty = self.oldest(cx, turn.client).is_none();
            if empty && !Self::is_over(now, &turn) && now < idle_until {
                if self.queued > 0 {
                    let until = idle_until.min(turn.until);
                    let client = turn.client.as_client();
                    if let Some(client) = client.and_then(|id| cx.groups.client_id(id.index())) {
                        let rule = "turn: idle; {ns} for its next request";
                        cx.decide(Subject::Client(client), rule, [until.since(now).0, 0]);
                    }
                    self.wake_at(Some(until));
                } else {
                    self.end_turn(now, &turn);
                }
                return None;
            }
            self.end_turn(now, &turn);
        }
    }
    /// A client whose read has a near deadline, unless the client is far ahead of its turn.
    fn urgent(&mut self, now: Instant) -> Option<EntityId> {
        let (deadline, client) = self.first_deadline(SLICE + SLICE)?;
        (deadline <= now + DEADLINE_NEAR).then_some(client)
    }
    /// Whether a turn by weight ends for a deadline of another client, or for a group that is far behind.
    fn gives_way(&mut self, now: Instant, turn: &Turn) -> bool {
        if turn.due.is_some() {
            return false;
        }
        let next = self.clocks.frame_end(now) > turn.frame_end;
        let far = matches!(self.clocks.gate(now), Gate::Due(_, lag) if next || lag > LAG_MAX);
        far || self.urgent(now).is_some_and(|client| client != turn.client)
    }
    /// Sets wake-ups for everything that ends a time without commands.
    fn wake_for_changes(&mut self, now: Instant, until: Instant) {
        let deadline = self.first_deadline(SLICE + SLICE);
        let deadline = deadline.map(|(deadline, _)| deadline.saturating_sub(DEADLINE_NEAR));
        let (due, unused) = (self.clocks.next_due(now), Some(self.clocks.used_until()));
        for at in [due, deadline, unused, Some(until)] {
            self.wake_at(at.filter(|at| *at > now));
        }
    }
    fn is_over(now: Instant, turn: &Turn) -> bool {
        turn.over || now >= turn.until
    }
    /// Drive time of a scattered write.
    fn write_time(&self, bytes: u64) -> Nanos {
        let rate = self.drive.rate(Side::Read).max(self.drive.rate(Side::Write)).max(1);
        self.head.access() / 2 + Nanos::for_units_ceil(bytes, rate)
    }
    /// A write is dispatched in a turn.
    pub(super) fn count_write(&mut self, now: Instant, bytes: u64, far: bool) {
        let Some(turn) = self.turn.filter(|turn| far && turn.due.is_none()) else { return };
        if self.clocks.are_used(now) {
            let time = self.write_time(bytes);
            self.cached.on_write(time);
            self.shares.charge(turn.client, time, true);
        }
    }
    /// For how long no command may arrive from now on if the disk is to write out what it has cached.
    fn settles_in(&self, now: Instant) -> Nanos {
        let idle = if self.in_flight > 0 { Nanos::ZERO } else { now.since(self.last_done) };
        match self.clocks.are_used(now) {
            true => self.cached.settles_in(idle),
            false => Nanos::ZERO,
        }
    }
    /// Whether a client's write, which is next, would take longer to be written out than what is left of the frame.
    fn is_full(&self, cx: &Context<'_>, client: EntityId) -> bool {
        let settles = self.settles_in(cx.now);
        let Some(id) = self.front(client, Side::Write).filter(|_| settles > Nanos::ZERO) else {
            return false;
        };
        let time = self.write_time(super::client::bytes(&cx.requests[id]));
        cx.now + settles + time > self.clocks.frame_end(cx.now)
    }
    /// Whether the drive will complete one more command before the turn ends, judged by the mean time of those completed in
    /// this turn. Early in the turn, the number in flight is limited to [`FIRST`] more than the completed ones.
    fn fits(&self, now: Instant, turn: &Turn) -> bool {
        let (done, in_flight) = (u64::from(turn.done), u64::from(self.in_flight));
        let (time, left) = (now.since(turn.began).0, turn.until.since(now).0);
        in_flight == 0 || in_flight < FIRST + done && in_flight * time <= left * done.max(1)
    }
    /// A command was completed; `took`: its time in the drive; `ends`: the turn ends if it is by weight and others
    /// wait.
    pub(super) fn complete_in_turn(&mut self, side: Side, took: Nanos, ends: bool) {
        let Some(turn) = &mut self.turn else { return };
        turn.done += 1;
        turn.over |= ends && turn.due.is_none() && self.window.is_shared(self.last_done);
        if side == Side::Flush {
            self.cached.on_flush();
        }
        let usual = self.drive.latency() + self.drive.latency();
        if turn.done == 1
            && side == Side::Read
            && let Some(writer) = self.writer.take().filter(|writer| *writer != turn.client)
        {
            let late = took.saturating_sub(usual);
            turn.began += late;
            self.shares.charge(writer, late, true);
        }
    }
    pub(super) fn end_turn(&mut self, now: Instant, turn: &Turn) {
        self.turn = None;
        self.writer = turn.writes.then_some(turn.client);
        let time = now.since(turn.began).max(Nanos(1));
        self.shares.charge(turn.client, time, turn.due.is_none());
    }
    /// The side of a client's oldest request.
    fn oldest(&self, cx: &Context<'_>, client: EntityId) -> Option<Side> {
        let age =
            |side: Side| Some((cx.requests[self.front(client, side)?].sequence, side as usize));
        let (_, side) = Side::ALL.map(age).into_iter().flatten().min()?;
        Some(Side::ALL[side])
    }
    /// The side of the request with which a client is next in a turn by weight: its oldest one, but a read passes a write
    /// that does not fit into what is left of the frame. `None`: it has only such a write.
    fn next_by_weight(&self, cx: &Context<'_>, client: EntityId) -> Option<Side> {
        let side = self.oldest(cx, client)?;
        if side == Side::Write && self.is_full(cx, client) {
            return self.front(client, Side::Read).map(|_| Side::Read);
        }
        Some(side)
    }
    fn next_turn(&mut self, cx: &Context<'_>) -> Option<Turn> {
        let now = cx.now;
        let gate = self.clocks.gate(now);
        let (top, due) = match gate {
            Gate::Due(group, _) | Gate::Batch(group, ..) => (group, Some(group)),
            Gate::Closed(_, until) => {
                self.wake_at(until);
                return None;
            }
            Gate::Open => (EntityId::ROOT, None),
        };
        let urgent = if due.is_none() { self.urgent(now) } else { None };
        let all = Side::ALL.map(|side| self.shares.pick(top, side));
        let client = match urgent {
            Some(client) => client,
            None => all.into_iter().flatten().min_by_key(|(key, _)| *key)?.1,
        };
        let frame_end = self.clocks.frame_end(now);
        let settles = self.settles_in(now);
        let last = frame_end.saturating_sub(settles);
        let is_last = settles.0 > 0 && now >= last && urgent.is_none();
        if due.is_none() && (is_last || self.next_by_weight(cx, client).is_none()) {
            self.wake_for_changes(now, frame_end.min(now + settles));
            return None;
        }
        let kept = due.and_then(|group| self.clocks.kept_until(group));
        let behind = kept.is_some_and(|kept| kept + FRAME[1] < frame_end);
        let until = match due {
            Some(_) => now + SLICE + SLICE,
            // What would be left of the frame after this turn is too short for another one.
            None if !self.clocks.are_none() && frame_end < now + SLICE + SLICE / 2 => frame_end,
            None => now + SLICE,
        };
        let until = match due {
            None if settles.0 > 0 && now < last => until.min(last),
            // A read with a near deadline does not wait until the disk has written out its cache.
            None if settles.0 > 0 => frame_end.min(now + DEADLINE_NEAR),
            _ => until,
        };
        Some(Turn {
            client,
            due,
            began: now,
            until,
            frame_end,
            over: false,
            behind,
            done: 0,
            writes: false,
        })
    }
}
