//! libiofair: the engine for C programs.
//!
//! This crate exports the functions of `include/iofair.h`, which a test generates from it (`tests/header.rs`). Each function
//! checks its arguments, calls the engine, and returns a code. No panic crosses the boundary ([`guard`]). The comments of
//! public items are the comments of the header, and address C programmers.
//!
//! `unsafe` code dereferences the caller's pointers (`pointer.rs`).
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]
// The head of the header states what every function requires of its pointers.
#![allow(clippy::missing_safety_doc)]

mod contract;
mod engine;
mod error;
mod guard;
mod inner;
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
