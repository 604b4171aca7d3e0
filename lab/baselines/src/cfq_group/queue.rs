//! Queues: one per process for synchronous requests, and, in each group, shared ones for buffered writes.

use crate::parts::backlog::Backlog;
use crate::parts::sharing::{Shares, Sharing};
use crate::parts::slots::SlotId;
use iofair_core::id::{ClientId, GroupId};
use iofair_core::priority::{Class, Priority};
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::ewma::Pauses;
use iofair_policies::parts::seeks::SeekHistory;
use iofair_policies::parts::tree::NodeId;

/// The id of a queue.
pub(super) type QueueId = SlotId;

/// More seeks than this among the last 32 requests make a queue seeky.
const SEEKY_ABOVE: u32 = 4;

/// The workloads of a class, each of which is served as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Workload {
    /// Buffered writes.
    Async,
    /// Queues for which CFQ does not idle one by one: seeky ones, and those with long think times.
    NoIdle,
    /// Queues for which it does.
    Sync,
}

impl Workload {
    pub(super) const ALL: [Self; 3] = [Self::Async, Self::NoIdle, Self::Sync];
}

/// One queue.
#[derive(Debug)]
pub(super) struct Queue {
    /// Whether its requests are synchronous.
    pub(super) sync: bool,
    pub(super) group: GroupId,
    pub(super) priority: Priority,
    pub(super) sharing: Sharing,
    pub(super) split_asked: bool,

    pub(super) backlog: Backlog,
    /// Requests in the drive.
    pub(super) dispatched: u32,
    pub(super) pauses: Pauses,
    pub(super) seeks: SeekHistory,
    pub(super) idle_window: bool,
    /// Whether it had four or more requests at once; CFQ then idles for it even if it is seeky.
    pub(super) deep: bool,

    /// The number of its service tree, and its position there, while it has requests or is active.
    pub(super) service: Option<(usize, NodeId)>,
    /// Its position among the queues of its level, by the sector of the next request.
    pub(super) position: Option<NodeId>,

    /// Whether it is active and nothing of this slice has completed, so that the slice has no end yet.
    pub(super) slice_new: bool,
    /// When it became active, and when its slice began.
    pub(super) activated: Instant,
    pub(super) slice_start: Option<Instant>,
    pub(super) slice_end: Instant,
    pub(super) allocated: Nanos,
    /// Unused time of the last slice in nanoseconds; negative if it took too long.
    pub(super) residual: i64,
    /// Requests dispatched in this slice.
    pub(super) slice_sent: u64,
    /// Whether it is active and empty, and CFQ idles for it.
    pub(super) waiting: bool,
    /// Whether CFQ idles beyond its slice, so that its group keeps its place.
    pub(super) wait_busy: bool,
    /// Whether a request arrived for which CFQ idled; it is dispatched even if the slice is over.
    pub(super) must_dispatch: bool,
}

impl Queue {
    pub(super) fn new(
        now: Instant,
        group: GroupId,
        priority: Priority,
        client: Option<ClientId>,
    ) -> Self {
        Self {
            sync: client.is_some(),
            group,
            priority,
            sharing: Sharing::of(client),
            split_asked: false,
            backlog: Backlog::default(),
            dispatched: 0,
            pauses: Pauses::new(now),
            seeks: SeekHistory::default(),
            idle_window: client.is_some() && priority.class != Class::Idle,
            deep: false,
            service: None,
            position: None,
            slice_new: false,
            activated: now,
            slice_start: None,
            slice_end: Instant::ZERO,
            allocated: Nanos::ZERO,
            residual: 0,
            slice_sent: 0,
            waiting: false,
            wait_busy: false,
            must_dispatch: false,
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.backlog.is_empty()
    }
    pub(super) fn is_idle_class(&self) -> bool {
        self.priority.class == Class::Idle
    }
    pub(super) fn is_real_time(&self) -> bool {
        self.priority.class == Class::RealTime
    }
    pub(super) fn level(&self) -> u8 {
        self.priority.level.min(7)
    }
    pub(super) fn seeky(&self) -> bool {
        self.seeks.seeks() > SEEKY_ABOVE
    }
    pub(super) fn workload(&self) -> Workload {
        match (self.sync, self.idle_window) {
            (false, _) => Workload::Async,
            (true, false) => Workload::NoIdle,
            (true, true) => Workload::Sync,
        }
    }
    /// The service tree to which it belongs now.
    pub(super) fn service_tree(&self) -> usize {
        tree_index(self.priority.class, self.workload())
    }
    pub(super) fn slice_used(&self, now: Instant) -> bool {
        !self.slice_new && now >= self.slice_end
    }
    pub(super) fn slice_left(&self, now: Instant) -> Nanos {
        self.slice_end.since(now)
    }
    /// Whether no client uses it and it is empty.
    pub(super) fn is_unused(&self) -> bool {
        self.sync && self.sharing.is_abandoned() && self.is_empty() && self.dispatched == 0
    }
}

impl Shares for Queue {
    fn sharing(&mut self) -> &mut Sharing {
        &mut self.sharing
    }
}

/// Service trees of a group: three workloads of two classes, and one for the idle class.
pub(super) const TREES: usize = 7;

/// The number of a service tree.
pub(super) fn tree_index(class: Class, workload: Workload) -> usize {
    match class {
        Class::RealTime => workload as usize,
        Class::BestEffort => 3 + workload as usize,
        Class::Idle => 6,
    }
}
