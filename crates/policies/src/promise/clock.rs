//! Clocks of minimums: which group is behind its minimum.
//!
//! A group with a minimum has a clock, its reservation tag in the words of mClock: the instant up to which its minimum is
//! kept. Service moves the clock by an *increment*: the time in which the minimum promises as much ([`Minimum::worth`]).
//!
//! ```text
//! on service               clock += increment
//! behind                   clock <= now, while the group has requests queued or in flight, or is between two requests
//! on arrival after a pause clock = min(clock + pause - slack, now) if it was behind: no claim arises from a pause
//! always                   now - 1 s <= clock <= now + max(5 ms, increment of what is in flight)
//! ```
//!
//! *Between two requests.* A client that sends its next request at each completion needs a moment for it. The gate stays
//! closed for that moment, the `slack`: a quarter of the increments of what was sent since the last pause, up to a half for a
//! slower client, and at most 2 ms. If the client's pauses usually fit into the rest of these increments, the client
//! could reach its minimum, and the gate stays closed for the whole pause. From the rest of a longer pause no claim arises.
//!
//! *Gathered writes.* On flash, a read waits for what the drive is programming. Writes at an even pace delay every read, and
//! as many of them one after the other delay few. While reads of a minimum were far behind beside writes, and for
//! [`GATHERS`] after that, synchronous writes are therefore due later, like buffered ones, and then their group has a turn:
//! it alone is served until it is no longer behind, for at most [`TURN_MAX`].
//!
//! *Infeasible minimums.* If a group stays behind although no other group is served, its minimum is lowered for some time
//! to what it reached, minus at most a sixth, so that an infeasible minimum never starves other groups. Several such
//! groups are cut in proportion, because the group furthest behind is served first.
//!
//! *Flushes.* A flush takes the drive for milliseconds and moves no data, so a group that flushes after each write may
//! never reach its minimum. A group with data therefore goes before groups that have only flushes queued, however far
//! those are behind. A flush for a minimum goes when no other group is far behind with data ([`Clocks::first_with_data`]).
//!
//! *Classes.* Of the groups that are behind, the most urgent class is served first. If not all minimums can be kept, those
//! of the least urgent class are broken first, and within a class all in proportion.
//!
//! Source of the clock: Zhang, "VirtualClock" (1990); of reservation tags beside shares: Gulati, Merchant and Varman,
//! "mClock" (2010).

use alloc::vec::Vec;

use super::group_clock::{Clock, DueKey, Group, LAG_MAX, NOWHERE, WHOLE};
use super::requests::{Command, DATA, Kind, QueueState, Requests, STATES};
use super::shares::EntityId;
use crate::parts::tree::{Arena, Tree};
use iofair_core::minimum::Minimum;
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};

/// How far a clock may run ahead; more if more is in flight.
const AHEAD: Nanos = Nanos::from_millis(5);
/// Period over which the service of a group is compared with its minimum.
const PERIOD: Nanos = Nanos::from_millis(100);
/// A group that is behind by more than this throughout a period does not reach its minimum.
const BROKEN: Nanos = Nanos::from_millis(20);
/// Buffered writes may be behind by at most this when they are served.
const BUFFERED: Nanos = Nanos::from_millis(20);
/// Buffered writes that are behind by more than this no longer wait for reads that are behind.
const BUFFERED_MAX: Nanos = Nanos::from_millis(90);
/// How long synchronous writes are gathered after a read of a minimum was far behind.
const GATHERS: Nanos = Nanos::from_secs(5);
/// Gathered writes of one group are dispatched for at most this time.
const TURN_MAX: Nanos = Nanos::from_millis(20);

/// Which requests may be dispatched, by the clocks of all groups. Lags say how far a group is behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gate {
    /// Only this group, which is behind by the lag and has requests queued.
    Due(EntityId, Nanos),
    /// None: a group is behind by the lag and has nothing queued yet. Ends at the given time at the latest.
    Closed(Nanos, Option<Instant>),
    /// The first group, which is behind with a batch of buffered writes, and the second one, which has urgent requests.
    /// At the given time the next group is due.
    Batch(EntityId, Option<EntityId>, Option<Instant>),
    /// All: no group is behind. The next group is due at [`Clocks::next_due`].
    Open,
}

/// The clocks of all groups.
#[derive(Default, Debug)]
pub(super) struct Clocks {
    groups: Vec<Group>,
    /// Groups with a minimum.
    count: usize,
    arena: Arena<DueKey, EntityId>,
    /// Groups that are behind or will be, ordered by their clocks; one tree for each class and [`QueueState`].
    trees: [[Tree; STATES]; 3],
    /// Groups in the trees of each class.
    members: [u32; 3],
    /// No key in a tree is earlier than this, so the gate is open before it.
    earliest: Instant,
    /// Until then, synchronous writes are gathered.
    gathers: Instant,
    /// The group whose gathered writes are being dispatched, and until when at the latest.
    turn: Option<(EntityId, Instant)>,
}

