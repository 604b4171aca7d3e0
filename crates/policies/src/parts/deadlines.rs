//! Deadlines of requests in groups with a latency contract: the arrival, plus the latency of the nearest group that has one for
//! such requests.
//!
//! Source: earliest deadline first within shares, as in Gulati et al., "pClock" (2007).

use alloc::vec::Vec;

use super::shares::{EntityId, SIDES, Side};
use super::tree::{Arena, NodeId, Tree};
use iofair_core::group::Groups;
use iofair_core::request::Request;
use iofair_core::time::{Instant, Nanos};

/// The deadlines of each client's first queued read, write and flush, as far as they have one.
#[derive(Default, Debug)]
pub(crate) struct Deadlines {
    arena: Arena<(Instant, EntityId, Side), EntityId>,
    tree: Tree,
    /// Indexed by client.
    nodes: Vec<[Option<NodeId>; SIDES]>,
}

impl Deadlines {
    /// Sets the deadline of a client's first queued request on one side, or removes it.
    pub(crate) fn set(&mut self, client: EntityId, side: Side, deadline: Option<Instant>) {
        let index = client.member();
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, [None; SIDES]);
        }
        let node = &mut self.nodes[index][side as usize];
        if let Some(old) = node.take() {
            self.arena.remove(&mut self.tree, old);
        }
        *node = deadline.map(|at| self.arena.insert(&mut self.tree, (at, client, side), client));
    }
    /// The earliest deadline, its client, and which of its requests.
    pub(crate) fn first(&self) -> Option<(Instant, EntityId, Side)> {
        self.arena.first_key(&self.tree)
    }
}

/// The deadline of a request, if it has one.
pub(crate) fn deadline(groups: &Groups, request: &Request) -> Option<Instant> {
    Some(request.submitted + latency(groups, request)?)
}

/// The latency contract that applies to a request. Nobody waits for a buffered write.
pub(crate) fn latency(groups: &Groups, request: &Request) -> Option<Nanos> {
    let side = Side::of_request(request);
    if side == Side::Write && !request.is_sync() {
        return None;
    }
    let times = |id| groups.group(id).contract.latency.times();
    groups.ancestry(request.group).find_map(|id| times(id)[side as usize])
}
