//! A solid-state drive: the simplest structure that fits measurements of three drives and the data sheets of a
//! fourth.
//!
//! ```text
//!            slots   firmware          flash units         link
//! read  ──▶ [ Q ] ──▶ c each ──▶ list ──▶ pages, FIFO ──▶ one page a turn ──▶ complete
//! write ──▶ [   ] ──▶ c each ──▶ room in the cache? ────▶ whole command ────▶ complete, then program
//! flush: alone in the drive; programs all that is cached, waits, then its own time (protected cache: only that)
//! ```
//!
//! This is a discrete-event machine in integer nanoseconds. Plain FIFO servers (firmware, flash units) need no
//! events: the end of a job is computed when it is queued. What remains is a ring of commands in the firmware, a heap
//! of pages in units, and the link. Pages that become ready while the link is busy are processed when it becomes
//! free, because nothing else depends on them. Events of the same instant happen in the order of [`Event`]; a
//! submission comes after all events up to its instant.
//!
//! `lab/docs/drives.md` explains the parameters, what determines each of them, and the errors of the model.

mod completion;
mod flash;
mod ftl;
mod parameters;
mod read;
mod slots;
#[cfg(test)]
mod tests;
mod write;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

pub use self::parameters::{
    DeepQueue, DeepQueueTable, Duplex, Ftl, FtlTable, LinkOrder, Parameters, Slc, SlcTable, State,
    Suspend, SuspendTable, Table,
};

use self::flash::Flash;
use self::read::ReadPath;
use self::slots::{Held, Slot, Slots};
use self::write::WritePath;
use crate::{Command, Done, Drive};

/// "Input/output error": the status of a command beyond the end of the drive.
const EIO: i32 = 5;

/// A drive without commands for this long is idle.
const IDLE: u64 = 100_000_000;

/// The next thing inside the drive, in the order of one instant.
#[derive(Clone, Copy, Debug)]
enum Event {
    ReadLink,
    WriteLink,
    Timer,
    Room,
    Firmware,
    Setup,
    Page,
}

/// What crosses a link now.
#[derive(Clone, Copy, Debug)]
enum Crossing {
    Page(Slot),
    Write(Slot),
}

/// One server of the link.
#[derive(Clone, Copy, Default, Debug)]
struct Link {
    crossing: Option<Crossing>,
    free_at: u64,
}

/// A solid-state drive.
#[derive(Debug)]
pub struct Ssd {
    parameters: Parameters,
    /// Nanoseconds of link time a byte, times 2^32.
    link_scale: u64,
    now: u64,
    /// What [`Self::upcoming`] says, kept because owners ask often; `u64::MAX` is never.
    next: (u64, Event),
    slots: Slots,
    /// Commands not accepted yet: a flush that waits for the drive to be empty, and all behind it.
    waiting: VecDeque<Slot>,
    accepted: u32,
    flushing: bool,
    /// Commands in the firmware and when it is done with each, in order.
    firmware: VecDeque<(u64, Slot)>,
    firmware_free: u64,
    /// Large reads in their set-up time, in order.
    setup: VecDeque<(u64, Slot)>,
    /// Whether commands wait behind a write that waits.
    in_order: bool,
    flash: Flash,
    reads: ReadPath,
    writes: WritePath,
    /// The link; with full duplex only its reads.
    link: Link,
    /// The write direction with full duplex; otherwise unused.
    write_link: Link,
    wrote_last: bool,
    /// Completions that wait for an instant: flushes and durable writes.
    timers: BinaryHeap<Reverse<(u64, Slot)>>,
    /// Completed, not yet handed out.
    completed: VecDeque<Done>,
    busy_since: u64,
    idle_since: u64,
    busy: u64,
}

