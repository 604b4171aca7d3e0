//! The receiver of a run's requests in place of the simulator's engine.

use iofair_core::contract::Contract;
use iofair_core::controller::{Stack, Submission};
use iofair_core::id::ClientId;
use iofair_core::priority::Priority;
use iofair_core::request::Flags;
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;

use crate::outcome::DriveOutcome;

/// The groups and clients of a run.
#[derive(Clone, Debug)]
pub struct Roster {
    /// The policies.
    pub stack: Stack,
    /// Limit on the requests that the scheduler and the drive have together.
    pub tags: u32,
    /// Groups, parents first, with the weights that keep their minimums; the root is not among them.
    pub groups: Vec<(String, Contract)>,
    /// The clients by index ([`ClientId::index`]): processes, threads, flushers, the journal.
    pub members: Vec<Member>,
}

/// One client of the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Path of its group; empty is the root.
    pub group: String,
    /// Class and level.
    pub priority: Priority,
    /// Flags of its reads.
    pub reads: Flags,
    /// Flags of its writes.
    pub writes: Flags,
}

/// A completed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The tag of the request. Tags are not unique: a call may be several requests.
    pub tag: u64,
    /// The length of the request.
    pub length: Sectors,
}

/// A receiver of the requests of a run, such as a server.
pub trait Outside {
    /// Prepares the run, whose time begins when this returns.
    fn open(&mut self, roster: Roster) -> Result<(), String>;
    /// Waits for a completion, or until `until`. Returns the time, which never goes back, or `None` to end the run after an error
    /// or an interrupt.
    fn wait(&mut self, until: Instant) -> Option<Instant>;
    /// Queues a request of a client.
    fn submit(&mut self, submission: &Submission);
    /// Sends the queued requests.
    fn send(&mut self);
    /// Appends completed requests.
    fn collect(&mut self, replies: &mut Vec<Reply>);
    /// Whether a process that sends requests of this client would sleep now, because too many are in flight.
    fn is_asleep(&self, client: ClientId) -> bool;
    /// Starts the measurement of the drive.
    fn end_ramp(&mut self);
    /// The measurements of the drive since then.
    fn measured(&mut self) -> DriveOutcome;
}
