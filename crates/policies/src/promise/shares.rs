//! Hierarchical start-time fair queueing over the drive's time: whose turn it is by weight.
//!
//! Groups and clients form a tree. Each has a virtual time; an entity that gets `cost` nanoseconds of the drive moves
//! forward by `cost / weight`, and so do all groups above it. The smallest virtual time of the most urgent class goes
//! next, at each level. An entity that comes back starts where its siblings are, so that nobody saves up the past:
//!
//! ```text
//! on activation   v = max(v, V)
//! on service      V = max(V, smallest v of all that have something queued);  v += cost * 100 / weight
//! ```
//!
//! V is the smallest of those that wait and not, as in start-time fair queueing, that of the one in service: the one with the
//! smallest may be held while another goes.
//!
//! Source: Goyal, Vin and Cheng, "Start-time fair queueing" (1996), for the rule and its bound: two backlogged
//! entities never differ by more than one request of each. V by the smallest start is that of WF2Q+ (Bennett and Zhang,
//! 1997). Reads, writes and flushes have orders of their own, since one of them may be held while the others may go. Every
//! operation is O(log n) a level.

use alloc::vec::Vec;

use crate::parts::tree::{Arena, NodeId, Summary, Tree};
use iofair_core::contract::WEIGHT_DEFAULT;
use iofair_core::group::{Class, ClientId, GroupId};
use iofair_core::time::Nanos;

/// Which of a client's queues: what may be held while others may go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Side {
    Read,
    /// Trims and zeroes too.
    Write,
    Flush,
}

/// How many there are.
pub(super) const SIDES: usize = 3;

impl Side {
    pub(super) const ALL: [Self; SIDES] = [Self::Read, Self::Write, Self::Flush];
}

/// What a group gets for its promise counts as part of its share, up to so far ahead of its turn.
const DEBT_MAX: u64 = 1_000_000_000;

/// A group or a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct EntityId(u32);

/// The index of a group or of a client ([`GroupId::index`], [`ClientId::index`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Index(u32);

impl Index {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl EntityId {
    pub(super) const ROOT: Self = Self::group(GroupId::ROOT);

    pub(super) const fn group(id: GroupId) -> Self {
        Self(2 * id.index() as u32)
    }
    pub(super) const fn client(id: ClientId) -> Self {
        Self(2 * id.index() as u32 + 1)
    }
    /// The client that this is.
    pub(super) const fn as_client(self) -> Option<Index> {
        if !self.0.is_multiple_of(2) { Some(Index(self.0 / 2)) } else { None }
    }
    /// The group that this is.
    pub(super) const fn as_group(self) -> Option<Index> {
        if self.0.is_multiple_of(2) { Some(Index(self.0 / 2)) } else { None }
    }
    const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Summary for EntityId {
    type Of = ();
    fn alone(&self) {}
    fn join(_one: (), _other: ()) {}
}

/// Who goes first: class, virtual time; the number breaks ties. One number, since comparing these is most of what it costs
/// to find a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key(u128);

impl Key {
    /// After all others.
    const NONE: Self = Self(u128::MAX);

