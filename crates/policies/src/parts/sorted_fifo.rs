//! Requests of one queue in two orders at once: by sector, to sweep and to merge, and by arrival, to
//! expire.
//!
//! Many queues (one a client, one a direction) share the tree nodes of one [`Sorted`] arena; the arrival
//! links lie in the pool. A queued request remembers its tree node in [`Requests::place`], so a policy
//! that keeps its requests here must leave `place` alone. Whoever needs "at or after a position", the
//! neighbours of a request, merging or the choice between two candidates by the
//! way of the head (A0: anticipatory, CFQ, BFQ) takes it from here.

use core::cmp::Reverse;

use super::tree::{Arena, NodeId, Summary, Tree};
use iofair_core::parts::fifo::Fifo;
use iofair_core::request::{Flags, RequestId, Requests};
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;

/// A queued request, and when it came into the queue (not into the engine: a throttle may lie between).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The request.
    pub id: RequestId,
    /// When it came into the queue.
    pub arrived: Instant,
}

impl Summary for Entry {
    type Of = ();
    fn alone(&self) {}
    fn join(_one: (), _other: ()) {}
}

/// The tree nodes that any number of queues share, by first sector.
pub type Sorted = Arena<Sectors, Entry>;

/// One queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SortedFifo {
    tree: Tree,
    fifo: Fifo,
}

/// What may be merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MergeRules {
    /// Also in front of a queued request, not only behind it.
    pub front: bool,
    /// Longest request there may be.
    pub max: Sectors,
}

/// A merge that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merged {
    /// The queued request that grew. Its first sector may have changed.
    pub into: RequestId,
    /// A queued request that `into` took in as well, because the merge closed the gap between them; it
    /// is in no queue any more.
    pub absorbed: Option<RequestId>,
}

