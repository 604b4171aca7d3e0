//! Clients whose calls are decided by code of the caller, for quick trials: a [`Program`] starts a [`Script`] for each call that a
//! process has in flight, and the script says what to do next whenever it is done with the last action.

use std::fmt;
use std::sync::Arc;

use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// What a script does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A direct call; a flush has no place and no length.
    Call {
        /// Any but [`Operation::WriteZeroes`].
        operation: Operation,
        /// Its place in the file.
        offset: Sectors,
        /// Its length, at least one sector; it must end within the file.
        length: Sectors,
    },
    /// A pause.
    Wait(Nanos),
    /// Nothing more until the end of the run.
    End,
}

/// Whose script it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    /// The number of its process in the run.
    pub process: u32,
    /// Which of the calls that its process has in flight, from 0.
    pub slot: u32,
    /// Size of the process' file.
    pub file_size: Sectors,
    /// The block size of the job.
    pub block: Sectors,
    /// Seed of the run.
    pub seed: u64,
}

/// Starts scripts.
pub trait Program: Send + Sync {
    /// The script of one of the calls that a process has in flight.
    fn start(&self, seat: Seat) -> Box<dyn Script + Send>;
}

/// Decides what to do, one action after the other.
pub trait Script {
    /// The next action. `latency` is that of the call that has just ended; `None` after a pause and at the beginning. What
    /// depends on anything else than these makes results differ from run to run.
    fn next(&mut self, now: Instant, latency: Option<Nanos>) -> Action;
}

/// A program as a part of a scenario; equal to its clones only.
#[derive(Clone)]
pub struct SharedProgram(pub Arc<dyn Program>);

impl PartialEq for SharedProgram {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for SharedProgram {}

impl fmt::Debug for SharedProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedProgram")
    }
}
