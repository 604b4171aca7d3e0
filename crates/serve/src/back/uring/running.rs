//! A command in the ring: its memory, the rest of its work, and its next step.
//!
//! A block device trims and zeroes whole sectors only. Of an unaligned trim, the sectors that it covers in part keep their data. Of
//! unaligned zeroes, those sectors are written through the page cache, like any other unaligned write.

use std::ops::Range;

use iofair_core::id::RequestId;
use iofair_core::request::Operation;

use crate::request::buffer::ALIGN;
use crate::request::op::{Op, Piece};

/// Pieces that one entry may have (the kernel's IOV_MAX).
const PIECES_MAX: usize = 1024;
/// Times that the kernel may say "try again" in a row.
const AGAIN_MAX: u32 = 1000;
/// Bytes of zeroes that are written from again and again.
const ZEROES: usize = 64 << 10;

/// A piece of zeroes on a page border.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(super) struct Zeroes([u8; ZEROES]);

const _: () = assert!(align_of::<Zeroes>() == ALIGN);

impl Default for Zeroes {
    fn default() -> Self {
        Self([0; ZEROES])
    }
}

/// What the command's entry on the ring does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Reads or writes.
    Data,
    /// Punches a hole or makes zeroes.
    Allocate,
    /// Writes zeroes, because the file system cannot make them.
    Zeroes,
    /// Makes durable.
    Sync,
    /// A durable write failed: makes older writes durable, through the other descriptor.
    SyncOthers,
}

/// The next step after the kernel has completed an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Another entry.
    Again,
    /// The command is over, with this status.
    Done(i32),
}

/// One command.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: RequestId,
    pub(super) operation: Operation,
    pub(super) step: Step,
    /// The slot of its file.
    pub(super) file: usize,
    pub(super) fua: bool,
    /// May go past the page cache.
    pub(super) aligned: bool,
    /// It writes into a file that nobody is known to have cut.
    pub(super) whole: bool,
    /// Whether zeroes may be a hole, and whether they must be fast.
    hole: bool,
    pub(super) fast: bool,
    /// The next byte on the drive, and how many are left.
    pub(super) offset: u64,
    pub(super) left: u64,
    /// Zeroes: what is written after that, because the drive zeroes whole sectors only.
    edges: [Range<u64>; 2],
    pieces: Vec<libc::iovec>,
    /// The first piece with bytes left.
    first: usize,
    /// The requests in it (keys of `Ops`), each with its first piece.
    requests: Vec<(usize, usize)>,
    /// Some memory was not there: one piece an entry from now on.
    careful: bool,
    again: u32,
    /// The error of a durable write.
    failed: i32,
}

// SAFETY: the pieces point into buffers of requests that stay until this command is over.
unsafe impl Send for Running {}

impl Default for Running {
    fn default() -> Self {
        Self {
            id: RequestId(0),
            operation: Operation::Flush,
            step: Step::Sync,
            file: 0,
            fua: false,
            aligned: true,
            whole: false,
            hole: false,
            fast: false,
            offset: 0,
            left: 0,
            edges: [0..0, 0..0],
            pieces: Vec::new(),
            first: 0,
            requests: Vec::new(),
            careful: false,
            again: 0,
            failed: 0,
        }
    }
}

