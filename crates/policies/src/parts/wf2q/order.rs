//! The order within groups, and the propagation of changes to the levels above.

use super::{EntityId, Hierarchy, IDLE_CLASS_PERIOD, Leave, Level, Place, Reason};
use iofair_core::priority::Class;
use iofair_core::time::Instant;

impl Hierarchy {
    /// Determines the next entity, from the group that holds `from` up to the root, as far as anything changes.
    pub(super) fn climb(&mut self, now: Instant, from: EntityId, mut reason: Reason) {
        let mut group = self.entity(from).parent;
        loop {
            self.refresh(now, group);
            if group == EntityId::ROOT {
                return;
            }
            if !self.follow(group, reason) && reason != Reason::Expiry {
                return;
            }
            if reason == Reason::Leave {
                reason = Reason::Change;
            }
            group = self.entity(group).parent;
        }
    }
    /// Updates a group's position according to its contents. Returns whether its parent must be updated, too.
    fn follow(&mut self, group: EntityId, reason: Reason) -> bool {
        let Level { next, in_service, .. } = *self.level(group);
        let Some(next) = next else {
            if in_service.is_some() {
                self.charge_move(group);
                return self.withdraw(group);
            }
            self.retire(group, Leave::Remembered);
            return true;
        };
        let budget = self.entity(next).budget;
        let entity = self.entity_mut(group);
        let same = core::mem::replace(&mut entity.budget, budget) == budget;
        if !entity.busy {
            self.arrive(group, (reason == Reason::InTime).then_some(1));
            return true;
        }
        let waits = matches!(entity.place, Place::Active(_));
        if same && waits && reason != Reason::Expiry {
            let charged = reason == Reason::Leave && self.charge_move(group);
            if charged {
                self.withdraw(group);
                self.enter(group, None);
            }
            return charged;
        }
        self.reposition(group, reason == Reason::Expiry);
        true
    }
    /// Determines the next entity of a group: from the most urgent class, or from the idle class after it has waited
    /// for [`IDLE_CLASS_PERIOD`].
    fn refresh(&mut self, now: Instant, group: EntityId) {
        let index = self.entity(group).level as usize;
        let level = &mut self.levels[index];
        let nobody = level.in_service.is_none();
        let mut first = 0;
        if now.since(level.idle_class_served) > IDLE_CLASS_PERIOD {
            if level.trees[Class::Idle as usize].active.is_empty() {
                level.idle_class_served = now;
            } else {
                first = Class::Idle as usize;
            }
        }
        level.next = None;
        for class in &Class::ALL[first..] {
            let tree = &mut self.levels[index].trees[*class as usize];
            let before = tree.now;
            let next = tree.first_eligible(&self.nodes, nobody);
            let moved = tree.now != before;
            if next.is_some() {
                self.levels[index].next = next;
                if moved {
                    self.forget_one(group, *class);
                }
                return;
            }
        }
    }
}
