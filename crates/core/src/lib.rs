//! The engine: decides whose I/O goes next.
//!
//! Pure by construction: `no_std`, no dependency, no float, no clock, no lock, no log, no random
//! number. Time comes in as `now` ([`time::Instant`]); the next deadline goes out as
//! `Option<Instant>`. So the object that the lab proves in virtual time is the object that serves a
//! real drive.
//!
//! Where to start reading: [`controller`] (a request's journey), [`policy`] (the contract that every
//! policy keeps), [`group`] (who shares the drive), [`contract`] (what each was promised).
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
