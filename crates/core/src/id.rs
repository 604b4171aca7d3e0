//! Identifiers of groups, clients, requests and commands.

use core::fmt;

/// Identifies a group in [`Groups`]. A group that is added later may get the index of a removed one, but (for the next 2^32
/// groups with this index) not its id: calls with the id of a removed group are refused.
///
/// [`Groups`]: crate::group::Groups
///
/// ```
/// use iofair_core::id::GroupId;
///
/// assert_eq!(GroupId::from_bits(GroupId::ROOT.to_bits()), GroupId::ROOT);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl GroupId {
    /// The root group, which contains all others.
    pub const ROOT: Self = Self { index: 0, generation: 0 };
    /// The id as an index of a vector. The indices of live groups are distinct and dense ([`group_bound`]).
    ///
    /// [`group_bound`]: crate::group::Groups::group_bound
    pub const fn index(self) -> usize {
        self.index as usize
    }
    /// As a number, for interfaces that carry numbers.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }
    /// The inverse of [`Self::to_bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {} (generation {})", self.index, self.generation)
    }
}

/// Identifies a client in [`Groups`]. A client that is added later may get the index of a removed one, but (for the next 2^32
/// clients with this index) not its id: calls with the id of a removed client are refused.
///
/// [`Groups`]: crate::group::Groups
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ClientId {
    /// The id as an index of a vector. The indices of live clients are distinct and dense ([`client_bound`]).
    ///
    /// [`client_bound`]: crate::group::Groups::client_bound
    pub const fn index(self) -> usize {
        self.index as usize
    }
    /// As a number, for interfaces that carry numbers.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }
    /// The inverse of [`Self::to_bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} (generation {})", self.index, self.generation)
    }
}

/// The slot of a live request in [`Requests`](crate::request::Requests); reused after its completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u32);

/// Identifies a dispatched command until its completion. Unlike a [`RequestId`], it is not reused (for the next 2^32 commands
/// of its slot).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommandId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl CommandId {
    /// As a number, for drivers that carry one with each command.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }
    /// The inverse of [`Self::to_bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self { slot: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {} of slot {}", self.generation, self.slot)
    }
}
