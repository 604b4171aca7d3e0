//! Counters and integer histograms.

pub mod counters;
pub mod histogram;
