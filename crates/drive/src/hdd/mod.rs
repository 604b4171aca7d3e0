//! A hard disk: one arm, queued commands, read-ahead of streams, and a write-back cache.
//!
//! This is the simplest structure that fits the measured disks (lab/docs/drives.md has the errors). The geometry has
//! zones and a seek curve. A command that arrives too late loses a revolution. The head reads ahead only after it has
//! seen a stream three times. The next command is chosen when the arm becomes free: nearest first with ageing, or in
//! order of arrival. Writes complete from memory, which the single processor handles between reads and destages.
//! Cached data is written, nearest first, when the host is silent or memory is nearly full. No command waits longer
//! for the arm than its age limit allows.

mod cache;
mod geometry;
mod parameters;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iofair_core::policy::DriveFacts;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use crate::{Command, Done, Drive};
use cache::{REACH, ReadCache, WriteCache};
use geometry::{BLOCK_SECTORS, Geometry, Place};
use parameters::BLOCK_BYTES;
pub use parameters::{Mechanics, Order, Parameters, Table};

/// Status of a command that lies beyond the end of the disk (EIO).
const BEYOND_THE_END: i32 = 5;
/// A destage writes at most this many blocks at once (1 MiB).
const DESTAGE_MAX: u64 = 256;
/// Dirty runs looked at on each side of the head.
const DESTAGE_CHOICE: usize = 48;
/// No destage so soon after a command, or after the completion of one: the host may go on. Between 1 and 20 ms
/// the rows of the random writers are the same; those of the journal need more than the 8 ms for which
/// schedulers idle.
const QUIET: Nanos = Nanos::from_millis(20);
/// Of a hundred parts of the cache: above the first the disk destages before all else, until the second.
const DRAIN: (u64, u64) = (90, 50);
/// The stream counter's range and steps, and from where on the head reads on.
const STREAM_MAX: i32 = 3;
const STREAM_MIN: i32 = -1;
const STREAM_FORGET: i32 = 2;
const STREAM_READS_ON: i32 = 2;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    command: Command,
    arrived: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Read(Waiting),
    WriteThrough(Waiting),
    Destage,
}

#[derive(Clone, Copy, Debug)]
struct Busy {
    work: Work,
    until: Instant,
    end_block: u64,
}

/// A hard disk as a [`Drive`].
pub struct Hdd {
    parameters: Parameters,
    geometry: Geometry,
    reads: VecDeque<Waiting>,
    /// Writes that wait for room in the cache.
    writes: VecDeque<Waiting>,
    /// The flush in flight.
    flush: Option<Waiting>,
    /// Its completion is on the way.
    flush_completed: bool,
    /// Commands that came after a flush.
    held: VecDeque<Waiting>,
    busy: Option<Busy>,
    /// When, which command, with what status.
    completions: BinaryHeap<Reverse<(Instant, u32, i32)>>,
    outstanding: u32,
    read_cache: ReadCache,
    write_cache: WriteCache,
    /// Block after the last one that the head touched.
    head: u64,
    stream: i32,
    last_read_end: u64,
    /// The cache was nearly full and is emptied before all else.
    draining: bool,
    /// When the host last sent a command or got a completion.
    last_heard: Instant,
    /// The head reads on for a command that is not completed before this.
    promised: Instant,
    /// A time at which destaging may start again though nothing else happens.
    recheck: Option<Instant>,
    busy_since: Option<Instant>,
    busy_total: Nanos,
    last_event: Instant,
}

fn blocks_of(command: &Command) -> (u64, u64) {
    let start = command.start.0 / BLOCK_SECTORS;
    let end = (command.start + command.length).0.div_ceil(BLOCK_SECTORS);
    (start, end.max(start + 1))
}

