//! `promise` on flash, which serves many requests at once: keeps every feasible minimum, and fills the drive.
//!
//! **Idea.** What a request costs is drive time, for which there is one estimate. Reservations (minimums, and floors that nobody
//! falls below) have clocks, and a reservation that is behind goes first, alone. The rest of the drive is shared by weight in
//! drive time, within a window that is as small as it can be without any loss.
//!
//! ```text
//! cost     c = command + byte * length, by operation; the costs of what completes add up to the busy time      cost.rs
//! reserve  R = min(R + worth, now + max(5 ms, worth in flight)); due: R <= now                                  clock.rs
//! floor    the same for each client that reads beside writes, with worth = time alone / (a quarter of an equal share, and all of
//!          what its weight gives it beyond that)                                                         parts/shares.rs
//! latency  requests of groups with a latency go by deadline, while they are within their share and a burst  parts/deadlines.rs
//! start    reads of clients that begin go first and alone, for at most 1/8 of the time                     start.rs
//! share    the smallest start tag in drive time                                                          parts/shares.rs
//! window   drive time of reads and writes in flight by share < W; the smallest W with the best total that keeps latencies    window.rs
//! pace     rate of writes without a reservation: halved for each 20 ms that a reservation is late               pace.rs
//! order    class and clock of minimums; deadlines; starts; floors; share
//! ```
//!
//! A flush waits for the writes in flight that are not for minimums, and new ones of these wait for the flush. Floors hold only writes.
//!
//! Service for a minimum also counts towards the group's share: a group gets the larger of the two, not their sum. A minimum
//! covers all clients and groups inside the group.
//!
//! **Stated by the source**: nothing. The combination is our own; each file names the published algorithms that it uses.

mod client;
mod clock;
mod cost;
mod dispatch;
mod pace;
mod start;
#[cfg(test)]
mod tests;
mod window;

use alloc::boxed::Box;
use alloc::vec::Vec;

use iofair_core::group::{Change, Groups};
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::minimum::Amount;
use iofair_core::policy::{Build, Context, Gauges, HoldInfo, Policy};
use iofair_core::priority::Class;
use iofair_core::request::{Operation, Request, Requests};
use iofair_core::time::{Instant, Nanos};

use crate::parts::deadlines::{self, Deadlines};
use crate::parts::shares::{self, EntityId, Shares, Side};
use client::{Client, kind};
use clock::{Clocks, Command, Kind, Reservation};
use cost::Costs;
use dispatch::Basis;
use pace::{Late, Pace};
use start::Starts;
use window::{Adaptive, Fixed, Window};

/// Clients share the drive while at least two have requests, and for this time afterwards: longer than the pause of a client that
/// sends one request at a time.
const SHARED: Nanos = Nanos::from_millis(20);
/// For this time after a write, the drive may still program what its cache holds.
const SETTLE: Nanos = Nanos::from_millis(100);
/// Floors hold writes for at most a third of the time, and for this time divided by three at once: longer than the cache of most
/// drives takes to drain, so that many reads follow one such wait.
const FLOOR_TIME: u64 = 3;
const FLOOR_BURST: Nanos = Nanos::from_millis(100);
/// How long synchronous writes are gathered after a read of a minimum was late: a read waits for what the drive is programming, so
/// writes at an even pace delay every read, and as many of them one after the other delay few.
const GATHERS: Nanos = Nanos::from_secs(5);

/// The scheduler of a drive that is not rotational.
pub(super) fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let window: Box<dyn Window> = match build.values.time("window") {
        Nanos::ZERO => Box::new(Adaptive::new()),
        limit => Box::new(Fixed(limit)),
    };
    Box::new(Flash {
        groups: build.groups,
        clients: Vec::new(),
        shares: Shares::default(),
        clocks: Clocks::default(),
        deadlines: Deadlines::default(),
        latencies: false,
        starts: Starts::default(),
        starting: Deadlines::default(),
        pausing: Deadlines::default(),
        costs: Costs::default(),
        window,
        windowed: Nanos::ZERO,
        pace: Pace::new(),
        sent: Vec::new(),
        active: 0,
        shared_until: Instant::ZERO,
        floors_hold: false,
        floors_from: Instant::ZERO,
        floor_served: Instant::ZERO,
        gathers_until: Instant::ZERO,
        last_write: None,
        writes: 0,
        queued: 0,
        wakeup: None,
        holder: None,
    })
}

