//! Steps of a change that are taken back unless the change comes into force.

/// What a step has made for contracts that are not in force yet. Dropping it takes that back.
pub(crate) trait Revocable {
    /// The contracts are in force.
    fn keep(self: Box<Self>);
}

impl Revocable for () {
    fn keep(self: Box<Self>) {}
}
