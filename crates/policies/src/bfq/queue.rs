//! Queues: one for the synchronous requests of a client (or of several, once merged), and shared ones for buffered
//! writes; their state, and the arena that holds them.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::parts::ewma::ThinkTime;
use crate::parts::seeks::SeekHistory;
use crate::parts::sorted_fifo::SortedFifo;
use crate::parts::tree::NodeId;
use crate::parts::wf2q::EntityId;
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::priority::{Class, Priority};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::raise::Raise;

/// A queue's place in [`Queues`]; used again after the queue went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueId(pub(super) u32);

/// A reference to a queue that may have been deleted; see [`Queues::alive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WeakQueue {
    id: QueueId,
    serial: u64,
}

/// The client's behaviour as seen in its queue; survives a merge and a split of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    pub(super) think: ThinkTime,
    pub(super) short_think: bool,
    /// Busy for 80 % of the time or more, so waiting for its next request may pay.
    pub(super) io_bound: bool,
    /// Since when, and how much of that time, it had nothing to do.
    observed_since: Instant,
    idle_time: Nanos,
    /// Requests in a row that came in time, while it was not.
    in_time: u32,
    seeks: SeekHistory,
    /// How much may be injected while it is waited for ([`super::inject`]).
    pub(super) inject_limit: u32,
    /// Time from arrival to completion when nothing is injected; zero if unknown.
    pub(super) alone_time: Nanos,
    /// When the limit was lowered or reset last.
    pub(super) limit_lowered: Instant,
}

/// More seeks than this among the last 32 requests make a queue seeky.
const SEEKY_ABOVE: u32 = 19;
/// This number of requests in time makes a queue busy again, until 5.3.
const IN_TIME: u32 = 120;
/// How far back [`Habits::io_bound`] looks.
const OBSERVATION: Nanos = Nanos::from_millis(200);

impl Habits {
    pub(super) fn new(now: Instant, short_think: bool) -> Self {
        Self {
            think: ThinkTime::default(),
            short_think,
            io_bound: true,
            observed_since: now,
            idle_time: Nanos::ZERO,
            in_time: 0,
            // The first request is almost certainly a seek.
            seeks: SeekHistory::new(true),
            inject_limit: 0,
            alone_time: Nanos::ZERO,
            limit_lowered: now,
        }
    }
    /// Restores the state from before a merge, except the position of requests.
    pub(super) fn resume(&mut self, saved: &Self) {
        *self = Self { seeks: self.seeks, ..*saved };
    }
    pub(super) fn seeky(&self) -> bool {
        self.seeks.seeks() > SEEKY_ABOVE
    }
    pub(super) fn totally_seeky(&self) -> bool {
        self.seeks.seeks() == u32::BITS
    }
    pub(super) fn note_position(&mut self, rotational: bool, start: Sectors, length: Sectors) {
        self.seeks.note(rotational, start, length);
    }
    /// Records whether a request for an empty queue came in time: the rule until 5.3.
    pub(super) fn note_in_time(&mut self, in_time: bool) {
        if self.io_bound {
            return;
        }
        self.in_time = if in_time { self.in_time + 1 } else { 0 };
        self.io_bound = self.in_time >= IN_TIME;
    }
    /// Records the arrival of a request. `idle_since`: when the last completion left the queue without requests.
    pub(super) fn note_intensity(&mut self, now: Instant, idle_since: Option<Instant>, new: bool) {
        let observed = now.since(self.observed_since);
        if let Some(since) = idle_since {
            self.idle_time += now.since(since);
        }
        if new {
            return;
        }
        self.io_bound = self.idle_time * 5 <= observed;
        if observed > OBSERVATION {
            self.observed_since = now.saturating_sub(observed / 2);
            self.idle_time = self.idle_time / 2;
        }
    }
}

/// One queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) entity: EntityId,
    pub(super) group: GroupId,
    /// The priority in force, by which it is counted and scheduled.
    pub(super) priority: Priority,
    /// The priority to apply when the scheduler next leaves the queue.
    pub(super) wanted: Priority,
    /// Whether its requests are synchronous.
    pub(super) sync: bool,
    /// Number of clients whose requests enter it.
    pub(super) owners: u32,
    /// Its requests, queued and in the drive, and queues that will merge into it.
    pub(super) references: u32,
    /// Its client, unless it is shared.
    pub(super) client: Option<ClientId>,

    pub(super) list: SortedFifo,
    /// The request that it would dispatch next.
    pub(super) next: Option<RequestId>,
    /// Requests that the drive has.
    pub(super) dispatched: u32,
    /// Whether the scheduler has it: it has requests, or BFQ idles for it.
    pub(super) busy: bool,
    /// Whether the expiry of its oldest request was checked in this slot.
    pub(super) fifo_checked: bool,
    /// The budget of its next slot.
    pub(super) max_budget: Sectors,
    /// In service: when the slot times out. Otherwise: when it last had nothing queued and nothing in the drive;
    /// `None` if that is long ago.
    pub(super) budget_timeout: Option<Instant>,
    /// Whether it is in service and empty, and BFQ idles for it.
    pub(super) waiting: bool,
    /// Whether it expired only because its next request had not arrived yet.
    pub(super) expected: bool,
    pub(super) last_end: Instant,
    pub(super) created: Instant,
    pub(super) just_created: bool,
    pub(super) habits: Habits,
    pub(super) raise: Raise,

    /// The level under which it is counted among the active unraised queues.
    pub(super) counted: Option<u8>,
    /// Whether it is counted among the queues with requests of its groups.
    pub(super) pending: bool,

    // Merging (see merge.rs).
    pub(super) merge_into: Option<QueueId>,
    pub(super) shared: bool,
    pub(super) split_asked: bool,
    /// Merged for good with other queues of its group.
    pub(super) stably_merged: bool,
    pub(super) split_at: Option<Instant>,
    /// First service since it became busy.
    pub(super) first_served: Instant,
    pub(super) position: Option<NodeId>,

    // Wakers (see inject.rs).
    pub(super) waker: Option<QueueId>,
    pub(super) suspected_waker: Option<WeakQueue>,
    pub(super) waker_detections: u8,
    /// When it was first suspected.
    pub(super) waker_suspected: Instant,
    pub(super) woken_first: Option<QueueId>,
    pub(super) woken_next: Option<QueueId>,
    pub(super) woken_previous: Option<QueueId>,

    /// Neighbours in the list of active queues, newest first.
    pub(super) newer: Option<QueueId>,
    pub(super) older: Option<QueueId>,
    pub(super) listed: bool,
}

