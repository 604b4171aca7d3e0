//! Ordered trees over one arena; each page has a summary of its subtree.
//!
//! Many trees, most of them small (one per client), share the nodes and pages of one [`Arena`]. Insert, remove,
//! first, next and bounds are O(log n); equal keys keep their order of insertion. With the summary (for instance the
//! smallest start in a subtree), finding the smallest finish among eligible entities (B-WF2Q+) is a walk down the
//! tree and not a scan.
//!
//! The trees are B+ trees: a node belongs to a leaf page, and further levels of pages lead to it. An earlier version
//! was a treap. It followed a pointer to another cache line for each bit of the rank, and every second branch was
//! mispredicted; here this happens once per page. A tree of one node has no page, and two nodes refer to each other
//! instead (a page for each of 100,000 clients with two requests would take 20 MB). Sparse pages are joined with a
//! neighbour if it has room, and otherwise left as they are until they are empty (Johnson and Shasha 1993); entries
//! are never moved between neighbours to balance them.
//!
//! Nothing is allocated unless more nodes and pages are in use than ever before. Pages for a typical fill level are
//! reserved together with the nodes.

mod page;

use alloc::vec::Vec;

use page::{FANOUT, Page};

const NIL: u32 = u32::MAX;
/// In a node's `page`: the node is one of two, the rest is the index of the other; and whether it is the second.
const PAIR: u32 = 1 << 31;
const SECOND: u32 = 1 << 30;
/// A page with at most this many entries is joined with a neighbour if possible.
const SPARSE: usize = FANOUT / 4;
/// Neighbours are joined if they have at most this many entries together, so that the next insertion does not split
/// them.
const JOINED: usize = FANOUT - SPARSE;

/// Nodes per page for which pages are reserved: after many random insertions and removals, 8.3 remain on average.
const FILLED: usize = FANOUT * 3 / 8;

/// A value with a summary for subtrees.
pub trait Summary {
    /// The summary of a subtree.
    type Of: Copy + PartialEq + core::fmt::Debug;
    /// The summary of this value alone.
    fn alone(&self) -> Self::Of;
    /// The summary of two subtrees; the order in which subtrees are joined must not matter.
    fn join(one: Self::Of, other: Self::Of) -> Self::Of;
}

/// Requests in sector order need no summary.
impl Summary for iofair_core::id::RequestId {
    type Of = ();
    fn alone(&self) {}
    fn join(_one: (), _other: ()) {}
}

/// Nor do the numbers of groups, clients and queues.
impl Summary for u32 {
    type Of = ();
    fn alone(&self) {}
    fn join(_one: (), _other: ()) {}
}

/// A node of a tree in an [`Arena`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(pub u32);

/// One tree in an [`Arena`]; must always be used with the same arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The first node, if there are at most two nodes, or else the topmost page.
    root: u32,
    /// The first and last leaf, if there are more than two nodes.
    first: u32,
    last: u32,
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
        Self { root: NIL, first: NIL, last: NIL, len: 0 }
    }
    /// Number of nodes.
    pub const fn len(&self) -> usize {
        self.len as usize
    }
    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[derive(Debug)]
struct Node<K, V> {
    key: K,
    value: V,
    /// The leaf page that holds it; the other node if there are two; [`NIL`] if it is alone in its tree.
    page: u32,
}

/// The position of a node.
enum Place {
    /// It is the only one of its tree.
    Alone,
    /// There is one other.
    Pair { other: NodeId, second: bool },
    /// In a leaf.
    Page(u32),
}

/// The nodes and pages of any number of trees.
#[derive(Debug)]
pub struct Arena<K, V: Summary> {
    nodes: Vec<Node<K, V>>,
    pages: Vec<Page<K, V::Of>>,
    /// The first free node and the first free page; further ones are linked by `page` and `next`.
    free_node: u32,
    free_page: u32,
}

