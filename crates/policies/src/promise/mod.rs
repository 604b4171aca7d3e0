//! `promise`: every feasible minimum is kept, and the drive stays full.
//!
//! **Idea.** A group with a minimum has a clock that says up to when its promise is kept. While a group is behind its
//! clock nothing else goes to the drive; at all other times everybody shares it by weight, in drive time, and a window
//! keeps what the drive has at once so small that a promised request finds little before it, and so large that the drive
//! never runs dry. Nothing has to be set: rate and latency of the drive are measured while it works.
//!
//! **Rules**, each in a file beside this one:
//!
//! - [`clock`]: minimums, and the gate; [`requests`]: what it counts.
//! - [`deadlines`]: reads with a latency.
//! - [`shares`]: what is left, by weight.
//! - [`window`]: what the drive has at once; long requests in pieces.
//! - [`pace`]: writes beside reads with a latency.
//! - [`drive`]: what is known of the drive.
//! - [`flash`]: drives without a head serve many at once.
//! - [`head`]: is there one to move?
//! - [`turn`]: drives with a head serve one client at a time.
//!
//! Service for a promise counts for the group's share as well, so that a group gets the larger of the two and not both. A
//! minimum holds for all clients and groups inside.
//!
//! Writes wait while a read in flight is later than its share of the drive explains. A flush waits for the writes that
//! the drive has, and new writes wait for the flush.
//!
//! **Stated by the source**: nothing. The policy is our own choice, and what it takes from others is named in the files.

mod clock;
mod deadlines;
mod drive;
mod flash;
mod head;
mod late;
mod pace;
mod requests;
mod shares;
#[cfg(test)]
mod tests;
mod turn;
mod window;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::parts::tree::{Arena, NodeId, Tree};
use iofair_core::contract::WEIGHT_DEFAULT;
use iofair_core::group::{Change, Class, ClientId, GroupId, Groups};
use iofair_core::minimum::{Amount, Minimum};
use iofair_core::parts::fifo::Fifo;
use iofair_core::policy::{
    Build, Claim, Context, Gauges, HoldInfo, Judgement, Policy, Role, Row, Tags,
};
use iofair_core::request::{Operation, Request, RequestId, Requests};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_core::unit::Sectors;

use clock::{Clocks, Gate};
use deadlines::Deadlines;
use drive::Drive;
use head::Head;
use pace::Pace;
use requests::Kind;
use shares::{EntityId, SIDES, Shares, Side};
use turn::Turn;
use window::Window;

/// Its row in the table.
pub static ROW: Row = Row {
    name: "promise",
    short: "promise",
    role: Role::Scheduler { groups: true, tags: Tags::Unlimited, flushes: true, minimums: true },
    summary: "every feasible minimum kept, the rest by weight, the drive full",
    file: "promise/mod.rs",
    parameters: &[],
    overrides: &[],
    judgement: Judgement {
        promises: &[
            Claim {
                says: "A minimum in bytes or I/Os a second, kept beside readers and writers of any number, while \
                    the drive stays as full as without control.",
                shown_by: "promise/plextor",
            },
            Claim {
                says: "What is left by weight, in drive time; who is alone is not held.",
                shown_by: "promise/shares",
            },
            Claim {
                says: "A latency of reads, also beside writers: they slow down as far as it needs.",
                shown_by: "isolation/latency",
            },
        ],
        needs: "Minimums that the drive can keep; what it cannot keep is cut to what it reaches.",
        fails: &[
            Claim {
                says: "A minimum near what its client reaches alone costs the others more than its part, since the \
                    drive waits for one request at a time.",
                shown_by: "promise/plextor",
            },
            Claim {
                says: "On a disk a single second may get less than the minimum of a client whose own scattered writes fill the \
                    disk's cache.",
                shown_by: "search/case-0707",
            },
            Claim {
                says: "A latency on a disk is missed beside writes that the disk's cache completes before they are \
                    written.",
                shown_by: "",
            },
        ],
    },
    build,
};

