//! A process whose calls are decided by code of the caller ([`crate::scenario::Program`]): direct calls, each with a script of its
//! own. As for other direct clients, processor time passes before a request is sent and belongs to the call's latency.

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::base::{Base, Range, SlotCompletion};
use crate::engine::Engine;
use crate::scenario::{Action, Direction, Program, Script, Seat};

/// A pause has a length, or time could stand still.
const PAUSE_MIN: Nanos = Nanos(1);

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The timer says when to ask the script; with the latency of the call that has just ended.
    Asking(Option<Nanos>),
    /// Processor time before the request.
    Starting,
    /// In flight.
    Data,
    /// The script has ended.
    Over,
}

struct Slot {
    script: Box<dyn Script + Send>,
    stage: Stage,
    started: Instant,
    operation: Operation,
    offset: Sectors,
    length: Sectors,
    parts: u32,
}

/// Settings of a process.
pub(crate) struct ProgrammedSetup<'a> {
    pub(crate) program: &'a dyn Program,
    /// The script of its first call.
    pub(crate) seat: Seat,
    /// Calls in flight at once.
    pub(crate) depth: u32,
    /// Longest request.
    pub(crate) longest: Sectors,
}

/// A process of scripts.
pub(crate) struct Programmed {
    slots: Vec<Slot>,
    longest: Sectors,
}

/// The direction that a call is counted in; none for a flush.
fn direction(operation: Operation) -> Option<Direction> {
    match operation {
        Operation::Read => Some(Direction::Read),
        Operation::Write | Operation::WriteZeroes => Some(Direction::Write),
        Operation::Discard => Some(Direction::Trim),
        Operation::Flush => None,
    }
}

impl Programmed {
    pub(crate) fn new(setup: ProgrammedSetup<'_>) -> Self {
        let ProgrammedSetup { program, seat, depth, longest } = setup;
        let slot = |slot| Slot {
            script: program.start(Seat { slot, ..seat }),
            stage: Stage::Asking(None),
            started: Instant::ZERO,
            operation: Operation::Read,
            offset: Sectors::ZERO,
            length: Sectors::ZERO,
            parts: 0,
        };
        Self { slots: (0..depth).map(slot).collect(), longest }
    }
    pub(crate) fn depth(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn on_timer(&mut self, base: &mut Base, engine: &mut Engine<'_>, slot: u32) {
        match self.slots[slot as usize].stage {
            Stage::Asking(latency) => self.next_action(base, engine, slot, latency),
            Stage::Starting => self.send(base, engine, slot),
            stage => unreachable!("no timer is set in stage {stage:?}"),
        }
    }

    fn next_action(
        &mut self,
        base: &mut Base,
        engine: &mut Engine<'_>,
        index: u32,
        latency: Option<Nanos>,
    ) {
        let now = engine.now;
        let start = base.pacer.next_start(now);
        if start == Instant::MAX {
            return self.end(base, engine, index);
        }
        if start > now {
            return base.wake(engine, start, index);
        }
        let slot = &mut self.slots[index as usize];
        match slot.script.next(now, latency) {
            Action::End => self.end(base, engine, index),
            Action::Wait(pause) => {
                slot.stage = Stage::Asking(None);
                base.wake(engine, now + pause.max(PAUSE_MIN), index);
            }
            Action::Call { operation, offset, length } => {
                let fits =
                    offset.0.checked_add(length.0).is_some_and(|end| end <= base.file_size.0);
                let flush = operation == Operation::Flush;
                assert!(flush || (length > Sectors::ZERO && fits), "calls end within the file");
                (slot.operation, slot.offset, slot.length) = (operation, offset, length);
                (slot.stage, slot.started) = (Stage::Starting, now);
                let direction = direction(operation);
                if let Some(direction) = direction {
                    base.pacer.issue_in(direction, length.bytes());
                }
                let at = now + base.draw_turnaround(direction.unwrap_or(Direction::Write));
                base.wake(engine, at, index);
            }
        }
    }
    fn end(&mut self, base: &mut Base, engine: &mut Engine<'_>, index: u32) {
        self.slots[index as usize].stage = Stage::Over;
        if self.slots.iter().all(|slot| matches!(slot.stage, Stage::Over)) {
            base.end(engine);
        }
    }

    fn send(&mut self, base: &Base, engine: &mut Engine<'_>, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Slot { operation, offset, length, .. } = *slot;
        slot.stage = Stage::Data;
        slot.parts = match operation {
            Operation::Flush => base.flush(engine, index),
            _ => {
                let sync = if operation == Operation::Write { Flags::SYNC } else { Flags::NONE };
                let flags = base.flags().with(sync);
                base.send(
                    engine,
                    Range { slot: index, operation, flags, offset, length },
                    self.longest,
                )
            }
        };
    }

    pub(crate) fn on_done(
        &mut self,
        base: &mut Base,
        engine: &mut Engine<'_>,
        done: SlotCompletion,
    ) {
        let slot = &mut self.slots[done.slot as usize];
        slot.parts -= 1;
        if slot.parts > 0 {
            return;
        }
        let runs = engine.now + base.process_wakeup;
        let latency = runs.since(slot.started);
        match direction(slot.operation) {
            Some(direction) => {
                base.tally.count(direction, engine.now, slot.length.bytes(), latency);
            }
            None => base.tally.count_sync(engine.now, latency),
        }
        slot.stage = Stage::Asking(Some(latency));
        base.wake(engine, runs, done.slot);
    }
}
