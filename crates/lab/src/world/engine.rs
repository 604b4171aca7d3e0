//! The middle of the world: clock, timers, engine and drive, and what is measured at the drive.

use iofair_core::controller::{Completion, Controller, Submission};
use iofair_core::group::ClientId;
use iofair_core::request::{Flags, Operation, RequestId};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::{Command, Done, Drive};

use crate::observe::Observer;
use crate::outcome::DriveOutcome;
use crate::sim::{Timers, Token};
use crate::world::layout::File;

/// What a command was, by its request's slot.
#[derive(Clone, Copy, Debug)]
struct Sent {
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

/// Clock, timers, engine and drive.
pub(crate) struct Engine<'a> {
    pub(crate) now: Instant,
    pub(crate) timers: Timers,
    pub(crate) controller: Controller,
    /// The drive's files, in the order of the processes.
    pub(crate) files: Vec<File>,
    /// Is there a journal that `fdatasync` waits for?
    pub(crate) journaled: bool,
    /// Who asked it for a commit since it last looked; woken when it is done.
    pub(crate) commits: Vec<Token>,
    drive: Box<dyn Drive + Send>,
    observer: &'a mut dyn Observer,
    traced: bool,
    sent: Vec<Sent>,
    answered: Vec<Done>,
    /// Something went in or out since the engine was last asked for work.
    stirred: bool,
    measured_from: Instant,
    busy_before: Nanos,
    outcome: DriveOutcome,
    completed: u64,
    trace_hash: u64,
}

/// What an [`Engine`] is made of.
pub(crate) struct Parts<'a> {
    pub(crate) controller: Controller,
    pub(crate) drive: Box<dyn Drive + Send>,
    pub(crate) files: Vec<File>,
    pub(crate) observer: &'a mut dyn Observer,
    /// The end of the ramp.
    pub(crate) measured_from: Instant,
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
        let Parts { controller, drive, files, observer, measured_from } = parts;
        Self {
            now: Instant::ZERO,
            timers: Timers::new(),
            controller,
            files,
            journaled: false,
            commits: Vec::new(),
            drive,
            traced: observer.trace_events() > 0,
            observer,
            sent: Vec::new(),
            answered: Vec::new(),
            stirred: false,
            measured_from,
            busy_before: Nanos::ZERO,
            outcome: DriveOutcome::default(),
            completed: 0,
            trace_hash: FNV_OFFSET,
        }
    }

    /// When anything happens next.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let or_never = |at: Option<Instant>| at.unwrap_or(Instant::MAX);
        let outside = or_never(self.timers.next()).min(or_never(self.drive.next_event()));
        let at = outside.min(or_never(self.controller.next_wakeup()));
        (at < Instant::MAX).then(|| at.max(self.now))
    }

    /// Wakes an actor later.
    pub(crate) fn wake(&mut self, at: Instant, token: Token) {
        self.timers.set(at, token);
    }

    /// Sends a request into the engine.
    pub(crate) fn submit(&mut self, ask: Ask) {
        let Ask { token, client, operation, flags, start, length } = ask;
        let submission = Submission { tag: token.pack(), client, operation, flags, start, length };
        self.observer.on_submit(self.now, &submission);
        let result = self.controller.submit(self.now, submission);
        result.expect("files lie on the drive and the queue limit is above what clients can send");
        self.stirred = true;
        self.hand_on_trace();
    }

    /// Hands the engine's events to the observer, so often that its ring never fills.
    fn hand_on_trace(&mut self) {
        if self.traced {
            for event in self.controller.trace().drain() {
                self.observer.on_event(&event);
            }
        }
    }

    /// Sends a range of a file in as many requests as its place and `longest` need; their number.
    pub(crate) fn send(&mut self, range: FileRange) -> u32 {
        let FileRange { token, client, operation, flags, file, longest, .. } = range;
        let (mut offset, mut length, mut parts) = (range.offset, range.length, 0);
        while length > Sectors::ZERO {
            let (start, piece) = self.files[file].place(offset, length.min(longest));
            self.submit(Ask { token, client, operation, flags, start, length: piece });
            (offset, length) = (offset + piece, length - piece);
            parts += 1;
        }
        parts
    }

    /// Lets the drive come to the present, and appends what it finished to `done`.
    pub(crate) fn collect(&mut self, done: &mut Vec<Completion>) {
        if self.drive.next_event().is_none_or(|at| at > self.now) {
            return;
        }
        self.drive.advance(self.now, &mut self.answered);
        for answer in self.answered.drain(..) {
            let id = RequestId(answer.id);
            self.observer.on_answer(self.now, id, answer.status);
            let Sent { operation, bytes } = self.sent[answer.id as usize];
            if self.now > self.measured_from {
                self.outcome.commands += 1;
                match operation {
                    Operation::Read => self.outcome.read_bytes += bytes,
                    Operation::Write => self.outcome.written_bytes += bytes,
                    _ => {}
                }
            }
            self.controller.complete(self.now, id, answer.status, done);
            self.stirred = true;
        }
        self.hand_on_trace();
        self.completed += done.len() as u64;
    }

    /// Moves what the engine lets go to the drive. Without cause it does nothing.
    pub(crate) fn pump(&mut self) {
        let due = self.controller.next_wakeup().is_some_and(|at| at <= self.now);
        if !self.stirred && !due {
            return;
        }
        self.stirred = false;
        while let Some(dispatch) = self.controller.dispatch(self.now) {
            self.observer.on_dispatch(self.now, &dispatch);
            let client = self.controller.parts(dispatch.id).next().map_or(0, |p| p.client.0);
            for word in [self.now.0, u64::from(client), dispatch.start.0, dispatch.length.0] {
                self.trace_hash = (self.trace_hash ^ word).wrapping_mul(FNV_PRIME).rotate_left(23);
            }
            let sent = Sent { operation: dispatch.operation, bytes: dispatch.length.bytes() };
            let index = dispatch.id.0 as usize;
            if index >= self.sent.len() {
                self.sent.resize(index + 1, sent);
            }
            self.sent[index] = sent;
            let command = Command {
                id: dispatch.id.0,
                operation: dispatch.operation,
                flags: dispatch.flags,
                start: dispatch.start,
                length: dispatch.length,
            };
            self.drive.submit(self.now, command);
            self.hand_on_trace();
        }
        self.observer.on_hold(self.now);
        self.hand_on_trace();
    }

    /// Asks everybody although nobody is due, as a careless owner might.
    #[cfg(test)]
    pub(crate) fn poke(&mut self) {
        self.drive.advance(self.now, &mut self.answered);
        assert!(self.answered.is_empty(), "an answer before its time");
        self.stirred = true;
        self.pump();
    }

    /// Tells the observer how far the run is.
    pub(crate) fn report_progress(&mut self, end: Instant) {
        self.observer.on_progress(self.now, end);
    }

    /// The ramp is over.
    pub(crate) fn end_ramp(&mut self) {
        self.busy_before = self.drive.busy();
    }

    /// What was measured at the drive, the hash of all dispatches, and the requests completed.
    pub(crate) fn finish(self) -> (DriveOutcome, u64, u64) {
        let busy = self.drive.busy().saturating_sub(self.busy_before);
        (DriveOutcome { busy, ..self.outcome }, self.trace_hash, self.completed)
    }
}

/// Constants of FNV-1a, here over words with a rotation so that high bits reach low ones.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
