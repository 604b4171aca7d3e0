//! Counters, integer histograms, and whether minimums are kept.

pub mod counters;
pub mod histogram;
pub mod minimum;
