//! Hierarchical B-WF2Q+ with service classes: who is served next, and how service is charged.
//!
//! Every group shares its service among the groups and queues directly inside, by weight. An entity
//! has a *budget* B: the service that it may receive in one go, not known beforehand to be used up.
//! With V the virtual time of its class in its group and W the weights in that class,
//!
//! ```text
//! on activation    S = max(V, F)        F = S + B / w
//! on service c     V = V + c / W
//! on expiry        F = S + c / w        S = F,  F = S + B / w   (c: what it really received)
//! who is next      the smallest F among those with S <= V; V jumps to the smallest S if nobody has
//! ```
//!
//! Sources: Bennett and Zhang, "Hierarchical packet fair queueing algorithms" (1996), for WF2Q+ and its
//! hierarchy; Checconi and Valente, "High throughput disk scheduling with fair bandwidth distribution"
//! (2010), for budgets (B-WF2Q+); Linux `block/bfq-wf2q.c` for classes, the idle trees and the rules
//! of back-shifting (policies.md A16). An entity lags its share by at most one budget of its own and one
//! of a competitor, and one request.
//!
//! How to use it (the owner is BFQ's policy, which decides budgets and when a queue expires):
//! [`Hierarchy::activate`] when a queue gets its first request, [`Hierarchy::pick`] to put one queue in
//! service, [`Hierarchy::served`] for each dispatch, then [`Hierarchy::requeue`] if it expires with
//! requests left or [`Hierarchy::deactivate`] if it expires empty. Every operation is O(log n) a level
//! and allocates nothing once as many entities as now have been waiting at once.
//!
//! Where we differ from the original, none of which changes who gets how much in the long run:
//! - the next entity of a group is looked up anew whenever its order may have changed; the original
//!   sometimes takes the newcomer without comparing it with those that became eligible meanwhile, and
//!   its walk of the tree can miss a smaller finish;
//! - a group stands in its parent's tree exactly while it has somebody to serve next;
//! - a group's finish follows the budget of its next entity both up and down (the original: only
//!   down, until its next turn);
//! - service that a group in service received is charged once, however often the group is moved;
//! - the idle class is due 200 ms after it was really served, not after it was found due.

mod service_tree;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use crate::group::Class;
use crate::parts::tree::NodeId;
use crate::time::{Instant, Nanos};
use crate::unit::Sectors;

use service_tree::{Nodes, ServiceTree, Waiting};
pub use service_tree::{SHIFT, Virtual};

/// Time without service after which a group's idle class goes first.
pub const IDLE_CLASS_PERIOD: Nanos = Nanos::from_millis(200);

/// A group or a queue of a [`Hierarchy`]: a small dense number, used again after its removal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntityId(pub u32);

impl EntityId {
    /// The group that holds everything.
    pub const ROOT: Self = Self(0);
    /// As an index of a vector.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a queue becomes active.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It starts at the present virtual time, or at its last finish if that is later.
    Plain,
    /// It expired only because its next request was not there yet, and here it is, in time
    /// (`non_blocking_wait_rq`): it starts where it finished, as if it had never left. So that it
    /// cannot hoard the past, a finish below the virtual time is moved up to it; for a raised queue
    /// only by the distance divided by `raising` (1 when not raised).
    InTime {
        /// The coefficient by which the queue's weight is raised now.
        raising: u32,
    },
}

/// What becomes of the timestamps of a queue that is no longer active.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// Kept while its finish lies ahead of the virtual time, so that leaving and coming back gains
    /// nothing; its weight counts until then.
    Remembered,
    /// Dropped at once (it goes to another group, or away).
    Forgotten,
}

/// Which tree holds an entity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    Active(NodeId),
    Idle(NodeId),
}

/// "No level" of an entity: it is a queue.
const QUEUE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entity {
    start: Virtual,
    finish: Virtual,
    budget: Sectors,
    /// Service not yet charged to `start`.
    service: Sectors,
    parent: EntityId,
    place: Place,
    /// Index of a group's own trees; [`QUEUE`] for a queue.
    level: u32,
    weight: u32,
    /// Weight and class asked for; taken over at the next entry into the active tree.
    wanted_weight: u32,
    class: Class,
    wanted_class: Class,
    /// Is its weight part of its tree's sum (active, in service, or remembered)?
    counted: bool,
    /// Active or in service.
    busy: bool,
    live: bool,
}