impl<K: Ord + Copy, V: Summary + Copy> Default for Arena<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Searching.
impl<K: Ord + Copy, V: Summary + Copy> Arena<K, V> {
    /// The key of a node.
    pub fn key(&self, node: NodeId) -> K {
        self.nodes[node.0 as usize].key
    }
    /// The value of a node.
    pub fn value(&self, node: NodeId) -> V {
        self.nodes[node.0 as usize].value
    }
    /// The summary of all nodes of a tree.
    pub fn summary(&self, tree: &Tree) -> Option<V::Of> {
        match tree.len {
            0 => None,
            1 => Some(self.nodes[tree.root as usize].value.alone()),
            2 => {
                let (first, second) = (tree.root as usize, self.second(tree) as usize);
                Some(V::join(self.nodes[first].value.alone(), self.nodes[second].value.alone()))
            }
            _ => Some(self.page(tree.root).summary(V::join)),
        }
    }
    /// The first node in key order whose own summary passes. A joined summary must pass exactly if one of the
    /// summaries from which it was joined does.
    pub(crate) fn first_where(
        &self,
        tree: &Tree,
        passes: impl Fn(V::Of) -> bool,
    ) -> Option<NodeId> {
        if tree.len < 3 {
            return self.few(tree).find(|node| passes(self.value(*node).alone()));
        }
        let mut at = tree.root;
        loop {
            let page = self.page(at);
            at = page.links()[page.summaries().iter().position(|summary| passes(*summary))?];
            if page.leaf {
                return Some(NodeId(at));
            }
        }
    }
    /// The node of the smallest key.
    pub fn first(&self, tree: &Tree) -> Option<NodeId> {
        if tree.len < 3 {
            return (tree.len > 0).then_some(NodeId(tree.root));
        }
        Some(NodeId(self.page(tree.first).first()))
    }
    /// The smallest key; found without its node, where there are many.
    pub(crate) fn first_key(&self, tree: &Tree) -> Option<K> {
        match tree.len {
            0 => None,
            1 | 2 => Some(self.nodes[tree.root as usize].key),
            _ => Some(self.page(tree.first).first_key()),
        }
    }
    /// The node of the largest key.
    pub fn last(&self, tree: &Tree) -> Option<NodeId> {
        if tree.len < 3 {
            return self.few(tree).last();
        }
        Some(NodeId(self.page(tree.last).last()))
    }
    /// The next node in key order.
    pub fn next(&self, node: NodeId) -> Option<NodeId> {
        let page = match self.place_of(node) {
            Place::Alone => return None,
            Place::Pair { other, second } => return (!second).then_some(other),
            Place::Page(page) => self.page(page),
        };
        self.entry_or_next(page, page.position_of(node.0) + 1)
    }
    /// The previous node in key order.
    pub fn previous(&self, node: NodeId) -> Option<NodeId> {
        let page = match self.place_of(node) {
            Place::Alone => return None,
            Place::Pair { other, second } => return second.then_some(other),
            Place::Page(page) => self.page(page),
        };
        self.entry_before(page, page.position_of(node.0))
    }
    /// The first node whose key is at least `key`.
    pub(crate) fn at_or_after(&self, tree: &Tree, key: K) -> Option<NodeId> {
        if tree.len < 3 {
            return self.few(tree).find(|node| self.key(*node) >= key);
        }
        let page = self.leaf_before(tree, key);
        self.entry_or_next(page, page.keys().partition_point(|other| *other < key))
    }
    /// The last node whose key is below `key`.
    pub fn before(&self, tree: &Tree, key: K) -> Option<NodeId> {
        if tree.len < 3 {
            return self.few(tree).filter(|node| self.key(*node) < key).last();
        }
        let page = self.leaf_before(tree, key);
        self.entry_before(page, page.keys().partition_point(|other| *other < key))
    }

    fn page(&self, index: u32) -> &Page<K, V::Of> {
        &self.pages[index as usize]
    }
    fn place_of(&self, node: NodeId) -> Place {
        match self.nodes[node.0 as usize].page {
            NIL => Place::Alone,
            page if page & PAIR == 0 => Place::Page(page),
            pair => {
                let other = NodeId(pair & !(PAIR | SECOND));
                Place::Pair { other, second: pair & SECOND != 0 }
            }
        }
    }
    /// The second node of a tree that has two.
    fn second(&self, tree: &Tree) -> u32 {
        self.nodes[tree.root as usize].page & !PAIR
    }
    /// The nodes of a tree that has at most two.
    fn few(&self, tree: &Tree) -> impl Iterator<Item = NodeId> {
        let first = (tree.len > 0).then_some(NodeId(tree.root));
        first.into_iter().chain((tree.len > 1).then(|| NodeId(self.second(tree))))
    }
    fn entry_or_next(&self, page: &Page<K, V::Of>, at: usize) -> Option<NodeId> {
        if at < page.len() {
            return Some(NodeId(page.links()[at]));
        }
        (page.next != NIL).then(|| NodeId(self.page(page.next).first()))
    }
    fn entry_before(&self, page: &Page<K, V::Of>, at: usize) -> Option<NodeId> {
        if at > 0 {
            return Some(NodeId(page.links()[at - 1]));
        }
        (page.previous != NIL).then(|| NodeId(self.page(page.previous).last()))
    }
    /// The last leaf that may hold a key below `key`.
    fn leaf_before(&self, tree: &Tree, key: K) -> &Page<K, V::Of> {
        let mut page = self.page(tree.root);
        while !page.leaf {
            page = self.page(page.child(page.child_where(|bound| bound < key)));
        }
        page
    }
}

