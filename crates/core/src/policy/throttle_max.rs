//! `throttle-max` (`max`): ceilings in bytes and requests a second, as the kernel's blk-throttle.
//!
//! *Idea.* A group with a ceiling sends what its current time slice allows; the rest waits in the group,
//! first come, first served, and is let go when the account allows. Groups nest: a request climbs from
//! its group to the root and is charged at each level. Where it has to wait it queues as one of the
//! *sources* of that level (the level's own requests, and one a child), served in turns.
//!
//! *Equations*, by direction (reads; everything else), on a clock of milliseconds, with `slice` = 100 ms.
//! `elapsed` counts from the slice's start, `up()` rounds up to whole slices:
//!
//! ```text
//! bytes      allowed = rate * up(elapsed)        over = sent + size - allowed
//!            wait    = max(over / rate, 1 ms) + up(elapsed) - elapsed          when over > 0
//! requests   allowed = rate * up(elapsed + 1)
//!            wait    = until the slice begins that allows it                  when sent + 1 > allowed
//! ```
//!
//! The longer wait counts. A slice that is over is replaced by a fresh one if nothing is queued, else
//! extended. After each request whole slices gone by are *trimmed*: what they allowed is taken off the
//! account and the start moves on. So a whole slice's worth goes at once at the slice's start, and the
//! long-run rate is the ceiling. A request that comes up from a child starts its parent's slice, if none
//! is under way, where the child's started (credit for its wait). In its turn a child sends up to six
//! reads, then two writes. A discard counts as 512 bytes.
//!
//! *Parameters.* `linux_7`: the accounts of Linux 7.0, which keep one slice when trimming, wait at
//! least `1 / rate` for the next request, and carry what was saved or owed over to a changed limit;
//! without it 4.18, which starts anew when a limit changes, whereupon waiting requests are asked again
//! at once. `burst`: not blk-throttle but token buckets of our own, exact to the nanosecond: that much
//! time's worth of the rate may be saved up, everything else is spaced evenly.
//!
//! *Source.* Linux `block/blk-throttle.c`, 4.18 (RHEL 8) and 7.0 (policies.md A11). *Where we differ*: the
//! root group may have a ceiling too; requests that pass the top leave in the order of their release,
//! not reads first; the kernel pauses after 32 requests of one level to let others have the lock, which
//! changes no order and is left out; where the kernel asks at each slice whether a request fits its
//! account, we find that slice at once; 7.0's separate queues for the two kinds of wait are one here.

mod meter;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Build, Context, Gauges, Policy, Role, Row};
use crate::contract::Limits;
use crate::group::{Change, GroupId, Groups};
use crate::params::{Kind, Parameter};
use crate::parts::fifo::Fifo;
use crate::parts::tree::{Arena, NodeId, Summary, Tree};
use crate::request::{Direction, Operation, RequestId, Requests};
use crate::time::{Instant, Nanos};
use crate::trace::Subject;
use crate::unit::SECTOR_BYTES;
use meter::{Limit, Meter, Rule};

/// Its row in the table.
pub static ROW: Row = Row {
    name: "throttle-max",
    short: "max",
    role: Role::Throttle,
    summary: "ceilings in bytes and requests a second, hierarchical, as blk-throttle",
    file: "throttle_max.rs",
    parameters: PARAMETERS,
    overrides: &[],
    build,
};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "slice",
        doc: "time over which a ceiling holds, in whole milliseconds",
        kind: Kind::Time,
        default: 100 * MILLISECOND,
        range: (MILLISECOND, 1000 * MILLISECOND),
    },
    Parameter::bool("linux_7", false, "accounts of Linux 7.0, not of 4.18"),
    Parameter::time("burst", Nanos::ZERO, "token buckets that save up this much; 0: time slices"),
];
const MILLISECOND: u64 = 1_000_000;

/// Most requests of a child in one turn: reads, then writes (`throtl_grp_quantum` 8, three quarters
/// reads).
const TURN: [u32; 2] = [6, 2];

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let rule = Rule {
        slice_ms: build.values.time("slice").as_millis().max(1),
        linux_7: build.values.bool("linux_7"),
        burst: build.values.time("burst"),
    };
    let mut this = ThrottleMax {
        rule,
        levels: Vec::new(),
        nodes: Arena::new(),
        timers: Tree::new(),
        passed: Fifo::new(),
        held: 0,
        walk: Vec::new(),
    };
    this.levels.push(Level::new(Instant::ZERO, rule, TOP, &Limits::default()));
    Box::new(this)
}

/// The level above the root group; requests that get there leave. Group g is level g + 1.
const TOP: usize = 0;
const NIL: u32 = u32::MAX;

const fn level_of(group: GroupId) -> usize {
    group.index() + 1
}

/// A level in a tree, by the time at which it wants something.
#[derive(Clone, Copy, Debug)]
struct Entry(u32);

