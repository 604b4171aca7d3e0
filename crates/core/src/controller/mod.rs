//! The controller: a request's journey from its submission to the drive and back.
//!
//! ```text
//! submit ─▶ throttle ─▶ … ─▶ throttle ─▶ merge? ─▶ tag ─▶ scheduler ─▶ dispatch ─▶ (drive)
//!    └─ flush: waits for its client's writes ─▶ the same path (scheduled), or ▶┘        │
//! completions ◀──────────────────────────── complete ◀────────────────────────────────┘
//! ```
//!
//! The owner (the event loop of a server or of a simulator) calls [`Controller::submit`] and [`Controller::complete`] when
//! requests arrive and commands complete. After each event it calls [`Controller::dispatch`] until that returns `None`, and
//! again at [`Controller::next_wakeup`]. Early, late and repeated wake-ups are harmless.

mod admission;
mod cancel;
mod completion;
mod exchange;
mod flush;
mod flush_cost;
mod flush_path;
mod handover;
mod live;
mod plug;
mod slots;
mod stack;
mod tags;
mod why;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use exchange::{
    CAPACITY_MAX, Completion, DATALESS_MAX, Dispatch, Held, MAX_REQUEST_MAX, Place, Setup,
    Submission, TIME_MAX,
};
pub use flush::FlushRule;
pub use plug::{PLUG_MAX, Plug};
pub use stack::{Stack, StackError, Stage};

use crate::error::EngineError;
use crate::group::Groups;
use crate::id::{ClientId, CommandId, GroupId, RequestId};
use crate::parts::fifo::Fifo;
use crate::policy::{Context, DriveFacts, Policy};
use crate::request::{Flags, NO_STAGE, Operation, Part, Request, Requests};
use crate::stats::counters::Counters;
use crate::time::Instant;
use crate::trace::{EventKind, Subject, Trace};
use crate::unit::Sectors;
use tags::Sender;

