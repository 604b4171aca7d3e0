//! Queues: one a process for what somebody waits for, and shared ones for buffered writes.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::group::{Class, ClientId, Priority};
use crate::parts::habits::Habits;
use crate::parts::sorted_fifo::SortedFifo;
use crate::parts::tree::NodeId;
use crate::request::RequestId;
use crate::time::{Instant, Nanos};

/// A queue's place in [`Queues`]; used again after the queue went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueId(pub(super) u32);

/// One queue.
#[derive(Debug)]
pub(super) struct Queue {
    /// Somebody waits for its requests.
    pub(super) sync: bool,
    pub(super) priority: Priority,
    /// Its client, unless it is shared.
    pub(super) client: Option<ClientId>,
    /// Clients whose requests come here.
    pub(super) owners: u32,

    pub(super) list: SortedFifo,
    /// Whom it would send now.
    pub(super) next: Option<RequestId>,
    /// Requests that the drive has.
    pub(super) dispatched: u32,
    /// Queued requests for metadata.
    pub(super) metadata: u32,
    pub(super) habits: Habits,

    /// Its place in the order of service: there as long as it holds requests.
    pub(super) place: Option<NodeId>,
    /// Its place among those of its level by the sector of the next request.
    pub(super) position: Option<NodeId>,

    /// Active, and nothing of this slice was answered yet, so that it has no end.
    pub(super) slice_new: bool,
    pub(super) slice_end: Instant,
    /// What was left of the last slice in nanoseconds; below zero, what it took too much.
    pub(super) slice_residual: i64,
    /// Requests sent in this slice.
    pub(super) slice_sent: u64,
    /// Active, empty, and waited for.
    pub(super) waiting: bool,
    /// A request came that was waited for; it goes out though the slice is over.
    pub(super) must_dispatch: bool,
    /// Age was looked at in this slice.
    pub(super) fifo_checked: bool,

    // Cooperation (see merge.rs).
    pub(super) merge_into: Option<QueueId>,
    /// Queues that will merge into it.
    pub(super) merging: u32,
    pub(super) shared: bool,
    pub(super) seeky_since: Option<Instant>,
    /// Was jumped to, out of order.
    pub(super) jumped_to: bool,
}

impl Queue {
    pub(super) fn new(now: Instant, priority: Priority, client: Option<ClientId>) -> Self {
        Self {
            sync: client.is_some(),
            priority,
            client,
            owners: u32::from(client.is_some()),
            list: SortedFifo::new(),
            next: None,
            dispatched: 0,
            metadata: 0,
            habits: Habits::new(now),
            place: None,
            position: None,
            slice_new: false,
            slice_end: Instant::ZERO,
            slice_residual: 0,
            slice_sent: 0,
            waiting: false,
            must_dispatch: false,
            fifo_checked: false,
            merge_into: None,
            merging: 0,
            shared: false,
            seeky_since: None,
            jumped_to: false,
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    pub(super) fn is_idle_class(&self) -> bool {
        self.priority.class == Class::Idle
    }
    /// Would it be waited for when empty?
    pub(super) fn idle_window(&self) -> bool {
        self.sync && self.owners > 0 && !self.is_idle_class() && self.habits.idle_window()
    }
    pub(super) fn slice_used(&self, now: Instant) -> bool {
        !self.slice_new && now >= self.slice_end
    }
    pub(super) fn slice_left(&self, now: Instant) -> Nanos {
        self.slice_end.since(now)
    }
    pub(super) fn level(&self) -> u8 {
        self.priority.level.min(7)
    }
    /// Nobody uses it, and it holds nothing.
    pub(super) fn is_unused(&self) -> bool {
        let empty = self.is_empty() && self.dispatched == 0;
        self.sync && self.owners == 0 && self.merging == 0 && empty
    }
}

/// All queues. Allocates nothing once as many as now have been alive at once.
#[derive(Debug, Default)]
pub(super) struct Queues {
    slots: Vec<Queue>,
    free: Vec<QueueId>,
}

impl Queues {
    pub(super) fn insert(&mut self, queue: Queue) -> QueueId {
        if let Some(id) = self.free.pop() {
            self[id] = queue;
            return id;
        }
        self.slots.push(queue);
        QueueId(self.slots.len() as u32 - 1)
    }
    pub(super) fn remove(&mut self, id: QueueId) {
        self.free.push(id);
    }
}

impl Index<QueueId> for Queues {
    type Output = Queue;
    fn index(&self, id: QueueId) -> &Queue {
        &self.slots[id.0 as usize]
    }
}
impl IndexMut<QueueId> for Queues {
    fn index_mut(&mut self, id: QueueId) -> &mut Queue {
        &mut self.slots[id.0 as usize]
    }
}
