//! The in-flight region: memory of the virtual machine monitor in which the server records requests in flight. After
//! the server's death, or a lost connection, each of them is executed again, and none is completed twice.
//!
//! Layout and order of writes follow "Inflight I/O tracking" in QEMU's docs/interop/vhost-user.rst for split
//! virtqueues. Each queue has a header of 16 bytes (features, version, number of descriptors, head of the last batch,
//! index of the used ring) and 16 bytes per descriptor (in flight, next of the batch, counter). Queues are aligned to
//! 64 bytes. Stores are in program order, which suffices for a killed process; there is only one writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use vm_memory::VolatileMemory;

use super::chain::VringError;
use super::config::{QUEUE_SIZE_MAX, QUEUES_MAX};
use super::memory::Shared;

const VERSION: u16 = 1;
const BORDER: usize = 64;
const HEADER: usize = 16;
const ENTRY: usize = 16;
// Offsets in the header of a queue.
const AT_VERSION: usize = 8;
const AT_SIZE: usize = 10;
const AT_BATCH: usize = 12;
const AT_USED: usize = 14;
// Offsets in a descriptor's entry.
const AT_NEXT: usize = 6;
const AT_COUNTER: usize = 8;

/// Bytes of a queue's part.
const fn part(size: u16) -> usize {
    (HEADER + size as usize * ENTRY).next_multiple_of(BORDER)
}

/// Bytes of a region for this many queues; `None` if there cannot be this many or such long ones.
pub(crate) fn bytes(queues: u16, size: u16) -> Option<u64> {
    let fits = usize::from(queues) <= QUEUES_MAX && size <= QUEUE_SIZE_MAX;
    fits.then(|| (usize::from(queues) * part(size)) as u64)
}

/// A region as the client gave it.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) map: Arc<Shared>,
    pub(crate) queues: u16,
    pub(crate) size: u16,
}

/// One queue's part of a region.
#[derive(Debug)]
pub(crate) struct InFlight {
    map: Arc<Shared>,
    base: usize,
    size: u16,
    counter: u64,
}

impl InFlight {
    /// The part of a queue of this size. The region must be long enough.
    pub(crate) fn new(region: &Region, index: u16, size: u16) -> Result<Self, VringError> {
        let bytes = bytes(region.queues, region.size).unwrap_or(u64::MAX);
        let fits = index < region.queues && size <= region.size && size > 0;
        if !fits || bytes > region.map.size() as u64 {
            return Err(VringError::InFlight);
        }
        let base = usize::from(index) * part(region.size);
        let this = Self { map: region.map.clone(), base, size, counter: 0 };
        match this.short(AT_VERSION).load(Ordering::Relaxed) {
            0 => {
                this.short(AT_SIZE).store(size, Ordering::Relaxed);
                this.short(AT_VERSION).store(VERSION, Ordering::Release);
                Ok(this)
            }
            VERSION if this.short(AT_SIZE).load(Ordering::Relaxed) == size => Ok(this),
            _ => Err(VringError::InFlight),
        }
    }
    /// Whether its owner truncated the file.
    pub(crate) fn is_lost(&self) -> bool {
        self.map.is_lost()
    }
    fn short(&self, at: usize) -> &AtomicU16 {
        let found = self.map.get_atomic_ref(self.base + at);
        found.expect("the region was checked to be long enough, and parts begin on borders")
    }
    fn entry(&self, head: u16) -> usize {
        assert!(head < self.size, "a head outside of its table");
        self.base + HEADER + usize::from(head) * ENTRY
    }
    fn flag(&self, head: u16) -> &AtomicU8 {
        self.map.get_atomic_ref(self.entry(head)).expect("as in `short`")
    }
    fn next(&self, head: u16) -> &AtomicU16 {
        self.map.get_atomic_ref(self.entry(head) + AT_NEXT).expect("as in `short`")
    }
    fn counter(&self, head: u16) -> &AtomicU64 {
        self.map.get_atomic_ref(self.entry(head) + AT_COUNTER).expect("as in `short`")
    }

