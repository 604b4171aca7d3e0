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
//! plan, replay, explain, timelines    what is asked of runs
//! run, outside                        one run: in virtual time, or over a drive elsewhere
//! world                               processes, cache and engine, event by event
//! client ─▶ cache ─▶ engine           what each does next; clock, timers, controllers and drives
//! scenario, outcome, sim              what is given, what is found, timers
//! ```
//!
//! `experiment` and `jobs` make scenarios of files, `machine` and `host` their hosts; `report` prints outcomes.
#![forbid(unsafe_code)]

mod cache;
pub mod calibration;
mod client;
mod engine;
mod error;
pub mod experiment;
pub mod explain;
pub mod fit;
pub mod host;
pub mod jobs;
pub mod machine;
pub mod observe;
pub mod outcome;
pub mod outside;
pub mod plan;
pub mod ranges;
pub mod recording;
pub mod replay;
pub mod report;
mod run;
pub mod scenario;
pub mod scorecard;
mod sim;
pub mod timelines;
mod world;

pub use error::RunError;
pub use run::{load_drive, simulate, simulate_on, simulate_with};