impl Hdd {
    /// A disk at rest, its arm over the first block.
    pub fn new(parameters: Parameters) -> Self {
        Self {
            geometry: Geometry::new(parameters.mechanics.clone()),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            flush: None,
            flush_completed: false,
            held: VecDeque::new(),
            busy: None,
            completions: BinaryHeap::new(),
            outstanding: 0,
            read_cache: ReadCache::new(parameters.segments, parameters.read_ahead),
            write_cache: WriteCache::default(),
            head: 0,
            stream: 0,
            last_read_end: u64::MAX,
            draining: false,
            last_heard: Instant::ZERO,
            promised: Instant::ZERO,
            recheck: None,
            busy_since: None,
            busy_total: Nanos::ZERO,
            last_event: Instant::ZERO,
            parameters,
        }
    }
    fn bus(&self, blocks: u64) -> Nanos {
        Nanos::for_units_ceil(blocks * BLOCK_BYTES, self.parameters.bus)
    }
    fn is_beyond(&self, command: &Command) -> bool {
        (command.start + command.length).0 > self.geometry.blocks() * BLOCK_SECTORS
    }
    fn complete(&mut self, at: Instant, command: Command) {
        let status = if self.is_beyond(&command) { BEYOND_THE_END } else { 0 };
        self.completions.push(Reverse((at, command.id, status)));
    }

    /// A command reaches the drive's own logic: served from memory or queued for the arm.
    fn take(&mut self, now: Instant, waiting: Waiting) {
        let command = waiting.command;
        if self.is_beyond(&command) {
            return self.complete(now + self.parameters.overhead_read, command);
        }
        match command.operation {
            Operation::Flush => self.flush = Some(waiting),
            Operation::Read => {
                if !self.read_from_memory(now, waiting) {
                    self.reads.push_back(waiting);
                }
            }
            Operation::Write if command.flags.has(Flags::FUA) => self.reads.push_back(waiting),
            Operation::Write | Operation::WriteZeroes => self.writes.push_back(waiting),
            Operation::Discard => {
                let done = now + self.parameters.overhead_write;
                self.complete(done, command);
            }
        }
    }
    fn count_stream(&mut self, start: u64, end: u64) {
        self.stream = if start == self.last_read_end {
            (self.stream + 1).min(STREAM_MAX)
        } else {
            (self.stream - STREAM_FORGET).max(STREAM_MIN)
        };
        self.last_read_end = end;
    }
    fn read_from_memory(&mut self, now: Instant, waiting: Waiting) -> bool {
        let (start, end) = blocks_of(&waiting.command);
        let ready = if self.write_cache.holds(start, end) {
            Some(now)
        } else {
            self.read_cache.hit(now, start, end)
        };
        let Some(ready) = ready else { return false };
        self.count_stream(start, end);
        let overhead = self.parameters.overhead_read;
        let done = ready + overhead + self.bus(end - start);
        self.promised = self.promised.max(ready);
        self.complete(done, waiting.command);
        true
    }
    /// Completes writes for which there is room in memory, in order.
    fn accept_writes(&mut self, now: Instant) {
        while let Some(waiting) = self.writes.front() {
            let (start, end) = blocks_of(&waiting.command);
            let room = self.parameters.write_cache.saturating_sub(self.write_cache.blocks());
            if end - start > room && !self.write_cache.is_empty() {
                return;
            }
            let waiting = self.writes.pop_front().expect("just looked at");
            self.write_cache.insert(start, end);
            self.read_cache.invalidate(start, end);
            // One processor: it does not turn to the write before the work on the arm is over.
            let begin = self.busy.map_or(now, |busy| busy.until);
            let done = begin + self.parameters.overhead_write + self.bus(end - start);
            self.complete(done, waiting.command);
        }
    }

