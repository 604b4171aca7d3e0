//! The I/O scheduling engine: it decides the order in which the requests of many clients reach a drive.
//!
//! The engine is pure: `no_std`, no dependency, no float, no clock, no lock, no log, no random
//! number. The current time is an argument (`now`, [`time::Instant`], in nanoseconds), and the next deadline is a
//! result (`Option<Instant>`). Therefore the same code runs in the simulator and in the server.
//!
//! Where to start reading: [`controller`] (the path of a request), [`policy`] (the trait that every
//! policy implements), [`group`] (the tree of groups), [`contract`] (what each group was promised).
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

pub mod attainable;
pub mod contract;
pub mod controller;
pub mod error;
pub mod group;
pub mod minimum;
pub mod params;
pub mod parts;
pub mod policy;
pub mod quota;
pub mod request;
pub mod stats;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod trace;
pub mod unit;
