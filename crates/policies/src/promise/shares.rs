//! Hierarchical start-time fair queueing of drive time: which client is next by weight.
//!
//! Groups and clients form a tree. Each has a virtual time. Service of `cost` nanoseconds of drive time moves the virtual
//! time of the client and of all groups above it by `cost / weight`. At each level, the smallest virtual time of the most
//! urgent class goes next. An entity that becomes active again starts at the virtual time of its siblings, so that idle
//! time gives no credit:
//!
//! ```text
//! on activation   v = max(v, V)
//! on service      V = max(V, smallest v of all that have something queued);  v += cost * 100 / weight
//! ```
//!
//! V is the smallest virtual time of the entities that have requests queued. In start-time fair queueing it is that of the
//! entity in service, but here the entity with the smallest one may be held while another is served.
//!
//! Sources: Goyal, Vin and Cheng, "Start-time fair queueing" (1996), for the rule and its bound: the service of two
//! backlogged entities never differs by more than one request of each; WF2Q+ (Bennett and Zhang, 1997) for V as the
//! smallest start. Reads, writes and flushes are ordered separately, since one side may be held while the others are not.
//! Each operation takes O(log n) per level.

use alloc::vec::Vec;

pub(super) use crate::parts::entity::{EntityId, Key, SIDES, Side};
use crate::parts::tree::{Arena, NodeId, Tree};
use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::priority::Class;
use iofair_core::time::Nanos;

/// Service for a minimum counts towards the group's share, but moves it at most this far ahead of its turn, in virtual
/// nanoseconds.
const DEBT_MAX: u64 = 1_000_000_000;

/// No node: the entity has nothing queued.
const NOWHERE: NodeId = NodeId(u32::MAX);
/// No node: the entity is its parent's [`Entity::only`] child with requests queued.
const ALONE: NodeId = NodeId(u32::MAX - 1);
const NOT_QUEUED: [NodeId; SIDES] = [NOWHERE; SIDES];
/// No entity: the root is never a child.
const NOBODY: EntityId = EntityId::ROOT;

/// State of a group or a client, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entity {
    vtime: u64,
    /// The largest virtual time at which a child was served.
    served: u64,
    parent: EntityId,
    weight: u32,
    /// By side: requests queued of a client, or children of a group that have requests queued.
    queued: [u32; SIDES],
    /// Its nodes in its parent's trees, or [`ALONE`] or [`NOWHERE`].
    nodes: [NodeId; SIDES],
    /// By side: the only child that has requests queued, or [`NOBODY`]. When a second one has some, both move to
    /// [`Children::trees`], and children stay there until none has any.
    only: [EntityId; SIDES],
    class: Class,
}

impl Entity {
    const NEW: Self = Self {
        vtime: 0,
        served: 0,
        parent: EntityId::ROOT,
        weight: WEIGHT_DEFAULT,
        queued: [0; SIDES],
        nodes: NOT_QUEUED,
        only: [NOBODY; SIDES],
        class: Class::BestEffort,
    };
    const fn key(&self, id: EntityId) -> Key {
        Key::new(self.class, self.vtime, id)
    }
}

/// Children of a group that have requests queued, by side.
#[derive(Clone, Copy, Default, Debug)]
struct Children {
    trees: [Tree; SIDES],
    /// Sum of their weights.
    weights: [u64; SIDES],
}

/// The tree of groups and clients.
#[derive(Default, Debug)]
pub(super) struct Shares {
    entities: Vec<Entity>,
    /// Indexed by group.
    children: Vec<Children>,
    arena: Arena<Key, EntityId>,
}

