//! Shares: the tree of weights, and each group's part of the whole.
//!
//! A group has two nodes: one for the whole group ([`group_node`]), and a leaf inside it for its own requests
//! ([`own_node`]), which counts as one more child.
//!
//! A node has a weight while something below it is active. `active` is the weight that a leaf may use; `inuse` is the
//! part that it keeps after lending the rest. The *share* of a node is the product, from the root down, of its weight
//! divided by the sum of its siblings' weights. It is cached until a weight changes.

use alloc::vec::Vec;

use iofair_core::id::GroupId;

/// The share of the whole.
pub const WHOLE: u64 = 1 << 16;
/// No parent: the root.
pub const NIL: u32 = u32::MAX;

/// The node of a group with everything in it.
pub const fn group_node(group: GroupId) -> u32 {
    group.index() as u32 * 2
}
/// The leaf of the group's own requests.
pub const fn own_node(group: usize) -> u32 {
    group as u32 * 2 + 1
}

/// A part of the whole, in units of 1 / [`WHOLE`], at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// By the weights of all active nodes.
    pub active: u64,
    /// By the weights that remain after donations.
    pub inuse: u64,
}

/// The state of an inner node during the computation of donations (`donation.rs` of io-cost).
#[derive(Clone, Copy, Default, Debug)]
pub struct Inner {
    /// Whether the computation has visited it.
    pub walked: bool,
    /// Share by weights.
    pub share: u64,
    /// Share of the donors below it, before and after.
    pub donating: u64,
    /// See `donating`.
    pub after: u64,
    /// Share after donations.
    pub inuse: u64,
    /// Adjusted sum of the weights below it.
    pub adjusted: u64,
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// The parent, or [`NIL`].
    pub parent: u32,
    /// The configured weight, in units of 1 / [`WHOLE`].
    pub weight: u64,
    /// The weight that it may use; zero while nothing in it is active.
    pub active: u64,
    /// The part of it that it keeps.
    pub inuse: u64,
    /// Sums over its children.
    pub active_sum: u64,
    inuse_sum: u64,
    share: Share,
    /// The generation of weights for which `share` was computed.
    generation: u64,
}

const UNUSED: Node = Node {
    parent: NIL,
    weight: WHOLE,
    active: 0,
    inuse: 0,
    active_sum: 0,
    inuse_sum: 0,
    share: Share { active: WHOLE, inuse: WHOLE },
    generation: 0,
};

/// The tree.
#[derive(Debug, Default)]
pub struct Weights {
    nodes: Vec<Node>,
    /// By node, for io-cost; apart, so that computing shares touches less memory.
    pub(crate) inner: Vec<Inner>,
    generation: u64,
    pub(crate) walk: Vec<u32>,
}

impl Weights {
    /// Adds a group; its own requests have the weight `own`.
    pub fn add_group(&mut self, group: GroupId, parent: Option<GroupId>, weights: [u32; 2]) {
        let [weight, own] = weights;
        self.place(group_node(group), parent.map_or(NIL, group_node), weight);
        self.place(own_node(group.index()), group_node(group), own);
    }
    /// Adds a node with this weight, or reuses the place of a removed one.
    pub fn place(&mut self, node: u32, parent: u32, weight: u32) {
        while self.nodes.len() <= node as usize {
            self.nodes.push(UNUSED);
            self.inner.push(Inner::default());
        }
        self.generation += 1;
        let weight = u64::from(weight) * WHOLE;
        self.nodes[node as usize] = Node { parent, weight, ..UNUSED };
        self.inner[node as usize] = Inner::default();
    }
    /// An existing node.
    pub fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }
    /// Changes the weight.
    pub fn set_weight(&mut self, node: u32, weight: u32) {
        let weight = u64::from(weight) * WHOLE;
        let n = &mut self.nodes[node as usize];
        n.weight = weight;
        if n.active > 0 {
            let inuse = n.inuse;
            self.propagate(node, weight, inuse);
        }
    }
    /// Sets a node's two weights and updates all sums above it. Zero: it is not active.
    pub fn propagate(&mut self, node: u32, active: u64, inuse: u64) {
        let (mut at, mut active) = (node, active);
        let n = self.node(node);
        let mut inuse = match n.active_sum {
            0 => inuse.max(1).min(active),
            sum => (active * n.inuse_sum).div_ceil(sum),
        };
        loop {
            let n = &mut self.nodes[at as usize];
            if (n.active, n.inuse) == (active, inuse) || n.parent == NIL {
                return;
            }
            let (old_active, old_inuse) = (n.active, n.inuse);
            (n.active, n.inuse) = (active, inuse);
            self.generation += 1;
            at = n.parent;
            let above = &mut self.nodes[at as usize];
            above.active_sum = above.active_sum + active - old_active;
            above.inuse_sum = above.inuse_sum + inuse - old_inuse;
            // What nodes below lend is also lent here, in proportion.
            (active, inuse) = match above.active_sum {
                0 => (0, 0),
                sum => (above.weight, (above.weight * above.inuse_sum).div_ceil(sum)),
            };
        }
    }
    /// Changes whenever a share may have changed.
    pub fn generation(&self) -> u64 {
        self.generation
    }
    /// A node's share.
    pub fn share(&mut self, node: u32) -> Share {
        let Share { active, inuse } = self.find_share(node);
        Share { active: active.max(1), inuse: inuse.max(1) }
    }
    fn find_share(&mut self, node: u32) -> Share {
        let Node { parent, generation, share, .. } = *self.node(node);
        if parent == NIL || generation == self.generation {
            return share;
        }
        let mut share = self.find_share(parent);
        let (n, above) = (self.node(node), self.node(parent));
        if above.active_sum > 0 && above.inuse_sum > 0 {
            share.active = share.active * n.active / above.active_sum.max(n.active);
            share.inuse = share.inuse * n.inuse / above.inuse_sum.max(n.inuse);
        }
        let n = &mut self.nodes[node as usize];
        (n.share, n.generation) = (share, self.generation);
        share
    }
    /// The share that a leaf would have if it lent nothing while others go on lending.
    pub fn share_max(&self, leaf: u32) -> u64 {
        let (mut at, mut share) = (leaf, WHOLE);
        let mut inuse = self.node(leaf).active;
        loop {
            let n = self.node(at);
            if n.parent == NIL {
                return share.max(1);
            }
            let above = self.node(n.parent);
            let sum = above.inuse_sum + inuse - n.inuse;
            if sum > 0 && above.active_sum > 0 {
                share = share * inuse / sum;
                inuse = (above.weight * sum).div_ceil(above.active_sum);
            }
            at = n.parent;
        }
    }
}
