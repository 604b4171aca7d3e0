//! Requests and the pool that owns them while the engine has them.
//!
//! A request lives in one slot of [`Requests`] from submission to completion; everybody else holds its
//! [`RequestId`]. Merging chains the absorbed request behind the one that took it in, in the order of
//! their sectors, so that the front end can still complete each on its own.

mod handover;
mod pieces;

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::id::{ClientId, CommandId, GroupId, RequestId};
use crate::priority::Priority;
use crate::time::Instant;
use crate::unit::Sectors;

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    /// Read sectors.
    Read,
    /// Write sectors.
    Write,
    /// Make all completed writes durable; has no sectors.
    Flush,
    /// Discard sectors (trim).
    Discard,
    /// Write zeroes, without data.
    WriteZeroes,
}

impl Operation {
    /// Does it change data on the drive?
    #[must_use]
    pub const fn modifies(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }
    /// The direction for limits and counters; everything except a read counts as a write.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::Read => Direction::Read,
            _ => Direction::Write,
        }
    }
}

/// Read or write, as limits and counters see it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the drive.
    Read,
    /// To the drive.
    Write,
}

impl Direction {
    /// Both, reads first; `direction as usize` indexes an array of two.
    pub const BOTH: [Self; 2] = [Self::Read, Self::Write];
}

/// Properties of a request beyond its operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Flags(u8);

impl Flags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// A client waits for this write (direct or `O_SYNC`). Reads are always synchronous.
    pub const SYNC: Self = Self(1);
    /// The write is durable before it completes (force unit access).
    pub const FUA: Self = Self(2);
    /// File-system metadata.
    pub const METADATA: Self = Self(4);
    /// Never merge this request.
    pub const NO_MERGE: Self = Self(8);
    /// Read-ahead: no client waits for it yet.
    pub const READ_AHEAD: Self = Self(16);
    /// No related request follows, so a scheduler should not idle after this one.
    pub const NO_IDLE: Self = Self(32);
    /// A further piece of a request whose first piece was submitted before: ceilings on requests do not count it again.
    pub const CONTINUES: Self = Self(64);
    /// Nobody waits for it any more, and it must not reach the drive. Set by the controller.
    pub(crate) const CANCELLED: Self = Self(128);

    /// These and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// Are all of `other` set?
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A request in the engine.
#[derive(Clone, Debug)]
pub struct Request {
    /// The caller's own identifier, returned with the completion.
    pub tag: u64,
    /// Its operation.
    pub operation: Operation,
    /// Its flags.
    pub flags: Flags,
    /// First sector. Grows downwards when another request is merged in front.
    pub start: Sectors,
    /// Length, including merged parts; zero for a flush, unless a scheduler holds it
    /// ([`FlushRule`](crate::controller::FlushRule)).
    pub length: Sectors,
    /// The client that submitted it.
    pub client: ClientId,
    /// The client's group at submission.
    pub group: GroupId,
    /// The client's priority at submission.
    pub priority: Priority,
    /// When it was submitted to the engine.
    pub submitted: Instant,
    /// When it had passed all throttles and asked for a tag; [`Instant::MAX`] before.
    pub asked_tag: Instant,
    /// When it got its tag; [`Instant::MAX`] before.
    pub got_tag: Instant,
    /// When it was handed to the drive; [`Instant::MAX`] before.
    pub dispatched: Instant,
    /// Submission order over the whole engine; breaks every tie.
    pub sequence: u64,
    /// The stage that holds it: throttles from 0, then the scheduler; or one of the constants below.
    pub stage: u8,
    /// Writes: which of its client's flushes covers it (see `controller/flush.rs`).
    pub(crate) epoch: u32,
}

/// [`Request::stage`] of a request that has not entered a stage.
pub(crate) const NO_STAGE: u8 = u8::MAX;
/// [`Request::stage`] of a request that was merged into another one.
pub const MERGED: u8 = u8::MAX - 1;
/// [`Request::stage`] of a dispatched flush that waits to share the next flush command.
pub const SHARES: u8 = u8::MAX - 2;

