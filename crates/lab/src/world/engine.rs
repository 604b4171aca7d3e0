//! The middle of the world: clock, timers, engine and drive, and what is measured at the drive. Engine and drive may
//! also be outside: then requests go there, and time comes from there.

use iofair_core::contract::Contract;
use iofair_core::controller::{Completion, Controller, Submission};
use iofair_core::group::{ClientId, GroupId};
use iofair_core::request::{CommandId, Flags, Operation, RequestId};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::random::Random;
use iofair_drive::stripe::Geometry;
use iofair_drive::{Command, Done, Drive};

use crate::observe::Observer;
use crate::outcome::DriveOutcome;
use crate::outside::{Outside, Reply};
use crate::sim::{Timers, Token};
use crate::world::layout::File;

/// What a command was, by its request's slot.
#[derive(Clone, Copy, Debug)]
struct Sent {
    command: CommandId,
    operation: Operation,
    bytes: u64,
}

/// A range of a file for [`Engine::send`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRange {
    pub(crate) token: Token,
    pub(crate) client: ClientId,
    pub(crate) operation: Operation,
    pub(crate) flags: Flags,
    /// The file's place among the drive's files.
    pub(crate) file: usize,
    pub(crate) offset: Sectors,
    pub(crate) length: Sectors,
    /// Longest request.
    pub(crate) longest: Sectors,
}

/// A controller and its drive. A stripe controlled at its leaves has several.
pub(crate) struct Lane {
    pub(crate) controller: Controller,
    pub(crate) drive: Box<dyn Drive + Send>,
    sent: Vec<Sent>,
    /// When the controller is asked for work, because something went in or out since it last was.
    run_at: Option<Instant>,
    /// Time of a request in the scheduler, under its lock, and when the lock is free.
    scheduler_time: Nanos,
    free_at: Instant,
    dispatcher: Option<Dispatcher>,
    /// Whether the controller is asked after every completion, or only after some.
    on_answer: bool,
}

/// The thread that asks the controller for work after an answer.
pub(crate) struct Dispatcher {
    pub(crate) wakeup: Nanos,
    pub(crate) spread: u32,
    pub(crate) random: Random,
}

impl Lane {
    pub(crate) fn new(controller: Controller, drive: Box<dyn Drive + Send>) -> Self {
        Self {
            controller,
            drive,
            sent: Vec::new(),
            run_at: None,
            scheduler_time: Nanos::ZERO,
            free_at: Instant::ZERO,
            dispatcher: None,
            on_answer: true,
        }
    }
    /// With what its scheduler costs.
    pub(crate) fn costing(mut self, time: Nanos, dispatcher: Option<Dispatcher>) -> Self {
        (self.scheduler_time, self.dispatcher) = (time, dispatcher);
        self
    }
    /// With when it is asked.
    pub(crate) fn asked(mut self, on_answer: bool) -> Self {
        self.on_answer = on_answer;
        self
    }
    fn run_by(&mut self, at: Instant) {
        self.run_at = Some(self.run_at.map_or(at, |known| known.min(at)));
    }
    /// A request went in: it takes its time in the scheduler, after those before it.
    fn on_submitted(&mut self, now: Instant) {
        self.free_at = self.free_at.max(now) + self.scheduler_time;
        self.run_by(self.free_at);
    }
    /// The drive answered. (A flush is given to the driver past the scheduler, after which blk-mq runs the queue
    /// with the next answer.)
    fn on_answered(&mut self, now: Instant, operation: Operation) {
        let flush = operation == Operation::Flush;
        if !self.on_answer && !flush && !self.controller.schedules_dispatch() {
            return;
        }
        let late = self.dispatcher.as_mut().map_or(Nanos::ZERO, |thread| {
            Nanos(thread.random.around(thread.wakeup.0, thread.spread))
        });
        self.run_by((now + late).max(self.free_at));
    }
    /// Hands the controller's events to the observer, so often that its ring never fills.
    fn hand_on_trace(&mut self, traced: bool, observer: &mut dyn Observer) {
        if traced {
            for event in self.controller.trace().drain() {
                observer.on_event(&event);
            }
        }
    }
    fn next_event(&self) -> Instant {
        let or_never = |at: Option<Instant>| at.unwrap_or(Instant::MAX);
        let engine = or_never(self.run_at).min(or_never(self.controller.next_wakeup()));
        or_never(self.drive.next_event()).min(engine)
    }
}

