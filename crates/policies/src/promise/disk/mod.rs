//! `promise` on a disk, which serves one client at a time: keeps minimums and shares in turns.
//!
//! **Idea.** At each change of the client, a disk loses a movement of its head, and often a revolution. So clients are served
//! in turns, and a turn waits a moment for the next request of its client. Minimums are served first in each frame of half a
//! second; the rest of the frame is shared by weight, in drive time.
//!
//! ```text
//! minimum  clock += worth; due: clock < end of the frame; its turn ends when clock >= end of the frame     clock.rs
//! turn     one client, 200 ms, or 2 ms without a request; charged with the time that it took               turn.rs
//! cache    no more scattered writes than the disk can write out before the frame ends                     cached.rs
//! latency  the turn of a client whose request has a near deadline, within its share and a burst   parts/deadlines.rs
//! share    the smallest start tag in drive time                                                   parts/shares.rs
//! order    class and clock of minimums; deadlines; share
//! ```
//!
//! Service for a minimum also counts towards the group's share: a group gets the larger of the two, not their sum. A minimum
//! covers all clients and groups inside the group.
//!
//! **Stated by the source**: nothing. The combination is our own; each file names the published algorithms that it uses.

mod cached;
mod clock;
#[cfg(test)]
mod tests;
mod turn;

use alloc::boxed::Box;
use alloc::vec::Vec;

use iofair_core::group::{Change, Groups};
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::minimum::Minimum;
use iofair_core::parts::fifo::Fifo;
use iofair_core::policy::{Build, Context, Gauges, HoldInfo, Policy};
use iofair_core::request::{Operation, Request, Requests};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_core::unit::Sectors;

use crate::parts::counted::Counted;
use crate::parts::deadlines::{self, Deadlines};
use crate::parts::shares::{self, EntityId, SIDES, Shares, Side};
use cached::Cached;
use clock::Clocks;
use turn::Turn;

/// The scheduler of a drive that is rotational.
pub(super) fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    Box::new(Disk {
        groups: build.groups,
        clients: Vec::new(),
        shares: Shares::default(),
        clocks: Clocks::default(),
        deadlines: Deadlines::default(),
        latencies: false,
        cached: Cached::new(),
        turn: None,
        writer: None,
        queued: 0,
        in_flight: 0,
        writes: 0,
        last_done: Instant::ZERO,
        wakeup: None,
    })
}

/// A client's queues, in order of arrival.
#[derive(Clone, Copy, Default, Debug)]
struct Client {
    queues: [Fifo; SIDES],
    /// Where its last read and its last write ended.
    ends: [Sectors; 2],
    /// How its commands count for minimums.
    counted: Counted,
}

struct Disk {
    /// Whether groups share the drive; otherwise all clients are in the root.
    groups: bool,
    clients: Vec<Client>,
    shares: Shares,
    clocks: Clocks,
    deadlines: Deadlines,
    /// Whether any group has had a latency contract so far.
    latencies: bool,
    cached: Cached,
    turn: Option<Turn>,
    /// The client that wrote in the previous turn, until a read is completed.
    writer: Option<EntityId>,
    queued: u32,
    in_flight: u32,
    /// Writes in flight.
    writes: u32,
    last_done: Instant,
    wakeup: Option<Instant>,
}

fn is_queued(shares: &Shares, id: EntityId) -> bool {
    Side::ALL.into_iter().any(|side| shares.is_queued(id, side))
}

