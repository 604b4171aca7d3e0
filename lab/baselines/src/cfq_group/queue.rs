//! What a queue has in this version, and the service tree to which it belongs.

use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::ewma::Pauses;
use iofair_policies::parts::seeks::SeekHistory;
use iofair_policies::parts::tree::NodeId;

use crate::parts::cfq::queue::{Member, Queue};

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

/// What a queue has in this version.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) split_asked: bool,
    pub(super) pauses: Pauses,
    pub(super) seeks: SeekHistory,
    pub(super) idle_window: bool,
    /// Whether it had four or more requests at once; CFQ then idles for it even if it is seeky.
    pub(super) deep: bool,
    /// The number of its service tree, and its position there, while it has requests or is active.
    pub(super) service: Option<(usize, NodeId)>,
    /// When it became active, and when its slice began.
    pub(super) activated: Instant,
    pub(super) slice_start: Option<Instant>,
    pub(super) allocated: Nanos,
    /// Whether CFQ idles beyond its slice, so that its group keeps its place.
    pub(super) wait_busy: bool,
}

impl Own {
    pub(super) fn new(now: Instant, member: &Member) -> Self {
        Self {
            split_asked: false,
            pauses: Pauses::new(now),
            seeks: SeekHistory::default(),
            idle_window: member.client.is_some() && member.priority.class != Class::Idle,
            deep: false,
            service: None,
            activated: now,
            slice_start: None,
            allocated: Nanos::ZERO,
            wait_busy: false,
        }
    }
    pub(super) fn seeky(&self) -> bool {
        self.seeks.seeks() > SEEKY_ABOVE
    }
}

impl Queue<Own> {
    pub(super) fn workload(&self) -> Workload {
        match (self.sync, self.own.idle_window) {
            (false, _) => Workload::Async,
            (true, false) => Workload::NoIdle,
            (true, true) => Workload::Sync,
        }
    }
    /// The service tree to which it belongs now.
    pub(super) fn service_tree(&self) -> usize {
        tree_index(self.priority.class, self.workload())
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
