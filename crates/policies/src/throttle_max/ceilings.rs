//! Ceilings of our own, for groups with a burst or a ceiling on reads and writes together. `throttle-max` passes what
//! blk-throttle's accounts let through on to this part; a group is limited by one of the two, never by both.
//!
//! *Idea.* Each rate of a group is a token bucket: reads, writes and both together, each in bytes and in requests. A
//! request leaves when all buckets from its group to the root have room for it, and is then charged to all of them at
//! the same time. Hence in any time `t`, at every group:
//!
//! ```text
//! passed <= max(burst, largest request) + rate * (t + late)
//! ```
//!
//! where `late` is the time by which wake-ups came late, as far as the buckets make up for it
//! ([`LATE_MAX`]).
//!
//! blk-throttle charges a request at its own group first and may then hold it at a parent, so that a group can exceed
//! its ceiling when the parent's ceiling lets it pass.
//!
//! *Order.* Where several groups inside one wait for its buckets, they take turns by start-time fair queueing (Goyal
//! 1996), in proportion to their weights; requests directly in the group count as one more group of weight 100. The
//! cost of a request is the time that it takes of the slowest bucket there or above. Reads and writes have separate
//! queues, so a ceiling on reads holds no write. They meet at a bucket for both: there and below, a group's reads and
//! writes are counted together, and requests directly in one group take turns of equal cost. While the queue whose turn
//! it is waits for that bucket, and for nothing else, the other one does not take what it waits for.
//!
//! *Work.* A request under all ceilings, with nothing held, costs a walk from its group to the root. A held one costs
//! O(log n) at each level, for n groups that wait there. Levels exist only once a contract needs them.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use crate::parts::levels::{FREE, cost};
use crate::parts::token_bucket::{LATE_MAX, TokenBucket, due};
use crate::parts::tree::{Arena, NodeId, Tree};
use iofair_core::bounds::{WEIGHT_DEFAULT, WEIGHT_MAX};
use iofair_core::contract::{BURST_DEFAULT, Limits};
use iofair_core::group::Groups;
use iofair_core::id::{GroupId, RequestId};
use iofair_core::parts::fifo::Fifo;
use iofair_core::request::Requests;
use iofair_core::time::{Instant, Nanos};

const ROOT: usize = GroupId::ROOT.index();
const NANOS_PER_S: u128 = 1_000_000_000;

/// Whether ceilings like these are enforced by this part.
pub(super) const fn applies(limits: &Limits) -> bool {
    limits.has_total() || limits.has_burst()
}

/// Token buckets for bytes and for requests.
#[derive(Clone, Copy, Default, Debug)]
struct Gate([Option<TokenBucket>; 2]);

impl Gate {
    const fn is_open(&self) -> bool {
        matches!(self.0, [None, None])
    }
    /// Whether a request costs nothing here: a further piece of one that was charged.
    fn is_free(&self, cost: [u64; 2]) -> bool {
        self.0.iter().zip(cost).all(|(bucket, cost)| bucket.is_none() || cost == 0)
    }
    /// Sets rates and bursts. A new bucket begins full.
    fn change(&mut self, now: Instant, rates: [Option<u64>; 2], bursts: [Option<u64>; 2]) {
        for ((bucket, rate), burst) in self.0.iter_mut().zip(rates).zip(bursts) {
            let fresh = rate.map(|rate| match burst {
                Some(units) => TokenBucket::of_depth(now, rate, units),
                None => TokenBucket::new(now, rate, BURST_DEFAULT),
            });
            match (bucket.as_mut(), fresh) {
                (Some(bucket), Some(fresh)) => bucket.change_to(now, fresh),
                (_, fresh) => *bucket = fresh,
            }
        }
    }
    fn ready_at(&self, cost: [u64; 2]) -> Instant {
        if cost == FREE {
            return Instant::ZERO;
        }
        let ready = self.0.iter().zip(cost);
        let ready = ready.filter_map(|(bucket, cost)| Some(bucket.as_ref()?.ready_at(cost)));
        ready.max().unwrap_or(Instant::ZERO)
    }
    fn take(&mut self, now: Instant, cost: [u64; 2]) {
        for (bucket, cost) in self.0.iter_mut().zip(cost) {
            if let Some(bucket) = bucket {
                bucket.take(now, cost);
            }
        }
    }
    /// The time that a request takes from the slower bucket.
    fn nanos(&self, cost: [u64; 2]) -> u128 {
        let times = self.0.iter().zip(cost).filter_map(|(bucket, cost)| {
            let rate = u128::from(bucket.as_ref()?.rate());
            Some((u128::from(cost) * NANOS_PER_S).div_ceil(rate))
        });
        times.max().unwrap_or(0)
    }
}

