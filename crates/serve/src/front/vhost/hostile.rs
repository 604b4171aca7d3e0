//! Arbitrary bytes as a guest's memory: checks one queue against any driver, for the fuzzer and its smoke test.
//!
//! The bytes determine the length of the queue, how the driver changes its memory between requests, what an earlier
//! server left in flight, and the initial contents of memory: table, rings, headers, data. In all cases, a queue
//! returns each head once until it is completed, a request touches only guest memory, its data has the announced
//! length and is inside the volume, and an error stops the queue and not this process.

use std::sync::Arc;

use iofair_core::request::Operation;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, VolatileMemory};

use super::Memory;
use super::chain::{Action, Request, VringError, parse, status};
use super::config::Facts;
use super::inflight::{self, InFlight, Region};
use super::memory::{self, Shared};
use super::ring::{Ring, Setup, Slot, write_status};
use crate::request::shared::Span;

/// Where the table, the rings and the pieces of memory lie; the third piece follows a gap.
const TABLE: u64 = 0;
const AVAILABLE: u64 = 0x100;
const USED: u64 = 0x140;
const PIECES: [(u64, usize); 3] = [(0, 0x1000), (0x1000, 0x1000), (0x4000, 0x1000)];
/// Entries of the longest queue that fits there.
const SIZE_MAX: u16 = 16;
const VOLUME: u64 = 1 << 20;
/// Requests after which a driver has shown what it can do.
const REQUESTS: usize = 200;

/// One driver with one queue.
struct Driver<'a> {
    memory: Arc<Memory>,
    facts: Facts,
    /// What it still does to its memory: a place of two bytes and a value.
    changes: std::slice::ChunksExact<'a, u8>,
}

impl Driver<'_> {
    fn owns(&self, span: Span) -> bool {
        self.memory.iter().any(|region| {
            let offset = (span.pointer() as usize).wrapping_sub(region.as_ptr() as usize);
            offset < region.size() && span.len() <= region.size() - offset
        })
    }
    fn check(&self, request: &Request) -> u32 {
        assert!(self.memory.address_in_range(request.status));
        let mut spans = request.data.spans().iter();
        assert!(spans.all(|span| !span.is_empty() && self.owns(*span)));
        let data = request.data.len();
        let Action::Engine(command) = request.action else { return 0 };
        let reads = matches!(command.operation, Operation::Read | Operation::Flush);
        assert!(reads || !self.facts.read_only);
        assert!(command.offset.checked_add(command.length.into()).is_some_and(|end| end <= VOLUME));
        assert_eq!(data, if command.carries() { command.length as usize } else { 0 });
        if command.operation == Operation::Read { command.length } else { 0 }
    }
    /// The guest runs on.
    fn change(&mut self) {
        let Some(&[high, low, value]) = self.changes.next() else { return };
        let at = GuestAddress(u64::from(u16::from_be_bytes([high, low])) % 0x5000);
        // There may be no memory.
        let _ = self.memory.write_obj(value, at);
    }
    fn run(&mut self, ring: &mut Ring) -> Result<(), VringError> {
        let (mut begun, mut taken) = (Vec::new(), 0);
        while taken < REQUESTS {
            ring.disable_notifications(&self.memory)?;
            while let Some(found) = ring.take(&self.memory)? {
                taken += 1;
                let (table, head) = (ring.table(), found.head);
                let request = parse(&self.memory, table, head, self.facts, Vec::new())?;
                let (written, status) = (self.check(&request), request.status);
                if begun.len() % 3 == 2 {
                    ring.put_back(found);
                    break;
                }
                ring.begin(found, Slot { status, written });
                begun.push(head);
                assert!(ring.inside() <= ring.size() && begun.len() == usize::from(ring.inside()));
                self.change();
            }
            // The latest request first, so that completions are out of order.
            let idle = begun.is_empty();
            while let Some(head) = begun.pop() {
                let slot = ring.end(head);
                write_status(&self.memory, slot.status, status::OK);
                ring.complete(&self.memory, head, slot.written + 1)?;
                self.change();
            }
            ring.wants_call(&self.memory)?;
            if !ring.enable_notifications(&self.memory)? && idle {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Runs a queue over the memory and events in `data`.
pub fn hostile(data: &[u8]) {
    let [size, kind, changes, data @ ..] = data else { return };
    let ranges = PIECES.map(|(at, bytes)| (GuestAddress(at), bytes));
    let memory = Arc::new(memory::alone(&ranges).expect("three pages are to be had"));
    let region = Shared::alone(inflight::bytes(1, SIZE_MAX).expect("it is short") as usize);
    let map = Arc::new(region.expect("one page is to be had"));
    let (changes, data) = data.split_at(data.len().min(usize::from(*changes) * 3));
    let left = if kind & 4 == 0 { 0 } else { data.len().min(map.size()) };
    let (left, image) = data.split_at(left);
    map.as_volatile_slice().copy_from(left);
    // What does not fit is left out.
    let _ = memory.write(image, GuestAddress(0));
    let setup = Setup {
        size: u16::from(*size),
        descriptors: TABLE,
        available: AVAILABLE,
        used: USED,
        base: u16::from(kind >> 4),
        event_idx: kind & 1 != 0,
    };
    let tracker = match kind & 12 {
        0 => None,
        _ => InFlight::new(&Region { map, queues: 1, size: SIZE_MAX }, 0, setup.size).ok(),
    };
    if setup.size > SIZE_MAX {
        return;
    }
    let Ok(mut ring) = Ring::new(&setup, &memory, tracker) else { return };
    let facts = Facts { bytes: VOLUME, read_only: kind & 2 != 0 };
    let changes = changes.chunks_exact(3);
    let mut driver = Driver { memory, facts, changes };
    // An error stops the queue, as it should.
    let _ = driver.run(&mut ring);
}
