//! The base of processes and page cache: clock, timers, engine and drive, and the measurements at the drive. Engine and
//! drive may also be outside: then requests go there, and time comes from there.

pub(crate) mod device;
pub(crate) mod layout;
pub(crate) mod path;
mod processors;

use iofair_core::contract::Contract;
use iofair_core::controller::{Completion, Controller, Submission};
use iofair_core::error::EngineError;
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::stripe::Geometry;
use iofair_drive::{Command, Done, Drive};

use crate::observe::Observer;
use crate::outcome::DriveOutcome;
use crate::outside::{Outside, Reply};
use crate::sim::{ActorCompletion, Timers, Token};
use device::{Device, Sent};
use layout::File;
use path::{SharedPath, Task};

/// A range of a file for [`Engine::send`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRange {
    pub(crate) token: Token,
    pub(crate) client: ClientId,
    pub(crate) operation: Operation,
    pub(crate) flags: Flags,
    /// The index of the file.
    pub(crate) file: usize,
    pub(crate) offset: Sectors,
    pub(crate) length: Sectors,
    /// Longest request.
    pub(crate) longest: Sectors,
}

/// Clock, timers, engine and drive.
pub struct Engine<'a> {
    /// The time. Whoever has called [`Self::next_event`] sets it.
    pub now: Instant,
    pub(crate) timers: Timers,
    /// Empty if the engine is outside.
    devices: Vec<Device>,
    outside: Option<&'a mut dyn Outside>,
    /// What processes and the path to the drive share, if they wait for processors.
    path: Option<SharedPath>,
    /// The layout of sectors on the devices; `None` with one device.
    geometry: Option<Geometry>,
    /// The drive's files, in the order of the processes.
    pub(crate) files: Vec<File>,
    /// Whether there is a journal that `fdatasync` waits for.
    pub(crate) journaled: bool,
    /// Actors that requested a commit since its last check. They are woken when it is done.
    pub(crate) commits: Vec<Token>,
    /// Processes of steps that have made their last call, and when they end.
    pub(crate) ended: Vec<(u32, Instant)>,
    observer: &'a mut dyn Observer,
    traced: bool,
    drive_done: Vec<Done>,
    completions: Vec<Completion>,
    replies: Vec<Reply>,
    measured_from: Instant,
    interval: Option<Nanos>,
    busy_before: Nanos,
    outcome: DriveOutcome,
    completed: u64,
    trace_hash: u64,
}

/// The parts of an [`Engine`].
pub(crate) struct Parts<'a> {
    pub(crate) devices: Vec<Device>,
    pub(crate) outside: Option<&'a mut dyn Outside>,
    pub(crate) path: Option<SharedPath>,
    pub(crate) geometry: Option<Geometry>,
    pub(crate) files: Vec<File>,
    pub(crate) observer: &'a mut dyn Observer,
    /// The end of the warm-up.
    pub(crate) measured_from: Instant,
    /// Intervals in which bytes are also counted.
    pub(crate) interval: Option<Nanos>,
}

/// One request for [`Engine::submit`].
#[derive(Clone, Copy, Debug)]
pub struct NewRequest {
    /// Who is told of its completion.
    pub token: Token,
    /// Whose it is.
    pub client: ClientId,
    /// What it does.
    pub operation: Operation,
    /// Its flags.
    pub flags: Flags,
    /// First sector.
    pub start: Sectors,
    /// Its length.
    pub length: Sectors,
}