impl Clocks {
    /// Adds a group, or changes its minimum and the class of its minimum.
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
            let clock = clock.get_or_insert_with(Clock::new);
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
    /// Removes a group.
    pub(super) fn remove(&mut self, id: EntityId) {
        self.set(Instant::ZERO, id, Minimum::NONE, Class::default());
        if let Some(group) = id.as_group() {
            self.groups[group.index()] = Group::default();
        }
    }
    /// A client enters a group with its requests (`comes`), or leaves it with them.
    pub(super) fn move_requests(&mut self, id: EntityId, moved: Requests, comes: bool) {
        let Some((group, own)) = self.requests(id) else { return };
        let change = |count: &mut u32, by: u32| {
            *count = if comes { *count + by } else { *count - by };
        };
        change(&mut own.queued, moved.queued);
        change(&mut own.urgent, moved.urgent);
        change(&mut own.gathered, moved.gathered);
        change(&mut own.flushes, moved.flushes);
        change(&mut own.in_flight, moved.in_flight);
        change(&mut own.flushing, moved.flushing);
        match comes {
            true => own.amount += moved.amount,
            false => own.amount -= moved.amount,
        }
        self.put(group, id);
    }
    fn take_out(&mut self, group: usize) {
        let Group { node, state, class, .. } = &mut self.groups[group];
        let node = core::mem::replace(node, NOWHERE);
        if node != NOWHERE {
            self.members[*class as usize] -= 1;
            self.arena.remove(&mut self.trees[*class as usize][*state as usize], node);
        }
    }
    /// Moves a group to the tree of its present state, ordered by its present clock.
    fn put(&mut self, group: usize, id: EntityId) {
        let Group { requests: own, clock: Some(clock), due, node, state, class } =
            &mut self.groups[group]
        else {
            return;
        };
        let at = match own.queued {
            0 if !clock.awaited || own.in_flight == 0 && !clock.pauses() => {
                return self.take_out(group);
            }
            0 => clock.at,
            _ => clock.due(own.urgent > 0),
        };
        let now = own.state(clock.data_until > Instant::ZERO);
        if (*due, *state) == (at, now) && *node != NOWHERE {
            return;
        }
        self.earliest = self.earliest.min(at);
        let (before, key) = (core::mem::replace(state, now), DueKey::new(at, id));
        *due = at;
        let trees = &mut self.trees[*class as usize];
        if *node != NOWHERE && before == now {
            return self.arena.replace(&mut trees[now as usize], *node, key, id);
        }
        match *node {
            NOWHERE => self.members[*class as usize] += 1,
            node => _ = self.arena.remove(&mut trees[before as usize], node),
        }
        *node = self.arena.insert(&mut trees[now as usize], key, id);
    }
    fn requests(&mut self, id: EntityId) -> Option<(usize, &mut Requests)> {
        let group = id.as_group()?.index();
        Some((group, &mut self.groups.get_mut(group)?.requests))
    }
    fn clock(&self, id: EntityId) -> Option<&Clock> {
        self.groups.get(id.as_group()?.index())?.clock.as_ref()
    }
    /// Class of a group's minimum.
    pub(super) fn class(&self, id: EntityId) -> Option<Class> {
        Some(self.groups.get(id.as_group()?.index())?.class)
    }
    /// Whether the group has a minimum.
    pub(super) fn has_minimum(&self, id: EntityId) -> bool {
        self.clock(id).is_some()
    }
    /// Whether no group has a minimum.
    pub(super) fn are_none(&self) -> bool {
        self.count == 0
    }
    /// How far the group is behind, if it is so far that it does not reach its minimum; otherwise zero.
    pub(super) fn far_lag(&self, now: Instant, id: EntityId) -> Nanos {
        let lag = self.clock(id).map_or(Nanos::ZERO, |clock| now.since(clock.at));
        if lag >= BROKEN { lag } else { Nanos::ZERO }
    }
    /// A read of a group with a minimum was completed, which is far behind, beside writes.
    pub(super) fn on_far_read(&mut self, now: Instant) {
        self.gathers = now + GATHERS;
    }
    /// Whether a synchronous write that arrives now is gathered.
    pub(super) fn gather(&self, now: Instant) -> bool {
        now < self.gathers
    }
    fn gathers(&self, id: EntityId) -> bool {
        id.as_group().is_some_and(|group| self.groups[group.index()].requests.gathered > 0)
    }
    /// The gate while gathered writes are being dispatched: until their group is no longer behind.
    fn gate_of_turn(&self, now: Instant) -> Option<Gate> {
        let (id, _) = self.turn.filter(|_| self.turn_until(now).is_some())?;
        self.gate_in_turn(now, id)
    }
    /// Until when the present turn of gathered writes lasts at most.
    pub(super) fn turn_until(&self, now: Instant) -> Option<Instant> {
        let (_, until) = self.turn?;
        (now < until).then_some(until)
    }
    /// A gathered write is about to be dispatched: begins a turn of its group if that is behind.
    fn begin_turn(&mut self, now: Instant, id: EntityId) {
        let behind = self.clock(id).is_some_and(|clock| clock.at <= now);
        if behind && self.gate_of_turn(now).is_none() {
            self.turn = Some((id, now + TURN_MAX));
        }
    }
    /// A request of a group arrives: its turn has ended if it came too late.
    fn end_late_turn(&mut self, now: Instant, id: EntityId) {
        if self.turn.is_some_and(|(other, _)| other == id) && self.gate_in_turn(now, id).is_none() {
            self.turn = None;
        }
    }
    fn gate_in_turn(&self, now: Instant, id: EntityId) -> Option<Gate> {
        let Group { requests: own, clock, .. } = self.groups.get(id.as_group()?.index())?;
        let at = clock.as_ref()?.at;
        let lag = (at <= now).then(|| now.since(at))?;
        if own.queued > own.flushes {
            return Some(Gate::Due(id, lag));
        }
        let until = if own.have_data() { None } else { Some(self.pause_end(id)?) };
        until.is_none_or(|until| until > now).then_some(Gate::Closed(lag, until))
    }
    /// Whether the group is behind because its last request took longer than its increment.
    pub(super) fn is_late(&self, now: Instant, id: EntityId, took: Nanos) -> bool {
        self.clock(id).is_some_and(|clock| clock.at <= now && took > clock.grant)
    }
    /// The group that closes the gate next (or closes it now), and when.
    pub(super) fn first(&self) -> Option<(EntityId, Instant)> {
        let classes = self.trees.iter().zip(self.members).filter(|(_, members)| *members > 0);
        let trees = classes.flat_map(|(trees, _)| trees);
        let (at, id) = trees.filter_map(|tree| self.first_of(tree)).min()?;
        Some((id, at))
    }
    /// The group's clock.
    pub(super) fn kept_until(&self, id: EntityId) -> Option<Instant> {
        Some(self.clock(id)?.at)
    }

