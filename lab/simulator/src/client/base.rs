//! State that every kind of process has, and how it sends requests.

use iofair_core::id::ClientId;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::random::Random;

use super::choose::Chooser;
use super::least_rate::LeastRateCheck;
use super::pace::Pacer;
use super::tally::Tally;
use crate::cache::Cache;
use crate::engine::{Engine, FileRange, NewRequest};
use crate::scenario::{Direction, Job, Step};
use crate::sim::Token;

/// State that every kind of process has.
pub(crate) struct Base {
    pub(crate) actor: u32,
    pub(crate) client: ClientId,
    /// The client of calls with another priority.
    pub(crate) urgent: ClientId,
    /// Its file's place among the drive's files.
    pub(crate) file: usize,
    pub(crate) job: Job,
    /// Of its file.
    pub(crate) file_size: Sectors,
    pub(crate) pacer: Pacer,
    pub(crate) random: Random,
    pub(crate) tally: Tally,
    /// Direction of all its calls, unless a chooser sets it.
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
    pub(super) fn token(&self, slot: u32) -> Token {
        Token { actor: self.actor, slot }
    }
    pub(super) fn wake(&self, engine: &mut Engine<'_>, at: Instant, slot: u32) {
        engine.wake(at, self.token(slot));
    }
    /// The same for a timer that ends `work` of processor time.
    pub(super) fn wake_after(&self, engine: &mut Engine<'_>, at: Instant, work: Nanos, slot: u32) {
        engine.wake_after(at, work, self.token(slot));
    }
    /// It makes no further call if it gets less than its least rate.
    pub(super) fn end_if_too_slow(&mut self, now: Instant) {
        let Some(check) = &mut self.least_rate else { return };
        if check.is_below(now, &self.tally) {
            self.too_slow = true;
            self.pacer.exhaust();
        }
    }
    /// Whether the next call has the other priority.
    pub(super) fn draws_urgent(&mut self, direction: Direction) -> bool {
        let Some(urgent) = self.job.calls.urgent else { return false };
        let percent = urgent.percent.get(direction.index()).copied().unwrap_or(0);
        percent > 0 && self.random.chance(percent)
    }
    /// Flags of all its requests.
    pub(super) fn flags(&self) -> Flags {
        if self.job.metadata { Flags::METADATA } else { Flags::NONE }
    }
    /// Processor time before a request.
    pub(super) fn draw_turnaround(&mut self, direction: Direction) -> Nanos {
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
    pub(super) fn calls_before_thought(&self) -> u64 {
        let every = self.job.calls.think_every;
        every.map_or(u64::MAX, |every| u64::from(every.saturating_sub(self.since_thought).max(1)))
    }
    /// The pause after calls.
    pub(super) fn think_after(&mut self, calls: u64) -> Nanos {
        let Some(every) = self.job.calls.think_every else { return self.job.think };
        self.since_thought += calls as u32;
        if self.since_thought < every {
            return Nanos::ZERO;
        }
        self.since_thought = 0;
        self.job.think
    }
    /// The pause between calls that are followed by one more before it thinks.
    pub(super) fn think_between(&self) -> Nanos {
        if self.job.calls.think_every.is_some() { Nanos::ZERO } else { self.job.think }
    }
    /// Sets a timer for the next call; at `Instant::MAX` there is no further call.
    pub(super) fn wait_for_call(&mut self, engine: &mut Engine<'_>, at: Instant, slot: u32) {
        if at == Instant::MAX {
            return self.end(engine);
        }
        self.wake(engine, at, slot);
    }
    /// It has made its last call. If its time ends it, that is when it ends.
    pub(super) fn end(&mut self, engine: &mut Engine<'_>) {
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
    /// Its step begins; when its first call is due, and when its warm-up ends.
    pub(crate) fn begin_step(&mut self, now: Instant) -> (Instant, Instant) {
        let step = self.step.expect("it belongs to a step");
        let (start, ramp_end) = (now + step.delay, now + step.delay + step.ramp);
        let stop = step.time.map_or(Instant::MAX, |time| ramp_end + time);
        self.pacer.restart(start, ramp_end, stop);
        self.tally.restart(ramp_end);
        (start, ramp_end)
    }
    /// Whether no sync follows, since the last call is complete: fio makes one only where it would make a further call.
    pub(super) fn is_after_last_call(&self, now: Instant) -> bool {
        let is_exhausted = self.pacer.is_exhausted() && !self.job.calls.last_sync;
        self.step.is_some() && (is_exhausted || self.pacer.stop() <= now)
    }
    /// The file is opened or read again from its beginning: drops its cached pages if the job says so.
    pub(crate) fn invalidate(&self, engine: &Engine<'_>, cache: &mut Cache) {
        if self.job.calls.hits.is_some_and(|hits| hits.invalidate) {
            let pages = engine.files[self.file].pages(Sectors::ZERO, self.file_size);
            cache.resident.drop_range(&pages);
        }
    }
    /// A range of its file is in memory from now on.
    pub(super) fn keep_in_memory(
        &self,
        engine: &Engine<'_>,
        cache: &mut Cache,
        offset: Sectors,
        length: Sectors,
    ) {
        if self.job.calls.hits.is_some() {
            cache.resident.insert(&engine.files[self.file].pages(offset, length));
        }
    }
    /// Whether a range of its file is in memory.
    pub(super) fn is_in_memory(
        &self,
        engine: &Engine<'_>,
        cache: &mut Cache,
        offset: Sectors,
        length: Sectors,
    ) -> bool {
        let pages = || engine.files[self.file].pages(offset, length);
        self.job.calls.hits.is_some() && cache.resident.hit(&pages())
    }
    /// Where the next call goes.
    pub(super) fn next_offset(&mut self) -> Sectors {
        let block = self.job.block.0;
        if !self.job.pattern.is_sequential() {
            return Sectors(self.random.below(self.file_size.0 / block) * block);
        }
        let offset = self.position;
        let (index, of) = self.interleaved;
        let next = offset.0 + block * of;
        // An incomplete block at the end of the file is never read.
        let ends = next + block > self.file_size.0;
        self.position = Sectors(if ends { block * index } else { next });
        offset
    }
    /// Sends a range of the file, in as many requests as its place and `longest` need; their number.
    pub(super) fn send(&self, engine: &mut Engine<'_>, range: Range, longest: Sectors) -> u32 {
        self.send_as(self.client, engine, range, longest)
    }
    /// The same as another client.
    pub(super) fn send_as(
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
    pub(super) fn flush(&self, engine: &mut Engine<'_>, slot: u32) -> u32 {
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
pub(super) struct Range {
    pub(super) slot: u32,
    pub(super) operation: Operation,
    pub(super) flags: Flags,
    pub(super) offset: Sectors,
    pub(super) length: Sectors,
}

/// A completed request, as its process knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotCompletion {
    pub(crate) slot: u32,
    pub(crate) length: Sectors,
}