/// Changing.
impl<K: Ord + Copy, V: Summary + Copy> Arena<K, V> {
    /// Without nodes.
    pub const fn new() -> Self {
        Self { nodes: Vec::new(), pages: Vec::new(), free_node: NIL, free_page: NIL }
    }
    /// Adds a node, after all nodes with the same key.
    pub fn insert(&mut self, tree: &mut Tree, key: K, value: V) -> NodeId {
        let node = Node { key, value, page: NIL };
        let index = match self.free_node {
            NIL => self.nodes.len() as u32,
            free => free,
        };
        match self.nodes.get_mut(index as usize) {
            Some(free) => {
                self.free_node = free.page;
                *free = node;
            }
            None => {
                if self.nodes.len() == self.nodes.capacity() {
                    // It grows by a quarter: doubling would leave up to half of a large arena unused.
                    self.nodes.reserve_exact(self.nodes.len() / 4 + 16);
                }
                self.nodes.push(node);
                self.set_pages_aside();
            }
        }
        self.enter(tree, index);
        NodeId(index)
    }
    /// Removes a node from its tree and returns its value.
    pub fn remove(&mut self, tree: &mut Tree, node: NodeId) -> V {
        self.leave(tree, node.0);
        let free = &mut self.nodes[node.0 as usize];
        free.page = core::mem::replace(&mut self.free_node, node.0);
        free.value
    }
    /// Replaces a node's key and value, as if it were removed and added again; its id stays.
    #[inline(never)]
    pub fn replace(&mut self, tree: &mut Tree, node: NodeId, key: K, value: V) {
        let entry = &mut self.nodes[node.0 as usize];
        (entry.key, entry.value) = (key, value);
        let page = entry.page;
        if page & PAIR != 0 {
            if page != NIL {
                self.leave(tree, node.0);
                self.enter(tree, node.0);
            }
            return;
        }
        let leaf = &mut self.pages[page as usize];
        let at = leaf.position_of(node.0);
        let after_previous = if at > 0 { leaf.keys()[at - 1] <= key } else { leaf.previous == NIL };
        let last = at + 1 == leaf.len();
        let before_next = if last { leaf.next == NIL } else { key < leaf.keys()[at + 1] };
        if after_previous && before_next {
            leaf.set(at, key, value.alone());
            self.settle(tree, page);
            return;
        }
        leaf.remove(at);
        self.settle(tree, page);
        self.attach(tree, (key, value.alone(), node.0));
    }

    /// Reserves pages for as many nodes as there is room for.
    fn set_pages_aside(&mut self) {
        let usual = self.nodes.capacity() / FILLED;
        if self.pages.capacity() < usual {
            self.pages.reserve_exact(usual - self.pages.len());
        }
    }
    fn new_page(&mut self, leaf: bool, key: K, summary: V::Of) -> u32 {
        if self.free_page == NIL {
            if self.pages.len() == self.pages.capacity() {
                // Many trees of two nodes become many pages; doubling would waste as many again.
                self.pages.reserve_exact(self.pages.len() / 4 + 1);
            }
            self.pages.push(Page::new(leaf, key, summary));
            return self.pages.len() as u32 - 1;
        }
        let index = self.free_page;
        let page = &mut self.pages[index as usize];
        self.free_page = page.next;
        page.restart(leaf);
        index
    }
    fn release(&mut self, page: u32) {
        self.pages[page as usize].next = core::mem::replace(&mut self.free_page, page);
    }
    /// Stores in a node or page which page holds it.
    fn adopt(&mut self, page: u32, link: u32) {
        match self.page(page).leaf {
            true => self.nodes[link as usize].page = page,
            false => self.pages[link as usize].parent = page,
        }
    }

