//! Reservation clocks: who is behind its minimum or its floor.
//!
//! A clock `R` is the time up to which its reservation is kept. Service moves it by its *worth*, the time in which the
//! reservation promises as much. Groups have clocks for their minimums, clients for their floors; both follow the same rules:
//!
//! ```text
//! on dispatch  R = min(R + worth, now + max(5 ms, worth of what is in flight))
//! due          R <= now, while there are requests queued (buffered and gathered writes: 10 ms later, then until R > now),
//!              or in flight, or between two requests: if the mean pause is at most max(worth / 4, worth - busy), for
//!              max(worth / 4, min(2 mean pause, worth - busy)) and at most 2 ms after the last one was completed;
//!              worth: since the last pause, busy: what such requests take at least
//! on arrival   R = min(R + pause, now) after a longer pause: no claim arises from it
//! always       R >= now - lag_max
//! ```
//!
//! While a clock is due, nothing without a reservation of its *rank* or a more urgent one is dispatched: this is the gate. The
//! ranks are the classes of minimums, and floors after all of them.
//!
//! *Infeasible reservations.* A minimum or floor that is missed in five periods of 100 ms one after the other is cut to 13/16 of the most
//! that it reached in one of them. It grows by 1/16 in each 5 s in which it is kept.
//!
//! Sources: Zhang, "VirtualClock" (1990); Gulati, Merchant and Varman, "mClock" (2010), for reservation tags beside shares.

use alloc::vec::Vec;

use super::shares::EntityId;
use crate::parts::scale::scale;
use crate::parts::tree::{Arena, NodeId, Tree};
use iofair_core::minimum::{Amount, Minimum};
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};

/// How far a clock may run ahead: what a client reads ahead in one go does not count as served for longer than this.
const AHEAD: Nanos = Nanos::from_millis(5);
/// How far a clock may fall behind: what a long stall takes. Older claims expire, or a client that could hardly reach
/// its minimum alone would have the drive for many seconds.
const LAG_MAX: Nanos = Nanos::from_millis(250);
/// Longest pause between two requests for which the gate stays closed: longer than a client takes to send its next request.
const GAP_MAX: Nanos = Nanos::from_millis(2);
/// Buffered writes wait for more of them, since flash programs many together: as long as one batch of them takes.
const BATCH_DELAY: Nanos = Nanos::from_millis(10);
/// A group that is further behind misses its minimum: a fifth of [`PERIOD`].
pub(super) const LATE: Nanos = Nanos::from_millis(20);
/// Period over which a minimum is compared with the service: some times the longest stall of usual drives.
const PERIOD: Nanos = Nanos::from_millis(100);
/// Periods after which a missed minimum is cut, and for which it stays so.
const CUT_AFTER: u32 = 5;
const CUT_PERIODS: u64 = 50;
/// The least time of a burst grows by this part with each one.
const BUSY_FORGETS: u64 = 4096;
/// The value of [`Clock::kept`] that means all of the minimum.
const WHOLE: u64 = 1 << 20;

/// Number of ranks: the classes of minimums, then floors.
const RANKS: usize = 4;
const FLOOR: usize = RANKS - 1;
const NOWHERE: NodeId = NodeId(u32::MAX);

/// How a clock counts a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A read.
    Read,
    /// A write that a program waits for.
    Urgent,
    Flush,
    /// A program waits for it, but it waits for others of its group.
    Gathered,
    /// A write from a page cache.
    Buffered,
}

impl Kind {
    fn is_urgent(self) -> bool {
        matches!(self, Self::Read | Self::Urgent | Self::Flush)
    }
}

/// What may be dispatched, by the clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gate {
    /// Requests of this entity, which is behind by the lag.
    Due(EntityId, Nanos),
    /// None: somebody is behind by the lag and has nothing queued yet; until the time, unless something is in flight.
    Closed(Nanos, Option<Instant>),
    /// A flush of this entity, since nobody is behind with data.
    Flush(EntityId, Nanos),
    /// All.
    Open,
}

/// A reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reservation {
    None,
    Minimum(Minimum, Class),
    Floor,
}

