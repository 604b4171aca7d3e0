//! Start-time fair queueing over the tree of groups and clients, in drive time.
//!
//! Each group and client has a virtual time, its start tag: the drive time that it was charged, divided by its weight. Among
//! siblings, the most urgent class goes first, and in a class the smallest virtual time.
//!
//! ```text
//! on dispatch  vtime = vtime + cost * default weight / weight      of the client and all groups above
//! served       the smallest virtual time among the siblings with requests queued, when one was dispatched by share
//! on arrival   vtime = max(vtime, served)      if the client had nothing queued: no claim arises from a pause
//! ```
//!
//! Each side (reads, writes, flushes) has its own order, so that one may be held while the others go.
//!
//! Source: Goyal, Vin and Cheng, "Start-time fair queueing" (1996); for a drive with several commands in flight: Jin, Chase and
//! Kaur, "Interposed proportional sharing" (2004).

use alloc::vec::Vec;

pub(crate) use super::entity::{EntityId, Key, SIDES, Side};
use super::scale::scale;
use super::tree::{Arena, NodeId, Tree};
use iofair_core::bounds::{LEVEL_MAX, WEIGHT_DEFAULT};
use iofair_core::priority::{Class, Priority};
use iofair_core::time::Nanos;

/// A floor is a quarter of the share of what a client reaches with the drive to itself.
const FLOOR_PART: u64 = 4;
/// All of the drive, in [`Shares::floor_time`].
const WHOLE: u64 = 1 << 24;
const NOWHERE: NodeId = NodeId(u32::MAX);

/// State of a group or a client.
#[derive(Clone, Copy, Debug)]
struct Entity {
    vtime: u64,
    /// Of a group: the virtual time of the child that was served by share last.
    served: u64,
    /// Of a group: the sum of the weights of its active children.
    weights: u64,
    parent: EntityId,
    weight: u32,
    class: Class,
    /// Requests of a client that are queued or in flight; active children of a group.
    active: u32,
    /// By side: requests queued of a client, children of a group that have some.
    queued: [u32; SIDES],
    /// Its nodes in its parent's trees.
    nodes: [NodeId; SIDES],
}

impl Entity {
    const NEW: Self = Self {
        vtime: 0,
        served: 0,
        weights: 0,
        parent: EntityId::ROOT,
        weight: WEIGHT_DEFAULT,
        class: Class::BestEffort,
        active: 0,
        queued: [0; SIDES],
        nodes: [NOWHERE; SIDES],
    };
}

/// The tree of groups and clients.
#[derive(Default, Debug)]
pub(crate) struct Shares {
    entities: Vec<Entity>,
    /// By group and side: children that have requests queued.
    trees: Vec<[Tree; SIDES]>,
    arena: Arena<Key, EntityId>,
}

/// The weight of a client of this I/O priority in its group: as in BFQ, 8 less the level, relative to the default level of 4.
pub(crate) fn weight_of(priority: Priority) -> u32 {
    let level = u32::from(priority.level.min(LEVEL_MAX));
    WEIGHT_DEFAULT * (8 - level) / 4
}

