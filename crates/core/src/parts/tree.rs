//! Ordered trees over one arena, with a summary of each subtree kept on the way.
//!
//! Many small trees (one a client) share the nodes of one [`Arena`], so memory is what is in use and
//! nothing is allocated once warm. Insert, remove, first, next and bounds are O(log n); equal keys keep
//! their order of insertion. The summary (for instance the smallest start in a subtree) is what makes
//! "the smallest finish among those already eligible" a walk instead of a scan (B-WF2Q+).
//!
//! A treap (Seidel and Aragon 1996): a search tree by key and a heap by a priority that is a hash of
//! the node's birth number, so its shape is balanced with overwhelming probability and the same on
//! every machine.

use alloc::vec::Vec;

const NIL: u32 = u32::MAX;

/// A value that can sum up a subtree.
pub trait Summary {
    /// What is known of a subtree.
    type Of: Copy + core::fmt::Debug;
    /// Sums up a node and the summaries of its subtrees.
    fn summarise(&self, left: Option<Self::Of>, right: Option<Self::Of>) -> Self::Of;
}

/// Requests in sector order need no summary.
impl Summary for crate::request::RequestId {
    type Of = ();
    fn summarise(&self, _left: Option<()>, _right: Option<()>) {}
}

/// A node of a tree in an [`Arena`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(pub u32);

/// One tree in an [`Arena`]; belongs to the arena that it was filled from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    root: u32,
    len: u32,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty tree.
    pub const fn new() -> Self {
        Self { root: NIL, len: 0 }
    }
    /// Nodes in it.
    pub const fn len(&self) -> usize {
        self.len as usize
    }
    /// Has it no node?
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Its root node, for walks guided by summaries.
    pub const fn root(&self) -> Option<NodeId> {
        some(self.root)
    }
}

const fn some(index: u32) -> Option<NodeId> {
    if index == NIL { None } else { Some(NodeId(index)) }
}

#[derive(Debug)]
struct Node<K, V: Summary> {
    key: K,
    value: V,
    summary: V::Of,
    priority: u32,
    parent: u32,
    left: u32,
    right: u32,
}

/// The nodes of any number of trees.
#[derive(Debug)]
pub struct Arena<K, V: Summary> {
    nodes: Vec<Node<K, V>>,
    /// The first free node; the others follow by their `right`.
    free: u32,
    births: u32,
}

impl<K: Ord + Copy, V: Summary + Copy> Default for Arena<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Copy, V: Summary + Copy> Arena<K, V> {
    /// No nodes yet.
    pub const fn new() -> Self {
        Self { nodes: Vec::new(), free: NIL, births: 0 }
    }
    /// The key of a node.
    pub fn key(&self, node: NodeId) -> K {
        self.nodes[node.0 as usize].key
    }
    /// The value of a node.
    pub fn value(&self, node: NodeId) -> V {
        self.nodes[node.0 as usize].value
    }
    /// The summary of the subtree under and including a node.
    pub fn summary(&self, node: NodeId) -> V::Of {
        self.nodes[node.0 as usize].summary
    }
    /// The left child: smaller keys.
    pub fn left(&self, node: NodeId) -> Option<NodeId> {
        some(self.nodes[node.0 as usize].left)
    }
    /// The right child: larger keys.
    pub fn right(&self, node: NodeId) -> Option<NodeId> {
        some(self.nodes[node.0 as usize].right)
    }
    /// Changes a node's value in place and renews the summaries above it.
    pub fn set_value(&mut self, node: NodeId, value: V) {
        self.nodes[node.0 as usize].value = value;
        self.renew_upwards(node.0);
    }

