//! Queues: one a process for what somebody waits for, and shared ones for buffered writes.

use crate::parts::backlog::Backlog;
use crate::parts::habits::Habits;
use crate::parts::sharing::{Shares, Sharing};
use crate::parts::slots::SlotId;
use iofair_core::group::{Class, ClientId, Priority};
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::tree::NodeId;

/// A queue's place.
pub(super) type QueueId = SlotId;

/// One queue.
#[derive(Debug)]
pub(super) struct Queue {
    /// Somebody waits for its requests.
    pub(super) sync: bool,
    pub(super) priority: Priority,
    pub(super) sharing: Sharing,
    pub(super) backlog: Backlog,
    /// Requests that the drive has.
    pub(super) dispatched: u32,
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

    /// Since when it is shared and seeky.
    pub(super) seeky_since: Option<Instant>,
    /// Was jumped to, out of order.
    pub(super) jumped_to: bool,
}

impl Queue {
    pub(super) fn new(now: Instant, priority: Priority, client: Option<ClientId>) -> Self {
        Self {
            sync: client.is_some(),
            priority,
            sharing: Sharing::of(client),
            backlog: Backlog::default(),
            dispatched: 0,
            habits: Habits::new(now),
            place: None,
            position: None,
            slice_new: false,
            slice_end: Instant::ZERO,
            slice_residual: 0,
            slice_sent: 0,
            waiting: false,
            must_dispatch: false,
            seeky_since: None,
            jumped_to: false,
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.backlog.is_empty()
    }
    pub(super) fn is_idle_class(&self) -> bool {
        self.priority.class == Class::Idle
    }
    /// Would it be waited for when empty?
    pub(super) fn idle_window(&self) -> bool {
        self.sync && self.sharing.owners > 0 && !self.is_idle_class() && self.habits.idle_window()
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
        self.sync && self.sharing.is_abandoned() && empty
    }
}

impl Shares for Queue {
    fn sharing(&mut self) -> &mut Sharing {
        &mut self.sharing
    }
}
