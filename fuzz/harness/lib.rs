//! What the targets of `fuzz/` check: functions of bytes, which panic if a rule is broken. `crates/serve/tests/fuzzed.rs` calls them, too.

// The head of each module describes its function.
#![allow(missing_docs, clippy::unwrap_used)]

mod contracts;
mod control;
mod jobs;
mod nbd;
mod operations;
mod trace;

pub use contracts::contracts;
pub use control::control;
pub use iofair_serve::hostile_driver as virtqueue;
pub use iofair_serve::pool::format::fuzz as pool;
pub use jobs::jobs;
pub use nbd::{handshake, transmission};
pub use operations::operations;
pub use trace::trace;
