//! Direct calls, and buffered random reads: every call is one request (or several, when it is longer
//! than the drive takes), and up to `depth` calls are in flight. Calls may differ in direction, place and length (see
//! [`super::choose`]); buffered writes among them go into the page cache (see [`super::cached`]).
//!
//! A call begins when the process takes it up; processor time ("h") passes before its request is
//! sent and belongs to the call's latency. With a depth of several, the process is one processor: it
//! takes up one call after the other.

use std::collections::VecDeque;

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::base::{Base, Range, SlotCompletion};
use super::cached::CachedFile;
use super::groups::Groups;
use super::search::Search;
use crate::cache::Cache;
use crate::cache::pages::COST_WINDOW;
use crate::engine::layout::{BLOCK, HOLE_COST, INDIRECT_COST};
use crate::engine::{Engine, NewRequest};
use crate::scenario::Direction;

/// The stage of a slot's call.
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
    /// Copied into the page cache.
    Copying,
    /// Made to pause by the page cache.
    Paused,
    /// A sync writes what is dirty.
    Writing,
    /// A sync.
    Syncing,
}

/// The purpose of a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sync {
    /// The `fdatasync` after some writes.
    Regular,
    /// The write itself, which returns when it is on the drive.
    OfCall,
    /// The end of the job.
    Last,
}

/// A slot, and from when on it may make its next call.
struct Ready {
    slot: u32,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    stage: Stage,
    started: Instant,
    direction: Direction,
    offset: Sectors,
    length: Sectors,
    parts: u32,
    sync: Sync,
    /// Whether it has the other priority.
    urgent: bool,
}

/// Settings of the host for a process of direct calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectSetup {
    /// Longest request.
    pub(crate) longest: Sectors,
    /// Calls in flight at once.
    pub(crate) depth: u32,
    /// Whether it writes into a hole. Linux writes its pages as `fsync` does, and tells the scheduler not to
    /// idle after them (`WRITE_SYNC_PLUG`); other direct writes are idled after (`WRITE_ODIRECT`).
    pub(crate) hole: bool,
    /// Where its writes go, unless they are direct.
    pub(crate) cached: Option<CachedFile>,
    /// Time to copy 256 KiB that a read finds in memory, if it looks there.
    pub(crate) hit: Option<Nanos>,
}

/// A process of direct calls.
#[derive(Debug)]
pub(crate) struct Direct {
    slots: Vec<Slot>,
    /// Of reads and trims, and of writes.
    flags: Flags,
    write_flags: Flags,
    longest: Sectors,
    cached: Option<CachedFile>,
    hit: Option<Nanos>,
    cpu_free: Instant,
    /// Calls of the job's direction that have begun, and those that are complete.
    begun: u64,
    written: u64,
    /// Slots with a call.
    active: u32,
    /// Calls that are not complete.
    open: u32,
    batches: Option<Groups>,
    /// Whether the sync at the end of the job was made.
    synced_at_end: bool,
    /// Slots that wait until calls of others are complete.
    parked: Vec<u32>,
    /// Whether a sync holds the process, and the slots whose syncs come after it.
    is_held: bool,
    due: VecDeque<u32>,
    /// Calls that may begin before the process thinks, if it does not think after each.
    burst_left: u32,
    search: Option<Search>,
    /// No further call may begin.
    over: bool,
}

impl Direct {
    pub(crate) fn new(base: &Base, setup: DirectSetup) -> Self {
        let slot = Slot {
            stage: Stage::Resting,
            started: Instant::ZERO,
            direction: base.direction,
            offset: Sectors::ZERO,
            length: base.job.block,
            parts: 0,
            sync: Sync::Regular,
            urgent: false,
        };
        let calls = &base.job.calls;
        Self {
            slots: vec![slot; setup.depth as usize],
            flags: base.flags(),
            write_flags: match base.job.sync_writes {
                true if setup.hole => base.flags().with(Flags::SYNC).with(Flags::NO_IDLE),
                true => base.flags().with(Flags::SYNC),
                false => base.flags(),
            },
            longest: setup.longest,
            cached: setup.cached,
            hit: setup.hit,
            cpu_free: Instant::ZERO,
            begun: 0,
            written: 0,
            active: 0,
            open: 0,
            batches: calls.batches.map(Groups::new),
            synced_at_end: false,
            parked: Vec::with_capacity(setup.depth as usize),
            is_held: false,
            due: VecDeque::new(),
            burst_left: calls.think_every.unwrap_or(0),
            search: calls.search.map(|spec| Search::new(spec, setup.depth)),
            over: false,
        }
    }

