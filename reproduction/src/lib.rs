//! What only the reproduction of published experiments needs: the evidence in `reproduction/evidence` and `measured.csv`, the
//! numbers that pages name, and the tables and pictures that are made from both; draws of experiments, and the ranges of numbers
//! that no measured row decides; the comparison of simulator, live server and kernel.
//!
//! `iofair-lab run` and `fit` write the files; a test of the repository (`lab/program/tests/tidy`) keeps the pages fresh.
#![forbid(unsafe_code)]

mod ablation;
mod cases;
pub mod draws;
pub mod fit;
mod found;
mod frontier;
mod library;
mod measured;
mod pareto;
mod promises;
mod rows;
pub mod search;
mod stacks;
mod steps;
pub mod truth;

pub use ablation::{Rule, ablation_table};
pub use cases::{CASES, cases_spots, cases_table};
pub use found::{SEARCHED, found_table};
pub use frontier::{frontier_csv, frontier_table, has_promise, seeds_table, stacks_table};
pub use library::{fitted as fitted_library, library_tables};
pub use measured::{Measured, experiments, judgements, missing, spots, stacks_asked};
pub use pareto::pareto_pictures;
pub use promises::{PROMISES, promises_spots, promises_table};
pub use rows::{Row, rows_of};
pub use stacks::{STACKS, stacks_csv, stacks_kept, stacks_picture, stacks_tables};
pub use steps::{STEPS, series_csv, step_pictures, steps_table};
