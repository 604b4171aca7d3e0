//! Deterministic models of drives, in integer nanoseconds.
//!
//! A [`Drive`] accepts commands and completes them in its own order and time. The simulator runs it in virtual time;
//! the server runs the same model in real time and calls it an emulated drive.
#![forbid(unsafe_code)]

pub mod behind;
pub mod fault;
pub mod fit;
pub mod fitted;
pub mod hdd;
mod library;
pub mod measure;
pub mod number;
pub mod paced;
pub mod profile;
pub mod random;
mod random_profile;
mod reach;
pub mod ssd;
pub mod stripe;
pub mod volume;

use iofair_core::policy::DriveFacts;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// One command for a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// The caller's id, which is returned with the completion.
    pub id: u32,
    /// The operation.
    pub operation: Operation,
    /// Its flags; only [`Flags::FUA`] matters to a drive.
    pub flags: Flags,
    /// First sector.
    pub start: Sectors,
    /// Length in sectors; zero for a flush.
    pub length: Sectors,
}

/// A completed command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The command's id.
    pub id: u32,
    /// The instant of its completion.
    pub at: Instant,
    /// 0, or an error number.
    pub status: i32,
}

/// A drive: a discrete-event machine that its owner advances.
///
/// The owner calls [`Drive::submit`] with non-decreasing instants, and [`Drive::advance`] at (or after)
/// [`Drive::next_event`]. Advancing early, late or twice does not change completion times.
pub trait Drive {
    /// Accepts a command; at most [`DriveFacts::depth`] may be in the drive.
    fn submit(&mut self, now: Instant, command: Command);
    /// The time of the next event inside the drive; `None` if it is idle.
    fn next_event(&self) -> Option<Instant>;
    /// A time before which no command in the drive completes, not before [`Self::next_event`]; `None` if it is idle. An owner that
    /// is interested in completions only need not advance the drive earlier.
    fn next_completion(&self) -> Option<Instant> {
        self.next_event()
    }
    /// Works on until a command is completed, but not beyond `limit`, and returns the time of the next event after that. Nothing
    /// may be submitted before that time or `limit`, whichever is earlier: an owner in virtual time, that knows when it will
    /// submit at the earliest, need not look at the events before. A drive may stop earlier.
    fn run_to_completion(&mut self, limit: Instant) -> Option<Instant> {
        let _ = limit;
        self.next_event()
    }
    /// Processes all events up to and including `now`, and appends the completions in order of time.
    fn advance(&mut self, now: Instant, done: &mut Vec<Done>);
    /// The facts that a host knows about the drive.
    fn facts(&self) -> DriveFacts;
    /// Total time in which the drive had at least one command, up to its last event.
    fn busy(&self) -> Nanos;
    /// The rate in bytes a second that the drive reaches under the worst mix that its profile states; admission
    /// control uses it.
    fn worst_case_rate(&self) -> u64;
}
