//! A client's request in the engine, and the table of all requests in flight.
//!
//! The controller gets a request in *pieces*: a single one if the request is contiguous on the drive and no longer
//! than the drive's longest command. Of a longer request, the controller has only a few pieces at a time
//! ([`WINDOW`]), so its length does not matter for the room that it takes; the engine submits the next piece when one
//! completes.

use std::ops::{Index, IndexMut, Range};

use iofair_core::id::{GroupId, RequestId};
use iofair_core::request::{Flags, Operation, Part};
use iofair_core::stats::minimum::Passage;
use iofair_core::time::Instant;
use iofair_core::unit::{SECTOR_BYTES, Sectors};
use slab::Slab;

use crate::request::buffer::Pool;
use crate::request::data::Data;
use crate::request::place::{Places, PlacesMut};

/// Pieces of one request with data that the controller may have together.
pub(crate) const WINDOW: u32 = 4;
/// No request.
pub(crate) const NIL: u32 = u32::MAX;

/// All requests in flight with their pieces, and their buffers.
#[derive(Debug, Default)]
pub struct Ops {
    live: Slab<Op>,
    /// By owner: its newest request; the others follow by [`Op::older`].
    newest: Vec<u32>,
    /// By the tag that the controller knows.
    pieces: Slab<Piece>,
    /// Free buffers.
    pub pool: Pool,
}

impl Ops {
    /// Number of requests in flight.
    pub fn len(&self) -> usize {
        self.live.len()
    }
    /// Whether no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
    pub(crate) fn insert(&mut self, mut op: Op) -> usize {
        let owner = op.owner as usize;
        if owner >= self.newest.len() {
            self.newest.resize(owner + 1, NIL);
        }
        op.older = self.newest[owner];
        let key = self.live.insert(op);
        self.newest[owner] = key as u32;
        if let Some(older) = self.live.get(key).map(|op| op.older).filter(|older| *older != NIL) {
            self.live[older as usize].newer = key as u32;
        }
        key
    }
    pub(crate) fn remove(&mut self, key: usize) -> Op {
        let op = self.live.remove(key);
        match op.newer {
            NIL => self.newest[op.owner as usize] = op.older,
            newer => self.live[newer as usize].older = op.older,
        }
        if op.older != NIL {
            self.live[op.older as usize].newer = op.newer;
        }
        op
    }
    /// The requests of an owner.
    pub(crate) fn of_owner(&self, owner: u64) -> impl Iterator<Item = (usize, &Op)> {
        let mut next = self.newest.get(owner as usize).copied().unwrap_or(NIL);
        std::iter::from_fn(move || {
            let key = next as usize;
            let op = self.live.get(key).filter(|_| next != NIL)?;
            next = op.older;
            Some((key, op))
        })
    }
    /// The controller's name of a piece.
    pub(crate) fn set_request(&mut self, tag: u64, id: RequestId) {
        self.pieces[tag as usize].request = id;
    }
    /// The controller's name of a piece that it has.
    pub(crate) fn request(&self, tag: u64) -> Option<RequestId> {
        let piece = &self.pieces[tag as usize];
        (!piece.complete).then_some(piece.request)
    }
    /// Whether the request of a piece was cancelled.
    pub(crate) fn is_cancelled(&self, tag: u64) -> bool {
        self.live[self.pieces[tag as usize].op].cancelled
    }
    /// The piece of a request that a part of a command carries.
    pub fn piece(&self, part: &Part) -> Piece {
        self.pieces[part.tag as usize].within(part)
    }
    /// The key of the request that a piece belongs to.
    pub(crate) fn op_of(&self, tag: u64) -> usize {
        self.pieces[tag as usize].op
    }
    /// The block-status request of a command, if it is one: these are never merged.
    pub fn question(&self, parts: &[Part]) -> Option<Question> {
        let [part] = parts else { return None };
        let Piece { op, offset, length, .. } = self.pieces[part.tag as usize];
        let limit = self.live[op].hints.extents as usize;
        let length = u64::from(length);
        (limit > 0).then_some(Question { op, offset, length, limit })
    }
    /// A command uses a piece's memory from now on.
    pub(crate) fn use_piece(&mut self, tag: u64) {
        self.pieces[tag as usize].commands += 1;
    }
    /// The back end has completed a command that used a piece; returns whether the piece is complete.
    pub(crate) fn command_done(&mut self, tag: u64, status: i32) -> bool {
        let piece = &mut self.pieces[tag as usize];
        piece.commands -= 1;
        if piece.status == 0 {
            piece.status = status;
        }
        piece.complete && piece.commands == 0
    }
    /// A piece failed without a command.
    pub(crate) fn fail_piece(&mut self, tag: u64, status: i32) {
        self.pieces[tag as usize].status = status;
    }
    /// The controller has completed a piece. Is it done? It is not while a late command uses it.
    pub(crate) fn complete_piece(&mut self, tag: u64) -> bool {
        let piece = &mut self.pieces[tag as usize];
        piece.complete = true;
        piece.commands == 0
    }
    /// Cuts the next piece off a request: `length` bytes that begin on the drive at `offset`. Returns its tag.
    pub(crate) fn cut(&mut self, key: usize, offset: u64, length: u32) -> u64 {
        let op = &mut self.live[key];
        let tag = self.pieces.insert(Piece { offset, length, from: op.cut, ..Piece::new(key) });
        op.pieces[op.left as usize] = tag as u32;
        // A block status covers its first piece only.
        op.cut = if op.hints.extents > 0 { op.length } else { op.cut + length };
        op.left += 1;
        tag as u64
    }
    /// The piece with this tag is completed.
    pub(crate) fn end_piece(&mut self, tag: u64) -> Piece {
        let piece = self.pieces.remove(tag as usize);
        let op = &mut self.live[piece.op];
        let last = op.left as usize - 1;
        let place = op.pieces[..last].iter().position(|other| u64::from(*other) == tag);
        op.pieces.swap(place.unwrap_or(last), last);
        op.left -= 1;
        piece
    }
    /// The piece with this tag, if there is one, has passed the ceilings. Returns its request.
    pub(crate) fn pass_piece(&mut self, tag: u64) -> Option<&mut Op> {
        let piece = self.pieces.get_mut(tag as usize)?;
        let is_first = !std::mem::replace(&mut piece.passed, true);
        is_first.then(|| &mut self.live[piece.op])
    }
    /// Fences the pieces of a request that are in flight, and calls `each` with each of them.
    pub(crate) fn fence(&mut self, key: usize, mut each: impl FnMut(Range<u64>)) {
        let op = &self.live[key];
        for tag in &op.pieces[..op.left as usize] {
            let piece = &mut self.pieces[*tag as usize];
            piece.fenced = true;
            each(piece.range());
        }
    }
    /// All requests in flight.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Op> {
        self.live.iter_mut().map(|(_, op)| op)
    }
    /// Copies a payload that was lent into a buffer.
    pub(crate) fn keep(&mut self, key: usize) {
        let op = &mut self.live[key];
        if let Data::Lent(lent) = &op.data {
            let mut buffer = self.pool.take(lent.bytes().len());
            buffer.fill(0, lent.bytes());
            op.data = Data::Owned(buffer);
        }
    }
    /// Returns the buffer of a request's data.
    pub fn release(&mut self, data: Data) {
        self.pool.release(data);
    }
    /// Scattered data of a request is read and written in one piece from now on.
    pub(crate) fn bounce(&mut self, key: usize) {
        let op = &mut self.live[key];
        if let Data::Scattered(scattered) = &mut op.data
            && !scattered.is_bounced()
        {
            let buffer = self.pool.take(op.length as usize);
            scattered.bounce(buffer, op.operation == Operation::Write);
        }
    }
}

