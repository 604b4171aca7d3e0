//! Deadlines of reads in groups with a latency contract.
//!
//! ```text
//! deadline = arrival + latency of the group, or of the nearest one above it that has one
//! a read goes before its turn    once its deadline is at most two unloaded latencies of the drive away
//! and only while                 its group and those above it are at most [`AHEAD_MAX`] ahead of their turn, in virtual time
//! ```
//!
//! What goes before its turn counts for the share of its group. So a client that asks for less than its share, also in bursts,
//! has its latency; one that always asks for more has its share, and no more than that.
//!
//! Source: earliest deadline first within shares, as in Gulati et al., "pClock" (2007), which bounds what a burst may take
//! ahead.

use alloc::vec::Vec;

use super::shares::EntityId;
use crate::parts::tree::{Arena, NodeId, Tree};
use iofair_core::group::{GroupId, Groups};
use iofair_core::time::{Instant, Nanos};

/// How far ahead of its turn a group may be for its latency, in virtual time of a group with the default weight.
pub(super) const AHEAD_MAX: Nanos = Nanos::from_millis(50);

/// The first read of each client that has a deadline.
#[derive(Default, Debug)]
pub(super) struct Deadlines {
    arena: Arena<(Instant, EntityId), EntityId>,
    tree: Tree,
    /// By client.
    nodes: Vec<Option<NodeId>>,
}

impl Deadlines {
    /// A client's first read is another one now, with this deadline, or it has none.
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

/// The latency that reads of a group are promised.
pub(super) fn latency(groups: &Groups, id: GroupId) -> Option<Nanos> {
    groups.ancestry(id).find_map(|id| groups.group(id).contract.latency)
}