impl Shares {
    /// Adds an entity, moves it with its requests, or changes its weight and class.
    pub(crate) fn set(&mut self, id: EntityId, parent: EntityId, weight: u32, class: Class) {
        let last = id.index().max(parent.index());
        if last >= self.entities.len() {
            self.entities.resize(last + 1, Entity::NEW);
            self.trees.resize(last / 2 + 1, [Tree::new(); SIDES]);
        }
        let Entity { queued, active, parent: before, .. } = self.entities[id.index()];
        self.leave(id);
        let served = self.entities[parent.index()].served;
        let entity = &mut self.entities[id.index()];
        (entity.parent, entity.weight, entity.class) = (parent, weight.max(1), class);
        if before != parent {
            entity.vtime = served;
        }
        for side in Side::ALL.into_iter().filter(|side| queued[*side as usize] > 0) {
            self.join(id, side);
        }
        if active > 0 {
            self.wake(id);
        }
    }
    /// Removes an entity that has no requests.
    pub(crate) fn remove(&mut self, id: EntityId) {
        if id.index() < self.entities.len() {
            self.leave(id);
            self.entities[id.index()] = Entity::NEW;
        }
    }
    fn leave(&mut self, id: EntityId) {
        for side in Side::ALL {
            self.quit(id, side);
        }
        if self.entities[id.index()].active > 0 {
            self.rest(id);
        }
    }
    pub(crate) fn parent(&self, id: EntityId) -> Option<EntityId> {
        let entity = self.entities.get(id.index())?;
        (id != EntityId::ROOT).then_some(entity.parent)
    }
    pub(crate) fn class(&self, id: EntityId) -> Option<Class> {
        self.entities.get(id.index()).map(|entity| entity.class)
    }
    pub(crate) fn is_queued(&self, id: EntityId, side: Side) -> bool {
        self.entities[id.index()].queued[side as usize] > 0
    }

    /// Whether a client has requests queued or in flight, or a group such a client.
    pub(crate) fn is_active(&self, id: EntityId) -> bool {
        self.entities[id.index()].active > 0
    }

    /// A request of a client arrives. Returns whether the client had none queued or in flight.
    pub(crate) fn arrive(&mut self, id: EntityId, side: Side) -> bool {
        let entity = &mut self.entities[id.index()];
        (entity.active, entity.queued[side as usize]) =
            (entity.active + 1, entity.queued[side as usize] + 1);
        let (active, queued) = (entity.active, entity.queued[side as usize]);
        if queued == 1 {
            self.join(id, side);
        }
        if active == 1 {
            self.wake(id);
        }
        active == 1
    }
    /// A client has one request less queued.
    pub(crate) fn dispatch(&mut self, id: EntityId, side: Side) {
        let queued = &mut self.entities[id.index()].queued[side as usize];
        *queued -= 1;
        if *queued == 0 {
            self.quit(id, side);
        }
    }
    /// All of a request was completed. Returns whether the client has none left.
    pub(crate) fn complete(&mut self, id: EntityId) -> bool {
        let active = &mut self.entities[id.index()].active;
        *active -= 1;
        let rests = *active == 0;
        if rests {
            self.rest(id);
        }
        rests
    }
    /// An entity has become active.
    fn wake(&mut self, mut id: EntityId) {
        while id != EntityId::ROOT {
            let Entity { parent, weight, .. } = self.entities[id.index()];
            let above = &mut self.entities[parent.index()];
            above.weights += u64::from(weight);
            above.active += 1;
            if above.active > 1 {
                break;
            }
            id = parent;
        }
    }
    /// An entity is no longer active, or leaves its parent.
    fn rest(&mut self, mut id: EntityId) {
        while id != EntityId::ROOT {
            let Entity { parent, weight, .. } = self.entities[id.index()];
            let above = &mut self.entities[parent.index()];
            above.weights -= u64::from(weight);
            above.active -= 1;
            if above.active > 0 {
                break;
            }
            id = parent;
        }
    }
    /// Adds an entity to its parent's children with requests queued, and so on up the tree.
    fn join(&mut self, mut id: EntityId, side: Side) {
        let side = side as usize;
        while id != EntityId::ROOT {
            let parent = self.entities[id.index()].parent;
            let served = self.entities[parent.index()].served;
            let entity = &mut self.entities[id.index()];
            if entity.nodes == [NOWHERE; SIDES] {
                entity.vtime = entity.vtime.max(served);
            }
            let key = Key::new(entity.class, entity.vtime, id);
            let tree = &mut self.trees[parent.member()][side];
            entity.nodes[side] = self.arena.insert(tree, key, id);
            let above = &mut self.entities[parent.index()];
            above.queued[side] += 1;
            if above.queued[side] > 1 {
                break;
            }
            id = parent;
        }
    }
    /// Removes an entity from its parent's children with requests queued, and so on up the tree.
    fn quit(&mut self, mut id: EntityId, side: Side) {
        let side = side as usize;
        while id != EntityId::ROOT {
            let entity = &mut self.entities[id.index()];
            let parent = entity.parent;
            let node = core::mem::replace(&mut entity.nodes[side], NOWHERE);
            if node == NOWHERE {
                break;
            }
            self.arena.remove(&mut self.trees[parent.member()][side], node);
            let above = &mut self.entities[parent.index()];
            above.queued[side] -= 1;
            if above.queued[side] > 0 {
                break;
            }
            id = parent;
        }
    }

