//! The requests in a queue of CFQ, and the one that it would dispatch next: once per slice the oldest, if it is too
//! old; otherwise the best for the head among those that it has examined one by one.

use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::request::{Flags, Requests};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_policies::parts::sorted_fifo::{
    Entry, MergeRules, SeekRules, Sorted, SortedFifo, choose,
};

/// The requests of a queue.
#[derive(Clone, Copy, Default, Debug)]
pub struct Backlog {
    list: SortedFifo,
    next: Option<RequestId>,
    metadata: u32,
    age_checked: bool,
}

/// The position of the head, and the rules for comparing its movements.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The end of the last dispatched request.
    pub at: Sectors,
    /// The rules.
    pub rules: SeekRules,
}

impl Backlog {
    /// Number of requests.
    pub const fn len(&self) -> usize {
        self.list.len()
    }
    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// The request that it would dispatch next, ignoring age.
    pub const fn next(&self) -> Option<RequestId> {
        self.next
    }
    /// Number of metadata requests.
    pub const fn metadata(&self) -> u32 {
        self.metadata
    }
    /// Starts a slice: age may be checked again.
    pub fn begin_slice(&mut self) {
        self.age_checked = false;
    }
    /// Adds a request.
    pub fn insert(
        &mut self,
        sorted: &mut Sorted,
        requests: &mut Requests,
        entry: Entry,
        head: &Head,
    ) {
        self.list.insert(sorted, requests, entry);
        self.metadata += is_metadata(requests, entry.id);
        self.prefer(requests, entry.id, head);
    }
    /// Makes a request the next one if it is better placed.
    fn prefer(&mut self, requests: &Requests, id: RequestId, head: &Head) {
        self.next = Some(match self.next {
            Some(next) if next != id => choose(requests, next, id, head.at, &head.rules),
            _ => id,
        });
    }
    /// Merges a new request into a queued one, if possible. Returns by how much the number of requests decreases then
    /// (a merge can close the gap between two).
    pub fn try_merge(
        &mut self,
        sorted: &mut Sorted,
        cx: &mut Context<'_>,
        id: RequestId,
        head: &Head,
    ) -> Option<u32> {
        let requests = &mut *cx.requests;
        let rules = MergeRules { front: true, max: cx.facts.max_request };
        let merged = self.list.try_merge(sorted, requests, id, rules)?;
        if let Some(absorbed) = merged.absorbed {
            self.metadata -= is_metadata(requests, absorbed);
            if self.next == Some(absorbed) {
                self.next = Some(merged.into);
            }
        }
        self.prefer(requests, merged.into, head);
        Some(u32::from(merged.absorbed.is_some()))
    }
    /// Removes and returns the request to dispatch; the queue must not be empty. `expire`: too old ones go first.
    pub fn take(
        &mut self,
        sorted: &mut Sorted,
        cx: &mut Context<'_>,
        expire: Nanos,
        rules: &SeekRules,
    ) -> RequestId {
        let (now, requests) = (cx.now, &mut *cx.requests);
        let look = !core::mem::replace(&mut self.age_checked, true);
        let oldest = self.list.oldest().filter(|_| look);
        let expired = oldest.filter(|id| self.list.arrived(sorted, requests, *id) + expire <= now);
        let id = expired.or(self.next).expect("a queue is chosen for its next request");
        self.next = self.list.next_request(sorted, requests, id, rules);
        self.list.remove(sorted, requests, id);
        self.metadata -= is_metadata(requests, id);
        id
    }
}

fn is_metadata(requests: &Requests, id: RequestId) -> u32 {
    u32::from(requests[id].flags.has(Flags::METADATA))
}
