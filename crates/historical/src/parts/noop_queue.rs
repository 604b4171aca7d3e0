//! The queue of `noop`: arrival order with merging, and a dispatch list sorted one way.
//!
//! What leaves the queue passes a *dispatch list* that is kept in the order of a head that sweeps one way:
//! the requests at or after the boundary (the end of what went to the drive last) upwards, then those
//! before it upwards, and never a read past a write or a write past a read. The `noop` policy has one
//! such queue, the fair layer one a group.

use alloc::collections::VecDeque;

use iofair_core::request::{RequestId, Requests};
use iofair_core::unit::Sectors;
use iofair_policies::parts::sorted_fifo::{Entry, MergeRules, Sorted, SortedFifo};

/// One queue with its dispatch list.
#[derive(Debug)]
pub struct NoopQueue {
    batch: usize,
    queue: SortedFifo,
    /// The dispatch list, at most `batch` long.
    list: VecDeque<RequestId>,
}

impl NoopQueue {
    /// An empty queue that moves `batch` requests at once to the dispatch list.
    pub fn new(batch: usize) -> Self {
        Self { batch, queue: SortedFifo::new(), list: VecDeque::with_capacity(batch) }
    }
    /// Requests that wait, those in the dispatch list included.
    pub fn len(&self) -> usize {
        self.queue.len() + self.list.len()
    }
    /// Does nobody wait?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Takes a request in.
    pub fn insert(&mut self, sorted: &mut Sorted, requests: &mut Requests, entry: Entry) {
        self.queue.insert(sorted, requests, entry);
    }
    /// Merges an incoming request into one that waits and is not in the dispatch list yet, if it may.
    pub fn try_merge(
        &mut self,
        sorted: &mut Sorted,
        requests: &mut Requests,
        id: RequestId,
        rules: MergeRules,
    ) -> bool {
        self.queue.try_merge(sorted, requests, id, rules).is_some()
    }
    /// Gives a request out; `boundary` is where the head is thought to be.
    pub fn dispatch(
        &mut self,
        sorted: &mut Sorted,
        requests: &mut Requests,
        boundary: Sectors,
    ) -> Option<RequestId> {
        if self.list.is_empty() {
            self.refill(sorted, requests, boundary);
        }
        self.list.pop_front()
    }
    fn refill(&mut self, sorted: &mut Sorted, requests: &mut Requests, boundary: Sectors) {
        while self.list.len() < self.batch
            && let Some(id) = self.queue.oldest()
        {
            self.queue.remove(sorted, requests, id);
            let place = self.place(requests, id, boundary);
            self.list.insert(place, id);
        }
    }
    /// Where a request belongs in the dispatch list: among the last requests of its direction.
    fn place(&self, requests: &Requests, id: RequestId, boundary: Sectors) -> usize {
        let direction = requests[id].operation.direction();
        let order = |id| {
            let start = requests[id].start;
            (start < boundary, start)
        };
        let passes = |other: &RequestId| {
            requests[*other].operation.direction() == direction && order(id) < order(*other)
        };
        self.list.len() - self.list.iter().rev().take_while(|other| passes(other)).count()
    }
}
