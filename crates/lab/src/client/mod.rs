//! Processes: what each does between its calls, and what it sees of them.
//!
//! The kinds: [`direct`] (one request or several for each call, no page cache; buffered random reads
//! are the same, because nothing is read ahead for them), [`read_ahead`] (buffered sequential reads),
//! [`together`] (those of processes that share a file),
//! [`mod@write`] (buffered writes), [`copy`] (reads and writes), [`startup`] (a recorded start-up) and [`program`] (code of the
//! caller). Each is a
//! state machine that is woken by its timers ([`Process::on_timer`]) and by the completions of its requests
//! ([`Process::on_done`]).

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

use iofair_core::group::ClientId;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::random::Random;

use crate::cache::Cache;
use crate::scenario::{Direction, Job, Pattern, Step};
use crate::sim::Token;
use crate::world::engine::{Engine, FileRange, NewRequest};
use choose::Chooser;
use least_rate::LeastRateCheck;
use pace::Pacer;
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

/// What every kind of process has.
pub(crate) struct Base {
    pub(crate) actor: u32,
    pub(crate) client: ClientId,
    /// As which client it makes calls of another priority.
    pub(crate) urgent: ClientId,
    /// Its file's place among the drive's files.
    pub(crate) file: usize,
    pub(crate) job: Job,
    /// Of its file.
    pub(crate) file_size: Sectors,
    pub(crate) pacer: Pacer,
    pub(crate) random: Random,
    pub(crate) tally: Tally,
    /// Of all its calls, unless a chooser says otherwise.
    pub(crate) direction: Direction,
    /// Chooses calls that differ from one another.
    pub(crate) chooser: Option<Chooser>,
    /// Calls since it thought, if it does not think after each.
    pub(crate) since_thought: u32,
    /// Its step, and when it ended.
    pub(crate) step: Option<Step>,
    pub(crate) ended: Option<Instant>,
    /// Whether it has made its last call.
    pub(crate) is_ending: bool,
    /// Its least rate, and whether that ended it.
    pub(crate) least_rate: Option<LeastRateCheck>,
    pub(crate) too_slow: bool,
    /// Before a read (or a trim) and before a write.
    pub(crate) turnaround: Nanos,
    pub(crate) turnaround_write: Nanos,
    /// From a completion until the process runs, if it slept.
    pub(crate) process_wakeup: Nanos,
    pub(crate) turnaround_spread: u32,
    /// Next offset of a sequential pattern.
    pub(crate) position: Sectors,
    /// Its place among processes that read one file together, and their number.
    pub(crate) interleaved: (u64, u64),
}

