//! The output of a connection: all replies of a turn are sent in one call, headers and data from where they are,
//! without copying. With TLS they are encrypted first, up to [`SEALED_MAX`] at a time.

use std::io;
use std::os::fd::RawFd;

use io_uring::{opcode, types};

use crate::front::tls::{Channel, RECORD_MAX};
use crate::request::buffer::Pool;
use crate::request::data::Data;
use crate::request::entry::Entry;

/// Ciphertext that is made ahead of the socket.
const SEALED_MAX: usize = 256 << 10;
/// Bytes that are handed to the socket at one visit, whatever it takes; the ring goes on with the rest.
const SEND_MAX: usize = 1 << 20;
/// Pieces that one call may have (the kernel's IOV_MAX).
const PIECES_MAX: usize = 1024;

#[derive(Debug)]
enum Segment {
    /// A range of `heads`.
    Head { from: usize, to: usize },
    /// A read's data.
    Data(Data, usize),
}

impl Segment {
    fn len(&self) -> usize {
        match self {
            Self::Head { from, to } => to - from,
            // No reply is made of a guest's own memory.
            Self::Data(data, length) => data.place(*length).map_or(0, |place| place.len()),
        }
    }
    /// Its bytes, unless somebody else may write them meanwhile.
    fn bytes<'a>(&'a self, heads: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Head { from, to } => Some(&heads[*from..*to]),
            Self::Data(data, length) => data.bytes(*length),
        }
    }
    /// Appends a part of data.
    fn copy(&self, from: usize, length: usize, to: &mut Vec<u8>) {
        let Self::Data(data, _) = self else { return };
        for place in data.places(from, length) {
            let at = to.len();
            to.resize(at + place.len(), 0);
            place.read(&mut to[at..]);
        }
    }
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
    fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.heads.is_empty()
    }
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

/// A connection's replies: those being written, and those in flight into the socket.
pub(super) struct Outbox {
    filling: Batch,
    /// Under TLS: what is being encrypted, and how far that is.
    sealing: Batch,
    sealed_to: (usize, usize),
    /// Under TLS: what goes before it, from TLS itself.
    sealed: Vec<u8>,
    /// Under TLS: plaintext of a record that is put together from small pieces.
    record: Vec<u8>,
    flying: Batch,
    iovecs: Vec<libc::iovec>,
    /// The first piece that is not out yet.
    next: usize,
    header: Box<libc::msghdr>,
    /// Bytes that are not out yet, without the heads that are being written.
    unsent: usize,
    /// Bytes that went out at this visit.
    sent: usize,
}

// SAFETY: the pointers in `iovecs` and `header` lead into the outbox's own batches, which move with it on the heap.
unsafe impl Send for Outbox {}

impl Outbox {
    pub(super) fn new() -> Self {
        // SAFETY: all zeroes is a valid, empty message header.
        let header = Box::new(unsafe { std::mem::zeroed() });
        Self {
            filling: Batch::default(),
            sealing: Batch::default(),
            sealed_to: (0, 0),
            sealed: Vec::new(),
            record: Vec::new(),
            flying: Batch::default(),
            iovecs: Vec::new(),
            next: 0,
            header,
            unsent: 0,
            sent: 0,
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
        self.unsent + self.filling.heads.len() + self.sealing.heads.len() + self.sealed.len()
    }
    /// Whether everything has been sent.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_flying()
            && self.filling.is_empty()
            && self.sealing.is_empty()
            && self.sealed.is_empty()
    }
    /// Whether a ring entry of it is in flight.
    pub(super) fn is_flying(&self) -> bool {
        self.next < self.iovecs.len()
    }

    /// Where TLS itself writes what it has to say.
    pub(super) fn sealed(&mut self) -> &mut Vec<u8> {
        &mut self.sealed
    }
    /// From now on everything is encrypted, but not what was written so far.
    pub(super) fn start_tls(&mut self) {
        assert!(self.filling.segments.is_empty(), "no data before the handshake is over");
        self.sealed.append(&mut self.filling.heads);
    }

