//! Clocks of minimums: which group is behind what it was promised.
//!
//! A group with a minimum has a clock: the instant up to which its promise is kept. What it gets is worth the time in which
//! the minimum promises as much ([`Minimum::worth`]).
//!
//! ```text
//! on service               clock += worth
//! behind                   clock <= now, while it has requests queued or in flight, or is between two of them
//! on arrival after a pause clock = min(clock + pause - slack, now) if it is behind: a pause is not owed
//! always                   now - lag_max <= clock <= now + max(ahead, worth of what is in flight)
//! ```
//!
//! *Frames.* A drive with a head loses time whenever it turns to another client, so a minimum is served there once in a frame
//! ([`Bounds::frame`]): a group is due while its clock is before the end of the present frame, and the clock runs no further
//! ahead. A second is a whole number of frames, and so each second, whenever it begins, holds what is promised for it.
//!
//! *Between two requests.* A client that sends its next request when the last one is completed needs a moment for it.
//! The gate stays closed for that moment, `slack`: a quarter of what was sent since the last pause is worth by the
//! promise, up to a half where the client is slower, at most [`SLACK_MAX`]. A client whose pauses usually fit into what is left
//! of that worth when it is served quickly could reach its promise: then the gate stays closed for them. The rest of a longer
//! pause is the client's own.
//!
//! *What cannot be kept.* A group that stays behind although nobody else is served gets what it reached that way, less
//! a sixth at most, as its promise for some time: an infeasible promise never starves the others. With several such
//! groups each keeps its part, since the clock that is furthest behind goes first.
//!
//! *Flushes.* A flush takes the drive for milliseconds and moves no data, so a group that flushes after each write may never
//! reach its minimum. A group with data goes before a group that has nothing but flushes queued, however far that one is
//! behind. A flush for a minimum goes when no other group is far behind with data ([`Clocks::data_lag`]).
//!
//! *Classes.* Among groups that are behind the most urgent class goes first, so that minimums that cannot all be kept are
//! broken from the least urgent class up, and within a class in proportion.
//!
//! Source of the clock: Zhang, "VirtualClock" (1990); of reservation tags beside shares: Gulati, Merchant and Varman,
//! "mClock" (2010).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::requests::{DATA, Kind, LINES, Line, Requests};
use super::shares::EntityId;
use crate::parts::tree::{Arena, NodeId, Tree};
use iofair_core::group::Class;
use iofair_core::minimum::{Amount, Minimum};
use iofair_core::time::{Instant, Nanos};

/// Parts of [`Bounds::period`]: a group that is further behind all the time does not reach its promise.
const BROKEN_PART: u64 = 5;
/// Of which part clocks of buffered writes are behind at most when they are served.
const BUFFERED_PART: u64 = 5;
/// Buffered writes that are further behind than all but this part go though a read is behind too.
const URGENT_PART: u64 = 10;
/// A whole of [`Clock::quick`], its least value, and how slowly it grows.
const QUICK_WHOLE: u64 = 1024;
const QUICK_LEAST: u64 = 64;
const QUICK_FORGETS: u64 = 32;
/// The longest moment between two requests of one client.
const SLACK_MAX: Nanos = Nanos::from_millis(2);
/// A whole promise; those that are cut have fewer parts.
const WHOLE: u64 = 1 << 20;
/// A promise is cut after so many periods ([`Bounds::period`]) behind, to the most that was reached in one of them, less what the
/// others are left: as large a part as it missed, within [`LEFT_PARTS`]; after [`KEPT_CUT`] it grows again by one part in [`RECOVER`] each period.
const CUT_AFTER: u32 = 5;
const LEFT_PARTS: [u64; 2] = [32, 6];
const KEPT_CUT: u64 = 50;
const RECOVER: u64 = 16;
/// Buffered writes that are due wait for so much more of them, to go together.
const PATIENCE: Nanos = Nanos::from_millis(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    In(NodeId, Class, Line),
}

