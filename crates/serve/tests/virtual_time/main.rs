//! The engine half of a server, in virtual time.
#![allow(clippy::unwrap_used)]

mod minimums;
mod parity;
mod shares;
