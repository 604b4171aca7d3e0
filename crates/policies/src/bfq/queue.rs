//! Queues: one a client (or several, once merged) for what somebody waits for, and shared ones for
//! buffered writes; what is known of each, and the arena that holds them.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::parts::ewma::ThinkTime;
use crate::parts::seeks::SeekHistory;
use crate::parts::sorted_fifo::SortedFifo;
use crate::parts::tree::NodeId;
use crate::parts::wf2q::EntityId;
use iofair_core::group::{Class, ClientId, GroupId, Priority};
use iofair_core::request::RequestId;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::raise::Raise;

/// A queue's place in [`Queues`]; used again after the queue went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueId(pub(super) u32);

/// A queue that may be gone by now; [`Queues::alive`] tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WeakQueue {
    id: QueueId,
    birth: u64,
}

/// What is known of the way in which requests come; survives a merge and a split of its queue.
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
    /// Time from arrival to answer when nothing is injected; zero: not known.
    pub(super) alone_time: Nanos,
    /// When the limit was lowered or reset last.
    pub(super) limit_lowered: Instant,
}

/// More seeks than this among the last 32 requests make a queue seeky.
const SEEKY_ABOVE: u32 = 19;
/// So many requests in time make a queue busy again, until 5.3.
const IN_TIME: u32 = 120;
/// How far back [`Habits::io_bound`] looks.
const OBSERVATION: Nanos = Nanos::from_millis(200);

impl Habits {
    fn new(now: Instant, short_think: bool) -> Self {
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
    /// Takes over what was known before a merge; the way of the requests is that of now.
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
    /// A request comes to the queue, which had nothing to do: the rule until 5.3.
    pub(super) fn note_in_time(&mut self, in_time: bool) {
        if self.io_bound {
            return;
        }
        self.in_time = if in_time { self.in_time + 1 } else { 0 };
        self.io_bound = self.in_time >= IN_TIME;
    }
    /// A request comes; `idle_since`: when the last answer left the queue with nothing to do.
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
    /// In force: counted and scheduled by it.
    pub(super) priority: Priority,
    /// To be in force when the queue is next left by the scheduler.
    pub(super) wanted: Priority,
    /// Somebody waits for its requests.
    pub(super) sync: bool,
    /// Clients whose requests come here.
    pub(super) owners: u32,
    /// Its requests, queued and in the drive, and queues that will merge into it.
    pub(super) references: u32,
    /// Its client, unless it is shared.
    pub(super) client: Option<ClientId>,

    pub(super) list: SortedFifo,
    /// Whom it would send now.
    pub(super) next: Option<RequestId>,
    /// Requests that the drive has.
    pub(super) dispatched: u32,
    /// Known to the scheduler: has requests, or is waited for.
    pub(super) busy: bool,
    /// Expiry of its oldest request was looked at in this slot.
    pub(super) fifo_checked: bool,
    /// What the feedback grants for the next slot.
    pub(super) max_budget: Sectors,
    /// In service: when the slot times out. Else when it was last left with nothing queued and nothing
    /// in the drive. `None`: long ago.
    pub(super) budget_timeout: Option<Instant>,
    /// It is in service, empty, and waited for.
    pub(super) waiting: bool,
    /// It expired only because its next request was not there yet.
    pub(super) expected: bool,
    pub(super) last_end: Instant,
    pub(super) created: Instant,
    pub(super) just_created: bool,
    pub(super) habits: Habits,
    pub(super) raise: Raise,

    /// Level under which it is counted among the active queues of unraised weight.
    pub(super) counted: Option<u8>,
    /// Counted among the queues with requests of its groups.
    pub(super) pending: bool,

    // Merging (see merge.rs).
    pub(super) merge_into: Option<QueueId>,
    pub(super) shared: bool,
    pub(super) split_asked: bool,
    /// Shared for good: made together with others of its group.
    pub(super) stably_merged: bool,
    pub(super) split_at: Option<Instant>,
    /// First service since it became busy.
    pub(super) first_served: Instant,
    pub(super) position: Option<NodeId>,

    // Wakers (see inject.rs).
    pub(super) waker: Option<QueueId>,
    pub(super) suspected_waker: Option<WeakQueue>,
    pub(super) waker_detections: u8,
    pub(super) woken_first: Option<QueueId>,
    pub(super) woken_next: Option<QueueId>,
    pub(super) woken_previous: Option<QueueId>,

    /// Neighbours in the list of active queues, the newest first.
    pub(super) newer: Option<QueueId>,
    pub(super) older: Option<QueueId>,
    pub(super) listed: bool,
}

/// Whose queue a new one is.
pub(super) struct Birth {
    pub(super) now: Instant,
    pub(super) entity: EntityId,
    pub(super) group: GroupId,
    pub(super) priority: Priority,
    pub(super) client: Option<ClientId>,
    pub(super) max_budget: Sectors,
}

impl Queue {
    pub(super) fn new(birth: &Birth) -> Self {
        let Birth { now, entity, group, priority, client, max_budget } = *birth;
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
    /// Nothing queued and nothing in the drive.
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
    birth: u64,
}

/// All queues. Allocates nothing once as many as now have been alive at once.
#[derive(Debug, Default)]
pub(super) struct Queues {
    slots: Vec<Slot>,
    free: Vec<QueueId>,
    births: u64,
    /// The newest of the list of active queues that are not in service.
    newest: Option<QueueId>,
}

impl Queues {
    pub(super) fn insert(&mut self, queue: Queue) -> QueueId {
        self.births += 1;
        let slot = Slot { queue, live: true, birth: self.births };
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
        WeakQueue { id, birth: self.slots[id.0 as usize].birth }
    }
    pub(super) fn alive(&self, weak: WeakQueue) -> Option<QueueId> {
        let slot = &self.slots[weak.id.0 as usize];
        (slot.live && slot.birth == weak.birth).then_some(weak.id)
    }

    /// The active queue that became so last; [`Queue::older`] goes on.
    pub(super) fn newest(&self) -> Option<QueueId> {
        self.newest
    }
    /// Puts a queue at the newest end of the list of active ones.
    pub(super) fn list(&mut self, id: QueueId) {
        self.unlist(id);
        let older = self.newest.replace(id);
        if let Some(older) = older {
            self[older].newer = Some(id);
        }
        let queue = &mut self[id];
        (queue.listed, queue.newer, queue.older) = (true, None, older);
    }
    /// Takes a queue out of the list of active ones if it is there.
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