#[derive(Clone, Copy, Debug)]
struct Clock {
    /// What was promised, and how much of it is kept now, in parts of [`WHOLE`].
    promised: Minimum,
    kept: u64,
    at: Instant,
    place: Place,
    /// Does somebody wait for what was sent last?
    awaited: bool,
    /// Due buffered writes go until the clock is ahead.
    batch: bool,
    /// When nothing of it was left, and until when that is a moment between two requests.
    idle_since: Instant,
    idle_until: Instant,
    /// If not zero: it has nothing but flushes, and until then the moment after its last data.
    data_until: Instant,
    /// Mean pause between requests, those longer than [`SLACK_MAX`] left out.
    pause: Nanos,
    /// What the last command was worth, and all since the group had nothing left; when that began.
    grant: Nanos,
    burst: Nanos,
    began: Instant,
    /// The least part of such a time, of [`QUICK_WHOLE`], that the group was busy for what it got; it grows by and by.
    quick: u64,
    /// The present period: its begin, what the service in it is worth by the whole promise, and was the clock behind all the
    /// time?
    period: Instant,
    served: Nanos,
    behind: bool,
    /// Periods behind one after the other, and the most that was reached in one, in parts of the promise.
    missed: u32,
    reached: u64,
    /// The promise stays cut until then.
    cut_until: Instant,
}

impl Clock {
    fn new() -> Self {
        Self {
            promised: Minimum::NONE,
            kept: WHOLE,
            at: Instant::ZERO,
            place: Place::Nowhere,
            awaited: false,
            batch: false,
            idle_since: Instant::ZERO,
            idle_until: Instant::ZERO,
            data_until: Instant::ZERO,
            pause: Nanos::ZERO,
            grant: Nanos::ZERO,
            burst: Nanos::ZERO,
            began: Instant::ZERO,
            quick: QUICK_WHOLE / 2,
            period: Instant::ZERO,
            served: Nanos::ZERO,
            behind: false,
            missed: 0,
            reached: 0,
            cut_until: Instant::ZERO,
        }
    }
    /// What an amount is worth by the promise as it is kept now.
    fn worth(&self, amount: Amount) -> Nanos {
        let whole = self.promised.worth(amount).unwrap_or(Nanos::ZERO);
        if self.kept == WHOLE {
            return whole;
        }
        let cut = u128::from(whole.0) * u128::from(WHOLE) / u128::from(self.kept);
        Nanos(u64::try_from(cut).unwrap_or(u64::MAX))
    }
    fn slack(&self) -> Nanos {
        let learned = Nanos(self.pause.0.saturating_mul(2));
        // What its pauses may last if it is to reach its promise by its own pace.
        let room = Nanos(self.burst.0 / QUICK_WHOLE * (QUICK_WHOLE - self.quick));
        let fits = self.pause + self.pause / 4 <= room;
        let most = if fits { room } else { self.burst / 2 };
        learned.max(self.burst / 4).min(most).min(SLACK_MAX)
    }
    /// Nothing of it is left: how long was it busy for what it got?
    fn rest(&mut self, now: Instant) {
        let busy = u128::from(now.since(self.began).0) * u128::from(QUICK_WHOLE);
        let part = busy / u128::from(self.burst.0.max(1));
        let slower = self.quick + self.quick / QUICK_FORGETS + 1;
        let part = u64::try_from(part).unwrap_or(u64::MAX).min(slower);
        self.quick = part.clamp(QUICK_LEAST, QUICK_WHOLE / 2);
        (self.idle_since, self.idle_until) = (now, now + self.slack());
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
        let reached = u128::from(self.served.0) * u128::from(WHOLE) / u128::from(time.0.max(1));
        let reached = u64::try_from(reached).unwrap_or(u64::MAX);
        self.reached = self.reached.max(reached);
        self.missed += 1;
        // One that gets more than its promise is catching up.
        if !self.behind || reached >= self.kept {
            (self.missed, self.reached) = (0, 0);
            if now >= self.cut_until {
                self.kept = WHOLE.min(self.kept + self.kept / RECOVER + 1);
            }
        } else if self.missed >= CUT_AFTER {
            let missing = WHOLE - self.reached.min(WHOLE);
            let left = u128::from(self.reached) * u128::from(missing) / u128::from(WHOLE);
            let [least, most] = LEFT_PARTS.map(|part| self.reached / part);
            let left = u64::try_from(left).unwrap_or(most).clamp(least, most);
            self.kept = self.kept.min(self.reached - left).max(1);
            (self.at, self.cut_until) = (now, now + Nanos(period.0 * KEPT_CUT));
            (self.missed, self.reached) = (0, 0);
        }
        (self.period, self.served, self.behind) = (now, Nanos::ZERO, true);
    }
    /// From when on its requests are due; `urgent`: somebody waits for one of them.
    fn due(&self, urgent: bool) -> Instant {
        if urgent || self.batch { self.at } else { self.at + PATIENCE }
    }
    /// It had nothing queued or in flight until now.
    fn wake(&mut self, now: Instant, lag_max: Nanos) {
        let pause = now.since(self.idle_since);
        let first = self.idle_since == Instant::ZERO;
        if first || now > self.idle_until {
            if self.at <= now {
                let own = now.since(self.idle_until);
                self.at = if first { now } else { (self.at + own).min(now) };
            }
            (self.period, self.served, self.behind) = (now, Nanos::ZERO, true);
            (self.missed, self.reached) = (0, 0);
        }
        if pause <= SLACK_MAX {
            self.pause = Nanos(self.pause.0 - self.pause.0 / 8 + pause.0 / 8);
        }
        self.forget(now, lag_max);
        (self.burst, self.began) = (Nanos::ZERO, now);
    }
}

