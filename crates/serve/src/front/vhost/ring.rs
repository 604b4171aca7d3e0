//! One virtqueue: heads are returned in the order in which the driver made them available, each at most once until it
//! is completed, and completions are written back. With an in-flight region, requests that an earlier server had in
//! flight come first.

use std::sync::atomic::Ordering;

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use super::Memory;
use super::chain::{Table, VringError};
use super::config::QUEUE_SIZE_MAX;
use super::inflight::InFlight;

/// Where a queue lies, as the client says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Setup {
    pub(crate) size: u16,
    /// Guest addresses.
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    /// The next head to take, where no in-flight region knows it.
    pub(crate) base: u16,
    pub(crate) event_idx: bool,
}

/// A request that is inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Where its status goes.
    pub(crate) status: GuestAddress,
    /// Bytes that it writes if it succeeds, without the status.
    pub(crate) written: u32,
}

/// A head that was taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) head: u16,
    /// An earlier server had it inside.
    again: bool,
}

/// One virtqueue.
#[derive(Debug)]
pub(crate) struct Ring {
    queue: Queue,
    slots: Box<[Option<Slot>]>,
    inside: u16,
    tracker: Option<InFlight>,
    /// Heads to do again, the first one last.
    again: Vec<u16>,
}

impl Ring {
    /// A queue that lies in this memory.
    pub(crate) fn new(
        setup: &Setup,
        memory: &Memory,
        mut tracker: Option<InFlight>,
    ) -> Result<Self, VringError> {
        let bad = |_| VringError::Rings;
        let mut queue = Queue::new(QUEUE_SIZE_MAX).map_err(bad)?;
        queue.try_set_size(setup.size).map_err(bad)?;
        queue.try_set_desc_table_address(GuestAddress(setup.descriptors)).map_err(bad)?;
        queue.try_set_avail_ring_address(GuestAddress(setup.available)).map_err(bad)?;
        queue.try_set_used_ring_address(GuestAddress(setup.used)).map_err(bad)?;
        queue.set_event_idx(setup.event_idx);
        queue.set_ready(true);
        if !queue.is_valid(memory) {
            return Err(VringError::Rings);
        }
        let used = queue.used_idx(memory, Ordering::Acquire).map_err(bad)?.0;
        let mut again = tracker.as_mut().map_or(Vec::new(), |tracker| tracker.recover(used));
        // Every head that was taken is completed or in flight.
        let taken = used.wrapping_add(again.len() as u16);
        queue.set_next_used(used);
        queue.set_next_avail(if tracker.is_some() { taken } else { setup.base });
        again.reverse();
        let slots = vec![None; setup.size.into()].into_boxed_slice();
        Ok(Self { queue, slots, inside: 0, tracker, again })
    }
    /// The table of its descriptors.
    pub(crate) fn table(&self) -> Table {
        Table { address: GuestAddress(self.queue.desc_table()), size: self.queue.size() }
    }
    /// Requests that are inside.
    pub(crate) fn inside(&self) -> u16 {
        self.inside
    }
    /// Whether the client truncated its in-flight region.
    pub(crate) fn is_lost(&self) -> bool {
        self.tracker.as_ref().is_some_and(InFlight::is_lost)
    }
    /// Its length.
    pub(crate) fn size(&self) -> u16 {
        self.queue.size()
    }
    /// The next head that would be taken.
    pub(crate) fn position(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Takes the next head out; the caller begins, puts back or completes it at once.
    pub(crate) fn take(&mut self, memory: &Memory) -> Result<Option<Taken>, VringError> {
        let (head, again) = match self.again.pop() {
            Some(head) => (head, true),
            None => {
                let mut heads = self.queue.iter(memory).map_err(|_| VringError::Index)?;
                let Some(chain) = heads.next() else { return Ok(None) };
                (chain.head_index(), false)
            }
        };
        match self.slots.get(usize::from(head)) {
            Some(None) => Ok(Some(Taken { head, again })),
            _ => Err(VringError::Head(head)),
        }
    }
    /// There is no room for it: it comes again with the next call of [`Self::take`].
    pub(crate) fn put_back(&mut self, taken: Taken) {
        if taken.again {
            self.again.push(taken.head);
        } else {
            self.queue.go_to_previous_position();
        }
    }
    /// A request is inside from now on.
    pub(crate) fn begin(&mut self, taken: Taken, slot: Slot) {
        if let Some(tracker) = self.tracker.as_mut().filter(|_| !taken.again) {
            tracker.begin(taken.head);
        }
        self.slots[usize::from(taken.head)] = Some(slot);
        self.inside += 1;
    }
    /// A request is over: what was noted of it.
    pub(crate) fn end(&mut self, head: u16) -> Slot {
        self.inside -= 1;
        self.slots[usize::from(head)].take().expect("only what was begun ends, and it ends once")
    }
    /// Puts a completed head into the used ring. The status must have been written.
    pub(crate) fn complete(
        &mut self,
        memory: &Memory,
        head: u16,
        written: u32,
    ) -> Result<(), VringError> {
        if let Some(tracker) = &mut self.tracker {
            tracker.before_used(head);
        }
        self.queue.add_used(memory, head, written).map_err(|_| VringError::Rings)?;
        if let Some(tracker) = &mut self.tracker {
            tracker.after_used(head, self.queue.next_used());
        }
        Ok(())
    }

    /// Whether the driver wants a notification after the completions since the last call.
    pub(crate) fn wants_call(&mut self, memory: &Memory) -> Result<bool, VringError> {
        const NO_INTERRUPT: u16 = 1;
        let wanted = self.queue.needs_notification(memory).map_err(|_| VringError::Rings)?;
        if self.queue.event_idx_enabled() {
            return Ok(wanted);
        }
        let flags = memory.load::<u16>(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
        Ok(u16::from_le(flags.map_err(|_| VringError::Rings)?) & NO_INTERRUPT == 0)
    }
    /// Asks the driver not to kick, because the queue is being processed.
    pub(crate) fn disable_notifications(&mut self, memory: &Memory) -> Result<(), VringError> {
        self.queue.disable_notification(memory).map_err(|_| VringError::Rings)
    }
    /// Asks the driver to kick when it adds a request. Returns whether there already is one.
    pub(crate) fn enable_notifications(&mut self, memory: &Memory) -> Result<bool, VringError> {
        self.queue.enable_notification(memory).map_err(|_| VringError::Rings)
    }
}

/// Writes a status, where a chain of the same memory said.
pub(crate) fn write_status(memory: &Memory, status: GuestAddress, value: u8) {
    // Memory may only be exchanged while nothing is inside, so it is there.
    let _ = memory.store(value, status, Ordering::Release);
}