/// An answered request, as its actor knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) token: Token,
    pub(crate) length: Sectors,
}

/// Clock, timers, engine and drive.
pub(crate) struct Engine<'a> {
    pub(crate) now: Instant,
    pub(crate) timers: Timers,
    /// None when the engine is outside.
    lanes: Vec<Lane>,
    outside: Option<&'a mut dyn Outside>,
    /// How sectors of the whole lie on the lanes; `None` with one lane.
    geometry: Option<Geometry>,
    /// The drive's files, in the order of the processes.
    pub(crate) files: Vec<File>,
    /// Whether there is a journal that `fdatasync` waits for.
    pub(crate) journaled: bool,
    /// Who asked it for a commit since it last looked; woken when it is done.
    pub(crate) commits: Vec<Token>,
    observer: &'a mut dyn Observer,
    traced: bool,
    answered: Vec<Done>,
    completions: Vec<Completion>,
    replies: Vec<Reply>,
    measured_from: Instant,
    interval: Option<Nanos>,
    busy_before: Nanos,
    outcome: DriveOutcome,
    completed: u64,
    trace_hash: u64,
}

/// What an [`Engine`] is made of.
pub(crate) struct Parts<'a> {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) outside: Option<&'a mut dyn Outside>,
    pub(crate) geometry: Option<Geometry>,
    pub(crate) files: Vec<File>,
    pub(crate) observer: &'a mut dyn Observer,
    /// The end of the ramp.
    pub(crate) measured_from: Instant,
    /// Intervals in which bytes are also counted.
    pub(crate) interval: Option<Nanos>,
}

/// One request for [`Engine::submit`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) token: Token,
    pub(crate) client: ClientId,
    pub(crate) operation: Operation,
    pub(crate) flags: Flags,
    pub(crate) start: Sectors,
    pub(crate) length: Sectors,
}

impl<'a> Engine<'a> {
    pub(crate) fn new(parts: Parts<'a>) -> Self {
        let Parts { lanes, outside, geometry, files, observer, measured_from, interval } = parts;
        Self {
            now: Instant::ZERO,
            timers: Timers::new(),
            lanes,
            outside,
            geometry,
            files,
            journaled: false,
            commits: Vec::new(),
            traced: observer.trace_events() > 0,
            observer,
            answered: Vec::new(),
            completions: Vec::new(),
            replies: Vec::new(),
            measured_from,
            interval,
            busy_before: Nanos::ZERO,
            outcome: DriveOutcome::default(),
            completed: 0,
            trace_hash: FNV_OFFSET,
        }
    }

