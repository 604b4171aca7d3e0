//! Chooses the endpoint whose input is processed next: start-time fair queueing (Goyal, Vin and Cheng, 1996) of
//! processor time, at every level of the tree of groups.
//!
//! Endpoints with input wait in the queue of their group, first come, first served. At each level the group with
//! the least virtual time is next; its virtual time then advances by the processor time used, divided by its
//! weight. A group that was idle starts at the virtual time of the one served last, so that it neither saves up
//! time nor waits for what others used before. Endpoints whose input found no room are kept apart (*stalled*) and
//! go back into their queue when [`FairQueue::wake`] or [`FairQueue::wake_next`] says that there may be room.
//! Nothing of an account that is *parked* is served.
//!
//! No clock: the reactor measures, and time is an argument. An endpoint waits at most once, linked into its queue
//! by its own key, so that leaving is O(1) and nothing is allocated once warm.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iofair_core::group::Groups;
use iofair_core::id::GroupId;
use iofair_core::time::Nanos;

use crate::port::Account;

/// No node, no endpoint.
const NONE: u32 = u32::MAX;
/// The weight at which virtual time is processor time: the default of groups, and that of a group's own
/// endpoints beside the groups in it.
const WEIGHT: u32 = 100;
/// The weight of all peers together that have not chosen a volume, beside the groups at the top.
const HANDSHAKE_WEIGHT: u32 = 10;

/// The node of a group: above its own endpoints and the groups in it.
fn inner(group: GroupId) -> u32 {
    2 * group.index() as u32 + 1
}
const ROOT: u32 = 1;

/// Endpoints in order, linked by their keys.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NONE, last: NONE };

/// Where an endpoint waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    Ready(Account),
    Stalled(Account),
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    place: Place,
}

const UNLINKED: Link = Link { before: NONE, after: NONE, place: Place::Nowhere };

#[derive(Debug)]
struct Node {
    parent: u32,
    weight: u32,
    vtime: u64,
    /// Whether it is in its parent's heap.
    is_active: bool,
    is_parked: bool,
    /// Whether it is in the rotation of accounts with stalled endpoints.
    is_rotating: bool,
    /// Virtual time of what was served last below it.
    served_vtime: u64,
    /// Active nodes below it. Their keys here may be too small, never too large.
    below: BinaryHeap<Reverse<(u64, u32)>>,
    ready: List,
    stalled: List,
}

impl Node {
    fn new(parent: u32, weight: u32) -> Self {
        Self {
            parent,
            weight,
            vtime: 0,
            is_active: false,
            is_parked: false,
            is_rotating: false,
            served_vtime: 0,
            below: BinaryHeap::new(),
            ready: EMPTY,
            stalled: EMPTY,
        }
    }
}

/// All endpoints that wait, by group.
#[derive(Debug)]
pub(super) struct FairQueue {
    /// By account and by group: see [`Account::in_group`] and [`inner`].
    nodes: Vec<Node>,
    /// By key of the endpoint.
    links: Vec<Link>,
    /// Accounts with stalled endpoints, the next to be woken first.
    rotation: VecDeque<u32>,
}

impl FairQueue {
    pub(super) fn new() -> Self {
        let nodes = vec![Node::new(ROOT, HANDSHAKE_WEIGHT), Node::new(NONE, WEIGHT)];
        Self { nodes, links: Vec::new(), rotation: VecDeque::new() }
    }
    /// These groups are new, or others than they were.
    pub(super) fn set_groups(&mut self, groups: &Groups, changed: &[GroupId]) {
        let mut moved = false;
        for id in changed.iter().flat_map(|id| groups.ancestry(*id)) {
            let group = groups.group(id);
            let parent = group.parent.map_or(NONE, inner);
            let (at, own) = (inner(id) as usize, Account::in_group(id).0 as usize);
            while self.nodes.len() <= own {
                self.nodes.push(Node::new(NONE, WEIGHT));
            }
            self.nodes[own].parent = inner(id);
            let node = &mut self.nodes[at];
            // One that was nowhere yet has nothing below it.
            moved |= node.parent != parent && node.parent != NONE;
            (node.parent, node.weight) = (parent, group.contract.weight.max(1));
        }
        if moved {
            self.rebuild();
        }
    }
    /// Fills the heaps anew: a new group may have the id of one that was below another group.
    fn rebuild(&mut self) {
        for node in &mut self.nodes {
            node.is_active = false;
            node.below.clear();
        }
        for at in 0..self.nodes.len() as u32 {
            if self.nodes[at as usize].ready.first != NONE {
                self.activate(at);
            }
        }
    }