    /// Sends what was written, as far as the socket takes it. Not while the ring is at it.
    pub(super) fn send(
        &mut self,
        socket: RawFd,
        mut channel: Option<&mut Channel>,
        buffers: &mut Pool,
    ) -> io::Result<Sent> {
        assert!(!self.is_flying(), "two sends on one socket");
        self.sent = 0;
        loop {
            match &mut channel {
                None => std::mem::swap(&mut self.filling, &mut self.flying),
                Some(channel) => self.seal(channel, buffers).map_err(io::Error::other)?,
            }
            self.load();
            if !self.is_flying() {
                self.clear_flying(buffers);
                return Ok(Sent::All);
            }
            if self.go_on(socket, buffers)? == Sent::Blocked {
                return Ok(Sent::Blocked);
            }
            if self.is_empty() {
                return Ok(Sent::All);
            }
        }
    }
    /// Makes pieces of what is to fly.
    fn load(&mut self) {
        self.flying.close_head();
        let heads = self.flying.heads.as_ptr();
        for segment in &self.flying.segments {
            let (base, length) = match segment {
                Segment::Head { from, to } => {
                    self.unsent += to - from;
                    (heads.wrapping_add(*from), to - from)
                }
                // No reply is made of a guest's own memory.
                Segment::Data(data, length) => match data.place(*length) {
                    Some(place) => (place.pointer().cast_const(), place.len()),
                    None => continue,
                },
            };
            self.iovecs.push(libc::iovec { iov_base: base.cast_mut().cast(), iov_len: length });
        }
    }
    /// Encrypts what was written into what is to fly, up to a bound. What is encrypted is let go.
    fn seal(&mut self, channel: &mut Channel, buffers: &mut Pool) -> Result<(), rustls::Error> {
        self.flying.heads.append(&mut self.sealed);
        // Before the handshake is over there is nothing to say but what TLS says itself.
        if !channel.is_established() {
            return Ok(());
        }
        if self.sealing.is_empty() {
            self.filling.close_head();
            std::mem::swap(&mut self.filling, &mut self.sealing);
        }
        let out = &mut self.flying.heads;
        while self.sealed_to.0 < self.sealing.segments.len() && out.len() < SEALED_MAX {
            let (index, from) = self.sealed_to;
            let Batch { heads, segments, .. } = &mut self.sealing;
            let rest = segments[index].len() - from;
            let step = rest.min(RECORD_MAX - self.record.len());
            match segments[index].bytes(heads) {
                Some(bytes) if step == RECORD_MAX => channel.seal(&bytes[from..][..step], out)?,
                Some(bytes) => self.record.extend_from_slice(&bytes[from..][..step]),
                None => segments[index].copy(from, step, &mut self.record),
            }
            if self.record.len() == RECORD_MAX {
                channel.seal(&self.record, out)?;
                self.record.clear();
            }
            self.sealed_to = (index, from + step);
            if let Segment::Data(data, _) = &mut segments[index] {
                self.unsent -= step;
                if step == rest {
                    buffers.release(std::mem::take(data));
                }
            }
            if step == rest {
                self.sealed_to = (index + 1, 0);
            }
        }
        if !self.record.is_empty() {
            channel.seal(&self.record, out)?;
            self.record.clear();
        }
        if self.sealed_to.0 == self.sealing.segments.len() {
            self.sealed_to = (0, 0);
            release(&mut self.sealing, buffers);
        }
        Ok(())
    }
    fn go_on(&mut self, socket: RawFd, buffers: &mut Pool) -> io::Result<Sent> {
        while self.is_flying() {
            if self.sent >= SEND_MAX {
                return Ok(Sent::Blocked);
            }
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
            self.advance(sent as usize, buffers);
        }
        Ok(Sent::All)
    }
    fn aim(&mut self) {
        let rest = &mut self.iovecs[self.next..];
        self.header.msg_iov = rest.as_mut_ptr();
        self.header.msg_iovlen = rest.len().min(PIECES_MAX) as _;
    }
    /// An entry that sends the rest as soon as the socket takes it.
    pub(super) fn entry(&mut self, socket: RawFd) -> Entry {
        self.aim();
        let send = opcode::SendMsg::new(types::Fd(socket), &raw const *self.header);
        // SAFETY: the header is boxed; it, the pieces and the batch that they lead into stay as they are while this
        // `is_flying`, which only `on_sent` and `discard` end: the connection calls them when the entry is completed.
        unsafe { Entry::new(send.flags(libc::MSG_NOSIGNAL as u32).build()) }
    }
    /// This many bytes went out.
    fn advance(&mut self, mut sent: usize, buffers: &mut Pool) {
        self.sent += sent;
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
            self.clear_flying(buffers);
        }
    }
    /// The ring sent this many bytes; goes on with the rest of what flies.
    pub(super) fn on_sent(
        &mut self,
        sent: usize,
        socket: RawFd,
        buffers: &mut Pool,
    ) -> io::Result<Sent> {
        self.sent = 0;
        self.advance(sent, buffers);
        self.go_on(socket, buffers)
    }
    fn clear_flying(&mut self, buffers: &mut Pool) {
        self.iovecs.clear();
        self.next = 0;
        release(&mut self.flying, buffers);
    }
    /// The connection is gone: nothing of this will be sent.
    pub(super) fn discard(&mut self, buffers: &mut Pool) {
        self.clear_flying(buffers);
        release(&mut self.filling, buffers);
        release(&mut self.sealing, buffers);
        self.sealed.clear();
        self.sealed_to = (0, 0);
        self.unsent = 0;
    }
}

fn release(batch: &mut Batch, buffers: &mut Pool) {
    for segment in batch.segments.drain(..) {
        if let Segment::Data(data, _) = segment {
            buffers.release(data);
        }
    }
    batch.heads.clear();
    batch.mark = 0;
}
