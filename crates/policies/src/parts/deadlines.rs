//! Deadlines of reads in groups with a latency contract: the arrival, plus the latency of the nearest group that has one.
//!
//! Source: earliest deadline first within shares, as in Gulati et al., "pClock" (2007).

use alloc::vec::Vec;

use super::entity::EntityId;
use super::tree::{Arena, NodeId, Tree};
use iofair_core::group::Groups;
use iofair_core::id::GroupId;
use iofair_core::time::{Instant, Nanos};

/// The deadline of each client's first queued read, if it has one.
#[derive(Default, Debug)]
pub(crate) struct Deadlines {
    arena: Arena<(Instant, EntityId), EntityId>,
    tree: Tree,
    /// Indexed by client.
    nodes: Vec<Option<NodeId>>,
}

impl Deadlines {
    /// Sets the deadline of a client's first queued read, or removes it.
    pub(crate) fn set(&mut self, client: EntityId, deadline: Option<Instant>) {
        let index = client.member();
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, None);
        }
        let node = &mut self.nodes[index];
        if let Some(old) = node.take() {
            self.arena.remove(&mut self.tree, old);
        }
        *node = deadline.map(|at| self.arena.insert(&mut self.tree, (at, client), client));
    }
    /// The client with the earliest deadline.
    pub(crate) fn first(&self) -> Option<EntityId> {
        self.arena.first_key(&self.tree).map(|(_, client)| client)
    }
}

/// The latency contract that applies to reads of a group.
pub(crate) fn latency(groups: &Groups, id: GroupId) -> Option<Nanos> {
    groups.ancestry(id).find_map(|id| groups.group(id).contract.latency)
}
