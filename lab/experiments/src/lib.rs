//! Experiments: files that say what to run and what a source claims, recorded traces, and the reports on what was found.
//!
//! Deterministic, as the simulator that runs them ([`iofair_simulator`]). Files import downwards only:
//!
//! ```text
//! scorecard                         many runs, and what they say together
//! report                            prints results
//! experiment ─▶ jobs                makes scenarios of files and fio jobs, runs them, and judges the claims
//! replay, explain, timelines        traces of requests; where requests waited
//! ```
#![forbid(unsafe_code)]

mod csv_text;
mod distinct;
pub mod experiment;
pub mod explain;
pub mod jobs;
mod parallel;
pub mod ranges;
pub mod replay;
pub mod report;
pub mod scorecard;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timelines;

pub use csv_text::csv_text;
pub use distinct::distinct;
pub use parallel::parallel;