impl<'a> Engine<'a> {
    pub(crate) fn new(parts: Parts<'a>) -> Self {
        let Parts { mut devices, outside, path, geometry, .. } = parts;
        let Parts { files, observer, measured_from, interval, .. } = parts;
        if observer.wants_passed() {
            devices.iter_mut().for_each(|device| device.controller.keep_passed());
        }
        Self {
            now: Instant::ZERO,
            timers: Timers::new(),
            devices,
            outside,
            path,
            geometry,
            files,
            journaled: false,
            commits: Vec::new(),
            ended: Vec::new(),
            traced: observer.trace_events() > 0,
            observer,
            drive_done: Vec::new(),
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

    /// One controller and its drive, without processes and files.
    pub fn lone(
        controller: Controller,
        drive: Box<dyn Drive + Send>,
        observer: &'a mut dyn Observer,
    ) -> Self {
        Self::new(Parts {
            devices: vec![Device::new(controller, drive)],
            outside: None,
            path: None,
            geometry: None,
            files: Vec::new(),
            observer,
            measured_from: Instant::ZERO,
            interval: None,
        })
    }

    /// The time of the next event, if it is not after `limit`. Nobody may submit anything before that time, or before `limit` if there
    /// is none: a lone drive is run to its next completion.
    pub fn next_event(&mut self, limit: Instant) -> Option<Instant> {
        let mut at = self.timers.next().unwrap_or(Instant::MAX);
        for device in &self.devices {
            at = at.min(device.next_dispatch());
        }
        if let Some(path) = &self.path {
            at = at.min(path.next_event());
        }
        let drives = match &mut self.devices[..] {
            [device] => device.drive.run_to_completion(at.min(limit)),
            several => several.iter().filter_map(|device| device.drive.next_event()).min(),
        };
        let at = drives.map_or(at, |due| due.min(at));
        (at <= limit && at < Instant::MAX).then(|| at.max(self.now))
    }

    /// Wakes an actor at a later time.
    pub(crate) fn wake(&mut self, at: Instant, token: Token) {
        self.timers.set(at, token);
    }

    /// Wakes an actor that works until `at`, for this much processor time: later if it waits for a processor.
    pub(crate) fn wake_after(&mut self, at: Instant, work: Nanos, token: Token) {
        match &mut self.path {
            Some(path) if work > Nanos::ZERO => path.work(self.now, token, at, work),
            _ => self.timers.set(at, token),
        }
    }

    /// Submits a request. Returns the number of requests that it became, one for each drive.
    pub fn submit(&mut self, ask: NewRequest) -> u32 {
        let NewRequest { token, client, operation, flags, start, length } = ask;
        let tag = token.pack();
        let Some(geometry) = self.geometry else {
            self.submit_to(0, Submission { tag, client, operation, flags, start, length });
            return 1;
        };
        let mut parts = 0;
        for device in 0..geometry.drives {
            let piece = match operation {
                Operation::Flush => Some((start, length)),
                _ => geometry.piece(device, start, length),
            };
            if let Some((start, length)) = piece {
                let submission = Submission { tag, client, operation, flags, start, length };
                self.submit_to(device as usize, submission);
                parts += 1;
            }
        }
        parts
    }
    fn submit_to(&mut self, device: usize, submission: Submission) {
        self.observer.on_submit(self.now, &submission);
        if let Some(outside) = &mut self.outside {
            return outside.submit(&submission);
        }
        let device = &mut self.devices[device];
        let result = device.controller.submit(self.now, submission);
        result.expect("files lie on the drive and the queue limit is above what clients can send");
        device.on_submitted(self.now);
        device.hand_on(self.now, self.traced, self.observer);
    }

    /// Submits a range of a file in as many requests as its layout and `longest` require. Returns their number.
    pub(crate) fn send(&mut self, range: FileRange) -> u32 {
        let FileRange { token, client, operation, flags, file, longest, .. } = range;
        let (mut offset, mut length, mut parts) = (range.offset, range.length, 0);
        while length > Sectors::ZERO {
            let (start, piece) = self.files[file].place(offset, length.min(longest));
            parts +=
                self.submit(NewRequest { token, client, operation, flags, start, length: piece });
            (offset, length) = (offset + piece, length - piece);
        }
        parts
    }

    /// Whether a process that sends requests of this client would sleep now.
    pub(crate) fn is_asleep(&self, client: ClientId) -> bool {
        if let Some(outside) = &self.outside {
            return outside.is_asleep(client);
        }
        self.devices.iter().any(|device| device.controller.is_held_up(client))
    }

    /// If time passes outside: waits until `until` or a completion, and returns the time. `None` if the run has ended.
    pub(crate) fn wait(&mut self, until: Instant) -> Option<Instant> {
        let outside = self.outside.as_mut().expect("in virtual time nobody waits");
        outside.wait(until).map(|now| now.max(self.now))
    }

    /// Advances the drives to the present, and appends completions to `done`.
    pub fn collect(&mut self, done: &mut Vec<ActorCompletion>) {
        let before = done.len();
        if let Some(outside) = &mut self.outside {
            outside.collect(&mut self.replies);
            let replies = self.replies.drain(..);
            let completion =
                |Reply { tag, length, .. }| ActorCompletion { token: Token::unpack(tag), length };
            done.extend(replies.map(completion));
        }
        if self.path.is_some() {
            self.advance_path(done);
        }
        for index in 0..self.devices.len() {
            self.collect_device(index, done);
        }
        self.completed += (done.len() - before) as u64;
    }
    /// Carries out the work that processors have done by now.
    fn advance_path(&mut self, done: &mut Vec<ActorCompletion>) {
        let now = self.now;
        let mut tasks = self.path.as_mut().map(|path| path.take_done(now)).unwrap_or_default();
        let mut has_completed = false;
        for task in tasks.drain(..) {
            has_completed |= matches!(task, Task::Complete(..));
            match task {
                Task::Forward(device, command) => {
                    if let Some(path) = &mut self.path {
                        path.send_to_server(now, device, command);
                    }
                }
                Task::Submit(device, command) => {
                    self.devices[device].drive.submit(self.now, command);
                }
                Task::Complete(device, completion) => {
                    self.drive_done.push(completion);
                    self.complete_all(device, done);
                }
                Task::Deliver(completion) => done.push(completion),
                Task::Own(token, due) => self.timers.set(due.max(now), token),
            }
        }
        if let Some(path) = &mut self.path {
            path.put_back(tasks);
            if let Some(device) = path.late_run(has_completed) {
                self.devices[device].run_by(now);
            }
        }
    }
    fn collect_device(&mut self, index: usize, done: &mut Vec<ActorCompletion>) {
        let device = &mut self.devices[index];
        if device.drive.next_event().is_none_or(|at| at > self.now) {
            return;
        }
        device.drive.advance(self.now, &mut self.drive_done);
        if let Some(path) = &mut self.path {
            for done in self.drive_done.drain(..) {
                let Sent { bytes, new_pages, .. } = device.sent[done.id as usize];
                let completion = Task::Complete(index, done);
                path.on_drive_completion(self.now, completion, bytes, new_pages);
            }
            return;
        }
        self.complete_all(index, done);
    }
    /// Completes what a drive has done.
    fn complete_all(&mut self, index: usize, done: &mut Vec<ActorCompletion>) {
        let device = &mut self.devices[index];
        for done in self.drive_done.drain(..) {
            let id = RequestId(done.id);
            self.observer.on_command_completion(self.now, id, done.status);
            let Sent { operation, bytes, .. } = device.sent[done.id as usize];
            if self.now > self.measured_from {
                let since = self.now.since(self.measured_from);
                let interval = self.interval.map(|interval| (since, interval));
                count(&mut self.outcome, operation, bytes, interval);
            }
            device.complete(self.now, &done, &mut self.completions);
        }
        let observer = &mut *self.observer;
        let now = self.now;
        let completions = self.completions.drain(..).map(|completion| {
            assert_eq!(completion.status, 0, "model drives complete without errors");
            observer.on_completion(now, &completion);
            let Completion { part, .. } = completion;
            ActorCompletion { token: Token::unpack(part.tag), length: part.length }
        });
        match &mut self.path {
            None => done.extend(completions),
            Some(path) => completions.for_each(|each| path.wake_client(now, each, done)),
        }
        device.hand_on(self.now, self.traced, self.observer);
    }

    /// Dispatches commands to the drives. Without an event since the last call it does nothing.
    pub fn pump(&mut self) {
        if let Some(outside) = &mut self.outside {
            return outside.send();
        }
        for index in 0..self.devices.len() {
            self.pump_device(index);
        }
    }
    fn pump_device(&mut self, index: usize) {
        let device = &mut self.devices[index];
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        let again = is_due(device.again_at);
        if !again && !is_due(device.controller.next_wakeup()) && !is_due(device.run_at) {
            return;
        }
        if again {
            device.again_at = None;
        }
        device.run_at = None;
        let mut sent = false;
        while let Some(dispatch) = device.controller.dispatch(self.now) {
            self.observer.on_dispatch(self.now, &dispatch);
            sent = true;
            let part = device.controller.parts(dispatch.command).next();
            let client = part.map_or(0, |part| part.client.to_bits());
            let actor = part.map_or(u32::MAX, |part| Token::unpack(part.tag).actor);
            // The number of the device lies above every sector.
            let start = dispatch.start.0 ^ (index as u64) << 56;
            for word in [self.now.0, client, start, dispatch.length.0] {
                self.trace_hash = (self.trace_hash ^ word).wrapping_mul(FNV_PRIME).rotate_left(23);
            }
            let (command, operation) = (dispatch.command, dispatch.operation);
            let buffered = self.path.as_ref().is_some_and(|path| path.is_buffered(actor));
            let new_pages = buffered && operation == Operation::Read;
            let record = Sent { command, operation, bytes: dispatch.length.bytes(), new_pages };
            device.on_dispatched(dispatch.id, record);
            let command = Command {
                id: dispatch.id.0,
                operation: dispatch.operation,
                flags: dispatch.flags,
                start: dispatch.start,
                length: dispatch.length,
            };
            match &mut self.path {
                None => device.drive.submit(self.now, command),
                Some(path) => path.send_to_worker(self.now, index, command),
            }
            device.hand_on(self.now, self.traced, self.observer);
        }
        device.ask_again(self.now, sent);
        self.observer.on_hold(self.now);
        device.hand_on(self.now, self.traced, self.observer);
    }

    /// Adds a group to the one controller that a replay has.
    pub fn add_group(&mut self, path: &str, contract: &Contract) -> Result<GroupId, EngineError> {
        self.devices[0].controller.add_group(self.now, path, contract.clone())
    }
    /// Adds a client to the one controller that a replay has.
    pub fn add_client(&mut self, group: GroupId) -> Result<ClientId, EngineError> {
        self.devices[0].controller.add_client(self.now, group, Priority::default())
    }

    /// Changes contracts of groups, and then calls `dispatch`, as a server does.
    pub(crate) fn update_groups(&mut self, updates: &[(GroupId, Contract)]) {
        for device in &mut self.devices {
            for (group, contract) in updates {
                let result = device.controller.update_group(self.now, *group, contract.clone());
                result.expect("no group of a run goes");
            }
            device.run_by(self.now);
        }
    }

    /// Calls everything although nothing is due, as a careless owner might.
    #[cfg(test)]
    pub(crate) fn poke(&mut self) {
        for device in &mut self.devices {
            device.drive.advance(self.now, &mut self.drive_done);
            assert!(self.drive_done.is_empty(), "a completion before its time");
            device.run_by(self.now);
        }
        self.pump();
    }

    /// Mean time that the drives were busy.
    fn busy(&self) -> Nanos {
        let sum: u64 = self.devices.iter().map(|device| device.drive.busy().0).sum();
        Nanos(sum / (self.devices.len() as u64).max(1))
    }

    /// Reports that a step of these clients began.
    pub(crate) fn report_step(&mut self, clients: &[ClientId], measured_from: Instant) {
        self.observer.on_step(clients, measured_from);
    }
    /// Reports the progress of the run to the observer.
    pub(crate) fn report_progress(&mut self, end: Instant) {
        self.observer.on_progress(self.now, end);
    }

    /// Ends the warm-up.
    pub(crate) fn end_ramp(&mut self) {
        if let Some(outside) = &mut self.outside {
            outside.end_ramp();
        }
        self.busy_before = self.busy();
    }

    /// The measurements at the drive, the hash of all dispatches, and the number of completed requests.
    pub(crate) fn finish(mut self) -> (DriveOutcome, u64, u64) {
        if let Some(outside) = &mut self.outside {
            return (outside.measured(), self.trace_hash, self.completed);
        }
        let busy = self.busy().saturating_sub(self.busy_before);
        (DriveOutcome { busy, ..self.outcome }, self.trace_hash, self.completed)
    }
}

/// Counts a completed command, also in its interval of the measured time. A completion at the border of two intervals belongs
/// to the first one, as calls do.
fn count(
    outcome: &mut DriveOutcome,
    operation: Operation,
    bytes: u64,
    interval: Option<(Nanos, Nanos)>,
) {
    outcome.commands += 1;
    match operation {
        Operation::Read => {
            outcome.reads += 1;
            outcome.read_bytes += bytes;
        }
        Operation::Write => {
            outcome.writes += 1;
            outcome.written_bytes += bytes;
        }
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
