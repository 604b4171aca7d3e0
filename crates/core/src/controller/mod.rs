//! The controller: a request's journey from its submission to the drive and back.
//!
//! ```text
//! submit ─▶ throttle ─▶ … ─▶ throttle ─▶ merge? ─▶ tag ─▶ scheduler ─▶ dispatch ─▶ (drive)
//!    └─ flush: waits for its client's writes ─▶ the same path (scheduled), or ▶┘        │
//! completions ◀──────────────────────────── complete ◀────────────────────────────────┘
//! ```
//!
//! The owner (the lab's event loop, a server's reactor) calls [`Controller::submit`] and
//! [`Controller::complete`] as things happen, then [`Controller::dispatch`] until it returns `None`,
//! and again at [`Controller::next_wakeup`]. Waking early, late or twice is harmless.

mod completion;
mod flush;
mod flush_cost;
mod flush_path;
mod handover;
mod live;
mod plug;
mod simulation;
mod slots;
mod stack;
mod tags;
mod why;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use flush_path::FlushRule;
pub use plug::{PLUG_MAX, Plug};
pub use stack::{Stack, StackError, Stage};
pub use why::{Held, Place};

use crate::error::EngineError;
use crate::group::{ClientId, GroupId, Groups};
use crate::parts::fifo::Fifo;
use crate::policy::{Context, DriveFacts, Gauges, Policy};
use crate::request::{CommandId, Flags, NO_STAGE, Operation, Part, Request, RequestId, Requests};
use crate::stats::counters::Counters;
use crate::time::Instant;
use crate::trace::{EventKind, Subject, Trace};
use crate::unit::Sectors;
use tags::Sender;

/// Largest drive: 8 EiB, so that every position in bytes is a `u64`.
pub const CAPACITY_MAX: Sectors = Sectors(1 << 54);
/// Longest request without data (a trim or write-zeroes): 512 TiB, so that sums of a few thousand of them are a `u64`.
pub const DATALESS_MAX: Sectors = Sectors(1 << 40);
/// Longest command: 1 GiB.
pub const MAX_REQUEST_MAX: Sectors = Sectors(1 << 21);

/// What a controller is built with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The drive.
    pub facts: DriveFacts,
    /// Requests that the scheduler and the drive may have together.
    pub tags: u32,
    /// Request slots that the groups share by weight, beyond those guaranteed ([`crate::quota`]). A group without
    /// a slot is refused.
    pub queue_limit: usize,
    /// Request slots that each group has to itself.
    pub guaranteed: usize,
    /// Request slots that one client may hold, so that a client of a group leaves slots for the others; `u32::MAX` for no
    /// limit. A client at its limit is refused ([`EngineError::ClientFull`]).
    pub client_limit: u32,
    /// What flushes pass.
    pub flushes: FlushRule,
    /// Trace events kept; 0 turns tracing off.
    pub trace: usize,
}

/// A request as its client gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submission {
    /// The submitter's name for it, returned with its completion.
    pub tag: u64,
    /// Who sends it.
    pub client: ClientId,
    /// What it asks.
    pub operation: Operation,
    /// How.
    pub flags: Flags,
    /// First sector; ignored for a flush.
    pub start: Sectors,
    /// Length; at least one sector, zero for a flush.
    pub length: Sectors,
}

/// A command for the drive; answer it with [`Controller::complete`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Dispatch {
    /// What to complete it with.
    pub command: CommandId,
    /// The request that it stands for, as traces and policies name it; used again after its completion.
    pub id: RequestId,
    /// What the drive is asked.
    pub operation: Operation,
    /// How.
    pub flags: Flags,
    /// First sector.
    pub start: Sectors,
    /// Length, merged parts included.
    pub length: Sectors,
}

/// An answered submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The submission: its tag, client, sectors and time.
    pub part: Part,
    /// What it asked.
    pub operation: Operation,
    /// When the last throttle let it (or the request it was merged into) go.
    pub released: Instant,
    /// When it (or the request it was merged into) went to the drive.
    pub dispatched: Instant,
    /// When the drive answered.
    pub completed: Instant,
    /// The drive's status: 0 is success, anything else an error number for the client.
    pub status: i32,
}

