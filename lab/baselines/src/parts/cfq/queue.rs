//! Queues: one per process for synchronous requests, and, in each group, shared ones for buffered writes.

use crate::parts::backlog::Backlog;
use crate::parts::sharing::{Shares, Sharing};
use crate::parts::slots::SlotId;
use iofair_core::id::{ClientId, GroupId};
use iofair_core::priority::{Class, Priority};
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::tree::NodeId;

/// The id of a queue.
pub(crate) type QueueId = SlotId;

/// For whom a queue is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) group: GroupId,
    pub(crate) priority: Priority,
    /// `None`: for buffered writes.
    pub(crate) client: Option<ClientId>,
}

/// One queue.
#[derive(Debug)]
pub(crate) struct Queue<Own> {
    /// What it has in one version of CFQ.
    pub(crate) own: Own,
    /// Whether its requests are synchronous.
    pub(crate) sync: bool,
    pub(crate) group: GroupId,
    pub(crate) priority: Priority,
    pub(crate) sharing: Sharing,
    pub(crate) backlog: Backlog,
    /// Requests in the drive.
    pub(crate) dispatched: u32,
    /// Its position among the queues of its level, by the sector of the next request.
    pub(super) position: Option<NodeId>,

    /// Whether it is active and nothing of this slice has completed, so that the slice has no end yet.
    pub(crate) slice_new: bool,
    pub(crate) slice_end: Instant,
    /// Unused time of the last slice in nanoseconds; negative if it took too long.
    pub(crate) residual: i64,
    /// Requests dispatched in this slice.
    pub(crate) slice_sent: u64,
    /// Whether it is active and empty, and CFQ idles for it.
    pub(crate) waiting: bool,
    /// Whether a request arrived for which CFQ idled; it is dispatched even if the slice is over.
    pub(crate) must_dispatch: bool,
}

impl<Own> Queue<Own> {
    pub(super) fn new(own: Own, member: Member) -> Self {
        let Member { group, priority, client } = member;
        Self {
            own,
            sync: client.is_some(),
            group,
            priority,
            sharing: Sharing::new(client),
            backlog: Backlog::default(),
            dispatched: 0,
            position: None,
            slice_new: false,
            slice_end: Instant::ZERO,
            residual: 0,
            slice_sent: 0,
            waiting: false,
            must_dispatch: false,
        }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.backlog.is_empty()
    }
    pub(crate) fn is_idle_class(&self) -> bool {
        self.priority.class == Class::Idle
    }
    pub(crate) fn is_real_time(&self) -> bool {
        self.priority.class == Class::RealTime
    }
    pub(crate) fn level(&self) -> u8 {
        self.priority.level.min(7)
    }
    pub(crate) fn slice_used(&self, now: Instant) -> bool {
        !self.slice_new && now >= self.slice_end
    }
    pub(crate) fn slice_left(&self, now: Instant) -> Nanos {
        self.slice_end.since(now)
    }
    /// Whether no client uses it and it is empty.
    pub(super) fn is_unused(&self) -> bool {
        self.sync && self.sharing.is_abandoned() && self.is_empty() && self.dispatched == 0
    }
}

impl<Own> Shares for Queue<Own> {
    fn sharing(&mut self) -> &mut Sharing {
        &mut self.sharing
    }
}