impl Shares {
    /// Adds an entity, moves it with its queued requests, or changes its weight and class.
    pub(super) fn set(&mut self, id: EntityId, parent: EntityId, weight: u32, class: Class) {
        let last = id.index().max(parent.index());
        if last >= self.entities.len() {
            self.entities.resize(last + 1, Entity::NEW);
            self.children.resize(last / 2 + 1, Children::default());
        }
        let queued = self.entities[id.index()].queued;
        self.leave(id);
        let moved = self.entities[id.index()].parent != parent;
        let served = self.entities[parent.index()].served;
        let entity = &mut self.entities[id.index()];
        (entity.parent, entity.weight, entity.class) = (parent, weight.max(1), class);
        if moved {
            entity.vtime = served;
        }
        for side in Side::ALL {
            if queued[side as usize] > 0 {
                self.join(id, side);
            }
        }
    }
    /// Removes an entity that has nothing queued.
    pub(super) fn remove(&mut self, id: EntityId) {
        if id.index() >= self.entities.len() {
            return;
        }
        self.leave(id);
        self.entities[id.index()] = Entity::NEW;
    }
    fn leave(&mut self, id: EntityId) {
        for side in Side::ALL {
            if self.entities[id.index()].nodes[side as usize] != NOWHERE {
                self.quit(id, side);
            }
        }
    }
    pub(super) fn parent(&self, id: EntityId) -> Option<EntityId> {
        let entity = self.entities.get(id.index())?;
        (id != EntityId::ROOT).then_some(entity.parent)
    }
    pub(super) fn is_queued(&self, id: EntityId, side: Side) -> bool {
        self.entities[id.index()].queued[side as usize] > 0
    }

    /// A client has one more request queued.
    pub(super) fn push(&mut self, id: EntityId, side: Side) {
        let queued = &mut self.entities[id.index()].queued[side as usize];
        *queued += 1;
        if *queued == 1 {
            self.join(id, side);
        }
    }
    /// A client has one request less queued.
    pub(super) fn pop(&mut self, id: EntityId, side: Side) {
        let queued = &mut self.entities[id.index()].queued[side as usize];
        *queued -= 1;
        if *queued == 0 {
            self.quit(id, side);
        }
    }
    /// Adds an entity to its parent's children with requests queued, and so on up the tree.
    fn join(&mut self, mut id: EntityId, side: Side) {
        let side = side as usize;
        while id != EntityId::ROOT {
            let parent = self.entities[id.index()].parent;
            let served = self.entities[parent.index()].served;
            let entity = &mut self.entities[id.index()];
            if entity.nodes == NOT_QUEUED {
                entity.vtime = entity.vtime.max(served);
            }
            let weight = entity.weight;
            let above = &mut self.entities[parent.index()];
            above.queued[side] += 1;
            let first = above.queued[side] == 1;
            if first {
                above.only[side] = id;
                self.entities[id.index()].nodes[side] = ALONE;
            } else {
                let only = core::mem::replace(&mut above.only[side], NOBODY);
                if only != NOBODY {
                    self.insert(parent, only, side);
                }
                self.insert(parent, id, side);
            }
            self.children[parent.index() / 2].weights[side] += u64::from(weight);
            if !first {
                break;
            }
            id = parent;
        }
    }
    fn insert(&mut self, parent: EntityId, id: EntityId, side: usize) {
        let entity = &mut self.entities[id.index()];
        let tree = &mut self.children[parent.index() / 2].trees[side];
        entity.nodes[side] = self.arena.insert(tree, entity.key(id), id);
    }
    /// Removes an entity from its parent's children with requests queued, and so on up the tree.
    fn quit(&mut self, mut id: EntityId, side: Side) {
        let side = side as usize;
        while id != EntityId::ROOT {
            let entity = &mut self.entities[id.index()];
            let (parent, weight) = (entity.parent, entity.weight);
            let node = core::mem::replace(&mut entity.nodes[side], NOWHERE);
            if node == NOWHERE {
                break;
            }
            let above = &mut self.entities[parent.index()];
            above.queued[side] -= 1;
            let empty = above.queued[side] == 0;
            let children = &mut self.children[parent.index() / 2];
            children.weights[side] -= u64::from(weight);
            if node == ALONE {
                above.only[side] = NOBODY;
            } else {
                self.arena.remove(&mut children.trees[side], node);
            }
            if !empty {
                break;
            }
            id = parent;
        }
    }