    /// The smallest key of a group's children on one side.
    fn first(&self, group: EntityId, side: Side) -> Option<Key> {
        self.arena.first_key(&self.trees[group.member()][side as usize])
    }
    /// The client inside `top` that is next on one side, and the key of the child of `top` that contains it.
    pub(crate) fn pick(&self, top: EntityId, side: Side) -> Option<(Key, EntityId)> {
        let Entity { class, vtime, .. } = self.entities[top.index()];
        if top.is_client() {
            return self.is_queued(top, side).then(|| (Key::new(class, vtime, top), top));
        }
        let key = self.first(top, side)?;
        let mut client = key.id();
        while !client.is_client() {
            client = self.first(client, side)?.id();
        }
        Some((key, client))
    }
    /// The smallest virtual time of a group's children with requests queued.
    fn first_vtime(&self, group: EntityId) -> Option<u64> {
        let keys = Side::ALL.into_iter().filter_map(|side| self.first(group, side));
        keys.min().map(Key::vtime)
    }
    /// Whether an entity and the groups above it are at most this far ahead of their siblings with requests queued.
    pub(crate) fn is_within(&self, mut id: EntityId, most: Nanos) -> bool {
        while id != EntityId::ROOT {
            let Entity { parent, vtime, .. } = self.entities[id.index()];
            let first = self.first_vtime(parent).unwrap_or(vtime);
            if vtime > first.saturating_add(most.0) {
                return false;
            }
            id = parent;
        }
        true
    }
    /// How long service of `alone` takes at the client's floor: a quarter of an equal share among all that are active, and all of what
    /// its weight gives it beyond that; with a smaller weight a quarter of its share.
    pub(crate) fn floor_time(&self, mut id: EntityId, alone: Nanos) -> Nanos {
        let (mut share, mut equal) = (WHOLE, WHOLE);
        while id != EntityId::ROOT {
            let Entity { parent, weight, .. } = self.entities[id.index()];
            let Entity { weights, active, .. } = self.entities[parent.index()];
            if active > 1 {
                share = scale(share, u64::from(weight), weights);
                equal /= u64::from(active);
            }
            id = parent;
        }
        let beyond = share.saturating_sub(equal - equal / FLOOR_PART);
        Nanos(scale(alone.0, WHOLE, beyond.max(share / FLOOR_PART).max(1)))
    }
    /// Charges a client and all groups above it with drive time. `by_share`: it was served by share, not for a minimum.
    pub(crate) fn charge(&mut self, mut id: EntityId, cost: Nanos, by_share: bool) {
        while id != EntityId::ROOT {
            let Entity { parent, vtime: before, weight, .. } = self.entities[id.index()];
            let by = match weight {
                WEIGHT_DEFAULT => cost.0,
                _ => scale(cost.0, u64::from(WEIGHT_DEFAULT), u64::from(weight)),
            };
            if by_share {
                let first = self.first_vtime(parent).unwrap_or(before).min(before);
                let above = &mut self.entities[parent.index()];
                above.served = above.served.max(first);
            }
            let entity = &mut self.entities[id.index()];
            entity.vtime = before.saturating_add(by.max(1));
            let (nodes, key) = (entity.nodes, Key::new(entity.class, entity.vtime, id));
            for (tree, node) in self.trees[parent.member()].iter_mut().zip(nodes) {
                if node != NOWHERE {
                    self.arena.replace(tree, node, key, id);
                }
            }
            id = parent;
        }
    }
}
