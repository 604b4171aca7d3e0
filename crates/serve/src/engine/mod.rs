//! The engine half of a reactor: the controller, the requests on their way and the back end.
//!
//! No socket, no ring, no clock: time is an argument, so that a script can turn it exactly as the lab
//! turns its own controller (the parity test does). Per turn the owner calls [`Engine::submit`] for
//! what came in, [`Engine::turn`], [`Engine::keep_lent`] before receive buffers are reused, and takes
//! what is finished with [`Engine::next_finished`].

mod commands;
mod live;
pub mod stats;
pub mod tally;

use std::collections::VecDeque;

use iofair_core::controller::{Completion, Controller, Dispatch, Plug, Setup, Stack, Submission};
use iofair_core::group::GroupId;
use iofair_core::policy::DriveFacts;
use iofair_core::request::{Flags, Operation, Part, RequestId};
use iofair_core::time::Instant;
use iofair_core::unit::{SECTOR_BYTES, Sectors};
use slab::Slab;

use commands::{Answered, Commands};
pub use live::{Patience, Plan, Volume};

use crate::back::volume::Stamp;
use crate::back::{Answer, Back, Extent, Job};
use crate::request::buffer::Data;
use crate::request::entry::Entry;
use crate::request::op::{self, NewOp, Op, Ops};

/// Submissions that may be inside at all. A request slot is about 200 bytes, so this is below 4 MiB.
const QUEUE_LIMIT: usize = 16 << 10;
/// Longest piece of a trim or of zeroes: they carry no data, so they may be longer than the rest.
const EMPTY_MAX: Sectors = Sectors::from_kib(32 << 10);

/// The engine half of a reactor.
pub struct Engine {
    controller: Controller,
    /// Requests that scheduler and drive may have together, if that is no matter of the stack.
    fixed_tags: Option<u32>,
    /// Commands that the drive takes at once.
    depth: u32,
    back: Box<dyn Back>,
    ops: Ops,
    volumes: Slab<Volume>,
    /// Groups and clients that go as soon as they are idle.
    leaving: live::Leaving,
    plug: Plug,
    /// Requests whose payload lies in a receive buffer.
    lent: Vec<usize>,
    finished: VecDeque<usize>,
    commands: Commands,
    /// Answers for requests that stay in `ops`, because a late command uses their memory.
    early: VecDeque<Op>,
    /// Such requests.
    abandoned: usize,
    busy: stats::Busy,
    tallies: tally::Tallies,
    answers: Vec<Answer>,
    completions: Vec<Completion>,
    parts: Vec<Part>,
    /// Nothing is taken in.
    paused: bool,
    /// Called with every dispatch; tests compare orders.
    observer: Option<Observer>,
}

/// Sees every dispatch.
pub type Observer = Box<dyn FnMut(Instant, &Dispatch) + Send>;

impl Engine {
    /// An engine without volumes. A scheduler that shares between groups is shown every request there is: with
    /// the kernel's few tags a group's requests would wait for those of other groups before it sees them.
    pub fn new(back: Box<dyn Back>, stack: Stack) -> Self {
        Self::build(back, stack, None)
    }
    /// The same with so many requests that scheduler and drive may have together.
    pub fn with_tags(back: Box<dyn Back>, stack: Stack, tags: u32) -> Self {
        Self::build(back, stack, Some(tags))
    }
    fn build(back: Box<dyn Back>, stack: Stack, fixed_tags: Option<u32>) -> Self {
        let facts = back.facts();
        // The back end may grow while the engine runs; volumes are checked against its real size.
        let facts = DriveFacts { capacity: Sectors(u64::MAX >> 10), ..facts };
        let tags = fixed_tags.unwrap_or_else(|| tags(&facts, &stack));
        let setup = Setup { facts, tags, queue_limit: 0, guaranteed: QUEUE_LIMIT, trace: 0 };
        let depth = facts.depth;
        let mut controller = Controller::new(setup, stack);
        if back.separate_flushes() {
            controller.separate_flushes();
        }
        controller.remember_decisions();
        let mut tallies = tally::Tallies::default();
        tallies.add(GroupId::ROOT, controller.groups());
        Self {
            controller,
            fixed_tags,
            depth,
            back,
            ops: Ops::default(),
            volumes: Slab::new(),
            leaving: live::Leaving::default(),
            plug: Plug::new(),
            lent: Vec::new(),
            finished: VecDeque::new(),
            commands: Commands::new(Patience::default().timeout),
            early: VecDeque::new(),
            abandoned: 0,
            busy: stats::Busy::default(),
            tallies,
            answers: Vec::new(),
            completions: Vec::new(),
            parts: Vec::new(),
            paused: false,
            observer: None,
        }
    }
    /// Shows every dispatch to `observer`.
    pub fn observe_dispatches(&mut self, observer: Observer) {
        self.observer = Some(observer);
    }

