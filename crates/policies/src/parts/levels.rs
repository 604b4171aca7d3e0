//! blk-throttle's queues: a tree of levels through which requests climb, each charged at each level.
//!
//! Level 0 is above the root group, group g is level g + 1. A request enters at its group's level. Where
//! the level's account ([`Meter`]) has no room it is held, as one of the *sources* of that level (the
//! level's own requests, and one a child), which are served in turns; in its turn a child sends up to six
//! reads, then two writes. Levels that hold requests stand in their parent's tree by the time at which
//! they may send; the parent's timer stands at the first of these times. What passes the top leaves in
//! the order of its release.
//!
//! A policy brings its own [`Account`] a level: what the limits are at the moment.

use alloc::vec::Vec;

use super::meter::{Ask, Limit, LimitChange, Meter, Rule};
use super::tree::{Arena, NodeId, Tree};
use iofair_core::id::{GroupId, RequestId};
use iofair_core::parts::fifo::Fifo;
use iofair_core::request::{Direction, Flags, Operation, Requests};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::SECTOR_BYTES;

/// Most requests of a child in one turn: reads, then writes (`throtl_grp_quantum` 8, three quarters
/// reads).
const TURN: [u32; 2] = [6, 2];
const NIL: u32 = u32::MAX;

/// The cost of a cancelled request.
pub const FREE: [u64; 2] = [0, 0];

/// The level above the root group; requests that get there leave.
pub const TOP: usize = 0;

/// The level of a group.
pub const fn level_of(group: GroupId) -> usize {
    level_of_index(group.index())
}

/// The level of the group with this index.
pub const fn level_of_index(index: usize) -> usize {
    index + 1
}

/// The group of a level, as a number of a decision; not of the top.
pub const fn group_of(at: usize) -> u64 {
    (at - 1) as u64
}

/// What a request costs: bytes, requests. A discard counts as one sector, which its first piece pays; a cancelled request as
/// nothing.
pub fn cost(requests: &Requests, id: RequestId) -> [u64; 2] {
    let request = &requests[id];
    let first = u64::from(!request.flags.has(Flags::CONTINUES));
    match request.operation {
        _ if request.is_cancelled() => FREE,
        Operation::Discard => [SECTOR_BYTES * first, first],
        _ => [request.length.bytes(), first],
    }
}

/// What a policy keeps at each level.
pub trait Account {
    /// What it keeps for all levels together.
    type State;
    /// The limits in force now.
    fn limit(&self, state: &mut Self::State, now: Instant, direction: usize) -> Limit;
    /// A request of this cost (bytes, requests) passed the level.
    fn charged(&mut self, direction: usize, cost: [u64; 2]) {
        let _ = (direction, cost);
    }
}

/// One of the queues that a level serves in turns: a level's own requests of one direction, or those
/// that it passed and its parent holds back. Number `level * 4 + direction * 2 + (1 if at the parent)`.
#[derive(Clone, Copy, Debug)]
struct Source {
    requests: Fifo,
    next: u32,
}

/// The sources of one direction that have requests, next turn first.
#[derive(Clone, Copy, Debug)]
struct Turns {
    first: u32,
    last: u32,
    requests: u32,
}

const NO_TURNS: [Turns; 2] = [Turns { first: NIL, last: NIL, requests: 0 }; 2];
const NO_SOURCES: [Source; 4] = [Source { requests: Fifo::new(), next: NIL }; 4];

#[derive(Debug)]
struct Level<A> {
    parent: usize,
    account: A,
    meters: [Meter; 2],
    turns: [Turns; 2],
    sources: [Source; 4],
    /// In `waiting` of the parent, while requests are held here.
    place: Option<NodeId>,
    /// Children that hold requests, by the time at which they may send.
    waiting: Tree,
    /// In `timers`, while `waiting` is not empty.
    timer: Option<NodeId>,
    /// Got requests for a direction that had none: its time must be found anew.
    was_empty: bool,
}

impl<A> Level<A> {
    /// Whether a request that this direction's account counts waits.
    fn queued(&self, rule: Rule, direction: usize) -> bool {
        let other = &self.turns[1 - direction];
        self.turns[direction].requests > 0 || (rule.joint && other.requests > 0)
    }
}

/// The levels and all that they hold.
pub struct Levels<A: Account> {
    rule: Rule,
    /// Longest time that a timer stands ahead.
    sleep_max: Nanos,
    /// What the policy keeps for all levels together.
    pub state: A::State,
    levels: Vec<Level<A>>,
    nodes: Arena<Instant, u32>,
    /// Levels with waiting children, by the time of the first of these.
    timers: Tree,
    /// On their way out.
    passed: Fifo,
    held: u64,
}

