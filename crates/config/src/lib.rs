//! Files that people write: read, checked, and answered with errors that say where and what is allowed.
//!
//! The only room that reads such files; no clock, no socket, no thread. Everything is TOML. A room that
//! has a format of its own (experiments, drive profiles) writes plain serde structs with the types of
//! [`units`] and reads them with [`parse`]:
//!
//! ```
//! use iofair_config::{parse, units::Time};
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Step { ramp: Time, repeats: u32 }
//!
//! let step: Step = parse("step.toml", "ramp = '5s'\nrepeats = 10").expect("a good file");
//! assert_eq!(step.ramp.nanos().as_millis(), 5_000);
//! let error = parse::<Step>("step.toml", "ramp = '5s'\nrepeat = 10").err().expect("a bad file");
//! assert!(error.to_string().contains("did you mean `repeats`?"));
//! ```
//!
//! Checks that serde cannot make (a group that does not exist) are made afterwards, with the spans of
//! [`Spanned`] values and [`Source::error`]. [`contracts`] is the one format that belongs here, because
//! several rooms read it.
#![forbid(unsafe_code)]

pub mod contracts;
mod error;
mod set;
mod source;
pub mod units;

pub use error::ConfigError;
pub use source::{Source, parse, read};
pub use toml::Spanned;
