//! `promise`: keeps every feasible minimum, and keeps the drive busy.
//!
//! **Idea.** A group with a minimum has a clock: the time up to which its minimum has been served. While a group is
//! behind, only requests for minimums are dispatched. At all other times, groups and clients share the drive by weight,
//! in drive time. A window limits the bytes in flight: a request for a minimum finds few commands before it, and the
//! drive still never runs out of work. There are no parameters: the drive's rate and latency are measured while it works.
//! A disk serves one client at a time, so there clients have turns instead.
//!
//! **Rules**, each in a file beside this one:
//!
//! - [`mod@disk`]: all about drives that are rotational; the others are about flash.
//! - [`clock`]: minimums and the gate; [`group_clock`]: the clock of one group; [`requests`]: the counters of a client or group that the clocks use.
//! - [`client`]: a client's queues; [`groups`]: changes of groups and clients.
//! - [`shares`]: spare bandwidth by weight.
//! - [`window`]: limits on bytes in flight; long requests are split into pieces; [`trial`]: what the drive does within other limits.
//! - [`pace`]: rate of writes beside reads with a latency contract; [`throttle`]: beside minimums; [`late`]: writes
//!   pause for reads that are late.
//! - [`drive`]: measured rates and latency of the drive.
//! - [`flash`]: dispatch order; reads of groups with a latency contract.
//!
//! Service for a minimum also counts towards the group's share: a group gets the larger of the two, not their sum. A
//! minimum covers all clients and groups inside the group.
//!
//! A flush waits for the writes in flight, and new writes wait for the flush.
//!
//! **Stated by the source**: nothing. The combination is our own; each file names the published algorithms that it uses.

mod cancel;
mod client;
mod clock;
mod commands;
mod disk;
mod drive;
mod flash;
mod group_clock;
mod groups;
mod late;
mod pace;
mod requests;
mod shares;
#[cfg(test)]
mod tests;
mod throttle;
mod trial;
mod window;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::parts::deadlines::{self, Deadlines};
use crate::parts::tree::{Arena, NodeId, Tree};
use iofair_core::group::{Change, Groups};
use iofair_core::id::RequestId;
use iofair_core::key::Key;
use iofair_core::minimum::Amount;
use iofair_core::policy::{
    Build, Claim, Context, Gauges, HoldInfo, Judgement, Policy, Role, Row, Tags,
};
use iofair_core::request::{Operation, Request, Requests};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use client::{Client, kind};
use clock::{Clocks, Gate};
use drive::Drive;
use pace::Pace;
use requests::{Command, Kind};
use shares::{EntityId, Shares, Side};
use throttle::Throttle;
use window::Window;

