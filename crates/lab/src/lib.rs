//! The lab: the engine in virtual time against models of drives.
//!
//! Deterministic: no wall clock, no thread inside a run, no hash-map iteration, no socket. One
//! [`scenario::Scenario`] with one seed gives one [`outcome::Outcome`], on any machine.
#![forbid(unsafe_code)]

pub mod experiment;
pub mod host;
pub mod outcome;
pub mod report;
pub mod scenario;
