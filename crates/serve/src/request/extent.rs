//! What of a range is stored, as block status tells it.

use iofair_core::unit::Sectors;

/// What a block status is to throttles and schedulers: a read of a page, where the range begins. A file system reads
/// little more to find out, if it has to read at all.
pub(crate) const COST: Sectors = Sectors::from_kib(4);

/// A piece of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// Is nothing stored there? Then it reads as zeroes.
    pub hole: bool,
}
