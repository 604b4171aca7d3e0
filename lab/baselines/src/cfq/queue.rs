//! Queues: one per process for synchronous requests, and shared ones for buffered writes.

use crate::parts::backlog::Backlog;
use crate::parts::habits::Habits;
use crate::parts::sharing::{Shares, Sharing};
use crate::parts::slots::SlotId;
use iofair_core::id::ClientId;
use iofair_core::priority::{Class, Priority};
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::tree::NodeId;

/// The id of a queue.
pub(super) type QueueId = SlotId;

/// One queue.
#[derive(Debug)]
pub(super) struct Queue {
    /// Whether its requests are synchronous.
    pub(super) sync: bool,
    pub(super) priority: Priority,
    pub(super) sharing: Sharing,
    pub(super) backlog: Backlog,
    /// Requests in the drive.
    pub(super) dispatched: u32,
    pub(super) habits: Habits,

    /// Its position in the order of service, while it has requests.
    pub(super) place: Option<NodeId>,
    /// Its position among the queues of its level, by the sector of the next request.
    pub(super) position: Option<NodeId>,

    /// Whether it is active and nothing of this slice has completed, so that the slice has no end yet.
    pub(super) slice_new: bool,
    pub(super) slice_end: Instant,
    /// Unused time of the last slice in nanoseconds; negative if it took too long.
    pub(super) slice_residual: i64,
    /// Requests dispatched in this slice.
    pub(super) slice_sent: u64,
    /// Whether it is active and empty, and CFQ idles for it.
    pub(super) waiting: bool,
    /// Whether a request arrived for which CFQ idled; it is dispatched even if the slice is over.
    pub(super) must_dispatch: bool,

    /// Since when it has been shared and seeky.
    pub(super) seeky_since: Option<Instant>,
    /// Whether it was served out of turn by a jump.
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
    /// Whether CFQ would idle for it when it is empty.
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
    /// Whether no client uses it and it is empty.
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
