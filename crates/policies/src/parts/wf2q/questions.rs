//! Queries about the state of a [`Hierarchy`].

use super::{EntityId, Hierarchy, QUEUE};
use iofair_core::priority::Class;
use iofair_core::unit::Sectors;

impl Hierarchy {
    /// Whether the root group would serve another entity next. Only then is preempting the queue in service useful.
    pub(crate) fn next_may_preempt(&self) -> bool {
        let root = self.level(EntityId::ROOT);
        root.next.is_some() && root.next != root.in_service
    }
    /// Whether it is a queue and not a group.
    pub(crate) fn is_queue(&self, id: EntityId) -> bool {
        self.entity(id).level == QUEUE
    }
    /// Whether it is active or in service.
    pub fn is_busy(&self, id: EntityId) -> bool {
        self.entity(id).busy
    }
    /// Whether it is in service: the queue, or a group above it.
    pub(crate) fn is_in_service(&self, id: EntityId) -> bool {
        id != EntityId::ROOT && self.level(self.entity(id).parent).in_service == Some(id)
    }
    /// The group that holds it; for the root, the root.
    pub fn parent(&self, id: EntityId) -> EntityId {
        self.entity(id).parent
    }
    /// The two siblings that are, or contain, these queues.
    pub(crate) fn side_by_side(&self, queues: [EntityId; 2]) -> [EntityId; 2] {
        let mut at = queues;
        let mut depths = at.map(|queue| self.depth(queue));
        while self.parent(at[0]) != self.parent(at[1]) {
            let deepest = depths[0].max(depths[1]);
            for (at, depth) in at.iter_mut().zip(&mut depths) {
                if *depth == deepest {
                    (*at, *depth) = (self.parent(*at), *depth - 1);
                }
            }
        }
        at
    }
    fn depth(&self, id: EntityId) -> u32 {
        let above = |at: &EntityId| Some(self.parent(*at)).filter(|_| *at != EntityId::ROOT);
        core::iter::successors(Some(id), above).count() as u32
    }
    /// The weight in force.
    pub fn weight(&self, id: EntityId) -> u32 {
        self.entity(id).weight
    }
    /// The class in force.
    pub fn class(&self, id: EntityId) -> Class {
        self.entity(id).class
    }
    /// The service that it may receive in one slot.
    pub fn budget(&self, id: EntityId) -> Sectors {
        self.entity(id).budget
    }
    /// Service received since it was last activated or requeued; for a group, since it was last moved.
    pub fn service(&self, id: EntityId) -> Sectors {
        self.entity(id).service
    }
    /// The rest of the budget.
    pub(crate) fn budget_left(&self, id: EntityId) -> Sectors {
        let entity = self.entity(id);
        Sectors(entity.budget.0.saturating_sub(entity.service.0))
    }
    /// Number of children of a class that are active or in service.
    pub fn busy_inside(&self, group: EntityId, class: Class) -> u32 {
        self.level(group).trees[class as usize].busy
    }
    /// Number of busy queues of a class in the whole hierarchy.
    pub fn busy_queues(&self, class: Class) -> u32 {
        self.busy_queues[class as usize]
    }
    /// Number of all busy queues.
    pub(crate) fn busy_queues_total(&self) -> u32 {
        self.busy_queues.iter().sum()
    }
}
