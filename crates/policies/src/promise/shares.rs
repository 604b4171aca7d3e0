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
    fn new(class: Class, vtime: u64, id: EntityId) -> Self {
        Self((class as u128) << 96 | u128::from(vtime) << 32 | u128::from(id.0))
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

/// Not in a tree.
const NOWHERE: NodeId = NodeId(u32::MAX);
const NOT_QUEUED: [NodeId; SIDES] = [NOWHERE; SIDES];

#[derive(Clone, Copy, Debug)]
struct Entity {
    parent: EntityId,
    class: Class,
    weight: u32,
    vtime: u64,
    /// By side: a client's requests, a group's children that have some.
    queued: [u32; SIDES],
    /// Its places in its parent's trees, or [`NOWHERE`].
    nodes: [NodeId; SIDES],
    /// Children that have something queued, and the largest virtual time at which one was served.
    trees: [Tree; SIDES],
    weights: [u64; SIDES],
    served: u64,
}

impl Entity {
    const NEW: Self = Self {
        parent: EntityId::ROOT,
        class: Class::BestEffort,
        weight: WEIGHT_DEFAULT,
        vtime: 0,
        queued: [0; SIDES],
        nodes: NOT_QUEUED,
        trees: [const { Tree::new() }; SIDES],
        weights: [0; SIDES],
        served: 0,
    };
}

/// The tree of groups and clients.
#[derive(Default, Debug)]
pub(super) struct Shares {
    entities: Vec<Entity>,
    arena: Arena<Key, EntityId>,
}

impl Shares {
    /// Adds an entity, or moves it, or changes its weight and class. What it has queued goes with it.
    pub(super) fn set(&mut self, id: EntityId, parent: EntityId, weight: u32, class: Class) {
        let bound = self.entities.len().max(id.index() + 1).max(parent.index() + 1);
        self.entities.resize(bound, Entity::NEW);
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
        let entity = &mut self.entities[id.index()];
        entity.queued[side as usize] += 1;
        if entity.queued[side as usize] == 1 {
            self.join(id, side);
        }
    }
    /// A client has one request less queued.
    pub(super) fn pop(&mut self, id: EntityId, side: Side) {
        let entity = &mut self.entities[id.index()];
        entity.queued[side as usize] -= 1;
        if entity.queued[side as usize] == 0 {
            self.quit(id, side);
        }
    }
    /// Into its parent's tree, which joins its own parent's if it was empty.
    fn join(&mut self, mut id: EntityId, side: Side) {
        let side = side as usize;
        while id != EntityId::ROOT {
            let parent = self.entities[id.index()].parent;
            let served = self.entities[parent.index()].served;
            let entity = &mut self.entities[id.index()];
            if entity.nodes == NOT_QUEUED {
                entity.vtime = entity.vtime.max(served);
            }
            let (key, weight) = (Key::new(entity.class, entity.vtime, id), entity.weight);
            let above = &mut self.entities[parent.index()];
            let node = self.arena.insert(&mut above.trees[side], key, id);
            above.queued[side] += 1;
            above.weights[side] += u64::from(weight);
            let first = above.queued[side] == 1;
            self.entities[id.index()].nodes[side] = node;
            if !first {
                break;
            }
            id = parent;
        }
    }
    /// Out of its parent's tree, which leaves its own parent's if it is empty now.
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
            self.arena.remove(&mut above.trees[side], node);
            above.queued[side] -= 1;
            above.weights[side] -= u64::from(weight);
            if above.queued[side] > 0 {
                break;
            }
            id = parent;
        }
    }

    /// The client inside `top` whose turn it is on one side, and what decides at the level below `top`.
    pub(super) fn pick(&self, top: EntityId, side: Side) -> Option<(Key, EntityId)> {
        if top.as_client().is_some() {
            let entity = &self.entities[top.index()];
            let key = Key::new(entity.class, entity.vtime, top);
            return self.is_queued(top, side).then_some((key, top));
        }
        let first = self.first(top, side)?;
        let key = self.arena.key(first);
        let mut at = self.arena.value(first);
        while at.as_client().is_none() {
            at = self.arena.value(self.first(at, side)?);
        }
        Some((key, at))
    }
    fn first(&self, group: EntityId, side: Side) -> Option<NodeId> {
        self.arena.first(&self.entities[group.index()].trees[side as usize])
    }
    /// The smallest virtual time among the children of the most urgent class that have something queued.
    fn first_vtime(&self, group: EntityId) -> Option<u64> {
        let trees = self.entities[group.index()].trees.iter();
        let first = trees.filter_map(|tree| Some(self.arena.key(self.arena.first(tree)?)));
        first.min().map(Key::vtime)
    }
    /// How far an entity, or one above it, is ahead of the first in line among its siblings, in virtual time.
    pub(super) fn ahead(&self, mut id: EntityId) -> u64 {
        let mut ahead = 0;
        while id != EntityId::ROOT {
            let Entity { parent, vtime, .. } = self.entities[id.index()];
            let first = self.first_vtime(parent).unwrap_or(vtime);
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
            let weights = self.entities[parent.index()].weights;
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
            let Entity { parent, nodes, class, vtime: before, weight, .. } =
                self.entities[id.index()];
            let by = match weight {
                WEIGHT_DEFAULT => cost.0,
                _ => cost.0.saturating_mul(u64::from(WEIGHT_DEFAULT)) / u64::from(weight),
            };
            let vtime = before.saturating_add(by.max(1));
            let first = if by_share { self.first_vtime(parent) } else { None };
            let above = &mut self.entities[parent.index()];
            let vtime = if by_share {
                above.served = above.served.max(first.map_or(before, |first| first.min(before)));
                vtime
            } else {
                vtime.min(before.max(above.served.saturating_add(DEBT_MAX)))
            };
            for (tree, node) in above.trees.iter_mut().zip(nodes) {
                if node != NOWHERE {
                    self.arena.replace(tree, node, Key::new(class, vtime, id), id);
                }
            }
            self.entities[id.index()].vtime = vtime;
            id = parent;
        }
    }
}