/// A minimum is one of data. A trim counts so many bytes, and so does a flush that no write came before: a loop of them
/// is not owed the whole drive. As many flushes as writes count nothing.
const NO_DATA: u64 = 128 << 10;
/// Most flushes that count nothing one after the other.
const FLUSHES_FREE: u32 = 1024;
/// How far a clock may run ahead, on flash and on drives with a head.
const AHEAD: [Nanos; 2] = [Nanos::from_millis(5), Nanos::ZERO];
/// Drives with a head serve minimums in frames of this length, of which a second has a whole number.
const FRAME: [Nanos; 2] = [Nanos::ZERO, Nanos::from_millis(500)];
/// How far behind: what was not served before that is not owed any more.
const LAG_MAX: [Nanos; 2] = [Nanos::from_secs(1), Nanos::from_secs(2)];
/// Promises are compared with what is reached over this time.
const PERIOD: [Nanos; 2] = [Nanos::from_millis(100), Nanos::from_secs(2)];

/// The place of a read that is not in [`Promise::reads`].
const NOT_WATCHED: NodeId = NodeId(u32::MAX);

/// Of clocks, on drives with a head and without.
fn bounds(head: bool) -> clock::Bounds {
    let all = [AHEAD, FRAME, LAG_MAX, PERIOD];
    let [ahead, frame, lag_max, period] = all.map(|it| it[usize::from(head)]);
    clock::Bounds { ahead, frame, lag_max, period }
}

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    Box::new(Promise {
        groups: build.groups,
        clients: Vec::new(),
        shares: Shares::default(),
        clocks: Clocks::new(bounds(build.facts.rotational)),
        deadlines: Deadlines::default(),
        latencies: false,
        counts: false,
        sent: Vec::new(),
        window: Window::default(),
        pace: Pace::default(),
        throttle: Pace::default(),
        drive: Drive::default(),
        late: Arena::default(),
        reads: Tree::new(),
        probe: Probe::No,
        head: Head::new(build.facts.rotational),
        turn: None,
        writer: None,
        wakeup: None,
        holder: None,
        queued: 0,
        writes: 0,
        in_flight: 0,
        last_done: Instant::ZERO,
    })
}

/// A client's requests in the order of their arrival. What a read needs is in the first line of the processor's cache.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C, align(64))]
struct Client {
    requests: requests::Requests,
    /// Where its last read and its last write ended.
    ends: [Sectors; 2],
    queues: [Fifo; SIDES],
    /// Flushes that count nothing: one for each write so far.
    flushes_free: u32,
    /// Until when reads that were late are made up for.
    compensated: Instant,
}

impl Client {
    /// How much a command counts for minimums.
    fn promised_amount(&mut self, operation: Operation, bytes: u64) -> Amount {
        match operation {
            Operation::Flush if self.flushes_free > 0 => {
                self.flushes_free -= 1;
                Amount::default()
            }
            Operation::Flush | Operation::Discard => Amount::of(NO_DATA),
            Operation::Read | Operation::Write | Operation::WriteZeroes => Amount::of(bytes),
        }
    }
    /// A command of one side goes from `start` to `end`: is that not where its last one of this side ended?
    fn is_far(&mut self, side: Side, start: Sectors, end: Sectors) -> bool {
        core::mem::replace(&mut self.ends[usize::from(side != Side::Read)], end) != start
    }
}

/// How much of a command in flight counts for minimums, and how many bytes for the window.
#[derive(Clone, Copy, Default, Debug)]
struct Sent {
    promised: Amount,
    window: u64,
}

/// One read has the drive to itself, for its latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    No,
    /// As soon as the drive is empty.
    Wanted,
    /// It is the read that goes now.
    Sending,
    /// The drive has it.
    Sent,
}

