//! The stored parts of a range, for block status.

use iofair_core::unit::Sectors;

/// What a block status is to throttles and schedulers: a read of a page, where the range begins. A file system reads
/// little more to find out, if it has to read at all.
pub(crate) const COST: Sectors = Sectors::from_kib(4);

/// A part of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Length in bytes.
    pub length: u64,
    /// Whether nothing is stored there, so that it reads as zeroes.
    pub hole: bool,
}