/// The properties of a new queue.
pub(super) struct NewQueue {
    pub(super) now: Instant,
    pub(super) entity: EntityId,
    pub(super) group: GroupId,
    pub(super) priority: Priority,
    pub(super) client: Option<ClientId>,
    pub(super) max_budget: Sectors,
}

impl Queue {
    pub(super) fn new(new: &NewQueue) -> Self {
        let NewQueue { now, entity, group, priority, client, max_budget } = *new;
        let sync = client.is_some();
        Self {
            entity,
            group,
            priority,
            wanted: priority,
            sync,
            owners: u32::from(sync),
            references: 0,
            client,
            list: SortedFifo::new(),
            next: None,
            dispatched: 0,
            busy: false,
            fifo_checked: false,
            max_budget,
            budget_timeout: None,
            waiting: false,
            expected: false,
            last_end: now,
            created: now,
            just_created: sync,
            habits: Habits::new(now, sync && priority.class != Class::Idle),
            raise: Raise::new(now),
            counted: None,
            pending: false,
            merge_into: None,
            shared: false,
            split_asked: false,
            stably_merged: false,
            split_at: None,
            first_served: now,
            position: None,
            waker: None,
            suspected_waker: None,
            waker_detections: 0,
            waker_suspected: now,
            woken_first: None,
            woken_next: None,
            woken_previous: None,
            newer: None,
            older: None,
            listed: false,
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// Whether it has nothing queued and nothing in the drive.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_empty() && self.dispatched == 0
    }
    /// Its weight without raising: levels 0 to 7 weigh 80 to 10.
    pub(super) fn base_weight(&self) -> u32 {
        level_weight(self.priority.level)
    }
}

/// The weight of a priority level (Linux `block/bfq-wf2q.c`).
pub(super) fn level_weight(level: u8) -> u32 {
    (8 - u32::from(level.min(7))) * 10
}

#[derive(Debug)]
struct Slot {
    queue: Queue,
    live: bool,
    serial: u64,
}

/// All queues. Allocates nothing unless more queues exist than ever before.
#[derive(Debug, Default)]
pub(super) struct Queues {
    slots: Vec<Slot>,
    free: Vec<QueueId>,
    created: u64,
    /// The newest of the list of active queues that are not in service.
    newest: Option<QueueId>,
}

impl Queues {
    pub(super) fn insert(&mut self, queue: Queue) -> QueueId {
        self.created += 1;
        let slot = Slot { queue, live: true, serial: self.created };
        if let Some(id) = self.free.pop() {
            self.slots[id.0 as usize] = slot;
            return id;
        }
        self.slots.push(slot);
        QueueId(self.slots.len() as u32 - 1)
    }
    pub(super) fn remove(&mut self, id: QueueId) {
        self.slots[id.0 as usize].live = false;
        self.free.push(id);
    }
    pub(super) fn weak(&self, id: QueueId) -> WeakQueue {
        WeakQueue { id, serial: self.slots[id.0 as usize].serial }
    }
    pub(super) fn alive(&self, weak: WeakQueue) -> Option<QueueId> {
        let slot = &self.slots[weak.id.0 as usize];
        (slot.live && slot.serial == weak.serial).then_some(weak.id)
    }

    /// The queue that became active last; [`Queue::older`] continues the list.
    pub(super) fn newest(&self) -> Option<QueueId> {
        self.newest
    }
    /// Adds a queue at the newest end of the list of active ones.
    pub(super) fn list(&mut self, id: QueueId) {
        self.unlist(id);
        let older = self.newest.replace(id);
        if let Some(older) = older {
            self[older].newer = Some(id);
        }
        let queue = &mut self[id];
        (queue.listed, queue.newer, queue.older) = (true, None, older);
    }
    /// Removes a queue from the list of active ones if it is in it.
    pub(super) fn unlist(&mut self, id: QueueId) {
        let queue = &mut self[id];
        if !core::mem::take(&mut queue.listed) {
            return;
        }
        let (newer, older) = (queue.newer.take(), queue.older.take());
        match newer {
            Some(newer) => self[newer].older = older,
            None => self.newest = older,
        }
        if let Some(older) = older {
            self[older].newer = newer;
        }
    }
}

impl Index<QueueId> for Queues {
    type Output = Queue;
    fn index(&self, id: QueueId) -> &Queue {
        let slot = &self.slots[id.0 as usize];
        debug_assert!(slot.live, "{id:?} is gone");
        &slot.queue
    }
}
impl IndexMut<QueueId> for Queues {
    fn index_mut(&mut self, id: QueueId) -> &mut Queue {
        let slot = &mut self.slots[id.0 as usize];
        debug_assert!(slot.live, "{id:?} is gone");
        &mut slot.queue
    }
}