impl SortedFifo {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { tree: Tree::new(), fifo: Fifo::new() }
    }
    /// Requests in it.
    pub const fn len(&self) -> usize {
        self.fifo.len()
    }
    /// Is nobody in it?
    pub const fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }
    /// Takes a request in.
    pub fn insert(&mut self, sorted: &mut Sorted, requests: &mut Requests, entry: Entry) {
        self.fifo.push_back(requests, entry.id);
        self.insert_by_sector(sorted, requests, entry);
    }
    fn insert_by_sector(&mut self, sorted: &mut Sorted, requests: &mut Requests, entry: Entry) {
        let node = sorted.insert(&mut self.tree, requests[entry.id].start, entry);
        requests.set_place(entry.id, node.0);
    }
    /// Takes a member out.
    pub fn remove(&mut self, sorted: &mut Sorted, requests: &mut Requests, id: RequestId) {
        self.fifo.remove(requests, id);
        sorted.remove(&mut self.tree, node(requests, id));
    }
    /// The member that came first.
    pub const fn oldest(&self) -> Option<RequestId> {
        self.fifo.front()
    }
    /// The member that came after `id`.
    pub fn next_by_arrival(&self, requests: &Requests, id: RequestId) -> Option<RequestId> {
        self.fifo.next(requests, id)
    }
    /// When a member came in.
    pub fn arrived(&self, sorted: &Sorted, requests: &Requests, id: RequestId) -> Instant {
        sorted.value(node(requests, id)).arrived
    }
    /// The member of the lowest first sector.
    pub fn first(&self, sorted: &Sorted) -> Option<RequestId> {
        sorted.first(&self.tree).map(|node| sorted.value(node).id)
    }
    /// The first member that starts at `position` or after it.
    pub fn at_or_after(&self, sorted: &Sorted, position: Sectors) -> Option<RequestId> {
        sorted.at_or_after(&self.tree, position).map(|node| sorted.value(node).id)
    }
    /// The last member that starts before `position`.
    pub fn before(&self, sorted: &Sorted, position: Sectors) -> Option<RequestId> {
        sorted.before(&self.tree, position).map(|node| sorted.value(node).id)
    }
    /// The member after `id` in the order of sectors.
    pub fn next(&self, sorted: &Sorted, requests: &Requests, id: RequestId) -> Option<RequestId> {
        sorted.next(node(requests, id)).map(|node| sorted.value(node).id)
    }
    /// The member before `id` in the order of sectors.
    pub fn previous(
        &self,
        sorted: &Sorted,
        requests: &Requests,
        id: RequestId,
    ) -> Option<RequestId> {
        sorted.previous(node(requests, id)).map(|node| sorted.value(node).id)
    }

    /// Tries to merge an incoming request into a member: behind the last one that starts before it,
    /// or in front of the first one that starts at its end. A merge behind can close the gap to the
    /// next member; the two become one then, under the identity and at the arrival of the older.
    ///
    /// Of several members that overlap each other only the nearest is looked at, as in the kernel.
    pub fn try_merge(
        &mut self,
        sorted: &mut Sorted,
        requests: &mut Requests,
        id: RequestId,
        rules: MergeRules,
    ) -> Option<Merged> {
        let (start, end) = (requests[id].start, requests[id].end());
        let before = sorted.before(&self.tree, start);
        // Nearly always the neighbour of the one is the other, and one way down the tree is enough.
        let next = before.map_or_else(|| sorted.first(&self.tree), |node| sorted.next(node));
        let overlaps = next.is_some_and(|node| sorted.key(node) < end);
        let after = if overlaps { sorted.at_or_after(&self.tree, end) } else { next };
        let after = after.map(|node| sorted.value(node).id);
        if let Some(before) = before.map(|node| sorted.value(node).id)
            && requests.can_merge(before, id, rules.max)
        {
            requests.merge_back(before, id);
            return Some(match after {
                Some(after) if requests.can_merge(before, after, rules.max) => {
                    self.join(sorted, requests, before, after)
                }
                _ => Merged { into: before, absorbed: None },
            });
        }
        // No gap to close after this one: what could follow on from before `id` would have taken it.
        let after = after.filter(|_| rules.front)?;
        if !requests.can_merge(id, after, rules.max) {
            return None;
        }
        requests.merge_front(after, id);
        self.resort(sorted, requests, after);
        Some(Merged { into: after, absorbed: None })
    }

    /// Makes one of two members that touch.
    fn join(
        &mut self,
        sorted: &mut Sorted,
        requests: &mut Requests,
        first: RequestId,
        second: RequestId,
    ) -> Merged {
        let age = |id| (sorted.value(node(requests, id)).arrived, requests[id].sequence);
        if age(first) <= age(second) {
            self.remove(sorted, requests, second);
            requests.merge_back(first, second);
            return Merged { into: first, absorbed: Some(second) };
        }
        self.remove(sorted, requests, first);
        requests.merge_front(second, first);
        self.resort(sorted, requests, second);
        Merged { into: second, absorbed: Some(first) }
    }
    /// Puts a member whose first sector changed where it belongs.
    fn resort(&mut self, sorted: &mut Sorted, requests: &Requests, id: RequestId) {
        let node = node(requests, id);
        sorted.replace(&mut self.tree, node, requests[id].start, sorted.value(node));
    }

    /// Who should follow `id`, still a member, if it goes to the drive now: the better (see
    /// [`choose`]) of its two neighbours in the order of sectors, where the first member follows the
    /// last. `None` when `id` is alone.
    pub fn next_request(
        &self,
        sorted: &Sorted,
        requests: &Requests,
        id: RequestId,
        rules: &SeekRules,
    ) -> Option<RequestId> {
        let previous = self.previous(sorted, requests, id);
        let wrapped = || self.first(sorted).filter(|first| *first != id);
        let next = self.next(sorted, requests, id).or_else(wrapped);
        match (previous, next) {
            (Some(a), Some(b)) => Some(choose(requests, (a, b), requests[id].start, rules)),
            (one, other) => one.or(other),
        }
    }
}

fn node(requests: &Requests, id: RequestId) -> NodeId {
    NodeId(requests.place(id))
}

/// How a way of the head is judged (A0).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeekRules {
    /// Farthest way back that counts as one; beyond it, and forwards round the end, is "wrapped".
    pub back_max: Sectors,
    /// A way back counts so many times as far as one forwards.
    pub back_penalty: u64,
    /// Synchronous requests go before others, then metadata before other data.
    pub urgent_first: bool,
}

impl SeekRules {
    /// Those of CFQ and BFQ: 16 MiB back, twice as far.
    pub const FAIR: Self =
        Self { back_max: Sectors::from_kib(16 << 10), back_penalty: 2, urgent_first: true };
    /// Those of the anticipatory scheduler: 512 MiB back, twice as far.
    pub const ANTICIPATORY: Self =
        Self { back_max: Sectors::from_kib(512 << 10), back_penalty: 2, urgent_first: false };
}

