//! Runs of requests, none of which was carried out.
//!
//! Reads, writes and flushes have a run each, since a drive may lose only one of them, and since a page cache takes writes that no
//! flush makes durable. One success ends a run.

use std::io;
use std::ops::Range;

use iofair_core::request::Operation;
use iofair_core::time::Instant;
use iofair_core::unit::Count;

use crate::request::op::Op;

/// Places after which a drive has failed: who reads a bad sector again and again knows of one.
const PLACES_MIN: usize = 8;
/// Bytes between two places; what is nearer may be the same defect.
const APART: u64 = 1 << 20;

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
    /// What happens, with the time of the first failure in words.
    pub fn text(&self, since: &str) -> String {
        let Self { requests, count, status, .. } = self;
        let error = io::Error::from_raw_os_error(*status);
        format!("every {requests} since {since} has failed ({}): {error}", Count(*count, "request"))
    }
}

/// A run, and the first places of a volume's key and its bytes at which requests failed; a flush has one in each volume.
#[derive(Debug)]
struct Run {
    failing: Failing,
    places: Vec<(usize, Range<u64>)>,
}

impl Run {
    /// Whether it is more than a few bad sectors.
    fn is_certain(&self) -> bool {
        const GONE: [i32; 4] = [libc::ENODEV, libc::ENXIO, libc::ENOMEDIUM, libc::ESHUTDOWN];
        GONE.contains(&self.failing.status) || self.places.len() >= PLACES_MIN
    }
    fn failed(&mut self, op: &Op) {
        (self.failing.count, self.failing.status) = (self.failing.count + 1, op.status);
        let bytes = op.offset..op.offset + u64::from(op.length);
        let is_near = |(volume, other): &(usize, Range<u64>)| {
            let before = |one: &Range<u64>, two: &Range<u64>| one.end + APART <= two.start;
            *volume == op.volume && !before(other, &bytes) && !before(&bytes, other)
        };
        if self.places.len() < PLACES_MIN && !self.places.iter().any(is_near) {
            self.places.push((op.volume, bytes));
        }
    }
}

/// The runs of a volume or of a drive.
#[derive(Default, Debug)]
pub(super) struct Runs([Option<Run>; 3]);

impl Runs {
    /// The longest one.
    pub(super) fn longest(&self) -> Option<Failing> {
        self.0.iter().flatten().map(|run| run.failing).max_by_key(|run| run.count)
    }
    /// The longest one that is more than a few bad sectors; any, if the drive is `lost`.
    pub(super) fn certain(&self, lost: bool) -> Option<Failing> {
        let certain = self.0.iter().flatten().filter(|run| lost || run.is_certain());
        certain.map(|run| run.failing).max_by_key(|run| run.count)
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
        let run = &mut self.0[index];
        let was_certain = run.as_ref().is_some_and(Run::is_certain);
        if op.status == 0 {
            *run = None;
            return was_certain.then_some(false);
        }
        if !is_of_drive(op.status) {
            return None;
        }
        let failing = Failing { requests, since: now, count: 0, status: op.status };
        let run = run.get_or_insert_with(|| Run { failing, places: Vec::new() });
        run.failed(op);
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