impl Ssd {
    /// A drive at rest. `seed` names its page times.
    pub fn new(parameters: Parameters, seed: u64) -> Self {
        let depth = parameters.slots as usize;
        let scale = (1_000_000_000u128 << 32) / u128::from(parameters.link);
        Self {
            link_scale: u64::try_from(scale).expect("a link of at least one byte a second"),
            now: 0,
            next: (u64::MAX, Event::Page),
            slots: Slots::new(parameters.slots),
            waiting: VecDeque::with_capacity(depth),
            accepted: 0,
            flushing: false,
            firmware: VecDeque::with_capacity(depth),
            firmware_free: 0,
            setup: VecDeque::with_capacity(depth),
            in_order: parameters.ftl.is_some_and(|ftl| ftl.in_order),
            flash: Flash::new(&parameters, seed),
            reads: ReadPath::new(&parameters),
            writes: WritePath::new(&parameters),
            link: Link::default(),
            write_link: Link::default(),
            wrote_last: false,
            timers: BinaryHeap::with_capacity(depth),
            completed: VecDeque::with_capacity(depth),
            busy_since: 0,
            idle_since: 0,
            busy: 0,
            parameters,
        }
    }
    /// The parameters of the model.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The next event and its instant. Two questions are asked only if the result can matter: a page
    /// that becomes ready matters when the link is idle, room in the cache when a write waits for it.
    fn upcoming(&self) -> (u64, Event) {
        let mut next = (u64::MAX, Event::Page);
        let mut consider = |at: u64, event| {
            if at < next.0 {
                next = (at, event);
            }
        };
        if self.link.crossing.is_some() {
            consider(self.link.free_at, Event::ReadLink);
        }
        if self.write_link.crossing.is_some() {
            consider(self.write_link.free_at, Event::WriteLink);
        }
        if let Some(&Reverse((at, _))) = self.timers.peek() {
            consider(at, Event::Timer);
        }
        if let Some(at) = self.writes.next_room() {
            consider(at, Event::Room);
        }
        if let Some(&(at, _)) = self.firmware.front().filter(|_| !self.is_held_up()) {
            consider(at.max(self.now), Event::Firmware);
        }
        if let Some(&(at, _)) = self.setup.front() {
            consider(at, Event::Setup);
        }
        if self.link.crossing.is_none()
            && let Some(at) = self.reads.next_page()
        {
            consider(at, Event::Page);
        }
        next
    }

    /// Whether commands wait behind a write that waits for room in the cache.
    fn is_held_up(&self) -> bool {
        self.in_order && self.flash.is_pressed
    }

    /// Lets everything up to `until` happen.
    fn run(&mut self, until: u64) {
        while self.next.0 <= until && self.next.0 < u64::MAX {
            self.run_next();
        }
    }
    fn run_next(&mut self) {
        self.now = self.next.0;
        self.happen(self.next.1);
        self.next = self.upcoming();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ReadLink => {
                let crossing = self.link.crossing.take().expect("the link was busy");
                self.crossed(crossing);
                self.start_link();
            }
            Event::WriteLink => {
                let crossing = self.write_link.crossing.take().expect("the link was busy");
                self.crossed(crossing);
                self.start_link();
            }
            Event::Timer => {
                let Reverse((_, slot)) = self.timers.pop().expect("a timer ran out");
                self.flushing &= self.slots[slot].operation != Operation::Flush;
                self.complete(slot, 0);
            }
            Event::Room => {
                self.writes.admit(self.now, &self.slots, &mut self.flash);
                self.start_link();
            }
            Event::Firmware => {
                let (_, slot) = self.firmware.pop_front().expect("the firmware was busy");
                self.understood(slot);
            }
            Event::Setup => {
                let (_, slot) = self.setup.pop_front().expect("a set-up ended");
                self.list_read(slot);
            }
            Event::Page => self.start_link(),
        }
    }

    /// Accepts commands of the host's FIFO. A flush enters an empty drive only, and nothing enters
    /// while it runs; unless the cache is protected, when it is a command like others.
    fn accept(&mut self) {
        while let Some(&slot) = self.waiting.front() {
            let drains =
                self.slots[slot].operation == Operation::Flush && !self.parameters.protected;
            let blocked = self.flushing || (drains && self.accepted > 0);
            if blocked || self.accepted == self.parameters.slots {
                return;
            }
            self.waiting.pop_front();
            self.enter(slot);
        }
    }

    fn enter(&mut self, slot: Slot) {
        self.accepted += 1;
        let time = match self.slots[slot].operation {
            Operation::Flush if !self.parameters.protected => {
                self.flushing = true;
                let empty = self.writes.flush(self.now, &mut self.flash);
                self.timers.push(Reverse((empty + self.parameters.flush.0, slot)));
                return;
            }
            Operation::Read => self.parameters.firmware_read,
            // Giving sectors back and writing zeroes change the drive's tables only.
            Operation::Flush | Operation::Write | Operation::Discard | Operation::WriteZeroes => {
                self.parameters.firmware_write
            }
        };
        self.firmware_free = self.firmware_free.max(self.now) + time.0;
        self.firmware.push_back((self.firmware_free, slot));
    }

    /// The firmware is done with a command.
    fn understood(&mut self, slot: Slot) {
        let held = &self.slots[slot];
        if held.operation == Operation::Flush {
            let end = self.now + self.parameters.flush.0;
            return self.timers.push(Reverse((end, slot)));
        }
        if held.end > self.parameters.capacity {
            return self.complete(slot, EIO);
        }
        if held.bytes() == 0 {
            return self.complete(slot, 0);
        }
        match held.operation {
            Operation::Read => {
                if self.parameters.large_setup.0 > 0 && held.bytes() >= read::LARGE_BYTES {
                    self.setup.push_back((self.now + self.parameters.large_setup.0, slot));
                } else {
                    self.list_read(slot);
                }
            }
            Operation::Write => {
                self.writes.list(slot);
                self.writes.admit(self.now, &self.slots, &mut self.flash);
                self.start_link();
            }
            _ => {
                self.flash.trim(held.start, held.end);
                self.complete(slot, 0);
            }
        }
    }

    fn list_read(&mut self, slot: Slot) {
        self.reads.list(&mut self.slots, slot, self.flash.units());
        self.reads.admit(self.now, &mut self.slots, &mut self.flash, self.accepted);
    }

    /// Something reached the host's end of the link, or a whole write the drive's.
    fn crossed(&mut self, crossing: Crossing) {
        match crossing {
            Crossing::Page(slot) => {
                if self.reads.crossed(&mut self.slots, slot) {
                    self.complete(slot, 0);
                }
                self.reads.admit(self.now, &mut self.slots, &mut self.flash, self.accepted);
            }
            Crossing::Write(slot) => {
                let held = &self.slots[slot];
                self.flash.write(held.start, held.end);
                let (bytes, durable) = (held.bytes(), held.durable && !self.parameters.protected);
                match self.writes.crossed(self.now, &mut self.flash, bytes, durable) {
                    Some(durable) => {
                        self.timers.push(Reverse((durable + self.parameters.flush.0, slot)));
                    }
                    None => self.complete(slot, 0),
                }
                self.writes.admit(self.now, &self.slots, &mut self.flash);
            }
        }
    }

    /// Puts the next page or write on each idle server of the link.
    fn start_link(&mut self) {
        if self.link.crossing.is_none() {
            self.reads.collect(self.now, &mut self.slots);
            let write_first = self.parameters.duplex == Duplex::Half
                && self.writes.has_turn()
                && !(self.wrote_last && self.reads.has_turn());
            self.wrote_last = write_first;
            if write_first {
                self.link = self.cross_write();
            } else if let Some((slot, bytes)) = self.reads.take_turn(&mut self.slots) {
                self.link = self.cross(Crossing::Page(slot), bytes);
            }
        }
        if self.parameters.duplex == Duplex::Full && self.write_link.crossing.is_none() {
            self.write_link = self.cross_write();
        }
    }
    fn cross_write(&mut self) -> Link {
        match self.writes.take_turn(&self.slots) {
            Some((slot, bytes)) => self.cross(Crossing::Write(slot), bytes),
            None => Link::default(),
        }
    }
    fn cross(&self, crossing: Crossing, bytes: u64) -> Link {
        Link { crossing: Some(crossing), free_at: self.now + self.link_time(bytes) }
    }
    fn link_time(&self, bytes: u64) -> u64 {
        let time = (u128::from(bytes) * u128::from(self.link_scale)).div_ceil(1 << 32);
        u64::try_from(time).expect("far below 584 years")
    }

    fn complete(&mut self, slot: Slot, status: i32) {
        let id = self.slots[slot].id;
        self.slots.remove(slot);
        self.accepted -= 1;
        self.completed.push_back(Done { id, at: Instant(self.now), status });
        if self.slots.len() == 0 {
            self.busy += self.now - self.busy_since;
            self.idle_since = self.now;
        }
        self.accept();
    }
}