    /// The client inside `top` that is next on one side, and the key of the child of `top` that contains it.
    #[inline]
    pub(super) fn pick(&self, top: EntityId, side: Side) -> Option<(Key, EntityId)> {
        if !self.is_queued(top, side) {
            return None;
        }
        if top.as_client().is_some() {
            return Some((self.entities[top.index()].key(top), top));
        }
        let key = self.first(top, side as usize)?;
        Some((key, self.pick_client(key.id(), side)?))
    }
    /// The client inside `at` that is next on one side.
    #[inline(always)]
    pub(super) fn pick_client(&self, mut at: EntityId, side: Side) -> Option<EntityId> {
        while at.as_client().is_none() {
            at = match self.entities[at.index()].only[side as usize] {
                NOBODY => self.first(at, side as usize)?.id(),
                only => only,
            };
        }
        Some(at)
    }
    /// The smallest key of a group's children on one side.
    #[inline(always)]
    fn first(&self, group: EntityId, side: usize) -> Option<Key> {
        let entity = &self.entities[group.index()];
        if entity.queued[side] == 0 {
            return None;
        }
        Some(match entity.only[side] {
            NOBODY => self.arena.first_key(&self.children[group.index() / 2].trees[side])?,
            only => self.entities[only.index()].key(only),
        })
    }
    /// The smallest key of a group's children on any side, or [`Key::NONE`].
    #[inline(always)]
    fn first_among(&self, group: EntityId) -> Key {
        let mut first = Key::NONE;
        for side in 0..SIDES {
            if let Some(key) = self.first(group, side) {
                first = first.min(key);
            }
        }
        first
    }
    /// How far an entity, or a group above it, is ahead of its siblings with requests queued, in virtual time.
    pub(super) fn ahead(&self, mut id: EntityId) -> u64 {
        let mut ahead = 0;
        while id != EntityId::ROOT {
            let Entity { parent, vtime, .. } = self.entities[id.index()];
            // If no sibling waits, this is the largest virtual time.
            let first = self.first_among(parent).vtime();
            ahead = ahead.max(vtime.saturating_sub(first));
            id = parent;
        }
        ahead
    }
    /// Whether neither an entity nor a group above it is [`Key::is_far`] from its first sibling with requests queued.
    pub(super) fn is_near(&self, mut id: EntityId, most: u64) -> bool {
        while id != EntityId::ROOT {
            let entity = &self.entities[id.index()];
            if entity.key(id).is_far(self.first_among(entity.parent), most) {
                return false;
            }
            id = entity.parent;
        }
        true
    }
    /// How long service of `cost` takes at the client's share by weight, among all entities that have requests queued.
    pub(super) fn fair_time(&self, mut id: EntityId, cost: Nanos) -> Nanos {
        let mut time = cost.0;
        while id != EntityId::ROOT {
            let Entity { parent, weight, nodes, .. } = self.entities[id.index()];
            let weights = self.children[parent.index() / 2].weights;
            let most = weights.into_iter().max().unwrap_or(0);
            let own = if nodes == NOT_QUEUED { u64::from(weight) } else { 0 };
            time = time.saturating_mul(most + own) / u64::from(weight);
            id = parent;
        }
        Nanos(time)
    }
    /// Charges a client and all groups above it with drive time. `by_share`: it was served by weight, not for a minimum.
    pub(super) fn charge(&mut self, mut id: EntityId, cost: Nanos, by_share: bool) {
        while id != EntityId::ROOT {
            let Entity { parent, vtime: before, weight, .. } = self.entities[id.index()];
            let by = match weight {
                WEIGHT_DEFAULT => cost.0,
                _ => cost.0.saturating_mul(u64::from(WEIGHT_DEFAULT)) / u64::from(weight),
            };
            let mut vtime = before.saturating_add(by.max(1));
            if by_share {
                let first = self.first_among(parent);
                let above = &mut self.entities[parent.index()];
                above.served = above.served.max(first.vtime().min(before));
            } else {
                let served = self.entities[parent.index()].served;
                vtime = vtime.min(before.max(served.saturating_add(DEBT_MAX)));
            }
            let entity = &mut self.entities[id.index()];
            entity.vtime = vtime;
            let (nodes, key) = (entity.nodes, entity.key(id));
            let is_in_tree = |node: &NodeId| node.0 < ALONE.0;
            if nodes.iter().any(is_in_tree) {
                let trees = &mut self.children[parent.index() / 2].trees;
                for (tree, node) in trees.iter_mut().zip(nodes).filter(|pair| is_in_tree(&pair.1)) {
                    self.arena.replace(tree, node, key, id);
                }
            }
            id = parent;
        }
    }
}
