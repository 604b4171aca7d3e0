//! The queue of the single-queue deadline scheduler: batches by sector, reads before writes, and a deadline for each
//! request.
//!
//! Reads and writes are queued separately, by sector and by arrival. After a request is dispatched, the queue
//! remembers its successor by sector in the same direction, and a batch continues there. Source: Linux 2.6.32,
//! `block/deadline-iosched.c`. The queue does not know groups. A policy with one queue per group has several of them
//! over a shared [`Sorted`] (`deadline` has one, the 2009 layer many).

use super::sorted_fifo::{Entry, MergeRules, Sorted, SortedFifo};
use iofair_core::id::RequestId;
use iofair_core::params::Parameter;
use iofair_core::policy::Build;
use iofair_core::request::{Direction, Requests};
use iofair_core::time::{Instant, Nanos};

/// The tunables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadlineRules {
    /// A request older than this starts the next batch of its [`Direction`].
    pub expire: [Nanos; 2],
    /// Requests in a batch.
    pub fifo_batch: u32,
    /// Batches of reads, while writes wait, before one of writes.
    pub writes_starved: u32,
    /// What may be merged.
    pub merges: MergeRules,
}

/// The kernel's parameters, with their names and defaults.
pub const PARAMETERS: [Parameter; 5] = [
    Parameter::time(
        "read_expire",
        Nanos::from_millis(500),
        "a read older than this starts a batch",
    ),
    Parameter::time("write_expire", Nanos::from_secs(5), "a write older than this starts a batch"),
    Parameter::count("fifo_batch", 16, (0, 1 << 20), "requests in a batch"),
    Parameter::count("writes_starved", 2, (0, 1 << 20), "batches of reads before one of writes"),
    Parameter::bool("front_merges", true, "also merge in front of requests"),
];

impl DeadlineRules {
    /// From these parameters.
    pub fn new(build: &Build<'_>) -> Self {
        let values = build.values;
        Self {
            expire: [values.time("read_expire"), values.time("write_expire")],
            fifo_batch: values.count("fifo_batch") as u32,
            writes_starved: values.count("writes_starved") as u32,
            merges: MergeRules { front: values.bool("front_merges"), max: build.facts.max_request },
        }
    }
}

/// The queued reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineQueue {
    rules: DeadlineRules,
    queues: [SortedFifo; 2],
    /// The successor of the last dispatched request, if it has one.
    next: Option<RequestId>,
    /// The direction of the last dispatched request.
    direction: Direction,
    /// Requests of the current batch that were dispatched.
    batched: u32,
    /// Batches of reads since the last batch of writes, while writes waited.
    starved: u32,
}

/// The direction of the next batch, and the number of batches of reads that the writes have waited for then: reads,
/// unless the writes have waited for `writes_starved` of them.
pub(crate) fn batch_direction(
    waiting: [bool; 2],
    starved: u32,
    writes_starved: u32,
) -> Option<(Direction, u32)> {
    match waiting {
        [false, false] => None,
        [true, false] => Some((Direction::Read, starved)),
        [true, true] if starved < writes_starved => Some((Direction::Read, starved + 1)),
        _ => Some((Direction::Write, 0)),
    }
}

impl DeadlineQueue {
    /// An empty queue.
    pub const fn new(rules: DeadlineRules) -> Self {
        let queues = [SortedFifo::new(); 2];
        Self { rules, queues, next: None, direction: Direction::Read, batched: 0, starved: 0 }
    }
    /// Number of queued requests.
    pub const fn len(&self) -> usize {
        self.queues[0].len() + self.queues[1].len()
    }
    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Number of queued requests of one direction.
    pub const fn queued(&self, direction: Direction) -> usize {
        self.queues[direction as usize].len()
    }
    /// Batches of reads for which the queued writes have waited.
    pub const fn starved(&self) -> u32 {
        self.starved
    }
    /// Adds a request.
    pub fn insert(&mut self, sorted: &mut Sorted, requests: &mut Requests, entry: Entry) {
        let direction = requests[entry.id].operation.direction();
        self.queues[direction as usize].insert(sorted, requests, entry);
    }
    /// Merges a new request into a queued one, if possible.
    pub fn try_merge(
        &mut self,
        sorted: &mut Sorted,
        requests: &mut Requests,
        id: RequestId,
    ) -> bool {
        let next_start = self.next.map(|next| requests[next].start);
        let queue = &mut self.queues[requests[id].operation.direction() as usize];
        let Some(merged) = queue.try_merge(sorted, requests, id, self.rules.merges) else {
            return false;
        };
        if let Some(absorbed) = merged.absorbed
            && (self.next == Some(absorbed) || self.next == Some(merged.into))
        {
            // A front merge leaves the successor as it is; after a back merge it moves on, past both.
            let in_front = next_start == Some(requests[merged.into].start);
            let behind = || queue.next(sorted, requests, merged.into);
            self.next = if in_front { Some(merged.into) } else { behind() };
        }
        true
    }
    /// Removes and returns the next request.
    pub fn dispatch(
        &mut self,
        sorted: &mut Sorted,
        requests: &mut Requests,
        now: Instant,
    ) -> Option<RequestId> {
        let id = match self.next {
            Some(next) if self.batched < self.rules.fifo_batch => next,
            _ => self.start_batch(sorted, requests, now)?,
        };
        self.batched += 1;
        self.direction = requests[id].operation.direction();
        let queue = &mut self.queues[self.direction as usize];
        self.next = queue.next(sorted, requests, id);
        queue.remove(sorted, requests, id);
        Some(id)
    }
    fn start_batch(
        &mut self,
        sorted: &Sorted,
        requests: &Requests,
        now: Instant,
    ) -> Option<RequestId> {
        let waiting = self.queues.map(|queue| !queue.is_empty());
        let (direction, starved) =
            batch_direction(waiting, self.starved, self.rules.writes_starved)?;
        let queue = &self.queues[direction as usize];
        let oldest = queue.oldest().expect("only a direction with requests is chosen");
        let deadline =
            queue.arrived(sorted, requests, oldest) + self.rules.expire[direction as usize];
        (self.starved, self.batched) = (starved, 0);
        let follow = self.next.filter(|_| direction == self.direction && now <= deadline);
        Some(follow.unwrap_or(oldest))
    }
}
