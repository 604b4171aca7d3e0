//! Clocks of minimums: which group is behind what it was promised.
//!
//! A group with a minimum `m` has a clock: the instant up to which its promise is kept.
//!
//! ```text
//! on service of b bytes    clock += b / m
//! behind                   clock <= now, while it has requests queued or in flight, or is between two of them
//! on arrival after a pause clock = min(clock + pause - slack, now) if it is behind: a pause is not owed
//! always                   now - lag_max <= clock <= now + max(ahead, bytes in flight / m)
//! ```
//!
//! *Between two requests.* A client that sends its next request when the last one is completed needs a moment for it.
//! The gate stays closed for that moment, `slack`: a quarter of what was sent since the last pause is worth by the
//! promise, up to a half where the client is slower, at most [`SLACK_MAX`]. The rest of a longer pause is the client's own.
//!
//! *What cannot be kept.* A group that stays behind although nobody else is served gets what it reached that way, less
//! a sixth, as its promise for some time: an infeasible promise never starves the others. With several such
//! groups each keeps its part, since the clock that is furthest behind goes first.
//!
//! Source of the clock: Zhang, "VirtualClock" (1990); of reservation tags beside shares: Gulati, Merchant and Varman,
//! "mClock" (2010).

use alloc::vec::Vec;

use super::shares::EntityId;
use crate::parts::tree::{Arena, NodeId, Tree};
use crate::time::{Instant, Nanos};

/// Parts of [`Bounds::period`]: a group that is further behind all the time does not reach its promise.
const BROKEN_PART: u64 = 5;
/// Of which part clocks of buffered writes are behind at most when they are served.
const BUFFERED_PART: u64 = 5;
/// Buffered writes that are further behind than all but this part go though a read is behind too.
const URGENT_PART: u64 = 10;
/// The longest moment between two requests of one client.
const SLACK_MAX: Nanos = Nanos::from_millis(2);
/// A promise is cut after so many periods ([`Bounds::period`]) behind, to the most that was reached in one of them,
/// less a sixth; after [`KEPT_CUT`] it grows again by one part in [`RECOVER`] each period.
const CUT_AFTER: u32 = 5;
const KEPT_CUT: u64 = 50;
const RECOVER: u64 = 16;
/// Buffered writes that are due wait for so much more of them, to go together.
const PATIENCE: Nanos = Nanos::from_millis(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    /// It has requests queued.
    Queued(NodeId, usize),
    /// It has none queued, but some in flight, or is between two.
    Busy(NodeId),
}

#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Bytes a second that were promised, and those that are kept now.
    promised: u64,
    rate: u64,
    at: Instant,
    place: Place,
    queued: u32,
    in_flight: u32,
    bytes_in_flight: u64,
    /// Queued requests that somebody waits for.
    urgent: u32,
    /// Does somebody wait for what was sent last?
    awaited: bool,
    /// Due buffered writes go until the clock is ahead.
    batch: bool,
    /// When nothing of it was left, and until when that is a moment between two requests.
    idle_since: Instant,
    idle_until: Instant,
    /// Mean pause between requests, those longer than [`SLACK_MAX`] left out.
    pause: Nanos,
    /// What the last command was worth, and all since the group had nothing left.
    grant: Nanos,
    burst: Nanos,
    /// The present period: its begin, the bytes in it, and was the clock behind all the time?
    period: Instant,
    bytes: u64,
    behind: bool,
    /// Periods behind one after the other, and the most that was reached in one, bytes a second.
    missed: u32,
    reached: u64,
    /// The promise stays cut until then.
    cut_until: Instant,
}