/// The clock of a group or a client.
#[derive(Clone, Copy, Debug)]
struct Clock {
    at: Instant,
    reservation: Reservation,
    queued: u32,
    urgent: u32,
    reads: u32,
    flushes: u32,
    in_flight: u32,
    flushing: u32,
    amount: Amount,
    /// Worth since the last pause, and when that ended.
    burst: Nanos,
    began: Instant,
    /// The least part of the worth of a burst that it took, in units of 1 / [`WHOLE`]; grows slowly.
    busy: u64,
    /// Mean pause between two requests, of those up to [`GAP_MAX`].
    pause: Nanos,
    idle_since: Instant,
    /// Until then it counts as between two requests.
    idle_until: Instant,
    /// Whether a program waits for the last command that was dispatched.
    awaited: bool,
    /// Whether a batch of buffered writes is being dispatched.
    batch: bool,
    /// Its node in one of the trees of its rank, and which; its node among those with flushes queued.
    node: NodeId,
    has_queued: bool,
    flush_node: NodeId,
    /// The part of the minimum that is kept now, in units of 1 / [`WHOLE`].
    kept: u64,
    cut_until: Instant,
    /// Begin of the period, the worth of the service in it by the whole minimum, periods missed in a row, and the most that was
    /// reached in one of them, in units of 1 / [`WHOLE`].
    period: Instant,
    served: Nanos,
    missed: u32,
    reached: u64,
}

impl Clock {
    const NEW: Self = Self {
        at: Instant::ZERO,
        reservation: Reservation::None,
        queued: 0,
        urgent: 0,
        reads: 0,
        flushes: 0,
        in_flight: 0,
        flushing: 0,
        amount: Amount { bytes: 0, ios: 0 },
        burst: Nanos::ZERO,
        began: Instant::ZERO,
        busy: WHOLE / 2,
        pause: Nanos::ZERO,
        idle_since: Instant::ZERO,
        idle_until: Instant::ZERO,
        awaited: false,
        batch: false,
        node: NOWHERE,
        has_queued: false,
        flush_node: NOWHERE,
        kept: WHOLE,
        cut_until: Instant::ZERO,
        period: Instant::ZERO,
        served: Nanos::ZERO,
        missed: 0,
        reached: 0,
    };
    fn rank(&self) -> usize {
        match self.reservation {
            Reservation::Minimum(_, class) => class as usize,
            _ => FLOOR,
        }
    }
    /// Requests with data that are queued, and in flight.
    fn data(&self) -> [u32; 2] {
        [self.queued - self.flushes, self.in_flight - self.flushing]
    }
    /// The time in which all of the minimum promises as much.
    fn worth(&self, amount: Amount) -> Nanos {
        match self.reservation {
            Reservation::Minimum(minimum, _) => minimum.worth(amount).unwrap_or(Nanos::ZERO),
            _ => Nanos::ZERO,
        }
    }
    /// The time in which the part that is kept promises what all of it does in `whole`.
    fn kept(&self, whole: Nanos) -> Nanos {
        if self.kept == WHOLE { whole } else { Nanos(scale(whole.0, WHOLE, self.kept)) }
    }
    fn dequeue(&mut self, kind: Kind) {
        self.queued -= 1;
        self.urgent -= u32::from(kind.is_urgent());
        self.reads -= u32::from(kind == Kind::Read);
        self.flushes -= u32::from(kind == Kind::Flush);
    }
    /// When it closes the gate, if it can.
    fn due(&self) -> Option<Instant> {
        let [queued, in_flight] = self.data();
        match self.reservation {
            Reservation::None => None,
            Reservation::Floor if self.reads > 0 => Some(self.at),
            Reservation::Floor if queued > 0 => None,
            _ if queued > 0 => {
                Some(if self.urgent > 0 || self.batch { self.at } else { self.at + BATCH_DELAY })
            }
            _ if !self.awaited => None,
            _ => (in_flight > 0 || self.idle_until > self.idle_since).then_some(self.at),
        }
    }
    /// A request with data arrives and there were none.
    fn wake(&mut self, now: Instant) {
        if self.flushes + self.flushing == 0 && now > self.idle_until && self.at <= now {
            let begins = if self.rank() == FLOOR { now + self.burst } else { now };
            self.at = (self.at + now.since(self.idle_until)).min(begins);
            (self.period, self.served, self.missed, self.reached) = (now, Nanos::ZERO, 0, 0);
        }
        let pause = now.since(self.idle_since);
        if pause <= GAP_MAX {
            self.pause = Nanos(self.pause.0 - self.pause.0 / 8 + pause.0 / 8);
        }
        (self.burst, self.began) = (Nanos::ZERO, now);
    }
    /// The last request with data was completed: until when the clock counts as between two. Only a client whose pauses fit into the
    /// worth of its requests can keep its minimum at its own pace. Short pauses are waited for all the same, since a minimum that is too high
    /// is cut to what fits.
    fn rest(&mut self, now: Instant) {
        let busy = scale(now.since(self.began).0, WHOLE, self.burst.0.max(1));
        self.busy = busy.min(self.busy + self.busy / BUSY_FORGETS + 1).min(WHOLE);
        let room = Nanos(scale(self.burst.0, WHOLE - self.busy, WHOLE));
        let gap = match self.pause <= room.max(self.burst / 4) {
            true => (self.pause * 2).min(room).max(self.burst / 4),
            false => Nanos::ZERO,
        };
        (self.idle_since, self.idle_until) = (now, now + gap.min(GAP_MAX));
    }
    fn end_period(&mut self, now: Instant, took: Nanos) {
        let time = now.since(self.period);
        if time < PERIOD.max(took + took) {
            return;
        }
        let reached = scale(self.served.0, WHOLE, time.0);
        if now.since(self.at) < LATE || reached >= self.kept {
            (self.missed, self.reached) = (0, 0);
            if self.kept < WHOLE && now >= self.cut_until {
                self.kept = WHOLE.min(self.kept + self.kept / 16 + 1);
                self.cut_until = now + PERIOD * CUT_PERIODS;
            }
        } else {
            (self.missed, self.reached) = (self.missed + 1, self.reached.max(reached));
            if self.missed >= CUT_AFTER {
                self.kept = self.kept.min(self.reached / 16 * 13).max(1);
                (self.at, self.cut_until) = (now, now + PERIOD * CUT_PERIODS);
                (self.missed, self.reached) = (0, 0);
            }
        }
        (self.period, self.served) = (now, Nanos::ZERO);
    }
}