/// The row of this policy in the table.
pub static ROW: Row = Row {
    name: "promise",
    short: "promise",
    role: Role::Scheduler { groups: true, tags: Tags::Unlimited, flushes: true },
    enforces: |key, _| {
        matches!(key, Key::Min | Key::MinIops | Key::Weight | Key::Latency | Key::Class)
    },
    summary: "keeps every feasible minimum, shares spare bandwidth by weight, keeps the drive busy",
    file: "promise/mod.rs",
    parameters: &[],
    overrides: &[],
    judgement: Judgement {
        promises: &[
            Claim {
                says: "A minimum in bytes or I/Os a second, kept beside any number of readers and writers, while \
                    the drive stays as busy as without control.",
                shown_by: "promise/plextor",
            },
            Claim {
                says: "Spare bandwidth by weight, in drive time; a client that is alone is not held back.",
                shown_by: "promise/shares",
            },
            Claim {
                says: "A latency of reads, also beside writers, which are slowed down as far as necessary.",
                shown_by: "isolation/latency",
            },
        ],
        needs: "Minimums that the drive can keep; an infeasible one is lowered to what its group reaches.",
        fails: &[
            Claim {
                says: "A minimum near what its client reaches alone costs the others more than its size, since the \
                    drive waits for one request at a time.",
                shown_by: "promise/plextor",
            },
            Claim {
                says: "On a disk a single second may get less than the minimum of a client whose own scattered writes fill the \
                    disk's cache.",
                shown_by: "search/case-0707",
            },
            Claim {
                says: "On a volume that serves nothing for the rest of each tenth of a second once its limit is reached, a client that \
                    sends one request at a time may get some percent less than its minimum.",
                shown_by: "search/case-1000090",
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

/// The node of a read that is not in [`Promise::reads`].
const NOT_WATCHED: NodeId = NodeId(u32::MAX);

/// Facts about a drive never change while an engine runs, so the choice is made once.
fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    if build.facts.rotational { disk::build(build) } else { build_flash(build) }
}

fn build_flash(build: &Build<'_>) -> Box<dyn Policy + Send> {
    Box::new(Promise {
        groups: build.groups,
        clients: Vec::new(),
        shares: Shares::default(),
        clocks: Clocks::default(),
        deadlines: Deadlines::default(),
        latencies: false,
        counts: false,
        sent: Vec::new(),
        window: Window::default(),
        pace: Pace::new(),
        throttle: Throttle::new(),
        drive: Drive::default(),
        late: Arena::default(),
        reads: Tree::new(),
        probe: Probe::No,
        wakeup: None,
        whole_until: Instant::ZERO,
        holder: None,
        queued: 0,
        writes: 0,
        in_flight: 0,
    })
}

/// A command in flight: how much of it counts for minimums, and how many bytes count for the window.
#[derive(Clone, Copy, Debug)]
struct Sent {
    promised: Amount,
    window: u64,
    /// How clocks count it while it is queued.
    kind: Kind,
}

/// How [`Promise::send`] dispatches a request.
#[derive(Clone, Copy)]
struct SendOptions {
    /// A long one in pieces.
    split: bool,
    charge: Charge,
}

/// What a dispatched request is charged to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charge {
    /// The minimum of a group.
    Minimum,
    /// The client's share by weight.
    Share,
}

/// A probe: a read that has the drive to itself, to measure the drive's latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    No,
    /// The next large read of this client waits until nothing is in flight.
    Wanted(EntityId),
    /// The read that is being dispatched is the probe.
    Sending,
    /// In flight.
    Sent,
}

struct Promise {
    /// Whether groups share the drive; otherwise all clients are in the root.
    groups: bool,
    clients: Vec<Client>,
    shares: Shares,
    clocks: Clocks,
    deadlines: Deadlines,
    /// Whether any group has had a latency contract so far.
    latencies: bool,
    /// Whether any group has had a minimum so far; only then are requests counted by group.
    counts: bool,
    /// Indexed by the id of a request in flight.
    sent: Vec<Sent>,
    window: Window,
    /// Pace of writes beside reads with a latency contract.
    pace: Pace,
    /// Limit on writes beside minimums that are not reached.
    throttle: Throttle,
    drive: Drive,
    /// Reads in flight, ordered by the time from which they are late.
    late: Arena<(Instant, RequestId), RequestId>,
    reads: Tree,
    probe: Probe,
    wakeup: Option<Instant>,
    /// Until then, requests for minimums are not cut.
    whole_until: Instant,
    /// The group that the gate is closed for, as last traced.
    holder: Option<EntityId>,
    queued: u32,
    /// Writes in flight.
    writes: u32,
    in_flight: u32,
}

impl Promise {
    /// The deadline of a client's first queued read, if it has one.
    fn deadline(&self, cx: &Context<'_>, client: EntityId) -> Option<Instant> {
        let read = &cx.requests[self.front(client, Side::Read)?];
        Some(read.submitted + deadlines::latency(cx.groups, read.group)?)
    }
    /// Updates the deadline of a client after its first queued read has changed.
    fn set_deadline(&mut self, cx: &Context<'_>, client: EntityId) {
        self.deadlines.set(client, self.deadline(cx, client));
    }
    /// The first queued request of a client on one side.
    fn front(&self, client: EntityId, side: Side) -> Option<RequestId> {
        let client = client.as_client()?;
        self.clients[client.index()].queues[side as usize].front()
    }
    /// Dispatches the first request of a client on one side, or a piece of it.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        client: EntityId,
        side: Side,
        SendOptions { split, charge }: SendOptions,
    ) -> Option<RequestId> {
        let index = client.as_client()?.index();
        let head = self.clients[index].queues[side as usize].front()?;
        let Request { operation, length, .. } = cx.requests[head];
        let kind = self.sent[head.0 as usize].kind;
        let cuts = split && matches!(operation, Operation::Read | Operation::Write);
        let most = match cuts && length.bytes() > window::PIECE_MIN {
            true => Sectors::from_bytes_ceil(self.window.piece(&self.drive)),
            false => length,
        };
        let id = match operation {
            Operation::Flush => head,
            _ => cx.requests.take_piece(head, most.max(Sectors(1))),
        };
        let all = id == head || cx.requests[head].length == Sectors::ZERO;
        let (sent, now, by_share) =
            (cx.requests[id].length.bytes(), cx.now, charge == Charge::Share);
        let own = &mut self.clients[index];
        let command = Command { amount: own.counted.amount(operation, sent), kind };
        own.requests.dispatch(command, all);
        if all {
            own.queues[side as usize].pop_front(cx.requests);
            self.shares.pop(client, side);
            self.queued -= 1;
            if side == Side::Read && self.latencies {
                self.set_deadline(cx, client);
            }
        }
        if self.counts {
            self.each_clock(client, |clocks, id| clocks.dispatch(now, id, command, all));
        }
        let cost = self.drive.cost(side, sent);
        let waits = side == Side::Read && self.could_wait_for_writes(now, client);
        self.shares.charge(client, cost, by_share);
        let probe = self.probe == Probe::Sending;
        self.drive.on_dispatch(now, id, side, probe);
        if probe {
            self.probe = Probe::Sent;
        }
        if side == Side::Write {
            self.count_for_floor(now, client, cost);
        }
        if side != Side::Read {
            let rate = self.drive.rate(Side::Write);
            self.pace.on_rate(rate);
            self.pace.on_write(now, cost);
            if by_share {
                let bytes = if side == Side::Flush { cost.units_floor(rate) } else { sent };
                self.throttle.on_write(now, bytes, operation == Operation::Write);
            }
        }
        let window = Window::counts(side, self.drive.counts(side, sent), by_share);
        self.window.on_dispatch(side, window);
        *self.sent_mut(id) = Sent { promised: command.amount, window, kind };
        self.in_flight += 1;
        self.writes += u32::from(side == Side::Write);
        if waits {
            self.watch_read(cx, id, client, cost);
        }
        Some(id)
    }
    fn sent_mut(&mut self, id: RequestId) -> &mut Sent {
        let place = id.0 as usize;
        if place >= self.sent.len() {
            let none = Sent { promised: Amount::default(), window: 0, kind: Kind::Urgent };
            self.sent.resize(place + 1, none);
        }
        &mut self.sent[place]
    }
    /// Tells the measurement of rates what does not wait for the drive.
    fn tell_drive_what_waits(&mut self, now: Instant) {
        if self.queued == 0 || !matches!(self.clocks.gate(now), Gate::Open) {
            self.drive.on_short();
        }
        let waits = |side| self.shares.is_queued(EntityId::ROOT, side);
        if !(waits(Side::Read) && waits(Side::Write)) {
            self.drive.on_sparse();
        }
    }
    /// A large read of a client was completed: its next one may be a probe.
    fn want_probe(&mut self, cx: &Context<'_>, client: EntityId) {
        let free = match self.probe {
            Probe::No => true,
            Probe::Wanted(_) => self.read_to_probe(cx).is_none(),
            Probe::Sending | Probe::Sent => false,
        };
        if free && self.drive.wants_probe(cx.now) && self.window.is_shared(cx.now) {
            self.probe = Probe::Wanted(client);
        }
    }
    fn wake_at(&mut self, at: Option<Instant>) {
        self.wakeup = [self.wakeup, at].into_iter().flatten().min();
    }
    fn watch_contract(&mut self, cx: &Context<'_>, id: RequestId, client: EntityId) {
        let now = cx.now;
        let whole = cx.requests.whole(id);
        let (mut late, mut lag) = (None, None);
        let age = now.since(cx.requests[whole].submitted);
        let took = now.since(cx.requests[id].dispatched);
        let waits =
            Side::of_request(&cx.requests[id]) == Side::Flush || self.drive.writes_recent(now);
        for group in self.clocks_above(client) {
            late = Some(late.unwrap_or(false) || self.clocks.is_late(now, group, took));
            if waits {
                lag = lag.max(Some(self.clocks.far_lag(now, group)));
            }
        }
        if self.latencies
            && Side::of_request(&cx.requests[id]) == Side::Read
            && let Some(wanted) = deadlines::latency(cx.groups, cx.requests[id].group)
        {
            late = Some(late.unwrap_or(false) || age > wanted);
            match self.drive.writes_recent(now) {
                true => self.pace.on_read(now, age > wanted),
                false => self.pace.on_read_alone(now),
            }
        }
        if let Some(lag) = lag {
            let rate = self.drive.rate(Side::Write);
            self.throttle.on_request(now, lag, took, rate);
            if lag > Nanos::ZERO && Side::of_request(&cx.requests[id]) == Side::Read {
                self.clocks.on_far_read(now);
            }
        }
        if let Some(late) = late {
            self.window.on_contract(now, &self.drive, late);
        }
    }
}