impl Clock {
    const fn new(promised: u64) -> Self {
        Self {
            promised,
            rate: promised,
            at: Instant::ZERO,
            place: Place::Nowhere,
            queued: 0,
            in_flight: 0,
            bytes_in_flight: 0,
            urgent: 0,
            awaited: false,
            batch: false,
            idle_since: Instant::ZERO,
            idle_until: Instant::ZERO,
            pause: Nanos::ZERO,
            grant: Nanos::ZERO,
            burst: Nanos::ZERO,
            period: Instant::ZERO,
            bytes: 0,
            behind: false,
            missed: 0,
            reached: 0,
            cut_until: Instant::ZERO,
        }
    }
    fn slack(&self) -> Nanos {
        let learned = Nanos(self.pause.0.saturating_mul(2));
        learned.max(self.burst / 4).min(self.burst / 2).min(SLACK_MAX)
    }
    /// What was not served so long ago is not owed any more.
    fn forget(&mut self, now: Instant, most: Nanos) {
        self.at = self.at.max(now.saturating_sub(most));
    }
    fn end_period(&mut self, now: Instant, period: Nanos) {
        let time = now.since(self.period);
        if time < period {
            return;
        }
        let reached = u128::from(self.bytes) * 1_000_000_000 / u128::from(time.0.max(1));
        self.reached = self.reached.max(u64::try_from(reached).unwrap_or(u64::MAX));
        self.missed += 1;
        // One that gets more than its promise is catching up.
        if !self.behind || reached >= u128::from(self.rate) {
            (self.missed, self.reached) = (0, 0);
            if now >= self.cut_until {
                self.rate = self.promised.min(self.rate + self.rate / RECOVER + 1);
            }
        } else if self.missed >= CUT_AFTER {
            self.rate = self.rate.min(self.reached - self.reached / 6).max(1);
            (self.at, self.cut_until) = (now, now + Nanos(period.0 * KEPT_CUT));
            (self.missed, self.reached) = (0, 0);
        }
        (self.period, self.bytes, self.behind) = (now, 0, true);
    }
    /// From when on its requests are due.
    fn due(&self) -> Instant {
        if self.urgent > 0 || self.batch { self.at } else { self.at + PATIENCE }
    }
}

/// A client's requests, as far as clocks know them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Requests {
    pub(super) queued: u32,
    /// Queued, and somebody waits for them.
    pub(super) urgent: u32,
    /// Commands in flight, and their bytes.
    pub(super) in_flight: u32,
    pub(super) bytes: u64,
}

/// What the clocks say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gate {
    /// This group is behind by so much, and has requests queued.
    Due(EntityId, Nanos),
    /// A group is behind by so much, and has none queued: nobody else is served, at the latest until then.
    Closed(Nanos, Option<Instant>),
    /// A group is behind with buffered writes, which go together; the other one has requests that somebody waits for, and
    /// may go too. Then one of them is due.
    Batch(EntityId, Option<EntityId>, Option<Instant>),
    /// Nobody is behind; the next one will be then.
    Open(Option<Instant>),
}

/// How far clocks run.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Bounds {
    /// Ahead of the time, beside what is in flight.
    pub(super) ahead: Nanos,
    /// Behind it: what was not served before that is not owed any more.
    pub(super) lag_max: Nanos,
    /// How long it takes to see that a promise is not reached.
    pub(super) period: Nanos,
}

/// All clocks.
#[derive(Default, Debug)]
pub(super) struct Clocks {
    /// By group.
    clocks: Vec<Clock>,
    arena: Arena<(Instant, EntityId), EntityId>,
    /// Groups with requests that somebody waits for, and those with nothing but buffered writes.
    queued: [Tree; 2],
    busy: Tree,
    bounds: Bounds,
}