/// A command of a client, as the clocks of its groups and its floor count it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) amount: Amount,
    pub(super) kind: Kind,
    /// Its worth for a floor.
    pub(super) worth: Nanos,
    /// Whether nothing of its request is left.
    pub(super) is_last: bool,
}

/// All clocks.
#[derive(Default, Debug)]
pub(super) struct Clocks {
    /// Indexed by entity.
    clocks: Vec<Clock>,
    /// Minimums.
    count: usize,
    /// Whether floors count: without writes, they hold nothing.
    pub(super) floors: bool,
    /// By rank: clocks with data queued, and without, by the time at which they are due; and minimums with flushes queued.
    trees: [[Tree; 2]; RANKS],
    flushes: [Tree; FLOOR],
    arena: Arena<(Instant, EntityId), EntityId>,
}

impl Clocks {
    pub(super) fn set(&mut self, now: Instant, id: EntityId, reservation: Reservation) {
        if id.index() >= self.clocks.len() {
            self.clocks.resize(id.index() + 1, Clock::NEW);
        }
        self.take_out(id);
        self.take_out_flush(id);
        let is_minimum = |it: Reservation| usize::from(matches!(it, Reservation::Minimum(..)));
        let clock = &mut self.clocks[id.index()];
        self.count = self.count + is_minimum(reservation) - is_minimum(clock.reservation);
        if clock.reservation != reservation {
            (clock.reservation, clock.kept, clock.at) = (reservation, WHOLE, clock.at.max(now));
            (clock.period, clock.served, clock.missed) = (now, Nanos::ZERO, 0);
        }
        self.put(id);
    }
    /// Removes a group or client, which has no requests.
    pub(super) fn remove(&mut self, id: EntityId) {
        self.set(Instant::ZERO, id, Reservation::None);
        self.clocks[id.index()] = Clock::NEW;
    }
    /// A client with its requests enters a group (`comes`), or leaves it.
    pub(super) fn move_requests(&mut self, client: EntityId, group: EntityId, comes: bool) {
        let Clock { queued, urgent, reads, flushes, in_flight, flushing, amount, .. } =
            self.clocks[client.index()];
        let own = &mut self.clocks[group.index()];
        if comes {
            own.queued += queued;
            own.urgent += urgent;
            own.reads += reads;
            own.flushes += flushes;
            own.in_flight += in_flight;
            own.flushing += flushing;
            own.amount += amount;
        } else {
            own.queued -= queued;
            own.urgent -= urgent;
            own.reads -= reads;
            own.flushes -= flushes;
            own.in_flight -= in_flight;
            own.flushing -= flushing;
            own.amount -= amount;
        }
        self.put(group);
    }
    fn take_out(&mut self, id: EntityId) {
        let clock = &mut self.clocks[id.index()];
        let node = core::mem::replace(&mut clock.node, NOWHERE);
        if node != NOWHERE {
            let tree = usize::from(clock.has_queued);
            self.arena.remove(&mut self.trees[clock.rank()][tree], node);
        }
    }
    /// Moves a clock to where it belongs now.
    fn put(&mut self, id: EntityId) {
        let clock = &mut self.clocks[id.index()];
        if clock.flushes > 0 || clock.flush_node != NOWHERE {
            self.put_flush(id);
        }
        let clock = &mut self.clocks[id.index()];
        let counts = self.floors || clock.reservation != Reservation::Floor;
        let Some(due) = clock.due().filter(|_| counts) else { return self.take_out(id) };
        let has_queued = clock.data()[0] > 0;
        if clock.node != NOWHERE && clock.has_queued == has_queued {
            let tree = &mut self.trees[clock.rank()][usize::from(has_queued)];
            if self.arena.key(clock.node).0 != due {
                self.arena.replace(tree, clock.node, (due, id), id);
            }
            return;
        }
        self.take_out(id);
        let clock = &mut self.clocks[id.index()];
        let tree = &mut self.trees[clock.rank()][usize::from(has_queued)];
        clock.node = self.arena.insert(tree, (due, id), id);
        clock.has_queued = has_queued;
    }
    fn take_out_flush(&mut self, id: EntityId) {
        let clock = &mut self.clocks[id.index()];
        let node = core::mem::replace(&mut clock.flush_node, NOWHERE);
        if node != NOWHERE {
            self.arena.remove(&mut self.flushes[clock.rank()], node);
        }
    }
    /// Moves a clock to where it belongs among those with flushes queued.
    fn put_flush(&mut self, id: EntityId) {
        self.take_out_flush(id);
        let clock = &mut self.clocks[id.index()];
        if clock.flushes > 0
            && let Some(tree) = self.flushes.get_mut(clock.rank())
        {
            clock.flush_node = self.arena.insert(tree, (clock.at, id), id);
        }
    }
    /// Requests queued and commands in flight of a client.
    pub(super) fn outstanding(&self, client: EntityId) -> u64 {
        let clock = &self.clocks[client.index()];
        u64::from(clock.queued) + u64::from(clock.in_flight)
    }
    /// Whether no group has a minimum.
    pub(super) fn are_none(&self) -> bool {
        self.count == 0
    }
    /// How far a group is behind its minimum; `None`: it has none.
    pub(super) fn lag(&self, now: Instant, id: EntityId) -> Option<Nanos> {
        let clock = &self.clocks[id.index()];
        matches!(clock.reservation, Reservation::Minimum(..)).then(|| now.since(clock.at))
    }
    /// The group that closes the gate next or closes it now, and when.
    pub(super) fn first(&self) -> Option<(EntityId, Instant)> {
        let trees = self.trees[..FLOOR].iter().flatten();
        let first = trees.filter_map(|tree| self.arena.first_key(tree)).min();
        first.map(|(at, id)| (id, at))
    }

