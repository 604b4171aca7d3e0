//! Buffered sequential reads, with the kernel's read-ahead.
//!
//! The file is read in windows. Touching the first page of window w requests window w + 1; then the
//! process waits for w if it has not come yet, copies it out call by call, and touches w + 1. So two
//! windows are in flight while it waits and one while it copies. At the
//! end of the file it begins anew with an empty cache, as fio's `loops` with `invalidate` does.
//!
//! The calls on a window that is there cost no event each: see [`super::pace::Batch`].

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::base::{Base, Range};
use super::choose::least;
use super::pace::Plan;
use crate::cache::Cache;
use crate::cache::pages::COST_WINDOW;
use crate::engine::Engine;

/// Random spread of the cost of a window, in percent.
const COST_SPREAD: u32 = 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// A timer says when to go on: between calls or between parts of one.
    Timed,
    /// The window has not come yet.
    Waiting,
}

/// Settings of the host for a reader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAheadSetup {
    pub(crate) window: Sectors,
    pub(crate) longest: Sectors,
    pub(crate) consume_window: Nanos,
}

/// A process of buffered sequential reads.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    setup: ReadAheadSetup,
    state: State,
    /// Of the file, used a whole number of blocks.
    file: Sectors,
    /// Windows requested since the beginning of the file.
    requested: u64,
    /// Requests in flight of the even and of the odd window.
    pending: [u32; 2],
    /// Whether the present window has been touched.
    touched: bool,
    /// Cost of 256 KiB of the present window.
    cost: Nanos,
    /// The present call, and what is left of it; zero between calls.
    call: Sectors,
    call_left: Sectors,
    call_started: Instant,
    /// When the next call would begin if no other work had the processor.
    due: Instant,
}

impl ReadAhead {
    pub(crate) fn new(base: &Base, setup: ReadAheadSetup) -> Self {
        let block = least(&base.job, base.direction).0;
        Self {
            setup,
            state: State::Timed,
            file: Sectors(base.file_size.0 / block * block),
            requested: 0,
            pending: [0; 2],
            touched: false,
            cost: setup.consume_window,
            call: base.job.block,
            call_left: Sectors::ZERO,
            call_started: Instant::ZERO,
            due: Instant::MAX,
        }
    }

    /// Place and length of a window.
    fn range(&self, window: u64) -> (Sectors, Sectors) {
        let offset = Sectors(window * self.setup.window.0);
        (offset, self.setup.window.min(self.file - offset))
    }
    fn window(&self, base: &Base) -> u64 {
        base.position.0 / self.setup.window.0
    }
    /// The length of the next call.
    fn block(&self, base: &mut Base) -> Sectors {
        let Some(chooser) = &base.chooser else { return base.job.block };
        let most = Sectors(base.pacer.longest_call() / 512);
        let length = chooser.length_at(base.direction, base.position, most, &mut base.random);
        length.min(self.file - base.position)
    }
    fn cost_of(&self, bytes: u64) -> Nanos {
        Nanos(self.cost.0 * bytes / COST_WINDOW)
    }

    /// Goes on with the present call or the next one.
    pub(crate) fn on_timer(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        let now = engine.now;
        if self.call_left == Sectors::ZERO {
            let start = base.pacer.next_start(now);
            if start > now {
                self.due = start;
                return base.wait_for_call(engine, start, 0);
            }
            if base.position >= self.file {
                (base.position, self.requested, self.touched) = (Sectors::ZERO, 0, false);
                base.invalidate(engine, cache);
            }
            let block = self.block(base);
            base.pacer.issue(block.bytes());
            // What it waited for a processor is part of a call.
            let started = now.min(self.due);
            (self.call, self.call_left, self.call_started) = (block, block, started);
        }
        if !self.touched {
            self.touch(base, engine, cache);
        }
        if self.pending[(self.window(base) % 2) as usize] > 0 {
            self.state = State::Waiting;
        } else {
            self.consume(base, engine);
        }
    }

    /// Requests the present window, if nobody has, and the next one.
    fn touch(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        self.touched = true;
        self.cost = Nanos(base.random.around(self.setup.consume_window.0, COST_SPREAD));
        let present = self.window(base);
        let windows = self.file.0.div_ceil(self.setup.window.0);
        while self.requested < windows.min(present + 2) {
            let window = self.requested;
            let (offset, length) = self.range(window);
            let slot = (window % 2) as u32;
            if base.is_in_memory(engine, cache, offset, length) {
                self.requested += 1;
                continue;
            }
            let ahead = if window == present { Flags::NONE } else { Flags::READ_AHEAD };
            let (operation, flags) = (Operation::Read, base.flags().with(ahead));
            let range = Range { slot, operation, flags, offset, length };
            self.pending[slot as usize] = base.send(engine, range, self.setup.longest);
            self.requested += 1;
        }
    }

    /// Copies out of a window that is there.
    fn consume(&mut self, base: &mut Base, engine: &mut Engine<'_>) {
        self.state = State::Timed;
        let now = engine.now;
        let window_end = Sectors((self.window(base) + 1) * self.setup.window.0).min(self.file);
        let left = window_end - base.position;
        let part = self.call_left.min(left);
        let part_end = now + self.cost_of(part.bytes());
        base.position += part;
        self.call_left -= part;
        self.touched = base.position < window_end;
        let mut work = part_end.since(now);
        if self.call_left > Sectors::ZERO {
            return base.wake_after(engine, part_end, work, 0);
        }
        let direction = base.direction;
        let latency = part_end.since(self.call_started);
        base.tally.count(direction, part_end, self.call.bytes(), latency);
        base.end_if_too_slow(now);
        let mut next = part_end + base.think_after(1);
        let block = base.job.block.bytes();
        let whole = match base.chooser {
            Some(_) => 0,
            None => ((left - part).bytes() / block).min(base.calls_before_thought()),
        };
        if whole > 0 {
            let (cost, think) = (self.cost_of(block), base.think_between());
            let plan = Plan { ready: next, calls: whole, block, cost, think };
            let batch = base.pacer.start_batch(plan);
            let calls = batch.calls();
            base.tally.count_batch(direction, &batch, calls);
            if calls > 0 {
                work += cost * calls;
                next = batch.end(calls) + base.think_after(calls);
                base.position += Sectors(base.job.block.0 * calls);
                self.touched = base.position < window_end;
            }
        }
        self.due = next;
        base.wake_after(engine, next, work, 0);
    }

    pub(crate) fn on_done(
        &mut self,
        base: &mut Base,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        slot: u32,
    ) {
        self.pending[slot as usize] -= 1;
        if self.pending[slot as usize] == 0 {
            // The last one requested of the even or of the odd windows.
            let last = self.requested - 1;
            let window = if last % 2 == u64::from(slot) { last } else { last.saturating_sub(1) };
            let (offset, length) = self.range(window);
            base.keep_in_memory(engine, cache, offset, length);
        }
        let present = (self.window(base) % 2) as u32;
        if self.state == State::Waiting && slot == present && self.pending[slot as usize] == 0 {
            self.consume(base, engine);
        }
    }
}