impl Drive for Ssd {
    fn submit(&mut self, now: Instant, command: Command) {
        self.run(now.0);
        self.now = self.now.max(now.0);
        if self.slots.len() == 0 {
            let idle = self.now - self.idle_since;
            if idle >= IDLE {
                self.flash.rest(Nanos(idle));
            }
            self.busy_since = self.now;
        }
        let slot = self.slots.insert(Held::new(&command));
        self.waiting.push_back(slot);
        self.accept();
        self.next = self.upcoming();
    }

    fn next_event(&self) -> Option<Instant> {
        match self.completed.front() {
            Some(done) => Some(done.at),
            None => (self.next.0 < u64::MAX).then_some(Instant(self.next.0)),
        }
    }

    fn next_completion(&self) -> Option<Instant> {
        let next = self.next_event()?;
        Some(if self.completed.is_empty() { self.no_completion_before(next.0) } else { next })
    }

    fn run_to_completion(&mut self, limit: Instant) -> Option<Instant> {
        while self.completed.is_empty() && self.next.0 <= limit.0 && self.next.0 < u64::MAX {
            self.run_next();
        }
        self.next_event()
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Done>) {
        self.run(now.0);
        while let Some(completion) = self.completed.front().filter(|first| first.at <= now) {
            done.push(*completion);
            self.completed.pop_front();
        }
    }

    fn facts(&self) -> DriveFacts {
        DriveFacts {
            rotational: false,
            depth: self.parameters.slots,
            max_request: Sectors(self.parameters.max_request / 512),
            capacity: Sectors(self.parameters.capacity / 512),
        }
    }

    fn busy(&self) -> Nanos {
        let open = if self.slots.len() == 0 { 0 } else { self.now - self.busy_since };
        Nanos(self.busy + open)
    }

    fn worst_case_rate(&self) -> u64 {
        self.parameters.worst_case
    }
}
