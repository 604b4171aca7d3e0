//! What tests and benches of several crates share.

#![forbid(unsafe_code)]
// Outside of test functions clippy does not know that these are tests; names say what a test does with them.
#![allow(missing_docs, clippy::new_without_default, clippy::unwrap_used)]

pub mod browser;
pub mod conformance;
pub mod directory;
pub mod judged;
pub mod machine;
pub mod page;
pub mod script;
pub mod stacks;
pub mod wire;
