//! Which blocked group is released next: an ordered set in place of the original's scan of all groups.

use alloc::vec::Vec;

use iofair_policies::parts::tree::{Arena, NodeId, Tree};

/// The blocked requests of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blocked {
    /// Nothing.
    Nothing,
    /// Requests that were not examined yet.
    Open,
    /// Only requests of one class, which had no room.
    Parked(usize),
}

/// Trees by [`Blocked`], and one for groups that may not send.
const DRY: usize = 3;

const fn tree_of(blocked: Blocked) -> usize {
    match blocked {
        Blocked::Nothing | Blocked::Open => 0,
        Blocked::Parked(class) => 1 + class,
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    node: NodeId,
    tree: usize,
    blocked: Blocked,
}

/// Groups with blocked requests. The smallest key is next; equal keys are in order of the group's number.
pub(super) struct Order {
    nodes: Arena<(u128, u32), u32>,
    trees: [Tree; 4],
    places: Vec<Option<Place>>,
}

impl Order {
    pub(super) fn new() -> Self {
        Self { nodes: Arena::new(), trees: [Tree::new(); 4], places: Vec::new() }
    }
    /// Makes room for groups below `bound`.
    pub(super) fn grow(&mut self, bound: usize) {
        if self.places.len() < bound {
            self.places.resize(bound, None);
        }
    }
    /// Removes a group. Returns its blocked requests, and whether it was among the groups that may not send.
    pub(super) fn leave(&mut self, group: usize) -> Option<(Blocked, bool)> {
        let place = self.places[group].take()?;
        self.nodes.remove(&mut self.trees[place.tree], place.node);
        Some((place.blocked, place.tree == DRY))
    }
    /// Adds a group that may send.
    pub(super) fn enter(&mut self, group: usize, blocked: Blocked, key: u128) {
        self.put(group, blocked, tree_of(blocked), key);
    }
    /// Adds a group that may not send.
    pub(super) fn enter_dry(&mut self, group: usize, blocked: Blocked, key: u128) {
        self.put(group, blocked, DRY, key);
    }
    fn put(&mut self, group: usize, blocked: Blocked, tree: usize, key: u128) {
        assert!(self.places[group].is_none(), "group {group} is in the order already");
        let entry = group as u32;
        let node = self.nodes.insert(&mut self.trees[tree], (key, group as u32), entry);
        self.places[group] = Some(Place { node, tree, blocked });
    }
    /// The blocked requests of a group in the order.
    pub(super) fn blocked(&self, group: usize) -> Option<Blocked> {
        self.places[group].map(|place| place.blocked)
    }
    /// Whether it is among the groups that may not send.
    pub(super) fn is_dry(&self, group: usize) -> bool {
        self.places[group].is_some_and(|place| place.tree == DRY)
    }
    /// The next group for which one of the classes has room.
    pub(super) fn best(&self, room: [bool; 2]) -> Option<usize> {
        if !room[0] && !room[1] {
            return None;
        }
        let open = [true, room[0], room[1]];
        let firsts = self.trees.iter().zip(open).filter(|(_, open)| *open);
        let firsts = firsts.filter_map(|(tree, _)| self.nodes.first(tree));
        let first = firsts.min_by_key(|node| self.nodes.key(*node))?;
        Some(self.nodes.value(first) as usize)
    }
    /// The first of the groups that may not send, with its key.
    pub(super) fn first_dry(&self) -> Option<(usize, u128)> {
        let node = self.nodes.first(&self.trees[DRY])?;
        Some((self.nodes.value(node) as usize, self.nodes.key(node).0))
    }
}
