//! Code that policies of this crate share.

pub mod anticipatory;
pub mod backlog;
pub(crate) mod cfq;
pub mod cfq_parameters;
pub mod habits;
pub mod hw_tag;
pub mod noop_queue;
pub mod shares;
pub mod sharing;
pub mod slots;