/// The stack, the tree of groups and every request on its way.
pub struct Controller {
    setup: Setup,
    stack: Stack,
    groups: Groups,
    requests: Requests,
    /// Who holds how many slots of `requests`.
    slots: slots::Slots,
    throttles: Vec<Box<dyn Policy + Send>>,
    scheduler: Box<dyn Policy + Send>,
    tags: tags::Tags,
    flushes: flush::Flushes,
    flush_cost: flush_cost::FlushCost,
    kernel: simulation::Kernel,
    /// Has a command passed the flushes that are ready?
    flush_passed: bool,
    /// By client: where its last read or write ended.
    positions: Vec<Sectors>,
    trace: Trace,
    in_flight: u32,
    sequence: u64,
    /// Requests that an earlier stack gave to the drive in part.
    cut: Fifo,
    /// The latest time that was passed in, and how often an earlier one was.
    latest: Instant,
    went_back: u64,
    per_client: Vec<Counters>,
    plugged: Vec<RequestId>,
}

/// Everything a policy call needs, borrowed from the controller's other fields.
macro_rules! context {
    ($this:ident, $now:expr) => {
        Context {
            now: $now,
            requests: &mut $this.requests,
            groups: &$this.groups,
            trace: &mut $this.trace,
            facts: &$this.setup.facts,
            in_flight: $this.in_flight,
        }
    };
}
use context;

impl Setup {
    /// Checks the setup.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoTags`], or [`EngineError::BadSetup`] if the drive has no size or one above [`CAPACITY_MAX`], cannot
    /// carry a sector in a command, or has no room for a command, or if there is not a single request slot for a client.
    pub const fn check(&self) -> Result<(), EngineError> {
        let DriveFacts { depth, max_request, capacity, .. } = self.facts;
        if self.tags == 0 {
            Err(EngineError::NoTags)
        } else if depth == 0 {
            Err(EngineError::BadSetup("a queue depth of 0; at least 1 is needed"))
        } else if max_request.0 == 0 || max_request.0 > MAX_REQUEST_MAX.0 {
            Err(EngineError::BadSetup("a longest command of 0 or more than 1 GiB"))
        } else if capacity.0 == 0 || capacity.0 > CAPACITY_MAX.0 {
            Err(EngineError::BadSetup("a drive of 0 sectors or more than 8 EiB"))
        } else if self.queue_limit == 0 && self.guaranteed == 0 {
            Err(EngineError::BadSetup("no request slots: neither guaranteed nor shared ones"))
        } else if self.client_limit == 0 {
            Err(EngineError::BadSetup(
                "a limit of 0 requests for each client; at least 1 is needed",
            ))
        } else {
            Ok(())
        }
    }
}

impl Controller {
    /// A controller with only the root group and no client.
    ///
    /// # Panics
    ///
    /// If [`Setup::check`] refuses the setup. [`Self::try_new`] returns the error instead.
    pub fn new(setup: Setup, stack: Stack) -> Self {
        Self::try_new(setup, stack).unwrap_or_else(|error| panic!("{error}"))
    }
    /// A controller with only the root group and no client.
    ///
    /// # Errors
    ///
    /// Those of [`Setup::check`].
    pub fn try_new(setup: Setup, stack: Stack) -> Result<Self, EngineError> {
        setup.check()?;
        let (throttles, scheduler) = live::build(&setup, &stack);
        let mut this = Self {
            setup,
            kernel: simulation::Kernel::new(stack.throttles.len(), 0),
            stack,
            groups: Groups::new(),
            requests: Requests::new(),
            slots: slots::Slots::new(&setup),
            throttles,
            scheduler,
            tags: tags::Tags::new(setup.tags),
            flushes: flush::Flushes::new(setup.flushes),
            flush_cost: flush_cost::FlushCost::new(setup.facts.max_request),
            flush_passed: false,
            positions: Vec::new(),
            trace: Trace::new(setup.trace),
            in_flight: 0,
            sequence: 0,
            cut: Fifo::new(),
            latest: Instant::ZERO,
            went_back: 0,
            per_client: Vec::new(),
            plugged: Vec::new(),
        };
        this.tell_everything(Instant::ZERO);
        Ok(this)
    }