    /// Takes requests in no more, or again; what is inside goes its way.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }
    /// Are requests refused for now?
    pub fn is_paused(&self) -> bool {
        self.paused
    }
    /// Takes a request in, unless the queue is full (or paused): then it comes back, to be offered again after
    /// something was finished.
    // The refused request is as large as it came, and boxing it would cost every request.
    #[allow(clippy::result_large_err)]
    pub fn submit(&mut self, now: Instant, new: NewOp) -> Result<(), NewOp> {
        let volume = &self.volumes[new.volume];
        let (client, offset, operation) = (volume.client, volume.base + new.offset, new.operation);
        let group = volume.group;
        let (start, end) = match operation {
            Operation::Flush => (0, 0),
            _ => op::sectors(offset, new.length),
        };
        let longest = self.longest(operation).0;
        let pieces = (end - start).div_ceil(longest).max(1);
        let full = self.controller.pending() + self.plug.len() + pieces as usize > QUEUE_LIMIT;
        if full || self.paused {
            return Err(new);
        }
        let flags = flags(&new, volume.stamp());
        let lent = matches!(new.data, Data::Lent(_));
        let key = self.ops.insert(Op { group, ..Op::new(now, new, offset, pieces as u32) });
        self.tallies.came_in(now, group);
        if lent {
            self.lent.push(key);
        }
        for piece in 0..pieces {
            let first = start + piece * longest;
            let length = Sectors((end - first).min(longest));
            let (tag, start) = (key as u64, Sectors(first));
            let submission = Submission { tag, client, operation, flags, start, length };
            if self.plug.add(submission) {
                self.unplug(now);
            }
        }
        Ok(())
    }
    fn longest(&self, operation: Operation) -> Sectors {
        match operation {
            Operation::Discard | Operation::WriteZeroes => EMPTY_MAX,
            _ => self.back.facts().max_request,
        }
    }
    fn unplug(&mut self, now: Instant) {
        // Room was counted before anything went into the plug, clients and ranges are our own.
        let unplugged = self.controller.unplug(now, &mut self.plug);
        unplugged.expect("everything in the plug was checked before");
    }

