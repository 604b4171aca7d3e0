//! What is measured where.

use iofair_core::policy::DriveFacts;
use iofair_core::time::Nanos;

/// What is measured where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scope {
    /// What is known of the target.
    pub facts: DriveFacts,
    /// Bytes of the target that are used, from its beginning.
    pub area: u64,
    /// Whether it may be written.
    pub writes: bool,
    /// Longest time of a row.
    pub row_time: Nanos,
    /// Bytes and time of the row that fills caches.
    pub fill: (u64, Nanos),
    /// Whether time costs nothing, and each row begins with a drive at rest.
    pub is_simulated: bool,
}