    /// Calls in flight at once.
    pub(crate) fn depth(&self) -> u32 {
        self.slots.len() as u32
    }
    /// Calls in flight that the search found.
    pub(crate) fn depth_found(&self) -> Option<u32> {
        self.search.as_ref().map(Search::best)
    }

    /// Whether a slot may not begin a call yet; it is parked then.
    fn is_parked(&mut self, base: &Base, engine: &mut Engine<'_>, slot: u32) -> bool {
        if base.job.calls.think_every.is_some() && self.burst_left == 0 {
            self.parked.push(slot);
            if self.active == 0 {
                // All calls of the burst are complete.
                self.burst_left = base.job.calls.think_every.unwrap_or(1);
                self.unpark(base, engine, engine.now + base.job.think, u32::MAX);
            }
            return true;
        }
        let full = self.is_held
            || self.search.as_ref().is_some_and(|search| self.active >= search.depth());
        if full {
            self.parked.push(slot);
        }
        full
    }
    fn unpark(&mut self, base: &Base, engine: &mut Engine<'_>, at: Instant, most: u32) {
        for _ in 0..most.min(self.parked.len() as u32) {
            let slot = self.parked.pop().expect("counted before");
            self.slots[slot as usize].stage = Stage::Resting;
            base.wake(engine, at, slot);
        }
    }
    /// The slot makes no further call.
    fn rest(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache, slot: u32) {
        self.over = true;
        self.slots[slot as usize].stage = Stage::Resting;
        if self.active > 0 {
            return;
        }
        if base.job.calls.end_sync && !self.synced_at_end {
            (self.synced_at_end, self.active) = (true, 1);
            self.slots[slot as usize].sync = Sync::Last;
            return self.sync(base, engine, cache, slot);
        }
        base.end(engine);
    }

    /// Takes up the slot's next call, now or when it may.
    fn begin(
        &mut self,
        base: &mut Base,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        Ready { slot, at: ready }: Ready,
    ) {
        if self.over {
            return self.rest(base, engine, cache, slot);
        }
        if self.is_parked(base, engine, slot) {
            return;
        }
        let (direction, ready) = next_direction(base, ready.max(self.cpu_free));
        let start = base.pacer.next_start(ready);
        if start == Instant::MAX {
            return self.rest(base, engine, cache, slot);
        }
        let call = &mut self.slots[slot as usize];
        (call.started, call.stage, call.direction) = (start, Stage::Starting, direction);
        if let Some(chooser) = &mut base.chooser {
            let most = Sectors(base.pacer.longest_call() / 512);
            let Some(place) = chooser.next(direction, most, &mut base.random) else {
                return self.rest(base, engine, cache, slot);
            };
            (call.offset, call.length) = place;
            if chooser.began_anew() {
                base.invalidate(engine, cache);
            }
        } else if self.hit.is_some() {
            call.offset = base.next_offset();
        }
        call.urgent = base.draws_urgent(direction);
        let (offset, length, bytes) = (call.offset, call.length, call.length.bytes());
        base.pacer.issue_in(direction, bytes);
        self.burst_left = self.burst_left.saturating_sub(1);
        self.begun += u64::from(direction == base.direction);
        (self.active, self.open) = (self.active + 1, self.open + 1);
        if let Some(window) = self.hit.filter(|_| direction == Direction::Read)
            && base.is_in_memory(engine, cache, offset, length)
        {
            self.slots[slot as usize].stage = Stage::Copying;
            self.cpu_free = start + Nanos(window.0 * bytes / COST_WINDOW);
            return base.wake(engine, self.cpu_free, slot);
        }
        if let Some(groups) = &mut self.batches {
            groups.starting += 1;
        }
        let hole = if engine.files[base.file].is_hole() { HOLE_COST } else { Nanos::ZERO };
        let send = start + base.draw_turnaround(direction) + hole;
        self.cpu_free = send;
        base.wake(engine, send, slot);
    }

