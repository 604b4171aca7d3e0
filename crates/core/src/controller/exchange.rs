//! What the engine and its owner tell each other.

use crate::error::EngineError;
use crate::id::{ClientId, CommandId, RequestId};
use crate::policy::{DriveFacts, HoldInfo};
use crate::request::{Flags, Operation, Part, Request};
use crate::time::Instant;
use crate::trace::Decision;
use crate::unit::Sectors;

use super::flush::FlushRule;

/// Largest drive: 8 EiB, so that every position in bytes is a `u64`.
pub const CAPACITY_MAX: Sectors = Sectors(1 << 54);
/// Longest request without data (a trim or write-zeroes): 512 TiB, so that sums of a few thousand of them are a `u64`.
pub const DATALESS_MAX: Sectors = Sectors(1 << 40);
/// Latest time that a call may pass: 550 years after the epoch. The rest of the range of [`Instant`] leaves room for
/// deadlines, and for values that mean "never". A later time is ignored and counted
/// ([`Controller::times_went_back`](super::Controller::times_went_back)).
pub const TIME_MAX: Instant = Instant(550 * 365 * 86_400 * 1_000_000_000);
/// Longest command: 1 GiB.
pub const MAX_REQUEST_MAX: Sectors = Sectors(1 << 21);

/// The settings of a [`Controller`](super::Controller).
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The drive.
    pub facts: DriveFacts,
    /// Limit on the requests that the scheduler and the drive have together. [`Stack::tags`](super::Stack::tags) gives a
    /// stack's default.
    pub tags: u32,
    /// Request slots that the groups share by weight, beyond those guaranteed ([`crate::quota`]). A request whose group has
    /// no free slot is refused ([`EngineError::Full`]).
    pub queue_limit: usize,
    /// Request slots that each group always has, whatever other groups use.
    pub guaranteed: usize,
    /// Request slots that one client may hold, so that a client of a group leaves slots for the others; `u32::MAX` for no
    /// limit. A client at its limit is refused ([`EngineError::ClientFull`]).
    pub client_limit: u32,
    /// Whether flushes pass throttles and scheduler.
    pub flushes: FlushRule,
    /// Number of trace events to keep; 0 disables tracing.
    pub trace: usize,
}

/// A request as its client submits it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submission {
    /// The caller's own identifier, returned with the completion.
    pub tag: u64,
    /// The client that submits it.
    pub client: ClientId,
    /// Its operation.
    pub operation: Operation,
    /// Its flags.
    pub flags: Flags,
    /// First sector; ignored for a flush.
    pub start: Sectors,
    /// Length; at least one sector, zero for a flush.
    pub length: Sectors,
}

/// A command for the drive. Pass it to [`Controller::complete`](super::Controller::complete) when the drive has completed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Dispatch {
    /// Identifies the command in [`Controller::complete`](super::Controller::complete).
    pub command: CommandId,
    /// The request that it carries out, as traces and policies name it. The id is reused after the completion.
    pub id: RequestId,
    /// The operation.
    pub operation: Operation,
    /// Its flags.
    pub flags: Flags,
    /// First sector.
    pub start: Sectors,
    /// Length, merged parts included.
    pub length: Sectors,
}

/// A completed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The submission: its tag, client, sectors and time.
    pub part: Part,
    /// Its operation.
    pub operation: Operation,
    /// When it left the last throttle.
    pub released: Instant,
    /// When it, or the request it was merged into, was dispatched to the drive.
    pub dispatched: Instant,
    /// When the drive completed it.
    pub completed: Instant,
    /// The drive's status: 0 is success, anything else an error number for the client.
    pub status: i32,
}

/// Where a request is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Place {
    /// In a throttle, numbered from 0.
    Throttle(usize),
    /// It waits for a tag.
    Tag,
    /// In the scheduler; also if earlier pieces of it are at the drive.
    Scheduler,
    /// A flush that waits for its client's writes, or for the flush before it.
    Flush,
    /// At the drive with all of its pieces that are not complete.
    Drive,
}

/// A pending request, and why it waits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Held<'a> {
    /// The request.
    pub request: &'a Request,
    /// Number of submissions merged into it, itself included.
    pub parts: usize,
    /// Where it is.
    pub place: Place,
    /// Since when it is there. For a throttle after another one, since its submission.
    pub since: Instant,
    /// The report of the policy that holds it.
    pub info: HoldInfo,
    /// The last decision about this very request.
    pub decision: Option<Decision>,
}

impl Setup {
    /// Checks the setup.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoTags`], or [`EngineError::BadSetup`] if the drive has no size or one above [`CAPACITY_MAX`], cannot
    /// carry a sector in a command, or has no room for a command, or if there is not a single request slot for a client.
    pub const fn check(&self) -> Result<(), EngineError> {
        let DriveFacts { depth, max_request, capacity, .. } = self.facts;
        if self.tags == 0 {
            Err(EngineError::NoTags)
        } else if depth == 0 {
            Err(EngineError::BadSetup("the queue depth (depth) must be at least 1"))
        } else if max_request.0 == 0 || max_request.0 > MAX_REQUEST_MAX.0 {
            Err(EngineError::BadSetup("max_request must have 1 sector to 1 GiB"))
        } else if capacity.0 == 0 || capacity.0 > CAPACITY_MAX.0 {
            Err(EngineError::BadSetup("the drive (capacity) must have 1 sector to 8 EiB"))
        } else if self.queue_limit == 0 && self.guaranteed == 0 {
            Err(EngineError::BadSetup("guaranteed or queue_limit must be at least 1"))
        } else if self.client_limit == 0 {
            Err(EngineError::BadSetup("the limit of each client (client_limit) must be at least 1"))
        } else {
            Ok(())
        }
    }
}