/// What a group shares among the entities inside.
#[derive(Clone, Copy, Default, Debug)]
struct Level {
    trees: [ServiceTree; 3],
    in_service: Option<EntityId>,
    next: Option<EntityId>,
    idle_class_served: Instant,
    children: u32,
}

/// Why timestamps move upwards through the groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    /// The order changed; stops at the first group that looks the same from above.
    Change,
    /// A queue came back in time; groups that become active with it are back-shifted too.
    InTime,
    /// The queue in service leaves it, and so do all groups above.
    Expiry,
}

/// The tree of groups and queues with all timestamps.
#[derive(Debug)]
pub struct Hierarchy {
    entities: Vec<Entity>,
    free: Vec<EntityId>,
    levels: Vec<Level>,
    free_levels: Vec<u32>,
    nodes: Nodes,
    busy_queues: [u32; 3],
    busy_groups: u32,
    in_service: Option<EntityId>,
}

impl Default for Hierarchy {
    fn default() -> Self {
        Self::new()
    }
}

/// Building and changing the tree.
impl Hierarchy {
    /// Only the root group.
    pub fn new() -> Self {
        let mut this = Self {
            entities: Vec::new(),
            free: Vec::new(),
            levels: Vec::new(),
            free_levels: Vec::new(),
            nodes: Nodes::new(),
            busy_queues: [0; 3],
            busy_groups: 0,
            in_service: None,
        };
        this.levels.push(Level::default());
        this.entities
            .push(Entity { level: 0, ..Entity::new(EntityId::ROOT, 1, Class::BestEffort) });
        this
    }
    /// Adds a group inside `parent`. Weights start at 1.
    pub fn add_group(&mut self, parent: EntityId, weight: u32, class: Class) -> EntityId {
        let level = self.free_levels.pop().unwrap_or(self.levels.len() as u32);
        match self.levels.get_mut(level as usize) {
            Some(free) => *free = Level::default(),
            None => self.levels.push(Level::default()),
        }
        self.add(Entity { level, ..Entity::new(parent, weight, class) })
    }
    /// Adds a queue inside `parent`; it is not active. `weight` is the effective one: raised already.
    pub fn add_queue(&mut self, parent: EntityId, weight: u32, class: Class) -> EntityId {
        self.add(Entity::new(parent, weight, class))
    }
    fn add(&mut self, entity: Entity) -> EntityId {
        self.level_mut(entity.parent).children += 1;
        let id = self.free.pop().unwrap_or(EntityId(self.entities.len() as u32));
        match self.entities.get_mut(id.index()) {
            Some(free) => *free = entity,
            None => self.entities.push(entity),
        }
        self.entities[id.index()].finish = self.tree(id).now;
        id
    }
    /// Removes a queue that is not active, or a group that holds nothing any more. Its id is free.
    pub fn remove(&mut self, id: EntityId) {
        assert!(id != EntityId::ROOT, "the root group stays");
        assert!(!self.entity(id).busy, "{id:?} is still active");
        self.forget_if_remembered(id);
        let Entity { parent, level, .. } = *self.entity(id);
        if level != QUEUE {
            assert!(self.levels[level as usize].children == 0, "{id:?} still holds something");
            self.free_levels.push(level);
        }
        self.level_mut(parent).children -= 1;
        self.entity_mut(id).live = false;
        self.free.push(id);
    }
    /// Puts a queue, or a group that is not busy, inside another group; not while in service. An active
    /// queue stays active and starts anew there.
    pub fn reparent(&mut self, now: Instant, id: EntityId, parent: EntityId) {
        assert!(!self.is_in_service(id), "{id:?} is in service");
        let busy = self.is_busy(id);
        if busy {
            assert!(self.is_queue(id), "group {id:?} is busy");
            self.deactivate(now, id, Leave::Forgotten);
        } else {
            self.forget_if_remembered(id);
        }
        let old = core::mem::replace(&mut self.entity_mut(id).parent, parent);
        self.level_mut(old).children -= 1;
        self.level_mut(parent).children += 1;
        self.entity_mut(id).finish = self.tree(id).now;
        if busy {
            self.activate(now, id, Arrival::Plain);
        }
    }
    /// Asks for another weight (effective: raised already), at least 1. It counts from the entity's
    /// next activation, requeueing or change of budget on.
    pub fn set_weight(&mut self, id: EntityId, weight: u32) {
        assert!(weight > 0, "{id:?}: weights start at 1");
        self.entity_mut(id).wanted_weight = weight;
    }
    /// Asks for another class; it counts from the same moment as a weight.
    pub fn set_class(&mut self, id: EntityId, class: Class) {
        self.entity_mut(id).wanted_class = class;
    }
    /// Makes a weight asked for count at once, for the sum of weights and for charges to come; the
    /// timestamps stay (what weight raising needs for the queue in service).
    pub fn apply_weight(&mut self, id: EntityId) {
        self.take_wanted(id, false);
    }
    /// Sets the service that a queue may receive in one go. If it waits its place in the order changes
    /// at once; in service, it is just the new limit.
    pub fn set_budget(&mut self, now: Instant, queue: EntityId, budget: Sectors) {
        assert!(self.is_queue(queue), "a group's budget is that of its next entity");
        let old = core::mem::replace(&mut self.entity_mut(queue).budget, budget);
        if old != budget && matches!(self.entity(queue).place, Place::Active(_)) {
            self.reposition(queue, false);
            self.climb(now, queue, Reason::Change);
        }
    }
}