impl Base {
    fn token(&self, slot: u32) -> Token {
        Token { actor: self.actor, slot }
    }
    fn wake(&self, engine: &mut Engine<'_>, at: Instant, slot: u32) {
        engine.wake(at, self.token(slot));
    }
    /// The same after it has worked until then for this much processor time.
    fn wake_after(&self, engine: &mut Engine<'_>, (at, work): (Instant, Nanos), slot: u32) {
        engine.wake_after(at, work, self.token(slot));
    }
    /// It makes no further call if it gets less than its least rate.
    fn end_if_too_slow(&mut self, now: Instant) {
        let Some(check) = &mut self.least_rate else { return };
        if check.is_below(now, &self.tally) {
            self.too_slow = true;
            self.pacer.exhaust();
        }
    }
    /// Whether the next call has the other priority.
    fn draws_urgent(&mut self, direction: Direction) -> bool {
        let Some(urgent) = self.job.calls.urgent else { return false };
        let percent = urgent.percent.get(direction.index()).copied().unwrap_or(0);
        percent > 0 && self.random.chance(percent)
    }
    /// What all its requests carry.
    fn flags(&self) -> Flags {
        if self.job.metadata { Flags::METADATA } else { Flags::NONE }
    }
    /// Processor time before a request.
    fn draw_turnaround(&mut self, direction: Direction) -> Nanos {
        let turnaround = match direction {
            Direction::Write => self.turnaround_write,
            _ => self.turnaround,
        };
        match self.turnaround_spread {
            0 => turnaround,
            spread => Nanos(self.random.around(turnaround.0, spread)),
        }
    }
    /// Calls that it makes before it thinks.
    fn calls_before_thought(&self) -> u64 {
        let every = self.job.calls.think_every;
        every.map_or(u64::MAX, |every| u64::from(every.saturating_sub(self.since_thought).max(1)))
    }
    /// The pause after calls.
    fn think_after(&mut self, calls: u64) -> Nanos {
        let Some(every) = self.job.calls.think_every else { return self.job.think };
        self.since_thought += calls as u32;
        if self.since_thought < every {
            return Nanos::ZERO;
        }
        self.since_thought = 0;
        self.job.think
    }
    /// The pause between calls that are followed by one more before it thinks.
    fn think_between(&self) -> Nanos {
        if self.job.calls.think_every.is_some() { Nanos::ZERO } else { self.job.think }
    }
    /// Sets a timer for the next call; at the end of time there is none.
    fn wait_for_call(&mut self, engine: &mut Engine<'_>, at: Instant, slot: u32) {
        if at == Instant::MAX {
            return self.end(engine);
        }
        self.wake(engine, at, slot);
    }
    /// It has made its last call. If its time ends it, that is when it ends.
    fn end(&mut self, engine: &mut Engine<'_>) {
        if self.step.is_some() && !self.is_ending {
            self.is_ending = true;
            let over = self.pacer.is_exhausted() || self.pacer.stop() == Instant::MAX;
            let at = if over { engine.now } else { engine.now.max(self.pacer.stop()) };
            engine.ended.push((self.actor, at));
        }
    }
    /// It ends now, whatever it has in flight.
    pub(crate) fn stop_now(&mut self, now: Instant) {
        (self.is_ending, self.ended) = (true, Some(now));
        self.pacer.stop_at(now);
        self.tally.stop(now);
    }
    /// Its step begins; when its first call is due.
    pub(crate) fn begin_step(&mut self, now: Instant) -> Instant {
        let step = self.step.expect("it belongs to a step");
        let (start, ramp_end) = (now + step.delay, now + step.delay + step.ramp);
        let stop = step.time.map_or(Instant::MAX, |time| ramp_end + time);
        self.pacer.restart(start, ramp_end, stop);
        self.tally.restart(ramp_end);
        start
    }
    /// Whether no sync follows, since the last call is complete, as in fio.
    fn is_after_last_call(&self, now: Instant) -> bool {
        self.step.is_some() && (self.pacer.is_exhausted() || self.pacer.stop() <= now)
    }
    /// Its file is opened, or begun anew: what is cached of it goes if the job says so.
    pub(crate) fn invalidate(&self, engine: &Engine<'_>, cache: &mut Cache) {
        if self.job.calls.hits.is_some_and(|hits| hits.invalidate) {
            let pages = engine.files[self.file].pages(Sectors::ZERO, self.file_size);
            cache.resident.drop_range(&pages);
        }
    }
    /// A range of its file is in memory from now on.
    fn keep_in_memory(
        &self,
        engine: &Engine<'_>,
        cache: &mut Cache,
        (offset, length): (Sectors, Sectors),
    ) {
        if self.job.calls.hits.is_some() {
            cache.resident.insert(&engine.files[self.file].pages(offset, length));
        }
    }
    /// Whether a range of its file is in memory.
    fn is_in_memory(
        &self,
        engine: &Engine<'_>,
        cache: &mut Cache,
        (offset, length): (Sectors, Sectors),
    ) -> bool {
        let pages = || engine.files[self.file].pages(offset, length);
        self.job.calls.hits.is_some() && cache.resident.has(&pages())
    }
    /// Where the next call goes.
    fn next_offset(&mut self) -> Sectors {
        let block = self.job.block.0;
        if !self.job.pattern.is_sequential() {
            return Sectors(self.random.below(self.file_size.0 / block) * block);
        }
        let offset = self.position;
        let (index, of) = self.interleaved;
        let next = offset.0 + block * of;
        // A rest of the file that is shorter than a block is never reached.
        let ends = next + block > self.file_size.0;
        self.position = Sectors(if ends { block * index } else { next });
        offset
    }
    /// Sends a range of the file, in as many requests as its place and `longest` need; their number.
    fn send(&self, engine: &mut Engine<'_>, range: Range, longest: Sectors) -> u32 {
        self.send_as(self.client, engine, range, longest)
    }
    /// The same as another client.
    fn send_as(
        &self,
        client: ClientId,
        engine: &mut Engine<'_>,
        range: Range,
        longest: Sectors,
    ) -> u32 {
        let Range { slot, operation, flags, offset, length } = range;
        let (token, file) = (self.token(slot), self.file);
        engine.send(FileRange { token, client, operation, flags, file, offset, length, longest })
    }
    /// Sends a flush, one a drive; their number.
    fn flush(&self, engine: &mut Engine<'_>, slot: u32) -> u32 {
        engine.submit(NewRequest {
            token: self.token(slot),
            client: self.client,
            operation: Operation::Flush,
            flags: Flags::NONE,
            start: Sectors::ZERO,
            length: Sectors::ZERO,
        })
    }
}

/// A range of a file to be sent.
#[derive(Clone, Copy, Debug)]
struct Range {
    slot: u32,
    operation: Operation,
    flags: Flags,
    offset: Sectors,
    length: Sectors,
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

/// A completed request, as its process knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotCompletion {
    pub(crate) slot: u32,
    pub(crate) length: Sectors,
}