    /// A client's flush is a command of its own, that says nothing of what others wrote: for drives where
    /// each client has a file to itself. To be called before the first request.
    pub fn separate_flushes(&mut self) {
        self.flushes.separate();
    }

    /// The present: time that goes backwards stands still instead.
    fn present(&mut self, now: Instant) -> Instant {
        self.went_back += u64::from(now < self.latest);
        self.latest = self.latest.max(now);
        self.latest
    }
    /// How often a call had an earlier time than one before it. It was then taken for the latest one.
    #[must_use]
    pub fn times_went_back(&self) -> u64 {
        self.went_back
    }

    /// Takes a request in. Call [`Self::dispatch`] afterwards.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoClient`], [`EngineError::BadRange`], [`EngineError::TooLong`]; [`EngineError::Full`] if the group has no
    /// free request slot, and [`EngineError::ClientFull`] if the client holds as many as it may: submit the request again
    /// after a completion.
    pub fn submit(
        &mut self,
        now: Instant,
        submission: Submission,
    ) -> Result<RequestId, EngineError> {
        let now = self.present(now);
        let group = self.reserve(&submission)?;
        let id = self.admit(now, &submission, group);
        self.start_admitted(now, id);
        Ok(id)
    }

    /// Takes in all that a plug has gathered, adjacent requests merged. On an error, what is left in
    /// the plug was not taken in. A plug that was filled by [`Self::gather`] alone is never refused.
    ///
    /// # Errors
    ///
    /// As [`Self::submit`], for the first submission that is left in the plug.
    pub fn unplug(&mut self, now: Instant, plug: &mut Plug) -> Result<(), EngineError> {
        let now = self.present(now);
        let mut result = Ok(());
        let mut taken = 0;
        let mut last: Option<(Submission, RequestId)> = None;
        for (submission, group) in &plug.gathered {
            let group = match group.map_or_else(|| self.reserve(submission), Ok) {
                Ok(group) => group,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            let id = self.admit(now, submission, group);
            taken += 1;
            let max = self.setup.facts.max_request;
            let merges = last.as_ref().is_some_and(|(before, head)| {
                let head = &self.requests[*head];
                let before = Submission { start: head.start, ..*before };
                plug::follows(&before, head.length, submission, max)
            });
            match last {
                Some((_, head)) if merges => self.merge_plugged(now, head, id),
                _ => {
                    self.plugged.push(id);
                    last = Some((*submission, id));
                }
            }
        }
        plug.gathered.drain(..taken);
        let mut heads = core::mem::take(&mut self.plugged);
        for id in heads.drain(..) {
            self.start_admitted(now, id);
        }
        self.plugged = heads;
        result
    }

    fn merge_plugged(&mut self, now: Instant, head: RequestId, id: RequestId) {
        self.requests.merge_back(head, id);
        self.note(now, id, EventKind::Merged { into: head });
        let client = self.requests[id].client;
        self.per_client[client.index()].merged += 1;
    }

    /// Takes in a submission that has a request slot.
    fn admit(&mut self, now: Instant, submission: &Submission, group: GroupId) -> RequestId {
        let Submission { tag, client, operation, flags, start, length } = *submission;
        self.sequence += 1;
        let epoch = match operation.modifies() {
            true => self.flushes.write_submitted(client),
            false => 0,
        };
        let flags = match operation {
            Operation::Flush if self.setup.flushes == FlushRule::Scheduled => Self::FLUSH_FLAGS,
            Operation::Flush => flags,
            _ => {
                self.positions[client.index()] = start + length;
                flags
            }
        };
        let id = self.requests.insert(Request {
            tag,
            operation,
            flags,
            start,
            length,
            client,
            group,
            priority: self.groups.client(client).priority,
            submitted: now,
            asked_tag: Instant::MAX,
            got_tag: Instant::MAX,
            dispatched: Instant::MAX,
            sequence: self.sequence,
            stage: NO_STAGE,
            epoch,
        });
        self.note(now, id, EventKind::Submitted);
        if operation == Operation::Flush {
            // Now, and not when it leaves the plug: it does not cover what the plug gathered after it.
            self.flushes.submit(&mut self.requests, id);
        }
        id
    }

    /// Sends an admitted request on its path; a flush waits for its writes first.
    fn start_admitted(&mut self, now: Instant, id: RequestId) {
        match self.requests[id].operation {
            Operation::Flush => self.start_flushes(now),
            _ => self.start(now, id),
        }
    }

    /// A client brings its request to the first stage.
    fn start(&mut self, now: Instant, id: RequestId) {
        let client = self.requests[id].client;
        self.enter(now, (0, Sender::Client(client)), id);
    }

    /// Somebody hands a request to a stage: throttles count from 0, then comes the scheduler.
    fn enter(&mut self, now: Instant, (stage, sender): (usize, Sender), id: RequestId) {
        self.note(now, id, EventKind::Entered { stage: stage as u8 });
        self.requests[id].stage = stage as u8;
        if let Some(throttle) = self.throttles.get_mut(stage) {
            self.kernel.holds(stage, self.requests[id].client);
            throttle.submit(&mut context!(self, now), id);
            self.let_go(now, stage, Some((sender, id)));
            return;
        }
        let is_flush = self.requests[id].operation == Operation::Flush;
        if is_flush {
            self.weigh_flush(id);
        }
        let mut cx = context!(self, now);
        cx.requests[id].asked_tag = now;
        if !is_flush && self.scheduler.try_merge(&mut cx, id) {
            let client = self.requests[id].client;
            self.per_client[client.index()].merged += 1;
            let (into, absorbed) = self.requests.last_merge();
            self.note(now, id, EventKind::Merged { into });
            // A merge can close the gap between two queued requests, which then become one.
            for _ in 0..self.requests.take_absorbed() {
                self.note(now, absorbed, EventKind::Merged { into });
                self.tags.release();
            }
            return;
        }
        if self.tags.take_or_wait(now, cx.requests, &*self.scheduler, (sender, id)) {
            cx.requests[id].got_tag = now;
            self.scheduler.submit(&mut cx, id);
        } else {
            let (used, limit) = self.tags.room(&*self.scheduler, &self.requests[id]);
            self.note(now, id, EventKind::WaitsForTag { used, limit });
        }
    }

    /// Hands on what a throttle lets go. Whoever has just brought a request goes on with it if it is let go at
    /// once; what had been put aside is sent by the throttle's worker, or by its client if that slept over it.
    fn let_go(&mut self, now: Instant, stage: usize, came: Option<(Sender, RequestId)>) {
        while let Some(id) = self.throttles[stage].dispatch(&mut context!(self, now)) {
            let client = self.requests[id].client;
            self.kernel.lets_go(stage, client);
            let sender = match came {
                Some((sender, came)) if came == id => sender,
                _ if self.throttles[stage].has_worker(client) => Sender::Worker,
                _ => Sender::Client(client),
            };
            self.enter(now, (stage + 1, sender), id);
        }
    }

    /// Lets throttles give on what they may, and sleepers take freed tags.
    fn pump(&mut self, now: Instant) {
        for stage in 0..self.throttles.len() {
            self.let_go(now, stage, None);
        }
        while self.tags.has_waiters() {
            let next = self.tags.next_waiter(now, &mut self.requests, &*self.scheduler);
            let Some(id) = next else { break };
            self.requests[id].got_tag = now;
            self.note(now, id, EventKind::GotTag);
            self.scheduler.submit(&mut context!(self, now), id);
        }
    }

    /// The next command for the drive, if there is one and the drive has a free slot.
    #[must_use = "the drive is to be given it"]
    pub fn dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        let now = self.present(now);
        self.pump(now);
        if self.in_flight >= self.setup.facts.depth {
            return None;
        }
        let id = self.next_command(now)?;
        self.in_flight += 1;
        let whole = self.requests.whole(id);
        // Of a request that goes in pieces, the first one.
        if whole == id || self.requests[whole].dispatched == Instant::MAX {
            self.note(now, whole, EventKind::Dispatched);
            self.requests[whole].dispatched = now;
        }
        let command = self.requests.command(id);
        let request = &mut self.requests[id];
        request.dispatched = now;
        let Request { operation, flags, start, length, .. } = *request;
        self.watch_dispatch(now, operation);
        if operation == Operation::Flush && self.setup.flushes == FlushRule::Scheduled {
            // To the scheduler it had a length and a place.
            let (flags, nowhere) = (Flags::NONE, Sectors::ZERO);
            let (start, length) = (nowhere, nowhere);
            return Some(Dispatch { command, id, operation, flags, start, length });
        }
        Some(Dispatch { command, id, operation, flags, start, length })
    }