struct Promise {
    /// Do groups share, or all clients alike?
    groups: bool,
    clients: Vec<Client>,
    shares: Shares,
    clocks: Clocks,
    deadlines: Deadlines,
    /// Had any group a latency so far?
    latencies: bool,
    /// Had any group a minimum so far? Before, nobody asks for the requests of groups.
    counts: bool,
    /// By request in flight.
    sent: Vec<Sent>,
    window: Window,
    pace: Pace,
    /// Pace of writes beside minimums that are not reached.
    throttle: Pace,
    drive: Drive,
    /// Reads in flight by when they are late.
    late: Arena<(Instant, RequestId), RequestId>,
    reads: Tree,
    probe: Probe,
    head: Head,
    turn: Option<Turn>,
    /// Who wrote in the turn before.
    writer: Option<EntityId>,
    wakeup: Option<Instant>,
    /// The group that the gate was closed for when somebody asked last.
    holder: Option<EntityId>,
    queued: u32,
    /// Writes in flight.
    writes: u32,
    in_flight: u32,
    last_done: Instant,
}

fn side(request: &Request) -> Side {
    match request.operation {
        Operation::Read => Side::Read,
        Operation::Flush => Side::Flush,
        _ => Side::Write,
    }
}

/// What a request is to clocks.
fn kind(request: &Request) -> Kind {
    match request.operation {
        Operation::Flush => Kind::Flush,
        _ if request.is_sync() => Kind::Urgent,
        _ => Kind::Buffered,
    }
}

/// Bytes that a command costs; trims and zeroes move none, and cost as their length says, flushes what the drive could
/// have written meanwhile.
fn bytes(request: &Request) -> u64 {
    request.length.bytes()
}

/// A group's class among minimums: the least urgent of its own and those above it.
fn class_of(groups: &Groups, id: GroupId) -> Class {
    let above = groups.ancestry(id).map(|id| groups.group(id).contract.class);
    above.max().unwrap_or_default()
}