    /// A request begins.
    pub(crate) fn begin(&mut self, head: u16) {
        self.counter(head).store(self.counter, Ordering::Relaxed);
        self.counter += 1;
        self.flag(head).store(1, Ordering::Release);
    }
    /// A request is going to be completed: to be called before the used ring shows it.
    pub(crate) fn before_used(&mut self, head: u16) {
        let last = self.short(AT_BATCH).load(Ordering::Relaxed);
        self.next(head).store(last, Ordering::Relaxed);
        self.short(AT_BATCH).store(head, Ordering::Release);
    }
    /// The used ring shows it, and its index is now this.
    pub(crate) fn after_used(&mut self, head: u16, used: u16) {
        self.flag(head).store(0, Ordering::Release);
        self.short(AT_USED).store(used, Ordering::Release);
    }
    /// What was inside when the queue was left, in the order in which it came, given the index of the
    /// used ring. Completions that the ring shows already are struck off.
    pub(crate) fn recover(&mut self, used: u16) -> Vec<u16> {
        let completed = used.wrapping_sub(self.short(AT_USED).load(Ordering::Relaxed));
        let mut head = self.short(AT_BATCH).load(Ordering::Relaxed);
        for _ in 0..completed.min(self.size) {
            if head >= self.size {
                break;
            }
            self.flag(head).store(0, Ordering::Release);
            head = self.next(head).load(Ordering::Relaxed);
        }
        self.short(AT_USED).store(used, Ordering::Release);
        let inside = (0..self.size).filter(|head| self.flag(*head).load(Ordering::Relaxed) == 1);
        let order = |head| (self.counter(head).load(Ordering::Relaxed), head);
        let mut inside: Vec<(u64, u16)> = inside.map(order).collect();
        inside.sort_unstable();
        self.counter = inside.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        inside.into_iter().map(|(_, head)| head).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Region {
        let (queues, size) = (3, 8);
        let map = Shared::alone(bytes(queues, size).unwrap() as usize).unwrap();
        Region { map: Arc::new(map), queues, size }
    }

    /// Goal: wherever the server dies, what was not completed is done again, in order, and nothing that the
    /// used ring shows. Method: a queue of eight with completions out of order; the server "dies" between
    /// any two steps of a completion, and a new one looks at the region.
    #[test]
    fn a_crash_at_any_step_neither_loses_nor_repeats_requests() {
        for died in 0..4 {
            let region = region();
            let mut first = InFlight::new(&region, 1, 8).unwrap();
            assert!(first.recover(0).is_empty());
            for head in [5, 2, 7, 0] {
                first.begin(head);
            }
            first.before_used(2);
            first.after_used(2, 1);
            let mut used = 1;
            if died > 0 {
                first.before_used(7);
            }
            if died > 1 {
                used += 1;
            }
            if died > 2 {
                first.after_used(7, used);
            }
            drop(first);
            let mut second = InFlight::new(&region, 1, 8).unwrap();
            let left: &[u16] = if died > 1 { &[5, 0] } else { &[5, 7, 0] };
            assert_eq!(second.recover(used), left, "died after step {died}");
            second.begin(3);
            let mut third = InFlight::new(&region, 1, 8).unwrap();
            assert_eq!(third.recover(used), [left, &[3]].concat(), "new ones come last");
            assert!(InFlight::new(&region, 0, 8).unwrap().recover(0).is_empty(), "another queue");
        }
    }

    /// Goal: a forged region stops the queue or names heads of the queue, each once. Method:
    /// every byte set to the same value, sizes that do not fit.
    #[test]
    fn made_up_regions_are_harmless() {
        let region = region();
        assert!(InFlight::new(&region, 3, 8).is_err(), "no such queue");
        assert!(InFlight::new(&region, 0, 16).is_err(), "longer than the region says");
        assert!(
            InFlight::new(&Region { size: 1024, ..region.clone() }, 0, 8).is_err(),
            "too short"
        );
        for value in [1, 7, 255] {
            for at in 0..region.map.size() {
                region.map.get_atomic_ref::<AtomicU8>(at).unwrap().store(value, Ordering::Relaxed);
            }
            assert!(InFlight::new(&region, 0, 8).is_err(), "a strange version");
            let version = region.map.get_atomic_ref::<AtomicU16>(AT_VERSION).unwrap();
            version.store(VERSION, Ordering::Relaxed);
            let size = region.map.get_atomic_ref::<AtomicU16>(AT_SIZE).unwrap();
            size.store(8, Ordering::Relaxed);
            for used in [0, 1, 300, u16::MAX] {
                let inside = InFlight::new(&region, 0, 8).unwrap().recover(used);
                assert!(inside.len() <= 8 && inside.is_sorted(), "{inside:?}");
            }
        }
        assert_eq!((bytes(65, 8), bytes(1, 1025)), (None, None));
    }
}
