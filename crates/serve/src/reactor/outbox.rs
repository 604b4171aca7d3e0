//! What a connection has to send: replies of a whole turn leave in one call, headers and data side by
//! side, data from where it lies.

use std::io;
use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

use crate::buffer::Data;
use crate::engine::op::Ops;

/// Pieces that one call may have (the kernel's IOV_MAX).
const PIECES_MAX: usize = 1024;

#[derive(Debug)]
enum Segment {
    /// A range of `heads`.
    Head { from: usize, to: usize },
    /// A read's data.
    Data(Data, usize),
}

/// Replies in order.
#[derive(Debug, Default)]
struct Batch {
    heads: Vec<u8>,
    segments: Vec<Segment>,
    /// Where the head that is being written began.
    mark: usize,
}

impl Batch {
    fn close_head(&mut self) {
        if self.mark < self.heads.len() {
            self.segments.push(Segment::Head { from: self.mark, to: self.heads.len() });
            self.mark = self.heads.len();
        }
    }
}

/// How sending went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// Everything is out.
    All,
    /// The socket takes no more now; the ring goes on.
    Blocked,
}

/// A connection's replies: those being written, and those on their way into the socket.
pub(super) struct Outbox {
    filling: Batch,
    flying: Batch,
    iovecs: Vec<libc::iovec>,
    /// The first piece that is not out yet.
    next: usize,
    header: Box<libc::msghdr>,
    /// Bytes that are not out yet, without the heads that are being written.
    unsent: usize,
}

// SAFETY: the pointers in `iovecs` and `header` lead into the outbox's own batches.
unsafe impl Send for Outbox {}

impl Outbox {
    pub(super) fn new() -> Self {
        // SAFETY: all zeroes is a valid, empty message header.
        let header = Box::new(unsafe { std::mem::zeroed() });
        Self {
            filling: Batch::default(),
            flying: Batch::default(),
            iovecs: Vec::new(),
            next: 0,
            header,
            unsent: 0,
        }
    }
    /// Where replies are written.
    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.filling.heads
    }
    /// Appends a read's data after what was written.
    pub(super) fn push(&mut self, data: Data, length: usize) {
        self.filling.close_head();
        self.filling.segments.push(Segment::Data(data, length));
        self.unsent += length;
    }
    /// Bytes that wait.
    pub(super) fn unsent(&self) -> usize {
        self.unsent + self.filling.heads.len()
    }
    /// Is everything out?
    pub(super) fn is_empty(&self) -> bool {
        !self.is_flying() && self.filling.segments.is_empty() && self.filling.heads.is_empty()
    }
    /// Is something under way that the ring will answer?
    pub(super) fn is_flying(&self) -> bool {
        self.next < self.iovecs.len()
    }

    /// Sends what was written, as far as the socket takes it. Not while the ring is at it.
    pub(super) fn send(&mut self, socket: RawFd, ops: &mut Ops) -> io::Result<Sent> {
        assert!(!self.is_flying(), "two sends on one socket");
        self.filling.close_head();
        std::mem::swap(&mut self.filling, &mut self.flying);
        let heads = self.flying.heads.as_ptr();
        for segment in &self.flying.segments {
            let (base, length) = match segment {
                Segment::Head { from, to } => {
                    self.unsent += to - from;
                    (heads.wrapping_add(*from), to - from)
                }
                Segment::Data(Data::Owned(buffer), length) => {
                    (buffer.pointer().cast_const(), *length)
                }
                Segment::Data(Data::Stored(span) | Data::Lent(span), length) => {
                    (span.pointer(), *length)
                }
                Segment::Data(Data::None, _) => continue,
            };
            self.iovecs.push(libc::iovec { iov_base: base.cast_mut().cast(), iov_len: length });
        }
        self.go_on(socket, ops)
    }
    fn go_on(&mut self, socket: RawFd, ops: &mut Ops) -> io::Result<Sent> {
        while self.is_flying() {
            self.aim();
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the header leads to pieces of this outbox that stay until they are out.
            let sent = unsafe { libc::sendmsg(socket, &raw const *self.header, flags) };
            if sent < 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => return Ok(Sent::Blocked),
                    _ => return Err(error),
                }
            }
            self.advance(sent as usize, ops);
        }
        Ok(Sent::All)
    }
    fn aim(&mut self) {
        let rest = &mut self.iovecs[self.next..];
        self.header.msg_iov = rest.as_mut_ptr();
        self.header.msg_iovlen = rest.len().min(PIECES_MAX) as _;
    }
    /// An entry that sends the rest as soon as the socket takes it.
    pub(super) fn entry(&mut self, socket: RawFd) -> squeue::Entry {
        self.aim();
        opcode::SendMsg::new(types::Fd(socket), &raw const *self.header)
            .flags(libc::MSG_NOSIGNAL as u32)
            .build()
    }
    /// So many bytes went out.
    fn advance(&mut self, mut sent: usize, ops: &mut Ops) {
        self.unsent -= sent;
        while sent > 0 {
            let piece = &mut self.iovecs[self.next];
            let step = sent.min(piece.iov_len);
            piece.iov_base = piece.iov_base.wrapping_byte_add(step);
            piece.iov_len -= step;
            sent -= step;
            if piece.iov_len == 0 {
                self.next += 1;
            }
        }
        if !self.is_flying() {
            self.clear_flying(ops);
        }
    }
    /// The ring sent so many bytes; goes on with the rest.
    pub(super) fn on_sent(
        &mut self,
        sent: usize,
        socket: RawFd,
        ops: &mut Ops,
    ) -> io::Result<Sent> {
        self.advance(sent, ops);
        self.go_on(socket, ops)
    }
    fn clear_flying(&mut self, ops: &mut Ops) {
        self.iovecs.clear();
        self.next = 0;
        release(&mut self.flying, ops);
    }
    /// The connection is gone: nothing of this will be sent.
    pub(super) fn discard(&mut self, ops: &mut Ops) {
        self.clear_flying(ops);
        release(&mut self.filling, ops);
        self.unsent = 0;
    }
}

fn release(batch: &mut Batch, ops: &mut Ops) {
    for segment in batch.segments.drain(..) {
        if let Segment::Data(data, _) = segment {
            ops.release(data);
        }
    }
    batch.heads.clear();
    batch.mark = 0;
}
