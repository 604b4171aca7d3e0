//! The commands in the drive: one slot each, reused without allocation.

use iofair_core::request::{Flags, Operation};

use crate::Command;

/// Index of a slot.
pub(super) type Slot = u32;

/// The state of one command.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Whether the slot is in use.
    live: bool,
    /// The host's id for it.
    pub(super) id: u32,
    pub(super) operation: Operation,
    /// Whether it must be durable before it completes.
    pub(super) durable: bool,
    /// First byte, and the byte after the last.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Flash unit of the next page to be sent.
    pub(super) unit: u32,
    /// Number of pages: all of it, those sent to a unit, and those that crossed the link.
    pub(super) pages: u32,
    pub(super) sent: u32,
    pub(super) crossed: u32,
    /// Pages that were read and have not crossed the link.
    pub(super) ready: u32,
    /// How often a larger command went before it (deep-queue rule).
    pub(super) overtaken: u32,
    /// Whether it continues a stream of reads (deep-queue rule).
    pub(super) sequential: bool,
}

impl Held {
    pub(super) fn new(command: &Command) -> Self {
        let start = command.start.bytes();
        Self {
            live: true,
            id: command.id,
            operation: command.operation,
            durable: command.flags.has(Flags::FUA),
            start,
            end: start + command.length.bytes(),
            unit: 0,
            pages: 0,
            sent: 0,
            crossed: 0,
            ready: 0,
            overtaken: 0,
            sequential: false,
        }
    }
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.start
    }
    /// Bytes that the command needs from its page `index`; the first and the last page may be partial.
    pub(super) fn page_bytes(&self, index: u32, page: &Page) -> u64 {
        let from = ((self.start >> page.shift) + u64::from(index)) << page.shift;
        self.end.min(from + page.bytes) - self.start.max(from)
    }
    /// Determines the pages and the unit of the first one.
    pub(super) fn split(&mut self, page: &Page, units: u32) {
        let first = self.start >> page.shift;
        let last = (self.end - 1) >> page.shift;
        self.pages = u32::try_from(last - first + 1).expect("a command is far below 2^32 pages");
        self.unit = u32::try_from(first % u64::from(units)).expect("below the number of units");
    }
}

/// The size of a flash page, a power of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) bytes: u64,
    pub(super) shift: u32,
}

impl Page {
    pub(super) fn new(bytes: u64) -> Self {
        assert!(bytes.is_power_of_two(), "a flash page of {bytes} bytes is no power of two");
        Self { bytes, shift: bytes.trailing_zeros() }
    }
}

/// All commands of the drive.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Held>,
    free: Vec<Slot>,
    limit: usize,
}

impl Slots {
    /// Capacities of its queues, for the test that nothing grows.
    #[cfg(test)]
    pub(super) fn rooms(&self) -> [usize; 3] {
        [self.slots.capacity(), self.free.capacity(), 0]
    }
    /// Room for `limit` commands.
    pub(super) fn new(limit: u32) -> Self {
        let limit = limit as usize;
        Self { slots: Vec::with_capacity(limit), free: Vec::with_capacity(limit), limit }
    }
    /// Commands held now.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    pub(super) fn insert(&mut self, held: Held) -> Slot {
        assert!(self.len() < self.limit, "the drive takes {} commands at once", self.limit);
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = held;
            return slot;
        }
        self.slots.push(held);
        u32::try_from(self.slots.len() - 1).expect("the limit is a u32")
    }
    pub(super) fn remove(&mut self, slot: Slot) {
        self.slots[slot as usize].live = false;
        self.free.push(slot);
    }
    /// The commands held now.
    pub(super) fn held(&self) -> impl Iterator<Item = (Slot, &Held)> {
        (0..).zip(&self.slots).filter(|(_, held)| held.live)
    }
}

impl std::ops::Index<Slot> for Slots {
    type Output = Held;
    fn index(&self, slot: Slot) -> &Held {
        &self.slots[slot as usize]
    }
}
impl std::ops::IndexMut<Slot> for Slots {
    fn index_mut(&mut self, slot: Slot) -> &mut Held {
        &mut self.slots[slot as usize]
    }
}