impl Running {
    pub(super) fn reset(&mut self, id: RequestId, operation: Operation) {
        let (pieces, requests) =
            (std::mem::take(&mut self.pieces), std::mem::take(&mut self.requests));
        *self = Self { id, operation, pieces, requests, ..Self::default() };
        self.pieces.clear();
        self.requests.clear();
    }
    /// Appends a piece of a request; it follows the one before.
    pub(super) fn add(&mut self, op: &Op, piece: Piece, block: u64) {
        if self.operation == Operation::Flush {
            return;
        }
        if self.left == 0 {
            self.offset = piece.offset;
        }
        self.left += u64::from(piece.length);
        self.fua |= op.hints.fua;
        self.hole = op.hints.hole || self.hole && self.operation == Operation::Discard;
        self.fast = op.hints.fast;
        self.aligned &= (piece.offset | u64::from(piece.length | piece.from)).is_multiple_of(block);
        if matches!(self.operation, Operation::Read | Operation::Write) {
            self.requests.push((piece.op, self.pieces.len()));
            self.pieces.extend(op.places(piece).map(|place| libc::iovec {
                iov_base: place.pointer().cast(),
                iov_len: place.len(),
            }));
        }
    }
    /// Whether it may leave a hole; a trim: whether it must.
    pub(super) fn is_hole(&self) -> bool {
        self.hole
    }
    /// Restricts a trim to whole sectors: what it covers of others may keep its data.
    pub(super) fn trim_to(&mut self, sector: u64) {
        let (start, end) = (self.offset, self.offset + self.left);
        let first = start.next_multiple_of(sector);
        (self.offset, self.left) = (first, (end / sector * sector).saturating_sub(first));
    }
    /// The first step of a trim or of zeroes on a drive whose sectors have this many bytes.
    pub(super) fn allocate(&mut self, sector: u64, zeroes: &Zeroes) {
        let (start, end) = (self.offset, self.offset + self.left);
        let (first, last) = (start.next_multiple_of(sector), end / sector * sector);
        if first >= last && start % sector + end % sector > 0 {
            return self.write_zeroes(start..end, zeroes);
        }
        self.step = Step::Allocate;
        (self.offset, self.left) = (first, last - first);
        self.edges = [start..first, last..end];
    }
    /// The pieces for the next entry.
    pub(super) fn rest(&mut self) -> (*const libc::iovec, u32) {
        let rest = &self.pieces[self.first..];
        let most = if self.careful { 1 } else { PIECES_MAX };
        (rest.as_ptr(), rest.len().min(most) as u32)
    }
    pub(super) fn allocation_mode(&self) -> i32 {
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        match self.operation {
            Operation::WriteZeroes if !self.hole => libc::FALLOC_FL_ZERO_RANGE | keep,
            _ => libc::FALLOC_FL_PUNCH_HOLE | keep,
        }
    }

    /// Whether it is of several requests. Then memory of one, which its owner took away, is no matter of the others.
    pub(super) fn is_shared(&self) -> bool {
        self.requests.len() > 1 && self.step == Step::Data
    }
    /// Some memory is not there. At first it only becomes careful; then the request is told whose memory that is, and
    /// the piece is left out.
    pub(super) fn on_fault(&mut self) -> (Option<usize>, Next) {
        if !std::mem::replace(&mut self.careful, true) {
            return (None, Next::Again);
        }
        let piece = self.first;
        let begun = self.requests.iter().rev().find(|(_, first)| *first <= piece);
        let (key, _) = *begun.expect("the first request begins with the first piece");
        (Some(key), self.advance(self.pieces[piece].iov_len as u64))
    }