    /// Gives the arm its next work, if it is free and there is any.
    fn start_next(&mut self, now: Instant) {
        self.recheck = None;
        self.accept_writes(now);
        while self.busy.is_none() {
            self.finish_flush(now);
            let drains = self.drains();
            if self.keeps_to_a_stream(now) {
                self.recheck = Some(self.promised);
                return;
            }
            let waits = drains && !self.is_aged(now);
            if let Some(index) = self.choose_command(now).filter(|_| !waits) {
                let waiting = self.reads.remove(index).expect("chosen from the queue");
                let is_read = waiting.command.operation == Operation::Read;
                if !(is_read && self.read_from_memory(now, waiting)) {
                    self.start_command(now, waiting);
                }
            } else if !self.start_destage(now) {
                return;
            }
        }
    }
    /// A flush is over when all before it is completed and nothing is dirty any more.
    fn finish_flush(&mut self, now: Instant) {
        let Some(flush) = self.flush else { return };
        if self.flush_completed || self.outstanding > 1 || !self.write_cache.is_empty() {
            return;
        }
        self.flush_completed = true;
        self.complete(now + self.parameters.flush, flush.command);
    }
    /// The oldest command has waited so long that it goes before nearer ones, streams and destages.
    fn is_aged(&self, now: Instant) -> bool {
        let oldest = self.reads.front();
        oldest.is_some_and(|read| now.since(read.arrived) > self.parameters.age)
    }
    /// With many commands at once those that go on where the head is come before all others.
    fn streams_first(&self, now: Instant) -> bool {
        self.outstanding > self.parameters.streams_above && !self.is_aged(now)
    }
    /// Whether the head reads on towards the blocks of a command: until it reaches them, no other command moves the arm.
    fn keeps_to_a_stream(&self, now: Instant) -> bool {
        self.promised > now && self.flush.is_none() && self.streams_first(now)
    }
    fn choose_command(&self, now: Instant) -> Option<usize> {
        self.reads.front()?;
        if self.streams_first(now) {
            let at = self.read_cache.reading_at(now).unwrap_or(self.head);
            let goes_on = |read: &Waiting| (at..=at + REACH).contains(&blocks_of(&read.command).0);
            if let Some(index) = self.reads.iter().position(goes_on) {
                return Some(index);
            }
        }
        if self.parameters.order == Order::Fcfs || self.is_aged(now) {
            return Some(0);
        }
        let distance = |waiting: &Waiting| blocks_of(&waiting.command).0.abs_diff(self.head);
        (0..self.reads.len()).min_by_key(|index| (distance(&self.reads[*index]), *index))
    }
    fn place_of_head(&self) -> Place {
        self.geometry.place(self.head.saturating_sub(1))
    }
    fn start_command(&mut self, now: Instant, waiting: Waiting) {
        self.stop_reading_on(now);
        let (start, end) = blocks_of(&waiting.command);
        let write = waiting.command.operation != Operation::Read;
        if write {
            self.read_cache.invalidate(start, end);
        } else {
            self.count_stream(start, end);
            self.read_cache.make_room(start);
        }
        let begin = now + self.parameters.overhead_read;
        let place = self.geometry.place(start);
        let until = begin
            + self.geometry.position(begin, self.place_of_head(), place, write)
            + self.geometry.transfer(place, end - start);
        let work = if write { Work::WriteThrough(waiting) } else { Work::Read(waiting) };
        self.busy = Some(Busy { work, until, end_block: end });
    }
    fn stop_reading_on(&mut self, now: Instant) {
        if let Some(block) = self.read_cache.stop(now) {
            self.head = block;
        }
    }
    /// Whether it empties its cache before all else.
    fn drains(&mut self) -> bool {
        let dirty = self.write_cache.blocks() * 100;
        let room = self.parameters.write_cache;
        self.draining = match self.draining {
            false => dirty > room * DRAIN.0 || !self.writes.is_empty(),
            true => dirty > room * DRAIN.1,
        };
        self.draining
    }
    fn start_destage(&mut self, now: Instant) -> bool {
        if self.write_cache.is_empty() {
            return false;
        }
        let quiet = self.last_heard + QUIET;
        if (self.outstanding > 0 || quiet > now) && !self.draining && self.flush.is_none() {
            self.recheck = Some(quiet).filter(|at| *at > now);
            return false;
        }
        self.stop_reading_on(now);
        let from = self.place_of_head();
        let flushes = self.flush.is_some();
        let cost = |(start, end): &(u64, u64)| {
            let way = self.geometry.position(now, from, self.geometry.place(*start), true).0;
            // A flush has to write all; else what frees most memory for the way comes first.
            if flushes { way } else { way / (end - start).min(DESTAGE_MAX) }
        };
        let near = self.write_cache.near(self.head, DESTAGE_CHOICE);
        let (start, _) = near.min_by_key(cost).expect("the cache is not empty");
        let end = self.write_cache.take(start, DESTAGE_MAX);
        let place = self.geometry.place(start);
        let until = now
            + self.geometry.position(now, from, place, true)
            + self.geometry.transfer(place, end - start);
        self.busy = Some(Busy { work: Work::Destage, until, end_block: end });
        true
    }
    /// The arm has finished what it did.
    fn finish(&mut self, busy: Busy) {
        let now = busy.until;
        self.head = busy.end_block;
        match busy.work {
            Work::Read(waiting) => {
                let (start, end) = blocks_of(&waiting.command);
                let reads_on = self.stream >= STREAM_READS_ON;
                let per_block = self.geometry.streaming(self.geometry.place(end));
                self.read_cache.filled(now, start, end, reads_on.then_some(per_block));
                self.complete(now + self.bus(1), waiting.command);
            }
            Work::WriteThrough(waiting) => self.complete(now, waiting.command),
            Work::Destage => {}
        }
    }
    fn completed(&mut self, completion: Done, done: &mut Vec<Done>) {
        let Done { id, at, .. } = completion;
        self.outstanding -= 1;
        self.last_heard = at;
        done.push(completion);
        if self.outstanding == 0 {
            let since = self.busy_since.take().expect("busy while a command is outstanding");
            self.busy_total += at.since(since);
        }
        if self.flush.is_some_and(|flush| flush.command.id == id) {
            self.flush = None;
            self.flush_completed = false;
            let mut held = std::mem::take(&mut self.held);
            while let Some(waiting) = held.pop_front() {
                if self.flush.is_some() {
                    self.held.push_back(waiting);
                    continue;
                }
                self.outstanding += 1;
                self.busy_since.get_or_insert(at);
                self.take(at, waiting);
            }
        }
    }
}