/// A group, with a minimum or without.
#[derive(Clone, Default, Debug)]
struct Group {
    requests: Requests,
    /// Among minimums.
    class: Class,
    /// If it has a minimum.
    clock: Option<Box<Clock>>,
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
    /// Ahead of the time, beside what is in flight; where there are frames, ahead of the end of one.
    pub(super) ahead: Nanos,
    /// If not zero, a group is due until it has what is promised for the present frame.
    pub(super) frame: Nanos,
    /// Behind it: what was not served before that is not owed any more.
    pub(super) lag_max: Nanos,
    /// How long it takes to see that a promise is not reached.
    pub(super) period: Nanos,
}

/// All clocks.
#[derive(Default, Debug)]
pub(super) struct Clocks {
    groups: Vec<Group>,
    /// Groups with a minimum.
    count: usize,
    arena: Arena<(Instant, EntityId), EntityId>,
    /// By class and [`Line`].
    trees: [[Tree; LINES]; 3],
    bounds: Bounds,
    /// When a group with a minimum last sent a request.
    used: Instant,
}

impl Clocks {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }
    pub(super) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }
    /// The end of the present frame; without frames the present.
    pub(super) fn frame_end(&self, now: Instant) -> Instant {
        match self.bounds.frame {
            Nanos(0) => now,
            Nanos(frame) => Instant((now.0 / frame + 1) * frame),
        }
    }
    /// A group whose clock is at most that is due.
    fn due_at(&self, now: Instant) -> Instant {
        self.frame_end(now).saturating_sub(Nanos(u64::from(self.bounds.frame.0 > 0)))
    }
    /// A group is there, with this minimum, and class among minimums.
    pub(super) fn set(&mut self, now: Instant, id: EntityId, promised: Minimum, class: Class) {
        let Some(group) = id.as_group().map(|id| id.index()) else { return };
        let bound = self.groups.len().max(group + 1);
        self.groups.resize(bound, Group::default());
        self.take_out(group);
        let Group { clock, class: known, .. } = &mut self.groups[group];
        *known = class;
        self.count -= usize::from(clock.is_some());
        if promised.is_some() {
            self.count += 1;
            let clock = clock.get_or_insert_with(|| Box::new(Clock::new()));
            if clock.promised != promised {
                (clock.promised, clock.kept, clock.at) = (promised, WHOLE, clock.at.max(now));
                (clock.period, clock.served, clock.behind) = (now, Nanos::ZERO, true);
                (clock.missed, clock.reached) = (0, 0);
            }
        } else {
            *clock = None;
        }
        self.put(group, id);
    }
    /// A group is gone.
    pub(super) fn remove(&mut self, id: EntityId) {
        self.set(Instant::ZERO, id, Minimum::NONE, Class::default());
        if let Some(group) = id.as_group() {
            self.groups[group.index()] = Group::default();
        }
    }
    /// Requests of a client come to a group, or leave it, with the client.
    pub(super) fn move_requests(&mut self, id: EntityId, it: Requests, comes: bool) {
        let Some((group, own)) = self.requests(id) else { return };
        let change = |count: &mut u32, by: u32| {
            *count = if comes { *count + by } else { *count - by };
        };
        change(&mut own.queued, it.queued);
        change(&mut own.urgent, it.urgent);
        change(&mut own.flushes, it.flushes);
        change(&mut own.in_flight, it.in_flight);
        change(&mut own.flushing, it.flushing);
        match comes {
            true => own.amount += it.amount,
            false => own.amount -= it.amount,
        }
        self.put(group, id);
    }
    fn take_out(&mut self, group: usize) {
        let Some(clock) = &mut self.groups[group].clock else { return };
        if let Place::In(node, class, line) = core::mem::replace(&mut clock.place, Place::Nowhere) {
            self.arena.remove(&mut self.trees[class as usize][line as usize], node);
        }
    }
    /// Into the tree where it belongs, by its present clock.
    fn put(&mut self, group: usize, id: EntityId) {
        self.take_out(group);
        let Group { requests: own, class, clock: Some(clock) } = &mut self.groups[group] else {
            return;
        };
        let at = match own.queued {
            0 if !clock.awaited => return,
            0 if own.in_flight == 0 && clock.idle_until <= clock.idle_since => return,
            0 => clock.at,
            _ => clock.due(own.urgent > 0),
        };
        let (class, line) = (*class, own.line(clock.data_until > Instant::ZERO));
        let node = self.arena.insert(&mut self.trees[class as usize][line as usize], (at, id), id);
        clock.place = Place::In(node, class, line);
    }
    fn requests(&mut self, id: EntityId) -> Option<(usize, &mut Requests)> {
        let group = id.as_group()?.index();
        Some((group, &mut self.groups.get_mut(group)?.requests))
    }
    fn look(&self, id: EntityId) -> Option<&Clock> {
        self.groups.get(id.as_group()?.index())?.clock.as_deref()
    }
    /// Its class among minimums.
    pub(super) fn class(&self, id: EntityId) -> Option<Class> {
        Some(self.groups.get(id.as_group()?.index())?.class)
    }
    /// Has this group a minimum?
    pub(super) fn has(&self, id: EntityId) -> bool {
        self.look(id).is_some()
    }
    /// Has no group one?
    pub(super) fn are_none(&self) -> bool {
        self.count == 0
    }
    /// Is it so far behind that it does not reach its promise?
    pub(super) fn is_far(&self, now: Instant, id: EntityId) -> bool {
        let far = self.bounds.period / BROKEN_PART;
        self.look(id).is_some_and(|it| it.at + far <= now)
    }
    /// Did a group with a minimum send requests lately?
    pub(super) fn are_used(&self, now: Instant) -> bool {
        self.count > 0 && now < self.used_until()
    }
    /// Until when they are, if there is a minimum.
    pub(super) fn used_until(&self) -> Instant {
        self.used + self.bounds.lag_max
    }
    /// Is it behind because its last request took longer than the promise allows?
    pub(super) fn is_late(&self, now: Instant, id: EntityId, took: Nanos) -> bool {
        self.look(id).is_some_and(|it| it.at <= now && took > it.grant)
    }
    /// The group that closes the gate first, and when.
    pub(super) fn first(&self) -> Option<(EntityId, Instant)> {
        let (at, id) = self.trees.iter().flatten().filter_map(|tree| self.first_of(tree)).min()?;
        Some((id, at))
    }
    /// Up to when its promise is kept.
    pub(super) fn kept_until(&self, id: EntityId) -> Option<Instant> {
        Some(self.look(id)?.at)
    }

    /// A request of the group, or of one in it, is queued.
    pub(super) fn arrive(&mut self, now: Instant, id: EntityId, kind: Kind) {
        let Some((group, own)) = self.requests(id) else { return };
        let wakes = own.are_none();
        own.arrive(kind);
        let Some(clock) = &mut self.groups[group].clock else { return };
        if wakes {
            clock.wake(now, self.bounds.lag_max);
        }
        clock.data_until = Instant::ZERO;
        self.used = now;
        self.put(group, id);
    }
    /// So much goes to the drive; `all`: with it the request.
    pub(super) fn dispatch(
        &mut self,
        now: Instant,
        id: EntityId,
        amount: Amount,
        (all, kind): (bool, Kind),
    ) {
        let Bounds { ahead, lag_max, period, .. } = self.bounds;
        let frame_end = self.frame_end(now);
        let Some((group, own)) = self.requests(id) else { return };
        own.dispatch(amount, (all, kind));
        let (own, urgent) = (*own, kind.is_urgent());
        let Some(clock) = &mut self.groups[group].clock else { return };
        clock.awaited = urgent;
        // A burst of what is owed to many fills the drive's cache, and the drive does nothing else until that is written.
        let buffered = !urgent && own.urgent == 0;
        clock.forget(now, if buffered { period / BUFFERED_PART } else { lag_max });
        clock.grant = clock.worth(amount);
        clock.burst += clock.grant;
        clock.served += clock.promised.worth(amount).unwrap_or(Nanos::ZERO);
        let in_flight = clock.worth(own.amount);
        let most = (frame_end + ahead).max(now + in_flight.min(lag_max));
        clock.at = (clock.at + clock.grant).min(most);
        clock.batch = clock.at <= now;
        clock.behind &= clock.at + period / BROKEN_PART <= now;
        self.put(group, id);
    }
    /// A command of the group was completed.
    pub(super) fn complete(&mut self, now: Instant, id: EntityId, amount: Amount, kind: Kind) {
        let Bounds { lag_max, period, frame, .. } = self.bounds;
        let Some((group, own)) = self.requests(id) else { return };
        own.complete(amount, kind);
        let (rests, has_data) = (own.are_none(), own.have_data());
        let Some(clock) = &mut self.groups[group].clock else { return };
        clock.forget(now, lag_max);
        if rests {
            clock.rest(now);
            clock.data_until = Instant::ZERO;
        } else if !has_data && kind != Kind::Flush && frame == Nanos::ZERO {
            // Another client's flush is left; the one that got data may send its next request in a moment.
            clock.data_until = now + clock.slack();
        }
        clock.end_period(now, period);
        self.put(group, id);
    }
    fn first_of(&self, tree: &Tree) -> Option<(Instant, EntityId)> {
        self.arena.first(tree).map(|node| self.arena.key(node))
    }
    /// Who is behind: the most urgent class of those with somebody who is.
    #[inline]
    pub(super) fn gate(&mut self, now: Instant) -> Gate {
        if self.are_none() { Gate::Open(None) } else { self.gate_of_all(now) }
    }
    fn gate_of_all(&mut self, now: Instant) -> Gate {
        let mut next: Option<Instant> = None;
        let sooner = |one: Option<Instant>, other| one.into_iter().chain(other).min();
        for class in Class::ALL {
            match self.gate_of(now, class) {
                Gate::Open(later) => next = sooner(next, later),
                Gate::Closed(lag, until) => return Gate::Closed(lag, sooner(next, until)),
                Gate::Batch(id, other, until) => {
                    return Gate::Batch(id, other, sooner(next, until));
                }
                due @ Gate::Due(..) => return due,
            }
        }
        Gate::Open(next)
    }
    /// The same of one class.
    fn gate_of(&mut self, now: Instant, class: Class) -> Gate {
        let due_at = self.due_at(now);
        self.end_pauses(now, class);
        let first = |line: Line| self.first_of(&self.trees[class as usize][line as usize]);
        let [urgent, buffered, flush] = [Line::Urgent, Line::Buffered, Line::Flush].map(first);
        let busy = [Line::Busy, Line::FlushBesideData].into_iter().filter_map(first).min();
        let due =
            |it: Option<(Instant, EntityId)>, lag: Nanos| it.filter(|(at, _)| *at + lag <= due_at);
        let far = Nanos(self.bounds.period.0 - self.bounds.period.0 / URGENT_PART);
        if let Some((at, id)) = due(urgent, Nanos::ZERO).or(due(buffered, far)) {
            return Gate::Due(id, now.since(at));
        }
        // What waits for its time, and buffered writes that wait for a read that is behind.
        let late = buffered.map(|(at, _)| if at <= due_at { at + far } else { at });
        let later = flush.map(|(at, _)| at).filter(|at| *at > due_at);
        let next = urgent.map(|(at, _)| at).into_iter().chain(late).chain(later).min();
        if let Some((at, id)) = due(busy, Nanos::ZERO) {
            let until = self.pause_end(id).into_iter().chain(next).min();
            return Gate::Closed(now.since(at), until);
        }
        if let Some((_, id)) = due(buffered, Nanos::ZERO) {
            return Gate::Batch(id, urgent.map(|(_, id)| id), next);
        }
        if let Some((at, id)) = due(flush, Nanos::ZERO) {
            return Gate::Due(id, now.since(at));
        }
        match due(first(Line::Flushing), Nanos::ZERO) {
            Some((at, _)) => Gate::Closed(now.since(at), next),
            None => Gate::Open(next),
        }
    }
    /// If a group is between two requests for data: until when.
    fn pause_end(&self, id: EntityId) -> Option<Instant> {
        let Group { requests: own, clock, .. } = self.groups.get(id.as_group()?.index())?;
        let clock = clock.as_ref()?;
        match own.are_none() {
            true => Some(clock.idle_until),
            false => (!own.have_data()).then_some(clock.data_until),
        }
    }
    /// A group is not between two requests any more.
    fn end_pause(&mut self, id: EntityId) {
        let Some(group) = id.as_group().map(|id| id.index()) else { return };
        self.take_out(group);
        let Group { requests: own, clock: Some(clock), .. } = &mut self.groups[group] else {
            return;
        };
        clock.data_until = Instant::ZERO;
        if !own.are_none() {
            self.put(group, id);
        }
    }
    /// Groups that are behind, and not between two requests any more, are not waited for.
    fn end_pauses(&mut self, now: Instant, class: Class) {
        let due_at = self.due_at(now);
        for line in [Line::Busy, Line::FlushBesideData] {
            while let Some((at, id)) = self.first_of(&self.trees[class as usize][line as usize]) {
                if at > due_at || self.pause_end(id).is_none_or(|until| until > now) {
                    break;
                }
                self.end_pause(id);
            }
        }
    }
    /// The group that is furthest behind of those with nothing but flushes queued, in the most urgent class with one.
    pub(super) fn flush_due(&self, now: Instant) -> Option<EntityId> {
        let due_at = self.due_at(now);
        let due = |class: &Class| {
            let lines = [Line::Flush, Line::FlushBesideData].into_iter();
            let trees = lines.map(|line| &self.trees[*class as usize][line as usize]);
            let (at, id) = trees.filter_map(|tree| self.first_of(tree)).min()?;
            (at <= due_at).then_some(id)
        };
        Class::ALL.iter().find_map(due)
    }
    /// How far a group that waits for nothing but flushes is behind, at most.
    pub(super) fn flush_lag(&self, now: Instant) -> Nanos {
        let trees = self
            .trees
            .iter()
            .flat_map(|lines| [Line::Flush, Line::Flushing].map(|it| &lines[it as usize]));
        let first = trees.filter_map(|tree| self.first_of(tree)).min();
        first.map_or(Nanos::ZERO, |(at, _)| now.since(at))
    }
    /// How far a group of this class, or of a more urgent one, is behind with data, at most; without the groups that `but` is
    /// true of.
    pub(super) fn data_lag(
        &mut self,
        now: Instant,
        class: Class,
        but: impl Fn(EntityId) -> bool,
    ) -> Nanos {
        let mut first = now;
        for class in Class::ALL.into_iter().filter(|it| *it <= class) {
            for line in DATA {
                let mut node = self.arena.first(&self.trees[class as usize][line as usize]);
                while let Some(here) = node {
                    let (at, id) = self.arena.key(here);
                    if at >= first {
                        break;
                    }
                    node = self.arena.next(here);
                    let waits = matches!(line, Line::Busy | Line::FlushBesideData);
                    if waits && self.pause_end(id).is_some_and(|until| until <= now) {
                        self.end_pause(id);
                    } else if !but(id) {
                        first = at;
                    }
                }
            }
        }
        now.since(first)
    }
}