    pub(super) fn arrive(&mut self, now: Instant, id: EntityId, kind: Kind) {
        let clock = &mut self.clocks[id.index()];
        if kind != Kind::Flush && clock.data() == [0; 2] {
            clock.wake(now);
        }
        clock.queued += 1;
        clock.urgent += u32::from(kind.is_urgent());
        clock.reads += u32::from(kind == Kind::Read);
        clock.flushes += u32::from(kind == Kind::Flush);
        clock.at = clock.at.max(now.saturating_sub(LAG_MAX));
        self.put(id);
    }
    /// Takes a queued request out that is not dispatched.
    pub(super) fn cancel(&mut self, id: EntityId, kind: Kind) {
        self.clocks[id.index()].dequeue(kind);
        self.put(id);
    }
    pub(super) fn dispatch(&mut self, now: Instant, id: EntityId, command: Command) {
        let Command { amount, kind, worth, is_last } = command;
        let clock = &mut self.clocks[id.index()];
        if is_last {
            clock.dequeue(kind);
        }
        clock.in_flight += 1;
        clock.flushing += u32::from(kind == Kind::Flush);
        clock.amount += amount;
        match clock.reservation {
            Reservation::None => return,
            Reservation::Floor if !self.floors => {
                clock.at = clock.at.max(now);
                return self.take_out(id);
            }
            _ => {}
        }
        let [whole, in_flight] = match clock.reservation {
            Reservation::Floor => [worth; 2],
            _ => [amount, clock.amount].map(|amount| clock.worth(amount)),
        };
        let [worth, in_flight] = [whole, in_flight].map(|whole| clock.kept(whole));
        clock.awaited = match clock.reservation {
            Reservation::Floor => kind == Kind::Read,
            _ if kind == Kind::Flush => clock.awaited,
            _ => kind != Kind::Buffered,
        };
        clock.served += whole;
        if clock.burst == Nanos::ZERO {
            clock.began = now;
        }
        clock.burst += worth;
        let from = clock.at.max(now.saturating_sub(LAG_MAX));
        let most = now + AHEAD.max(in_flight.min(LAG_MAX));
        clock.at = (from + worth).min(most.max(from));
        clock.batch = clock.at <= now;
        self.put(id);
    }
    pub(super) fn complete(&mut self, now: Instant, id: EntityId, command: Command, took: Nanos) {
        let Command { amount, kind, .. } = command;
        let clock = &mut self.clocks[id.index()];
        clock.in_flight -= 1;
        clock.flushing -= u32::from(kind == Kind::Flush);
        clock.amount -= amount;
        if clock.data() == [0; 2] {
            match kind {
                // A flush is no pause of its client.
                Kind::Flush => clock.idle_until = clock.idle_until.max(now),
                _ => clock.rest(now),
            }
        }
        let counts = match clock.reservation {
            Reservation::None => false,
            Reservation::Floor => self.floors,
            Reservation::Minimum(..) => true,
        };
        if counts {
            clock.end_period(now, took);
        }
        self.put(id);
    }