    /// The submissions that a command in the drive stands for, in sector order; itself for a flush. Of a submission that
    /// goes to the drive in pieces, what lies in this command. None for a command that the drive does not have.
    pub fn parts(&self, command: CommandId) -> impl Iterator<Item = Part> + '_ {
        let id = self.requests.in_drive(command).into_iter();
        id.flat_map(|id| self.requests.parts(id)).map(|(_, part)| part)
    }

    /// The drive answered a command: appends every submission that it stood for to `done`. `status` is zero or an error
    /// number for the clients. A second completion is refused, and one of a command that was never given.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotInDrive`] if the drive does not have the command.
    pub fn complete(
        &mut self,
        now: Instant,
        command: CommandId,
        status: i32,
        done: &mut Vec<Completion>,
    ) -> Result<(), EngineError> {
        let now = self.present(now);
        let id = self.requests.in_drive(command).ok_or(EngineError::NotInDrive(command))?;
        self.complete_command(now, (id, status), done);
        Ok(())
    }
    fn complete_command(
        &mut self,
        now: Instant,
        (id, status): (RequestId, i32),
        done: &mut Vec<Completion>,
    ) {
        self.in_flight -= 1;
        let is_orphan = self.requests.is_orphan(id);
        self.kernel.on_complete(is_orphan);
        let Request { operation, length, .. } = self.requests[id];
        if operation == Operation::Flush {
            self.note(now, id, EventKind::Completed);
            self.complete_flushes(now, (id, status), done);
            return;
        }
        self.watch_complete(now, operation, length);
        if !is_orphan {
            self.scheduler.complete(&mut context!(self, now), id);
        }
        if !self.requests.is_piece(id) {
            self.complete_whole(now, (id, status), done);
        } else if let Some(whole) = self.requests.end_piece(id, status) {
            self.complete_whole(now, (whole, 0), done);
        }
    }

    /// When to call [`Self::dispatch`] again though nothing else happens.
    #[must_use = "the engine is to be asked again at this time"]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let throttles = self.throttles.iter().filter_map(|t| t.next_wakeup());
        // A scheduler is not asked while the drive is full, so it need not be woken either.
        let room = self.in_flight < self.setup.facts.depth;
        throttles.chain(self.scheduler.next_wakeup().filter(|_| room)).min()
    }

    fn note(&mut self, now: Instant, id: RequestId, kind: EventKind) {
        if self.trace.is_on() {
            let sequence = self.requests[id].sequence;
            self.trace.push(now, Subject::Request { id, sequence }, kind);
        }
    }

    /// The tree of groups and the clients.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        &self.groups
    }
    /// The stack in force.
    #[must_use]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }
    /// What is known of the drive.
    #[must_use]
    pub fn facts(&self) -> &DriveFacts {
        &self.setup.facts
    }
    /// Commands that the drive has now.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }
    /// Submissions inside, in whatever stage.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.requests.len()
    }
    /// The counters of one client; all zero for an unknown client.
    #[must_use]
    pub fn counters(&self, client: ClientId) -> Counters {
        let known = self.groups.try_client(client);
        known.map_or_else(Counters::default, |_| self.per_client[client.index()])
    }
    /// The trace of events.
    pub fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }
    /// Every stage's numbers to watch.
    pub fn observe(&self, gauges: &mut dyn Gauges) {
        for throttle in &self.throttles {
            throttle.observe(gauges);
        }
        self.scheduler.observe(gauges);
    }
}