/// Levels come and change.
impl<A: Account + Default> Levels<A> {
    /// Just the level above the root group.
    pub fn new(rule: Rule, sleep_max: Nanos, state: A::State) -> Self {
        let mut this = Self {
            rule,
            sleep_max,
            state,
            levels: Vec::new(),
            nodes: Arena::new(),
            timers: Tree::new(),
            passed: Fifo::new(),
            held: 0,
        };
        this.add(Instant::ZERO, TOP, TOP, A::default());
        this
    }
    /// A level is there now, new or again.
    pub fn add(&mut self, now: Instant, at: usize, parent: usize, account: A) {
        while self.levels.len() <= at {
            let level = self.level(now, TOP, A::default());
            self.levels.push(level);
        }
        self.levels[at] = self.level(now, parent, account);
    }
    fn level(&mut self, now: Instant, parent: usize, account: A) -> Level<A> {
        let meters =
            [0, 1].map(|d| Meter::new(now, self.rule, account.limit(&mut self.state, now, d)));
        Level {
            parent,
            account,
            meters,
            turns: NO_TURNS,
            sources: NO_SOURCES,
            place: None,
            waiting: Tree::new(),
            timer: None,
            was_empty: false,
        }
    }
}

impl<A: Account> Levels<A> {
    /// All requests are somewhere else now; what was charged stays.
    pub(crate) fn forget_requests(&mut self) {
        for level in &mut self.levels {
            (level.turns, level.sources) = (NO_TURNS, NO_SOURCES);
            (level.place, level.timer, level.was_empty) = (None, None, false);
            level.waiting = Tree::new();
        }
        (self.nodes, self.timers, self.passed) = (Arena::new(), Tree::new(), Fifo::new());
        self.held = 0;
    }
    /// The limits of a level were others (`old`) until now.
    pub fn limits_changed(
        &mut self,
        now: Instant,
        requests: &Requests,
        at: usize,
        old: [Limit; 2],
    ) {
        let meters = if self.rule.joint { 1 } else { 2 };
        for (direction, old) in old.into_iter().enumerate().take(meters) {
            let new = self.limit(now, at, direction);
            let level = &mut self.levels[at];
            let queued = level.queued(self.rule, direction);
            level.meters[direction].change(now, self.rule, LimitChange { old, new, queued });
        }
        if self.holds(at) {
            self.schedule(now, requests, at);
        }
    }
    /// The number of levels ever seen; the last ones may be unused.
    pub fn len(&self) -> usize {
        self.levels.len()
    }
    /// Never: the level above the root group is always there.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }
    /// The level above.
    pub fn parent(&self, at: usize) -> usize {
        self.levels[at].parent
    }
    /// What the policy keeps there.
    pub fn account(&self, at: usize) -> &A {
        &self.levels[at].account
    }
    /// What the policy keeps there.
    pub fn account_mut(&mut self, at: usize) -> &mut A {
        &mut self.levels[at].account
    }
    /// The limits in force.
    pub fn limit(&mut self, now: Instant, at: usize, direction: usize) -> Limit {
        self.levels[at].account.limit(&mut self.state, now, direction)
    }
    /// Requests held at a level in one direction.
    pub fn queued(&self, at: usize, direction: usize) -> u32 {
        self.levels[at].turns[direction].requests
    }
    /// Whether it holds requests.
    pub fn holds(&self, at: usize) -> bool {
        self.queued(at, 0) + self.queued(at, 1) > 0
    }
    /// When the first level at or above `at` that holds requests may send one.
    pub fn ready(&self, mut at: usize) -> Option<Instant> {
        while at != TOP {
            if let Some(place) = self.levels[at].place {
                return Some(self.nodes.key(place));
            }
            at = self.levels[at].parent;
        }
        None
    }
    /// Requests held in all.
    pub fn held(&self) -> u64 {
        self.held
    }
    /// Levels whose timer is set.
    pub fn timers(&self) -> usize {
        self.timers.len()
    }
    /// The time of the first timer.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.nodes.first(&self.timers).map(|node| self.nodes.key(node))
    }
}