impl Clocks {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }
    pub(super) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }
    /// A group is there, with this minimum in bytes a second, or none.
    pub(super) fn set(&mut self, now: Instant, id: EntityId, min: Option<u64>) {
        let Some(group) = id.as_group() else { return };
        let bound = self.clocks.len().max(group.index() + 1);
        self.clocks.resize(bound, Clock::new(0));
        let clock = &mut self.clocks[group.index()];
        let promised = min.unwrap_or(0);
        if clock.promised != promised {
            (clock.promised, clock.rate, clock.at) = (promised, promised, clock.at.max(now));
            (clock.period, clock.bytes, clock.behind) = (now, 0, true);
            (clock.missed, clock.reached) = (0, 0);
            self.put(group.index(), id);
        }
    }
    /// A group is gone.
    pub(super) fn remove(&mut self, id: EntityId) {
        let Some(group) = id.as_group() else { return };
        if group.index() < self.clocks.len() {
            self.take_out(group.index());
            self.clocks[group.index()] = Clock::new(0);
        }
    }
    /// Requests of a client come to a group, or leave it, with the client.
    pub(super) fn move_requests(&mut self, id: EntityId, it: Requests, comes: bool) {
        let Some((group, clock)) = self.get(id) else { return };
        let change = |count: &mut u32, by: u32| {
            *count = if comes { *count + by } else { *count - by };
        };
        change(&mut clock.queued, it.queued);
        change(&mut clock.urgent, it.urgent);
        change(&mut clock.in_flight, it.in_flight);
        clock.bytes_in_flight -= if comes { 0 } else { it.bytes };
        clock.bytes_in_flight += if comes { it.bytes } else { 0 };
        self.put(group, id);
    }
    fn take_out(&mut self, group: usize) {
        let clock = &mut self.clocks[group];
        match core::mem::replace(&mut clock.place, Place::Nowhere) {
            Place::Nowhere => {}
            Place::Queued(node, kind) => drop(self.arena.remove(&mut self.queued[kind], node)),
            Place::Busy(node) => drop(self.arena.remove(&mut self.busy, node)),
        }
    }
    /// Into the tree where it belongs, by its present clock.
    fn put(&mut self, group: usize, id: EntityId) {
        self.take_out(group);
        let clock = &mut self.clocks[group];
        if clock.promised == 0 {
            return;
        }
        if clock.queued > 0 {
            let (key, kind) = ((clock.due(), id), usize::from(clock.urgent == 0));
            let node = self.arena.insert(&mut self.queued[kind], key, id);
            clock.place = Place::Queued(node, kind);
        } else if clock.awaited && (clock.in_flight > 0 || clock.idle_until > clock.idle_since) {
            let key = (clock.at, id);
            clock.place = Place::Busy(self.arena.insert(&mut self.busy, key, id));
        }
    }
    fn get(&mut self, id: EntityId) -> Option<(usize, &mut Clock)> {
        let group = id.as_group()?.index();
        Some((group, self.clocks.get_mut(group)?))
    }
    fn look(&self, id: EntityId) -> Option<&Clock> {
        self.clocks.get(id.as_group()?.index()).filter(|it| it.promised > 0)
    }
    /// Has this group a minimum?
    pub(super) fn has(&self, id: EntityId) -> bool {
        self.look(id).is_some()
    }
    /// Is it behind because its last request took longer than the promise allows?
    pub(super) fn is_late(&self, now: Instant, id: EntityId, took: Nanos) -> bool {
        self.look(id).is_some_and(|it| it.at <= now && took > it.grant)
    }
    /// The group that closes the gate first, and when.
    pub(super) fn first(&self) -> Option<(EntityId, Instant)> {
        let first = |tree| self.arena.first(tree).map(|node| self.arena.key(node));
        let [urgent, buffered] = [first(&self.queued[0]), first(&self.queued[1])];
        let (at, id) = [urgent, buffered, first(&self.busy)].into_iter().flatten().min()?;
        Some((id, at))
    }
    /// How far ahead it is.
    pub(super) fn ahead(&self, now: Instant, id: EntityId) -> Option<Nanos> {
        Some(self.look(id)?.at.since(now))
    }

    /// A request of the group, or of one in it, is queued.
    pub(super) fn arrive(&mut self, now: Instant, id: EntityId, urgent: bool) {
        let lag_max = self.bounds.lag_max;
        let Some((group, clock)) = self.get(id) else { return };
        if clock.queued == 0 && clock.in_flight == 0 {
            let pause = now.since(clock.idle_since);
            let first = clock.idle_since == Instant::ZERO;
            if first || now > clock.idle_until {
                if clock.at <= now {
                    let own = now.since(clock.idle_until);
                    clock.at = if first { now } else { (clock.at + own).min(now) };
                }
                (clock.period, clock.bytes, clock.behind) = (now, 0, true);
                (clock.missed, clock.reached) = (0, 0);
            }
            if pause <= SLACK_MAX {
                clock.pause = Nanos(clock.pause.0 - clock.pause.0 / 8 + pause.0 / 8);
            }
            clock.forget(now, lag_max);
            clock.burst = Nanos::ZERO;
        }
        clock.queued += 1;
        clock.urgent += u32::from(urgent);
        self.put(group, id);
    }
    /// Bytes go to the drive; `all`: with them the request.
    pub(super) fn dispatch(
        &mut self,
        now: Instant,
        id: EntityId,
        bytes: u64,
        (all, urgent): (bool, bool),
    ) {
        let Bounds { ahead, lag_max, period } = self.bounds;
        let Some((group, clock)) = self.get(id) else { return };
        clock.queued -= u32::from(all);
        clock.urgent -= u32::from(all && urgent);
        clock.in_flight += 1;
        clock.bytes_in_flight += bytes;
        clock.awaited = urgent;
        if clock.promised == 0 {
            return;
        }
        // A burst of what is owed to many fills the drive's cache, and the drive does nothing else until that is written.
        let buffered = !urgent && clock.urgent == 0;
        clock.forget(now, if buffered { period / BUFFERED_PART } else { lag_max });
        clock.grant = Nanos::for_units_ceil(bytes, clock.rate);
        clock.burst += clock.grant;
        clock.bytes += bytes;
        let in_flight = Nanos::for_units_ceil(clock.bytes_in_flight, clock.rate);
        clock.at = (clock.at + clock.grant).min(now + ahead.max(in_flight.min(lag_max)));
        clock.batch = clock.at <= now;
        clock.behind &= clock.at + period / BROKEN_PART <= now;
        self.put(group, id);
    }
    /// A command of the group was completed.
    pub(super) fn complete(&mut self, now: Instant, id: EntityId, bytes: u64) {
        let Bounds { lag_max, period, .. } = self.bounds;
        let Some((group, clock)) = self.get(id) else { return };
        clock.in_flight -= 1;
        clock.bytes_in_flight -= bytes;
        clock.forget(now, lag_max);
        if clock.queued == 0 && clock.in_flight == 0 {
            (clock.idle_since, clock.idle_until) = (now, now + clock.slack());
        }
        clock.end_period(now, period);
        self.put(group, id);
    }
    /// Who is behind.
    pub(super) fn gate(&mut self, now: Instant) -> Gate {
        let first = |tree| self.arena.first(tree).map(|node| self.arena.key(node));
        let [urgent, buffered] = [first(&self.queued[0]), first(&self.queued[1])];
        let due =
            |it: Option<(Instant, EntityId)>, lag: Nanos| it.filter(|(at, _)| *at + lag <= now);
        let far = Nanos(self.bounds.period.0 - self.bounds.period.0 / URGENT_PART);
        if let Some((at, id)) = due(urgent, Nanos::ZERO).or(due(buffered, far)) {
            return Gate::Due(id, now.since(at));
        }
        // What waits for its time, and buffered writes that wait for a read that is behind.
        let late = buffered.map(|(at, _)| if at <= now { at + far } else { at });
        let next = urgent.map(|(at, _)| at).into_iter().chain(late).min();
        while let Some(node) = self.arena.first(&self.busy) {
            let (at, id) = self.arena.key(node);
            if at > now {
                break;
            }
            let Some((group, clock)) = self.get(id) else { break };
            if clock.in_flight > 0 {
                return Gate::Closed(now.since(at), next);
            }
            if clock.idle_until > now {
                let until = clock.idle_until;
                let until = next.map_or(until, |next| next.min(until));
                return Gate::Closed(now.since(at), Some(until));
            }
            self.take_out(group);
        }
        match due(buffered, Nanos::ZERO) {
            Some((_, id)) => Gate::Batch(id, urgent.map(|(_, id)| id), next),
            None => Gate::Open(next),
        }
    }
}