    /// Lets everything happen that can happen now: answers in, dispatches out.
    pub fn turn(&mut self, now: Instant) {
        if !self.plug.is_empty() {
            self.unplug(now);
        }
        self.back.advance(now, &mut self.answers);
        self.complete(now);
        self.expire(now);
        loop {
            self.complete(now);
            while self.has_slot()
                && let Some(dispatch) = self.controller.dispatch(now)
            {
                self.start(now, dispatch);
            }
            if self.answers.is_empty() && self.completions.is_empty() {
                break;
            }
        }
        self.busy.update(now, self.controller.in_flight() > 0);
        self.turn_second(now);
        self.settle(now);
    }
    /// May the controller be asked for a command? Late commands keep their slots at the drive. Once they have
    /// all of them the drive is dead, and what comes is refused instead of waiting for ever.
    fn has_slot(&self) -> bool {
        let (late, depth) = (self.commands.late(), self.depth);
        late >= depth || self.controller.in_flight() + late < depth
    }
    fn start(&mut self, now: Instant, dispatch: Dispatch) {
        if let Some(observer) = &mut self.observer {
            observer(now, &dispatch);
        }
        if self.commands.late() >= self.depth {
            let (id, done) = (dispatch.id, &mut self.completions);
            return self.controller.complete(now, id, libc::EIO, done);
        }
        self.parts.clear();
        self.parts.extend(self.controller.parts(dispatch.id));
        let key = self.commands.start(now, dispatch.id);
        let dispatch = Dispatch { id: RequestId(key as u32), ..dispatch };
        let job = Job { now, dispatch, parts: &self.parts };
        self.back.start(&job, &mut self.ops, &mut self.answers);
    }
    fn complete(&mut self, now: Instant) {
        let mut answers = std::mem::take(&mut self.answers);
        for Answer { id, status } in answers.drain(..) {
            match self.commands.answer(id.0 as usize) {
                Answered::InTime(id) => {
                    self.controller.complete(now, id, status, &mut self.completions);
                }
                Answered::Late(keys) => {
                    keys.into_iter().for_each(|key| self.piece_done(now, key, status));
                }
            }
        }
        self.answers = answers;
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            let key = completion.part.tag as usize;
            self.tallies.piece(self.ops[key].group, &completion);
            self.piece_done(now, key, completion.status);
        }
        self.completions = completions;
    }
    fn piece_done(&mut self, now: Instant, key: usize, status: i32) {
        let op = &mut self.ops[key];
        if op.status == 0 {
            op.status = status;
        }
        op.left -= 1;
        if op.left > 0 {
            return;
        }
        if !op.abandoned {
            self.volumes[op.volume].finished(now, op);
            self.tallies.finished(now, op);
            return self.finished.push_back(key);
        }
        let op = self.ops.remove(key);
        self.ops.release(op.data);
        self.abandoned -= 1;
    }
    /// Answers the requests of commands that the back end has had for too long. The controller is told that
    /// they are over, so that nothing else waits for them.
    fn expire(&mut self, now: Instant) {
        while let Some((command, id)) = self.commands.take_late(now) {
            self.controller.complete(now, id, libc::EIO, &mut self.completions);
            for completion in self.completions.drain(..) {
                let key = completion.part.tag as usize;
                self.commands.keeps(command, key);
                let op = &mut self.ops[key];
                // A client's own memory cannot be taken back from the kernel, so that request waits on.
                if op.abandoned || !op.data.is_ours() {
                    continue;
                }
                (op.status, op.abandoned) = (libc::EIO, true);
                self.abandoned += 1;
                self.volumes[op.volume].finished(now, op);
                self.tallies.finished(now, op);
                self.early.push_back(op.answer_without_data());
            }
        }
    }
    /// The ring finished an entry of the back end's; call [`Self::turn`] afterwards.
    pub fn on_ring(&mut self, user_data: u32, result: i32) {
        self.back.on_ring(user_data, result, &mut self.ops, &mut self.answers);
    }
    /// Entries that the back end wants on the ring.
    pub fn take_entries(&mut self) -> Option<&mut Vec<Entry>> {
        self.back.take_entries()
    }
    /// Payloads that still lie in receive buffers move into buffers of their own.
    pub fn keep_lent(&mut self) {
        for key in self.lent.drain(..) {
            self.ops.keep(key);
        }
    }
    /// A finished request, to be answered. Call [`Self::keep_lent`] first.
    pub fn next_finished(&mut self) -> Option<Op> {
        debug_assert!(self.lent.is_empty(), "keys of lent payloads must not be reused");
        if let Some(op) = self.early.pop_front() {
            return Some(op);
        }
        let key = self.finished.pop_front()?;
        Some(self.ops.remove(key))
    }
    /// When to call [`Self::turn`] again though nothing else happens.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let policies = self.controller.next_wakeup().filter(|_| self.has_slot());
        let others = self.back.next_event().into_iter().chain(self.commands.next_late());
        // Nobody is promised anything while nobody asks.
        let second = (self.pending() > 0).then(|| self.tallies.next_second());
        policies.into_iter().chain(others).chain(second).min()
    }
    /// Begins another second of what is counted, if this one is over.
    pub(crate) fn turn_second(&mut self, now: Instant) {
        self.tallies.turn(now, self.controller.groups());
    }
    /// When the back end itself goes on; its instants matter to the microsecond.
    pub fn next_event(&self) -> Option<Instant> {
        self.back.next_event()
    }
    /// Requests that are not finished.
    pub fn pending(&self) -> usize {
        self.ops.len() - self.abandoned
    }
    /// Does the back end still have commands, and with them memory of ours?
    pub fn is_stuck(&self) -> bool {
        !self.commands.is_empty()
    }
    /// The buffers, for payloads that are received in pieces.
    pub fn ops(&mut self) -> &mut Ops {
        &mut self.ops
    }
    /// What of a volume's range is stored, at most `limit` pieces.
    pub fn extents(&mut self, key: usize, offset: u64, length: u64, limit: usize) -> Vec<Extent> {
        let base = self.volumes[key].base;
        self.back.extents(base + offset, length, limit)
    }
    /// The back end.
    pub fn back(&mut self) -> &mut dyn Back {
        &mut *self.back
    }
    /// The controller, to look at.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }
}

/// Requests that scheduler and drive may have together.
fn tags(facts: &DriveFacts, stack: &Stack) -> u32 {
    match stack.groups {
        true => QUEUE_LIMIT as u32,
        false => Setup::kernel_tags(facts, stack.scheduler.row.name),
    }
}

/// How the controller sees a request.
fn flags(new: &NewOp, stamp: &Stamp) -> Flags {
    let mut flags = match new.operation {
        Operation::Read => stamp.reads,
        _ => stamp.writes,
    };
    if new.hints.fua {
        flags = flags.with(Flags::FUA);
    }
    if !(new.offset | u64::from(new.length)).is_multiple_of(SECTOR_BYTES) {
        flags = flags.with(Flags::NO_MERGE);
    }
    flags
}
