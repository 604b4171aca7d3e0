//! A copy of a file, as `dd | dd` makes it: reads with the kernel's read-ahead, writes into the page cache.
//!
//! Window by window: the window comes from the drive (the next one is asked for meanwhile), is copied out and into
//! the page cache, which may make the process pause, and so on. Reader and writer of the pipe take turns on one
//! processor. At the end of the file it begins anew with nothing of it in memory; nobody waits for the copy to reach
//! the drive. A window is a call: its latency runs from the wish for it until it is in the page cache.

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::base::{Base, Range};
use super::read_ahead::ReadAheadSetup;
use super::write::NO_ROOM_SLEEP;
use crate::cache::Cache;
use crate::cache::pages::COST_WINDOW;
use crate::engine::Engine;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Between calls.
    Ready,
    /// The window has not come yet.
    Waiting,
    /// It is there, but there is no room for it below the dirty limit.
    Full,
    /// It is being copied.
    Copying,
    /// Made to pause by the page cache.
    Paused,
}

/// Settings of the host for a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySetup {
    pub(crate) read: ReadAheadSetup,
    pub(crate) produce_window: Nanos,
    /// Place of the copy among the page cache's files.
    pub(crate) target: usize,
}

/// A process that copies its file.
#[derive(Debug)]
pub(crate) struct Copy {
    setup: CopySetup,
    state: State,
    started: Instant,
    /// Windows asked for since the beginning of the file.
    requested: u64,
    /// Requests in flight of the even and of the odd window.
    pending: [u32; 2],
}

impl Copy {
    pub(crate) fn new(setup: CopySetup) -> Self {
        Self { setup, state: State::Ready, started: Instant::ZERO, requested: 0, pending: [0; 2] }
    }

    fn window(&self, base: &Base) -> u64 {
        base.position.0 / self.setup.read.window.0
    }
    /// What is left of the present window.
    fn length(&self, base: &Base) -> Sectors {
        self.setup.read.window.min(base.file_size - base.position)
    }

    pub(crate) fn on_timer(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        match self.state {
            State::Ready => self.begin(base, engine, cache),
            State::Full => self.copy(base, engine, cache),
            State::Copying => self.balance(base, engine, cache),
            State::Paused => self.finish(base, engine),
            State::Waiting => unreachable!("no timer is set while a window is waited for"),
        }
    }

    fn begin(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        let start = base.pacer.next_start(engine.now);
        if start > engine.now {
            return base.wake(engine, start, 0);
        }
        if base.position >= base.file_size {
            (base.position, self.requested) = (Sectors::ZERO, 0);
        }
        self.started = engine.now;
        base.pacer.issue(self.length(base).bytes());
        self.request(base, engine);
        match self.pending[(self.window(base) % 2) as usize] {
            0 => self.copy(base, engine, cache),
            _ => self.state = State::Waiting,
        }
    }

    /// Asks for the present window, if nobody has, and for the next one.
    fn request(&mut self, base: &Base, engine: &mut Engine<'_>) {
        let ReadAheadSetup { window, longest, .. } = self.setup.read;
        let present = self.window(base);
        let windows = base.file_size.0.div_ceil(window.0);
        while self.requested < windows.min(present + 2) {
            let offset = Sectors(self.requested * window.0);
            let length = window.min(base.file_size - offset);
            let slot = (self.requested % 2) as u32;
            let ahead = if self.requested == present { Flags::NONE } else { Flags::READ_AHEAD };
            let (operation, flags) = (Operation::Read, base.flags().with(ahead));
            let range = Range { slot, operation, flags, offset, length };
            self.pending[slot as usize] = base.send(engine, range, longest);
            self.requested += 1;
        }
    }

    /// From the window into the page cache.
    fn copy(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        let (length, now) = (self.length(base), engine.now);
        if !cache.has_room(self.setup.target, length.bytes()) {
            self.state = State::Full;
            return base.wake(engine, now + NO_ROOM_SLEEP, 0);
        }
        let cost = self.setup.read.consume_window + self.setup.produce_window;
        cache.dirty(self.setup.target, base.position, length, now);
        self.state = State::Copying;
        base.wake(engine, now + Nanos(cost.0 * length.bytes() / COST_WINDOW), 0);
    }

    /// The page cache may make the process pause.
    fn balance(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        let pause = cache.balance(self.setup.target, self.length(base).bytes(), engine.now);
        cache.write_back(self.setup.target, engine);
        match pause {
            Nanos::ZERO => self.finish(base, engine),
            pause => {
                self.state = State::Paused;
                base.wake(engine, engine.now + pause, 0);
            }
        }
    }

    fn finish(&mut self, base: &mut Base, engine: &mut Engine<'_>) {
        let (length, now) = (self.length(base), engine.now);
        base.tally.count(base.direction, now, length.bytes(), now.since(self.started));
        base.position += length;
        self.state = State::Ready;
        base.wake(engine, now + base.job.think, 0);
    }

    pub(crate) fn on_done(
        &mut self,
        base: &mut Base,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        slot: u32,
    ) {
        self.pending[slot as usize] -= 1;
        let present = (self.window(base) % 2) as u32;
        if self.state == State::Waiting && slot == present && self.pending[slot as usize] == 0 {
            self.copy(base, engine, cache);
        }
    }
}
