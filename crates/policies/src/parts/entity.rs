//! Groups and clients as nodes of one tree, their queues, and the order among siblings.

use iofair_core::id::{ClientId, GroupId};
use iofair_core::priority::Class;
use iofair_core::request::{Operation, Request};

use super::tree::Summary;

/// One of a client's queues. A side may be held while the others are served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    Read,
    /// Includes trims and zeroes.
    Write,
    Flush,
}

/// Number of sides.
pub(crate) const SIDES: usize = 3;

impl Side {
    pub(crate) const ALL: [Self; SIDES] = [Self::Read, Self::Write, Self::Flush];

    /// The queue that a request belongs to.
    pub(crate) fn of_request(request: &Request) -> Self {
        match request.operation {
            Operation::Read => Self::Read,
            Operation::Flush => Self::Flush,
            _ => Self::Write,
        }
    }
}

/// A group (even numbers) or a client (odd numbers).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EntityId(u32);

impl EntityId {
    pub(crate) const ROOT: Self = Self::group(GroupId::ROOT);

    pub(crate) const fn group(id: GroupId) -> Self {
        Self(2 * id.index() as u32)
    }
    pub(crate) const fn client(id: ClientId) -> Self {
        Self(2 * id.index() as u32 + 1)
    }
    pub(crate) const fn is_client(self) -> bool {
        !self.0.is_multiple_of(2)
    }
    /// The index of the group or the client, whichever it is.
    pub(crate) const fn member(self) -> usize {
        self.0 as usize / 2
    }
    /// Its index among groups and clients together.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Summary for EntityId {
    type Of = ();
    fn alone(&self) {}
    fn join(_one: (), _other: ()) {}
}

/// Order of service among siblings: class, then virtual time, then the entity to break ties. A single number, because comparisons
/// are most of the cost of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(u128);

impl Key {
    pub(crate) const fn new(class: Class, vtime: u64, id: EntityId) -> Self {
        Self((class as u128) << 96 | (vtime as u128) << 32 | id.0 as u128)
    }
    pub(crate) const fn id(self) -> EntityId {
        EntityId(self.0 as u32)
    }
    /// The virtual time.
    pub(crate) const fn vtime(self) -> u64 {
        (self.0 >> 32) as u64
    }
}