/// A request that is queued or in flight.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// How clocks count it.
    kind: Kind,
    /// How much it counts for minimums.
    amount: Amount,
    /// Its part of the window.
    windowed: Nanos,
    basis: Basis,
    /// When it came; a flush comes after the writes that it covers.
    arrived: Instant,
}

impl Sent {
    const NEW: Self = Self {
        kind: Kind::Urgent,
        amount: Amount { bytes: 0, ios: 0 },
        windowed: Nanos::ZERO,
        basis: Basis::Share,
        arrived: Instant::ZERO,
    };
}

struct Flash {
    /// Whether groups share the drive; otherwise all clients are in the root.
    groups: bool,
    clients: Vec<Client>,
    shares: Shares,
    clocks: Clocks,
    deadlines: Deadlines,
    /// Whether any group has had a latency contract so far.
    latencies: bool,
    starts: Starts,
    /// The first reads of clients that start, by their arrival.
    starting: Deadlines,
    /// The first requests of clients that pause, by their arrival, if they came during a start.
    pausing: Deadlines,
    costs: Costs,
    window: Box<dyn Window>,
    /// Drive time in flight that counts for the window.
    windowed: Nanos,
    pace: Pace,
    /// Indexed by the id of a request.
    sent: Vec<Sent>,
    /// Clients with requests queued or in flight.
    active: u32,
    /// If only one is active: until when the drive still counts as shared.
    shared_until: Instant,
    /// Whether floors hold writes now, from when on they may, and when a read was completed last while they did.
    floors_hold: bool,
    floors_from: Instant,
    floor_served: Instant,
    /// Until then, synchronous writes are gathered.
    gathers_until: Instant,
    /// When a write was completed last.
    last_write: Option<Instant>,
    /// Writes in flight that are not for a minimum, and requests queued.
    writes: u32,
    queued: u32,
    wakeup: Option<Instant>,
    /// The group that the gate is closed for, as last traced.
    holder: Option<EntityId>,
}

