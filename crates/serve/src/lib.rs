//! The server: volumes for clients, over the same engine that runs in the simulator.
//!
//! This crate has the sockets, system calls, the clock, and most `unsafe` code; it decides no order. [`server`]
//! starts a [`reactor`], which runs [`front`] ends, the [`engine`] (through the [`port`]) and a [`back`] end on one
//! thread. `front::nbd::session` (bytes in, actions out) and `engine` (time is an argument) are pure.
// The one room that talks to the kernel: every block says why it is sound.
#![allow(unsafe_code)]

mod accounts;
mod attributes;
pub mod back;
mod bare;
pub mod client;
mod clock;
mod confine;
mod consent;
pub mod control;
mod descriptors;
pub mod engine;
mod error;
mod file_system;
pub mod front;
mod guard;
mod layout;
pub mod log;
pub mod measure;
mod places;
pub mod pool;
mod port;
mod priority;
mod reactor;
pub mod request;
mod reserve;
mod security;
mod server;
mod signals;
mod socket;
pub mod supervisor;
#[cfg(test)]
mod testing;
mod trial;
mod wake;

pub use back::emulated::{Lateness, Timing};
pub use bare::Bare;
pub use clock::Clock;
pub use consent::{Consent, Unagreed};
pub use engine::stats::{Snapshot, VolumeSnapshot, VolumeStats};
pub use error::ServeError;
pub use file_system::{FileSystem, takes_direct};
#[doc(hidden)]
pub use front::vhost::hostile::hostile as hostile_driver;
pub use places::admin as directory;
pub use priority::in_real_time;
pub use server::Server;
pub use signals::{Signal, Signals};
