//! The lab: the engine in virtual time against models of drives.
//!
//! Deterministic: no wall clock, no thread inside a run, no hash-map iteration, no socket. One
//! [`scenario::Scenario`] with one seed gives one [`outcome::Outcome`], on any machine. [`simulate`] does
//! it; [`simulate_with`] lets an [`observe::Observer`] watch. [`outside::run_outside`] puts the same clients over a
//! drive that is elsewhere, in its time.
//!
//! Files import downwards only (`lab/program/tests/tidy/circles.rs`). A run, from above:
//!
//! ```text
//! plan                                what is asked of runs
//! run, outside                        one run: in virtual time, or over a drive elsewhere
//! world                               processes, cache and engine, event by event
//! client ─▶ cache ─▶ engine           what each does next; clock, timers, controllers and drives
//! scenario, outcome, sim              what is given, what is found, timers
//! ```
//!
//! `processes` makes clients of the keys of a file, `machine` and `host` the host. Experiments are in `iofair-experiments`.
#![forbid(unsafe_code)]

mod cache;
pub mod calibration;
mod client;
pub mod client_file;
mod engine;
mod error;
pub mod host;
pub mod host_file;
pub mod machine;
pub mod manner;
pub mod observe;
pub mod outcome;
pub mod outside;
pub mod plan;
pub mod processes;
pub mod recording;
mod run;
pub mod scenario;
mod sim;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text_table;
mod world;

pub use engine::{Engine, NewRequest};
pub use error::RunError;
pub use run::{load_drive, simulate, simulate_on, simulate_with};
pub use sim::{ActorCompletion, Token};
