//! Pieces that policies share. A piece moves here when a second policy wants it, not before.

pub mod anticipatory;
pub mod backlog;
pub mod deadline_queue;
pub mod ewma;
pub mod fifo;
pub mod habits;
pub mod hw_tag;
pub mod levels;
pub mod meter;
pub mod noop_queue;
pub mod positions;
pub mod priority_slice;
pub mod seeks;
pub mod shares;
pub mod sharing;
pub mod slots;
pub mod sorted_fifo;
pub mod token_bucket;
pub mod tree;
pub mod wf2q;