    /// Adds a node; after all nodes of an equal key.
    pub fn insert(&mut self, tree: &mut Tree, key: K, value: V) -> NodeId {
        let index = self.allocate(key, value);
        let (mut parent, mut at, mut leftwards) = (NIL, tree.root, false);
        while at != NIL {
            let node = &self.nodes[at as usize];
            parent = at;
            leftwards = key < node.key;
            at = if leftwards { node.left } else { node.right };
        }
        self.nodes[index as usize].parent = parent;
        match parent {
            NIL => tree.root = index,
            parent if leftwards => self.nodes[parent as usize].left = index,
            parent => self.nodes[parent as usize].right = index,
        }
        tree.len += 1;
        self.renew_upwards(parent);
        while let Some(above) = self.parent_of_lower_priority(index) {
            self.rotate_up(tree, index, above);
        }
        NodeId(index)
    }
    /// Takes a node out of the tree that holds it and returns its value.
    pub fn remove(&mut self, tree: &mut Tree, node: NodeId) -> V {
        let index = node.0;
        loop {
            let (left, right) = {
                let node = &self.nodes[index as usize];
                (node.left, node.right)
            };
            let child = match (left, right) {
                (NIL, NIL) => break,
                (child, NIL) | (NIL, child) => child,
                (l, r) if self.priority(l) > self.priority(r) => l,
                (_, r) => r,
            };
            self.rotate_up(tree, child, index);
        }
        let parent = self.nodes[index as usize].parent;
        match parent {
            NIL => tree.root = NIL,
            parent => {
                let above = &mut self.nodes[parent as usize];
                if above.left == index {
                    above.left = NIL;
                } else {
                    above.right = NIL;
                }
            }
        }
        tree.len -= 1;
        self.renew_upwards(parent);
        let node = &mut self.nodes[index as usize];
        node.right = core::mem::replace(&mut self.free, index);
        node.value
    }
    /// The node of the smallest key.
    pub fn first(&self, tree: &Tree) -> Option<NodeId> {
        let mut at = tree.root()?;
        while let Some(left) = self.left(at) {
            at = left;
        }
        Some(at)
    }
    /// The node of the largest key.
    pub fn last(&self, tree: &Tree) -> Option<NodeId> {
        let mut at = tree.root()?;
        while let Some(right) = self.right(at) {
            at = right;
        }
        Some(at)
    }
    /// The next node in key order.
    pub fn next(&self, node: NodeId) -> Option<NodeId> {
        if let Some(mut at) = self.right(node) {
            while let Some(left) = self.left(at) {
                at = left;
            }
            return Some(at);
        }
        self.climb(node, |above, child| above.left == child)
    }
    /// The previous node in key order.
    pub fn previous(&self, node: NodeId) -> Option<NodeId> {
        if let Some(mut at) = self.left(node) {
            while let Some(right) = self.right(at) {
                at = right;
            }
            return Some(at);
        }
        self.climb(node, |above, child| above.right == child)
    }
    /// The first node whose key is at least `key`.
    pub fn at_or_after(&self, tree: &Tree, key: K) -> Option<NodeId> {
        let (mut best, mut at) = (None, tree.root());
        while let Some(node) = at {
            if self.key(node) >= key {
                best = Some(node);
                at = self.left(node);
            } else {
                at = self.right(node);
            }
        }
        best
    }
    /// The last node whose key is below `key`.
    pub fn before(&self, tree: &Tree, key: K) -> Option<NodeId> {
        let (mut best, mut at) = (None, tree.root());
        while let Some(node) = at {
            if self.key(node) < key {
                best = Some(node);
                at = self.right(node);
            } else {
                at = self.left(node);
            }
        }
        best
    }

