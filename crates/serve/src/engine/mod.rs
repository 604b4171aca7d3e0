//! The engine half of a reactor: the controller, the requests in flight, and the back end.
//!
//! It has no socket, no ring and no clock. Time is an argument, so a script can drive it exactly as the simulator
//! drives its own controller (the parity test does). In each turn, the owner calls [`Engine::submit`] for new
//! requests, [`Engine::turn`], and [`Engine::keep_lent`] before receive buffers are reused, and takes finished
//! requests with [`Engine::next_finished`].

pub(crate) mod cancel;
mod change;
mod commands;
mod drive;
pub mod failing;
mod fences;
mod flushes;
mod late;
mod live;
mod losses;
mod pieces;
mod plan;
pub mod record;
mod recording;
pub mod runs;
pub mod stats;
pub mod tally;
mod unfed;
mod volume;

use std::collections::VecDeque;
use std::sync::Arc;

use iofair_core::controller::{Completion, Controller, Dispatch, FlushRule, Plug, Setup, Stack};
use iofair_core::id::{GroupId, RequestId};
use iofair_core::policy::DriveFacts;
use iofair_core::request::{Flags, Operation, Part};
use iofair_core::time::Instant;
use iofair_core::unit::{SECTOR_BYTES, Sectors};
use slab::Slab;

pub use change::{Change, Changed};
use commands::{Commands, Timing};
pub use plan::{Plan, Timeouts};
pub use volume::Volume;

use crate::back::uring::Storage;
use crate::back::volume::Stamp;
use crate::back::{Back, Completed, Job, Lookup};
use crate::request::data::Data;
use crate::request::entry::Entry;
use crate::request::extent::Extent;
use crate::request::op::{NewOp, Op, Ops};

/// Request slots that the groups share, by weight. A slot takes about 200 bytes, so this is below 4 MiB.
const SHARED_SLOTS: usize = 16 << 10;
/// Request slots that every group has to itself, whatever the others do: enough that a client of a group with little
/// weight still keeps a fast drive busy.
const OWN_SLOTS: usize = 16;
/// Request slots that one volume may hold: far more than keep a drive busy and let sequential requests merge, and a
/// quarter of the shared ones. Where one group has all shared slots (half of the pool at the default weight), the volumes
/// beside a greedy one still find 4096.
const CLIENT_SLOTS: u32 = 4096;
/// Least tags where the scheduler shares between groups: more than there are slots, which are the bound then.
const TAGS_UNBOUNDED: u32 = 1 << 20;
/// Longest piece of a trim or of zeroes: they carry no data, so they may be longer than the rest. The controller has one
/// piece of such a request at a time.
const EMPTY_MAX: Sectors = Sectors::from_kib(32 << 10);

/// Bytes that commands may have together which the back end completes at once, with a cost for each, before the turn ends:
/// others must get their turn while memory is copied.
const AT_ONCE_MAX: u64 = 16 << 20;
/// What such a command costs beside its bytes.
const AT_ONCE_COST: u64 = 16 << 10;

/// The engine half of a reactor.
pub struct Engine {
    controller: Controller,
    /// Requests that scheduler and drive may have together, if that is no matter of the stack.
    fixed_tags: Option<u32>,
    /// Commands that the drive takes at once.
    depth: u32,
    /// Bytes of its longest command with data.
    longest_data: u64,
    back: Box<dyn Back>,
    /// Added to the flags of each request.
    own_flags: Flags,
    ops: Ops,
    volumes: Slab<Volume>,
    index: volume::Index,
    /// Whether the drive is rotational.
    rotational: bool,
    /// Groups and clients that go as soon as they are idle.
    leaving: volume::Leaving,
    plug: Plug,
    /// Requests whose payload lies in a receive buffer.
    lent: Vec<usize>,
    finished: VecDeque<usize>,
    commands: Commands,
    /// Completions of requests that stay in `ops`, because a late command uses their memory.
    early: VecDeque<Op>,
    /// Such requests.
    abandoned: usize,
    /// When the last flush began that made everything on a shared drive durable.
    durable: Option<Instant>,
    /// What they may still write.
    fences: fences::Fences,
    unfed: unfed::Unfed,
    /// What was completed at once in this turn, as [`AT_ONCE_MAX`] counts it.
    at_once: u64,
    /// The last turn ended though more could have been dispatched.
    unfinished: Option<Instant>,
    busy: stats::Busy,
    tallies: tally::Tallies,
    failures: failing::Failures,
    completed: Vec<Completed>,
    completions: Vec<Completion>,
    parts: Vec<Part>,
    /// Nothing is taken in.
    paused: bool,
    /// What records the requests of clients, while somebody wants that.
    recorder: Option<Box<record::Recorder>>,
    /// Recordings so far.
    recordings: u64,
    /// Called with every dispatch; tests compare orders.
    observer: Option<Observer>,
}

