//! The service trees: groups and queues in the order of their virtual disk time.
//!
//! ```text
//! charge        v = v + time * 1000 / weight       at the queue and at every group above it
//! who is next   of the most urgent class, the smallest v; then the same inside the group found
//! return        v = max(v, min)  if remembered (v > min),  else the largest v in the tree
//! ```
//!
//! `min` is the smallest v of a tree, and never goes back. An entity that leaves keeps its v: as long as
//! that lies ahead of `min` the entity is in the cache of those *recently served* (the idle tree: it need
//! not exist as a tree, since only returning asks). A stream that has just had its slice comes back behind
//! those who have not; who used little comes back earlier; whoever is not known goes to the end.
//!
//! The one in service stays where it is in the tree until it is charged. Every operation is O(log n) a
//! level.

use alloc::vec::Vec;

use iofair_core::bounds::WEIGHT_MAX;
use iofair_core::priority::Class;
use iofair_core::time::Nanos;
use iofair_policies::parts::tree::{Arena, NodeId, Summary, Tree};

/// Virtual disk time: nanoseconds for the largest weight, more for smaller ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Virtual(u64);

impl Virtual {
    /// The start of every tree; there is room before it for entities that are put in front.
    const START: Self = Self(1 << 32);

    /// The time after this much disk time, rounded up, so that nothing is free.
    fn after(self, time: Nanos, weight: u32) -> Self {
        let delta = (u128::from(time.0) * u128::from(WEIGHT_MAX)).div_ceil(u128::from(weight));
        Self(self.0.saturating_add(u64::try_from(delta).unwrap_or(u64::MAX)))
    }
    const fn just_before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// A group or a queue: a small dense number, reused after its removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EntityId(pub(super) u32);

impl EntityId {
    /// The group that holds everything.
    pub(super) const ROOT: Self = Self(0);
    /// As an index of a vector.
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Summary for EntityId {
    type Of = ();
    fn alone(&self) {}
    fn join(_one: (), _other: ()) {}
}

/// The properties of an entity that shares: its weight and class, and whether its requests are synchronous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    pub(super) weight: u32,
    pub(super) class: Class,
    /// Of a queue: whether its requests are synchronous. Groups count as such.
    pub(super) sync: bool,
}

/// No level: the entity is a queue.
const QUEUE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entity {
    parent: EntityId,
    /// In force; and from the next move in the tree on.
    share: Share,
    wanted: Share,
    at: Virtual,
    /// Whether it has had a position in the present tree before, so that `at` is valid.
    served: bool,
    node: Option<NodeId>,
    /// Index of a group's trees; [`QUEUE`] for a queue.
    level: u32,
}

#[derive(Clone, Copy, Debug)]
struct ServiceTree {
    active: Tree,
    min: Virtual,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    trees: [ServiceTree; 3],
    /// A synchronous queue that got its first request while its group was not served: it goes before buffered writes
    /// at the next choice (late preemption).
    late: Option<EntityId>,
    busy: u32,
}

impl Level {
    const NEW: Self = Self {
        trees: [ServiceTree { active: Tree::new(), min: Virtual::START }; 3],
        late: None,
        busy: 0,
    };
}

/// All groups and queues.
#[derive(Debug)]
pub(super) struct Hierarchy {
    entities: Vec<Entity>,
    free: Vec<EntityId>,
    levels: Vec<Level>,
    free_levels: Vec<u32>,
    nodes: Arena<Virtual, EntityId>,
}

/// Construction and queries.
impl Hierarchy {
    /// Only the root group.
    pub(super) fn new() -> Self {
        let share = Share { weight: 1, class: Class::BestEffort, sync: true };
        let root = Entity { level: 0, ..Entity::new(EntityId::ROOT, share) };
        Self {
            entities: alloc::vec![root],
            free: Vec::new(),
            levels: alloc::vec![Level::NEW],
            free_levels: Vec::new(),
            nodes: Arena::new(),
        }
    }
    pub(super) fn add_group(&mut self, parent: EntityId, share: Share) -> EntityId {
        let level = self.free_levels.pop().unwrap_or(self.levels.len() as u32);
        match self.levels.get_mut(level as usize) {
            Some(free) => *free = Level::NEW,
            None => self.levels.push(Level::NEW),
        }
        self.add(Entity { level, ..Entity::new(parent, share) })
    }
    pub(super) fn add_queue(&mut self, parent: EntityId, share: Share) -> EntityId {
        self.add(Entity::new(parent, share))
    }
    fn add(&mut self, entity: Entity) -> EntityId {
        let id = self.free.pop().unwrap_or(EntityId(self.entities.len() as u32));
        match self.entities.get_mut(id.index()) {
            Some(free) => *free = entity,
            None => self.entities.push(entity),
        }
        id
    }
    /// Removes a queue or group that is not busy. Its id becomes free.
    pub(super) fn remove(&mut self, id: EntityId) {
        let entity = self.entities[id.index()];
        assert!(entity.node.is_none() && id != EntityId::ROOT, "{id:?} is still busy");
        if entity.level != QUEUE {
            self.free_levels.push(entity.level);
        }
        self.free.push(id);
    }
    /// Sets another weight or class, which applies from the next move in the tree on.
    pub(super) fn set_share(&mut self, id: EntityId, share: Share) {
        self.entities[id.index()].wanted = share;
    }
    pub(super) fn is_busy(&self, id: EntityId) -> bool {
        self.entities[id.index()].node.is_some()
    }
    pub(super) fn parent(&self, id: EntityId) -> EntityId {
        self.entities[id.index()].parent
    }
    pub(super) fn class(&self, id: EntityId) -> Class {
        self.entities[id.index()].share.class
    }
    /// Number of children with requests.
    pub(super) fn busy_inside(&self, group: EntityId) -> u32 {
        self.level(group).busy
    }
    /// The siblings that compete if `a` and `b` do: themselves, or groups above them.
    pub(super) fn competitors(&self, a: EntityId, b: EntityId) -> (EntityId, EntityId) {
        let (mut a, mut b) = (a, b);
        let depth = |id| {
            let above = |id: &EntityId| (*id != EntityId::ROOT).then(|| self.parent(*id));
            core::iter::successors(Some(id), above).count()
        };
        let (mut depth_a, mut depth_b) = (depth(a), depth(b));
        while self.parent(a) != self.parent(b) {
            if depth_a >= depth_b {
                (a, depth_a) = (self.parent(a), depth_a - 1);
            } else {
                (b, depth_b) = (self.parent(b), depth_b - 1);
            }
        }
        (a, b)
    }
    /// Whether `a` is due before its competitor `b`, after `b` is charged this much.
    pub(super) fn is_due_before(&self, a: EntityId, b: EntityId, charge: Nanos) -> bool {
        let (a, b) = (&self.entities[a.index()], &self.entities[b.index()]);
        a.at < b.at.after(charge, b.share.weight)
    }

