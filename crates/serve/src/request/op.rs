//! One client request on its way through the engine, and the table of all of them.
//!
//! A request that is longer than the drive's longest command is submitted in several pieces; the table
//! knows when the last of them was answered.

use std::ops::{Index, IndexMut};

use iofair_core::group::GroupId;
use iofair_core::request::{Operation, Part};
use iofair_core::time::Instant;
use iofair_core::unit::SECTOR_BYTES;
use slab::Slab;

use crate::request::buffer::{Data, Pool};
use crate::request::place::{Places, PlacesMut};

/// All requests on their way, by the tag that the controller knows, and the buffers they use.
#[derive(Debug, Default)]
pub struct Ops {
    live: Slab<Op>,
    /// Free buffers.
    pub pool: Pool,
}

impl Ops {
    /// Requests on their way.
    pub fn len(&self) -> usize {
        self.live.len()
    }
    /// Is none on its way?
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
    pub(crate) fn insert(&mut self, op: Op) -> usize {
        self.live.insert(op)
    }
    pub(crate) fn remove(&mut self, key: usize) -> Op {
        self.live.remove(key)
    }
    /// Moves a payload that was lent into a buffer of its own.
    pub(crate) fn keep(&mut self, key: usize) {
        let op = &mut self.live[key];
        if let Data::Lent(lent) = &op.data {
            let mut buffer = self.pool.take(lent.bytes().len());
            buffer.fill(0, lent.bytes());
            op.data = Data::Owned(buffer);
        }
    }
    /// Gives the buffer behind a request's data back.
    pub fn release(&mut self, data: Data) {
        let buffer = match data {
            Data::Owned(buffer) => Some(buffer),
            Data::Scattered(scattered) => scattered.into_parts().1,
            _ => None,
        };
        if let Some(buffer) = buffer {
            self.pool.give(buffer);
        }
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

/// Particulars of an operation that the controller need not know.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hints {
    /// Zeroes: may the space be given back?
    pub hole: bool,
    /// Zeroes: refuse rather than write them out.
    pub fast: bool,
    /// Read: nobody wants the data.
    pub prefetch: bool,
    /// Durable before the answer.
    pub fua: bool,
}

/// A request as a front end gives it.
#[derive(Debug)]
pub struct NewOp {
    /// The front end's name for who asks.
    pub owner: u64,
    /// The client's name for the request.
    pub cookie: u64,
    /// Key of the volume.
    pub volume: usize,
    /// What is asked.
    pub operation: Operation,
    /// How.
    pub hints: Hints,
    /// First byte in the volume.
    pub offset: u64,
    /// Bytes; zero for a flush.
    pub length: u32,
    /// A write's payload.
    pub data: Data,
}

/// A request on its way.
#[derive(Debug)]
pub struct Op {
    /// The front end's name for who asked.
    pub owner: u64,
    /// The client's name for the request.
    pub cookie: u64,
    /// Key of the volume.
    pub volume: usize,
    /// What is asked.
    pub operation: Operation,
    /// How.
    pub hints: Hints,
    /// First byte on the drive.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// Payload or result.
    pub data: Data,
    /// 0, or the error number of the first piece that failed.
    pub status: i32,
    /// The volume's group when it came in.
    pub(crate) group: GroupId,
    /// Pieces that were not answered yet.
    pub(crate) left: u32,
    /// Was it answered though a late command still uses its memory?
    pub(crate) abandoned: bool,
    /// When it came in.
    pub(crate) submitted: Instant,
}

/// A piece of a request's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First byte on the drive.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// First byte within the request.
    pub from: u64,
}

impl Op {
    /// The bytes of this request that a part of a command stands for: its sectors may begin before
    /// and end after what was asked.
    pub fn piece(&self, part: &Part) -> Piece {
        let start = part.start.bytes().max(self.offset);
        let end = (part.start + part.length).bytes().min(self.offset + u64::from(self.length));
        // A flush has no bytes, and its part no place.
        let end = end.max(start);
        Piece { offset: start, length: end - start, from: start - self.offset }
    }
    /// Where the bytes of a piece are, to be read.
    pub fn places(&self, piece: Piece) -> Places<'_> {
        self.data.places(piece.from as usize, piece.length as usize)
    }
    /// Where the bytes of a piece are, to be written.
    pub fn places_mut(&mut self, piece: Piece) -> PlacesMut<'_> {
        self.data.places_mut(piece.from as usize, piece.length as usize)
    }
    /// Does it begin and end on borders of `block` bytes?
    pub fn is_aligned(&self, block: u64) -> bool {
        (self.offset | u64::from(self.length)).is_multiple_of(block)
    }
    pub(crate) fn new(now: Instant, new: NewOp, offset: u64, left: u32) -> Self {
        let NewOp { owner, cookie, volume, operation, hints, length, data, .. } = new;
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
            group: GroupId::ROOT,
            left,
            abandoned: false,
            submitted,
        }
    }
    /// An answer for a request whose memory is still in use.
    pub(crate) fn answer_without_data(&self) -> Self {
        Self { data: Data::None, left: 0, ..*self }
    }
}

/// The sectors that cover a range of bytes: the first one and the one after the last.
pub(crate) fn sectors(offset: u64, length: u32) -> (u64, u64) {
    let end = offset + u64::from(length);
    (offset / SECTOR_BYTES, end.div_ceil(SECTOR_BYTES))
}
