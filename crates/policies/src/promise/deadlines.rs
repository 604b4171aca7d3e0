//! Deadlines of reads in groups with a latency contract.
//!
//! ```text
//! deadline = arrival + latency of the group, or of the nearest group above it that has one
//! a read is dispatched before its turn   once its deadline is at most two unloaded latencies of the drive away,
//!                                        while its group and those above are at most [`AHEAD_MAX`] ahead of their turn
//! ```
//!
//! Such a read counts towards the share of its group. A client that asks for less than its share, also in bursts, gets
//! its latency; a client that always asks for more gets its share and no more.
//!
//! Source: earliest deadline first within shares, as in Gulati et al., "pClock" (2007), which also bounds how far ahead
//! a burst may be served.

use alloc::vec::Vec;

use super::shares::EntityId;
use crate::parts::tree::{Arena, NodeId, Tree};
use iofair_core::group::Groups;
use iofair_core::id::GroupId;
use iofair_core::time::{Instant, Nanos};

/// How far ahead of its turn a group may be served for its latency, in virtual time of a group with the default weight.
pub(super) const AHEAD_MAX: Nanos = Nanos::from_millis(50);

/// The deadline of each client's first queued read, if it has one.
#[derive(Default, Debug)]
pub(super) struct Deadlines {
    arena: Arena<(Instant, EntityId), EntityId>,
    tree: Tree,
    /// Indexed by client.
    nodes: Vec<Option<NodeId>>,
}

impl Deadlines {
    /// Sets the deadline of a client's first queued read, or removes it.
    pub(super) fn set(&mut self, client: EntityId, deadline: Option<Instant>) {
        let Some(index) = client.as_client().map(|id| id.index()) else { return };
        if index >= self.nodes.len() {
            if deadline.is_none() {
                return;
            }
            self.nodes.resize(index + 1, None);
        }
        let node = &mut self.nodes[index];
        match (*node, deadline) {
            (Some(old), Some(at)) => {
                self.arena.replace(&mut self.tree, old, (at, client), client);
            }
            (Some(old), None) => {
                self.arena.remove(&mut self.tree, old);
                *node = None;
            }
            (None, Some(at)) => {
                *node = Some(self.arena.insert(&mut self.tree, (at, client), client));
            }
            (None, None) => {}
        }
    }
    /// The client with the earliest deadline.
    pub(super) fn first(&self) -> Option<(Instant, EntityId)> {
        self.arena.first(&self.tree).map(|node| self.arena.key(node))
    }
}

/// The latency contract that applies to reads of a group.
pub(super) fn latency(groups: &Groups, id: GroupId) -> Option<Nanos> {
    groups.ancestry(id).find_map(|id| groups.group(id).contract.latency)
}
