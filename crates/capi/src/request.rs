//! Requests, commands and completions, as C sees them.

use std::ffi::c_void;

use iofair_core::controller::{self, Dispatch};
use iofair_core::id::ClientId;
use iofair_core::request::{self, Flags, Operation};
use iofair_core::stats;
use iofair_core::unit::{SECTOR_BYTES, Sectors};

use crate::error::{Failure, IOFAIR_ERROR_RANGE};

/// Operation: read.
pub const IOFAIR_READ: u32 = 0;
/// Operation: write.
pub const IOFAIR_WRITE: u32 = 1;
/// Operation: make all earlier writes of this client durable. Offset and length are zero. It is dispatched when these writes
/// have completed.
pub const IOFAIR_FLUSH: u32 = 2;
/// Operation: discard the range (trim).
pub const IOFAIR_DISCARD: u32 = 3;
/// Operation: write zeroes.
pub const IOFAIR_WRITE_ZEROES: u32 = 4;

/// Flag: a synchronous write. Reads are always synchronous.
pub const IOFAIR_FLAG_SYNC: u32 = 1;
/// Flag: force unit access: the write is durable before it completes.
pub const IOFAIR_FLAG_FUA: u32 = 2;
/// Flag: file-system metadata.
pub const IOFAIR_FLAG_METADATA: u32 = 4;
/// Flag: do not merge this request.
pub const IOFAIR_FLAG_NO_MERGE: u32 = 8;
/// Flag: read-ahead.
pub const IOFAIR_FLAG_READ_AHEAD: u32 = 16;
/// Flag: the scheduler should not idle for a next request of this client.
pub const IOFAIR_FLAG_NO_IDLE: u32 = 32;

const FLAGS: [(u32, Flags); 6] = [
    (IOFAIR_FLAG_SYNC, Flags::SYNC),
    (IOFAIR_FLAG_FUA, Flags::FUA),
    (IOFAIR_FLAG_METADATA, Flags::METADATA),
    (IOFAIR_FLAG_NO_MERGE, Flags::NO_MERGE),
    (IOFAIR_FLAG_READ_AHEAD, Flags::READ_AHEAD),
    (IOFAIR_FLAG_NO_IDLE, Flags::NO_IDLE),
];

/// A request of a client.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// For the caller; returned with parts and completions. The library does not dereference it.
    pub user: *mut c_void,
    /// Handle from iofair_add_client.
    pub client: u64,
    /// First byte, a multiple of 512.
    pub offset: u64,
    /// Length in bytes, a multiple of 512; zero for a flush only.
    pub length: u64,
    /// IOFAIR_READ, IOFAIR_WRITE, ...
    pub operation: u32,
    /// IOFAIR_FLAG_... or 0.
    pub flags: u32,
}

/// A command for the drive: one request, several merged requests, or a piece of a long request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Handle for iofair_complete; unique among the commands of the engine.
    pub command: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, merged requests included; zero for a flush.
    pub length: u64,
    /// IOFAIR_READ, IOFAIR_WRITE, ...
    pub operation: u32,
    /// IOFAIR_FLAG_... or 0.
    pub flags: u32,
}

/// A request in a command, or the piece of a request in a command.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// From the request.
    pub user: *mut c_void,
    /// The client of the request.
    pub client: u64,
    /// First byte of this request in the command.
    pub offset: u64,
    /// Length of this request in the command, in bytes.
    pub length: u64,
}

/// A completed request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// From the request.
    pub user: *mut c_void,
    /// The client of the request.
    pub client: u64,
    /// From the request.
    pub offset: u64,
    /// From the request.
    pub length: u64,
    /// Time of iofair_submit, in nanoseconds.
    pub submitted_ns: u64,
    /// Time at which it passed the ceilings and other throttles, in nanoseconds.
    pub released_ns: u64,
    /// Time of iofair_dispatch, in nanoseconds.
    pub dispatched_ns: u64,
    /// Time of iofair_complete, in nanoseconds.
    pub completed_ns: u64,
    /// IOFAIR_READ, IOFAIR_WRITE, ...
    pub operation: u32,
    /// The status that was passed to iofair_complete; for a request in pieces the failed piece with the lowest offset counts.
    pub status: i32,
}

