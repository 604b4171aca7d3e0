//! Pieces that the engine and policies share.

pub mod fifo;