    fn enter(&mut self, tree: &mut Tree, node: u32) {
        tree.len += 1;
        if tree.len == 1 {
            tree.root = node;
            return;
        }
        if tree.len == 2 {
            let before = self.nodes[node as usize].key < self.nodes[tree.root as usize].key;
            let (first, second) = if before { (node, tree.root) } else { (tree.root, node) };
            return self.pair(tree, first, second);
        }
        if tree.len == 3 {
            let entry = |node: u32| {
                let Node { key, value, .. } = &self.nodes[node as usize];
                (*key, value.alone(), node)
            };
            let (first, second) = (entry(tree.root), entry(self.second(tree)));
            let leaf = self.new_page(true, first.0, first.1);
            self.put(leaf, 0, first);
            self.put(leaf, 1, second);
            (tree.root, tree.first, tree.last) = (leaf, leaf, leaf);
        }
        let Node { key, value, .. } = self.nodes[node as usize];
        self.attach(tree, (key, value.alone(), node));
    }
    /// Puts a node into a leaf of a tree that has pages.
    #[inline(always)]
    fn attach(&mut self, tree: &mut Tree, (key, summary, node): (K, V::Of, u32)) {
        let last = &mut self.pages[tree.last as usize];
        // Most keys are times, and a new key is usually the latest. Summaries of pages above would have to be
        // updated.
        if size_of::<V::Of>() == 0 && last.last_key() <= key {
            if last.push((key, summary, node)) {
                self.nodes[node as usize].page = tree.last;
                return;
            }
            return self.put_or_split(tree, tree.last, FANOUT, (key, summary, node));
        }
        self.attach_within(tree, (key, summary, node));
    }
    fn attach_within(&mut self, tree: &mut Tree, (key, summary, node): (K, V::Of, u32)) {
        let mut at = tree.root;
        while !self.page(at).leaf {
            let page = &mut self.pages[at as usize];
            let child = page.child_where(|bound| bound <= key);
            page.join_summary(child, summary, V::join);
            at = page.child(child);
        }
        let position = self.page(at).keys().partition_point(|other| *other <= key);
        self.put_or_split(tree, at, position, (key, summary, node));
    }
    /// Makes a tree of exactly two nodes.
    fn pair(&mut self, tree: &mut Tree, first: u32, second: u32) {
        tree.root = first;
        self.nodes[first as usize].page = PAIR | second;
        self.nodes[second as usize].page = PAIR | SECOND | first;
    }
    fn put(&mut self, page: u32, at: usize, entry: (K, V::Of, u32)) {
        self.pages[page as usize].insert(at, entry);
        self.adopt(page, entry.2);
    }
    /// Adds an entry to a page; a full page is split, and the new page is added to the page above.
    fn put_or_split(
        &mut self,
        tree: &mut Tree,
        mut page: u32,
        mut at: usize,
        mut entry: (K, V::Of, u32),
    ) {
        while self.page(page).len() == FANOUT {
            let right = self.split(page, at);
            if page == tree.last {
                tree.last = right;
            }
            let kept = self.page(page).len();
            match at <= kept && kept < FANOUT {
                true => self.put(page, at, entry),
                false => self.put(right, at - kept, entry),
            }
            let (left, parent) = (page, self.page(page).parent);
            let summary = self.page(left).summary(V::join);
            let key = self.page(right).first_key();
            entry = (key, self.page(right).summary(V::join), right);
            if parent == NIL {
                let root = self.new_page(false, key, summary);
                tree.root = root;
                self.put(root, 0, (key, summary, left));
                (page, at) = (root, 1);
            } else {
                let above = &mut self.pages[parent as usize];
                let position = above.position_of(left);
                above.set_summary(position, summary);
                (page, at) = (parent, position + 1);
            }
        }
        self.put(page, at, entry);
    }
    /// Moves the upper half of a full page to a new one behind it, or nothing if the new entry is the last one of the
    /// tree, so that ascending keys fill their pages.
    fn split(&mut self, page: u32, at: usize) -> u32 {
        let left = self.page(page);
        let (leaf, next) = (left.leaf, left.next);
        let kept = if at == FANOUT && next == NIL { FANOUT } else { FANOUT / 2 };
        let (key, summary) = (left.keys()[0], left.summaries()[0]);
        let right = self.new_page(leaf, key, summary);
        for from in kept..FANOUT {
            self.put(right, from - kept, self.page(page).entry(from));
        }
        self.pages[page as usize].truncate(kept);
        self.link(right, next);
        self.link(page, right);
        right
    }
    /// Links two pages of the same level as neighbours.
    fn link(&mut self, left: u32, right: u32) {
        if left != NIL {
            self.pages[left as usize].next = right;
        }
        if right != NIL {
            self.pages[right as usize].previous = left;
        }
    }