/// A function that is called for every dispatch.
pub type Observer = Box<dyn FnMut(Instant, &Dispatch) + Send>;

impl Engine {
    /// An engine without volumes. A scheduler that shares between groups sees the full backlog: with as few tags as
    /// in the kernel, a group's requests would wait for those of other groups before the scheduler sees them.
    pub fn new(back: Box<dyn Back>, stack: Stack) -> Self {
        Self::build(back, stack, None)
    }
    /// The same with a limit on the requests that the scheduler and the drive have together.
    pub fn with_tags(back: Box<dyn Back>, stack: Stack, tags: u32) -> Self {
        Self::build(back, stack, Some(tags))
    }
    fn build(back: Box<dyn Back>, stack: Stack, fixed_tags: Option<u32>) -> Self {
        let facts = back.facts();
        // The back end may grow while the engine runs; volumes are checked against its real size.
        let facts = DriveFacts { capacity: Sectors(u64::MAX >> 10), ..facts };
        let tags = fixed_tags.unwrap_or_else(|| tags(&facts, &stack));
        let (queue_limit, guaranteed) = (SHARED_SLOTS, OWN_SLOTS);
        let flushes = FlushRule::Scheduled;
        let setup = Setup {
            facts,
            tags,
            queue_limit,
            guaranteed,
            client_limit: CLIENT_SLOTS,
            flushes,
            trace: 0,
        };
        let (depth, longest_data) = (facts.depth, facts.max_request.bytes());
        let mut controller = Controller::new(setup, stack);
        if back.separate_flushes() {
            controller.separate_flushes();
        }
        controller.remember_decisions();
        controller.keep_passed();
        let mut tallies = tally::Tallies::default();
        tallies.add(GroupId::ROOT, controller.groups());
        Self {
            controller,
            fixed_tags,
            depth,
            longest_data,
            own_flags: own_flags(&*back),
            back,
            ops: Ops::default(),
            volumes: Slab::new(),
            index: volume::Index::default(),
            rotational: facts.rotational,
            leaving: volume::Leaving::default(),
            plug: Plug::new(),
            lent: Vec::new(),
            finished: VecDeque::new(),
            commands: Commands::new(Timeouts::default().timeout),
            early: VecDeque::new(),
            abandoned: 0,
            durable: None,
            fences: fences::Fences::default(),
            unfed: unfed::Unfed::default(),
            at_once: 0,
            unfinished: None,
            busy: stats::Busy::default(),
            tallies,
            failures: failing::Failures::default(),
            completed: Vec::new(),
            completions: Vec::new(),
            parts: Vec::new(),
            paused: false,
            recorder: None,
            recordings: 0,
            observer: None,
        }
    }
    /// Calls `observer` for every dispatch.
    pub fn observe_dispatches(&mut self, observer: Observer) {
        self.observer = Some(observer);
    }

