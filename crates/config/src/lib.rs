//! Reads and checks the files that people write. Errors give the place and the allowed values.
//!
//! No other crate reads such files. This one has no clock, no socket and no thread. All formats are TOML, except job files of
//! fio ([`fio`]). A crate
//! with its own format (experiments, drive profiles) defines plain serde structs with the types of [`units`] and
//! reads them with [`parse`]:
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
//! Checks that serde cannot make, such as whether a group exists, are made afterwards, with the spans of [`Spanned`]
//! values and [`Source::error`]. The format of contract files ([`contracts`]) is defined here, because several crates
//! use it.
#![forbid(unsafe_code)]

pub mod contracts;
mod error;
mod errors;
pub mod fio;
pub mod name;
mod set;
pub mod shell;
mod source;
mod stack;
pub mod units;

pub use error::ConfigError;
pub use source::{Source, is_regular, parse, read, read_text};
pub use stack::stack_error;
pub use toml::Spanned;