impl Promise {
    /// The groups with a clock that a client's requests count for.
    fn clocks_above(&self, client: EntityId) -> impl Iterator<Item = EntityId> + use<'_> {
        let first = if self.clocks.are_none() { None } else { self.shares.parent(client) };
        let up = core::iter::successors(first, |id| self.shares.parent(*id));
        up.filter(|id| self.clocks.has(*id))
    }
    /// For each group that holds a client, but the root, which has no minimum.
    #[inline(never)]
    fn each_clock(&mut self, client: EntityId, mut each: impl FnMut(&mut Clocks, EntityId)) {
        let mut at = self.shares.parent(client);
        while let Some(id) = at.filter(|id| *id != EntityId::ROOT) {
            each(&mut self.clocks, id);
            at = self.shares.parent(id);
        }
    }

    /// A client's first read is another one now.
    fn set_deadline(&mut self, cx: &Context<'_>, client: EntityId) {
        let deadline = self.front(client, Side::Read).and_then(|id| {
            let read = &cx.requests[id];
            Some(read.submitted + deadlines::latency(cx.groups, read.group)?)
        });
        self.deadlines.set(client, deadline);
    }
    /// The read with the earliest deadline of a client that is at most so far ahead of its turn. One that is further ahead has
    /// no deadline until it is served again: it must not hide the others.
    fn first_deadline(&mut self, ahead_max: Nanos) -> Option<(Instant, EntityId)> {
        loop {
            let (deadline, client) = self.deadlines.first()?;
            if self.shares.ahead(client) <= ahead_max.0 {
                return Some((deadline, client));
            }
            self.deadlines.set(client, None);
        }
    }
    /// The first request of a client on one side.
    fn front(&self, client: EntityId, side: Side) -> Option<RequestId> {
        let client = client.as_client()?;
        self.clients[client.index()].queues[side as usize].front()
    }
    /// Sends the first request of a client's side, or a piece of it.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        client: EntityId,
        side: Side,
        (whole, by_share): (bool, bool),
    ) -> Option<RequestId> {
        let index = client.as_client()?.index();
        let head = self.clients[index].queues[side as usize].front()?;
        let Request { operation, length, .. } = cx.requests[head];
        let kind = kind(&cx.requests[head]);
        let cuts = !whole && matches!(operation, Operation::Read | Operation::Write);
        let most = match cuts && length.bytes() > window::PIECE_MIN {
            true => Sectors::from_bytes_ceil(self.window.piece(&self.drive)),
            false => length,
        };
        let id = match operation {
            Operation::Flush => head,
            _ => cx.requests.take_piece(head, most.max(Sectors(1))),
        };
        let all = id == head || cx.requests[head].length == Sectors::ZERO;
        let Request { start, length, .. } = cx.requests[id];
        let (sent, now) = (length.bytes(), cx.now);
        let own = &mut self.clients[index];
        let promised = own.promised_amount(operation, sent);
        let far = own.is_far(side, start, start + length);
        own.requests.dispatch(promised, (all, kind));
        if all {
            own.queues[side as usize].pop_front(cx.requests);
            self.shares.pop(client, side);
            self.queued -= 1;
            if side == Side::Read && self.latencies {
                self.set_deadline(cx, client);
            }
        }
        if self.counts {
            let ends = (all, kind);
            self.each_clock(client, |clocks, id| clocks.dispatch(now, id, promised, ends));
        }
        let cost = self.drive.cost(side, sent);
        if self.turn.is_none() {
            self.shares.charge(client, cost, by_share);
        }
        self.head.on_dispatch(now, self.in_flight == 0, far && side == Side::Read);
        if side == Side::Write && self.head.is() {
            self.count_write(now, sent, far);
        }
        let probe = self.probe == Probe::Sending;
        self.drive.on_dispatch(now, id, side, probe);
        if probe {
            self.probe = Probe::Sent;
        }
        if side != Side::Read {
            self.pace.on_write(now, cost);
            if by_share {
                self.throttle.on_write(now, cost);
            }
        }
        let window = Window::counts(side, sent, by_share);
        self.window.on_dispatch(side, window);
        let place = id.0 as usize;
        if place >= self.sent.len() {
            self.sent.resize(place + 1, Sent::default());
        }
        self.sent[place] = Sent { promised, window };
        self.in_flight += 1;
        self.writes += u32::from(side == Side::Write);
        if side == Side::Read && !self.head.is() {
            self.watch_read(cx, id, client, cost);
        }
        Some(id)
    }
    /// The idle drive turns out to have a head, or none.
    fn change_head(&mut self, now: Instant) {
        if let Some(turn) = self.turn {
            self.end_turn(now, &turn);
        }
        self.clocks.set_bounds(bounds(self.head.is()));
        self.probe = Probe::No;
    }

    fn wake_at(&mut self, at: Option<Instant>) {
        self.wakeup = [self.wakeup, at].into_iter().flatten().min();
    }
    fn watch_contract(&mut self, cx: &Context<'_>, id: RequestId, client: EntityId) {
        let now = cx.now;
        let whole = cx.requests.whole(id);
        let mut late = None;
        let age = now.since(cx.requests[whole].submitted);
        let took = now.since(cx.requests[id].dispatched);
        for group in self.clocks_above(client) {
            late = Some(late.unwrap_or(false) || self.clocks.is_late(now, group, took));
        }
        if self.latencies
            && side(&cx.requests[id]) == Side::Read
            && let Some(wanted) = deadlines::latency(cx.groups, cx.requests[id].group)
        {
            late = Some(late.unwrap_or(false) || age > wanted);
            match self.drive.writes_about(now) {
                true => self.pace.on_read(now, age > wanted),
                false => self.pace.on_read_alone(now),
            }
        }
        if side(&cx.requests[id]) == Side::Read && self.drive.writes_about(now) {
            let far = self.clocks_above(client).map(|group| self.clocks.is_far(now, group)).max();
            if let Some(far) = far {
                self.throttle.on_read(now, far);
            }
        }
        if let Some(late) = late {
            self.window.on_contract(now, &self.drive, late);
        }
    }
    fn set_group(&mut self, cx: &Context<'_>, id: GroupId) {
        let (group, entity) = (cx.groups.group(id), EntityId::group(id));
        self.latencies |= group.contract.latency.is_some();
        let counts = self.groups && group.parent.is_some();
        let minimum = if counts { group.contract.minimum() } else { Minimum::NONE };
        if minimum.is_some() {
            self.count_requests();
        }
        self.clocks.set(cx.now, entity, minimum, class_of(cx.groups, id));
        if let Some(parent) = group.parent.filter(|_| self.groups) {
            let parent = EntityId::group(parent);
            self.shares.set(entity, parent, group.contract.weight, group.contract.class);
        }
    }
    /// From now on requests are counted by group.
    fn count_requests(&mut self) {
        if core::mem::replace(&mut self.counts, true) {
            return;
        }
        for index in 0..self.clients.len() {
            let requests = self.clients[index].requests;
            let client = EntityId::client(ClientId::from_bits(index as u64));
            self.each_clock(client, |clocks, group| clocks.move_requests(group, requests, true));
        }
    }
    fn update_group(&mut self, cx: &Context<'_>, id: GroupId) {
        let entity = EntityId::group(id);
        let before = self.clocks.class(entity);
        self.set_group(cx, id);
        // If its class is another one now, those of the groups in it may be, too.
        if self.clocks.class(entity) != before {
            for child in &cx.groups.group(id).children {
                self.update_group(cx, *child);
            }
        }
    }
    fn set_client(&mut self, cx: &Context<'_>, id: ClientId) {
        let client = cx.groups.client(id);
        let group = if self.groups { client.group } else { GroupId::ROOT };
        let entity = EntityId::client(id);
        let requests = self.clients[id.index()].requests;
        if self.counts {
            self.each_clock(entity, |clocks, group| clocks.move_requests(group, requests, false));
        }
        self.shares.set(entity, EntityId::group(group), WEIGHT_DEFAULT, client.priority.class);
        if self.counts {
            self.each_clock(entity, |clocks, group| clocks.move_requests(group, requests, true));
        }
    }
}