/// The life of a queue: active, in service, served, and back.
impl Hierarchy {
    /// A queue has something to do again. Its service counter starts at zero.
    pub fn activate(&mut self, now: Instant, queue: EntityId, arrival: Arrival) {
        assert!(self.is_queue(queue) && !self.is_busy(queue), "{queue:?} is active already");
        self.entity_mut(queue).service = Sectors::ZERO;
        let (raising, reason) = match arrival {
            Arrival::Plain => (None, Reason::Change),
            Arrival::InTime { raising } => (Some(raising), Reason::InTime),
        };
        self.arrive(queue, raising);
        self.climb(now, queue, reason);
    }
    /// Takes the next queue into service, along with all groups above it. Nobody may be in service.
    pub fn pick(&mut self, now: Instant) -> Option<EntityId> {
        assert!(self.in_service.is_none(), "{:?} is still in service", self.in_service);
        let mut at = EntityId::ROOT;
        while !self.is_queue(at) {
            let next = match self.level(at).next {
                None if at == EntityId::ROOT => return None,
                next => next.expect("a waiting group has somebody to serve next"),
            };
            let idle_class = self.entity(next).class == Class::Idle;
            let level = self.level_mut(at);
            level.in_service = Some(next);
            if idle_class {
                level.idle_class_served = now;
            }
            at = next;
        }
        self.in_service = Some(at);
        self.withdraw(at);
        self.climb(now, at, Reason::Change);
        Some(at)
    }
    /// Charges service to a busy queue (in service or not: injection) and to every group above it.
    pub fn served(&mut self, queue: EntityId, service: Sectors) {
        assert!(self.is_queue(queue) && self.is_busy(queue), "{queue:?} is not active");
        let mut at = queue;
        while at != EntityId::ROOT {
            self.entity_mut(at).service += service;
            let tree = self.tree_mut(at);
            tree.now = tree.now.after(service, tree.weight_sum);
            let parent = self.entity(at).parent;
            self.forget_one(parent, self.entity(at).class);
            at = parent;
        }
    }
    /// Charges more, until the queue's service is `total` at least (time charging); its budget grows
    /// with it if need be.
    pub fn charge_up_to(&mut self, queue: EntityId, total: Sectors) {
        let entity = self.entity_mut(queue);
        entity.budget = entity.budget.max(total);
        let more = Sectors(total.0.saturating_sub(entity.service.0));
        self.served(queue, more);
    }
    /// The queue in service expires and is still active: it waits for its next turn, with the budget
    /// set last. Its service counter starts again at zero.
    pub fn requeue(&mut self, now: Instant, queue: EntityId) {
        assert!(self.in_service == Some(queue), "{queue:?} is not in service");
        self.in_service = None;
        self.reposition(queue, true);
        self.climb(now, queue, Reason::Expiry);
    }
    /// A queue has nothing to do any more; if it is in service it expires. A queue that was in service
    /// keeps its service counter readable until it is activated again.
    pub fn deactivate(&mut self, now: Instant, queue: EntityId, leave: Leave) {
        assert!(self.is_queue(queue) && self.is_busy(queue), "{queue:?} is not active");
        let reason = match self.in_service == Some(queue) {
            true => Reason::Expiry,
            false => Reason::Change,
        };
        if reason == Reason::Expiry {
            self.in_service = None;
        }
        self.retire(queue, leave);
        self.climb(now, queue, reason);
    }
}

