//! Runs of requests, none of which was carried out.
//!
//! Reads, writes and flushes have a run each, since a drive may lose only one of them, and since a page cache takes writes that no
//! flush makes durable. One success ends a run.

use std::io;

use iofair_core::request::Operation;
use iofair_core::time::Instant;
use iofair_core::unit::Count;

use crate::request::op::Op;

/// Requests after which a drive has failed: fewer may have met the same bad sectors.
const FAILED_MIN: u64 = 32;

/// A run of failed requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failing {
    /// `read`, `write` or `flush`.
    pub requests: &'static str,
    /// When the first one failed.
    pub since: Instant,
    /// How many have failed.
    pub count: u64,
    /// The last error number.
    pub status: i32,
}

impl Failing {
    /// Whether it is more than a few bad sectors.
    pub(super) fn is_certain(&self) -> bool {
        let is_gone = matches!(self.status, libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM);
        is_gone || self.count >= FAILED_MIN
    }
    /// What happens, with the time of the first failure in words.
    pub fn text(&self, since: &str) -> String {
        let Self { requests, count, status, .. } = self;
        let error = io::Error::from_raw_os_error(*status);
        format!("every {requests} since {since} has failed ({}): {error}", Count(*count, "request"))
    }
}

/// The runs of a volume or of a drive.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Runs([Option<Failing>; 3]);

impl Runs {
    /// The longest one.
    pub(super) fn longest(&self) -> Option<Failing> {
        self.0.iter().flatten().max_by_key(|run| run.count).copied()
    }
    /// A request has ended. Returns whether that has made it certain that the drive fails, or that it does not any more.
    pub(super) fn ended(&mut self, now: Instant, op: &Op) -> Option<bool> {
        let (index, requests) = match op.operation {
            _ if op.asks_status() => return None,
            Operation::Read => (0, "read"),
            Operation::Write | Operation::WriteZeroes => (1, "write"),
            Operation::Flush => (2, "flush"),
            // Advice: a drive may ignore it, whatever its state.
            Operation::Discard => return None,
        };
        let before = self.0[index];
        let was_certain = before.is_some_and(|run| run.is_certain());
        if op.status == 0 {
            self.0[index] = None;
            return was_certain.then_some(false);
        }
        if !is_of_drive(op.status) {
            return None;
        }
        let (since, count) = before.map_or((now, 0), |run| (run.since, run.count));
        let run = Failing { requests, since, count: count + 1, status: op.status };
        self.0[index] = Some(run);
        (run.is_certain() && !was_certain).then_some(true)
    }
}

/// Whether an error is the drive's: not that of a request, of a client's memory or of a full file system.
const fn is_of_drive(status: i32) -> bool {
    !matches!(
        status,
        libc::ENOSPC
            | libc::EDQUOT
            | libc::EFBIG
            | libc::EINVAL
            | libc::EOPNOTSUPP
            | libc::EPERM
            | libc::EFAULT
            | libc::ENOMEM
    )
}