impl Index<usize> for Ops {
    type Output = Op;
    fn index(&self, key: usize) -> &Op {
        &self.live[key]
    }
}
impl IndexMut<usize> for Ops {
    fn index_mut(&mut self, key: usize) -> &mut Op {
        &mut self.live[key]
    }
}

/// Details of an operation that the controller need not know.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hints {
    /// Zeroes: whether the space may be freed. A trim: whether what is trimmed must be zeroes, as a hole in a file is.
    pub hole: bool,
    /// Zeroes: refuse instead of writing them slowly.
    pub fast: bool,
    /// Read: the data is not needed (prefetch).
    pub prefetch: bool,
    /// Durable before its completion.
    pub fua: bool,
    /// Read: the number of extents to report at most, from the start of the range; zero for a read of data.
    pub extents: u16,
    /// A further part of what the client asked for in one call: ceilings on requests have counted the first.
    pub continues: bool,
}

/// A new request from a front end.
#[derive(Debug)]
pub struct NewOp {
    /// The front end's id of the client.
    pub owner: u64,
    /// The client's cookie.
    pub cookie: u64,
    /// Key of the volume.
    pub volume: usize,
    /// The operation.
    pub operation: Operation,
    /// Its details.
    pub hints: Hints,
    /// First byte in the volume.
    pub offset: u64,
    /// Length in bytes; zero for a flush.
    pub length: u32,
    /// A write's payload.
    pub data: Data,
}

impl NewOp {
    /// Bytes of memory that its data takes.
    pub(crate) fn payload(&self) -> usize {
        payload(self.operation, self.hints, self.length)
    }
}

fn payload(operation: Operation, hints: Hints, length: u32) -> usize {
    let carries = matches!(operation, Operation::Read | Operation::Write) && hints.extents == 0;
    if carries { length as usize } else { 0 }
}

