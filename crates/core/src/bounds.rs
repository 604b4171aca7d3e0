//! Bounds of weights, priorities and the depth of the tree.

/// Smallest weight of a group; [`WEIGHT_MAX`] is the largest, [`WEIGHT_DEFAULT`] the default (as in blkio and BFQ).
pub const WEIGHT_MIN: u32 = 1;
/// See [`WEIGHT_MIN`].
pub const WEIGHT_MAX: u32 = 1000;
/// See [`WEIGHT_MIN`].
pub const WEIGHT_DEFAULT: u32 = 100;

/// Maximum number of levels below the root, which bounds every walk from a group to the root.
pub const DEPTH_MAX: usize = 32;

/// Lowest priority of a client in its class ([`Priority::level`](crate::priority::Priority::level)).
pub const LEVEL_MAX: u8 = 7;