    /// A request of the group, or of a group inside, is queued.
    pub(super) fn arrive(&mut self, now: Instant, id: EntityId, kind: Kind) {
        self.end_late_turn(now, id);
        let Some((group, own)) = self.requests(id) else { return };
        let wakes = own.are_none();
        // One more request of a group with urgent ones changes nothing: its clock needs not be looked at.
        let is_known = own.state(false) == QueueState::Urgent;
        own.arrive(kind);
        if is_known {
            return;
        }
        let Some(clock) = &mut self.groups[group].clock else { return };
        if wakes {
            clock.wake(now);
        }
        clock.data_until = Instant::ZERO;
        self.put(group, id);
    }
    /// A command of the group is dispatched; `is_last`: of its request.
    pub(super) fn dispatch(&mut self, now: Instant, id: EntityId, command: Command, is_last: bool) {
        let Command { amount, kind } = command;
        if kind == Kind::Gathered {
            self.begin_turn(now, id);
        }
        let Some((group, own)) = self.requests(id) else { return };
        own.dispatch(command, is_last);
        let own = *own;
        let Some(clock) = &mut self.groups[group].clock else { return };
        clock.awaited = kind != Kind::Buffered;
        // A large burst of writes fills the drive's cache, and the drive does nothing else until that is written.
        let buffered = kind == Kind::Buffered && own.urgent == 0 && own.gathered == 0;
        clock.forget(now, if buffered { BUFFERED } else { LAG_MAX });
        let whole = clock.promised.worth(amount).unwrap_or(Nanos::ZERO);
        clock.grant = clock.kept_increment(whole);
        clock.burst += clock.grant;
        clock.served += whole;
        clock.at += clock.grant;
        if clock.at > now + AHEAD {
            let in_flight = clock.increment(own.amount);
            clock.at = clock.at.min(now + AHEAD.max(in_flight.min(LAG_MAX)));
        }
        clock.batch = clock.at <= now;
        clock.behind &= clock.at + BROKEN <= now;
        if clock.at > now && self.turn.is_some_and(|(other, _)| other == id) {
            self.turn = None;
        }
        self.put(group, id);
    }
    /// A command of the group was completed, which took this time in the drive.
    pub(super) fn complete(&mut self, now: Instant, id: EntityId, command: Command, took: Nanos) {
        let Some((group, own)) = self.requests(id) else { return };
        own.complete(command);
        let (rests, has_data) = (own.are_none(), own.have_data());
        let Some(clock) = &mut self.groups[group].clock else { return };
        clock.forget(now, LAG_MAX);
        if rests {
            clock.rest(now);
            clock.data_until = Instant::ZERO;
        } else if !has_data && command.kind != Kind::Flush {
            // Only a flush of another client is left; the client of this command may send its next request soon.
            clock.data_until = now + clock.slack();
        }
        // Less shows what the drive had before rather than what the group may have.
        clock.end_period(now, PERIOD.max(took + took));
        self.put(group, id);
    }
    fn first_of(&self, tree: &Tree) -> Option<(Instant, EntityId)> {
        self.arena.first_key(tree).map(|key| (key.at(), key.id()))
    }
    /// The gate by the most urgent class in which a group is behind.
    #[inline]
    pub(super) fn gate(&mut self, now: Instant) -> Gate {
        if self.are_none() || self.earliest > now {
            return Gate::Open;
        }
        self.gate_of_all(now)
    }
    fn gate_of_all(&mut self, now: Instant) -> Gate {
        if let Some(gate) = self.gate_of_turn(now) {
            return gate;
        }
        let mut next: Option<Instant> = None;
        let sooner = |one: Option<Instant>, other| one.into_iter().chain(other).min();
        for class in Class::ALL {
            if self.members[class as usize] == 0 {
                continue;
            }
            match self.gate_of(now, class) {
                Gate::Open => next = sooner(next, self.next_of(now, class)),
                Gate::Closed(lag, until) => return Gate::Closed(lag, sooner(next, until)),
                Gate::Batch(id, other, until) => {
                    return Gate::Batch(id, other, sooner(next, until));
                }
                due @ Gate::Due(..) => return due,
            }
        }
        self.earliest = self.first().map_or(Instant::MAX, |(_, at)| at);
        Gate::Open
    }
    /// When the next group is due, while the gate is open.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let classes = Class::ALL.into_iter().filter(|class| self.members[*class as usize] > 0);
        classes.filter_map(|class| self.next_of(now, class)).min()
    }
    /// When the next group with requests queued is due that is not due yet, or no longer waits for reads that are behind.
    pub(super) fn next_change(&self, now: Instant) -> Option<Instant> {
        let all = Class::ALL.into_iter();
        let states = [QueueState::Urgent, QueueState::Flush, QueueState::FlushBesideData];
        let states = states.map(|state| (state, Nanos::ZERO)).into_iter();
        let states =
            states.chain([Nanos::ZERO, BUFFERED_MAX].map(|lag| (QueueState::Buffered, lag)));
        let classes = all.filter(|class| self.members[*class as usize] > 0);
        let trees = classes.flat_map(|class| states.clone().map(move |state| (class, state)));
        let changes = trees.filter_map(|(class, (state, lag))| {
            let (at, _) = self.first_of(&self.trees[class as usize][state as usize])?;
            Some(at + lag).filter(|at| *at > now)
        });
        changes.min()
    }
    /// Changes of the gate by one class while no group of it is behind with urgent requests: groups that are not due yet,
    /// and buffered writes that wait for a read that is behind.
    fn next_of(&self, now: Instant, class: Class) -> Option<Instant> {
        let first = |state: QueueState| {
            let key = self.arena.first_key(&self.trees[class as usize][state as usize]);
            key.map(DueKey::at)
        };
        let buffered = first(QueueState::Buffered);
        let late = buffered.map(|at| if at <= now { at + BUFFERED_MAX } else { at });
        let later = first(QueueState::Flush).filter(|at| *at > now);
        first(QueueState::Urgent).into_iter().chain(late).chain(later).min()
    }
    /// The gate by the groups of one class.
    fn gate_of(&mut self, now: Instant, class: Class) -> Gate {
        let urgent = &self.trees[class as usize][QueueState::Urgent as usize];
        if urgent.len() == self.members[class as usize] as usize {
            let due = self.first_of(urgent).filter(|(at, _)| *at <= now);
            return due.map_or(Gate::Open, |(at, id)| Gate::Due(id, now.since(at)));
        }
        self.gate_of_states(now, class)
    }
    fn gate_of_states(&mut self, now: Instant, class: Class) -> Gate {
        self.end_pauses(now, class);
        let first = |state: QueueState| self.first_of(&self.trees[class as usize][state as usize]);
        let [urgent, buffered, flush] =
            [QueueState::Urgent, QueueState::Buffered, QueueState::Flush].map(first);
        let busy =
            [QueueState::Busy, QueueState::FlushBesideData].into_iter().filter_map(first).min();
        type First = Option<(Instant, EntityId)>;
        let due = |first: First, lag: Nanos| first.filter(|(at, _)| *at + lag <= now);
        if let Some((at, id)) = due(urgent, Nanos::ZERO).or(due(buffered, BUFFERED_MAX)) {
            return Gate::Due(id, now.since(at));
        }
        let next = self.next_of(now, class);
        if let Some((at, id)) = due(busy, Nanos::ZERO) {
            let until = self.pause_end(id).into_iter().chain(next).min();
            return Gate::Closed(now.since(at), until);
        }
        if let Some((at, id)) = due(buffered, Nanos::ZERO) {
            if self.gathers(id) {
                return Gate::Due(id, now.since(at));
            }
            return Gate::Batch(id, urgent.map(|(_, id)| id), next);
        }
        if let Some((at, id)) = due(flush, Nanos::ZERO) {
            return Gate::Due(id, now.since(at));
        }
        match due(first(QueueState::Flushing), Nanos::ZERO) {
            Some((at, _)) => Gate::Closed(now.since(at), next),
            None => Gate::Open,
        }
    }
    /// If a group is between two data requests: until when.
    fn pause_end(&self, id: EntityId) -> Option<Instant> {
        let Group { requests: own, clock, .. } = self.groups.get(id.as_group()?.index())?;
        let clock = clock.as_ref()?;
        match own.are_none() {
            true => Some(clock.idle_until),
            false => (!own.have_data()).then_some(clock.data_until),
        }
    }
    /// A group no longer counts as between two requests.
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
    /// Ends the pauses of groups that are behind and whose time between two requests has passed.
    fn end_pauses(&mut self, now: Instant, class: Class) {
        for state in [QueueState::Busy, QueueState::FlushBesideData] {
            while let Some((at, id)) = self.first_of(&self.trees[class as usize][state as usize]) {
                if at > now || self.pause_end(id).is_none_or(|until| until > now) {
                    break;
                }
                self.end_pause(id);
            }
        }
    }
    /// The group with only flushes queued that is furthest behind, in the most urgent class that has one.
    pub(super) fn flush_due(&self, now: Instant) -> Option<EntityId> {
        let due = |class: &Class| {
            let states = [QueueState::Flush, QueueState::FlushBesideData].into_iter();
            let trees = states.map(|state| &self.trees[*class as usize][state as usize]);
            let (at, id) = trees.filter_map(|tree| self.first_of(tree)).min()?;
            (at <= now).then_some(id)
        };
        Class::ALL.iter().find_map(due)
    }
    /// The largest lag of the groups that wait only for flushes.
    pub(super) fn flush_lag(&self, now: Instant) -> Nanos {
        let trees = self.trees.iter().flat_map(|states| {
            [QueueState::Flush, QueueState::Flushing].map(|state| &states[state as usize])
        });
        let first = trees.filter_map(|tree| self.first_of(tree)).min();
        first.map_or(Nanos::ZERO, |(at, _)| now.since(at))
    }
    /// The earliest clock of the groups of this class, or a more urgent one, that wait for data, and until when that group
    /// counts if it is between two requests. Groups for which `but` is true do not count.
    pub(super) fn first_with_data(
        &mut self,
        now: Instant,
        class: Class,
        but: impl Fn(EntityId) -> bool,
    ) -> (Option<Instant>, Option<Instant>) {
        let mut found: (Option<Instant>, Option<Instant>) = (None, None);
        for class in Class::ALL.into_iter().filter(|other| *other <= class) {
            for state in DATA {
                let mut node = self.arena.first(&self.trees[class as usize][state as usize]);
                while let Some(here) = node {
                    let key = self.arena.key(here);
                    let (at, id) = (key.at(), key.id());
                    if found.0.is_some_and(|first| at >= first) {
                        break;
                    }
                    node = self.arena.next(here);
                    let waits = matches!(state, QueueState::Busy | QueueState::FlushBesideData);
                    let until = self.pause_end(id).filter(|_| waits);
                    if until.is_some_and(|until| until <= now) {
                        self.end_pause(id);
                    } else if !but(id) {
                        found = (Some(at), until);
                    }
                }
            }
        }
        found
    }
}