    /// Stops or resumes accepting requests; requests in flight continue.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }
    /// Whether requests are refused for now.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }
    /// Takes a request in, unless its group has no room (or the engine is paused), or asks for a block status while it has
    /// one: then it comes back, to be offered again once there is room ([`Self::has_room`]). A write to where a late write is
    /// in flight is taken in, and fails.
    // The refused request is as large as it came, and boxing it would cost every request.
    #[allow(clippy::result_large_err)]
    pub fn submit(&mut self, now: Instant, new: NewOp) -> Result<(), NewOp> {
        let is_status = new.hints.extents > 0;
        let group = self.volumes[new.volume].group;
        if !self.has_room(new.volume) || (is_status && self.tallies.get(group).is_asking) {
            return Err(new);
        }
        if self.is_fenced(&new) {
            self.fail(now, new, libc::EIO);
            return Ok(());
        }
        let volume = &self.volumes[new.volume];
        let (drive, together) = volume.map().locate(new.offset);
        let is_whole = together >= u64::from(new.length);
        let flags = flags(&new, volume.stamp()).with(self.own_flags);
        let lent = matches!(new.data, Data::Lent(_));
        let mut op = Op::new(now, new, volume.group, flags);
        op.passage = tally::passage(&op, self.controller.groups());
        self.tallies.came_in(now, &op, self.controller.groups());
        if is_status {
            self.tallies.asks_status(op.group);
        }
        let mut op = Op { drive: is_whole.then_some(drive), ..op };
        if let Some(recorder) = &mut self.recorder {
            op.recorded = recorder.submitted(&op, &volume.sender(drive, self.controller.groups()));
        }
        let key = self.ops.insert(op);
        if lent {
            self.lent.push(key);
        }
        self.feed_one(now, key);
        self.feed(now, key);
        Ok(())
    }
    fn unplug(&mut self, now: Instant) {
        let unplugged = self.controller.unplug(now, &mut self.plug);
        unplugged.expect("everything in the plug has its slot");
        for (tag, id) in self.plug.admitted() {
            self.ops.set_request(*tag, *id);
        }
        self.count_passed(now);
    }