    /// Whether an error of the present step means that writes were lost that are completed.
    pub(super) fn is_sync(&self) -> bool {
        matches!(self.step, Step::Sync | Step::SyncOthers)
    }
    /// Whether the kernel has read or written nothing: there is no more of the file.
    pub(super) fn is_at_end(&self, result: i32) -> bool {
        result == 0 && matches!(self.step, Step::Data | Step::Zeroes)
    }
    pub(super) fn on_result(&mut self, result: i32, zeroes: &Zeroes) -> Next {
        if matches!(-result, libc::EINTR | libc::EAGAIN) && self.again < AGAIN_MAX {
            self.again += 1;
            return Next::Again;
        }
        match self.step {
            Step::Data | Step::Zeroes if result > 0 => match self.advance(result as u64) {
                Next::Done(0) => self.next_edge(zeroes),
                next => next,
            },
            Step::Data | Step::Zeroes if self.fua && result < 0 => {
                (self.failed, self.step) = (-result, Step::SyncOthers);
                Next::Again
            }
            Step::SyncOthers => Next::Done(self.failed),
            // Somebody has cut the file.
            _ if self.is_at_end(result) => Next::Done(libc::EIO),
            Step::Allocate if result == -libc::EOPNOTSUPP => self.without_allocation(zeroes),
            Step::Allocate if result == 0 && self.fua => {
                self.step = Step::Sync;
                Next::Again
            }
            Step::Allocate | Step::Sync if result == 0 => self.next_edge(zeroes),
            _ => Next::Done(-result.min(0)),
        }
    }
    fn advance(&mut self, mut count: u64) -> Next {
        self.again = 0;
        self.offset += count;
        self.left -= count;
        if self.left == 0 {
            return Next::Done(0);
        }
        while count > 0 {
            let piece = &mut self.pieces[self.first];
            let step = count.min(piece.iov_len as u64);
            piece.iov_base = piece.iov_base.wrapping_byte_add(step as usize);
            piece.iov_len -= step as usize;
            count -= step;
            self.first += usize::from(piece.iov_len == 0);
        }
        Next::Again
    }
    /// The file system can neither punch holes nor make zeroes.
    fn without_allocation(&mut self, zeroes: &Zeroes) -> Next {
        if self.operation == Operation::Discard {
            // A trim is advice: leaving the data is allowed.
            return Next::Done(0);
        }
        if self.fast {
            return Next::Done(libc::EOPNOTSUPP);
        }
        self.write_zeroes(self.offset..self.offset + self.left, zeroes);
        Next::Again
    }
    /// A part is zeroed: the next sector that is zeroed in part only.
    fn next_edge(&mut self, zeroes: &Zeroes) -> Next {
        let Some(edge) = self.edges.iter_mut().find(|edge| !edge.is_empty()) else {
            return Next::Done(0);
        };
        let edge = std::mem::take(edge);
        self.write_zeroes(edge, zeroes);
        Next::Again
    }
    fn write_zeroes(&mut self, range: Range<u64>, zeroes: &Zeroes) {
        self.step = Step::Zeroes;
        (self.offset, self.left) = (range.start, range.end - range.start);
        (self.first, self.again) = (0, 0);
        self.pieces.clear();
        let mut left = self.left;
        while left > 0 {
            let length = left.min(ZEROES as u64);
            let iov_base = zeroes.0.as_ptr().cast_mut().cast();
            self.pieces.push(libc::iovec { iov_base, iov_len: length as usize });
            left -= length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a drive is asked to trim and zero whole sectors only; zeroes around them are written, and what a trim covers in part is
    /// left. Method: every pair of borders around two sectors; the ranges of all steps are counted.
    #[test]
    fn whole_sectors_are_allocated() {
        const SECTOR: u64 = 4096;
        let zeroes = Zeroes::default();
        let borders = [0, 1, 512, 4095, 4096, 4097, 8191, 8192, 12000, 12288];
        let pairs = borders.into_iter().flat_map(|start| borders.map(|end| (start, end)));
        for (start, end) in pairs.filter(|(start, end)| start < end) {
            let mut running = Running::default();
            running.reset(RequestId(0), Operation::WriteZeroes);
            (running.offset, running.left) = (start, end - start);
            running.allocate(SECTOR, &zeroes);
            let mut covered = Vec::new();
            loop {
                let (offset, length) = (running.offset, running.left);
                let is_allocated = running.step == Step::Allocate;
                assert!(!is_allocated || (offset | length).is_multiple_of(SECTOR), "{start}-{end}");
                covered.push(offset..offset + length);
                let result = if is_allocated { 0 } else { length as i32 };
                if running.on_result(result, &zeroes) == Next::Done(0) {
                    break;
                }
            }
            covered.sort_by_key(|range| range.start);
            let ends = covered.iter().fold(start, |at, range| {
                assert_eq!(range.start, at, "{start}-{end}: {covered:?}");
                range.end
            });
            assert_eq!(ends, end);
            (running.offset, running.left) = (start, end - start);
            running.trim_to(SECTOR);
            let inside = end / SECTOR * SECTOR >= start.next_multiple_of(SECTOR) + SECTOR;
            assert_eq!(running.left > 0, inside, "{start}-{end}");
            assert!((running.offset | running.left).is_multiple_of(SECTOR));
        }
    }
}
