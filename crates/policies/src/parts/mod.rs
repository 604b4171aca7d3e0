//! Code that several policies share. Code moves here when a second policy needs it, not before.

pub(crate) mod counted;
pub mod deadline_queue;
pub(crate) mod deadlines;
pub(crate) mod entity;
pub mod ewma;
pub mod levels;
pub mod meter;
pub mod owners;
pub mod positions;
pub mod priority_slice;
pub mod scale;
pub mod seeks;
pub(crate) mod shares;
pub mod sorted_fifo;
pub mod token_bucket;
pub mod tree;
pub mod wf2q;
