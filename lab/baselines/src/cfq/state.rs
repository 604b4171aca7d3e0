//! The state of this version of CFQ.

use crate::parts::cfq::Version;
use crate::parts::cfq::queue::{Member, QueueId};
use crate::parts::habits::Habits;
use crate::parts::slots::SlotId;
use iofair_core::priority::Class;
use iofair_core::time::Instant;
use iofair_policies::parts::tree::{Arena, NodeId, Tree};

/// Class, and a time in nanoseconds that may be before the epoch.
pub(super) type Key = (Class, i64);

/// The tree of queues with requests.
#[derive(Debug, Default)]
pub(super) struct Order {
    pub(super) arena: Arena<Key, u32>,
    pub(super) tree: Tree,
}

impl Order {
    pub(super) fn first(&self) -> Option<QueueId> {
        self.arena.first(&self.tree).map(|node| SlotId(self.arena.value(node)))
    }
}

/// The state of this version.
pub(super) struct Early {
    pub(super) queue_merge: bool,
    pub(super) order: Order,
    pub(super) last_sync_completion: Instant,
}

/// What a queue has in this version.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) habits: Habits,
    /// Its position in the order of service, while it has requests.
    pub(super) place: Option<NodeId>,
    /// Since when it has been shared and seeky.
    pub(super) seeky_since: Option<Instant>,
    /// Whether it was served out of turn by a jump.
    pub(super) jumped_to: bool,
}

impl Version for Early {
    type Own = Own;
    fn own(now: Instant, _member: &Member) -> Own {
        Own { habits: Habits::new(now), place: None, seeky_since: None, jumped_to: false }
    }
}
