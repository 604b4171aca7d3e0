//! What `promise` keeps in experiments that are in no file.

mod attainable;
mod flushes;
mod minimums;
mod start;
