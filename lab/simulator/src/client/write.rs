//! Buffered writes: calls copy into the page cache, which makes the writer pause when too much is
//! dirty; `fdatasync` writes the file's dirty pages in the writer's own name, then flushes.
//!
//! Calls are counted in batches of as many bytes as lie between two looks at the dirty limits.

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::base::{Base, Range, SlotCompletion};
use super::pace::{Batch, Plan};
use crate::cache::Cache;
use crate::cache::pages::COST_WINDOW;
use crate::engine::Engine;

/// Slots of the requests that `fdatasync` sends.
const DATA: u32 = 0;
const FLUSH: u32 = 1;
/// How long a writer sleeps that finds no room at all below the dirty limit.
pub(crate) const NO_ROOM_SLEEP: Nanos = Nanos::from_millis(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Between calls.
    Ready,
    /// Copying a batch.
    Copying,
    /// Made to pause by the page cache, inside the last call of the batch.
    Paused,
    /// `fdatasync` is in flight.
    Syncing,
}

/// Settings of the host for a writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteSetup {
    pub(crate) produce_window: Nanos,
    /// Longest request of `fdatasync`.
    pub(crate) longest: Sectors,
    /// Its place among the page cache's files.
    pub(crate) file: usize,
}

/// A process of buffered writes.
#[derive(Debug)]
pub(crate) struct Write {
    setup: WriteSetup,
    state: State,
    batch: Option<Batch>,
    /// When the process first found no room for the call that it is about to make.
    blocked: Option<Instant>,
    waited: Nanos,
    /// The pause after the present batch.
    think: Nanos,
    written: u64,
    /// The present `fdatasync` is the last thing that it does.
    is_ending: bool,
    sync_started: Instant,
    /// Writes of the present `fdatasync` that are not completed.
    data_under_way: u32,
    flushes_under_way: u32,
}

impl Write {
    pub(crate) fn new(setup: WriteSetup) -> Self {
        Self {
            setup,
            state: State::Ready,
            batch: None,
            blocked: None,
            waited: Nanos::ZERO,
            think: Nanos::ZERO,
            written: 0,
            is_ending: false,
            sync_started: Instant::ZERO,
            data_under_way: 0,
            flushes_under_way: 0,
        }
    }

    pub(crate) fn on_timer(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        match self.state {
            State::Ready => self.start(base, engine, cache),
            State::Copying => self.balance(base, engine, cache),
            State::Paused => self.finish_batch(base, engine, cache),
            // The journal has committed.
            State::Syncing => self.synced(base, engine),
        }
    }

    /// Starts as many calls as lie before the next look at the dirty limits.
    fn start(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        let now = engine.now;
        let start = base.pacer.next_start(now);
        if start == Instant::MAX && base.job.calls.end_sync && !base.is_ending {
            self.is_ending = true;
            return self.sync(base, engine, cache);
        }
        if start > now {
            return base.wait_for_call(engine, start, 0);
        }
        let block = base.job.block.bytes();
        let to_sync = base.job.writes_to_sync(self.written);
        let mut calls = (cache.stride(self.setup.file) / block).max(1);
        calls = calls.min(to_sync.unwrap_or(calls));
        calls = calls.min(base.calls_before_thought());
        if !cache.has_room(self.setup.file, calls * block) {
            self.blocked.get_or_insert(now);
            return base.wake(engine, now + NO_ROOM_SLEEP, 0);
        }
        self.waited = self.blocked.take().map_or(Nanos::ZERO, |since| now.since(since));
        let cost = Nanos(self.setup.produce_window.0 * block / COST_WINDOW);
        // The turnaround is that of a process that waits for its writes, not of one that only copies.
        let first =
            if to_sync.is_some() { base.draw_turnaround(base.direction) } else { Nanos::ZERO };
        let think = base.think_between();
        let plan = Plan { ready: now + first, calls, block, cost, think };
        let batch = base.pacer.start_batch(plan);
        if batch.calls() == 0 {
            return base.wake(engine, now + first, 0);
        }
        for _ in 0..batch.calls() {
            let offset = base.next_offset();
            cache.dirty(self.setup.file, offset, base.job.block, now);
            base.keep_in_memory(engine, cache, offset, base.job.block);
        }
        // Only the last call is still open: it may have to pause.
        base.tally.count_batch(base.direction, &batch, batch.calls() - 1);
        self.state = State::Copying;
        let work = batch.cost() * batch.calls();
        base.wake_after(engine, batch.end(batch.calls()), work, 0);
        self.batch = Some(batch);
    }

    /// The batch is copied: the page cache may make the writer pause.
    fn balance(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        let batch = self.batch.as_ref().expect("a batch was copied");
        let pause = cache.balance(self.setup.file, batch.calls() * batch.block(), engine.now);
        cache.write_back(self.setup.file, engine);
        self.state = State::Paused;
        match pause {
            Nanos::ZERO => self.finish_batch(base, engine, cache),
            pause => base.wake(engine, engine.now + pause, 0),
        }
    }

    /// The last call of the batch returns.
    fn finish_batch(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        let now = engine.now;
        let batch = self.batch.take().expect("a batch was copied");
        let calls = batch.calls();
        let copied = batch.end(calls);
        let latency = self.waited + batch.cost() + now.since(copied);
        base.tally.count(base.direction, now, batch.block(), latency);
        base.end_if_too_slow(now);
        self.think = base.think_after(calls);
        let is_due = base.job.writes_to_sync(self.written) == Some(calls);
        self.written += calls;
        if is_due && !base.is_after_last_call(now) {
            return self.sync(base, engine, cache);
        }
        self.state = State::Ready;
        base.wake(engine, now + self.think, 0);
    }

    /// `fdatasync`: the engine holds the flush until the writes before it are completed; a journal is asked
    /// when they are.
    fn sync(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        (self.state, self.sync_started) = (State::Syncing, engine.now);
        while let Some((offset, length)) = cache.take_dirty(self.setup.file, self.setup.longest) {
            let (slot, operation) = (DATA, Operation::Write);
            let flags = base.flags().with(Flags::SYNC);
            let range = Range { slot, operation, flags, offset, length };
            self.data_under_way += base.send(engine, range, self.setup.longest);
        }
        match engine.journaled {
            true => self.ask_journal(base, engine),
            false => self.flushes_under_way = base.flush(engine, FLUSH),
        }
    }
    fn ask_journal(&self, base: &Base, engine: &mut Engine<'_>) {
        if self.data_under_way == 0 {
            engine.commits.push(base.token(FLUSH));
        }
    }
    fn synced(&mut self, base: &mut Base, engine: &mut Engine<'_>) {
        let now = engine.now;
        if std::mem::take(&mut self.is_ending) {
            return base.end(engine);
        }
        base.tally.count_sync(now, now.since(self.sync_started));
        self.state = State::Ready;
        base.wake(engine, now + self.think, 0);
    }

    pub(crate) fn on_done(
        &mut self,
        base: &mut Base,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        done: SlotCompletion,
    ) {
        if done.slot == DATA {
            cache.written(self.setup.file, done.length);
            self.data_under_way -= 1;
            if engine.journaled {
                self.ask_journal(base, engine);
            }
            return;
        }
        self.flushes_under_way -= 1;
        if self.flushes_under_way == 0 {
            self.synced(base, engine);
        }
    }
}