impl Disk {
    fn wake_at(&mut self, at: Option<Instant>) {
        self.wakeup = [self.wakeup, at].into_iter().flatten().min();
    }
    /// Calls `each` for the clock of each group that contains a client, except the root, which has no minimum.
    fn each_clock(
        &mut self,
        client: EntityId,
        mut each: impl FnMut(&mut Clocks, &Shares, EntityId),
    ) {
        let mut at = if self.clocks.are_none() { None } else { self.shares.parent(client) };
        while let Some(id) = at.filter(|id| *id != EntityId::ROOT) {
            each(&mut self.clocks, &self.shares, id);
            at = self.shares.parent(id);
        }
    }
    /// The first queued request of a client on one side.
    fn front(&self, client: EntityId, side: Side) -> Option<RequestId> {
        self.clients[client.member()].queues[side as usize].front()
    }
    /// The first request of a client on one side has changed.
    fn on_front(&mut self, cx: &Context<'_>, client: EntityId, side: Side) {
        if self.latencies {
            let front = self.front(client, side).map(|id| &cx.requests[id]);
            self.deadlines.set(
                client,
                side,
                front.and_then(|front| deadlines::deadline(cx.groups, front)),
            );
        }
    }
    /// Dispatches the first request of a client on one side.
    fn send(&mut self, cx: &mut Context<'_>, client: EntityId, side: Side) -> Option<RequestId> {
        let now = cx.now;
        let own = &mut self.clients[client.member()];
        let id = own.queues[side as usize].pop_front(cx.requests)?;
        let Request { operation, start, length, .. } = cx.requests[id];
        let amount = own.counted.amount(operation, length.bytes());
        let end = &mut own.ends[usize::from(side != Side::Read)];
        let far = core::mem::replace(end, start + length) != start;
        self.shares.dispatch(client, side);
        self.queued -= 1;
        self.on_front(cx, client, side);
        self.each_clock(client, |clocks, shares, id| {
            clocks.dispatch(now, id, amount, is_queued(shares, id));
        });
        if self.in_flight == 0 {
            let idle = now.since(self.last_done);
            self.cached.on_idle(now, idle, far && side == Side::Read);
        }
        if operation == Operation::Write {
            self.count_write(now, length.bytes(), far);
        }
        self.in_flight += 1;
        self.writes += u32::from(side == Side::Write);
        Some(id)
    }
    fn set_group(&mut self, cx: &Context<'_>, id: GroupId) {
        let (group, entity) = (cx.groups.group(id), EntityId::group(id));
        self.latencies |= group.contract.latency.is_some();
        let before = self.shares.class(entity);
        let parent = group.parent.filter(|_| self.groups).map_or(EntityId::ROOT, EntityId::group);
        self.shares.set(entity, parent, group.contract.weight, group.contract.class);
        let counts = self.groups && group.parent.is_some();
        let minimum = if counts { group.contract.minimum() } else { Minimum::NONE };
        // The least urgent class of the group and all groups above it.
        let class = cx.groups.ancestry(id).map(|id| cx.groups.group(id).contract.class).max();
        let queued = is_queued(&self.shares, entity);
        self.clocks.set(cx.now, entity, minimum, class.unwrap_or_default());
        self.clocks.put(entity, queued);
        // A changed class may change the classes of the minimums inside.
        if before != Some(group.contract.class) {
            for child in &group.children {
                self.set_group(cx, *child);
            }
        }
    }
    /// Adds a client, or moves it with its requests to another group or class.
    fn set_client(&mut self, cx: &Context<'_>, id: ClientId) {
        let (client, entity) = (cx.groups.client(id), EntityId::client(id));
        let group = if self.groups { client.group } else { GroupId::ROOT };
        let before = self.shares.parent(entity);
        let class = client.priority.class;
        let weight = shares::weight_of(client.priority);
        self.shares.set(entity, EntityId::group(group), weight, class);
        for group in [before, Some(EntityId::group(group))].into_iter().flatten() {
            let path = core::iter::successors(Some(group), |id| self.shares.parent(*id));
            for id in path.filter(|id| *id != EntityId::ROOT) {
                self.clocks.put(id, is_queued(&self.shares, id));
            }
        }
    }
}

impl Policy for Disk {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let (side, client) =
            (Side::of_request(&cx.requests[id]), EntityId::client(cx.requests[id].client));
        let own = &mut self.clients[client.member()];
        own.queues[side as usize].push_back(cx.requests, id);
        if side == Side::Write {
            own.counted.on_write();
        }
        if self.front(client, side) == Some(id) {
            self.on_front(cx, client, side);
        }
        let now = cx.now;
        self.each_clock(client, |clocks, shares, id| {
            clocks.arrive(now, id, !shares.is_active(id));
        });
        self.shares.arrive(client, side);
        self.queued += 1;
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.wakeup = None;
        if self.queued == 0 { None } else { self.dispatch_turn(cx) }
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let (side, client) =
            (Side::of_request(&cx.requests[id]), EntityId::client(cx.requests[id].client));
        let now = cx.now;
        self.in_flight -= 1;
        self.writes -= u32::from(side == Side::Write);
        self.last_done = now;
        self.shares.complete(client);
        self.each_clock(client, |clocks, shares, id| {
            if !shares.is_active(id) {
                clocks.rest(now, id);
            }
        });
        self.cached.on_complete(now, side);
        self.complete_in_turn(side, now.since(cx.requests[id].dispatched));
        // Nobody waits, and the client that comes next has the next turn.
        if self.queued == 0
            && self.in_flight == 0
            && let Some(turn) = self.turn
        {
            self.end_turn(now, &turn);
        }
    }
    fn cancel(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let (side, client) =
            (Side::of_request(&cx.requests[id]), EntityId::client(cx.requests[id].client));
        self.clients[client.member()].queues[side as usize].remove(cx.requests, id);
        self.queued -= 1;
        self.shares.dispatch(client, side);
        self.shares.complete(client);
        self.on_front(cx, client, side);
        self.each_clock(client, |clocks, shares, id| clocks.put(id, is_queued(shares, id)));
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
            Change::ClientRemoved(id) => self.shares.remove(EntityId::client(id)),
            _ => {}
        }
    }
    fn hold_info(&self, groups: &Groups, _requests: &Requests, _id: RequestId) -> HoldInfo {
        let client = self.turn.and_then(|turn| groups.client_id(turn.client.member()));
        let first = self.clocks.first();
        let holder = first.and_then(|(at, id)| Some((groups.group_id(id.member())?, at)));
        let serves = client.map(Subject::Client);
        HoldInfo { until: self.wakeup, serves, holder, ..HoldInfo::default() }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("promise_access_nanoseconds", self.cached.access().0);
        gauges.gauge("promise_cached_nanoseconds", self.cached.settles_in(Nanos::ZERO).0);
    }
}
