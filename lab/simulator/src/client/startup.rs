//! A program's start-up, replayed as the S suite's `replay-startup-io` replays it: the recorded reads one after
//! the other, direct, each by its thread.
//!
//! A read ahead is sent and the next read follows. One that the thread waits for is sent when the thread's reads
//! ahead are completed, and the next one follows when it is completed itself. Between two reads is the host's
//! turnaround, and the program's own time if the recording is replayed with it; its authors leave that out. Each thread
//! is a client of its own for the policies, and has a file of its own.
//!
//! A start-up is one call: its latency is the time that the start-up took. If none ends before the run does, the
//! latency is what the one in flight has taken until then, which is the least that it takes.

use std::sync::Arc;

use iofair_core::id::ClientId;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::base::Base;
use super::tally::Tally;
use crate::engine::{Engine, FileRange};
use crate::recording::{FILE, Recording, Step};
use crate::scenario::Direction;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The timer says when to start.
    Resting,
    /// The timer says when to send the next read.
    Sending,
    /// The thread's reads ahead must come before it may send the one that it waits for.
    Draining,
    /// The program does something else before the next read.
    Pausing,
    /// The read that the thread waits for is in flight.
    Waiting,
}

/// Settings of a start-up.
#[derive(Clone, Debug)]
pub(crate) struct StartupSetup {
    pub(crate) recording: Arc<Recording>,
    /// The client of each thread.
    pub(crate) clients: Vec<ClientId>,
    /// Longest request.
    pub(crate) longest: Sectors,
}

/// A process that starts a program again and again.
#[derive(Debug)]
pub(crate) struct Startup {
    setup: StartupSetup,
    state: State,
    started: Instant,
    next: usize,
    /// Thread by thread: reads in flight, and where the last one ended.
    under_way: Vec<u32>,
    positions: Vec<Sectors>,
}

impl Startup {
    pub(crate) fn new(setup: StartupSetup) -> Self {
        let threads = setup.recording.threads;
        let (under_way, positions) = (vec![0; threads], vec![Sectors::ZERO; threads]);
        let (state, started) = (State::Resting, Instant::ZERO);
        Self { setup, state, started, next: 0, under_way, positions }
    }

    fn step(&self) -> Step {
        self.setup.recording.steps[self.next]
    }
    /// The last read is waited for, whatever it was.
    fn waits(&self) -> bool {
        !self.step().ahead || self.next + 1 == self.setup.recording.steps.len()
    }

    pub(crate) fn on_timer(&mut self, base: &mut Base, engine: &mut Engine<'_>) {
        match self.state {
            State::Resting => self.start(base, engine),
            State::Sending => self.send(base, engine),
            State::Pausing => self.read(base, engine),
            state => unreachable!("no timer is set in state {state:?}"),
        }
    }

    fn start(&mut self, base: &mut Base, engine: &mut Engine<'_>) {
        let start = base.pacer.next_start(engine.now);
        if start > engine.now {
            return base.wake(engine, start, 0);
        }
        base.pacer.issue(self.setup.recording.bytes());
        (self.started, self.next) = (engine.now, 0);
        self.positions.fill(Sectors::ZERO);
        self.prepare(base, engine);
    }

    /// Processor time before the next read.
    fn prepare(&mut self, base: &mut Base, engine: &mut Engine<'_>) {
        self.state = State::Sending;
        let at = engine.now + base.draw_turnaround(base.direction);
        base.wake(engine, at, 0);
    }

    fn send(&mut self, base: &mut Base, engine: &mut Engine<'_>) {
        let Step { thread, pause, .. } = self.step();
        if self.waits() && self.under_way[thread] > 0 {
            self.state = State::Draining;
        } else if pause > Nanos::ZERO {
            self.state = State::Pausing;
            base.wake(engine, engine.now + pause, 0);
        } else {
            self.read(base, engine);
        }
    }

    fn read(&mut self, base: &mut Base, engine: &mut Engine<'_>) {
        let Step { thread, length, .. } = self.step();
        let offset = self.place(base);
        let parts = engine.send(FileRange {
            token: base.token(thread as u32),
            client: self.setup.clients[thread],
            operation: Operation::Read,
            flags: base.flags(),
            file: base.file,
            offset: self.setup.recording.base(thread) + offset,
            length,
            longest: self.setup.longest,
        });
        self.under_way[thread] += parts;
        if self.waits() {
            self.state = State::Waiting;
        } else {
            self.next += 1;
            self.prepare(base, engine);
        }
    }

    /// Where in its thread's file the next read goes.
    fn place(&mut self, base: &mut Base) -> Sectors {
        let Step { thread, sequential, length, .. } = self.step();
        let last = FILE - length;
        let offset = match (sequential, self.positions[thread]) {
            (true, position) if position < last => position,
            (true, _) => Sectors::ZERO,
            (false, _) => Sectors(base.random.below(last.0)),
        };
        self.positions[thread] = offset + length;
        offset
    }

    pub(crate) fn on_done(&mut self, base: &mut Base, engine: &mut Engine<'_>, slot: u32) {
        let thread = slot as usize;
        self.under_way[thread] -= 1;
        let concerned =
            self.next < self.setup.recording.steps.len() && thread == self.step().thread;
        if !concerned || self.under_way[thread] > 0 {
            return;
        }
        match self.state {
            State::Draining => self.prepare(base, engine),
            State::Waiting => {
                self.next += 1;
                match self.next < self.setup.recording.steps.len() {
                    true => self.prepare(base, engine),
                    false => self.finish(base, engine),
                }
            }
            // Reads ahead of a start-up that is over, or of a thread that goes on.
            State::Resting | State::Sending | State::Pausing => {}
        }
    }

    fn finish(&mut self, base: &mut Base, engine: &mut Engine<'_>) {
        let now = engine.now;
        base.tally.count(
            base.direction,
            now,
            self.setup.recording.bytes(),
            now.since(self.started),
        );
        self.state = State::Resting;
        base.wake(engine, now + base.job.think, 0);
    }

    /// The run ends: a first start-up that is in flight took at least until now.
    pub(crate) fn note_unfinished(&self, tally: &mut Tally, end: Instant) {
        if self.state != State::Resting && tally.calls() == 0 {
            let reads = &mut tally.sides[Direction::Read.index()];
            reads.latency.record(end.since(self.started).0);
        }
    }
}