/// Counters of a client.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Reads completed.
    pub reads: u64,
    /// Writes, discards and write-zeroes completed.
    pub writes: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
    /// Sum of the latencies of the reads, from submission to completion, in nanoseconds.
    pub read_latency_ns: u64,
    /// Sum of the latencies of the writes, in nanoseconds.
    pub write_latency_ns: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Requests that were merged into other requests.
    pub merged: u64,
    /// Requests that have not completed.
    pub pending: u64,
}

impl Request {
    /// As the engine takes it, but for its client.
    pub(crate) fn submission(&self, client: ClientId) -> Result<controller::Submission, Failure> {
        let operation = match self.operation {
            IOFAIR_READ => Operation::Read,
            IOFAIR_WRITE => Operation::Write,
            IOFAIR_FLUSH => Operation::Flush,
            IOFAIR_DISCARD => Operation::Discard,
            IOFAIR_WRITE_ZEROES => Operation::WriteZeroes,
            other => return Err(Failure::argument(format_args!("no operation {other}"))),
        };
        let (mut flags, mut left) = (Flags::NONE, self.flags);
        for (bit, flag) in FLAGS {
            if left & bit != 0 {
                flags = flags.with(flag);
                left &= !bit;
            }
        }
        if left != 0 {
            return Err(Failure::argument(format_args!("unknown flags {left:#x}")));
        }
        if !(self.offset | self.length).is_multiple_of(SECTOR_BYTES) {
            let Self { offset, length, .. } = self;
            let message = format_args!("{length} bytes from {offset} are not in units of 512");
            return Err(Failure::new(IOFAIR_ERROR_RANGE, message));
        }
        Ok(controller::Submission {
            tag: self.user.expose_provenance() as u64,
            client,
            operation,
            flags,
            start: Sectors(self.offset / SECTOR_BYTES),
            length: Sectors(self.length / SECTOR_BYTES),
        })
    }
}

fn number(operation: Operation) -> u32 {
    match operation {
        Operation::Read => IOFAIR_READ,
        Operation::Write => IOFAIR_WRITE,
        Operation::Flush => IOFAIR_FLUSH,
        Operation::Discard => IOFAIR_DISCARD,
        Operation::WriteZeroes => IOFAIR_WRITE_ZEROES,
    }
}

fn user(tag: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(tag as usize)
}

impl From<Dispatch> for Command {
    fn from(dispatch: Dispatch) -> Self {
        let set = FLAGS.iter().filter(|(_, flag)| dispatch.flags.has(*flag));
        let flags = set.map(|(bit, _)| bit).sum();
        Self {
            command: dispatch.command.to_bits(),
            offset: dispatch.start.bytes(),
            length: dispatch.length.bytes(),
            operation: number(dispatch.operation),
            flags,
        }
    }
}

impl Part {
    pub(crate) fn new(part: &request::Part, client: u64) -> Self {
        let (offset, length) = (part.start.bytes(), part.length.bytes());
        Self { user: user(part.tag), client, offset, length }
    }
}

impl Completion {
    pub(crate) fn new(completion: &controller::Completion, client: u64) -> Self {
        Self {
            user: user(completion.part.tag),
            client,
            offset: completion.part.start.bytes(),
            length: completion.part.length.bytes(),
            submitted_ns: completion.part.submitted.0,
            released_ns: completion.released.0,
            dispatched_ns: completion.dispatched.0,
            completed_ns: completion.completed.0,
            operation: number(completion.operation),
            status: completion.status,
        }
    }
}

impl Counters {
    pub(crate) fn new(counters: &stats::counters::Counters, pending: u32) -> Self {
        let [reads, writes] = counters.requests;
        let [read_bytes, written_bytes] = counters.bytes;
        let [read_latency_ns, write_latency_ns] = counters.latency.map(|latency| latency.0);
        let (flushes, merged, pending) = (counters.flushes, counters.merged, u64::from(pending));
        Self {
            reads,
            writes,
            read_bytes,
            written_bytes,
            read_latency_ns,
            write_latency_ns,
            flushes,
            merged,
            pending,
        }
    }
}