impl Request {
    /// One of a client in the root group, submitted at zero.
    #[cfg(feature = "testing")]
    pub fn of(client: ClientId, operation: Operation, start: u64, length: u64) -> Self {
        Self {
            tag: 0,
            operation,
            flags: Flags::NONE,
            start: Sectors(start),
            length: Sectors(length),
            client,
            group: GroupId::ROOT,
            priority: Priority::default(),
            submitted: Instant::ZERO,
            asked_tag: Instant::MAX,
            got_tag: Instant::MAX,
            dispatched: Instant::MAX,
            sequence: 0,
            stage: 0,
            epoch: 0,
        }
    }
    /// The sector after the last one.
    pub fn end(&self) -> Sectors {
        self.start + self.length
    }
    /// Was it cancelled ([`Controller::cancel`](crate::controller::Controller::cancel))? It costs nothing, and ends where
    /// the policy that holds it lets it go.
    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        self.flags.has(Flags::CANCELLED)
    }
    /// Does a client wait for it? True for reads, and for writes with [`Flags::SYNC`].
    #[must_use]
    pub fn is_sync(&self) -> bool {
        self.operation == Operation::Read || self.flags.has(Flags::SYNC)
    }
}

/// "No slot" in the links of the pool.
const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct Slot {
    /// The request as queues see it: `start` and `length` cover every merged part.
    request: Request,
    live: bool,
    /// Does it hold a tag?
    tagged: bool,
    /// Was it submitted in a plug?
    plugged: bool,
    /// What this slot itself was submitted with, whatever was merged into it since.
    own_start: Sectors,
    own_length: Sectors,
    /// Links of the one [`crate::parts::fifo::Fifo`] that this request may be in; when not alive, the
    /// next free slot.
    fifo_next: u32,
    fifo_prev: u32,
    /// The chain of parts in sector order: its first and last (valid in the chain's owner), and the
    /// part that follows this one.
    first_part: u32,
    last_part: u32,
    next_part: u32,
    /// For the policy that holds the request: where it keeps it (a tree node, an index).
    place: u32,
    /// A piece's request ([`Requests::take_piece`]); [`NIL`] for a request of its own.
    whole: u32,
    /// A request's pieces that the drive has.
    pieces: u32,
    /// How many requests this slot has had.
    generation: u32,
    /// Was it cut into pieces?
    cut: bool,
    /// Was it given to the drive by a stack that has been replaced since ([`handover`])?
    orphan: bool,
}

/// One submission that is part of a dispatched request or command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Part {
    /// The caller's own identifier.
    pub tag: u64,
    /// The client that submitted it.
    pub client: ClientId,
    /// First sector.
    pub start: Sectors,
    /// Length.
    pub length: Sectors,
    /// When it was submitted.
    pub submitted: Instant,
}

/// A piece that failed.
#[derive(Debug)]
struct Failed {
    whole: u32,
    start: Sectors,
    end: Sectors,
    status: i32,
}

/// The pool of live requests. It grows to the largest number alive at once, and then allocates nothing.
#[derive(Debug)]
pub struct Requests {
    slots: Vec<Slot>,
    /// The first free slot; the others follow by their `fifo_next`.
    free: u32,
    live: usize,
    /// Requests that held a tag and were merged into others since the controller last asked.
    absorbed: u32,
    /// The last merge's winner, and the last request with a tag that was merged away.
    last_merge: (RequestId, RequestId),
    /// Failed pieces of live requests.
    failed: Vec<Failed>,
}

impl Default for Requests {
    fn default() -> Self {
        Self::new()
    }
}

