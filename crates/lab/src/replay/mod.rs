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

use iofair_core::contract::Contract;
use iofair_core::controller::Stack;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::Drive;
use iofair_trace::clean::Clean;
use iofair_trace::source::Notes;
use iofair_trace::{Source, TraceError};

use crate::error::RunError;

pub use agreement::{Agreement, agreement};
pub use groups::Mapping;
pub use order::Mode;
pub use page::page;
pub use tally::{GroupResult, Totals};
pub use text::text;

/// What a replay of one stack needs beside the trace and the drive.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The policies.
    pub stack: Stack,
    /// Groups with their contracts, parents first or made with defaults.
    pub groups: Vec<(String, Contract)>,
    /// Which stream belongs to which group.
    pub mapping: Mapping,
    /// When requests are sent.
    pub mode: Mode,
    /// How many times as fast as recorded, in thousandths.
    pub speed: u64,
    /// Replay only so much of the trace, in the time of the replay; `None`: all.
    pub duration: Option<Nanos>,
}

/// What a stack made of a trace, or what was recorded.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Played {
    /// Name of the stack; `recording` for what was recorded.
    pub stack: String,
    /// From the first request to the last completion.
    pub seconds: f64,
    /// Everything together.
    pub all: GroupResult,
    /// By group, in the order of their paths.
    pub groups: Vec<GroupResult>,
    /// Requests that were sent later than they should have been, because too many were in flight.
    pub late: u64,
    /// Streams of the trace.
    pub streams: usize,
}

/// The result of one replay.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the replay measured.
    pub played: Played,
    /// The same of the recorded completions, if there are any. Requests without one are left out.
    pub recorded: Option<Played>,
    /// What was left out or repaired.
    pub notes: Notes,
}

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The groups, or the drive.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The trace has nothing to play.
    #[error("the trace has no request that can be replayed")]
    Empty,
    /// A policy holds requests and never wants to be asked again.
    #[error("the stack {stack} held {pending} requests for ever")]
    Stuck {
        /// The stack.
        stack: String,
        /// Requests that it held.
        pending: usize,
    },
}

/// Replays a trace under one stack.
///
/// # Errors
///
/// What is wrong with the trace, with a place; groups that do not make a tree, or that the stack refuses.
pub fn replay(
    source: impl Source,
    drive: Box<dyn Drive + Send>,
    setup: &Setup,
) -> Result<Outcome, ReplayError> {
    let capacity = drive.facts().capacity;
    assert!(capacity > Sectors::ZERO, "drives have sectors");
    driver::run(Clean::new(source, capacity), drive, setup)
}