    /// When anything happens next.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let mut at = self.timers.next().unwrap_or(Instant::MAX);
        for lane in &self.lanes {
            at = at.min(lane.next_event());
        }
        (at < Instant::MAX).then(|| at.max(self.now))
    }

    /// Wakes an actor later.
    pub(crate) fn wake(&mut self, at: Instant, token: Token) {
        self.timers.set(at, token);
    }

    /// Sends a request into the engine; how many there are of it, one a drive that it concerns.
    pub(crate) fn submit(&mut self, ask: Ask) -> u32 {
        let Ask { token, client, operation, flags, start, length } = ask;
        let tag = token.pack();
        let Some(geometry) = self.geometry else {
            self.submit_to(0, Submission { tag, client, operation, flags, start, length });
            return 1;
        };
        let mut parts = 0;
        for lane in 0..geometry.drives {
            let piece = match operation {
                Operation::Flush => Some((start, length)),
                _ => geometry.piece(lane, start, length),
            };
            if let Some((start, length)) = piece {
                let submission = Submission { tag, client, operation, flags, start, length };
                self.submit_to(lane as usize, submission);
                parts += 1;
            }
        }
        parts
    }
    fn submit_to(&mut self, lane: usize, submission: Submission) {
        self.observer.on_submit(self.now, &submission);
        if let Some(outside) = &mut self.outside {
            return outside.submit(&submission);
        }
        let lane = &mut self.lanes[lane];
        let result = lane.controller.submit(self.now, submission);
        result.expect("files lie on the drive and the queue limit is above what clients can send");
        lane.on_submitted(self.now);
        lane.hand_on_trace(self.traced, self.observer);
    }

    /// Sends a range of a file in as many requests as its place and `longest` need; their number.
    pub(crate) fn send(&mut self, range: FileRange) -> u32 {
        let FileRange { token, client, operation, flags, file, longest, .. } = range;
        let (mut offset, mut length, mut parts) = (range.offset, range.length, 0);
        while length > Sectors::ZERO {
            let (start, piece) = self.files[file].place(offset, length.min(longest));
            parts += self.submit(Ask { token, client, operation, flags, start, length: piece });
            (offset, length) = (offset + piece, length - piece);
        }
        parts
    }

    /// Whether the process would sleep now that sends in this client's name.
    pub(crate) fn is_asleep(&self, client: ClientId) -> bool {
        if let Some(outside) = &self.outside {
            return outside.is_asleep(client);
        }
        self.lanes.iter().any(|lane| lane.controller.is_asleep(client))
    }

    /// Waits, where time passes outside, until `until` or an answer; the time then. `None`: it is over.
    pub(crate) fn wait(&mut self, until: Instant) -> Option<Instant> {
        let outside = self.outside.as_mut().expect("in virtual time nobody waits");
        outside.wait(until).map(|now| now.max(self.now))
    }

    /// Lets the drives come to the present, and appends what was answered to `done`.
    pub(crate) fn collect(&mut self, done: &mut Vec<Answer>) {
        let before = done.len();
        if let Some(outside) = &mut self.outside {
            outside.collect(&mut self.replies);
            let replies = self.replies.drain(..);
            let answer = |it: Reply| Answer { token: Token::unpack(it.tag), length: it.length };
            done.extend(replies.map(answer));
        }
        for index in 0..self.lanes.len() {
            self.collect_lane(index, done);
        }
        self.completed += (done.len() - before) as u64;
    }
    fn collect_lane(&mut self, index: usize, done: &mut Vec<Answer>) {
        let lane = &mut self.lanes[index];
        if lane.drive.next_event().is_none_or(|at| at > self.now) {
            return;
        }
        lane.drive.advance(self.now, &mut self.answered);
        for answer in self.answered.drain(..) {
            let id = RequestId(answer.id);
            self.observer.on_answer(self.now, id, answer.status);
            let Sent { command, operation, bytes } = lane.sent[answer.id as usize];
            if self.now > self.measured_from {
                let since = self.now.since(self.measured_from);
                count(&mut self.outcome, operation, bytes, self.interval.map(|it| (since, it)));
            }
            lane.controller
                .complete(self.now, command, answer.status, &mut self.completions)
                .expect("the drive has it");
            lane.on_answered(self.now, operation);
        }
        done.extend(self.completions.drain(..).map(|completion| {
            assert_eq!(completion.status, 0, "model drives answer without errors");
            let Completion { part, .. } = completion;
            Answer { token: Token::unpack(part.tag), length: part.length }
        }));
        lane.hand_on_trace(self.traced, self.observer);
    }

    /// Moves what the engine lets go to the drives. Without cause it does nothing.
    pub(crate) fn pump(&mut self) {
        if let Some(outside) = &mut self.outside {
            return outside.send();
        }
        for index in 0..self.lanes.len() {
            self.pump_lane(index);
        }
    }
    fn pump_lane(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let due = lane.controller.next_wakeup().is_some_and(|at| at <= self.now);
        if !due && lane.run_at.is_none_or(|at| at > self.now) {
            return;
        }
        lane.run_at = None;
        while let Some(dispatch) = lane.controller.dispatch(self.now) {
            self.observer.on_dispatch(self.now, &dispatch);
            let client = lane
                .controller
                .parts(dispatch.command)
                .next()
                .map_or(0, |part| part.client.to_bits());
            // The number of the lane lies above every sector.
            let start = dispatch.start.0 ^ (index as u64) << 56;
            for word in [self.now.0, client, start, dispatch.length.0] {
                self.trace_hash = (self.trace_hash ^ word).wrapping_mul(FNV_PRIME).rotate_left(23);
            }
            let (command, operation) = (dispatch.command, dispatch.operation);
            let sent = Sent { command, operation, bytes: dispatch.length.bytes() };
            let slot = dispatch.id.0 as usize;
            if slot >= lane.sent.len() {
                lane.sent.resize(slot + 1, sent);
            }
            lane.sent[slot] = sent;
            let command = Command {
                id: dispatch.id.0,
                operation: dispatch.operation,
                flags: dispatch.flags,
                start: dispatch.start,
                length: dispatch.length,
            };
            lane.drive.submit(self.now, command);
            lane.hand_on_trace(self.traced, self.observer);
        }
        self.observer.on_hold(self.now);
        lane.hand_on_trace(self.traced, self.observer);
    }

    /// Groups get other contracts; the controllers are asked then, as a server asks its own.
    pub(crate) fn update_groups(&mut self, updates: &[(GroupId, Contract)]) {
        for lane in &mut self.lanes {
            for (group, contract) in updates {
                let result = lane.controller.update_group(self.now, *group, contract.clone());
                result.expect("no group of a run goes");
            }
            lane.run_by(self.now);
        }
    }

    /// Asks everybody although nobody is due, as a careless owner might.
    #[cfg(test)]
    pub(crate) fn poke(&mut self) {
        for lane in &mut self.lanes {
            lane.drive.advance(self.now, &mut self.answered);
            assert!(self.answered.is_empty(), "an answer before its time");
            lane.run_by(self.now);
        }
        self.pump();
    }

    /// Time that the drives were busy, on average.
    fn busy(&self) -> Nanos {
        let sum: u64 = self.lanes.iter().map(|lane| lane.drive.busy().0).sum();
        Nanos(sum / (self.lanes.len() as u64).max(1))
    }

    /// Tells the observer how far the run is.
    pub(crate) fn report_progress(&mut self, end: Instant) {
        self.observer.on_progress(self.now, end);
    }

    /// The ramp is over.
    pub(crate) fn end_ramp(&mut self) {
        if let Some(outside) = &mut self.outside {
            outside.end_ramp();
        }
        self.busy_before = self.busy();
    }

    /// What was measured at the drive, the hash of all dispatches, and the requests completed.
    pub(crate) fn finish(mut self) -> (DriveOutcome, u64, u64) {
        if let Some(outside) = &mut self.outside {
            return (outside.measured(), self.trace_hash, self.completed);
        }
        let busy = self.busy().saturating_sub(self.busy_before);
        (DriveOutcome { busy, ..self.outcome }, self.trace_hash, self.completed)
    }
}

/// Counts an answered command, and, this long after the ramp, in its interval. An answer at a border belongs to the
/// interval before it, as calls do.
fn count(
    outcome: &mut DriveOutcome,
    operation: Operation,
    bytes: u64,
    interval: Option<(Nanos, Nanos)>,
) {
    outcome.commands += 1;
    match operation {
        Operation::Read => outcome.read_bytes += bytes,
        Operation::Write => outcome.written_bytes += bytes,
        _ => return,
    }
    if let Some((since, interval)) = interval {
        let index = ((since.0 - 1) / interval.0) as usize;
        if index >= outcome.series.len() {
            outcome.series.resize(index + 1, 0);
        }
        outcome.series[index] += bytes;
    }
}

/// Constants of FNV-1a, here over words with a rotation so that high bits reach low ones.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