/// A request in flight.
#[derive(Debug)]
pub struct Op {
    /// The front end's id of the client.
    pub owner: u64,
    /// The client's cookie.
    pub cookie: u64,
    /// Key of the volume.
    pub volume: usize,
    /// The operation.
    pub operation: Operation,
    /// Its details.
    pub hints: Hints,
    /// First byte in the volume.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// Payload or result.
    pub data: Data,
    /// 0, or the error number of the first piece that failed.
    pub status: i32,
    /// Its first byte on the drive, if the others follow there.
    pub(crate) drive: Option<u64>,
    /// The volume's group when it came in.
    pub(crate) group: GroupId,
    /// How the controller sees its pieces.
    pub(crate) flags: Flags,
    /// Bytes that were cut into pieces.
    pub(crate) cut: u32,
    /// Pieces that were not completed yet, and their tags: the first this many of these.
    pub(crate) left: u32,
    pub(crate) pieces: [u32; WINDOW as usize],
    /// Which minimums count it.
    pub(crate) passage: Passage,
    /// Whether it was completed though a late command still uses its memory.
    pub(crate) abandoned: bool,
    /// Whether it was cancelled: its client does not wait for it any more.
    pub(crate) cancelled: bool,
    /// Whether it waits to be handed to its owner.
    pub(crate) finished: bool,
    /// The other requests of its owner.
    pub(crate) older: u32,
    pub(crate) newer: u32,
    /// When it came in.
    pub(crate) submitted: Instant,
    /// Its ticket in a recording; 0: it is in none.
    pub(crate) recorded: u64,
}

/// A piece of a request: contiguous bytes on the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The request's key in [`Ops`].
    pub op: usize,
    /// First byte on the drive. The sectors of the command may begin before it and end after the last byte.
    pub offset: u64,
    /// Length in bytes; zero for a flush.
    pub length: u32,
    /// First byte within the request.
    pub from: u32,
    /// Its request was completed with an error while it was in flight, and it may still be written.
    pub(crate) fenced: bool,
    /// Whether it has passed the ceilings.
    pub(crate) passed: bool,
    /// The controller's name of it.
    request: RequestId,
    /// Commands of the back end that use its memory.
    commands: u32,
    /// Whether the controller has completed it.
    complete: bool,
    /// The first error of a command that used it.
    pub(crate) status: i32,
}

/// A block-status request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The request's key in [`Ops`].
    pub op: usize,
    /// First byte on the drive.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Largest number of extents in the result.
    pub limit: usize,
}

impl Piece {
    fn new(op: usize) -> Self {
        Self {
            op,
            offset: 0,
            length: 0,
            from: 0,
            fenced: false,
            passed: false,
            request: RequestId(NIL),
            commands: 0,
            complete: false,
            status: 0,
        }
    }
    /// What of it lies in a part's sectors.
    fn within(self, part: &Part) -> Self {
        if part.length == Sectors::ZERO {
            return self;
        }
        let start = self.offset.max(part.start.bytes());
        let end = self.range().end.min((part.start + part.length).bytes());
        let length = end.saturating_sub(start) as u32;
        Self { offset: start, length, from: self.from + (start - self.offset) as u32, ..self }
    }
    /// Its bytes on the drive.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.length)
    }
}

impl Op {
    /// The bytes of a piece, for reading.
    pub fn places(&self, piece: Piece) -> Places<'_> {
        self.data.places(piece.from as usize, piece.length as usize)
    }
    /// The bytes of a piece, for writing.
    pub(crate) fn places_mut(&mut self, piece: Piece) -> PlacesMut<'_> {
        self.data.places_mut(piece.from as usize, piece.length as usize)
    }
    /// Bytes of memory that its data takes.
    pub(crate) fn payload(&self) -> usize {
        payload(self.operation, self.hints, self.length)
    }
    /// Whether it is a block status.
    pub(crate) fn asks_status(&self) -> bool {
        self.hints.extents > 0
    }
    /// Whether there is something of it to cut.
    pub(crate) fn is_uncut(&self) -> bool {
        self.cut < self.length
    }
    pub(crate) fn new(now: Instant, new: NewOp, group: GroupId, flags: Flags) -> Self {
        let NewOp { owner, cookie, volume, operation, hints, offset, length, data } = new;
        let (status, submitted) = (0, now);
        Self {
            owner,
            cookie,
            volume,
            operation,
            hints,
            offset,
            length,
            data,
            status,
            drive: None,
            group,
            flags,
            cut: 0,
            left: 0,
            pieces: [0; WINDOW as usize],
            passage: Passage::default(),
            abandoned: false,
            cancelled: false,
            finished: false,
            older: NIL,
            newer: NIL,
            submitted,
            recorded: 0,
        }
    }
    /// A completion for a request whose memory is still in use.
    pub(crate) fn completion_without_data(&self) -> Self {
        Self { data: Data::None, left: 0, ..*self }
    }
}

/// The sectors that cover a range of bytes: the first one, and how many.
pub(crate) fn sectors(offset: u64, length: u32) -> (Sectors, Sectors) {
    let (first, end) = (offset / SECTOR_BYTES, (offset + u64::from(length)).div_ceil(SECTOR_BYTES));
    (Sectors(first), Sectors(end - first))
}