    pub(crate) fn on_timer(
        &mut self,
        base: &mut Base,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        slot: u32,
    ) {
        match self.slots[slot as usize].stage {
            Stage::Resting => self.begin(base, engine, cache, Ready { slot, at: engine.now }),
            Stage::Starting => self.start(base, engine, cache, slot),
            Stage::AfterPrelude => self.send(base, engine, slot),
            Stage::Copying if self.slots[slot as usize].direction == Direction::Read => {
                self.finish(base, engine, cache, slot);
            }
            Stage::Copying => self.copied(base, engine, cache, slot),
            Stage::Paused => self.finish(base, engine, cache, slot),
            Stage::Syncing => self.synced(base, engine, cache, slot),
            stage => unreachable!("no timer is set in stage {stage:?}"),
        }
    }

    fn start(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache, slot: u32) {
        let call = &mut self.slots[slot as usize];
        if base.chooser.is_none() && self.hit.is_none() {
            call.offset = base.next_offset();
        }
        if let Some(cached) = self.cached.filter(|_| call.direction == Direction::Write) {
            match cached.copy(engine, cache, call.offset, call.length) {
                Ok(done) => {
                    call.stage = Stage::Copying;
                    base.keep_in_memory(engine, cache, call.offset, call.length);
                    base.wake(engine, done, slot);
                }
                Err(again) => base.wake(engine, again, slot),
            }
            return;
        }
        let Some(groups) = &mut self.batches else {
            return self.send_call(base, engine, slot);
        };
        for slot in groups.add(slot) {
            self.send_call(base, engine, slot);
        }
    }
    /// Sends a call, or what must be read before it.
    fn send_call(&mut self, base: &mut Base, engine: &mut Engine<'_>, slot: u32) {
        let call = &mut self.slots[slot as usize];
        let file = &mut engine.files[base.file];
        match file.prelude(call.offset, &mut base.random) {
            Some(block) => self.send_prelude(base, engine, slot, block),
            None => self.send(base, engine, slot),
        }
    }
    /// The call is in the page cache, which may demand a pause.
    fn copied(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache, slot: u32) {
        let call = &mut self.slots[slot as usize];
        let cached = self.cached.expect("only buffered writes are copied");
        call.stage = Stage::Paused;
        match cached.balance(engine, cache, call.length) {
            Nanos::ZERO => self.finish(base, engine, cache, slot),
            pause => base.wake(engine, engine.now + pause, slot),
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
        let Slot { direction, offset, length, urgent, .. } = self.slots[slot as usize];
        let flags = if direction == Direction::Write { self.write_flags } else { self.flags };
        let range = Range { slot, operation: direction.operation(), flags, offset, length };
        let client = if urgent { base.urgent } else { base.client };
        let parts = base.send_as(client, engine, range, self.longest);
        let call = &mut self.slots[slot as usize];
        (call.stage, call.parts) = (Stage::Data, parts);
    }

    /// A sync returns.
    fn synced(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache, slot: u32) {
        let (now, call) = (engine.now, self.slots[slot as usize]);
        match call.sync {
            Sync::OfCall => return self.complete(base, engine, cache, slot),
            Sync::Last => self.active -= 1,
            Sync::Regular => {
                base.tally.count_sync(now, now.since(call.started));
                let was_held = std::mem::take(&mut self.is_held);
                self.next(base, engine, cache, Ready { slot, at: now });
                match self.due.pop_front() {
                    Some(slot) => self.sync_regularly(base, engine, cache, slot),
                    None if was_held => self.unpark(base, engine, now, u32::MAX),
                    None => {}
                }
                return;
            }
        }
        self.rest(base, engine, cache, slot);
    }
    /// A slot goes on after a call.
    fn next(
        &mut self,
        base: &mut Base,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        Ready { slot, at: ready }: Ready,
    ) {
        self.active -= 1;
        let at = ready + base.think_between();
        match &mut self.batches {
            None => self.begin(base, engine, cache, Ready { slot, at }),
            Some(groups) => {
                for slot in groups.end(slot, self.active) {
                    self.begin(base, engine, cache, Ready { slot, at });
                }
            }
        }
        if let Some(search) = &self.search {
            if search.is_over() {
                base.pacer.exhaust();
                self.over = true;
            }
            let more = search.depth().saturating_sub(self.active);
            self.unpark(base, engine, engine.now, more);
        }
    }

    pub(crate) fn on_done(
        &mut self,
        base: &mut Base,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        done: SlotCompletion,
    ) {
        let (now, slot) = (engine.now, done.slot);
        let call = &mut self.slots[slot as usize];
        call.parts -= 1;
        if let Some(cached) = self.cached.filter(|_| call.stage == Stage::Writing) {
            cache.written(cached.file, done.length);
        }
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
            Stage::Data => self.finish(base, engine, cache, slot),
            Stage::Writing => self.flush(base, engine, slot),
            Stage::Syncing => self.synced(base, engine, cache, slot),
            stage => unreachable!("no request is under way in stage {stage:?}"),
        }
    }