impl Policy for Promise {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let Request { client: index, .. } = cx.requests[id];
        let (side, mut kind) = (Side::of_request(&cx.requests[id]), kind(&cx.requests[id]));
        let (client, now) = (EntityId::client(index), cx.now);
        let own = &self.clients[index.index()];
        let gathers = side == Side::Write && self.clocks.gather(now) && !own.flushed_recently(now);
        if gathers && kind == Kind::Urgent {
            kind = Kind::Gathered;
        }
        self.sent_mut(id).kind = kind;
        let own = &mut self.clients[index.index()];
        let queue = &mut own.queues[side as usize];
        let is_front = queue.is_empty();
        queue.push_back(cx.requests, id);
        if side == Side::Write {
            own.counted.on_write();
        }
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
        if self.queued == 0 { None } else { self.dispatch_flash(cx) }
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let Request { operation, client: index, length, .. } = cx.requests[id];
        let (client, side, now) =
            (EntityId::client(index), Side::of_request(&cx.requests[id]), cx.now);
        let carries = matches!(operation, Operation::Read | Operation::Write);
        let (sent, Sent { promised, window, .. }) = (length.bytes(), self.sent[id.0 as usize]);
        let command = Command { amount: promised, kind: kind(&cx.requests[id]) };
        let own = &mut self.clients[index.index()];
        if side == Side::Flush {
            own.next_flush = now + now.since(cx.requests[id].dispatched);
        }
        let own = &mut own.requests;
        own.complete(command);
        if own.queued == 0 && own.in_flight == 0 {
            self.window.on_leave(now);
        }
        if self.counts {
            let took = now.since(cx.requests[id].dispatched);
            self.each_clock(client, |clocks, group| clocks.complete(now, group, command, took));
        }
        let is_full = side == Side::Write && self.window.is_full(&self.drive, window);
        self.window.on_complete(side, window);
        self.tell_drive_what_waits(now);
        self.drive.on_complete(now, id, side, if carries { sent } else { 0 });
        self.in_flight -= 1;
        self.writes -= u32::from(side == Side::Write);
        if side == Side::Read {
            self.end_watch(cx, id, client);
            match self.shares.is_queued(EntityId::ROOT, Side::Read) {
                true => self.window.on_full(now, &self.drive),
                false => self.window.on_room(now, &self.drive),
            }
        }
        if is_full
            && self.shares.is_queued(EntityId::ROOT, Side::Write)
            && !self.clocks.are_none()
            && self.clocks_above(client).next().is_none()
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
        if side == Side::Read && sent > drive::SMALL {
            self.want_probe(cx, client);
        }
    }
    fn cancel(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        self.take_out(cx, id);
        true
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
        let holder = self
            .clocks
            .first()
            .and_then(|(id, at)| Some((groups.group_id(id.as_group()?.index())?, at)));
        HoldInfo { until: self.wakeup, holder, ..HoldInfo::default() }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("promise_read_rate_bytes_per_second", self.drive.rate(Side::Read));
        gauges.gauge("promise_write_rate_bytes_per_second", self.drive.rate(Side::Write));
        gauges.gauge("promise_latency_alone_nanoseconds", self.drive.latency().0);
        gauges.gauge("promise_read_window_bytes", self.window.reads(&self.drive).bytes());
        gauges.gauge("promise_piece_bytes", self.window.piece(&self.drive));
        let throttle = self.throttle.percent(self.drive.rate(Side::Write));
        gauges.gauge("promise_write_pace_percent", self.pace.percent().min(throttle));
    }
}
