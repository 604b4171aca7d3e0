//! Which request goes next: reservations that are behind, deadlines, starts, floors, then shares.

use super::clock::{Command, Gate};
use super::shares::{EntityId, Key, Side};
use super::{Flash, Sent, window};
use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::request::{Operation, Request};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_core::unit::Sectors;

/// A request with a deadline goes before its turn while its client is at most this far ahead of its turn: the burst of a latency
/// contract.
const BURST: Nanos = Nanos::from_millis(50);
/// Why a request is dispatched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Basis {
    /// The minimum of its group is behind.
    Minimum,
    /// Its client is behind its floor.
    Floor,
    /// It has a deadline.
    Deadline,
    /// Its client starts.
    Start,
    /// It is its client's turn.
    Share,
}

impl Flash {
    pub(super) fn dispatch_next(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let gate = self.clocks.gate(cx.now);
        self.floors_hold = false;
        self.trace_gate(cx, gate);
        match gate {
            Gate::Due(group, _) => self.send_first(cx, group, Basis::Minimum),
            Gate::Closed(_, until) => {
                self.wakeup = until;
                None
            }
            Gate::Flush(..) if self.writes > 0 => None,
            Gate::Flush(group, _) => {
                let (_, client) = self.shares.pick(group, Side::Flush)?;
                self.send(cx, client, Side::Flush, Basis::Minimum)
            }
            Gate::Open => match self.first_deadline(cx.now) {
                // A flush waits for the writes in flight, and new ones for it.
                Some((_, Side::Flush)) if self.writes > 0 => self.send_open(cx, true),
                Some((client, side)) => self.send(cx, client, side, Basis::Deadline),
                None => self.send_start(cx),
            },
        }
    }
    /// No minimum is behind, and nothing with a deadline can go. Clients that start go before all others.
    fn send_start(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        while let Some((_, client, side)) = self.starting.first() {
            if self.starts.is_starting(cx.now, &self.clients[client.member()].start) {
                let id = self.send(cx, client, side, Basis::Start)?;
                self.starts.dispatch();
                return Some(id);
            }
            self.starting.set(client, side, None);
        }
        match self.starts.holds(cx.now) {
            Some(until) => {
                self.wakeup = until;
                self.send_pausing(cx)
            }
            None => self.send_open(cx, false),
        }
    }
    /// In a start, a client that pauses does not wait, within its share and the window: it takes little time from the start.
    fn send_pausing(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        if self.windowed >= self.window.limit() && self.is_shared(cx.now) {
            return None;
        }
        let (_, mut client, mut side) = self.pausing.first()?;
        while !self.shares.is_within(client, BURST) {
            self.pausing.set(client, side, None);
            (_, client, side) = self.pausing.first()?;
        }
        let waits = match side {
            Side::Read => false,
            Side::Write => cx.now < self.pace.next(),
            Side::Flush => cx.now < self.pace.next() || self.writes > 0,
        };
        if waits { None } else { self.send(cx, client, side, Basis::Share) }
    }
    /// No minimum is behind, and nothing with a deadline can go; `holds_writes`: only reads may.
    fn send_open(&mut self, cx: &mut Context<'_>, holds_writes: bool) -> Option<RequestId> {
        if cx.now >= self.floors_from {
            let gate = self.clocks.gate_of_floors(cx.now);
            self.floors_hold = gate != Gate::Open;
            match gate {
                Gate::Due(client, _) => return self.send(cx, client, Side::Read, Basis::Floor),
                Gate::Closed(_, until) => self.wakeup = until,
                Gate::Flush(..) | Gate::Open => {}
            }
        }
        if self.windowed >= self.window.limit() && self.is_shared(cx.now) {
            return None;
        }
        match self.floors_hold || holds_writes {
            false => self.send_first(cx, EntityId::ROOT, Basis::Share),
            true => {
                let (_, client) = self.shares.pick(EntityId::ROOT, Side::Read)?;
                self.send(cx, client, Side::Read, Basis::Share)
            }
        }
    }
    /// The first client inside `top` that may be served on this basis.
    fn pick(&self, cx: &Context<'_>, top: EntityId, basis: Basis) -> Option<(EntityId, Side)> {
        let paced = basis != Basis::Minimum && cx.now < self.pace.next();
        let mut first: Option<(Key, EntityId, Side)> = None;
        let mut flush = None;
        // Flushes first: a flush that waits for writes holds the writes after it.
        for side in Side::ALL.into_iter().rev() {
            let Some((key, client)) = self.shares.pick(top, side) else { continue };
            let held = match side {
                Side::Read => false,
                Side::Write => paced || flush.is_some_and(|flush| flush <= key),
                // Data first: flushes for minimums have a gate of their own.
                Side::Flush if basis == Basis::Minimum => true,
                Side::Flush => {
                    flush = Some(key);
                    paced || self.writes > 0
                }
            };
            if !held && first.is_none_or(|(other, ..)| key < other) {
                first = Some((key, client, side));
            }
        }
        first.map(|(_, client, side)| (client, side))
    }
    fn send_first(
        &mut self,
        cx: &mut Context<'_>,
        top: EntityId,
        basis: Basis,
    ) -> Option<RequestId> {
        let (client, side) = self.pick(cx, top, basis)?;
        self.send(cx, client, side, basis)
    }
    /// The client with the earliest deadline that is within its share and a burst, and which of its requests.
    fn first_deadline(&mut self, now: Instant) -> Option<(EntityId, Side)> {
        // In a start, the others get no share that a client could be ahead of.
        let held = self.starts.holds(now).is_some();
        while let Some((_, client, side)) = self.deadlines.first() {
            if held || self.shares.is_within(client, BURST) {
                return Some((client, side));
            }
            // It has no deadline until it is served again, so that it does not hide the deadlines of others.
            self.deadlines.set(client, side, None);
        }
        None
    }
    /// Dispatches the first request of a client on one side, or a piece of it.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        client: EntityId,
        side: Side,
        basis: Basis,
    ) -> Option<RequestId> {
        let now = cx.now;
        let head = self.front(client, side)?;
        let id = self.take_piece(cx, head, basis);
        let is_last = id == head || cx.requests[head].length == Sectors::ZERO;
        let (operation, length) = (cx.requests[id].operation, cx.requests[id].length.bytes());
        let Sent { kind, arrived, .. } = self.sent[head.0 as usize];
        let own = &mut self.clients[client.member()];
        let amount = own.counted.amount(operation, length);
        if is_last {
            own.queues[side as usize].pop_front(cx.requests);
            self.shares.dispatch(client, side);
            self.queued -= 1;
            self.on_front(cx, client, side);
        }
        let cost = self.costs.cost(side, length);
        let worth = match self.clocks.floors {
            true => {
                let depth = self.clocks.outstanding(client);
                let alone = self.costs.alone(side, length) / depth.max(1);
                self.shares.floor_time(client, cost.max(alone))
            }
            false => Nanos::ZERO,
        };
        let command = Command { amount, kind, worth, is_last };
        self.each_clock(client, |clocks, id| clocks.dispatch(now, id, command));
        // A start costs no more than a burst, or its client would wait for as long as all others take to catch up.
        if basis != Basis::Start || self.shares.is_within(client, BURST) {
            self.shares.charge(client, cost, basis == Basis::Share);
        }
        self.writes += u32::from(side == Side::Write && basis != Basis::Minimum);
        if side != Side::Read && basis == Basis::Share {
            self.pace.on_write(now, if side == Side::Write { length } else { 0 }, cost);
        }
        let counts = basis == Basis::Share && side != Side::Flush;
        let windowed = if counts { cost } else { Nanos::ZERO };
        self.windowed += windowed;
        if basis == Basis::Share {
            self.window.on_dispatch(now, &self.costs, self.windowed, self.is_shared(now));
        }
        self.costs.on_dispatch(now, side);
        *self.sent_mut(id) = Sent { kind, amount, windowed, basis, arrived };
        Some(id)
    }
    /// What of a request goes at once. Pieces are long while nobody has a minimum or a latency and would wait for them. Requests for
    /// minimums go whole: each piece of a write would hold reads for as long as the whole write does, and a drive may limit the number of
    /// commands, whatever their length.
    fn take_piece(&mut self, cx: &mut Context<'_>, id: RequestId, basis: Basis) -> RequestId {
        let Request { operation, length, .. } = cx.requests[id];
        let most = match operation {
            Operation::Flush => return id,
            Operation::Read | Operation::Write
                if basis != Basis::Minimum && self.is_shared(cx.now) =>
            {
                let (piece, long) = (self.window.piece(&self.costs), window::PIECE[1]);
                let is_long = piece < long && !self.latencies && self.clocks.are_none();
                if !is_long && piece < length.bytes() {
                    self.window.on_cut();
                }
                Sectors::from_bytes_ceil(if is_long { long } else { piece })
            }
            _ => length,
        };
        cx.requests.take_piece(id, most.max(Sectors(1)))
    }
    /// Traces when the gate opens, or closes for another group.
    fn trace_gate(&mut self, cx: &mut Context<'_>, gate: Gate) {
        let holder = match gate {
            Gate::Open => None,
            Gate::Due(id, _) | Gate::Flush(id, _) => Some(id),
            Gate::Closed(..) => self.clocks.first().map(|(id, _)| id),
        };
        if holder == self.holder {
            return;
        }
        self.holder = holder;
        if !cx.trace.records() {
            return;
        }
        let (Gate::Due(_, lag) | Gate::Flush(_, lag) | Gate::Closed(lag, _)) = gate else {
            let rule = "gate: open; nobody is behind its minimum";
            return cx.decide(Subject::Drive, rule, [0; 2]);
        };
        if let Some(id) = holder.and_then(|id| cx.groups.group_id(id.member())) {
            let rule = "gate: closed to others; {ns} behind its minimum";
            cx.decide(Subject::Group(id), rule, [lag.0, 0]);
        }
    }
}