    fn level(&self, group: EntityId) -> &Level {
        &self.levels[self.entities[group.index()].level as usize]
    }
    fn level_mut(&mut self, group: EntityId) -> &mut Level {
        let level = self.entities[group.index()].level;
        &mut self.levels[level as usize]
    }
}

/// The life cycle of a queue.
impl Hierarchy {
    /// Activates a queue that has requests again, and all groups above it.
    pub(super) fn activate(&mut self, queue: EntityId) {
        assert!(!self.is_busy(queue), "{queue:?} is busy already");
        let mut at = queue;
        while at != EntityId::ROOT && !self.is_busy(at) {
            self.enter(at);
            at = self.parent(at);
        }
        if self.entities[queue.index()].share.sync {
            let parent = self.parent(queue);
            self.level_mut(parent).late.get_or_insert(queue);
        }
    }
    /// Deactivates a queue without requests, and groups without active children. They are remembered.
    pub(super) fn deactivate(&mut self, queue: EntityId) {
        let mut at = queue;
        while at != EntityId::ROOT {
            self.leave(at);
            let parent = self.parent(at);
            let level = self.level_mut(parent);
            if level.late == Some(at) {
                level.late = None;
            }
            level.busy -= 1;
            if level.busy > 0 {
                break;
            }
            at = parent;
        }
    }
    /// The next queue. It keeps its position in the tree.
    pub(super) fn pick(&mut self) -> Option<EntityId> {
        let mut at = EntityId::ROOT;
        while self.entities[at.index()].level != QUEUE {
            let level = self.level(at);
            let tree = level.trees.iter().find(|tree| !tree.active.is_empty())?;
            let first = self.nodes.first(&tree.active).expect("just looked");
            let first = self.nodes.value(first);
            let late = level.late.filter(|late| self.overtakes(*late, first));
            let chosen = late.unwrap_or(first);
            if level.late == Some(chosen) {
                self.level_mut(at).late = None;
            }
            at = chosen;
        }
        Some(at)
    }
    fn overtakes(&self, late: EntityId, first: EntityId) -> bool {
        let (late, first) = (&self.entities[late.index()], &self.entities[first.index()]);
        late.share.class == first.share.class && !first.share.sync
    }
    /// Charges a busy queue for this time of the drive.
    pub(super) fn charge(&mut self, queue: EntityId, time: Nanos) {
        let mut id = queue;
        while id != EntityId::ROOT {
            let entity = &mut self.entities[id.index()];
            entity.at = entity.at.after(time, entity.share.weight);
            self.replace(id);
            id = self.parent(id);
        }
    }
    /// Puts a busy queue before all others of its class in its group; the group keeps its position.
    pub(super) fn put_in_front(&mut self, queue: EntityId) {
        let tree = self.tree(queue);
        let first = self.nodes.first(&tree.active).expect("the queue itself is there");
        if self.nodes.value(first) != queue {
            let front = self.nodes.key(first).just_before();
            self.entities[queue.index()].at = front;
            self.replace(queue);
        }
    }