/// The better of two requests for a head at `position` (A0): the more urgent; the one that needs no
/// wrap; the nearer one, or of two wrapped ones the lower; on a tie the higher.
pub fn choose(
    requests: &Requests,
    (a, b): (RequestId, RequestId),
    position: Sectors,
    rules: &SeekRules,
) -> RequestId {
    let rank = |id: RequestId| {
        let request = &requests[id];
        let less_urgent = (!request.is_sync(), !request.flags.has(Flags::METADATA));
        let less_urgent = if rules.urgent_first { less_urgent } else { (false, false) };
        let start = request.start;
        let (wrapped, way) = if start >= position {
            (false, start.0 - position.0)
        } else if start + rules.back_max >= position {
            (false, (position.0 - start.0) * rules.back_penalty)
        } else {
            (true, start.0)
        };
        (less_urgent, wrapped, way, Reverse(start))
    };
    if rank(b) < rank(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_core::group::ClientId;
    use iofair_core::request::{Operation, Request};
    use std::vec::Vec;

    const RULES: MergeRules = MergeRules { front: true, max: Sectors(64) };

    #[derive(Default)]
    struct World {
        requests: Requests,
        sorted: Sorted,
        queue: SortedFifo,
        made: u64,
    }

    impl World {
        fn make(&mut self, start: u64, length: u64) -> RequestId {
            self.made += 1;
            let mut request = Request::of(ClientId(0), Operation::Read, start, length);
            (request.tag, request.sequence) = (self.made, self.made);
            self.requests.insert(request)
        }
        /// Merges or inserts.
        fn add(&mut self, start: u64, length: u64, rules: MergeRules) -> Option<Merged> {
            let id = self.make(start, length);
            let merged = self.queue.try_merge(&mut self.sorted, &mut self.requests, id, rules);
            if merged.is_none() {
                let entry = Entry { id, arrived: Instant(self.made) };
                self.queue.insert(&mut self.sorted, &mut self.requests, entry);
            }
            merged
        }
        fn by_sector(&self) -> Vec<(u64, u64)> {
            let (queue, sorted, requests) = (&self.queue, &self.sorted, &self.requests);
            let next = |id: &RequestId| queue.next(sorted, requests, *id);
            let all = core::iter::successors(queue.first(sorted), next);
            all.map(|id| (requests[id].start.0, requests[id].length.0)).collect()
        }
        fn by_arrival(&self) -> Vec<u64> {
            let next = |id: &RequestId| self.queue.next_by_arrival(&self.requests, *id);
            let all = core::iter::successors(self.queue.oldest(), next);
            all.map(|id| self.requests[id].start.0).collect()
        }
        fn tags(&self, id: RequestId) -> Vec<u64> {
            self.requests.parts(id).map(|(_, part)| part.tag).collect()
        }
    }

    /// Goal: both orders are kept. Method: four requests, one taken from the middle.
    #[test]
    fn two_orders_at_once() {
        let mut w = World::default();
        for start in [300, 100, 400, 200] {
            w.add(start, 8, RULES);
        }
        assert_eq!(w.by_arrival(), [300, 100, 400, 200]);
        assert_eq!(w.by_sector(), [(100, 8), (200, 8), (300, 8), (400, 8)]);
        let middle = w.queue.at_or_after(&w.sorted, Sectors(301)).expect("400");
        assert_eq!(w.queue.arrived(&w.sorted, &w.requests, middle), Instant(3));
        w.queue.remove(&mut w.sorted, &mut w.requests, middle);
        assert_eq!(w.by_arrival(), [300, 100, 200]);
        assert_eq!(w.queue.at_or_after(&w.sorted, Sectors(301)), None);
        assert_eq!(w.queue.len(), 3);
    }

    /// Goal: merges in both directions, in order, and no further than allowed. Method: a request
    /// grown behind, in front, to the limit, and with front merges off.
    #[test]
    fn merges_behind_and_in_front() {
        let mut w = World::default();
        w.add(100, 8, RULES);
        let behind = w.add(108, 8, RULES).expect("behind");
        let before = w.add(92, 8, RULES).expect("in front");
        assert_eq!(behind, before);
        assert_eq!((w.by_sector(), w.tags(behind.into)), ([(92, 24)].to_vec(), [3, 1, 2].to_vec()));
        assert_eq!(w.add(116, 41, RULES), None, "65 sectors are too many");
        let only_behind = MergeRules { front: false, ..RULES };
        assert_eq!(w.add(84, 8, only_behind), None);
        assert_eq!(w.by_sector(), [(84, 8), (92, 24), (116, 41)]);
    }

    /// Goal: a merge that closes a gap makes one of both neighbours, at the place of the older in the
    /// arrival order. Method: a hole filled with the younger in front, then behind.
    #[test]
    fn closing_a_gap_joins_the_neighbours() {
        for (starts, tags) in [([100, 500, 116], [1, 4, 3]), ([116, 500, 100], [3, 4, 1])] {
            let mut w = World::default();
            for start in starts {
                w.add(start, 8, RULES);
            }
            let merged = w.add(108, 8, RULES).expect("fills the gap");
            assert_eq!(w.tags(merged.into), tags);
            assert!(merged.absorbed.is_some());
            assert_eq!(w.by_sector(), [(100, 24), (500, 8)]);
            assert_eq!(w.by_arrival(), [100, 500], "the older one's place");
            assert_eq!(w.queue.len(), 2);
        }
    }

    /// Goal: A0's choice, case by case. Method: the page's rules with a head at 100,000.
    #[test]
    fn the_next_request_is_the_one_on_the_way() {
        let mut w = World::default();
        let at = |w: &mut World, start| w.make(start, 8);
        let [near, far] = [at(&mut w, 100_010), at(&mut w, 100_100)];
        let [back, low, lower] = [at(&mut w, 99_960), at(&mut w, 2_000), at(&mut w, 1_000)];
        let tie = at(&mut w, 100_080);
        let urgent = at(&mut w, 300_000);
        w.requests[urgent].flags = Flags::METADATA;
        let pick = |a, b| {
            let chosen = choose(&w.requests, (a, b), Sectors(100_000), &SeekRules::FAIR);
            assert_eq!(chosen, choose(&w.requests, (b, a), Sectors(100_000), &SeekRules::FAIR));
            chosen
        };
        assert_eq!(pick(near, far), near);
        assert_eq!(pick(back, near), near, "40 back count as 80");
        assert_eq!(pick(back, far), back, "80 are less than 100");
        assert_eq!(pick(back, tie), tie, "a tie goes forwards");
        assert_eq!(pick(low, far), far, "no wrap before a wrap");
        assert_eq!(pick(low, lower), lower, "of two wraps the lower");
        assert_eq!(pick(near, urgent), urgent, "metadata first");
        let rules = SeekRules::ANTICIPATORY;
        assert_eq!(choose(&w.requests, (near, urgent), Sectors(100_000), &rules), near);
        assert_eq!(choose(&w.requests, (low, lower), Sectors(100_000), &rules), low);
    }

    /// Goal: the follower of a request is the better neighbour; the order is a ring. Method: a row.
    #[test]
    fn who_follows() {
        let mut w = World::default();
        for start in [100, 130, 150, 900_000] {
            w.add(start, 8, RULES);
        }
        let follower = |start| {
            let id = w.queue.at_or_after(&w.sorted, Sectors(start)).expect("there");
            let next = w.queue.next_request(&w.sorted, &w.requests, id, &SeekRules::FAIR);
            w.requests[next.expect("not alone")].start.0
        };
        assert_eq!(follower(100), 130);
        assert_eq!(follower(130), 150, "20 forwards, not 30 back");
        assert_eq!(follower(150), 130, "20 back, not the far one");
        assert_eq!(follower(900_000), 100, "round the end to the lowest");
    }

    /// Goal: any mix of merges and removals keeps both orders, all sectors and all tags. Method:
    /// 20,000 random steps on a small drive against a plain list of starts and lengths.
    #[test]
    fn agrees_with_a_plain_list() {
        let mut w = World::default();
        let mut state = 11u64;
        let mut random = move |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let mut answered = 0;
        for _ in 0..20_000 {
            if random(3) > 0 {
                w.add(random(200) * 8, 8 * (1 + random(2)), RULES);
            } else if let Some(id) = w.queue.at_or_after(&w.sorted, Sectors(random(1600))) {
                w.queue.remove(&mut w.sorted, &mut w.requests, id);
                let request = w.requests[id].clone();
                let mut next = request.start;
                w.requests.end(id, |_, part| {
                    assert_eq!(part.start, next, "the parts touch");
                    next += part.length;
                    answered += 1;
                });
                assert_eq!(next, request.end(), "and fill the request");
            }
            assert_eq!(w.made, answered + w.requests.len() as u64);
        }
        let sectors = w.by_sector();
        assert!(sectors.is_sorted_by_key(|(start, _)| *start));
        assert_eq!(sectors.len(), w.queue.len());
        let mut arrival = w.by_arrival();
        arrival.sort_unstable();
        assert_eq!(arrival, sectors.iter().map(|(start, _)| *start).collect::<Vec<_>>());
    }
}