    /// Whether nothing waits that could be served.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes[ROOT as usize].below.is_empty()
    }
    /// Whether an endpoint is waiting to be served.
    #[cfg(test)]
    fn is_ready(&self, key: usize) -> bool {
        matches!(self.place(key), Place::Ready(_))
    }
    fn place(&self, key: usize) -> Place {
        self.links.get(key).map_or(Place::Nowhere, |link| link.place)
    }
    /// An endpoint has input: it waits at the end of its account's queue, unless it waits there already.
    pub(super) fn push(&mut self, account: Account, key: usize) {
        if self.place(key) == Place::Ready(account) {
            return;
        }
        self.remove(key);
        self.link(Place::Ready(account), key);
        self.activate(account.0);
    }
    /// The input of an endpoint found no room: it waits until it is woken.
    pub(super) fn stall(&mut self, account: Account, key: usize) {
        if self.place(key) == Place::Stalled(account) {
            return;
        }
        self.remove(key);
        self.link(Place::Stalled(account), key);
        let node = &mut self.nodes[account.0 as usize];
        if !std::mem::replace(&mut node.is_rotating, true) {
            self.rotation.push_back(account.0);
        }
    }
    /// An endpoint is gone, or changes its group.
    pub(super) fn remove(&mut self, key: usize) {
        let place = self.place(key);
        if place == Place::Nowhere {
            return;
        }
        let Link { before, after, .. } = std::mem::replace(&mut self.links[key], UNLINKED);
        let list = list(&mut self.nodes, place);
        match before {
            NONE => list.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => list.last = before,
            after => self.links[after as usize].before = before,
        }
        // An account whose queue is empty stays active until its turn comes; see `pop`.
    }
    fn link(&mut self, place: Place, key: usize) {
        if self.links.len() <= key {
            self.links.resize(key + 1, UNLINKED);
        }
        let list = list(&mut self.nodes, place);
        let before = std::mem::replace(&mut list.last, key as u32);
        match before {
            NONE => list.first = key as u32,
            before => self.links[before as usize].after = key as u32,
        }
        self.links[key] = Link { before, after: NONE, place };
    }
    /// Something waits below a node: so it does below all nodes above it.
    fn activate(&mut self, mut at: u32) {
        loop {
            let Node { parent, vtime, is_active, is_parked, .. } = self.nodes[at as usize];
            if is_active || is_parked || parent == NONE {
                return;
            }
            let above = &mut self.nodes[parent as usize];
            let vtime = vtime.max(above.served_vtime);
            above.below.push(Reverse((vtime, at)));
            let node = &mut self.nodes[at as usize];
            (node.vtime, node.is_active) = (vtime, true);
            at = parent;
        }
    }

    /// The endpoint to be served next, and whom its time is charged to.
    pub(super) fn pop(&mut self) -> Option<(Account, usize)> {
        loop {
            let leaf = self.descend()?;
            let account = Account(leaf);
            let Node { is_parked, ready: List { first, .. }, .. } = self.nodes[leaf as usize];
            if is_parked {
                self.deactivate(leaf);
                continue;
            }
            if first != NONE {
                self.remove(first as usize);
            }
            if self.nodes[leaf as usize].ready.first == NONE {
                self.deactivate(leaf);
            }
            if first != NONE {
                return Some((account, first as usize));
            }
        }
    }
    /// The active account with the least virtual time at every level; it is at the top of each heap then.
    fn descend(&mut self) -> Option<u32> {
        let mut at = ROOT;
        loop {
            let &Reverse((key, child)) = self.nodes[at as usize].below.peek()?;
            let vtime = self.nodes[child as usize].vtime;
            let node = &mut self.nodes[at as usize];
            if key != vtime {
                // It was charged since.
                *node.below.peek_mut().expect("just seen") = Reverse((vtime, child));
                continue;
            }
            node.served_vtime = node.served_vtime.max(vtime);
            if child.is_multiple_of(2) {
                return Some(child);
            }
            at = child;
        }
    }
    /// Takes a node that is at the top of its parent's heap out of it, and so on upwards.
    fn deactivate(&mut self, mut at: u32) {
        loop {
            let node = &mut self.nodes[at as usize];
            let parent = node.parent;
            if parent == NONE || !node.below.is_empty() {
                return;
            }
            node.is_active = false;
            let top = self.nodes[parent as usize].below.pop();
            assert_eq!(
                top.map(|Reverse((_, top))| top),
                Some(at),
                "the node that was descended to"
            );
            at = parent;
        }
    }
    /// An account used this much processor time.
    pub(super) fn charge(&mut self, account: Account, time: Nanos) {
        let mut at = account.0;
        while let Some(Node { parent, weight, is_active, .. }) = self.nodes.get(at as usize)
            && *parent != NONE
        {
            let (parent, weight, is_active) = (*parent, *weight, *is_active);
            let floor = if is_active { 0 } else { self.nodes[parent as usize].served_vtime };
            let node = &mut self.nodes[at as usize];
            // Rounded up: whatever is done counts for something.
            let cost = time.0.saturating_mul(u64::from(WEIGHT)).div_ceil(u64::from(weight));
            node.vtime = node.vtime.max(floor).saturating_add(cost);
            at = parent;
        }
    }

    /// Serves nothing of an account until [`Self::unpark`]; its endpoints keep their order.
    pub(super) fn park(&mut self, account: Account) {
        self.nodes[account.0 as usize].is_parked = true;
    }
    /// Serves an account again.
    pub(super) fn unpark(&mut self, account: Account) {
        let node = &mut self.nodes[account.0 as usize];
        node.is_parked = false;
        if node.ready.first != NONE {
            self.activate(account.0);
        }
    }

    /// There may be room for an account's endpoints: the one that has stalled longest waits to be served again.
    pub(super) fn wake(&mut self, account: Account) {
        if let Some(Node { stalled: List { first, .. }, .. }) = self.nodes.get(account.0 as usize)
            && *first != NONE
        {
            self.push(account, *first as usize);
        }
    }
    /// There may be room for anybody's: accounts with stalled endpoints take turns.
    pub(super) fn wake_next(&mut self) {
        while let Some(at) = self.rotation.pop_front() {
            let found = self.nodes[at as usize].stalled.first != NONE;
            self.wake(Account(at));
            let node = &mut self.nodes[at as usize];
            node.is_rotating = node.stalled.first != NONE;
            if node.is_rotating {
                self.rotation.push_back(at);
            }
            if found {
                return;
            }
        }
    }
    /// There may be room for everybody's.
    pub(super) fn wake_all(&mut self) {
        for at in std::mem::take(&mut self.rotation) {
            self.nodes[at as usize].is_rotating = false;
            while self.nodes[at as usize].stalled.first != NONE {
                self.wake(Account(at));
            }
        }
    }
}

fn list(nodes: &mut [Node], place: Place) -> &mut List {
    match place {
        Place::Ready(account) => &mut nodes[account.0 as usize].ready,
        Place::Stalled(account) => &mut nodes[account.0 as usize].stalled,
        Place::Nowhere => unreachable!("an endpoint that waits"),
    }
}

#[cfg(test)]
mod tests;
