//! Parses a chain of descriptors into a request (VIRTIO 1.2, 2.7.5 and 5.2.6), whatever the driver wrote there.
//!
//! A request is a header of 16 bytes, data, and a status byte at the very end; the driver divides it into descriptors
//! as it likes. Each descriptor is read once. If a malformed chain has a place for the status, the request fails; if
//! it has none, the result is a [`VringError`], and the queue stops.

use std::sync::Arc;

use iofair_core::request::Operation;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, GuestAddress, GuestMemoryBackend};

use super::Memory;
use super::config::{EMPTY_SECTORS_MAX, Facts, QUEUE_SIZE_MAX};
use super::memory::{self, Bytes};
use crate::front::nbd::wire::PAYLOAD_MAX;
use crate::request::data::Scattered;
use crate::request::shared::Span;

/// Longest chain, with indirect tables: no driver may make one that is longer than its queue.
const DESCRIPTORS_MAX: u16 = QUEUE_SIZE_MAX;
const DESCRIPTOR: u64 = size_of::<Descriptor>() as u64;
const HEADER: usize = 16;
const SECTOR: u64 = 512;
/// Places of one request: its descriptors, and borders of pieces of memory, of which there are few.
const PLACES_MAX: usize = 4 * DESCRIPTORS_MAX as usize;
/// Bytes of the longest request, with its header and its status.
const LONGEST: u64 = PAYLOAD_MAX as u64 + HEADER as u64 + 1;
/// Bytes of the name that a driver may request.
pub(crate) const ID_BYTES: usize = 20;

/// Kinds of requests.
mod kind {
    pub(super) const READ: u32 = 0;
    pub(super) const WRITE: u32 = 1;
    pub(super) const FLUSH: u32 = 4;
    pub(super) const GET_ID: u32 = 8;
    pub(super) const DISCARD: u32 = 11;
    pub(super) const WRITE_ZEROES: u32 = 13;
}

/// What the status byte says.
pub(crate) mod status {
    pub(crate) const OK: u8 = 0;
    pub(crate) const IO_ERROR: u8 = 1;
    pub(crate) const UNSUPPORTED: u8 = 2;
}

/// Why a queue cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum VringError {
    #[error("a descriptor outside of its table or of the memory")]
    Table,
    #[error("a chain of descriptors that does not end")]
    Endless,
    #[error("a bad indirect table")]
    Indirect,
    #[error("a readable descriptor after a writable one")]
    Order,
    #[error("a request without space for its status")]
    NoStatus,
    #[error("head {0} is in use or outside of the table")]
    Head(u16),
    #[error("rings with an invalid size, or outside the memory")]
    Rings,
    #[error("an index beyond the queue's length")]
    Index,
    #[error("an in-flight region that does not match the queue")]
    InFlight,
}

/// A table of descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) address: GuestAddress,
    pub(crate) size: u16,
}

/// What the engine is to do, within the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Command {
    pub(crate) operation: Operation,
    /// First byte in the volume.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u32,
    /// Of a write of zeroes, whether the space may be given back.
    pub(crate) hole: bool,
}

impl Command {
    /// Whether it has data.
    pub(crate) fn carries(&self) -> bool {
        matches!(self.operation, Operation::Read | Operation::Write)
    }
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// For the engine; data lies in the spans.
    Engine(Command),
    /// The volume's name, into the spans.
    Name,
    /// Nothing that can be done: only this status.
    Refuse(u8),
}

/// A request that can be completed.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) action: Action,
    /// Where its status goes: a byte of guest memory.
    pub(crate) status: GuestAddress,
    /// Where its data is.
    pub(crate) data: Scattered,
    /// Descriptors that were read, and pieces of memory that were found for them.
    pub(crate) work: u32,
}

/// The descriptors of a chain, one after the other.
struct Walk<'a> {
    memory: &'a Memory,
    table: Table,
    next: Option<u16>,
    left: u16,
    indirect: bool,
}