/// The state of the first request of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum HeadState {
    /// There is none.
    #[default]
    Empty,
    /// The level's buckets have no room before a certain time; the node is in the timers.
    Waits(NodeId),
    /// The other direction comes first and waits for the bucket of both.
    Behind,
    /// The level's buckets have room; the node is in the parent's `ready`. `None` at the root, where the request may leave.
    Offered(Option<NodeId>),
}

/// One direction of a level.
#[derive(Clone, Copy, Default, Debug)]
struct DirectionQueue {
    /// Requests of clients directly in the group, and their node in `ready`.
    requests: Fifo,
    place: Option<NodeId>,
    /// Child groups that offer a request, and `requests`, by start tag.
    ready: Tree,
    /// Start tag of the last request that left.
    vtime: u128,
    /// The first request of `ready`, and its cost.
    head: Option<(RequestId, [u64; 2])>,
    head_state: HeadState,
    /// The tags at which the last request of the group finished at the parent, and the last of `requests` here.
    finish: u128,
    requests_finish: u128,
    /// The tag at which the last of `requests` finished among those of both directions.
    turn: u128,
}

/// A group.
#[derive(Clone, Default, Debug)]
struct Level {
    parent: Option<u32>,
    weight: u32,
    /// Reads, writes.
    gates: [Gate; 2],
    /// Reads and writes together.
    total: Gate,
    queues: [DirectionQueue; 2],
    /// The direction whose turn it is.
    first: usize,
    /// Start tag of the last of the requests directly in the group, among those of both directions.
    turns: u128,
    /// Requests held here and below.
    held: u32,
}

impl Level {
    fn is_open(&self, direction: usize) -> bool {
        self.gates[direction].is_open() && self.total.is_open()
    }
    fn is_free(&self, direction: usize, cost: [u64; 2]) -> bool {
        self.gates[direction].is_free(cost) && self.total.is_free(cost)
    }
    fn ready_at(&self, direction: usize, cost: [u64; 2]) -> Instant {
        self.gates[direction].ready_at(cost).max(self.total.ready_at(cost))
    }
    /// The directions, the one whose turn it is first.
    const fn in_turn(&self) -> [usize; 2] {
        [self.first, 1 - self.first]
    }
}

/// The ceilings of all groups, and the requests that they hold.
#[derive(Default)]
pub(super) struct Ceilings {
    /// By group; empty until a contract needs them.
    levels: Vec<Level>,
    ready: Arena<u128, u32>,
    waiting: Arena<Instant, u32>,
    timers: Tree,
    /// The path from the root to the request that leaves.
    path: Vec<usize>,
    /// The time of the last call, and the time for which it was planned: earlier than that if the wake-up came late.
    now: Instant,
    planned: Instant,
    /// The last late wake-up.
    woken_late: Instant,
}

/// Changes of groups.
impl Ceilings {
    /// Adds a group, or changes its contract.
    pub(super) fn update(
        &mut self,
        now: Instant,
        groups: &Groups,
        requests: &Requests,
        id: GroupId,
    ) {
        self.begin(now);
        if !self.levels.is_empty() {
            self.put(now, groups, id);
            if self.levels[id.index()].held > 0 {
                self.settle(now, requests, id.index());
            }
        } else if applies(&groups.group(id).contract.max) {
            groups.iter().for_each(|(id, _)| self.put(now, groups, id));
        }
    }
    fn put(&mut self, now: Instant, groups: &Groups, id: GroupId) {
        let group = groups.group(id);
        let at = id.index();
        if self.levels.len() <= at {
            self.levels.resize(at + 1, Level::default());
            self.path.reserve(self.levels.len().min(iofair_core::bounds::DEPTH_MAX + 1));
        }
        let max = if applies(&group.contract.max) { group.contract.max } else { Limits::NONE };
        let bursts = [max.burst.bytes, max.burst.requests];
        let level = &mut self.levels[at];
        (level.parent, level.weight) =
            (group.parent.map(|parent| parent.index() as u32), group.contract.weight);
        for (direction, gate) in level.gates.iter_mut().enumerate() {
            gate.change(now, [max.bytes_per_s[direction], max.iops[direction]], bursts);
        }
        level.total.change(now, [max.total.bytes_per_s, max.total.iops], bursts);
    }
    /// All requests are somewhere else now; what was charged stays.
    pub(super) fn forget_requests(&mut self) {
        for level in &mut self.levels {
            level.queues = <[DirectionQueue; 2]>::default();
            (level.first, level.turns, level.held) = (0, 0, 0);
        }
        (self.ready, self.waiting) = (Arena::default(), Arena::default());
        self.timers = Tree::default();
    }
    /// Removes a group.
    pub(super) fn remove(&mut self, id: GroupId) {
        if let Some(level) = self.levels.get_mut(id.index()) {
            assert_eq!(level.held, 0, "{id:?} goes with requests inside");
            *level = Level::default();
        }
    }
}

