//! The timestamps of an entity, and its moves between the active and the idle tree.

use super::service_tree::{ServiceTree, Waiting};
use super::{Entity, EntityId, Hierarchy, Leave, Level, Place, QUEUE};
use iofair_core::priority::Class;
use iofair_core::unit::Sectors;

impl Hierarchy {
    pub(super) fn entity(&self, id: EntityId) -> &Entity {
        let entity = &self.entities[id.index()];
        debug_assert!(entity.live, "{id:?} was removed");
        entity
    }
    pub(super) fn entity_mut(&mut self, id: EntityId) -> &mut Entity {
        let entity = &mut self.entities[id.index()];
        debug_assert!(entity.live, "{id:?} was removed");
        entity
    }
    pub(super) fn level(&self, group: EntityId) -> &Level {
        &self.levels[self.entity(group).level as usize]
    }
    pub(super) fn level_mut(&mut self, group: EntityId) -> &mut Level {
        let level = self.entity(group).level;
        &mut self.levels[level as usize]
    }
    /// The service tree that an entity belongs to.
    pub(super) fn tree(&self, id: EntityId) -> &ServiceTree {
        let entity = self.entity(id);
        &self.level(entity.parent).trees[entity.class as usize]
    }
    pub(super) fn tree_mut(&mut self, id: EntityId) -> &mut ServiceTree {
        let Entity { parent, class, .. } = *self.entity(id);
        &mut self.level_mut(parent).trees[class as usize]
    }

