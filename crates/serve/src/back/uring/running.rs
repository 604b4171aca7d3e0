//! A command in the ring: its memory, the rest of its work, and its next step.

use iofair_core::request::{Operation, RequestId};

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
    /// Whether zeroes may be a hole, and whether they must be fast.
    hole: bool,
    fast: bool,
    /// The next byte on the drive, and how many are left.
    pub(super) offset: u64,
    pub(super) left: u64,
    pieces: Vec<libc::iovec>,
    /// The first piece with bytes left.
    first: usize,
    /// The requests in it (keys of `Ops`), each with its first piece.
    requests: Vec<(usize, usize)>,
    /// Some memory was not there: one piece an entry from now on.
    careful: bool,
    again: u32,
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
            hole: false,
            fast: false,
            offset: 0,
            left: 0,
            pieces: Vec::new(),
            first: 0,
            requests: Vec::new(),
            careful: false,
            again: 0,
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
        (self.hole, self.fast) = (op.hints.hole, op.hints.fast);
        self.aligned &= (piece.offset | u64::from(piece.length | piece.from)).is_multiple_of(block);
        if matches!(self.operation, Operation::Read | Operation::Write) {
            self.requests.push((piece.op, self.pieces.len()));
            self.pieces.extend(op.places(piece).map(|place| libc::iovec {
                iov_base: place.pointer().cast(),
                iov_len: place.len(),
            }));
        }
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

    pub(super) fn on_result(&mut self, result: i32, zeroes: &Zeroes) -> Next {
        if matches!(-result, libc::EINTR | libc::EAGAIN) && self.again < AGAIN_MAX {
            self.again += 1;
            return Next::Again;
        }
        match self.step {
            Step::Data | Step::Zeroes if result > 0 => self.advance(result as u64),
            // A pool that somebody else has cut short.
            Step::Data | Step::Zeroes if result == 0 => Next::Done(libc::EIO),
            Step::Allocate if result == -libc::EOPNOTSUPP => self.without_allocation(zeroes),
            Step::Allocate if result == 0 && self.fua => {
                self.step = Step::Sync;
                Next::Again
            }
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
        self.step = Step::Zeroes;
        let mut left = self.left;
        while left > 0 {
            let length = left.min(ZEROES as u64);
            let iov_base = zeroes.0.as_ptr().cast_mut().cast();
            self.pieces.push(libc::iovec { iov_base, iov_len: length as usize });
            left -= length;
        }
        Next::Again
    }
}
