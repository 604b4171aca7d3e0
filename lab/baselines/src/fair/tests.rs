//! What the IO controller promises, rule by rule by hand, and in a small closed loop.

mod rules;
mod shares;
mod world;