impl Requests {
    /// An empty pool.
    pub const fn new() -> Self {
        let last_merge = (RequestId(NIL), RequestId(NIL));
        let failed = Vec::new();
        Self { slots: Vec::new(), free: NIL, live: 0, absorbed: 0, last_merge, failed }
    }
    /// Live requests, merged parts included.
    pub fn len(&self) -> usize {
        self.live
    }
    /// Is no request alive?
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }
    /// Adds a request.
    #[must_use]
    pub fn insert(&mut self, request: Request) -> RequestId {
        self.live += 1;
        self.take_slot(request)
    }
    fn take_slot(&mut self, request: Request) -> RequestId {
        let index = match self.free {
            NIL => u32::try_from(self.slots.len()).expect("the queue limit is far below 2^32"),
            free => free,
        };
        let slot = Slot {
            own_start: request.start,
            own_length: request.length,
            request,
            live: true,
            tagged: false,
            plugged: false,
            fifo_next: NIL,
            fifo_prev: NIL,
            first_part: index,
            last_part: index,
            next_part: NIL,
            place: NIL,
            whole: NIL,
            pieces: 0,
            generation: 0,
            cut: false,
            orphan: false,
        };
        match self.slots.get_mut(index as usize) {
            Some(free) => {
                self.free = free.fifo_next;
                let generation = free.generation.wrapping_add(1);
                *free = Slot { generation, ..slot };
            }
            None => {
                if self.slots.len() == self.slots.capacity() {
                    // By a quarter: doubling would leave up to half of a large pool unused.
                    self.slots.reserve_exact(self.slots.len() / 4 + 16);
                }
                self.slots.push(slot);
            }
        }
        RequestId(index)
    }
    /// All live requests that were not merged into others, with their ids; pieces not.
    pub fn heads(&self) -> impl Iterator<Item = (RequestId, &Request)> {
        let slots = self.slots.iter().enumerate();
        let slots = slots.filter(|(_, slot)| slot.live && slot.whole == NIL);
        let all = slots.map(|(index, slot)| (RequestId(index as u32), &slot.request));
        all.filter(|(_, request)| request.stage != MERGED)
    }
    /// Ids of all requests are below this.
    pub fn bound(&self) -> usize {
        self.slots.len()
    }
    /// A live request that was not merged into another one; no piece.
    pub fn head(&self, id: RequestId) -> Option<&Request> {
        let slot = self.slots.get(id.0 as usize);
        let slot = slot.filter(|slot| slot.live && slot.whole == NIL)?;
        (slot.request.stage != MERGED).then_some(&slot.request)
    }
    /// The command id of a dispatched request.
    pub(crate) fn command(&self, id: RequestId) -> CommandId {
        CommandId::new(id.0, self.slots[id.0 as usize].generation)
    }
    /// The request of a command, if the command is in the drive.
    pub(crate) fn in_drive(&self, command: CommandId) -> Option<RequestId> {
        let slot = self.slots.get(command.index())?;
        let is_it = slot.live && slot.generation == command.generation && !slot.cut;
        let was_sent = slot.request.dispatched != Instant::MAX && slot.request.stage != MERGED;
        (is_it && was_sent).then_some(RequestId(command.index))
    }
    /// May this request be cancelled: is it whole, in a stage or waiting for a tag, and was no part of it dispatched?
    pub(crate) fn can_cancel(&self, id: RequestId) -> bool {
        let Some(slot) = self.slots.get(id.0 as usize) else { return false };
        let Request { stage, dispatched, operation, .. } = slot.request;
        let is_held = slot.live && stage < SHARES && dispatched == Instant::MAX;
        let is_whole = slot.whole == NIL && !slot.cut && !slot.orphan;
        is_held && is_whole && operation != Operation::Flush && !slot.request.is_cancelled()
    }
    /// Marks a request and all that was merged into it as cancelled: a change of the stack takes them apart.
    pub(crate) fn set_cancelled(&mut self, id: RequestId) {
        let mut part = self.slots[id.0 as usize].first_part;
        while part != NIL {
            let slot = &mut self.slots[part as usize];
            slot.request.flags = slot.request.flags.with(Flags::CANCELLED);
            part = slot.next_part;
        }
    }
    /// Does it hold a tag?
    pub(crate) fn is_tagged(&self, id: RequestId) -> bool {
        self.slots[id.0 as usize].tagged
    }
    /// Is this slot in use?
    pub fn is_live(&self, id: RequestId) -> bool {
        self.slots.get(id.0 as usize).is_some_and(|slot| slot.live)
    }
    /// Where the policy that holds the request keeps it; `u32::MAX` until set.
    pub fn place(&self, id: RequestId) -> u32 {
        self.slots[id.0 as usize].place
    }
    /// Remembers where the policy that holds the request keeps it.
    pub fn set_place(&mut self, id: RequestId, place: u32) {
        self.slots[id.0 as usize].place = place;
    }

    /// May `second` directly follow `first` in one larger request of at most `max` sectors?
    #[must_use]
    pub fn can_merge(&self, first: RequestId, second: RequestId, max: Sectors) -> bool {
        let (a, b) = (&self[first], &self[second]);
        let carries = matches!(a.operation, Operation::Read | Operation::Write);
        carries
            && !self.is_cut(first)
            && !self.is_cut(second)
            && a.end() == b.start
            && a.operation == b.operation
            && a.flags == b.flags
            && !a.flags.has(Flags::NO_MERGE)
            && a.group == b.group
            && a.priority == b.priority
            && a.length + b.length <= max
    }
    /// Appends `other` to `into`: `other` starts where `into` ends.
    pub fn merge_back(&mut self, into: RequestId, other: RequestId) {
        let (first, last, length) = self.chain(other);
        self.last_merge.0 = into;
        let head = &mut self.slots[into.0 as usize];
        let tail = head.last_part;
        head.request.length += length;
        head.last_part = last;
        self.slots[tail as usize].next_part = first;
    }
    /// Puts `other` before `into`: `other` ends where `into` starts. `into` keeps its identity, so
    /// its place in every queue that is not ordered by sector stays right.
    pub fn merge_front(&mut self, into: RequestId, other: RequestId) {
        let (first, last, length) = self.chain(other);
        self.last_merge.0 = into;
        let head = &mut self.slots[into.0 as usize];
        head.request.start -= length;
        head.request.length += length;
        let old_first = core::mem::replace(&mut head.first_part, first);
        self.slots[last as usize].next_part = old_first;
    }
    fn chain(&mut self, id: RequestId) -> (u32, u32, Sectors) {
        let slot = &mut self.slots[id.0 as usize];
        slot.request.stage = MERGED;
        if core::mem::take(&mut slot.tagged) {
            self.absorbed += 1;
            self.last_merge.1 = id;
        }
        (slot.first_part, slot.last_part, slot.request.length)
    }
    /// The submissions of a request in sector order; just itself when nothing was merged. Of a piece: what lies in it.
    pub fn parts(&self, id: RequestId) -> impl Iterator<Item = (RequestId, Part)> + '_ {
        let slot = &self.slots[id.0 as usize];
        let range = (slot.whole != NIL).then(|| (slot.request.start, slot.request.end()));
        let mut next = self.slots[self.whole(id).0 as usize].first_part;
        let parts = core::iter::from_fn(move || {
            if next == NIL {
                return None;
            }
            let slot = &self.slots[next as usize];
            let this = RequestId(core::mem::replace(&mut next, slot.next_part));
            Some((this, slot.part()))
        });
        parts.filter_map(move |(id, part)| {
            let Some((from, to)) = range else { return Some((id, part)) };
            let start = part.start.max(from);
            let end = (part.start + part.length).min(to);
            (start < end).then(|| (id, Part { start, length: end - start, ..part }))
        })
    }
    /// Takes a whole chain out of the pool, handing each piece to `each` in sector order.
    pub(crate) fn remove_parts(&mut self, id: RequestId, mut each: impl FnMut(&Request, Part)) {
        let mut next = self.slots[id.0 as usize].first_part;
        while next != NIL {
            let slot = &mut self.slots[next as usize];
            assert!(slot.live, "request {next} ended twice");
            slot.live = false;
            self.live -= 1;
            slot.fifo_next = core::mem::replace(&mut self.free, next);
            next = slot.next_part;
            each(&slot.request, slot.part());
        }
    }

    /// What the engine does with a completed request.
    #[cfg(feature = "testing")]
    pub fn end(&mut self, id: RequestId, each: impl FnMut(&Request, Part)) {
        self.remove_parts(id, each);
    }

    /// The request was submitted in a plug.
    pub(crate) fn set_plugged(&mut self, id: RequestId) {
        self.slots[id.0 as usize].plugged = true;
    }
    pub(crate) fn is_plugged(&self, id: RequestId) -> bool {
        self.slots[id.0 as usize].plugged
    }
    /// The request got a tag.
    pub(crate) fn set_tagged(&mut self, id: RequestId) {
        self.slots[id.0 as usize].tagged = true;
    }
    /// Tags of requests that were merged into others since the last call: they are free again.
    pub(crate) fn take_absorbed(&mut self) -> u32 {
        core::mem::take(&mut self.absorbed)
    }
    /// The winner of the last merge, and the last request with a tag that was merged away.
    pub(crate) fn last_merge(&self) -> (RequestId, RequestId) {
        self.last_merge
    }
    pub(crate) fn fifo_links(&mut self, id: RequestId) -> (&mut u32, &mut u32) {
        let slot = &mut self.slots[id.0 as usize];
        (&mut slot.fifo_prev, &mut slot.fifo_next)
    }
    pub(crate) fn fifo_prev(&self, id: RequestId) -> u32 {
        self.slots[id.0 as usize].fifo_prev
    }
    pub(crate) fn fifo_next(&self, id: RequestId) -> u32 {
        self.slots[id.0 as usize].fifo_next
    }
}

impl Slot {
    fn part(&self) -> Part {
        Part {
            tag: self.request.tag,
            client: self.request.client,
            start: self.own_start,
            length: self.own_length,
            submitted: self.request.submitted,
        }
    }
}

impl Index<RequestId> for Requests {
    type Output = Request;
    fn index(&self, id: RequestId) -> &Request {
        let slot = &self.slots[id.0 as usize];
        debug_assert!(slot.live, "request {id:?} is not alive");
        &slot.request
    }
}
impl IndexMut<RequestId> for Requests {
    fn index_mut(&mut self, id: RequestId) -> &mut Request {
        &mut self.slots[id.0 as usize].request
    }
}
