//! Virtual time, and the service tree of one class: waiting and remembered entities, and the sum of weights.

use crate::parts::tree::{Arena, NodeId, Summary, Tree};
use iofair_core::unit::Sectors;

use super::EntityId;

/// Binary digits after the point of a virtual time.
pub const SHIFT: u32 = 22;

/// A point in virtual time: service divided by weight, with [`SHIFT`] binary digits after the point.
///
/// Comparison uses the sign of the wrapped difference, so a clock may overflow (after three days at 7 GB/s and weight
/// 1). Two times of one tree are never half of the range apart.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Virtual(pub u64);

impl Virtual {
    /// The virtual time after this much service at this weight; rounded down, like the original.
    pub fn after(self, service: Sectors, weight: u64) -> Self {
        debug_assert!(service.0 < 1 << (64 - SHIFT), "{service:?} is no amount of service");
        Self(self.0.wrapping_add((service.0 << SHIFT) / weight))
    }
    /// The difference from an earlier time.
    pub fn since(self, earlier: Self) -> u64 {
        debug_assert!(self >= earlier);
        self.0.wrapping_sub(earlier.0)
    }
    pub(super) fn plus(self, delta: u64) -> Self {
        Self(self.0.wrapping_add(delta))
    }
}
impl PartialOrd for Virtual {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Virtual {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.0.wrapping_sub(other.0) as i64).cmp(&0)
    }
}

/// The data of a tree node; the key of the node is the entity's finish.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) start: Virtual,
    pub(super) id: EntityId,
}

impl Summary for Waiting {
    /// The smallest start in the subtree.
    type Of = Virtual;
    fn alone(&self) -> Virtual {
        self.start
    }
    fn join(one: Virtual, other: Virtual) -> Virtual {
        one.min(other)
    }
}

/// The nodes of every service tree of a hierarchy.
pub(super) type Nodes = Arena<Virtual, Waiting>;

/// The service tree of one class of one group.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ServiceTree {
    /// Candidates for service, by finish.
    pub(super) active: Tree,
    /// Remembered entities: they left early, and their finish is still after the virtual time. By finish.
    pub(super) idle: Tree,
    /// Weight of all entities that are active, in service or remembered.
    pub(super) weight_sum: u64,
    /// The virtual time.
    pub(super) now: Virtual,
    /// Entities active or in service.
    pub(super) busy: u32,
}

impl ServiceTree {
    /// The eligible entity with the smallest finish. `jump`: no entity is in service, so the virtual time moves
    /// forward until one is eligible.
    pub(super) fn first_eligible(&mut self, nodes: &Nodes, jump: bool) -> Option<EntityId> {
        let eligible = |moment| nodes.first_where(&self.active, |start| start <= moment);
        let node = eligible(self.now).or_else(|| {
            let moment = nodes.summary(&self.active)?;
            let node = eligible(moment);
            if jump {
                self.now = moment;
            }
            node
        });
        node.map(|node| nodes.value(node).id)
    }
    /// A remembered entity that can be forgotten now, if there is one. One at a time, like the original, which keeps
    /// the cost of each call O(log n).
    pub(super) fn first_to_forget(&mut self, nodes: &Nodes) -> Option<NodeId> {
        let first = nodes.first(&self.idle)?;
        if self.active.is_empty() {
            let last = nodes.key(nodes.last(&self.idle).expect("there is a first"));
            // Without competitors, the virtual time stays where the last one finished.
            self.now = self.now.min(last);
        }
        (nodes.key(first) <= self.now).then_some(first)
    }
}
