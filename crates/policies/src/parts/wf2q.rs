//! Hierarchical B-WF2Q+ with service classes: which entity is served next, and how service is charged.
//!
//! A group divides its service by weight among its children (groups and queues). An entity has a *budget* B: the
//! service that it may receive in one slot. It need not use all of it. V is the virtual time of its class in its
//! group, and W the sum of the weights in that class:
//!
//! ```text
//! on activation    S = max(V, F)        F = S + B / w
//! on service c     V = V + c / W
//! on expiry        F = S + c / w        S = F,  F = S + B / w   (c: the service it received)
//! next entity      the smallest F among those with S <= V; V jumps to the smallest S if none has
//! ```
//!
//! Sources: Bennett and Zhang, "Hierarchical packet fair queueing algorithms" (1996), for WF2Q+ and its
//! hierarchy; Checconi and Valente, "High throughput disk scheduling with fair bandwidth distribution"
//! (2010), for budgets (B-WF2Q+); Linux `block/bfq-wf2q.c` for classes, the idle trees and the rules
//! of back-shifting. An entity lags behind its share by at most one of its own budgets, one budget of a competitor,
//! and one request.
//!
//! Usage (by BFQ, which decides budgets and when a queue expires): [`Hierarchy::activate`] when a queue gets its
//! first request, [`Hierarchy::pick`] to put a queue in service, [`Hierarchy::served`] for each dispatch, then
//! [`Hierarchy::requeue`] if it expires with requests left, or [`Hierarchy::deactivate`] if it expires empty. Every
//! operation is O(log n) per level, and nothing is allocated unless more entities wait than ever before.
//!
//! **Charged moves.** In the original, a group in service that is moved is charged with all service of its slot, each time
//! ([`Hierarchy::charge_moves`]). It is moved when one of its other queues becomes active or empty. Injection from queues of
//! the same group therefore costs the square of what was injected: after 26 requests of 64 KiB, one at a time, the group
//! waited for seven slots of another one (Linux 6.18, reproduction/truth.md).
//!
//! Other differences from the original. None of them changes the long-run shares:
//! - The next entity of a group is determined again whenever the order may have changed. The original sometimes takes
//!   a new entity without comparing it with others that became eligible meanwhile, and its search of the tree can
//!   miss a smaller finish.
//! - A group is in its parent's tree exactly while it has an entity to serve next.
//! - A group's finish follows the budget of its next entity in both directions (in the original only down, until its
//!   next turn).
//! - The idle class is due 200 ms after its last service, not after it was last found due.

mod order;
mod questions;
mod service_tree;
#[cfg(test)]
mod tests;
mod timestamps;

use alloc::vec::Vec;

use crate::parts::tree::NodeId;
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use service_tree::{Nodes, ServiceTree};
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
    /// Whether its weight is part of its tree's sum (active, in service, or remembered).
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
    /// The same, because a queue that is not in service became empty.
    Leave,
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
    in_service: Option<EntityId>,
    /// Whether a group in service is charged each time it is moved, with all service in this slot.
    charges_moves: bool,
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
            in_service: None,
            charges_moves: false,
        };
        this.levels.push(Level::default());
        this.entities
            .push(Entity { level: 0, ..Entity::new(EntityId::ROOT, 1, Class::BestEffort) });
        this
    }
    /// From now on, a group in service is charged whenever one of its queues becomes active or empty: each time with all
    /// service that it received in this slot.
    pub fn charge_moves(&mut self) {
        self.charges_moves = true;
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
    /// Takes the next queue into service, along with all groups above it. No queue may be in service.
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
            false => Reason::Leave,
        };
        if reason == Reason::Expiry {
            self.in_service = None;
        }
        self.retire(queue, leave);
        self.climb(now, queue, reason);
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