impl Walk<'_> {
    fn next(&mut self) -> Result<Option<Descriptor>, VringError> {
        while let Some(index) = self.next {
            if index >= self.table.size {
                return Err(VringError::Table);
            }
            self.left = self.left.checked_sub(1).ok_or(VringError::Endless)?;
            let at = self.table.address.checked_add(u64::from(index) * DESCRIPTOR);
            let at = at.ok_or(VringError::Table)?;
            let found = memory::descriptor(self.memory, at).ok_or(VringError::Table)?;
            if !found.refers_to_indirect_table() {
                self.next = found.has_next().then(|| found.next());
                return Ok(Some(found));
            }
            let count = u64::from(found.len()) / DESCRIPTOR;
            let whole = u64::from(found.len()).is_multiple_of(DESCRIPTOR);
            if self.indirect || found.has_next() || !whole || count > DESCRIPTORS_MAX.into() {
                return Err(VringError::Indirect);
            }
            self.indirect = true;
            self.table = Table { address: found.addr(), size: count as u16 };
            self.next = Some(0);
        }
        Ok(None)
    }
}

/// Bytes of a request that are read before its data is: its header, or the segment of a discard.
#[derive(Default)]
struct Head {
    bytes: [u8; HEADER],
    filled: usize,
}

impl Head {
    fn is_full(&self) -> bool {
        self.filled == HEADER
    }
    /// Copies what is missing from the beginning of `from`; returns how much that was.
    fn fill(&mut self, from: &Bytes<'_>) -> usize {
        let count = from.len().min(HEADER - self.filled);
        memory::read(from, &mut self.bytes[self.filled..][..count]);
        self.filled += count;
        count
    }
    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|i| self.bytes[at + i]))
    }
    fn long(&self, at: usize) -> u64 {
        u64::from(self.word(at + 4)) << 32 | u64::from(self.word(at))
    }
}

/// What a chain's descriptors bring together.
#[derive(Default)]
struct Gathered {
    header: Head,
    /// The first bytes of the data of a discard or of zeroes.
    segment: Head,
    spans: Vec<Span>,
    /// Bytes of data to be read and to be written, with the status.
    readable: u64,
    writable: u64,
    /// The last byte to be written, if it is in memory.
    status: Option<GuestAddress>,
    /// Some descriptor is not in memory.
    outside: bool,
    /// Pieces of memory that were found.
    found: u32,
    /// Its data is longer, or in more places, than that of any request; so the places are left out.
    long: bool,
}

impl Gathered {
    fn add(&mut self, memory: &Memory, descriptor: Descriptor) -> Result<(), VringError> {
        let (length, writable) = (descriptor.len() as usize, descriptor.is_write_only());
        if length == 0 {
            return Ok(());
        }
        if writable {
            self.writable += length as u64;
            let last = descriptor.addr().checked_add(length as u64 - 1);
            self.status = last.filter(|last| memory.address_in_range(*last));
        } else if self.writable > 0 {
            return Err(VringError::Order);
        }
        // Too long for any request. Only the status is still looked for: else pieces of memory, again and again, would
        // make a list of millions of places.
        let all = self.header.filled as u64 + self.readable + self.writable;
        self.long |= all.saturating_add(if writable { 0 } else { length as u64 }) > LONGEST;
        if self.long {
            self.spans.clear();
            return Ok(());
        }
        for slice in GuestMemoryBackend::get_slices(memory, descriptor.addr(), length) {
            let Ok(slice) = slice else {
                self.outside = true;
                self.status = None;
                break;
            };
            self.found += 1;
            let skipped = if writable { 0 } else { self.read(&slice) };
            let span = Span::new(slice.ptr_guard_mut().as_ptr(), slice.len());
            let span = span.part(skipped, span.len() - skipped);
            if !span.is_empty() {
                self.spans.push(span);
            }
            if self.spans.len() > PLACES_MAX {
                self.long = true;
                break;
            }
        }
        Ok(())
    }
    /// Looks at something readable, as far as it must be known; returns how much of it belongs to the header.
    fn read(&mut self, slice: &Bytes<'_>) -> usize {
        let skipped = self.header.fill(slice);
        self.readable += (slice.len() - skipped) as u64;
        let segment = [kind::DISCARD, kind::WRITE_ZEROES];
        if self.header.is_full() && segment.contains(&self.header.word(0)) {
            let rest = slice.offset(skipped).expect("so much of it was read");
            self.segment.fill(&rest);
        }
        skipped
    }
    /// What is asked of a volume, once the status was taken off.
    fn action(&self, facts: Facts) -> Result<Action, u8> {
        if self.outside || self.long || !self.header.is_full() {
            return Err(status::IO_ERROR);
        }
        let sector = self.header.long(8);
        let engine = |operation, (offset, length), hole| {
            Action::Engine(Command { operation, offset, length, hole })
        };
        match self.header.word(0) {
            kind::READ if self.readable == 0 => {
                let range = range(facts, sector, self.writable, PAYLOAD_MAX.into())?;
                Ok(engine(Operation::Read, range, false))
            }
            kind::WRITE if self.writable == 0 && !facts.read_only => {
                let range = range(facts, sector, self.readable, PAYLOAD_MAX.into())?;
                Ok(engine(Operation::Write, range, false))
            }
            kind::FLUSH => Ok(engine(Operation::Flush, (0, 0), false)),
            kind::GET_ID if self.readable == 0 => Ok(Action::Name),
            kind @ (kind::DISCARD | kind::WRITE_ZEROES)
                if self.writable == 0 && !facts.read_only =>
            {
                let (range, unmap) = self.segment(facts, kind)?;
                let zeroes = kind == kind::WRITE_ZEROES;
                let operation = if zeroes { Operation::WriteZeroes } else { Operation::Discard };
                Ok(engine(operation, range, unmap))
            }
            kind::READ | kind::WRITE | kind::GET_ID | kind::DISCARD | kind::WRITE_ZEROES => {
                Err(status::IO_ERROR)
            }
            _ => Err(status::UNSUPPORTED),
        }
    }
    /// The one segment of a discard or of zeroes, and whether the space may go.
    fn segment(&self, facts: Facts, kind: u32) -> Result<((u64, u32), bool), u8> {
        const UNMAP: u32 = 1;
        if self.readable != HEADER as u64 {
            return Err(status::IO_ERROR);
        }
        let (sector, count) = (self.segment.long(0), self.segment.word(8));
        let flags = self.segment.word(12);
        if flags & !UNMAP != 0 || (flags != 0 && kind == kind::DISCARD) {
            return Err(status::UNSUPPORTED);
        }
        let most = u64::from(EMPTY_SECTORS_MAX) * SECTOR;
        Ok((range(facts, sector, u64::from(count) * SECTOR, most)?, flags != 0))
    }
}

