//! A queue of requests in two orders: by sector, for batches and merging, and by arrival, for deadlines.
//!
//! Many queues (one per client, or per direction) share the tree nodes of one [`Sorted`] arena; the links by arrival
//! are in the pool of requests. A queued request stores its tree node in [`Requests::place`], so a policy that uses
//! this queue must not change `place`. The queue also finds the first request at or after a position, finds the
//! neighbours of a request, merges, and chooses between two candidates by the movement of the head (as anticipatory,
//! CFQ and BFQ do).

use core::cmp::Reverse;

use super::tree::{Arena, NodeId, Summary, Tree};
use iofair_core::id::RequestId;
use iofair_core::parts::fifo::Fifo;
use iofair_core::request::{Flags, Requests};
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;

/// A queued request, and when it entered the queue (which may be later than its submission, because of throttles).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The request.
    pub id: RequestId,
    /// When it entered the queue.
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

/// Rules for merging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MergeRules {
    /// Whether front merges are allowed, too.
    pub front: bool,
    /// Length of the longest request.
    pub max: Sectors,
}

/// The result of a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merged {
    /// The queued request that grew. Its first sector may have changed.
    pub into: RequestId,
    /// A queued request that was joined with `into`, because the merge closed the gap between them; it is in no queue
    /// any more.
    pub absorbed: Option<RequestId>,
}

impl SortedFifo {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { tree: Tree::new(), fifo: Fifo::new() }
    }
    /// Number of requests.
    pub const fn len(&self) -> usize {
        self.fifo.len()
    }
    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }
    /// Adds a request.
    pub fn insert(&mut self, sorted: &mut Sorted, requests: &mut Requests, entry: Entry) {
        self.fifo.push_back(requests, entry.id);
        self.insert_by_sector(sorted, requests, entry);
    }
    fn insert_by_sector(&mut self, sorted: &mut Sorted, requests: &mut Requests, entry: Entry) {
        let node = sorted.insert(&mut self.tree, requests[entry.id].start, entry);
        requests.set_place(entry.id, node.0);
    }
    /// Removes a request of this queue.
    pub fn remove(&mut self, sorted: &mut Sorted, requests: &mut Requests, id: RequestId) {
        self.fifo.remove(requests, id);
        sorted.remove(&mut self.tree, node(requests, id));
    }
    /// The request that arrived first.
    pub const fn oldest(&self) -> Option<RequestId> {
        self.fifo.front()
    }
    /// When a request entered the queue.
    pub fn arrived(&self, sorted: &Sorted, requests: &Requests, id: RequestId) -> Instant {
        sorted.value(node(requests, id)).arrived
    }
    /// The request with the lowest first sector.
    pub fn first(&self, sorted: &Sorted) -> Option<RequestId> {
        sorted.first(&self.tree).map(|node| sorted.value(node).id)
    }
    /// The first request that starts at or after `position`.
    pub(crate) fn at_or_after(&self, sorted: &Sorted, position: Sectors) -> Option<RequestId> {
        sorted.at_or_after(&self.tree, position).map(|node| sorted.value(node).id)
    }
    /// The next request after `id` by sector.
    pub fn next(&self, sorted: &Sorted, requests: &Requests, id: RequestId) -> Option<RequestId> {
        sorted.next(node(requests, id)).map(|node| sorted.value(node).id)
    }
    /// The previous request before `id` by sector.
    pub fn previous(
        &self,
        sorted: &Sorted,
        requests: &Requests,
        id: RequestId,
    ) -> Option<RequestId> {
        sorted.previous(node(requests, id)).map(|node| sorted.value(node).id)
    }

    /// Tries to merge a new request into a queued one: behind the last one that starts before it, or in front of the
    /// first one that starts at its end. A back merge can close the gap to the next request; then the two become one,
    /// with the id and the arrival of the older.
    ///
    /// If several requests overlap each other, only the nearest is examined, as in the kernel.
    pub fn try_merge(
        &mut self,
        sorted: &mut Sorted,
        requests: &mut Requests,
        id: RequestId,
        rules: MergeRules,
    ) -> Option<Merged> {
        let (start, end) = (requests[id].start, requests[id].end());
        let before = sorted.before(&self.tree, start);
        // The neighbour of one is almost always the other, so one search in the tree suffices.
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
        // This one leaves no gap to close: a request that continued before `id` would have been merged.
        let after = after.filter(|_| rules.front)?;
        if !requests.can_merge(id, after, rules.max) {
            return None;
        }
        requests.merge_front(after, id);
        self.resort(sorted, requests, after);
        Some(Merged { into: after, absorbed: None })
    }

    /// Joins two adjacent requests of this queue.
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
    /// Moves a request whose first sector has changed to its new position.
    fn resort(&mut self, sorted: &mut Sorted, requests: &Requests, id: RequestId) {
        let node = node(requests, id);
        sorted.replace(&mut self.tree, node, requests[id].start, sorted.value(node));
    }

    /// The request to follow `id`, which is still queued, if it is dispatched now: the better (see [`choose`]) of its
    /// two neighbours by sector, where the first request follows the last. `None` if `id` is alone.
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
            (Some(a), Some(b)) => Some(choose(requests, a, b, requests[id].start, rules)),
            (one, other) => one.or(other),
        }
    }
}