/// The engine: a policy stack, the tree of groups, and all requests that are not completed.
pub struct Controller {
    setup: Setup,
    stack: Stack,
    groups: Groups,
    requests: Requests,
    /// Slots of `requests` by group and client.
    slots: slots::Slots,
    throttles: Vec<Box<dyn Policy + Send>>,
    scheduler: Box<dyn Policy + Send>,
    tags: tags::Tags,
    flushes: flush::Flushes,
    flush_cost: flush_cost::FlushCost,
    /// Whether a command was dispatched before flushes that were ready.
    flush_passed: bool,
    /// By client: where its last read or write ended.
    positions: Vec<Sectors>,
    trace: Trace,
    in_flight: u32,
    /// Requests that were cancelled and that a policy still holds, merged parts included.
    cancelled: usize,
    /// Whether one of them has ended, for what it gave room to.
    ended: bool,
    sequence: u64,
    /// Requests of which an earlier stack dispatched a part.
    cut: Fifo,
    /// The latest time that a caller passed, and how often one passed an earlier time.
    latest: Instant,
    went_back: u64,
    per_client: Vec<Counters>,
    /// Requests in throttles, by client.
    throttled: Vec<u32>,
    plugged: plug::Plugged,
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
        let (throttles, scheduler) = stack.build(&setup.facts);
        let mut this = Self {
            setup,
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
            cancelled: 0,
            ended: false,
            sequence: 0,
            cut: Fifo::new(),
            latest: Instant::ZERO,
            went_back: 0,
            per_client: Vec::new(),
            throttled: Vec::new(),
            plugged: plug::Plugged::default(),
        };
        this.tell_everything(Instant::ZERO);
        Ok(this)
    }

    /// Makes the flush of each client a separate command that covers only the writes of this client, for back ends where each
    /// client has its own file. Call it before the first request.
    pub fn separate_flushes(&mut self) {
        self.flushes.separate();
    }

    /// The engine's time: the latest time that was passed.
    fn present(&mut self, now: Instant) -> Instant {
        if now < self.latest || now > TIME_MAX {
            self.went_back += 1;
        } else {
            self.latest = now;
        }
        self.latest
    }
    /// How often a call passed an earlier time than a previous call, or one above [`TIME_MAX`]. The engine then used the latest
    /// time.
    #[must_use]
    pub fn times_went_back(&self) -> u64 {
        self.went_back
    }

    /// Submits a request. Call [`Self::dispatch`] afterwards.
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
        self.send_plugged(now);
        Ok(id)
    }

    /// Adds a request that has a slot to the pool.
    fn admit(&mut self, now: Instant, submission: &Submission, group: GroupId) -> RequestId {
        let Submission { tag, client, operation, flags, start, length } = *submission;
        self.sequence += 1;
        let epoch = match operation.modifies() {
            true => self.flushes.write_submitted(client),
            false => 0,
        };
        // The position of a flush is not checked, so it may be beyond the drive.
        let start = start.min(self.setup.facts.capacity);
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

    /// Starts an admitted request; a flush first waits for its writes.
    fn start_admitted(&mut self, now: Instant, id: RequestId) {
        match self.requests[id].operation {
            Operation::Flush => self.start_flushes(now),
            _ => self.start(now, id),
        }
    }

    /// Gives a request to the first stage, in the name of its client.
    fn start(&mut self, now: Instant, id: RequestId) {
        let client = self.requests[id].client;
        self.enter(now, 0, Sender::Client(client), id);
    }

    /// Gives a request to a stage: throttles count from 0, the scheduler follows.
    fn enter(&mut self, now: Instant, stage: usize, sender: Sender, id: RequestId) {
        self.note(now, id, EventKind::Entered { stage: stage as u8 });
        self.requests[id].stage = stage as u8;
        if let Some(throttle) = self.throttles.get_mut(stage) {
            throttle.submit(&mut context!(self, now), id);
            self.throttled[self.requests[id].client.index()] += 1;
            self.let_go(now, stage, Some((sender, id)));
            return;
        }
        self.plug(now, sender, id);
    }

    /// Gives a request that has passed all throttles to the scheduler.
    fn schedule(&mut self, now: Instant, sender: Sender, id: RequestId) {
        let is_flush = self.requests[id].operation == Operation::Flush;
        if is_flush {
            self.weigh_flush(id);
        }
        let mut cx = context!(self, now);
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
        if self.tags.take_or_wait(&mut cx, &*self.scheduler, sender, id) {
            cx.requests[id].got_tag = now;
            self.scheduler.submit(&mut cx, id);
        } else {
            let (used, limit) = self.tags.room(&*self.scheduler, &self.requests[id]);
            self.note(now, id, EventKind::WaitsForTag { used, limit });
        }
    }

    /// Passes on the requests that a throttle releases. The sender of the request that just arrived (`came`) stays its sender
    /// if it is released at once. A request that was held is sent by the throttle's worker or, if the throttle has none
    /// for this client, by the client.
    fn let_go(&mut self, now: Instant, stage: usize, came: Option<(Sender, RequestId)>) {
        while let Some(id) = self.throttles[stage].dispatch(&mut context!(self, now)) {
            let Request { client, stage: held_in, .. } = self.requests[id];
            assert!(usize::from(held_in) == stage, "a throttle let go of what it does not hold");
            self.throttled[client.index()] -= 1;
            if self.requests[id].is_cancelled() {
                self.end_cancelled(now, stage + 1, id);
                continue;
            }
            let sender = match came {
                Some((sender, came)) if came == id => sender,
                _ if self.throttles[stage].has_worker(client) => Sender::Worker,
                _ => Sender::Client(client),
            };
            self.enter(now, stage + 1, sender, id);
        }
    }

    /// Passes on what throttles release, and gives free tags to requests that wait for one.
    fn pump(&mut self, now: Instant) {
        self.pump_once(now);
        while self.take_ended() {
            self.pump_once(now);
        }
    }
    fn pump_once(&mut self, now: Instant) {
        // Cancelled writes may have been the last ones before a flush.
        self.start_flushes(now);
        for stage in 0..self.throttles.len() {
            self.let_go(now, stage, None);
        }
        self.send_plugged(now);
        while self.tags.has_waiters() {
            let next = self.tags.next_waiter(now, &mut self.requests, &*self.scheduler);
            let Some(id) = next else { break };
            self.requests[id].got_tag = now;
            if self.requests[id].is_cancelled() {
                self.end_cancelled(now, self.throttles.len(), id);
                continue;
            }
            self.note(now, id, EventKind::GotTag);
            self.scheduler.submit(&mut context!(self, now), id);
        }
    }

    /// The next command for the drive; `None` if the drive is full, nothing waits, or the policies hold what waits.
    #[must_use = "the command must be given to the drive"]
    pub fn dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        let now = self.present(now);
        let id = loop {
            self.pump(now);
            if self.in_flight >= self.setup.facts.depth {
                return None;
            }
            let next = self.next_command(now);
            match next {
                Some(id) => break id,
                // The end of cancelled requests may have made room in the stack.
                None if self.ended => {}
                None => return None,
            }
        };
        self.in_flight += 1;
        let whole = self.requests.whole(id);
        // For a request that is dispatched in pieces: the first piece.
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
            // The scheduler saw it with a length and a position.
            let (flags, nowhere) = (Flags::NONE, Sectors::ZERO);
            let (start, length) = (nowhere, nowhere);
            return Some(Dispatch { command, id, operation, flags, start, length });
        }
        Some(Dispatch { command, id, operation, flags, start, length })
    }

    /// The requests in a command in flight, in sector order. For a request that is dispatched in pieces: the part that lies in
    /// this command. Empty if the command is not in flight.
    pub fn parts(&self, command: CommandId) -> impl Iterator<Item = Part> + '_ {
        let id = self.requests.in_drive(command).into_iter();
        id.flat_map(|id| self.requests.parts(id)).map(|(_, part)| part)
    }

    /// The drive completed a command: appends every request that is completed with it to `done`. `status` is 0 or an error
    /// number for the clients. Completing a command twice, or one that was never dispatched, is refused.
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
        self.complete_command(now, id, status, done);
        Ok(())
    }
    fn complete_command(
        &mut self,
        now: Instant,
        id: RequestId,
        status: i32,
        done: &mut Vec<Completion>,
    ) {
        self.in_flight -= 1;
        let Request { operation, length, .. } = self.requests[id];
        if operation == Operation::Flush {
            self.note(now, id, EventKind::Completed);
            self.complete_flushes(now, id, status, done);
            return;
        }
        self.watch_complete(now, operation, length);
        if !self.requests.is_orphan(id) {
            self.scheduler.complete(&mut context!(self, now), id);
        }
        if !self.requests.is_piece(id) {
            self.complete_whole(now, id, status, done);
        } else if let Some(whole) = self.requests.end_piece(id, status) {
            self.complete_whole(now, whole, 0, done);
        }
    }

    /// The time at which to call [`Self::dispatch`] even if no other event occurs.
    #[must_use = "dispatch must be called at this time"]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let throttles = self.throttles.iter().filter_map(|t| t.next_wakeup());
        // While the drive is full the scheduler is not called, so its wake-up does not matter.
        let room = self.in_flight < self.setup.facts.depth;
        throttles.chain(self.scheduler.next_wakeup().filter(|_| room)).min()
    }
    /// Whether a request waits that no policy holds: for a tag, or a flush for its command. A completion may let it go on.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.tags.has_waiters() || self.flushes.is_ready()
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
    /// The properties of the drive.
    #[must_use]
    pub fn facts(&self) -> &DriveFacts {
        &self.setup.facts
    }
    /// Number of commands in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
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
}
