//! For tests of back ends: an engine over a back end, and a kernel simulated by the test, which sees every ring entry
//! and completes it when the test wants.

use std::sync::Arc;

use io_uring::squeue;
use iofair_config::contracts::faults::Faults;
use iofair_core::contract::Contract;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};

use super::{Back, Lookup};
use crate::back::volume::{Map, PlannedVolume, VolumeId};
use crate::engine::{Engine, Plan, Timeouts};
use crate::request::buffer::Lent;
use crate::request::data::Data;
use crate::request::entry::Entry;
use crate::request::extent::Extent;
use crate::request::op::{Hints, NewOp};

/// What an entry asks of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Read,
    Write { durable: bool },
    Allocate,
    DataSync,
    Other(u8),
}

/// An entry that waits for its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) call: Call,
    pub(super) offset: u64,
    data: u32,
}

impl Asked {
    fn new(entry: &Entry) -> Self {
        // The kernel's numbers for READV, WRITEV, FSYNC and FALLOCATE, and struct io_uring_sqe.
        const FSYNC_DATASYNC: u32 = 1;
        assert_eq!(size_of::<squeue::Entry>(), 64);
        // SAFETY: an entry is the kernel's plain structure of 64 bytes (`repr(C)`, just checked).
        let bytes = unsafe { std::ptr::from_ref(entry.as_raw()).cast::<[u8; 64]>().read() };
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let (flags, low, high) = (word(28), u64::from(word(8)), u64::from(word(12)));
        let call = match bytes[0] {
            1 => Call::Read,
            2 => Call::Write { durable: flags == libc::RWF_DSYNC as u32 },
            3 if flags == FSYNC_DATASYNC => Call::DataSync,
            17 => Call::Allocate,
            other => Call::Other(other),
        };
        Self { call, offset: high << 32 | low, data: word(32) }
    }
}

/// An engine over a back end, with one volume that is all of it.
pub(super) struct Scene {
    engine: Engine,
    now: Instant,
    payload: Arc<Vec<u8>>,
    next: u64,
}

impl Scene {
    pub(super) fn new(back: impl Back + 'static, bytes: u64) -> Self {
        let stack = iofair_policies::TABLE.stack("none-none").unwrap();
        let mut engine = Engine::new(Box::new(back), stack.clone());
        let (name, group) = ("v".to_string(), "g".to_string());
        let (id, map) = (VolumeId(0), Arc::new(Map::linear(0, bytes)));
        let (size, read_only, storage) = (bytes, false, None);
        let (entry, stamp) = Default::default();
        let volume = PlannedVolume { id, name, group, map, size, read_only, storage, entry, stamp };
        let groups = vec![("g".to_string(), Contract::default())];
        let (volumes, closed) = (vec![volume], Vec::new());
        let (timeouts, faults) = (Timeouts::default(), Faults::default());
        let plan = Plan { stack, groups, volumes, closed, timeouts, faults };
        engine.apply(Instant::ZERO, &plan);
        Self { engine, now: Instant::ZERO, payload: Arc::new(vec![7; 1 << 20]), next: 0 }
    }
    /// Gives the engine a request, to be decided on with the next [`Self::turn`]; returns its number.
    pub(super) fn submit(
        &mut self,
        operation: Operation,
        offset: u64,
        length: u32,
        hints: Hints,
    ) -> u64 {
        let cookie = self.next;
        self.next += 1;
        let data = match operation {
            Operation::Write => Data::Lent(Lent::new(&self.payload, 0..length as usize)),
            _ => Data::None,
        };
        let (owner, volume) = (0, 0);
        let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
        assert!(self.engine.submit(self.now, new).is_ok());
        cookie
    }
    pub(super) fn write(&mut self, offset: u64, length: u32, fua: bool) -> u64 {
        self.submit(Operation::Write, offset, length, Hints { fua, ..Hints::default() })
    }
    pub(super) fn flush(&mut self) -> u64 {
        self.submit(Operation::Flush, 0, 0, Hints::default())
    }
    /// Lets happen what can, and returns what the kernel is asked since the last turn.
    pub(super) fn turn(&mut self) -> Vec<Asked> {
        self.engine.turn(self.now);
        self.engine.keep_lent();
        let entries = self.engine.take_entries();
        entries.map_or(Vec::new(), |all| all.drain(..).map(|one| Asked::new(&one)).collect())
    }
    /// Whether the engine would take a block status in.
    pub(super) fn takes_status(&mut self) -> bool {
        let hints = Hints { extents: 1, ..Hints::default() };
        let (owner, cookie, volume, operation, data) = (0, 0, 0, Operation::Read, Data::None);
        let (offset, length) = (0, 4096);
        let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
        self.engine.submit(self.now, new).is_ok()
    }
    /// The only command that waits for another thread.
    pub(super) fn lookup(&mut self) -> Lookup {
        let lookups = self.engine.take_lookups().unwrap();
        assert_eq!(lookups.len(), 1);
        lookups.remove(0)
    }
    /// The other thread has carried it out; returns what it found.
    pub(super) fn look_up(&mut self, lookup: Lookup) -> Vec<Extent> {
        let found = (lookup.find)();
        self.engine.on_found(lookup.command, lookup.op, found.clone());
        found
    }
    /// What the engine is asked about itself.
    pub(super) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }
    /// Time passes, with turns of the engine in it.
    pub(super) fn pass(&mut self, time: Nanos) {
        const SECOND: Nanos = Nanos::from_secs(1);
        let until = self.now + time;
        while until.since(self.now) >= SECOND {
            self.pause(SECOND);
            self.engine.turn(self.now);
            self.engine.keep_lent();
        }
        self.now = until;
    }
    /// Time passes in which the server does not run.
    pub(super) fn pause(&mut self, time: Nanos) {
        self.now += time;
    }
    /// The kernel completes an entry.
    pub(super) fn complete(&mut self, asked: Asked, result: i32) {
        self.engine.on_ring(asked.data, result);
    }
    /// Requests that would be completed now: number and error.
    pub(super) fn finished(&mut self) -> Vec<(u64, i32)> {
        let mut all = Vec::new();
        while let Some(op) = self.engine.next_finished() {
            all.push((op.cookie, op.status));
            self.engine.ops().release(op.data);
        }
        all
    }
}