impl Flash {
    fn is_shared(&self, now: Instant) -> bool {
        self.active > 1 || now < self.shared_until
    }
    /// Whether writes wait, are in flight, or may still be programmed by the drive.
    fn has_writes(&self, now: Instant) -> bool {
        self.shares.is_queued(EntityId::ROOT, Side::Write)
            || self.writes > 0
            || self.last_write.is_some_and(|at| now.since(at) < SETTLE)
    }
    /// The groups that contain a client, except the root, which has no minimum.
    fn above(&self, client: EntityId) -> impl Iterator<Item = EntityId> + use<'_> {
        let up = core::iter::successors(self.shares.parent(client), |id| self.shares.parent(*id));
        up.filter(|id| *id != EntityId::ROOT)
    }
    /// Calls `each` for the clock of a client and of each group that contains it.
    fn each_clock(&mut self, client: EntityId, mut each: impl FnMut(&mut Clocks, EntityId)) {
        let mut at = Some(client);
        while let Some(id) = at.filter(|id| *id != EntityId::ROOT) {
            each(&mut self.clocks, id);
            at = self.shares.parent(id);
        }
    }
    /// The first queued request of a client on one side.
    fn front(&self, client: EntityId, side: Side) -> Option<RequestId> {
        self.clients[client.member()].queues[side as usize].front()
    }
    /// The first request of a client on one side has changed.
    fn on_front(&mut self, cx: &Context<'_>, client: EntityId, side: Side) {
        let start = &self.clients[client.member()].start;
        let arrived = self.front(client, side).map(|id| cx.requests[id].submitted);
        let pausing = arrived.filter(|_| start.pauses && self.starts.holds(cx.now).is_some());
        self.pausing.set(client, side, pausing);
        if side == Side::Read {
            let starting = arrived.filter(|_| self.starts.is_starting(cx.now, start));
            self.starting.set(client, side, starting);
        }
        if self.latencies {
            let deadline = self.front(client, side).and_then(|id| {
                let latency = deadlines::latency(cx.groups, &cx.requests[id])?;
                Some(self.sent[id.0 as usize].arrived + latency)
            });
            self.deadlines.set(client, side, deadline);
        }
    }
    fn sent_mut(&mut self, id: RequestId) -> &mut Sent {
        let place = id.0 as usize;
        if place >= self.sent.len() {
            self.sent.resize(place + 1, Sent::NEW);
        }
        &mut self.sent[place]
    }
    /// A client has nothing queued or in flight any more.
    fn on_leave(&mut self, now: Instant) {
        self.active -= 1;
        if self.active == 1 {
            self.shared_until = now + SHARED;
        }
    }
    /// Tells the window and the pace whether a completed request with a reservation was late.
    fn watch(&mut self, cx: &Context<'_>, id: RequestId, client: EntityId, basis: Basis) {
        let (now, side) = (cx.now, Side::of_request(&cx.requests[id]));
        // A request that goes by share belongs to a group that is ahead of it, and gets that instead.
        let wanted = match self.latencies && basis != Basis::Share {
            true => deadlines::latency(cx.groups, &cx.requests[id]),
            false => None,
        };
        let age = now.since(self.sent[id.0 as usize].arrived);
        let is_late = wanted.is_some_and(|wanted| age > wanted);
        if wanted.is_some() {
            self.window.on_latency(is_late);
        }
        if self.last_write.is_none_or(|at| now.since(at) >= SETTLE) {
            return;
        }
        let is_late = wanted.is_some() && self.pace.on_latency(now, is_late) && is_late;
        let took = now.since(cx.requests[id].dispatched);
        let lag = self.above(client).filter_map(|id| self.clocks.lag(now, id)).max();
        if lag.is_some_and(|lag| lag > clock::LATE) {
            if side == Side::Read {
                self.gathers_until = now + GATHERS;
            }
            self.pace.on_late(now, Late::Minimum(took));
        } else if is_late {
            self.pace.on_late(now, Late::Latency);
        } else if wanted.is_some() || lag.is_some() {
            self.pace.on_time(now);
        }
    }
    fn set_group(&mut self, cx: &Context<'_>, id: GroupId) {
        let (group, entity) = (cx.groups.group(id), EntityId::group(id));
        self.latencies |= group.contract.latency.is_some();
        let class = cx.groups.ancestry(id).map(|id| cx.groups.group(id).contract.class).max();
        let minimum = group.contract.minimum();
        let reservation = match class {
            Some(class) if self.groups && group.parent.is_some() && minimum.is_some() => {
                Reservation::Minimum(minimum, class)
            }
            _ => Reservation::None,
        };
        let before = self.shares.class(entity);
        self.clocks.set(cx.now, entity, reservation);
        let parent = group.parent.filter(|_| self.groups).map_or(EntityId::ROOT, EntityId::group);
        self.shares.set(entity, parent, group.contract.weight, group.contract.class);
        // A changed class may change the classes of the minimums inside.
        if before != Some(group.contract.class) {
            for child in &group.children {
                self.set_group(cx, *child);
            }
        }
    }
    /// Adds a client, or moves it with its requests to another group or class.
    fn set_client(&mut self, cx: &Context<'_>, id: ClientId) {
        let client = cx.groups.client(id);
        let group = if self.groups { client.group } else { GroupId::ROOT };
        let entity = EntityId::client(id);
        let class = client.priority.class;
        let floor = if class == Class::Idle { Reservation::None } else { Reservation::Floor };
        self.clocks.set(cx.now, entity, floor);
        self.move_requests(entity, false);
        let weight = shares::weight_of(client.priority);
        self.shares.set(entity, EntityId::group(group), weight, class);
        self.move_requests(entity, true);
    }
    fn move_requests(&mut self, client: EntityId, comes: bool) {
        self.each_clock(client, |clocks, group| {
            if group != client {
                clocks.move_requests(client, group, comes);
            }
        });
    }
}