    /// Processes everything that is possible now: takes completions and dispatches commands.
    pub fn turn(&mut self, now: Instant) {
        if !self.plug.is_empty() {
            self.unplug(now);
        }
        self.count_passed(now);
        self.back.advance(now, &mut self.ops, &mut self.completed);
        self.complete(now);
        self.expire(now);
        self.at_once = 0;
        loop {
            self.complete(now);
            self.feed_waiting(now);
            if !self.plug.is_empty() {
                self.unplug(now);
            }
            while self.at_once < AT_ONCE_MAX
                && self.has_slot()
                && let Some(dispatch) = self.controller.dispatch(now)
            {
                self.start(now, dispatch);
            }
            self.count_passed(now);
            if self.completed.is_empty() && self.completions.is_empty() {
                break;
            }
        }
        self.unfinished = (self.at_once >= AT_ONCE_MAX).then_some(now);
        self.busy.update(now, self.controller.in_flight() > 0);
        self.turn_second(now);
        self.settle(now);
    }
    /// Whether the controller may be asked for a command. Late commands keep their slots at the drive. Once they have
    /// all of them the drive is dead, and what comes is refused instead of waiting for ever.
    fn has_slot(&self) -> bool {
        let (late, depth) = (self.commands.late(), self.depth);
        late >= depth || self.controller.in_flight() + late < depth
    }
    fn start(&mut self, now: Instant, mut dispatch: Dispatch) {
        if let Some(observer) = &mut self.observer {
            observer(now, &dispatch);
        }
        self.parts.clear();
        self.parts.extend(self.controller.parts(dispatch.command));
        let ops = &self.ops;
        // Completed already, with another piece that was late.
        let abandoned = self.parts.iter().all(|part| ops[ops.piece(part).op].abandoned);
        if abandoned || self.commands.late() >= self.depth {
            self.parts.iter().for_each(|part| self.ops.fail_piece(part.tag, libc::EIO));
            let (command, done) = (dispatch.command, &mut self.completions);
            let over = self.controller.complete(now, command, libc::EIO, done);
            return over.expect("it was just given");
        }
        self.parts.iter().for_each(|part| self.ops.use_piece(part.tag));
        let is_flush = dispatch.operation == Operation::Flush;
        let key = self.commands.start(now, dispatch.command, is_flush);
        dispatch.id = RequestId(key as u32);
        let (job, before) = (Job { now, dispatch, parts: &self.parts }, self.completed.len());
        self.back.start(&job, &mut self.ops, &mut self.completed);
        if self.completed.len() > before {
            self.at_once += AT_ONCE_COST + dispatch.length.bytes();
        }
    }
    fn complete(&mut self, now: Instant) {
        self.take_losses();
        let mut completed = std::mem::take(&mut self.completed);
        for Completed { id, status } in completed.drain(..) {
            let flush = self.commands.flush_started(id.0 as usize);
            match self.commands.complete(id.0 as usize) {
                Timing::InTime(command) => {
                    for part in self.controller.parts(command) {
                        self.ops.command_done(part.tag, status);
                    }
                    let first = self.completions.len();
                    let over =
                        self.controller.complete(now, command, status, &mut self.completions);
                    over.expect("the back end completed what it was given, once");
                    if flush.is_some() && status != 0 {
                        self.flush_failed(status, first);
                    }
                }
                Timing::Late(pieces) => {
                    for tag in pieces {
                        if flush.is_some() && status != 0 {
                            self.late_flush_failed(status, tag);
                        }
                        if self.ops.command_done(tag, status) {
                            self.piece_done(now, tag, 0);
                        }
                    }
                }
            }
            if let (Some(started), 0) = (flush, status) {
                self.flush_succeeded(started);
            }
        }
        self.completed = completed;
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            let op = self.ops.piece(&completion.part).op;
            self.tallies.piece(self.ops[op].group, &completion);
            if self.ops.complete_piece(completion.part.tag) {
                self.piece_done(now, completion.part.tag, completion.status);
            }
        }
        self.completions = completions;
    }
    fn piece_done(&mut self, now: Instant, tag: u64, status: i32) {
        let piece = self.ops.end_piece(tag);
        if piece.fenced {
            self.fences.remove(&piece.range());
        }
        let op = &mut self.ops[piece.op];
        let levels = op.passage.end(piece.passed, op.left);
        self.tallies.uncounted(now, op, levels, self.controller.groups());
        if op.status == 0 {
            op.status = if piece.status == 0 { status } else { piece.status };
        }
        // After an error it is unknown what was written, so the rest of the request may be left out.
        if op.status == 0 && op.is_uncut() {
            self.feed(now, piece.op);
        } else if op.left == 0 {
            self.finish(now, piece.op);
        }
    }
    /// Nothing of a request is in flight any more.
    fn finish(&mut self, now: Instant, key: usize) {
        let op = &mut self.ops[key];
        op.finished = true;
        if op.recorded != 0
            && let Some(recorder) = &mut self.recorder
        {
            recorder.finished(now, op);
        }
        if !op.abandoned {
            if op.cancelled {
                self.tallies.cancelled(now, op, self.controller.groups());
            } else {
                let volume = &mut self.volumes[op.volume];
                if op.operation == Operation::Flush {
                    volume.losses.flushed(op);
                }
                volume.finished(now, op);
                self.failures.ended(now, op, volume);
                self.tallies.finished(now, op, self.controller.groups());
            }
            return self.finished.push_back(key);
        }
        let op = self.ops.remove(key);
        self.ops.release(op.data);
        self.abandoned -= 1;
    }
    /// What fails of the drive and of the volumes.
    pub fn failures(&self) -> failing::FailureReport {
        let (shared, lost) = (!self.back.separate_flushes(), self.back.is_lost());
        self.failures.report(&self.volumes, shared, lost)
    }
    /// Handles the completion of a ring entry of the back end; call [`Self::turn`] afterwards.
    pub(crate) fn on_ring(&mut self, user_data: u32, result: i32) {
        self.back.on_ring(user_data, result, &mut self.ops, &mut self.completed);
    }
    /// Ring entries that the back end wants to submit.
    pub(crate) fn take_entries(&mut self) -> Option<&mut Vec<Entry>> {
        self.back.take_entries()
    }
    /// Moves payloads that are still in receive buffers to their own buffers.
    pub fn keep_lent(&mut self) {
        for key in self.lent.drain(..) {
            self.ops.keep(key);
        }
    }
    /// The next finished request, for its completion. Call [`Self::keep_lent`] first.
    pub fn next_finished(&mut self) -> Option<Op> {
        debug_assert!(self.lent.is_empty(), "keys of lent payloads must not be reused");
        if let Some(op) = self.early.pop_front() {
            return Some(op);
        }
        let key = self.finished.pop_front()?;
        Some(self.ops.remove(key))
    }
    /// When to call [`Self::turn`] again even if nothing else happens.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let policies = self.controller.next_wakeup().filter(|_| self.has_slot());
        let others = self.back.next_event().into_iter().chain(self.commands.next_late());
        // Without pending requests no promise can be broken.
        let second = (self.pending() > 0).then(|| self.tallies.next_second());
        policies.into_iter().chain(others).chain(second).chain(self.unfinished).min()
    }
    /// Begins another second of what is counted, if this one is over.
    pub(crate) fn turn_second(&mut self, now: Instant) {
        self.tallies.turn(now, self.controller.groups());
        self.forget_recording(now);
    }
    /// Gives an emulated drive its timing.
    #[cfg(test)]
    pub(crate) fn share_timing(&mut self, timing: &Arc<crate::back::emulated::Timing>) {
        self.back.share_timing(timing);
        self.own_flags = own_flags(&*self.back);
    }
    /// The next event of the back end, which must be handled within microseconds.
    pub fn next_event(&self) -> Option<Instant> {
        self.back.next_event()
    }
    /// Whether to poll for the last microseconds before that.
    pub fn polls(&self) -> bool {
        self.back.polls()
    }
    /// Number of unfinished requests.
    pub fn pending(&self) -> usize {
        self.ops.len() - self.abandoned
    }
    /// Whether the back end still has commands, and so uses our memory.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.commands.is_empty()
    }
    /// The table of requests, and buffers for payloads that are received in pieces.
    pub fn ops(&mut self) -> &mut Ops {
        &mut self.ops
    }
    /// Commands for another thread: what each finds comes to [`Self::on_found`].
    pub(crate) fn take_lookups(&mut self) -> Option<&mut Vec<Lookup>> {
        self.back.take_lookups()
    }
    /// Files to be closed by another thread.
    pub(crate) fn take_closing(&mut self) -> Option<&mut Vec<Arc<Storage>>> {
        self.back.take_closing()
    }
    /// The group of a request in flight.
    pub(crate) fn group_of(&self, op: usize) -> GroupId {
        self.ops[op].group
    }
    /// Another thread has found what of a request's range is stored; call [`Self::turn`] afterwards.
    pub(crate) fn on_found(&mut self, command: RequestId, op: usize, extents: Vec<Extent>) {
        let status = if extents.is_empty() { libc::EIO } else { 0 };
        // The command keeps the request, whether it is completed already or not.
        self.ops[op].data = Data::Extents(extents);
        self.back.on_found(command, status, &mut self.completed);
    }
    /// The back end.
    pub fn back(&mut self) -> &mut dyn Back {
        &mut *self.back
    }
    /// The controller, for inspection.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }
}

/// Requests that scheduler and drive may have together: those of the stack, and more where it shares between groups.
fn tags(facts: &DriveFacts, stack: &Stack) -> u32 {
    let own = stack.tags(facts);
    if stack.groups { own.max(TAGS_UNBOUNDED) } else { own }
}

/// Flags of every request for this back end.
fn own_flags(back: &dyn Back) -> Flags {
    if back.merges() { Flags::NONE } else { Flags::NO_MERGE }
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
    if new.hints.continues {
        flags = flags.with(Flags::CONTINUES);
    }
    let is_whole = (new.offset | u64::from(new.length)).is_multiple_of(SECTOR_BYTES);
    if !is_whole || new.hints.extents > 0 {
        flags = flags.with(Flags::NO_MERGE);
    }
    flags
}
