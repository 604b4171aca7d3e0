//! Models of drives: pure, deterministic, in integer nanoseconds.
//!
//! A [`Drive`] takes commands and answers them in its own order and time. The lab runs it in virtual
//! time; a server paces the very same model in real time and calls it an emulated drive.
#![forbid(unsafe_code)]

pub mod calibration;
pub mod fault;
pub mod hdd;
pub mod paced;
pub mod profile;
pub mod random;
mod random_profile;
mod reach;
pub mod ssd;
pub mod stripe;

use iofair_core::policy::DriveFacts;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// One command for a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// The host's name for it, returned with its answer.
    pub id: u32,
    /// What it asks.
    pub operation: Operation,
    /// How ([`Flags::FUA`] is the one that matters to a drive).
    pub flags: Flags,
    /// First sector.
    pub start: Sectors,
    /// Length in sectors; zero for a flush.
    pub length: Sectors,
}

/// An answered command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The command.
    pub id: u32,
    /// The instant at which the drive answered.
    pub at: Instant,
    /// 0, or an error number.
    pub status: i32,
}

/// A drive: a discrete-event machine that its owner turns.
///
/// The owner calls [`Drive::submit`] with non-decreasing instants, and [`Drive::advance`] at (or after)
/// [`Drive::next_event`]. Advancing early, late or twice changes no answer's time.
pub trait Drive {
    /// Takes a command, at most [`DriveFacts::depth`] at once.
    fn submit(&mut self, now: Instant, command: Command);
    /// When something happens next inside the drive; `None` when it rests.
    fn next_event(&self) -> Option<Instant>;
    /// Lets everything up to and including `now` happen and appends the answers in order of time.
    fn advance(&mut self, now: Instant, done: &mut Vec<Done>);
    /// What a host is told of it.
    fn facts(&self) -> DriveFacts;
    /// Total time in which the drive had at least one command, up to its last event.
    fn busy(&self) -> Nanos;
    /// The rate in bytes a second that it keeps with the worst mix its profile knows; the base of
    /// admission control.
    fn worst_case_rate(&self) -> u64;
}