/// The account of one level.
impl<A: Account> Levels<A> {
    /// Whether a request of this cost may pass, or when to ask again.
    pub fn wait(
        &mut self,
        now: Instant,
        at: usize,
        direction: usize,
        cost: [u64; 2],
    ) -> Option<Instant> {
        if cost == FREE {
            return None;
        }
        let level = &mut self.levels[at];
        let queued = level.queued(self.rule, direction);
        let limit = level.account.limit(&mut self.state, now, direction);
        level.meters[self.rule.meter(direction)].wait(now, self.rule, limit, Ask { cost, queued })
    }
    /// A request passes without having been held there.
    pub fn charge(&mut self, now: Instant, at: usize, direction: usize, cost: [u64; 2]) {
        let level = &mut self.levels[at];
        level.meters[self.rule.meter(direction)].charge(now, cost);
        level.account.charged(direction, cost);
        self.trim(now, at, direction);
    }
    fn trim(&mut self, now: Instant, at: usize, direction: usize) {
        let level = &mut self.levels[at];
        let limit = level.account.limit(&mut self.state, now, direction);
        level.meters[self.rule.meter(direction)].trim(now, self.rule, limit);
    }
}

/// A request comes to a level.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The level.
    pub at: usize,
    /// The child that it comes up from, or the level itself if it was submitted there.
    pub from: usize,
}

/// Requests go in and out.
impl<A: Account> Levels<A> {
    /// A request needs not wait any more.
    pub fn pass(&mut self, requests: &mut Requests, id: RequestId) {
        self.passed.push_back(requests, id);
    }
    /// The next request that leaves.
    pub fn pop_passed(&mut self, requests: &mut Requests) -> Option<RequestId> {
        self.passed.pop_front(requests)
    }
    /// Whether a request is about to leave.
    pub fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }
    /// Holds a request at a level.
    pub fn hold(&mut self, now: Instant, requests: &mut Requests, arrival: Arrival, id: RequestId) {
        let Arrival { at, from } = arrival;
        let direction = requests[id].operation.direction() as usize;
        let source = from * 4 + direction * 2 + usize::from(from != at);
        self.enqueue(requests, at, source, id);
        if self.levels[at].was_empty {
            self.schedule(now, requests, at);
        }
    }
    fn source(&mut self, source: u32) -> &mut Source {
        &mut self.levels[source as usize / 4].sources[source as usize % 4]
    }
    fn enqueue(&mut self, requests: &mut Requests, at: usize, source: usize, id: RequestId) {
        let (index, direction) = (source as u32, source / 2 % 2);
        let joins = self.source(index).requests.is_empty();
        self.source(index).requests.push_back(requests, id);
        if joins {
            self.append(at, direction, index);
        }
        let level = &mut self.levels[at];
        level.was_empty |= level.turns[direction].requests == 0;
        level.turns[direction].requests += 1;
        self.held += 1;
    }
    fn append(&mut self, at: usize, direction: usize, source: u32) {
        self.source(source).next = NIL;
        let turns = &mut self.levels[at].turns[direction];
        let last = core::mem::replace(&mut turns.last, source);
        match last {
            NIL => turns.first = source,
            last => self.source(last).next = source,
        }
    }
    /// The request whose turn it is.
    fn peek(&self, at: usize, direction: usize) -> Option<RequestId> {
        match self.levels[at].turns[direction].first {
            NIL => None,
            first => self.levels[first as usize / 4].sources[first as usize % 4].requests.front(),
        }
    }
    /// Takes it out; its source goes to the end.
    fn pop(&mut self, requests: &mut Requests, at: usize, direction: usize) -> RequestId {
        let first = self.levels[at].turns[direction].first;
        let source = self.source(first);
        let id = source.requests.pop_front(requests).expect("a source in turn has requests");
        let (next, more) = (source.next, !source.requests.is_empty());
        let turns = &mut self.levels[at].turns[direction];
        turns.first = next;
        turns.requests -= 1;
        if next == NIL {
            turns.last = NIL;
        }
        if more {
            self.append(at, direction, first);
        }
        self.held -= 1;
        id
    }
}

/// A wake-up, which may be later than planned.
#[derive(Clone, Copy)]
struct Wakeup {
    now: Instant,
    planned: Instant,
}