    fn leave(&mut self, tree: &mut Tree, node: u32) {
        tree.len -= 1;
        let place = self.place_of(NodeId(node));
        self.nodes[node as usize].page = NIL;
        match place {
            Place::Alone => tree.root = NIL,
            Place::Pair { other, .. } => {
                tree.root = other.0;
                self.nodes[other.0 as usize].page = NIL;
            }
            Place::Page(page) => {
                let leaf = &mut self.pages[page as usize];
                leaf.remove(leaf.position_of(node));
                self.settle(tree, page);
                if tree.len == 2 {
                    let page = tree.root;
                    let leaf = self.page(page);
                    // Sparse neighbours were joined.
                    assert!(leaf.leaf && leaf.len() == 2, "two nodes lie in one leaf");
                    let [first, second] = [leaf.links()[0], leaf.links()[1]];
                    self.pair(tree, first, second);
                    self.release(page);
                }
            }
        }
    }
    /// Handles a changed page: removes it if it is empty, joins it with a neighbour if it is sparse, and updates the
    /// summaries above as far as they change.
    #[inline(always)]
    fn settle(&mut self, tree: &mut Tree, page: u32) {
        if size_of::<V::Of>() > 0 || self.page(page).len() <= SPARSE {
            self.settle_above(tree, page);
        }
    }
    fn settle_above(&mut self, tree: &mut Tree, mut page: u32) {
        while self.page(page).parent != NIL {
            let len = self.page(page).len();
            if size_of::<V::Of>() == 0 && len > SPARSE {
                return;
            }
            let parent = self.page(page).parent;
            let at = self.page(parent).position_of(page);
            if len == 0 {
                if page == tree.first {
                    tree.first = self.page(page).next;
                }
                if page == tree.last {
                    tree.last = self.page(page).previous;
                }
                self.drop_page(parent, at);
            } else if len > SPARSE || !self.try_join(tree, parent, at) {
                let summary = self.page(page).summary(V::join);
                let above = &mut self.pages[parent as usize];
                if above.summaries()[at] == summary {
                    return;
                }
                above.set_summary(at, summary);
            }
            page = parent;
        }
        while !self.page(page).leaf && self.page(page).len() == 1 {
            self.release(page);
            page = self.page(page).links()[0];
            self.pages[page as usize].parent = NIL;
            tree.root = page;
        }
    }
    fn drop_page(&mut self, parent: u32, at: usize) {
        let page = self.page(parent).links()[at];
        self.pages[parent as usize].remove(at);
        self.link(self.page(page).previous, self.page(page).next);
        self.release(page);
    }
    /// Joins a page with a neighbour under the same page, if there is room.
    fn try_join(&mut self, tree: &mut Tree, parent: u32, at: usize) -> bool {
        let above = self.page(parent);
        let fits = |left: usize| {
            let (one, other) = (above.links()[left], above.links()[left + 1]);
            self.page(one).len() + self.page(other).len() <= JOINED
        };
        let left = if at > 0 && fits(at - 1) {
            at - 1
        } else if at + 1 < above.len() && fits(at) {
            at
        } else {
            return false;
        };
        let (into, from, bound) =
            (above.links()[left], above.links()[left + 1], above.keys()[left + 1]);
        for i in 0..self.page(from).len() {
            let mut entry = self.page(from).entry(i);
            // The first bound of a page is never used there, so it may have become too high.
            if i == 0 && !self.page(from).leaf {
                entry.0 = bound;
            }
            let end = self.page(into).len();
            self.put(into, end, entry);
        }
        if from == tree.last {
            tree.last = into;
        }
        self.drop_page(parent, left + 1);
        let summary = self.page(into).summary(V::join);
        self.pages[parent as usize].set_summary(left, summary);
        true
    }
}

#[cfg(test)]
mod tests;