fn node(requests: &Requests, id: RequestId) -> NodeId {
    NodeId(requests.place(id))
}

/// Rules for comparing movements of the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeekRules {
    /// The longest backward movement that is not treated as a wrap.
    pub back_max: Sectors,
    /// A backward movement counts this many times its length.
    pub back_penalty: u64,
    /// Synchronous requests go before others, then metadata before other data.
    pub urgent_first: bool,
}

impl SeekRules {
    /// The rules of the anticipatory scheduler: up to 512 MiB back, counted twice.
    pub const ANTICIPATORY: Self =
        Self { back_max: Sectors::from_kib(512 << 10), back_penalty: 2, urgent_first: false };
}

/// The better of two requests for a head at `position`: the more urgent one; one without a wrap; the nearer one, or
/// of two wrapped ones the lower; in case of a tie, the higher.
pub fn choose(
    requests: &Requests,
    a: RequestId,
    b: RequestId,
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
    use iofair_core::id::ClientId;
    use iofair_core::request::{Operation, Request};
    use std::vec::Vec;

    /// The rules of CFQ and BFQ: up to 16 MiB back, counted twice.
    const FAIR: SeekRules =
        SeekRules { back_max: Sectors::from_kib(16 << 10), back_penalty: 2, urgent_first: true };
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
            let mut request = Request::of(ClientId::from_bits(0), Operation::Read, start, length);
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
            let next = |id: &RequestId| self.queue.fifo.next(&self.requests, *id);
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
            let chosen = choose(&w.requests, a, b, Sectors(100_000), &FAIR);
            assert_eq!(chosen, choose(&w.requests, b, a, Sectors(100_000), &FAIR));
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
        assert_eq!(choose(&w.requests, near, urgent, Sectors(100_000), &rules), near);
        assert_eq!(choose(&w.requests, low, lower, Sectors(100_000), &rules), low);
    }

    /// Goal: the follower of a request is the better neighbour; the order is a ring. Method: a row.
    #[test]
    fn the_following_request_is_the_better_neighbour() {
        let mut w = World::default();
        for start in [100, 130, 150, 900_000] {
            w.add(start, 8, RULES);
        }
        let follower = |start| {
            let id = w.queue.at_or_after(&w.sorted, Sectors(start)).expect("there");
            let next = w.queue.next_request(&w.sorted, &w.requests, id, &FAIR);
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
        let mut completed = 0;
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
                    completed += 1;
                });
                assert_eq!(next, request.end(), "and fill the request");
            }
            assert_eq!(w.made, completed + w.requests.len() as u64);
        }
        let sectors = w.by_sector();
        assert!(sectors.is_sorted_by_key(|(start, _)| *start));
        assert_eq!(sectors.len(), w.queue.len());
        let mut arrival = w.by_arrival();
        arrival.sort_unstable();
        assert_eq!(arrival, sectors.iter().map(|(start, _)| *start).collect::<Vec<_>>());
    }
}