/// When held requests go.
impl<A: Account> Levels<A> {
    /// Finds when a level that holds requests may send the first of them.
    fn schedule(&mut self, now: Instant, requests: &Requests, at: usize) {
        self.levels[at].was_empty = false;
        let mut first = Instant::MAX;
        for direction in 0..2 {
            if let Some(id) = self.peek(at, direction) {
                let ready = self.wait(now, at, direction, cost(requests, id));
                first = first.min(ready.unwrap_or(now));
            }
        }
        self.stand_at(now, at, first);
    }
    fn stand_at(&mut self, now: Instant, at: usize, first: Instant) {
        let parent = self.levels[at].parent;
        self.unschedule(at);
        let waiting = &mut self.levels[parent].waiting;
        let node = self.nodes.insert(waiting, first, at as u32);
        self.levels[at].place = Some(node);
        self.set_timer(now, parent);
    }
    fn unschedule(&mut self, at: usize) {
        if let Some(node) = self.levels[at].place.take() {
            let parent = self.levels[at].parent;
            self.nodes.remove(&mut self.levels[parent].waiting, node);
        }
    }
    /// The timer of a level stands at the time of its first waiting child, or as far ahead as timers
    /// may.
    fn set_timer(&mut self, now: Instant, at: usize) {
        let level = &mut self.levels[at];
        let first = self.nodes.first(&level.waiting).map(|node| self.nodes.key(node));
        let first = first.map(|first| first.min(now + self.sleep_max));
        let set = level.timer.map(|timer| self.nodes.key(timer));
        if first == set {
            return;
        }
        if let Some(timer) = level.timer.take() {
            self.nodes.remove(&mut self.timers, timer);
        }
        if let Some(first) = first {
            level.timer = Some(self.nodes.insert(&mut self.timers, first, at as u32));
        }
    }
    /// Asks every level that holds requests again at once: limits are others now.
    pub fn ask_all_again(&mut self, now: Instant) {
        for at in 0..self.levels.len() {
            if self.levels[at].place.is_some() {
                self.stand_at(now, at, now);
            }
        }
    }
    /// A request that entered at this level was cancelled: the level that holds it may send it at once.
    pub fn cancelled(&mut self, now: Instant, requests: &Requests, mut at: usize) {
        while at != TOP {
            if self.holds(at) {
                self.schedule(now, requests, at);
            }
            at = self.levels[at].parent;
        }
    }
    /// The level whose timer is due.
    pub fn due(&self, now: Instant) -> Option<usize> {
        let timer = self.nodes.first(&self.timers)?;
        (self.nodes.key(timer) <= now).then(|| self.nodes.value(timer) as usize)
    }
    /// The timer of a level went off: what its children may send goes one level up.
    pub fn serve(&mut self, now: Instant, requests: &mut Requests, at: usize) {
        let first = self.nodes.first(&self.levels[at].waiting).map(|node| self.nodes.key(node));
        let wakeup = Wakeup { now, planned: first.unwrap_or(now) };
        while let Some(node) = self.nodes.first(&self.levels[at].waiting) {
            if self.nodes.key(node) > now {
                break;
            }
            let child = self.nodes.value(node) as usize;
            self.take_turn(wakeup, requests, child);
            match self.holds(child) {
                true => self.schedule(now, requests, child),
                false => self.unschedule(child),
            }
        }
        self.set_timer(now, at);
        if at != TOP && self.levels[at].was_empty {
            self.schedule(now, requests, at);
        }
    }
    fn take_turn(&mut self, wakeup: Wakeup, requests: &mut Requests, at: usize) {
        for direction in Direction::BOTH {
            let direction = direction as usize;
            for _ in 0..TURN[direction] {
                let Some(id) = self.peek(at, direction) else { break };
                let cost = cost(requests, id);
                if self.wait(wakeup.now, at, direction, cost).is_some() {
                    break;
                }
                self.send_up(wakeup, requests, at, direction);
            }
        }
    }
    /// The request whose turn it is goes one level up.
    fn send_up(
        &mut self,
        Wakeup { now, planned }: Wakeup,
        requests: &mut Requests,
        at: usize,
        direction: usize,
    ) {
        let id = self.pop(requests, at, direction);
        let cost = cost(requests, id);
        let level = &mut self.levels[at];
        level.meters[self.rule.meter(direction)].charge_held(now, planned, cost);
        level.account.charged(direction, cost);
        let parent = level.parent;
        if parent == TOP {
            self.passed.push_back(requests, id);
        } else {
            self.enqueue(requests, parent, at * 4 + direction * 2 + 1, id);
            let meter = self.rule.meter(direction);
            let child = self.levels[at].meters[meter];
            self.levels[parent].meters[meter].credit_from(now, self.rule, &child);
        }
        self.trim(now, at, direction);
    }
}
