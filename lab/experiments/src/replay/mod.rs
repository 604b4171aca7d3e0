//! A recorded trace, played against the engine and a model of a drive in virtual time.
//!
//! The engine is built as a server builds it (its tags, its flushes); each stream of the trace becomes a client of a group.
//! [`order`] decides when each request is sent: at its recorded time, or when what it waited for is complete. [`tally`]
//! measures what each group got, [`mod@agreement`] how far a replay is from the recording. A run reads the trace once, in
//! bounded memory.

pub mod agreement;
mod driver;
mod groups;
pub mod order;
mod page;
pub mod request;
pub mod tally;
mod text;

pub use agreement::{Agreement, agreement};
pub use driver::{Outcome, ReplayError, Setup, replay};
pub use groups::Mapping;
pub use order::Mode;
pub use page::page;
pub use tally::{GroupResult, Played, Totals};
pub use text::text;