/// Requests that are held.
impl Ceilings {
    /// Number of requests that are held.
    pub(super) fn held(&self) -> u64 {
        self.levels.first().map_or(0, |root| root.held.into())
    }
    /// The time at which the next request may leave.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let first = || self.waiting.first(&self.timers).map(|node| self.waiting.key(node));
        if self.leaving().is_some() { Some(self.now) } else { first() }
    }
    /// The time at which the first level at or above this group that waits for a bucket has room again.
    pub(super) fn ready_at(&self, id: GroupId, direction: usize) -> Option<Instant> {
        let queue = |level: &Level| match level.queues[direction].head_state {
            HeadState::Waits(node) => Some(self.waiting.key(node)),
            _ => None,
        };
        self.ancestry(id.index()).find_map(|at| queue(&self.levels[at]))
    }
    /// The direction of a request that may leave now.
    fn leaving(&self) -> Option<usize> {
        let root = self.levels.first()?;
        let offers = |d: &usize| matches!(root.queues[*d].head_state, HeadState::Offered(_));
        root.in_turn().into_iter().find(offers)
    }
    /// The levels from a group to the root.
    fn ancestry(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let known = (at < self.levels.len()).then_some(at);
        let parent = |at: &usize| self.levels[*at].parent.map(|parent| parent as usize);
        core::iter::successors(known, parent)
    }
}

/// Requests in and out.
impl Ceilings {
    /// Before anything else in a call: what is due.
    fn begin(&mut self, now: Instant) {
        if now != self.now {
            // Clients with few requests at a time send the next ones only after a late wake-up has let these go.
            let is_near = now.since(self.woken_late) <= LATE_MAX;
            let late = if is_near { self.now.since(self.planned) } else { Nanos::ZERO };
            (self.now, self.planned) = (now, now.saturating_sub(late));
        }
        let first = self.waiting.first(&self.timers).map(|node| self.waiting.key(node));
        if let Some(first) = first.filter(|first| *first < self.planned) {
            (self.planned, self.woken_late) = (first, now);
        }
    }
    /// Charges a request that passes, and returns `None`. Otherwise the request is held, and the index of the group that holds it is
    /// returned.
    pub(super) fn submit(
        &mut self,
        now: Instant,
        requests: &mut Requests,
        id: RequestId,
    ) -> Option<usize> {
        if self.levels.is_empty() {
            return None;
        }
        self.begin(now);
        let (group, direction) = (requests[id].group, requests[id].operation.direction() as usize);
        let cost = cost(requests, id);
        // A further piece of a request that has passed does not wait again behind others.
        let continues = cost[1] == 0;
        let (mut limited, mut full) = (None, None);
        for at in self.ancestry(group.index()) {
            let level = &self.levels[at];
            let free = continues && level.is_free(direction, cost);
            if !free && !level.is_open(direction) {
                let waits = level.held > 0 || level.ready_at(direction, cost) > now;
                limited = limited.or(Some(at));
                full = full.or(waits.then_some(at));
            }
        }
        // Requests before it may still wait although the ceilings were removed.
        let queued = !self.levels[group.index()].queues[direction].requests.is_empty();
        let queued = queued && (limited.is_some() || !continues);
        match full.or(queued.then_some(group.index())) {
            None => {
                if limited.is_some() {
                    let path = self.ancestry(group.index());
                    let ready = path.map(|at| self.levels[at].ready_at(direction, cost)).max();
                    let at = due(now, self.planned, ready.unwrap_or(now));
                    self.charge(at, group.index(), direction, cost);
                }
                None
            }
            Some(at) => {
                self.hold(now, requests, id);
                Some(at)
            }
        }
    }
    fn charge(&mut self, now: Instant, at: usize, direction: usize, cost: [u64; 2]) {
        let mut next = Some(at);
        while let Some(at) = next {
            let level = &mut self.levels[at];
            level.gates[direction].take(now, cost);
            level.total.take(now, cost);
            next = level.parent.map(|parent| parent as usize);
        }
    }
    fn hold(&mut self, now: Instant, requests: &mut Requests, id: RequestId) {
        let at = requests[id].group.index();
        let direction = requests[id].operation.direction() as usize;
        let queue = &mut self.levels[at].queues[direction];
        queue.requests.push_back(requests, id);
        if queue.place.is_none() {
            self.line_up(at, direction, None);
        }
        let mut next = Some(at);
        while let Some(at) = next {
            self.levels[at].held += 1;
            next = self.levels[at].parent.map(|parent| parent as usize);
        }
        self.settle(now, requests, at);
    }
    /// A request of this group was cancelled: if it is held here, it costs nothing from now on.
    pub(super) fn cancelled(&mut self, now: Instant, requests: &Requests, id: GroupId) {
        if self.levels.get(id.index()).is_some_and(|level| level.held > 0) {
            self.begin(now);
            self.settle(now, requests, id.index());
        }
    }
    /// Charges the next request that may leave, and returns it.
    pub(super) fn pop(&mut self, now: Instant, requests: &mut Requests) -> Option<RequestId> {
        if self.held() == 0 {
            return None;
        }
        self.begin(now);
        while let Some(node) = self.waiting.first(&self.timers) {
            if self.waiting.key(node) > now {
                break;
            }
            let at = self.waiting.value(node) as usize;
            self.settle(now, requests, at);
        }
        let direction = self.leaving()?;
        Some(self.send(now, requests, direction))
    }
}