    const fn new(class: Class, vtime: u64, id: EntityId) -> Self {
        Self((class as u128) << 96 | (vtime as u128) << 32 | id.0 as u128)
    }
    const fn id(self) -> EntityId {
        EntityId(self.0 as u32)
    }
    /// The number of the class.
    pub(super) const fn class(self) -> u32 {
        (self.0 >> 96) as u32
    }
    /// The virtual time.
    pub(super) const fn vtime(self) -> u64 {
        (self.0 >> 32) as u64
    }
}

/// Not in its parent's order.
const NOWHERE: NodeId = NodeId(u32::MAX);
/// In its parent's order, which is [`Entity::only`].
const ALONE: NodeId = NodeId(u32::MAX - 1);
const NOT_QUEUED: [NodeId; SIDES] = [NOWHERE; SIDES];
/// No entity: the root is never anybody's child.
const NOBODY: EntityId = EntityId::ROOT;

/// What a request needs of a group or client, in one line of the processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entity {
    vtime: u64,
    /// The largest virtual time at which a child was served.
    served: u64,
    parent: EntityId,
    weight: u32,
    /// By side: a client's requests, a group's children that have some.
    queued: [u32; SIDES],
    /// Its nodes in its parent's trees, or [`ALONE`] or [`NOWHERE`].
    nodes: [NodeId; SIDES],
    /// The child that has something queued, if there is a single one; as many as there are are in [`Line::trees`], if there were
    /// several since there was none.
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

/// A group's children that have something queued, by side.
#[derive(Clone, Copy, Default, Debug)]
struct Line {
    trees: [Tree; SIDES],
    weights: [u64; SIDES],
}

/// The tree of groups and clients.
#[derive(Default, Debug)]
pub(super) struct Shares {
    entities: Vec<Entity>,
    /// By group.
    lines: Vec<Line>,
    arena: Arena<Key, EntityId>,
}

impl Shares {
    /// Adds an entity, or moves it, or changes its weight and class. What it has queued goes with it.
    pub(super) fn set(&mut self, id: EntityId, parent: EntityId, weight: u32, class: Class) {
        let last = id.index().max(parent.index());
        if last >= self.entities.len() {
            self.entities.resize(last + 1, Entity::NEW);
            self.lines.resize(last / 2 + 1, Line::default());
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
    /// Forgets an entity that has nothing queued.
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
    /// Into its parent's order; the parent joins its own parent's if that was empty.
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
            self.lines[parent.index() / 2].weights[side] += u64::from(weight);
            if !first {
                break;
            }
            id = parent;
        }
    }
    fn insert(&mut self, parent: EntityId, id: EntityId, side: usize) {
        let entity = &mut self.entities[id.index()];
        let tree = &mut self.lines[parent.index() / 2].trees[side];
        entity.nodes[side] = self.arena.insert(tree, entity.key(id), id);
    }
    /// Out of its parent's order; the parent leaves its own parent's if that is empty now.
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
            let line = &mut self.lines[parent.index() / 2];
            line.weights[side] -= u64::from(weight);
            if node == ALONE {
                above.only[side] = NOBODY;
            } else {
                self.arena.remove(&mut line.trees[side], node);
            }
            if !empty {
                break;
            }
            id = parent;
        }
    }

    /// The client inside `top` whose turn it is on one side, and what decides at the level below `top`.
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
    /// The client inside `at` whose turn it is on one side.
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
    /// The first in line of a group's children.
    #[inline(always)]
    fn first(&self, group: EntityId, side: usize) -> Option<Key> {
        let entity = &self.entities[group.index()];
        if entity.queued[side] == 0 {
            return None;
        }
        Some(match entity.only[side] {
            NOBODY => self.arena.first_key(&self.lines[group.index() / 2].trees[side])?,
            only => self.entities[only.index()].key(only),
        })
    }
    /// The first in line of a group's children on any side, or [`Key::NONE`].
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
    /// How far an entity, or one above it, is ahead of the first in line among its siblings, in virtual time.
    pub(super) fn ahead(&self, mut id: EntityId) -> u64 {
        let mut ahead = 0;
        while id != EntityId::ROOT {
            let Entity { parent, vtime, .. } = self.entities[id.index()];
            // Nobody waits: the key after all others has the largest virtual time there is.
            let first = self.first_among(parent).vtime();
            ahead = ahead.max(vtime.saturating_sub(first));
            id = parent;
        }
        ahead
    }
    /// What `cost` takes at the client's share by weight, among those that have something queued.
    pub(super) fn fair_time(&self, mut id: EntityId, cost: Nanos) -> Nanos {
        let mut time = cost.0;
        while id != EntityId::ROOT {
            let Entity { parent, weight, nodes, .. } = self.entities[id.index()];
            let weights = self.lines[parent.index() / 2].weights;
            let most = weights.into_iter().max().unwrap_or(0);
            let own = if nodes == NOT_QUEUED { u64::from(weight) } else { 0 };
            time = time.saturating_mul(most + own) / u64::from(weight);
            id = parent;
        }
        Nanos(time)
    }
    /// A client got `cost` of the drive's time, and so did all groups above it. `by_share`: since it was its turn, and not
    /// for a promise.
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
                let trees = &mut self.lines[parent.index() / 2].trees;
                for (tree, node) in trees.iter_mut().zip(nodes).filter(|(_, it)| is_in_tree(it)) {
                    self.arena.replace(tree, node, key, id);
                }
            }
            id = parent;
        }
    }
}