    /// The slot's call has done its work: it is complete, unless it is a write that must be on the drive first.
    fn finish(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache, slot: u32) {
        let call = self.slots[slot as usize];
        if call.stage == Stage::Data && call.direction == Direction::Read {
            base.keep_in_memory(engine, cache, call.offset, call.length);
        }
        match base.job.calls.durable && call.direction == Direction::Write {
            true => {
                self.slots[slot as usize].sync = Sync::OfCall;
                self.sync(base, engine, cache, slot);
            }
            false => self.complete(base, engine, cache, slot),
        }
    }
    /// The slot's call is complete.
    fn complete(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache, slot: u32) {
        let now = engine.now;
        let call = self.slots[slot as usize];
        // A process that still has something to do needs not be woken, and one that copies did not sleep.
        let slept = matches!(call.stage, Stage::Data | Stage::Syncing);
        let runs = if self.cpu_free <= now && slept { now + base.process_wakeup } else { now };
        let latency = runs.since(call.started);
        base.tally.count(call.direction, now, call.length.bytes(), latency);
        if let Some(search) = &mut self.search {
            search.count(now, latency);
        }
        base.end_if_too_slow(now);
        self.open -= 1;
        let is_counted = call.direction == base.direction;
        let is_due = is_counted
            && match base.job.calls.syncs_in_flight {
                true => base.job.is_sync_due(self.begun),
                false => base.job.writes_to_sync(self.written) == Some(1),
            };
        self.written += u64::from(is_counted);
        if !is_due || (self.open == 0 && base.is_after_last_call(now)) {
            return self.next(base, engine, cache, Ready { slot, at: runs });
        }
        self.sync_regularly(base, engine, cache, slot);
    }
    /// Makes the sync that is due in a slot, after those before it if syncs hold the process.
    fn sync_regularly(
        &mut self,
        base: &Base,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        slot: u32,
    ) {
        if self.is_held {
            return self.due.push_back(slot);
        }
        self.is_held = base.job.calls.syncs_hold;
        let call = &mut self.slots[slot as usize];
        (call.started, call.sync) = (engine.now, Sync::Regular);
        self.sync(base, engine, cache, slot);
    }
    /// Writes what is dirty of the file, then flushes.
    fn sync(&mut self, base: &Base, engine: &mut Engine<'_>, cache: &mut Cache, slot: u32) {
        let parts = self.cached.map_or(0, |cached| cached.send_dirty(base, engine, cache, slot));
        let call = &mut self.slots[slot as usize];
        (call.stage, call.parts) = (Stage::Writing, parts);
        if parts == 0 {
            self.flush(base, engine, slot);
        }
    }
    /// The flush of a sync, after the data.
    fn flush(&mut self, base: &Base, engine: &mut Engine<'_>, slot: u32) {
        let call = &mut self.slots[slot as usize];
        (call.stage, call.parts) = (Stage::Syncing, 1);
        match engine.journaled {
            true => engine.commits.push(base.token(slot)),
            false => call.parts = base.flush(engine, slot),
        }
    }
}

/// The direction of the next call of a process that is ready, and when its pace allows it. A direction that may not be used yet
/// gives way to the other one, so that each reaches its own pace.
fn next_direction(base: &mut Base, ready: Instant) -> (Direction, Instant) {
    let Some(chooser) = &mut base.chooser else {
        return (base.direction, base.pacer.due(base.direction, ready));
    };
    let drawn = chooser.direction(base.direction, &mut base.random);
    let due = base.pacer.due(drawn, ready);
    let other = chooser.other(drawn).filter(|_| due > ready);
    let other = other.map(|other| (other, base.pacer.due(other, ready)));
    other.filter(|(_, at)| *at < due).unwrap_or((drawn, due))
}
