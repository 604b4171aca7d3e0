//! The engine with the policies of the laboratory.
#![allow(clippy::unwrap_used)]

mod fairness;
mod flushes;
mod journey;
mod scale;
mod standing;
mod switch;
