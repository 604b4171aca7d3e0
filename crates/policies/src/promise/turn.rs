//! Drives with a head: one client at a time has the drive.
//!
//! A turn lasts [`SLICE`], or until its client has nothing left for [`IDLE`]; a promised group's turn also ends when it has
//! what is promised for the present frame (see [`super::clock`]), and a turn by weight at the end of a frame, if a
//! group is due then. The drive completes what it has before the next turn. A turn is charged with its time.
//!
//! *Scattered writes.* A disk completes in a moment what it needs seconds to write, does not write it while it is sent other commands,
//! and writes a large part of its cache before anything else once that is nearly full: then nobody reads for a second or more.
//! So while groups use minimums, a turn by weight has no more writes than the disk can write before the turn ends, and the rest
//! of the turn is silent:
//!
//! ```text
//! time of a write    half of a read far away, if it is not where the client's last one ended;  + bytes / rate
//! a write goes       if the time of all + [`QUIET`] fits into the turn
//! the turn ends      when that time has passed, or with its last flush
//! ```
//!
//! A drive with a cache completes writes before they are written, and the first read of the next turn waits for that. What it
//! takes longer than twice a read that has the drive to itself is charged to whoever wrote.

use super::shares::{EntityId, Side};
use super::{FRAME, Gate, Promise};
use iofair_core::policy::Context;
use iofair_core::request::RequestId;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;

/// Longest turn.
pub(super) const SLICE: Nanos = Nanos::from_millis(200);
/// An empty client is waited for.
const IDLE: Nanos = Nanos::from_millis(2);
/// One whose turn is due is waited for longer: what its absence would cost it is a whole turn of somebody else.
const IDLE_DUE: Nanos = Nanos::from_millis(8);
/// Still longer where its group did not get what was promised for the frame before.
const IDLE_BEHIND: Nanos = Nanos::from_millis(32);

/// A turn by weight ends early for a group that is further behind, within a frame. A client that always has requests makes up for a
/// turn of somebody else in its own; one that thinks between them cannot.
const LAG_MAX: Nanos = Nanos::from_millis(100);
/// A turn ends so long before the deadline of another client's read: what the drive has is completed first.
const DEADLINE_NEAR: Nanos = Nanos::from_millis(25);
/// So few scattered writes in a turn take no time worth waiting for.
const SCATTERED: u32 = 3;
/// A disk writes what it has cached after it has heard nothing for so long.
const QUIET: Nanos = Nanos::from_millis(25);
/// Commands in flight before the first of a turn is completed.
const FIRST: u64 = 4;

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) client: EntityId,
    /// The group whose clock brought it.
    due: Option<EntityId>,
    began: Instant,
    /// The latest end.
    until: Instant,
    /// The end of the frame in which it began.
    frame_end: Instant,
    /// Its group has what it was promised for the frame.
    over: bool,
    /// Commands completed in it.
    done: u32,
    /// Did its group not get what was promised for the frame before?
    behind: bool,
    /// Has it sent writes?
    writes: bool,
    /// When the drive will have written them, and how many far from one another no flush came after.
    written: Instant,
    scattered: u32,
}

