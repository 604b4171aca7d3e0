//! Traces of I/O requests: who asked for what and when, and when it was complete.
//!
//! [`record`] has the data, [`source`] the interface of all readers. [`write`](mod@write) and [`read`] are the compact
//! format, whose layout [`block`] documents; [`formats`] reads the formats of others, and [`mod@open`] finds out which one a
//! file has. [`clean`] makes any trace playable on a drive: it repairs or skips, and counts what it did.
//!
//! Nothing here has a clock or a socket, and all memory is bounded, whatever a file contains.
#![forbid(unsafe_code)]

pub mod anonymise;
pub mod block;
pub mod clean;
mod code;
mod compression;
pub mod error;
mod files;
pub mod formats;
pub mod input;
mod merge;
mod names;
pub mod open;
mod printable;
pub mod read;
pub mod record;
pub mod source;
pub mod window;
pub mod write;

pub use error::TraceError;
pub use formats::Columns;
pub use open::{Options, Trace, open};
pub use printable::printable;
pub use record::{Metadata, Record, Stream};
pub use source::Source;