    /// Activates an entity that is not busy.
    pub(super) fn arrive(&mut self, id: EntityId, raising: Option<u32>) {
        let now = self.tree(id).now;
        self.forget_if_remembered_keeping_weight(id);
        let entity = self.entity_mut(id);
        let back_shift = raising.filter(|_| now > entity.finish);
        let least = if back_shift.is_some() { entity.finish } else { now };
        entity.start = if entity.counted { least.max(entity.finish) } else { least };
        entity.busy = true;
        let (weight, class) = (u64::from(entity.weight), entity.class);
        let joins = !core::mem::replace(&mut entity.counted, true);
        let tree = self.tree_mut(id);
        tree.busy += 1;
        if joins {
            tree.weight_sum += weight;
        }
        if self.is_queue(id) {
            self.busy_queues[class as usize] += 1;
        }
        self.enter(id, back_shift);
    }
    /// Puts an entity into the active tree, with the wanted weight and class.
    pub(super) fn enter(&mut self, id: EntityId, back_shift: Option<u32>) {
        self.take_wanted(id, true);
        let now = self.tree(id).now;
        let entity = self.entity_mut(id);
        entity.finish = entity.finish_after(entity.budget);
        if let Some(raising) = back_shift.filter(|_| now > entity.finish) {
            let delta = now.since(entity.finish) / u64::from(raising);
            entity.start = entity.start.plus(delta);
            entity.finish = entity.finish.plus(delta);
        }
        let Entity { start, finish, parent, class, .. } = *entity;
        let index = self.entity(parent).level as usize;
        let tree = &mut self.levels[index].trees[class as usize];
        let node = self.nodes.insert(&mut tree.active, finish, Waiting { start, id });
        self.entity_mut(id).place = Place::Active(node);
    }
    pub(super) fn take_wanted(&mut self, id: EntityId, class_too: bool) {
        let entity = *self.entity(id);
        let moves = class_too && entity.class != entity.wanted_class;
        if entity.weight == entity.wanted_weight && !moves {
            return;
        }
        if entity.counted {
            self.tree_mut(id).weight_sum -= u64::from(entity.weight);
        }
        self.entity_mut(id).weight = entity.wanted_weight;
        if moves {
            self.change_class(id);
        }
        if entity.counted {
            self.tree_mut(id).weight_sum += u64::from(entity.wanted_weight);
        }
    }
    fn change_class(&mut self, id: EntityId) {
        let Entity { class, wanted_class, busy, .. } = *self.entity(id);
        if busy {
            self.tree_mut(id).busy -= 1;
            if self.is_queue(id) {
                self.busy_queues[class as usize] -= 1;
                self.busy_queues[wanted_class as usize] += 1;
            }
        }
        self.entity_mut(id).class = wanted_class;
        let tree = self.tree_mut(id);
        tree.busy += u32::from(busy);
        let now = tree.now;
        self.entity_mut(id).start = now;
    }
    /// Removes the entity from its tree. Returns whether it was in one.
    pub(super) fn withdraw(&mut self, id: EntityId) -> bool {
        let Entity { parent, class, place, .. } = *self.entity(id);
        let index = self.entity(parent).level as usize;
        let tree = &mut self.levels[index].trees[class as usize];
        match place {
            Place::Nowhere => return false,
            Place::Active(node) => self.nodes.remove(&mut tree.active, node),
            Place::Idle(node) => self.nodes.remove(&mut tree.idle, node),
        };
        self.entity_mut(id).place = Place::Nowhere;
        true
    }
    /// Charges a group in service that is moved, if moves are charged.
    pub(super) fn charge_move(&mut self, group: EntityId) -> bool {
        let charges = self.charges_moves && self.is_in_service(group);
        if charges {
            let entity = self.entity_mut(group);
            entity.start = entity.finish_after(entity.service);
        }
        charges
    }
    /// Puts a busy entity at its new position, after its timestamps have moved past the service that it received.
    pub(super) fn reposition(&mut self, id: EntityId, expires: bool) {
        if self.is_in_service(id) {
            let entity = self.entity_mut(id);
            entity.start = entity.finish_after(entity.service);
            let parent = entity.parent;
            if expires || entity.level != QUEUE && !self.charges_moves {
                self.entity_mut(id).service = Sectors::ZERO;
            }
            if expires {
                self.level_mut(parent).in_service = None;
            }
        }
        self.withdraw(id);
        self.enter(id, None);
    }
    /// Deactivates a busy entity.
    pub(super) fn retire(&mut self, id: EntityId, leave: Leave) {
        let was_in_service = self.is_in_service(id);
        self.withdraw(id);
        let entity = self.entity_mut(id);
        entity.finish = entity.finish_after(entity.service);
        entity.busy = false;
        let Entity { finish, class, parent, start, level, .. } = *entity;
        if level != QUEUE || !was_in_service {
            entity.service = Sectors::ZERO;
        }
        if was_in_service {
            self.level_mut(parent).in_service = None;
        }
        if level == QUEUE {
            self.busy_queues[class as usize] -= 1;
        }
        let tree = self.tree_mut(id);
        tree.busy -= 1;
        if leave == Leave::Forgotten || finish <= tree.now {
            self.forget(id);
            return;
        }
        let index = self.entity(parent).level as usize;
        let tree = &mut self.levels[index].trees[class as usize];
        let node = self.nodes.insert(&mut tree.idle, finish, Waiting { start, id });
        self.entity_mut(id).place = Place::Idle(node);
    }
    fn forget(&mut self, id: EntityId) {
        let weight = u64::from(self.entity(id).weight);
        self.entity_mut(id).counted = false;
        self.tree_mut(id).weight_sum -= weight;
    }
    pub(super) fn forget_if_remembered(&mut self, id: EntityId) {
        if self.forget_if_remembered_keeping_weight(id) {
            self.forget(id);
        }
    }
    fn forget_if_remembered_keeping_weight(&mut self, id: EntityId) -> bool {
        matches!(self.entity(id).place, Place::Idle(_)) && self.withdraw(id)
    }
    /// Forgets a remembered entity of a class if the virtual time has passed its finish.
    pub(super) fn forget_one(&mut self, group: EntityId, class: Class) {
        let index = self.entity(group).level as usize;
        let tree = &mut self.levels[index].trees[class as usize];
        if let Some(node) = tree.first_to_forget(&self.nodes) {
            let id = self.nodes.value(node).id;
            self.forget_if_remembered(id);
        }
    }
}
