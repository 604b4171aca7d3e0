//! Direct calls, and buffered random reads: every call is one request (or several, when it is longer
//! than the drive takes), and up to `depth` calls are in flight.
//!
//! A call begins when the process takes it up; processor time ("h") passes before its request is
//! sent and belongs to the call's latency. With a depth of several, the process is one processor: it
//! takes up one call after the other.

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::{Base, Range};
use crate::world::engine::{Engine, NewRequest};
use crate::world::layout::{BLOCK, HOLE_COST, INDIRECT_COST};

/// Where a slot's call is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// No call: the timer says when to take one up.
    Resting,
    /// Processor time before its first request.
    Starting,
    /// The file system reads a block of its own first.
    Prelude,
    /// Processor time between that and the call's own request.
    AfterPrelude,
    /// Its requests are in flight.
    Data,
    /// `fdatasync`.
    Syncing,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    stage: Stage,
    started: Instant,
    offset: Sectors,
    parts: u32,
}

/// What a process of direct calls needs to know of its host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectSetup {
    /// Longest request.
    pub(crate) longest: Sectors,
    /// Calls in flight at once.
    pub(crate) depth: u32,
    /// Whether it writes into a hole. Linux writes its pages as `fsync` does, and tells the scheduler not to
    /// idle after them (`WRITE_SYNC_PLUG`); other direct writes are idled after (`WRITE_ODIRECT`).
    pub(crate) hole: bool,
}

/// A process of direct calls.
#[derive(Debug)]
pub(crate) struct Direct {
    slots: Vec<Slot>,
    operation: Operation,
    flags: Flags,
    longest: Sectors,
    cpu_free: Instant,
    since_sync: u32,
}

impl Direct {
    pub(crate) fn new(base: &Base, setup: DirectSetup) -> Self {
        let writes = base.job.pattern.writes();
        let slot =
            Slot { stage: Stage::Resting, started: Instant::ZERO, offset: Sectors::ZERO, parts: 0 };
        Self {
            slots: vec![slot; setup.depth as usize],
            operation: if writes { Operation::Write } else { Operation::Read },
            flags: match writes && base.job.sync_writes {
                true if setup.hole => base.flags().with(Flags::SYNC).with(Flags::NO_IDLE),
                true => base.flags().with(Flags::SYNC),
                false => base.flags(),
            },
            longest: setup.longest,
            cpu_free: Instant::ZERO,
            since_sync: 0,
        }
    }

    /// Calls in flight at once.
    pub(crate) fn depth(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Takes up the slot's next call, now or when it may.
    fn begin(&mut self, base: &mut Base, engine: &mut Engine<'_>, ready: Instant, slot: u32) {
        let start = base.pacer.next_start(ready.max(self.cpu_free));
        base.pacer.issue(base.job.block.bytes());
        let hole = if engine.files[base.file].is_hole() { HOLE_COST } else { Nanos::ZERO };
        let send = start + base.draw_turnaround() + hole;
        self.cpu_free = send;
        let call = &mut self.slots[slot as usize];
        (call.started, call.stage) = (start, Stage::Starting);
        base.wake(engine, send, slot);
    }

    pub(crate) fn on_timer(&mut self, base: &mut Base, engine: &mut Engine<'_>, slot: u32) {
        match self.slots[slot as usize].stage {
            Stage::Resting => self.begin(base, engine, engine.now, slot),
            Stage::Starting => {
                let offset = base.next_offset();
                self.slots[slot as usize].offset = offset;
                let file = &mut engine.files[base.file];
                match file.prelude(offset, &mut base.random) {
                    Some(block) => self.send_prelude(base, engine, slot, block),
                    None => self.send(base, engine, slot),
                }
            }
            Stage::AfterPrelude => self.send(base, engine, slot),
            Stage::Syncing => self.synced(base, engine, slot),
            stage => unreachable!("no timer is set in stage {stage:?}"),
        }
    }

    fn send_prelude(&mut self, base: &Base, engine: &mut Engine<'_>, slot: u32, block: Sectors) {
        let parts = engine.submit(NewRequest {
            token: base.token(slot),
            client: base.client,
            operation: Operation::Read,
            // Linux marks inodes and directories as metadata, but no indirect blocks.
            flags: Flags::NONE,
            start: block,
            length: Sectors(BLOCK),
        });
        let call = &mut self.slots[slot as usize];
        (call.stage, call.parts) = (Stage::Prelude, parts);
    }

    fn send(&mut self, base: &mut Base, engine: &mut Engine<'_>, slot: u32) {
        let offset = self.slots[slot as usize].offset;
        let (operation, flags) = (self.operation, self.flags);
        let range = Range { slot, operation, flags, offset, length: base.job.block };
        let parts = base.send(engine, range, self.longest);
        let call = &mut self.slots[slot as usize];
        (call.stage, call.parts) = (Stage::Data, parts);
    }

    /// `fdatasync` returns.
    fn synced(&mut self, base: &mut Base, engine: &mut Engine<'_>, slot: u32) {
        let now = engine.now;
        base.tally.count_sync(now, now.since(self.slots[slot as usize].started));
        self.begin(base, engine, now + base.job.think, slot);
    }

    pub(crate) fn on_done(&mut self, base: &mut Base, engine: &mut Engine<'_>, slot: u32) {
        let now = engine.now;
        let call = &mut self.slots[slot as usize];
        call.parts -= 1;
        if call.parts > 0 {
            return;
        }
        match call.stage {
            Stage::Prelude if engine.files[base.file].is_hole() => {
                self.send(base, engine, slot);
            }
            Stage::Prelude => {
                call.stage = Stage::AfterPrelude;
                base.wake(engine, now + INDIRECT_COST, slot);
            }
            Stage::Data => {
                // A process that still has something to do needs not be woken.
                let asleep = self.cpu_free <= now;
                let runs = if asleep { now + base.process_wakeup } else { now };
                base.tally.count(now, base.job.block.bytes(), runs.since(call.started));
                self.since_sync += 1;
                let every = base.job.fdatasync_every;
                if every > 0 && self.since_sync >= every {
                    self.since_sync = 0;
                    (call.stage, call.started, call.parts) = (Stage::Syncing, now, 1);
                    match engine.journaled {
                        true => engine.commits.push(base.token(slot)),
                        false => call.parts = base.flush(engine, slot),
                    }
                } else {
                    self.begin(base, engine, runs + base.job.think, slot);
                }
            }
            Stage::Syncing => self.synced(base, engine, slot),
            stage => unreachable!("no request is under way in stage {stage:?}"),
        }
    }
}