/// Bytes of a volume: the first one and how many.
fn range(facts: Facts, sector: u64, length: u64, most: u64) -> Result<(u64, u32), u8> {
    let offset = sector.checked_mul(SECTOR).ok_or(status::IO_ERROR)?;
    let inside = offset <= facts.bytes && length <= facts.bytes - offset;
    if !inside || length == 0 || length > most || !length.is_multiple_of(SECTOR) {
        return Err(status::IO_ERROR);
    }
    Ok((offset, length as u32))
}

/// Reads the chain that begins at `head`. `spans` is an empty list, for its memory.
pub(crate) fn parse(
    memory: &Arc<Memory>,
    table: Table,
    head: u16,
    facts: Facts,
    spans: Vec<Span>,
) -> Result<Request, VringError> {
    // They would be taken for places of this memory.
    assert!(spans.is_empty(), "spans of another request");
    let (next, left) = (Some(head), DESCRIPTORS_MAX);
    let mut walk = Walk { memory, table, next, left, indirect: false };
    let mut gathered = Gathered { spans, ..Gathered::default() };
    while let Some(descriptor) = walk.next()? {
        gathered.add(memory, descriptor)?;
    }
    let status = gathered.status.ok_or(VringError::NoStatus)?;
    let work = u32::from(DESCRIPTORS_MAX - walk.left) + gathered.found;
    gathered.writable -= 1;
    if let Some(last) = gathered.spans.last_mut() {
        *last = last.part(0, last.len() - 1);
        if last.is_empty() {
            gathered.spans.pop();
        }
    }
    let action = gathered.action(facts).unwrap_or_else(Action::Refuse);
    let data = match action {
        Action::Engine(command) => command.carries(),
        Action::Name => true,
        Action::Refuse(_) => false,
    };
    let mut spans = gathered.spans;
    if !data {
        spans.clear();
    }
    // SAFETY: the places are slices of `memory`, which keeps its pieces mapped and to which nobody ever makes references
    // (`vm-memory`). Guests share their memory to be read and written.
    let data = unsafe { Scattered::new(spans, memory.clone()) };
    Ok(Request { action, status, data, work })
}

#[cfg(test)]
mod tests;