/// Questions.
impl Hierarchy {
    /// The queue in service.
    pub fn in_service(&self) -> Option<EntityId> {
        self.in_service
    }
    /// The entity of a group that is in service.
    pub fn in_service_of(&self, group: EntityId) -> Option<EntityId> {
        self.level(group).in_service
    }
    /// The entity of a group that is served next, the one in service left aside.
    pub fn next_of(&self, group: EntityId) -> Option<EntityId> {
        self.level(group).next
    }
    /// The queue that [`Self::pick`] would take if the one in service expired empty now; for hints, as
    /// the expiry itself may change the order.
    pub fn next_queue(&self) -> Option<EntityId> {
        let mut at = self.level(EntityId::ROOT).next?;
        while !self.is_queue(at) {
            at = self.level(at).next?;
        }
        Some(at)
    }
    /// Would the root group serve somebody else next? Only then is it of use to preempt the queue in
    /// service.
    pub fn next_may_preempt(&self) -> bool {
        let root = self.level(EntityId::ROOT);
        root.next.is_some() && root.next != root.in_service
    }
    /// Is it a queue (not a group)?
    pub fn is_queue(&self, id: EntityId) -> bool {
        self.entity(id).level == QUEUE
    }
    /// Is it active or in service?
    pub fn is_busy(&self, id: EntityId) -> bool {
        self.entity(id).busy
    }
    /// Is it in service: the queue, or a group above it?
    pub fn is_in_service(&self, id: EntityId) -> bool {
        id != EntityId::ROOT && self.level(self.entity(id).parent).in_service == Some(id)
    }
    /// The group that holds it; the root holds itself.
    pub fn parent(&self, id: EntityId) -> EntityId {
        self.entity(id).parent
    }
    /// The weight in force.
    pub fn weight(&self, id: EntityId) -> u32 {
        self.entity(id).weight
    }
    /// The class in force.
    pub fn class(&self, id: EntityId) -> Class {
        self.entity(id).class
    }
    /// Service that it may receive in one go.
    pub fn budget(&self, id: EntityId) -> Sectors {
        self.entity(id).budget
    }
    /// Service received since it was last activated or requeued; for a group, since it was last moved.
    pub fn service(&self, id: EntityId) -> Sectors {
        self.entity(id).service
    }
    /// What is left of the budget.
    pub fn budget_left(&self, id: EntityId) -> Sectors {
        let entity = self.entity(id);
        Sectors(entity.budget.0.saturating_sub(entity.service.0))
    }
    /// Virtual start and finish.
    pub fn timestamps(&self, id: EntityId) -> (Virtual, Virtual) {
        (self.entity(id).start, self.entity(id).finish)
    }
    /// The virtual time of a class of a group.
    pub fn virtual_time(&self, group: EntityId, class: Class) -> Virtual {
        self.level(group).trees[class as usize].now
    }
    /// Sum of the weights of a class in a group: active, in service, or remembered.
    pub fn weight_sum(&self, group: EntityId, class: Class) -> u64 {
        self.level(group).trees[class as usize].weight_sum
    }
    /// Entities of a class directly inside a group that are active or in service.
    pub fn busy_inside(&self, group: EntityId, class: Class) -> u32 {
        self.level(group).trees[class as usize].busy
    }
    /// Busy queues of a class, over the whole hierarchy.
    pub fn busy_queues(&self, class: Class) -> u32 {
        self.busy_queues[class as usize]
    }
    /// Busy queues in all.
    pub fn busy_queues_total(&self) -> u32 {
        self.busy_queues.iter().sum()
    }
    /// Busy groups, the root left aside.
    pub fn busy_groups(&self) -> u32 {
        self.busy_groups
    }
}

impl Entity {
    fn new(parent: EntityId, weight: u32, class: Class) -> Self {
        assert!(weight > 0, "weights start at 1");
        Self {
            start: Virtual::default(),
            finish: Virtual::default(),
            budget: Sectors::ZERO,
            service: Sectors::ZERO,
            parent,
            place: Place::Nowhere,
            level: QUEUE,
            weight,
            wanted_weight: weight,
            class,
            wanted_class: class,
            counted: false,
            busy: false,
            live: true,
        }
    }
    fn finish_after(&self, service: Sectors) -> Virtual {
        self.start.after(service, u64::from(self.weight))
    }
}

