//! Processes: what each does between its calls, and what it sees of them.
//!
//! The kinds: [`direct`] (one request or several for each call, no page cache; buffered random reads
//! are the same, because nothing is read ahead for them), [`read_ahead`] (buffered sequential reads),
//! [`together`] (those of processes that share a file),
//! [`mod@write`] (buffered writes), [`copy`] (reads and writes), [`startup`] (a recorded start-up) and [`program`] (code of the
//! caller). Each is a
//! state machine that is woken by its timers ([`Process::on_timer`]) and by the completions of its requests
//! ([`Process::on_done`]).

pub(crate) mod base;
pub(crate) mod cached;
pub(crate) mod choose;
pub(crate) mod copy;
pub(crate) mod direct;
mod groups;
pub(crate) mod least_rate;
pub(crate) mod pace;
mod places;
pub(crate) mod program;
pub(crate) mod read_ahead;
pub(crate) mod search;
pub(crate) mod startup;
pub(crate) mod tally;
#[cfg(test)]
mod tests;
pub(crate) mod together;
pub(crate) mod write;

use iofair_core::time::Instant;

use crate::cache::Cache;
use crate::engine::Engine;
use crate::scenario::{Direction, Pattern};
use base::{Base, SlotCompletion};
use tally::Tally;

impl Pattern {
    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Self::SequentialWrite | Self::RandomWrite)
    }
    /// What its calls do.
    pub fn direction(self) -> Direction {
        if self.writes() { Direction::Write } else { Direction::Read }
    }
    /// Whether it is sequential.
    pub fn is_sequential(self) -> bool {
        matches!(self, Self::SequentialRead | Self::SequentialWrite)
    }
}

/// One process.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) base: Base,
    pub(crate) kind: Kind,
}

/// How it does its calls.
pub(crate) enum Kind {
    Direct(direct::Direct),
    ReadAhead(read_ahead::ReadAhead),
    Together(together::Together),
    Write(write::Write),
    Copy(copy::Copy),
    Startup(startup::Startup),
    Program(program::Programmed),
}

impl Process {
    /// One of its timers is due; the first ones are set by the world, one a slot.
    pub(crate) fn on_timer(&mut self, engine: &mut Engine<'_>, cache: &mut Cache, slot: u32) {
        match &mut self.kind {
            Kind::Direct(direct) => direct.on_timer(&mut self.base, engine, cache, slot),
            Kind::ReadAhead(reader) => reader.on_timer(&mut self.base, engine, cache),
            Kind::Together(reader) => reader.on_timer(&mut self.base, engine, cache),
            Kind::Write(writer) => writer.on_timer(&mut self.base, engine, cache),
            Kind::Copy(copy) => copy.on_timer(&mut self.base, engine, cache),
            Kind::Startup(startup) => startup.on_timer(&mut self.base, engine),
            Kind::Program(program) => program.on_timer(&mut self.base, engine, slot),
        }
    }
    /// One of its requests is completed.
    pub(crate) fn on_done(
        &mut self,
        engine: &mut Engine<'_>,
        cache: &mut Cache,
        done: SlotCompletion,
    ) {
        match &mut self.kind {
            Kind::Direct(direct) => direct.on_done(&mut self.base, engine, cache, done),
            Kind::ReadAhead(reader) => reader.on_done(&mut self.base, engine, cache, done.slot),
            Kind::Together(reader) => reader.on_done(engine, cache, done.slot),
            Kind::Write(writer) => writer.on_done(&mut self.base, engine, cache, done),
            Kind::Copy(copy) => copy.on_done(&mut self.base, engine, cache, done.slot),
            Kind::Startup(startup) => startup.on_done(&mut self.base, engine, done.slot),
            Kind::Program(program) => program.on_done(&mut self.base, engine, done),
        }
    }
    /// What it got by the end of the run.
    pub(crate) fn into_tally(mut self, end: Instant) -> Tally {
        if let Kind::Startup(startup) = &self.kind {
            startup.note_unfinished(&mut self.base.tally, end);
        }
        self.base.tally
    }
    /// Calls in flight that its search found.
    pub(crate) fn depth_found(&self) -> Option<u32> {
        match &self.kind {
            Kind::Direct(direct) => direct.depth_found(),
            _ => None,
        }
    }
    /// Timers to start with: one a slot.
    pub(crate) fn slots(&self) -> u32 {
        match &self.kind {
            Kind::Direct(direct) => direct.depth(),
            Kind::Program(program) => program.depth(),
            _ => 1,
        }
    }
}