impl Policy for Flash {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let Request { client: index, .. } = cx.requests[id];
        let (side, mut kind) = (Side::of_request(&cx.requests[id]), kind(&cx.requests[id]));
        let (client, now) = (EntityId::client(index), cx.now);
        if side == Side::Write && kind == Kind::Urgent && now < self.gathers_until {
            kind = Kind::Gathered;
        }
        *self.sent_mut(id) = Sent { kind, arrived: now, ..Sent::NEW };
        let others = self.clocks.outstanding(client);
        self.clients[client.member()].start.arrive(now, others);
        let own = &mut self.clients[index.index()];
        let queue = &mut own.queues[side as usize];
        let is_front = queue.is_empty();
        queue.push_back(cx.requests, id);
        if side == Side::Write {
            own.counted.on_write();
        }
        if self.shares.arrive(client, side) {
            self.active += 1;
        }
        if is_front {
            self.on_front(cx, client, side);
        }
        self.clocks.floors = self.has_writes(now);
        self.each_clock(client, |clocks, id| clocks.arrive(now, id, kind));
        self.queued += 1;
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.wakeup = None;
        if self.queued == 0 {
            return None;
        }
        let sent = self.dispatch_next(cx);
        if sent.is_none() {
            let times = [self.clocks.next_due(cx.now).unwrap_or(Instant::MAX), self.pace.next()];
            let times = times.into_iter().chain([self.shared_until, self.floors_from]);
            let times = times.chain(self.wakeup).filter(|at| *at > cx.now && *at < Instant::MAX);
            self.wakeup = times.min();
        }
        sent
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let Request { operation, client: index, length, dispatched, .. } = cx.requests[id];
        let (client, side, now) =
            (EntityId::client(index), Side::of_request(&cx.requests[id]), cx.now);
        let Sent { kind, amount, windowed, basis, .. } = self.sent[id.0 as usize];
        let took = now.since(dispatched);
        let start = &mut self.clients[client.member()].start;
        start.rest(now, took);
        if basis == Basis::Start {
            self.starts.complete(now, start, took);
        }
        self.windowed -= windowed;
        let command = Command { amount, kind, worth: Nanos::ZERO, is_last: false };
        self.each_clock(client, |clocks, id| clocks.complete(now, id, command, took));
        match side {
            Side::Write => self.writes -= u32::from(basis != Basis::Minimum),
            Side::Read | Side::Flush => {}
        }
        if side != Side::Read {
            self.last_write = Some(now);
        }
        if self.floors_hold && side == Side::Read {
            // A read that takes longer waits for what the drive is programming, and no time is lost.
            let alone = self.costs.alone(side, length.bytes());
            let since = took.min(alone).min(now.since(self.floor_served));
            let from = self.floors_from.max(now.saturating_sub(FLOOR_BURST));
            (self.floors_from, self.floor_served) = (from + since * FLOOR_TIME, now);
        }
        let is_last = cx.requests.is_last_piece(id);
        if is_last && self.shares.complete(client) {
            self.on_leave(now);
        }
        let carries = matches!(operation, Operation::Read | Operation::Write);
        let bytes = if carries { length.bytes() } else { 0 };
        if let Some([before, after]) = self.costs.on_complete(now, side, (bytes, is_last), took) {
            self.window.on_prices(before, after);
        }
        self.window.on_complete(self.queued > 0);
        if is_last && (self.latencies || !self.clocks.are_none()) {
            self.watch(cx, id, client, basis);
        }
    }
    fn cancel(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let (index, side) = (cx.requests[id].client, Side::of_request(&cx.requests[id]));
        let (client, kind) = (EntityId::client(index), self.sent[id.0 as usize].kind);
        self.clients[index.index()].queues[side as usize].remove(cx.requests, id);
        self.shares.dispatch(client, side);
        if self.shares.complete(client) {
            self.on_leave(cx.now);
        }
        self.queued -= 1;
        self.on_front(cx, client, side);
        self.each_clock(client, |clocks, id| clocks.cancel(id, kind));
        true
    }
    fn next_wakeup(&self) -> Option<Instant> {
        self.wakeup
    }
    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) | Change::GroupUpdated(id) => self.set_group(cx, id),
            Change::GroupRemoved(id) => {
                self.clocks.remove(EntityId::group(id));
                self.shares.remove(EntityId::group(id));
            }
            Change::ClientAdded(id) => {
                let bound = self.clients.len().max(id.index() + 1);
                self.clients.resize(bound, Client::default());
                self.clients[id.index()] = Client::default();
                self.set_client(cx, id);
            }
            Change::ClientUpdated(id) => self.set_client(cx, id),
            Change::ClientRemoved(id) => {
                self.clocks.remove(EntityId::client(id));
                self.shares.remove(EntityId::client(id));
            }
            _ => {}
        }
    }
    fn hold_info(&self, groups: &Groups, _requests: &Requests, _id: RequestId) -> HoldInfo {
        let first = self.clocks.first();
        let holder = first.and_then(|(id, at)| Some((groups.group_id(id.member())?, at)));
        HoldInfo { until: self.wakeup, holder, ..HoldInfo::default() }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("promise_window_nanoseconds", self.window.limit().0);
        gauges.gauge("promise_piece_bytes", self.window.piece(&self.costs));
        gauges.gauge("promise_write_limit_bytes_per_second", self.pace.limit());
        gauges.gauge("promise_read_cost_nanoseconds", self.costs.cost(Side::Read, 4096).0);
        gauges.gauge("promise_write_cost_nanoseconds", self.costs.cost(Side::Write, 4096).0);
    }
}
