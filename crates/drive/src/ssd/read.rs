//! The path of a read: admission, flash units, and the wait for a turn on the link.
//!
//! Commands are admitted in order and sent page by page while the read buffer has room. The next command starts only
//! after all pages of the previous one have been sent (head-of-line blocking). Together with the link, which takes
//! commands in turn, this makes a small read wait behind large ones as measured.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::flash::Flash;
use super::slots::{Page, Slot, Slots};
use super::{DeepQueue, LinkOrder, Parameters};

/// Commands of this size and more count as large for the deep-queue rule and for the set-up time.
pub(super) const LARGE_BYTES: u64 = 32 << 10;
/// Number of streams of reads that the drive remembers, at most as many as NCQ slots.
const STREAMS: usize = 32;

/// A page that leaves its unit at an instant; `order` breaks ties. A single number, because comparisons are most of the
/// cost of a heap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PageRead(u128);

impl PageRead {
    /// Its 64 bits of time are followed by 48 bits of the order, and by the slot: a drive has at most 65,536.
    const fn new(at: u64, order: u64, slot: Slot) -> Self {
        Self((at as u128) << 64 | (order << 16) as u128 | slot as u128)
    }
    const fn at(self) -> u64 {
        (self.0 >> 64) as u64
    }
    const fn slot(self) -> Slot {
        self.0 as u16 as Slot
    }
}

#[derive(Debug)]
pub(super) struct ReadPath {
    page: Page,
    buffer: u64,
    order: LinkOrder,
    deep: Option<DeepQueue>,
    /// Commands of which no page has been sent yet, in order.
    listed: VecDeque<Slot>,
    /// The command whose pages are being sent.
    sending: Option<Slot>,
    /// Bytes sent to a unit that have not crossed the link yet.
    in_buffer: u64,
    /// Pages in units.
    reading: BinaryHeap<Reverse<PageRead>>,
    pages_sent: u64,
    /// Commands that have pages ready; the first one has the link next.
    turns: VecDeque<Slot>,
    /// Ends of the most recent streams, only for the deep-queue rule.
    streams: [u64; STREAMS],
    next_stream: usize,
}

impl ReadPath {
    /// Capacities of its queues, for the test that nothing grows.
    #[cfg(test)]
    pub(super) fn rooms(&self) -> [usize; 3] {
        [self.listed.capacity(), self.reading.capacity(), self.turns.capacity()]
    }
    pub(super) fn new(parameters: &Parameters) -> Self {
        let depth = parameters.slots as usize;
        let page = Page::new(parameters.page);
        let pages = usize::try_from(parameters.read_buffer / 512).unwrap_or(depth);
        Self {
            page,
            buffer: parameters.read_buffer,
            order: parameters.link_order,
            deep: parameters.deep_queue,
            listed: VecDeque::with_capacity(depth),
            sending: None,
            in_buffer: 0,
            reading: BinaryHeap::with_capacity(pages.min(4096)),
            pages_sent: 0,
            turns: VecDeque::with_capacity(depth),
            streams: [u64::MAX; STREAMS],
            next_stream: 0,
        }
    }

    /// Puts a command on the admission list.
    pub(super) fn list(&mut self, slots: &mut Slots, slot: Slot, units: u32) {
        let held = &mut slots[slot];
        held.split(&self.page, units);
        if self.deep.is_some() {
            match self.streams.iter_mut().find(|end| **end == held.start) {
                Some(end) => {
                    held.sequential = true;
                    *end = held.end;
                }
                None => {
                    self.streams[self.next_stream] = held.end;
                    self.next_stream = (self.next_stream + 1) % STREAMS;
                }
            }
        }
        self.listed.push_back(slot);
    }

    /// Sends pages to their units while the buffer has room. `outstanding` counts all commands that
    /// the drive has accepted.
    pub(super) fn admit(
        &mut self,
        now: u64,
        slots: &mut Slots,
        flash: &mut Flash,
        outstanding: u32,
    ) {
        let units = flash.units();
        loop {
            let Some(slot) = self.sending.or_else(|| self.choose(slots, outstanding)) else {
                return;
            };
            let held = &mut slots[slot];
            while held.sent < held.pages {
                let bytes = held.page_bytes(held.sent, &self.page);
                if self.in_buffer + bytes > self.buffer {
                    return;
                }
                self.in_buffer += bytes;
                let at = flash.read(now, held.unit);
                self.reading.push(Reverse(PageRead::new(at, self.pages_sent, slot)));
                self.pages_sent += 1;
                held.sent += 1;
                held.unit += 1;
                if held.unit == units {
                    held.unit = 0;
                }
            }
            self.sending = None;
        }
    }

    /// Picks the next command of the list if its first page fits.
    fn choose(&mut self, slots: &mut Slots, outstanding: u32) -> Option<Slot> {
        let oldest = *self.listed.front()?;
        let index = self.overtaker(slots, oldest, outstanding).unwrap_or(0);
        let chosen = self.listed[index];
        if self.in_buffer + slots[chosen].page_bytes(0, &self.page) > self.buffer {
            return None;
        }
        if index > 0 {
            slots[oldest].overtaken += 1;
        }
        self.listed.remove(index);
        self.sending = Some(chosen);
        Some(chosen)
    }

    /// The deep-queue rule: which listed command goes before the oldest, if any.
    fn overtaker(&self, slots: &Slots, oldest: Slot, outstanding: u32) -> Option<usize> {
        let deep = self.deep?;
        let is_large = |slot: Slot| slots[slot].bytes() >= LARGE_BYTES || slots[slot].sequential;
        let holds = outstanding > deep.above
            && !is_large(oldest)
            && slots[oldest].overtaken < deep.overtakes;
        if !holds {
            return None;
        }
        self.listed.iter().position(|&slot| is_large(slot))
    }

    pub(super) fn page(&self) -> &Page {
        &self.page
    }

    /// When the next page leaves its unit.
    pub(super) fn next_page(&self) -> Option<u64> {
        self.reading.peek().map(|Reverse(page)| page.at())
    }

    /// Lets pages that left their unit up to `now` queue for the link.
    pub(super) fn collect(&mut self, now: u64, slots: &mut Slots) {
        while let Some(&Reverse(page)) = self.reading.peek() {
            if page.at() > now {
                return;
            }
            self.reading.pop();
            let slot = page.slot();
            let held = &mut slots[slot];
            held.ready += 1;
            if held.ready == 1 {
                self.turns.push_back(slot);
            }
        }
    }

    /// Whether a page waits for the link.
    pub(super) fn has_turn(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Takes the page whose turn it is; returns its command and its bytes.
    pub(super) fn take_turn(&mut self, slots: &mut Slots) -> Option<(Slot, u64)> {
        let slot = self.turns.pop_front()?;
        let held = &mut slots[slot];
        held.ready -= 1;
        if held.ready > 0 {
            match self.order {
                LinkOrder::RoundRobin => self.turns.push_back(slot),
                LinkOrder::Fifo => self.turns.push_front(slot),
            }
        }
        // Which page of the command crosses is not followed; only its first and last differ in size.
        Some((slot, held.page_bytes(held.crossed, &self.page)))
    }

    /// A page has crossed the link; returns whether it was the command's last.
    pub(super) fn crossed(&mut self, slots: &mut Slots, slot: Slot) -> bool {
        let held = &mut slots[slot];
        self.in_buffer -= held.page_bytes(held.crossed, &self.page);
        held.crossed += 1;
        held.crossed == held.pages
    }
}