    /// The gate by the minimums.
    pub(super) fn gate(&mut self, now: Instant) -> Gate {
        if self.count == 0 {
            return Gate::Open;
        }
        let mut ranks = (0..FLOOR).map(|rank| match self.gate_of(now, rank) {
            Gate::Open => match self.arena.first_key(&self.flushes[rank]) {
                Some((at, id)) if at <= now => Gate::Flush(id, now.since(at)),
                _ => Gate::Open,
            },
            gate => gate,
        });
        ranks.find(|gate| *gate != Gate::Open).unwrap_or(Gate::Open)
    }
    /// The gate by the floors.
    pub(super) fn gate_of_floors(&mut self, now: Instant) -> Gate {
        self.gate_of(now, FLOOR)
    }
    fn gate_of(&mut self, now: Instant, rank: usize) -> Gate {
        if let Some((at, id)) = self.arena.first_key(&self.trees[rank][1])
            && at <= now
        {
            return Gate::Due(id, now.since(at));
        }
        while let Some((at, id)) = self.arena.first_key(&self.trees[rank][0]) {
            if at > now {
                break;
            }
            let clock = &self.clocks[id.index()];
            let until = (clock.data()[1] == 0).then_some(clock.idle_until);
            if until.is_none_or(|until| until > now) {
                return Gate::Closed(now.since(at), until);
            }
            // Its pause is over. Nothing but an arrival brings it back.
            self.take_out(id);
        }
        Gate::Open
    }
    /// When the next clock with requests queued is due, floors included.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let first = |trees: &[Tree; 2]| self.arena.first_key(&trees[1]);
        let flushes = self.flushes.iter().filter_map(|tree| self.arena.first_key(tree));
        let due = self.trees.iter().filter_map(first).chain(flushes).map(|(at, _)| at);
        due.filter(|at| *at > now).min()
    }
}