impl Summary for Entry {
    type Of = ();
    fn alone(&self) {}
    fn join(_one: (), _other: ()) {}
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

#[derive(Debug)]
struct Level {
    parent: usize,
    limits: [Limit; 2],
    /// By direction: is there a ceiling here or above?
    limited: [bool; 2],
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

impl Level {
    fn new(now: Instant, rule: Rule, parent: usize, limits: &Limits) -> Self {
        let limits = limits_by_direction(limits);
        Self {
            parent,
            limits,
            limited: [false; 2],
            meters: limits.map(|limit| Meter::new(now, rule, limit)),
            turns: [Turns { first: NIL, last: NIL, requests: 0 }; 2],
            sources: [Source { requests: Fifo::new(), next: NIL }; 4],
            place: None,
            waiting: Tree::new(),
            timer: None,
            was_empty: false,
        }
    }
    fn holds(&self) -> bool {
        self.turns[0].requests + self.turns[1].requests > 0
    }
}

/// A ceiling of zero would hold for ever; it counts as one.
fn limits_by_direction(limits: &Limits) -> [Limit; 2] {
    [0, 1].map(|d| Limit([limits.bytes_per_s[d], limits.iops[d]].map(|l| l.map(|l| l.max(1)))))
}

/// What a request costs: bytes, requests.
fn cost(requests: &Requests, id: RequestId) -> [u64; 2] {
    let request = &requests[id];
    match request.operation {
        Operation::Discard => [SECTOR_BYTES, 1],
        _ => [request.length.bytes(), 1],
    }
}

struct ThrottleMax {
    rule: Rule,
    levels: Vec<Level>,
    nodes: Arena<Instant, Entry>,
    /// Levels with waiting children, by the time of the first of these.
    timers: Tree,
    /// On their way out.
    passed: Fifo,
    held: u64,
    walk: Vec<GroupId>,
}

impl Policy for ThrottleMax {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let request = &cx.requests[id];
        let (direction, mut at) = (request.operation.direction() as usize, level_of(request.group));
        if !self.levels[at].limited[direction] {
            self.passed.push_back(cx.requests, id);
            return;
        }
        let cost = cost(cx.requests, id);
        let mut source = at * 4 + direction * 2;
        while at != TOP {
            let holds = self.levels[at].turns[direction].requests > 0;
            if holds || self.wait(cx.now, at, direction, cost).is_some() {
                self.hold(cx.requests, at, source, id);
                if self.levels[at].was_empty {
                    self.schedule(cx, at);
                }
                let sequence = cx.requests[id].sequence;
                let subject = Subject::Request { id, sequence };
                cx.decide(subject, "over the ceiling of level", [at as u64, self.held]);
                return;
            }
            self.charge(cx.now, at, direction, cost);
            source = at * 4 + direction * 2 + 1;
            at = self.levels[at].parent;
        }
        self.passed.push_back(cx.requests, id);
    }

    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        if self.passed.is_empty() {
            self.release(cx);
        }
        self.passed.pop_front(cx.requests)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.nodes.first(&self.timers).map(|node| self.nodes.key(node))
    }

    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) => self.add(cx, id),
            Change::GroupUpdated(id) => self.update(cx, id),
            Change::GroupRemoved(id) => {
                assert!(!self.levels[level_of(id)].holds(), "{id:?} goes with requests inside");
            }
            _ => {}
        }
    }

    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("held_requests", self.held);
        gauges.gauge("levels_waiting_for", self.timers.len() as u64);
    }
}

/// Groups come and change.
impl ThrottleMax {
    fn add(&mut self, cx: &Context<'_>, id: GroupId) {
        let group = cx.groups.group(id);
        let parent = group.parent.map_or(TOP, level_of);
        let level = Level::new(cx.now, self.rule, parent, &group.contract.max);
        let index = level_of(id);
        while self.levels.len() <= index {
            let unused = Level::new(cx.now, self.rule, TOP, &Limits::default());
            self.levels.push(unused);
        }
        self.levels[index] = level;
        self.find_limited(index);
    }
    fn find_limited(&mut self, at: usize) {
        for direction in 0..2 {
            let above = self.levels[self.levels[at].parent].limited[direction];
            let level = &mut self.levels[at];
            level.limited[direction] = above || !level.limits[direction].is_none();
        }
    }
    fn update(&mut self, cx: &mut Context<'_>, id: GroupId) {
        let (at, now, rule) = (level_of(id), cx.now, self.rule);
        let limits = limits_by_direction(&cx.groups.group(id).contract.max);
        let level = &mut self.levels[at];
        if level.limits == limits {
            return;
        }
        let old = core::mem::replace(&mut level.limits, limits);
        for direction in 0..2 {
            let change = (old[direction], limits[direction]);
            let queued = level.turns[direction].requests > 0;
            level.meters[direction].change(now, rule, change, queued);
        }
        self.find_limited_below(cx.groups, id);
        if self.levels[at].holds() {
            self.schedule(cx, at);
        }
    }
    fn find_limited_below(&mut self, groups: &Groups, id: GroupId) {
        let mut walk = core::mem::take(&mut self.walk);
        walk.push(id);
        while let Some(id) = walk.pop() {
            self.find_limited(level_of(id));
            walk.extend_from_slice(&groups.group(id).children);
        }
        self.walk = walk;
    }
}

