//! The queue of `noop`: order of arrival with merging, and a dispatch list that is sorted one way.
//!
//! Requests that leave the queue pass a *dispatch list*, which is sorted for a head that sweeps in one direction:
//! first the requests at or after the boundary (the end of the last request that went to the drive), in ascending
//! order, then those before it, in ascending order. A read never passes a write, nor a write a read. The `noop`
//! policy has one such queue, the 2009 layer one per group.

use alloc::collections::VecDeque;

use iofair_core::id::RequestId;
use iofair_core::request::Requests;
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
    /// Number of requests, including those in the dispatch list.
    pub fn len(&self) -> usize {
        self.queue.len() + self.list.len()
    }
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Adds a request.
    pub fn insert(&mut self, sorted: &mut Sorted, requests: &mut Requests, entry: Entry) {
        self.queue.insert(sorted, requests, entry);
    }
    /// Merges a new request into a queued one that is not in the dispatch list yet, if possible.
    pub fn try_merge(
        &mut self,
        sorted: &mut Sorted,
        requests: &mut Requests,
        id: RequestId,
        rules: MergeRules,
    ) -> bool {
        self.queue.try_merge(sorted, requests, id, rules).is_some()
    }
    /// Removes and returns the next request; `boundary` is the assumed position of the head.
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
    /// The position of a request in the dispatch list: among the last requests of its direction.
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