/// Timestamps of one entity.
impl Hierarchy {
    fn entity(&self, id: EntityId) -> &Entity {
        let entity = &self.entities[id.index()];
        debug_assert!(entity.live, "{id:?} was removed");
        entity
    }
    fn entity_mut(&mut self, id: EntityId) -> &mut Entity {
        let entity = &mut self.entities[id.index()];
        debug_assert!(entity.live, "{id:?} was removed");
        entity
    }
    fn level(&self, group: EntityId) -> &Level {
        &self.levels[self.entity(group).level as usize]
    }
    fn level_mut(&mut self, group: EntityId) -> &mut Level {
        let level = self.entity(group).level;
        &mut self.levels[level as usize]
    }
    /// The service tree that an entity belongs to.
    fn tree(&self, id: EntityId) -> &ServiceTree {
        let entity = self.entity(id);
        &self.level(entity.parent).trees[entity.class as usize]
    }
    fn tree_mut(&mut self, id: EntityId) -> &mut ServiceTree {
        let Entity { parent, class, .. } = *self.entity(id);
        &mut self.level_mut(parent).trees[class as usize]
    }

    /// An entity that is not busy becomes active.
    fn arrive(&mut self, id: EntityId, raising: Option<u32>) {
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
        match self.is_queue(id) {
            true => self.busy_queues[class as usize] += 1,
            false => self.busy_groups += 1,
        }
        self.enter(id, back_shift);
    }
    /// Into the active tree, with the weight and class asked for.
    fn enter(&mut self, id: EntityId, back_shift: Option<u32>) {
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
    fn take_wanted(&mut self, id: EntityId, class_too: bool) {
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
    /// Takes the entity out of whichever tree holds it; was it in one?
    fn withdraw(&mut self, id: EntityId) -> bool {
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
    /// A busy entity is placed anew, after its timestamps moved past what it received in service.
    fn reposition(&mut self, id: EntityId, expires: bool) {
        if self.is_in_service(id) {
            let entity = self.entity_mut(id);
            entity.start = entity.finish_after(entity.service);
            let parent = entity.parent;
            if self.entity(id).level != QUEUE || expires {
                self.entity_mut(id).service = Sectors::ZERO;
            }
            if expires {
                self.level_mut(parent).in_service = None;
            }
        }
        self.withdraw(id);
        self.enter(id, None);
    }
    /// A busy entity is so no more.
    fn retire(&mut self, id: EntityId, leave: Leave) {
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
        match level {
            QUEUE => self.busy_queues[class as usize] -= 1,
            _ => self.busy_groups -= 1,
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
    fn forget_if_remembered(&mut self, id: EntityId) {
        if self.forget_if_remembered_keeping_weight(id) {
            self.forget(id);
        }
    }
    fn forget_if_remembered_keeping_weight(&mut self, id: EntityId) -> bool {
        matches!(self.entity(id).place, Place::Idle(_)) && self.withdraw(id)
    }
    /// Forgets a remembered entity of a class if the virtual time has passed its finish.
    fn forget_one(&mut self, group: EntityId, class: Class) {
        let index = self.entity(group).level as usize;
        let tree = &mut self.levels[index].trees[class as usize];
        if let Some(node) = tree.first_to_forget(&self.nodes) {
            let id = self.nodes.value(node).id;
            self.forget_if_remembered(id);
        }
    }
}

/// Order within groups, and how it moves upwards.
impl Hierarchy {
    /// Looks up who is next, from the group that holds `from` up to the root as far as it matters.
    fn climb(&mut self, now: Instant, from: EntityId, reason: Reason) {
        let mut group = self.entity(from).parent;
        loop {
            self.refresh(now, group);
            if group == EntityId::ROOT {
                return;
            }
            if !self.follow(group, reason) && reason != Reason::Expiry {
                return;
            }
            group = self.entity(group).parent;
        }
    }
    /// Adapts a group's own place to what is inside it; does its parent have to look again?
    fn follow(&mut self, group: EntityId, reason: Reason) -> bool {
        let Level { next, in_service, .. } = *self.level(group);
        let Some(next) = next else {
            if in_service.is_some() {
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
            return false;
        }
        self.reposition(group, reason == Reason::Expiry);
        true
    }
    /// Looks up who is next in a group: the most urgent class first, but the idle class when it has
    /// waited for [`IDLE_CLASS_PERIOD`].
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