/// The account of one level.
impl ThrottleMax {
    fn wait(
        &mut self,
        now: Instant,
        at: usize,
        direction: usize,
        cost: [u64; 2],
    ) -> Option<Instant> {
        let rule = self.rule;
        let level = &mut self.levels[at];
        let queued = level.turns[direction].requests > 0;
        level.meters[direction].wait(now, rule, level.limits[direction], (cost, queued))
    }
    fn charge(&mut self, now: Instant, at: usize, direction: usize, cost: [u64; 2]) {
        self.levels[at].meters[direction].charge(now, cost);
        self.trim(now, at, direction);
    }
    fn trim(&mut self, now: Instant, at: usize, direction: usize) {
        let rule = self.rule;
        let level = &mut self.levels[at];
        level.meters[direction].trim(now, rule, level.limits[direction]);
    }
}

/// Holding requests back and letting them go.
impl ThrottleMax {
    fn source(&mut self, source: u32) -> &mut Source {
        &mut self.levels[source as usize / 4].sources[source as usize % 4]
    }
    fn hold(&mut self, requests: &mut Requests, at: usize, source: usize, id: RequestId) {
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

    /// Finds when a level that holds requests may send the first of them.
    fn schedule(&mut self, cx: &Context<'_>, at: usize) {
        self.levels[at].was_empty = false;
        let mut first = Instant::MAX;
        for direction in 0..2 {
            if let Some(id) = self.peek(at, direction) {
                let cost = cost(cx.requests, id);
                let ready = self.wait(cx.now, at, direction, cost);
                first = first.min(ready.unwrap_or(cx.now));
            }
        }
        let parent = self.levels[at].parent;
        self.unschedule(at);
        let waiting = &mut self.levels[parent].waiting;
        let node = self.nodes.insert(waiting, first, Entry(at as u32));
        self.levels[at].place = Some(node);
        self.set_timer(parent);
    }
    fn unschedule(&mut self, at: usize) {
        if let Some(node) = self.levels[at].place.take() {
            let parent = self.levels[at].parent;
            self.nodes.remove(&mut self.levels[parent].waiting, node);
        }
    }
    /// The timer of a level stands at the time of its first waiting child.
    fn set_timer(&mut self, at: usize) {
        let level = &mut self.levels[at];
        let first = self.nodes.first(&level.waiting).map(|node| self.nodes.key(node));
        let set = level.timer.map(|timer| self.nodes.key(timer));
        if first == set {
            return;
        }
        if let Some(timer) = level.timer.take() {
            self.nodes.remove(&mut self.timers, timer);
        }
        if let Some(first) = first {
            level.timer = Some(self.nodes.insert(&mut self.timers, first, Entry(at as u32)));
        }
    }
    /// Lets go whatever may go by now, level by level.
    fn release(&mut self, cx: &mut Context<'_>) {
        while let Some(timer) = self.nodes.first(&self.timers) {
            if self.nodes.key(timer) > cx.now {
                return;
            }
            let at = self.nodes.value(timer).0 as usize;
            self.serve_children(cx, at);
            if at != TOP && self.levels[at].was_empty {
                self.schedule(cx, at);
            }
        }
    }
    fn serve_children(&mut self, cx: &mut Context<'_>, at: usize) {
        while let Some(node) = self.nodes.first(&self.levels[at].waiting) {
            if self.nodes.key(node) > cx.now {
                break;
            }
            let child = self.nodes.value(node).0 as usize;
            self.take_turn(cx, child);
            match self.levels[child].holds() {
                true => self.schedule(cx, child),
                false => self.unschedule(child),
            }
        }
        self.set_timer(at);
    }
    fn take_turn(&mut self, cx: &mut Context<'_>, at: usize) {
        for direction in Direction::BOTH {
            let direction = direction as usize;
            for _ in 0..TURN[direction] {
                let Some(id) = self.peek(at, direction) else { break };
                let cost = cost(cx.requests, id);
                if self.wait(cx.now, at, direction, cost).is_some() {
                    break;
                }
                self.send_up(cx, at, direction, cost);
            }
        }
    }
    /// The request whose turn it is goes one level up.
    fn send_up(&mut self, cx: &mut Context<'_>, at: usize, direction: usize, cost: [u64; 2]) {
        let id = self.pop(cx.requests, at, direction);
        self.levels[at].meters[direction].charge(cx.now, cost);
        let parent = self.levels[at].parent;
        if parent == TOP {
            self.passed.push_back(cx.requests, id);
        } else {
            self.hold(cx.requests, parent, at * 4 + direction * 2 + 1, id);
            let child = self.levels[at].meters[direction];
            self.levels[parent].meters[direction].credit_from(cx.now, self.rule, &child);
        }
        self.trim(cx.now, at, direction);
    }
}