impl Promise {
    pub(super) fn dispatch_turn(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let now = cx.now;
        loop {
            let Some(turn) = self.turn else {
                self.turn = Some(self.next_turn(now)?);
                continue;
            };
            if let Some(side) = self.oldest(cx, turn.client)
                && !Self::is_over(now, &turn)
                && !self.gives_way(now, &turn)
            {
                if side == Side::Flush && self.writes > 0 || !self.fits(now, &turn) {
                    return None;
                }
                if side == Side::Write && self.is_full(cx, &turn) {
                    self.wake_for_changes(now, &turn);
                    return None;
                }
                let sent = self.send(cx, turn.client, side, (true, true));
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
            let settles = (turn.written + QUIET).min(turn.until);
            if turn.scattered > SCATTERED && now < settles && !self.gives_way(now, &turn) {
                self.wake_at(Some(settles));
                self.wake_for_changes(now, &turn);
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
                    if let Some(client) = client.and_then(|it| cx.groups.client_id(it.index())) {
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
    /// The client whose read has a deadline that is near, if it is not ahead of its turn already.
    fn urgent(&mut self, now: Instant) -> Option<EntityId> {
        let (deadline, client) = self.first_deadline(SLICE + SLICE)?;
        (deadline <= now + DEADLINE_NEAR).then_some(client)
    }
    /// Does a turn by weight end for a deadline of another client, or for a group that is far behind?
    fn gives_way(&mut self, now: Instant, turn: &Turn) -> bool {
        if turn.due.is_some() {
            return false;
        }
        let next = self.clocks.frame_end(now) > turn.frame_end;
        let far = matches!(self.clocks.gate(now), Gate::Due(_, lag) if next || lag > LAG_MAX);
        far || self.urgent(now).is_some_and(|client| client != turn.client)
    }
    /// Wakes when the turn ends, gives way, or need not be silent any more: what of that depends on the time alone.
    fn wake_for_changes(&mut self, now: Instant, turn: &Turn) {
        let gate = match self.clocks.gate(now) {
            Gate::Due(_, lag) => Some(now + LAG_MAX.saturating_sub(lag) + Nanos(1)),
            Gate::Closed(_, next) | Gate::Batch(_, _, next) | Gate::Open(next) => next,
        };
        let deadline = self.first_deadline(SLICE + SLICE);
        let deadline = deadline.map(|(deadline, _)| deadline.saturating_sub(DEADLINE_NEAR));
        let unused = Some(self.clocks.used_until());
        for at in [gate, deadline, unused, Some(turn.frame_end), Some(turn.until)] {
            self.wake_at(at.filter(|at| *at > now));
        }
    }
    fn is_over(now: Instant, turn: &Turn) -> bool {
        turn.over || now >= turn.until
    }
    /// The drive's time for a write.
    fn write_time(&self, bytes: u64, far: bool) -> Nanos {
        let rate = self.drive.rate(Side::Read).max(self.drive.rate(Side::Write)).max(1);
        let access = if far { self.head.access() / 2 } else { Nanos::ZERO };
        access + Nanos::for_units_ceil(bytes, rate)
    }
    /// Must the drive have written what a turn wrote when the turn ends?
    fn paces(&self, now: Instant, turn: &Turn) -> bool {
        turn.due.is_none() && self.clocks.are_used(now)
    }
    /// A write goes in a turn.
    pub(super) fn count_write(&mut self, now: Instant, bytes: u64, far: bool) {
        let Some(turn) = self.turn.filter(|turn| self.paces(now, turn)) else { return };
        let time = self.write_time(bytes, far);
        let written = turn.written.max(now) + time;
        let scattered = turn.scattered + u32::from(far);
        self.turn = Some(Turn { written, scattered, ..turn });
    }
    /// Has the drive as many writes as it can write before the turn ends?
    fn is_full(&self, cx: &Context<'_>, turn: &Turn) -> bool {
        if !self.paces(cx.now, turn) || turn.scattered <= SCATTERED {
            return false;
        }
        let Some(id) = self.front(turn.client, Side::Write) else { return false };
        let time = self.write_time(super::bytes(&cx.requests[id]), true);
        turn.written + time + QUIET > turn.until
    }
    /// Will the drive complete one command more before the turn ends? By the mean of those that it completed in this turn;
    /// at first it gets twice as many as it has completed.
    fn fits(&self, now: Instant, turn: &Turn) -> bool {
        let (done, in_flight) = (u64::from(turn.done), u64::from(self.in_flight));
        let (time, left) = (now.since(turn.began).0, turn.until.since(now).0);
        in_flight == 0 || in_flight < FIRST + done && in_flight * time <= left * done.max(1)
    }
    /// A command was completed that took so long.
    pub(super) fn complete_in_turn(&mut self, now: Instant, side: Side, took: Nanos) {
        let Some(turn) = &mut self.turn else { return };
        turn.done += 1;
        if side == Side::Flush {
            (turn.written, turn.scattered) = (now, 0);
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
    fn next_turn(&mut self, now: Instant) -> Option<Turn> {
        let gate = self.clocks.gate(now);
        let (top, due) = match gate {
            Gate::Due(group, _) | Gate::Batch(group, ..) => (group, Some(group)),
            Gate::Closed(_, until) => {
                self.wake_at(until);
                return None;
            }
            Gate::Open(_) => (EntityId::ROOT, None),
        };
        let urgent = if due.is_none() { self.urgent(now) } else { None };
        let all = Side::ALL.map(|side| self.shares.pick(top, side));
        let client = match urgent {
            Some(client) => client,
            None => all.into_iter().flatten().min_by_key(|(key, _)| *key)?.1,
        };
        let frame_end = self.clocks.frame_end(now);
        let kept = due.and_then(|group| self.clocks.kept_until(group));
        let behind = kept.is_some_and(|kept| kept + FRAME[1] < frame_end);
        let until = match due {
            Some(_) => now + SLICE + SLICE,
            // Not much of a frame is left for another turn.
            None if !self.clocks.are_none() && frame_end < now + SLICE + SLICE / 2 => frame_end,
            None => now + SLICE,
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
            written: Instant::ZERO,
            scattered: 0,
        })
    }
}
