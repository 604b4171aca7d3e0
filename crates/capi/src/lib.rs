//! libiofair: the engine for programs in C, and for those that can call C.
//!
//! The functions of `include/iofair.h`, which is made from this crate (`tests/header.rs`). Each checks what it was given, calls
//! the engine, and turns the result into a number; no panic leaves it ([`guard`]). The comments of what is public here
//! are the header's, and speak to C programmers.
//!
//! `unsafe` is where pointers of the caller are followed (`pointer.rs`), and in the signatures.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]
// The header states once what every function expects of its pointers.
#![allow(clippy::missing_safety_doc)]

mod contract;
mod engine;
mod error;
mod guard;
mod pointer;
mod request;
mod setup;
mod tree;

#[cfg(test)]
mod tests;

pub use contract::*;
pub use engine::*;
pub use error::*;
pub use guard::Engine;
pub use request::*;
pub use setup::*;
pub use tree::*;

/// The Rust of the page about embedding is compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embed.md")]
pub struct Embed;