impl Policy for Promise {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let Request { client: index, .. } = cx.requests[id];
        let (side, kind) = (side(&cx.requests[id]), kind(&cx.requests[id]));
        let (client, now) = (EntityId::client(index), cx.now);
        let own = &mut self.clients[index.index()];
        let queue = &mut own.queues[side as usize];
        let is_front = queue.is_empty();
        queue.push_back(cx.requests, id);
        own.flushes_free += u32::from(side == Side::Write && own.flushes_free < FLUSHES_FREE);
        let own = &mut own.requests;
        let first = own.queued == 0 && own.in_flight == 0;
        own.arrive(kind);
        self.shares.push(client, side);
        if side == Side::Read && is_front && self.latencies {
            self.set_deadline(cx, client);
        }
        if self.counts {
            self.each_clock(client, |clocks, group| clocks.arrive(now, group, kind));
        }
        self.window.on_submit(now, index.index() as u32, first);
        self.queued += 1;
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.wakeup = None;
        if self.queued == 0 && self.turn.is_none() {
            return None;
        }
        if self.head.is() { self.dispatch_turn(cx) } else { self.dispatch_flash(cx) }
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let Request { operation, client: index, length, .. } = cx.requests[id];
        let (client, side, now) = (EntityId::client(index), side(&cx.requests[id]), cx.now);
        let kind = kind(&cx.requests[id]);
        let carries = matches!(operation, Operation::Read | Operation::Write);
        let (sent, Sent { promised, window }) = (length.bytes(), self.sent[id.0 as usize]);
        let own = &mut self.clients[index.index()].requests;
        own.complete(promised, kind);
        if own.queued == 0 && own.in_flight == 0 {
            self.window.on_leave(now);
        }
        if self.counts {
            self.each_clock(client, |clocks, group| clocks.complete(now, group, promised, kind));
        }
        let is_full = side == Side::Write && self.window.is_full(&self.drive, window);
        self.window.on_complete(side, window);
        if self.queued == 0 || !matches!(self.clocks.gate(now), Gate::Open(_)) {
            self.drive.on_short();
        }
        self.drive.on_complete(now, id, side, if carries { sent } else { 0 });
        self.in_flight -= 1;
        self.writes -= u32::from(side == Side::Write);
        self.last_done = now;
        let in_turn = self.head.is();
        if side == Side::Read && !in_turn {
            self.end_watch(cx, id, client);
        }
        self.head.on_complete(now, !self.drive.writes_about(now));
        if self.in_flight == 0 && self.head.changes(self.drive.latency()) {
            self.change_head(now);
            return;
        }
        if in_turn {
            self.complete_in_turn(now, side, now.since(cx.requests[id].dispatched));
            return;
        }
        if side == Side::Read {
            match self.shares.is_queued(EntityId::ROOT, Side::Read) {
                true => self.window.on_full(now, &self.drive),
                false => self.window.on_room(now, &self.drive),
            }
        }
        let promised = self.clocks_above(client).next().is_some();
        if side == Side::Write
            && self.shares.is_queued(EntityId::ROOT, Side::Write)
            && !self.clocks.are_none()
            && !promised
            && is_full
        {
            let most = if self.latencies { 0 } else { window::WRITE_DOUBLINGS_MAX };
            self.window.on_writes(now, &self.drive, most);
        }
        let watched = self.latencies || !self.clocks.are_none();
        if watched && cx.requests.is_last_piece(id) {
            self.watch_contract(cx, id, client);
        }
        if self.probe == Probe::Sent && self.in_flight == 0 {
            self.probe = Probe::No;
        }
        let large = side == Side::Read && sent > drive::SMALL;
        let wants = large && self.drive.wants_probe(now) && self.window.is_shared(now);
        if self.probe == Probe::No && wants {
            self.probe = Probe::Wanted;
        }
    }
    fn next_wakeup(&self) -> Option<Instant> {
        self.wakeup
    }
    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) => self.set_group(cx, id),
            Change::GroupUpdated(id) => self.update_group(cx, id),
            Change::GroupRemoved(id) => {
                self.clocks.remove(EntityId::group(id));
                self.shares.remove(EntityId::group(id));
            }
            Change::ClientAdded(id) => {
                let bound = self.clients.len().max(id.index() + 1);
                self.clients.resize(bound, Client::default());
                self.set_client(cx, id);
            }
            Change::ClientUpdated(id) => self.set_client(cx, id),
            Change::ClientRemoved(id) => self.shares.remove(EntityId::client(id)),
            _ => {}
        }
    }
    fn hold_info(&self, groups: &Groups, _requests: &Requests, _id: RequestId) -> HoldInfo {
        let client = self.turn.and_then(|turn| turn.client.as_client());
        let serves = client.and_then(|it| groups.client_id(it.index())).map(Subject::Client);
        let holder = self
            .clocks
            .first()
            .and_then(|(id, at)| Some((groups.group_id(id.as_group()?.index())?, at)));
        HoldInfo { until: self.wakeup, serves, holder, ..HoldInfo::default() }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("promise_read_rate_bytes_per_second", self.drive.rate(Side::Read));
        gauges.gauge("promise_write_rate_bytes_per_second", self.drive.rate(Side::Write));
        gauges.gauge("promise_latency_alone_nanoseconds", self.drive.latency().0);
        gauges.gauge("promise_read_window_bytes", self.window.reads(&self.drive).bytes());
        gauges.gauge("promise_piece_bytes", self.window.piece(&self.drive));
        gauges
            .gauge("promise_write_pace_percent", self.pace.percent().min(self.throttle.percent()));
    }
}