/// How requests move up.
impl Ceilings {
    /// Updates the state of the queues of a level, and of the levels above as far as something changes.
    fn settle(&mut self, now: Instant, requests: &Requests, at: usize) {
        let mut next = Some(at);
        while let Some(at) = next.filter(|at| self.arrange(now, requests, *at)) {
            next = self.levels[at].parent.map(|parent| parent as usize);
        }
    }
    /// Returns whether the parent must be updated.
    fn arrange(&mut self, now: Instant, requests: &Requests, at: usize) -> bool {
        let mut seen = false;
        for direction in 0..2 {
            let head = self.head(requests, at, direction);
            let queue = &mut self.levels[at].queues[direction];
            seen |= core::mem::replace(&mut queue.head, head) != head;
        }
        let first = self.first(at);
        seen |= core::mem::replace(&mut self.levels[at].first, first) != first;
        let mut reserved = false;
        for direction in self.levels[at].in_turn() {
            let level = &self.levels[at];
            let Some((_, cost)) = level.queues[direction].head else {
                seen |= self.set_head_state(at, direction, None);
                continue;
            };
            let ready = match reserved {
                true => Instant::MAX,
                false => level.ready_at(direction, cost),
            };
            let total = level.total.ready_at(cost);
            reserved = total > now && level.gates[direction].ready_at(cost) <= now;
            seen |= self.set_head_state(at, direction, Some((now, ready)));
        }
        seen
    }
    /// The first request of a queue and its cost.
    fn head(
        &self,
        requests: &Requests,
        at: usize,
        direction: usize,
    ) -> Option<(RequestId, [u64; 2])> {
        let queue = &self.levels[at].queues[direction];
        let first = self.ready.value(self.ready.first(&queue.ready)?) as usize;
        if first != at {
            return self.levels[first].queues[direction].head;
        }
        let id = queue.requests.front().expect("requests stand in `ready` while there are some");
        Some((id, cost(requests, id)))
    }
    /// The direction whose turn it is by the tags. The turn is decided at the level where both directions are requests of the
    /// same group.
    fn first(&self, at: usize) -> usize {
        let level = &self.levels[at];
        let [reads, writes] = [0, 1].map(|d: usize| self.ready.first(&level.queues[d].ready));
        let (Some(reads), Some(writes)) = (reads, writes) else {
            return usize::from(reads.is_none());
        };
        let [read_by, written_by] = [reads, writes].map(|node| self.ready.value(node) as usize);
        if read_by != written_by {
            return usize::from(self.ready.key(writes) < self.ready.key(reads));
        }
        if read_by != at {
            return self.levels[read_by].first;
        }
        usize::from(level.queues[1].turn < level.queues[0].turn)
    }
    /// Sets the state of a queue: empty (`None`), or with a first request for which its buckets have room at a time;
    /// [`Instant::MAX`] if the other queue comes first. Returns whether the parent must be updated.
    fn set_head_state(
        &mut self,
        at: usize,
        direction: usize,
        ready: Option<(Instant, Instant)>,
    ) -> bool {
        let before = self.levels[at].queues[direction].head_state;
        let offers = ready.is_some_and(|(now, ready)| ready <= now);
        match before {
            HeadState::Offered(_) if offers => return false,
            HeadState::Empty if ready.is_none() => return false,
            HeadState::Waits(node) => drop(self.waiting.remove(&mut self.timers, node)),
            _ => {}
        }
        self.withdraw(at, direction);
        let fresh = match ready {
            None => HeadState::Empty,
            Some(_) if offers => HeadState::Offered(self.offer(at, direction)),
            Some((_, Instant::MAX)) => HeadState::Behind,
            Some((_, ready)) => {
                HeadState::Waits(self.waiting.insert(&mut self.timers, ready, at as u32))
            }
        };
        self.levels[at].queues[direction].head_state = fresh;
        offers || matches!(before, HeadState::Offered(_))
    }
    /// Takes a queue out of its parent's `ready`.
    fn withdraw(&mut self, at: usize, direction: usize) {
        let HeadState::Offered(Some(node)) = self.levels[at].queues[direction].head_state else {
            return;
        };
        let parent = self.levels[at].parent.expect("the root is offered to nobody") as usize;
        self.ready.remove(&mut self.levels[parent].queues[direction].ready, node);
        self.levels[at].queues[direction].head_state = HeadState::Empty;
    }
    fn offer(&mut self, at: usize, direction: usize) -> Option<NodeId> {
        let parent = self.levels[at].parent? as usize;
        let finish = self.levels[at].queues[direction].finish;
        let queue = &mut self.levels[parent].queues[direction];
        Some(self.ready.insert(&mut queue.ready, finish.max(queue.vtime), at as u32))
    }
    /// The first request of a direction leaves.
    fn send(&mut self, now: Instant, requests: &mut Requests, direction: usize) -> RequestId {
        let mut path = core::mem::take(&mut self.path);
        path.clear();
        let mut at = ROOT;
        loop {
            path.push(at);
            let queue = &self.levels[at].queues[direction];
            let first =
                self.ready.first(&queue.ready).expect("a queue with a head has one in front");
            match self.ready.value(first) as usize {
                first if first == at => break,
                first => at = first,
            }
        }
        let id = self.levels[at].queues[direction].requests.pop_front(requests);
        let id = id.expect("requests stand in `ready` while there are some");
        let cost = cost(requests, id);
        let ready = path.iter().map(|at| self.levels[*at].ready_at(direction, cost)).max();
        self.charge(due(now, self.planned, ready.unwrap_or(now)), at, direction, cost);
        self.count(&path, direction, cost);
        for at in path.iter().rev() {
            self.arrange(now, requests, *at);
        }
        self.path = path;
        id
    }
    /// Gives every group on the path its next tag.
    fn count(&mut self, path: &[usize], direction: usize, cost: [u64; 2]) {
        let (mut gates, mut totals, mut joint) = (1, 1, false);
        for (depth, at) in path.iter().enumerate() {
            let level = &mut self.levels[*at];
            level.held -= 1;
            joint |= !level.total.is_open();
            gates = level.gates[direction].nanos(cost).max(gates);
            totals = level.total.nanos(cost).max(totals);
            let nanos = if joint { totals } else { gates };
            let first = self.ready.first(&level.queues[direction].ready);
            let start = self.ready.key(first.expect("the path goes through it"));
            let finish = |weight: u32| start + nanos * u128::from(WEIGHT_MAX) / u128::from(weight);
            let counted = if joint { 0..2 } else { direction..direction + 1 };
            counted.clone().for_each(|d| level.queues[d].vtime = start.max(level.queues[d].vtime));
            match path.get(depth + 1) {
                Some(child) => {
                    let finish = finish(self.levels[*child].weight.max(1));
                    for d in counted {
                        self.withdraw(*child, d);
                        self.levels[*child].queues[d].finish = finish;
                    }
                }
                None => {
                    let finish = finish(WEIGHT_DEFAULT);
                    counted.for_each(|d| self.line_up(*at, d, Some(finish)));
                    let level = &mut self.levels[*at];
                    let turn = &mut level.queues[direction].turn;
                    let start = (*turn).max(level.turns);
                    (*turn, level.turns) = (start + nanos, start);
                }
            }
        }
    }
    /// Gives the requests directly in a group their next tag, at which their last one finished.
    fn line_up(&mut self, at: usize, direction: usize, finish: Option<u128>) {
        let level = &mut self.levels[at];
        let (turns, queue) = (level.turns, &mut level.queues[direction]);
        queue.requests_finish = finish.unwrap_or(queue.requests_finish);
        queue.turn = queue.turn.max(turns);
        if let Some(node) = queue.place.take() {
            self.ready.remove(&mut queue.ready, node);
        }
        if !queue.requests.is_empty() {
            let start = queue.requests_finish.max(queue.vtime);
            queue.place = Some(self.ready.insert(&mut queue.ready, start, at as u32));
        }
    }
}