    fn allocate(&mut self, key: K, value: V) -> u32 {
        self.births = self.births.wrapping_add(1);
        let node = Node {
            summary: value.summarise(None, None),
            key,
            value,
            priority: scramble(self.births),
            parent: NIL,
            left: NIL,
            right: NIL,
        };
        if self.free != NIL {
            let index = self.free;
            self.free = self.nodes[index as usize].right;
            self.nodes[index as usize] = node;
            return index;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }
    fn priority(&self, index: u32) -> u32 {
        self.nodes[index as usize].priority
    }
    fn parent_of_lower_priority(&self, index: u32) -> Option<u32> {
        let parent = self.nodes[index as usize].parent;
        (parent != NIL && self.priority(parent) < self.priority(index)).then_some(parent)
    }
    /// Puts `child` in the place of its parent `above`.
    fn rotate_up(&mut self, tree: &mut Tree, child: u32, above: u32) {
        let grand = self.nodes[above as usize].parent;
        let moved = if self.nodes[above as usize].left == child {
            let moved = core::mem::replace(&mut self.nodes[child as usize].right, above);
            self.nodes[above as usize].left = moved;
            moved
        } else {
            let moved = core::mem::replace(&mut self.nodes[child as usize].left, above);
            self.nodes[above as usize].right = moved;
            moved
        };
        if moved != NIL {
            self.nodes[moved as usize].parent = above;
        }
        self.nodes[above as usize].parent = child;
        self.nodes[child as usize].parent = grand;
        match grand {
            NIL => tree.root = child,
            grand => {
                let node = &mut self.nodes[grand as usize];
                if node.left == above {
                    node.left = child;
                } else {
                    node.right = child;
                }
            }
        }
        self.renew(above);
        self.renew(child);
    }
    fn renew(&mut self, index: u32) {
        let node = &self.nodes[index as usize];
        let left = some(node.left).map(|n| self.summary(n));
        let right = some(node.right).map(|n| self.summary(n));
        self.nodes[index as usize].summary = node.value.summarise(left, right);
    }
    fn renew_upwards(&mut self, mut index: u32) {
        if size_of::<V::Of>() == 0 {
            return;
        }
        while index != NIL {
            self.renew(index);
            index = self.nodes[index as usize].parent;
        }
    }
    fn climb(&self, node: NodeId, stop: impl Fn(&Node<K, V>, u32) -> bool) -> Option<NodeId> {
        let mut child = node.0;
        loop {
            let parent = self.nodes[child as usize].parent;
            if parent == NIL {
                return None;
            }
            if stop(&self.nodes[parent as usize], child) {
                return Some(NodeId(parent));
            }
            child = parent;
        }
    }
}

/// A fixed mixing of 32 bits (the finaliser of MurmurHash3).
const fn scramble(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    let x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Start(u64);
    impl Summary for Start {
        type Of = u64;
        fn summarise(&self, left: Option<u64>, right: Option<u64>) -> u64 {
            let least = left.map_or(self.0, |l| l.min(self.0));
            right.map_or(least, |r| r.min(least))
        }
    }

    fn check(arena: &Arena<u64, Start>, at: Option<NodeId>) -> Option<u64> {
        let node = at?;
        let left = check(arena, arena.left(node));
        let right = check(arena, arena.right(node));
        assert_eq!(arena.summary(node), arena.value(node).summarise(left, right));
        Some(arena.summary(node))
    }

    /// Goal: the treap is an ordered multimap with right summaries. Method: 20,000 random inserts and
    /// removals against BTreeMap, every bound asked, every summary recomputed now and then.
    #[test]
    fn agrees_with_a_btree_map() {
        let mut arena = Arena::new();
        let mut tree = Tree::new();
        let mut model: BTreeMap<(u64, u32), NodeId> = BTreeMap::new();
        let mut state = 7u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        for step in 0..20_000u32 {
            if random() % 5 < 3 || model.is_empty() {
                let key = random() % 500;
                let node = arena.insert(&mut tree, key, Start(random() % 1000));
                model.insert((key, step), node);
            } else {
                let skip = random() as usize % model.len();
                let entry = *model.iter().nth(skip).expect("not empty").0;
                let node = model.remove(&entry).expect("just seen");
                arena.remove(&mut tree, node);
            }
            let key = random() % 510;
            let after = model.range((key, 0)..).next().map(|(_, n)| *n);
            let before = model.range(..(key, 0)).next_back().map(|(_, n)| *n);
            assert_eq!(arena.at_or_after(&tree, key), after);
            assert_eq!(arena.before(&tree, key), before);
            assert_eq!(arena.first(&tree), model.values().next().copied());
            assert_eq!(arena.last(&tree), model.values().next_back().copied());
            assert_eq!(tree.len(), model.len());
            if step % 1000 == 0 {
                check(&arena, tree.root());
                let mut at = arena.first(&tree);
                for node in model.values() {
                    assert_eq!(at, Some(*node));
                    at = arena.next(*node);
                }
            }
        }
    }
}
