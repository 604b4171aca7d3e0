//! Requests, commands and completions, as C sees them.

use std::ffi::c_void;

use iofair_core::controller::{self, Dispatch};
use iofair_core::group::ClientId;
use iofair_core::request::{self, Flags, Operation};
use iofair_core::stats;
use iofair_core::unit::{SECTOR_BYTES, Sectors};

use crate::error::{Failure, IOFAIR_ERROR_RANGE};

/// Operation: read.
pub const IOFAIR_READ: u32 = 0;
/// Operation: write.
pub const IOFAIR_WRITE: u32 = 1;
/// Operation: make every write of this client that was completed durable. Offset and length are zero.
pub const IOFAIR_FLUSH: u32 = 2;
/// Operation: give the range back to the drive (trim).
pub const IOFAIR_DISCARD: u32 = 3;
/// Operation: write zeroes without carrying them.
pub const IOFAIR_WRITE_ZEROES: u32 = 4;

/// Flag: somebody waits for this write. Reads are always waited for.
pub const IOFAIR_FLAG_SYNC: u32 = 1;
/// Flag: the write is durable before it is completed (force unit access).
pub const IOFAIR_FLAG_FUA: u32 = 2;
/// Flag: file-system metadata.
pub const IOFAIR_FLAG_METADATA: u32 = 4;
/// Flag: never merge this request with a neighbour.
pub const IOFAIR_FLAG_NO_MERGE: u32 = 8;
/// Flag: read-ahead, nobody waits for it yet.
pub const IOFAIR_FLAG_READ_AHEAD: u32 = 16;
/// Flag: nothing follows that is worth waiting for.
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
    /// The caller's own; returned with parts and completions, never looked at.
    pub user: *mut c_void,
    /// From iofair_add_client.
    pub client: u64,
    /// First byte, a multiple of 512.
    pub offset: u64,
    /// Bytes, a multiple of 512; zero for a flush, and for nothing else.
    pub length: u64,
    /// IOFAIR_READ, ...
    pub operation: u32,
    /// IOFAIR_FLAG_... or 0.
    pub flags: u32,
}

/// A command for the drive: one request, several that were merged, or a piece of a long one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// What to complete it with. No later command of this engine has the same number.
    pub command: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes, merged requests included; zero for a flush.
    pub length: u64,
    /// IOFAIR_READ, ...
    pub operation: u32,
    /// IOFAIR_FLAG_... or 0.
    pub flags: u32,
}

/// A request that a command stands for, or what of the request lies in the command.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// As it was submitted.
    pub user: *mut c_void,
    /// Who submitted it.
    pub client: u64,
    /// First byte of the request in this command.
    pub offset: u64,
    /// Bytes of the request in this command.
    pub length: u64,
}

/// A completed request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// As it was submitted.
    pub user: *mut c_void,
    /// Who submitted it.
    pub client: u64,
    /// As it was submitted.
    pub offset: u64,
    /// As it was submitted.
    pub length: u64,
    /// When it was submitted, in the caller's nanoseconds.
    pub submitted_ns: u64,
    /// When the limits let it go.
    pub released_ns: u64,
    /// When it went to the drive.
    pub dispatched_ns: u64,
    /// When the drive completed it.
    pub completed_ns: u64,
    /// IOFAIR_READ, ...
    pub operation: u32,
    /// What iofair_complete was given: zero or the caller's error number. Of a request in pieces, the first error by offset.
    pub status: i32,
}

/// What passed for a client.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Reads completed.
    pub reads: u64,
    /// Writes, discards and writes of zeroes completed.
    pub writes: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
    /// Times from submission to completion of the reads, added up, nanoseconds.
    pub read_latency_ns: u64,
    /// The same of the writes.
    pub write_latency_ns: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Requests that were merged into others.
    pub merged: u64,
    /// Requests that are not completed.
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
    fn from(it: Dispatch) -> Self {
        let flags = FLAGS.iter().filter(|(_, flag)| it.flags.has(*flag)).map(|(bit, _)| bit).sum();
        Self {
            command: it.command.to_bits(),
            offset: it.start.bytes(),
            length: it.length.bytes(),
            operation: number(it.operation),
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
    pub(crate) fn new(it: &controller::Completion, client: u64) -> Self {
        Self {
            user: user(it.part.tag),
            client,
            offset: it.part.start.bytes(),
            length: it.part.length.bytes(),
            submitted_ns: it.part.submitted.0,
            released_ns: it.released.0,
            dispatched_ns: it.dispatched.0,
            completed_ns: it.completed.0,
            operation: number(it.operation),
            status: it.status,
        }
    }
}

impl Counters {
    pub(crate) fn new(it: &stats::counters::Counters, pending: u32) -> Self {
        let [reads, writes] = it.requests;
        let [read_bytes, written_bytes] = it.bytes;
        let [read_latency_ns, write_latency_ns] = it.latency.map(|latency| latency.0);
        let (flushes, merged, pending) = (it.flushes, it.merged, u64::from(pending));
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
