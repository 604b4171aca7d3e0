//! Identifiers of groups, clients, requests and commands.

use core::fmt;
use core::marker::PhantomData;

/// Identifies something in a table: by an index, which another gets later, and by the number of those that had the index
/// before. So (for the next 2^32 of them) calls with the id of what is gone are refused.
///
/// ```
/// use iofair_core::id::GroupId;
///
/// assert_eq!(GroupId::from_bits(GroupId::ROOT.to_bits()), GroupId::ROOT);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id<K> {
    pub(crate) index: u32,
    pub(crate) generation: u32,
    kind: PhantomData<K>,
}

/// What an [`Id`] identifies.
pub trait Kind {
    /// Its name in messages.
    const NAME: &'static str;
}

/// Identifies a group in [`Groups`](crate::group::Groups).
pub type GroupId = Id<OfGroup>;
/// Identifies a client in [`Groups`](crate::group::Groups).
pub type ClientId = Id<OfClient>;
/// Identifies a dispatched command until its completion. Unlike a [`RequestId`], it is not reused. Its index is the slot of its
/// request.
pub type CommandId = Id<OfCommand>;

/// The kind of a [`GroupId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfGroup {}
/// The kind of a [`ClientId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfClient {}
/// The kind of a [`CommandId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfCommand {}

impl Kind for OfGroup {
    const NAME: &'static str = "group";
}
impl Kind for OfClient {
    const NAME: &'static str = "client";
}
impl Kind for OfCommand {
    const NAME: &'static str = "command";
}

impl GroupId {
    /// The root group, which contains all others.
    pub const ROOT: Self = Self::new(0, 0);
}

impl<K> Id<K> {
    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation, kind: PhantomData }
    }
    /// The id as an index of a vector. The indices of live groups, and of live clients, are distinct and dense
    /// ([`Groups::group_bound`](crate::group::Groups::group_bound)).
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
        Self::new(bits as u32, (bits >> 32) as u32)
    }
}

impl<K: Kind> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (generation {})", K::NAME, self.index, self.generation)
    }
}
impl<K: Kind> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The slot of a live request in [`Requests`](crate::request::Requests); reused after its completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u32);