    fn tree(&self, id: EntityId) -> &ServiceTree {
        let entity = &self.entities[id.index()];
        &self.level(entity.parent).trees[entity.share.class as usize]
    }
    fn enter(&mut self, id: EntityId) {
        let parent = self.parent(id);
        self.level_mut(parent).busy += 1;
        self.take_wanted(id);
        let tree = *self.tree(id);
        let entity = &mut self.entities[id.index()];
        let remembered = entity.served && entity.at > tree.min;
        if !remembered {
            let last = self.nodes.last(&tree.active).map(|node| self.nodes.key(node));
            entity.at = last.map_or(tree.min, |last| last.max(tree.min));
        }
        entity.served = true;
        let (at, class) = (entity.at, entity.share.class as usize);
        let index = self.entities[parent.index()].level as usize;
        let tree = &mut self.levels[index].trees[class];
        let node = self.nodes.insert(&mut tree.active, at, id);
        self.entities[id.index()].node = Some(node);
        self.advance(parent, class);
    }
    fn leave(&mut self, id: EntityId) {
        let Entity { parent, share, .. } = self.entities[id.index()];
        let node = self.entities[id.index()].node.take().expect("only the busy leave");
        let index = self.entities[parent.index()].level as usize;
        let class = share.class as usize;
        self.nodes.remove(&mut self.levels[index].trees[class].active, node);
        self.advance(parent, class);
    }
    /// Puts an entity at the position of its time, with the new weight and class.
    fn replace(&mut self, id: EntityId) {
        let Entity { parent, share, wanted, .. } = self.entities[id.index()];
        if share.class != wanted.class {
            // It starts again in the other tree.
            self.leave(id);
            self.level_mut(parent).busy -= 1;
            self.enter(id);
            return;
        }
        self.entities[id.index()].share = wanted;
        let Entity { at, node, .. } = self.entities[id.index()];
        let node = node.expect("only the busy are moved");
        let index = self.entities[parent.index()].level as usize;
        let class = share.class as usize;
        self.nodes.replace(&mut self.levels[index].trees[class].active, node, at, id);
        self.advance(parent, class);
    }
    fn take_wanted(&mut self, id: EntityId) {
        let entity = &mut self.entities[id.index()];
        entity.served &= entity.share.class == entity.wanted.class;
        entity.share = entity.wanted;
    }
    fn advance(&mut self, group: EntityId, class: usize) {
        let index = self.entities[group.index()].level as usize;
        let tree = &mut self.levels[index].trees[class];
        if let Some(first) = self.nodes.first(&tree.active) {
            tree.min = tree.min.max(self.nodes.key(first));
        }
    }
}

impl Entity {
    const fn new(parent: EntityId, share: Share) -> Self {
        Self {
            parent,
            share,
            wanted: share,
            at: Virtual::START,
            served: false,
            node: None,
            level: QUEUE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const SLICE: Nanos = Nanos::from_millis(100);

    fn share(weight: u32) -> Share {
        Share { weight, class: Class::BestEffort, sync: true }
    }
    /// The next `turns` turns, each a slice long.
    fn turns(tree: &mut Hierarchy, turns: usize) -> Vec<EntityId> {
        let turn = |_| {
            let next = tree.pick().expect("somebody is busy");
            tree.charge(next, SLICE);
            next
        };
        (0..turns).map(turn).collect()
    }
    fn queues<const N: usize>(tree: &mut Hierarchy, weights: [u32; N]) -> [EntityId; N] {
        let queues = weights.map(|weight| tree.add_queue(EntityId::ROOT, share(weight)));
        queues.iter().for_each(|queue| tree.activate(*queue));
        queues
    }

    /// Goal: turns in proportion to weights, on every level. Method: queues of 1, 2 and 3; groups of 300
    /// and 100 with two queues each, over many turns.
    #[test]
    fn turns_follow_weights() {
        let mut tree = Hierarchy::new();
        let all = queues(&mut tree, [100, 200, 300]);
        let taken = turns(&mut tree, 600);
        let count = |id| taken.iter().filter(|taken| **taken == id).count();
        assert_eq!(all.map(count), [100, 200, 300]);

        let mut tree = Hierarchy::new();
        let groups = [300, 100].map(|weight| tree.add_group(EntityId::ROOT, share(weight)));
        let all = [(0, 100), (0, 500), (1, 700), (1, 700)].map(|(group, weight)| {
            let queue = tree.add_queue(groups[group], share(weight));
            tree.activate(queue);
            queue
        });
        let taken = turns(&mut tree, 2400);
        let count = |id| taken.iter().filter(|taken| **taken == id).count();
        assert_eq!(all.map(count), [300, 1500, 300, 300]);
    }

    /// Goal: the idle tree tells three kinds of returning queues apart: one that used a slice comes
    /// back behind those who have not; one that used little comes before a late one; one that is not
    /// known goes to the end. Method: weights that set virtual times far apart.
    #[test]
    fn recently_served_queues_are_remembered() {
        let mut tree = Hierarchy::new();
        let [light, heavy, heavier] = queues(&mut tree, [100, 1000, 500]);
        assert_eq!(turns(&mut tree, 3), [light, heavy, heavier]);
        // Now at 1000, 100 and 200 ms.
        for queue in [light, heavier] {
            tree.deactivate(queue);
            tree.activate(queue);
        }
        assert_eq!(turns(&mut tree, 3), [heavy, heavier, heavy], "as if they had not left");
        // Now at 1000, 300 and 400 ms; a new one goes to the end, an emptied one behind by little.
        tree.deactivate(heavier);
        let new = tree.add_queue(EntityId::ROOT, share(1000));
        tree.activate(new);
        tree.activate(heavier);
        tree.put_in_front(heavy);
        let taken = turns(&mut tree, 12);
        let first = |id| taken.iter().position(|taken| *taken == id).expect("had a turn");
        assert!(first(heavy) < first(heavier) && first(heavier) < first(light), "{taken:?}");
        assert!(first(light) < first(new), "{taken:?}");
    }

    /// Goal: what has been away so long that all others have passed it is forgotten: it has no claim to
    /// the past. Method: one leaves after a small charge, another goes on for ten turns.
    #[test]
    fn long_absent_queues_are_forgotten() {
        let mut tree = Hierarchy::new();
        let [short, long] = queues(&mut tree, [100, 100]);
        assert_eq!(tree.pick(), Some(short));
        tree.charge(short, Nanos::from_millis(8));
        tree.deactivate(short);
        assert_eq!(turns(&mut tree, 10), [long; 10]);
        tree.activate(short);
        assert_eq!(turns(&mut tree, 3), [long, short, long].map(|id| id));
    }

    /// Goal: a more urgent class always goes first, and a changed one counts from the next turn.
    /// Method: one of each.
    #[test]
    fn classes_are_strict() {
        let mut tree = Hierarchy::new();
        let of = |class| Share { class, ..share(100) };
        let all = Class::ALL.map(|class| tree.add_queue(EntityId::ROOT, of(class)));
        all.iter().rev().for_each(|queue| tree.activate(*queue));
        assert_eq!(turns(&mut tree, 3), [all[0]; 3]);
        tree.set_share(all[0], of(Class::Idle));
        assert_eq!(turns(&mut tree, 3), [all[0], all[1], all[1]]);
        tree.deactivate(all[1]);
        assert_eq!(turns(&mut tree, 2), [all[2], all[0]]);
    }

    /// Goal: who competes is found on the level where the ways meet. Method: a tree of three levels.
    #[test]
    fn competitors_are_siblings() {
        let mut tree = Hierarchy::new();
        let outer = tree.add_group(EntityId::ROOT, share(1));
        let inner = tree.add_group(outer, share(1));
        let deep = tree.add_queue(inner, share(1));
        let beside = tree.add_queue(outer, share(1));
        let root = tree.add_queue(EntityId::ROOT, share(1));
        assert_eq!(tree.competitors(deep, beside), (inner, beside));
        assert_eq!(tree.competitors(root, deep), (root, outer));
        assert_eq!(tree.competitors(deep, deep), (deep, deep));
    }
}