impl Drive for Hdd {
    fn submit(&mut self, now: Instant, command: Command) {
        debug_assert!(self.next_event().is_none_or(|at| at >= now), "advance before submitting");
        let waiting = Waiting { command, arrived: now };
        if self.flush.is_some() {
            self.held.push_back(waiting);
            return;
        }
        self.outstanding += 1;
        self.busy_since.get_or_insert(now);
        self.last_heard = now;
        self.take(now, waiting);
        self.start_next(now);
    }
    fn next_event(&self) -> Option<Instant> {
        let completion = self.completions.peek().map(|Reverse((at, ..))| *at);
        let arm = self.busy.map(|busy| busy.until);
        completion.into_iter().chain(arm).chain(self.recheck).min()
    }
    fn advance(&mut self, now: Instant, done: &mut Vec<Done>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.last_event = at;
            if let Some(busy) = self.busy.filter(|busy| busy.until <= at) {
                self.busy = None;
                self.finish(busy);
            }
            while let Some(Reverse((when, id, status))) = self.completions.peek().copied() {
                if when > at {
                    break;
                }
                self.completions.pop();
                self.completed(Done { id, at: when, status }, done);
            }
            self.start_next(at);
        }
    }
    fn facts(&self) -> DriveFacts {
        DriveFacts {
            rotational: true,
            depth: self.parameters.slots,
            max_request: Sectors(self.parameters.max_request / 512),
            capacity: Sectors(self.geometry.blocks() * BLOCK_SECTORS),
        }
    }
    fn busy(&self) -> Nanos {
        let open = self.busy_since.map_or(Nanos::ZERO, |since| self.last_event.since(since));
        self.busy_total + open
    }
    fn worst_case_rate(&self) -> u64 {
        self.parameters.worst_case
    }
}
