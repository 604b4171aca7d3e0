//! Dispatch order on flash, which serves many requests at once.
//!
//! While a group is behind its minimum, only requests of that group are dispatched. Otherwise the client with the smallest
//! virtual time goes, within the window; if it is held, others may pass it by a limited amount of virtual time. A flush
//! waits for the writes in flight, and later writes wait for the flush.
//!
//! A flush takes the drive for milliseconds. A flush for a minimum therefore waits while another group of its class, or of
//! a more urgent one, is further behind with data than [`FLUSH_LAG`]; until then, writes of its own group pass it. Writes
//! of its own client also pass it for as long as the last flush took, so that one flush covers many of them.
//!
//! A read of a group with a latency contract is dispatched before its turn once its deadline is at most two unloaded latencies of the
//! drive away, while its group and those above are at most [`BURST`] ahead of their turn. It counts towards the share of its group: a
//! client that asks for less than its share, also in bursts, gets its latency; one that always asks for more gets its share.

use super::client::bytes;
use super::clock::Gate;
use super::shares::{self, EntityId, Side};
use super::{Charge, Probe, Promise, SendOptions, drive};
use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;

/// How far ahead of its turn a group may be served for its latency, in virtual time of a group with the default weight.
const BURST: Nanos = Nanos::from_millis(50);
/// Flushes wait while another group is further behind than this.
const FLUSH_LAG: Nanos = Nanos::from_millis(4);
/// A client may pass the first one in order by at most this virtual time, in nanoseconds of a group with the default weight.
pub(super) const PASS_MAX: u64 = 2_000_000;
/// If a group is further behind on a drive that completes few commands, requests for minimums are not cut for some time: it may
/// limit the number of commands a second, whatever their length.
const WHOLE_LAG: Nanos = Nanos::from_millis(20);
const WHOLE_TIME: Nanos = Nanos::from_secs(1);
/// A probe of the drive's latency is given up if a group is further behind than this.
const PROBE_LAG: Nanos = Nanos::from_millis(5);

/// For what reason a client may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Basis {
    /// Its group is behind.
    Due,
    /// Its group is behind with buffered writes, which go together unless a read is late.
    Batch,
    /// By weight; no group is behind.
    Share,
}

/// The next client by weight, and the next one that is not held.
#[derive(Clone, Copy, Default, Debug)]
struct Candidates {
    /// Key of the first client in order, held or not.
    first: Option<shares::Key>,
    /// The first client in order that is not held.
    free: Option<(shares::Key, EntityId, Side)>,
}

impl Promise {
    /// From when on writes by weight may go.
    fn next_write(&self) -> Instant {
        self.pace.next().max(self.throttle.next())
    }
    /// The candidates inside `top`.
    fn candidates(&mut self, cx: &Context<'_>, top: EntityId, basis: Basis) -> Candidates {
        let shared = self.window.is_shared(cx.now);
        let mut found = Candidates::default();
        let mut flush = None;
        // Flushes first: a flush that waits for writes holds the writes after it.
        for side in Side::ALL.into_iter().rev() {
            let Some((key, client)) = self.shares.pick(top, side) else { continue };
            let held = match side {
                Side::Read => basis == Basis::Share && shared && !self.has_room(cx, client, side),
                Side::Write => {
                    let waits = match basis {
                        Basis::Due => false,
                        Basis::Batch => self.read_is_late(cx.now),
                        Basis::Share => self.read_is_late(cx.now) || cx.now < self.next_write(),
                    };
                    let held = shared && (waits || !self.has_room(cx, client, side));
                    held || flush.is_some_and(|flush| flush <= key)
                }
                // A flush that waits for data of another group does not hold writes of its own group.
                Side::Flush if basis != Basis::Share && self.yields(cx.now, top, client) => true,
                Side::Flush if basis != Basis::Share && self.writes_pass(cx.now, client) => true,
                Side::Flush => {
                    flush = Some(key);
                    self.writes > 0 || basis == Basis::Share && cx.now < self.next_write()
                }
            };
            found.first = found.first.into_iter().chain([key]).min();
            if !held && found.free.is_none_or(|(other, ..)| key < other) {
                found.free = Some((key, client, side));
            }
        }
        found
    }
    /// The next client by weight while only reads are queued, if the window does not hold it.
    fn shared_read(&self, cx: &Context<'_>, shared: bool) -> Option<EntityId> {
        let room = if shared { self.window.room(&self.drive, Side::Read) } else { u64::MAX };
        if room == 0 {
            return None;
        }
        let client = self.shares.pick_client(EntityId::ROOT, Side::Read)?;
        let length = bytes(&cx.requests[self.front(client, Side::Read)?]);
        let fits = length <= room || self.window.piece(&self.drive) <= room;
        fits.then_some(client)
    }
    /// Dispatches a request of a group that is behind.
    fn send_due(
        &mut self,
        cx: &mut Context<'_>,
        group: EntityId,
        basis: Basis,
        lag: Nanos,
    ) -> Option<RequestId> {
        let (_, client, side) = self.candidates(cx, group, basis).free?;
        // Each piece of a synchronous write would hold reads for as long as the whole write does.
        let waited_for = side == Side::Write
            && self.front(client, side).is_some_and(|id| cx.requests[id].is_sync());
        if lag >= WHOLE_LAG && self.drive.is_slow() {
            self.whole_until = cx.now + WHOLE_TIME;
        }
        let split = !waited_for && cx.now >= self.whole_until && self.window.is_shared(cx.now);
        if self.in_flight == 0 && side == Side::Read && self.read_to_probe(cx) == Some(client) {
            self.probe = Probe::Sending;
        }
        self.send(cx, client, side, SendOptions { split, charge: Charge::Minimum })
    }
    fn has_room(&self, cx: &Context<'_>, client: EntityId, side: Side) -> bool {
        let Some(head) = self.front(client, side) else { return false };
        let length = bytes(&cx.requests[head]).min(self.window.piece(&self.drive));
        self.window.has_room(&self.drive, side, length)
    }
    /// The earliest deadline. A client that is far ahead of its turn loses its deadline until it is served again, so that it does not
    /// hide the deadlines of others.
    fn first_deadline(&mut self, cx: &Context<'_>) -> Option<(Instant, EntityId)> {
        loop {
            let client = self.deadlines.first()?;
            let is_within = self.shares.ahead(client) <= BURST.0;
            if let Some(deadline) = self.deadline(cx, client).filter(|_| is_within) {
                return Some((deadline, client));
            }
            self.deadlines.set(client, None);
        }
    }
    /// Dispatches a read whose deadline is near, before its turn and regardless of the window.
    fn send_urgent(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        if !self.latencies {
            return None;
        }
        let (deadline, client) = self.first_deadline(cx)?;
        let latency = self.drive.latency();
        let at = deadline.saturating_sub(latency + latency);
        if cx.now < at {
            self.wake_at(Some(at));
            return None;
        }
        if let Some(id) = client.as_client().and_then(|id| cx.groups.client_id(id.index())) {
            let rule = "deadline: goes before its turn; {ns} left";
            cx.decide(Subject::Client(id), rule, [deadline.since(cx.now).0, 0]);
        }
        let split = self.window.is_shared(cx.now);
        self.send(cx, client, Side::Read, SendOptions { split, charge: Charge::Minimum })
    }
    /// Whose turn it is by weight, within what the drive may have.
    fn send_shared(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let shared = self.window.is_shared(cx.now);
        let how = SendOptions { split: shared, charge: Charge::Share };
        let others = [Side::Write, Side::Flush];
        let only_reads = !others.iter().any(|side| self.shares.is_queued(EntityId::ROOT, *side));
        let (client, side) = if only_reads {
            (self.shared_read(cx, shared)?, Side::Read)
        } else {
            let Candidates { first, free } = self.candidates(cx, EntityId::ROOT, Basis::Share);
            let (first, (key, client, side)) = (first?, free?);
            if shared && key.is_far(first, PASS_MAX) {
                return None;
            }
            (client, side)
        };
        if self.in_flight == 0
            && let Some(reader) = self.read_to_probe(cx)
        {
            let goes_first = match side {
                Side::Read => true,
                Side::Write => self.drive.probes_before_writes(),
                Side::Flush => false,
            };
            if goes_first {
                self.probe = Probe::Sending;
                return self.send(cx, reader, Side::Read, how);
            }
        }
        self.send(cx, client, side, how)
    }
    /// The client whose large read is to have the drive to itself, if one is wanted and it is not far from its turn. It goes
    /// before small reads, and before writes as long as [`Drive::probes_before_writes`]: while writers never pause, it is
    /// always a write's turn when the drive becomes idle.
    ///
    /// [`Drive::probes_before_writes`]: drive::Drive::probes_before_writes
    pub(super) fn read_to_probe(&self, cx: &Context<'_>) -> Option<EntityId> {
        let Probe::Wanted(client) = self.probe else { return None };
        // Writes may have come since it is wanted.
        if !self.drive.wants_probe(cx.now) {
            return None;
        }
        let head = self.front(client, Side::Read)?;
        let large = bytes(&cx.requests[head]) > drive::SMALL;
        (large && self.shares.is_near(client, PASS_MAX)).then_some(client)
    }
    fn skip_probe(&mut self, now: Instant) {
        self.probe = Probe::No;
        self.drive.skip_probe(now);
    }
    /// Whether a client's writes for a minimum still pass its flush.
    fn writes_pass(&mut self, now: Instant, client: EntityId) -> bool {
        let own = client.as_client().map(|id| &self.clients[id.index()]);
        let until = own
            .filter(|client| client.queues[Side::Write as usize].front().is_some())
            .map(|client| client.next_flush)
            .filter(|until| now < *until);
        self.wake_at(until);
        until.is_some()
    }
    /// Whether a client's flush for the minimum of a group has to wait for data of another group.
    fn yields(&mut self, now: Instant, group: EntityId, client: EntityId) -> bool {
        let class = self.clocks.class(group).unwrap_or_default();
        let shares = &self.shares;
        // Groups that contain the client do not count: the flush is served for them as well.
        let holds = |id| {
            let mut above = core::iter::successors(shares.parent(client), |id| shares.parent(*id));
            above.any(|parent| parent == id)
        };
        let (first, until) = self.clocks.first_with_data(now, class, holds);
        let Some(begins) = first.map(|at| at + FLUSH_LAG + Nanos(1)) else { return false };
        let yields = begins <= now;
        // Writes of the flush's group go when the flush begins to wait, and the flush goes when it ends.
        self.wake_at(if yields { until } else { Some(begins) });
        yields
    }
    /// Dispatches a flush of the group that is furthest behind among those with only flushes queued.
    fn send_due_flush(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        if self.writes > 0 {
            return None;
        }
        let group = self.clocks.flush_due(cx.now)?;
        let (_, client) = self.shares.pick(group, Side::Flush)?;
        if self.yields(cx.now, group, client) {
            return None;
        }
        self.send(cx, client, Side::Flush, SendOptions { split: false, charge: Charge::Minimum })
    }
    /// Dispatches a flush past the closed gate while no group is far behind; those for minimums first. A held flush would
    /// hold its client's next writes as well, and flushes that go together cost one.
    fn send_flush(&mut self, cx: &mut Context<'_>, behind: Nanos) -> Option<RequestId> {
        if let Some(sent) = self.send_due_flush(cx) {
            return Some(sent);
        }
        let behind = behind.max(self.clocks.flush_lag(cx.now));
        if behind > FLUSH_LAG || self.writes > 0 || cx.now < self.next_write() {
            return None;
        }
        let (_, client) = self.shares.pick(EntityId::ROOT, Side::Flush)?;
        self.send(cx, client, Side::Flush, SendOptions { split: false, charge: Charge::Share })
    }
    /// Traces when the gate opens, or closes for another group.
    fn trace_gate(&mut self, cx: &mut Context<'_>, gate: Gate, lag: Nanos) {
        let holder = match gate {
            Gate::Open => None,
            Gate::Due(id, _) | Gate::Batch(id, ..) => Some(id),
            Gate::Closed(..) => self.clocks.first().map(|(id, _)| id),
        };
        if holder == self.holder {
            return;
        }
        self.holder = holder;
        if !cx.trace.records() {
            return;
        }
        let group = holder.and_then(EntityId::as_group);
        match group.and_then(|group| cx.groups.group_id(group.index())) {
            Some(id) => {
                let rule = "gate: closed to others; {ns} behind its minimum";
                cx.decide(Subject::Group(id), rule, [lag.0, 0]);
            }
            None => cx.decide(Subject::Drive, "gate: open; nobody is behind its minimum", [0; 2]),
        }
    }
    /// Sets wake-ups for when a probe may have to be given up: a group will be behind by [`PROBE_LAG`], or the gate changes.
    fn wake_to_end_probe(&mut self, now: Instant, gate: Gate, lag: Nanos) {
        let far = Some(now + PROBE_LAG.saturating_sub(lag));
        let (far, changes) = match gate {
            Gate::Open => (self.clocks.next_due(now).map(|next| next + PROBE_LAG), None),
            Gate::Batch(_, _, next) => (None, next),
            Gate::Due(..) => (far, None),
            Gate::Closed(_, until) => (far, until),
        };
        for at in [far, changes, self.clocks.next_change(now)] {
            self.wake_at(at);
        }
    }
    pub(super) fn dispatch_flash(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let now = cx.now;
        let gate = self.clocks.gate(now);
        let lag = match gate {
            Gate::Due(_, lag) | Gate::Closed(lag, _) => lag,
            _ => Nanos::ZERO,
        };
        self.trace_gate(cx, gate, lag);
        self.wake_at(self.clocks.turn_until(now));
        let to_probe = self.read_to_probe(cx).is_some();
        let probing = self.probe == Probe::Sent || to_probe && self.in_flight > 0;
        if to_probe && lag >= PROBE_LAG {
            // A group is far behind, and the drive did not become idle.
            self.skip_probe(now);
        } else if probing && lag < PROBE_LAG {
            self.wake_to_end_probe(now, gate, lag);
            return None;
        }
        let is_idle = self.in_flight == 0;
        let sent = self.dispatch_at(cx, gate);
        if to_probe && is_idle && sent.is_some() && matches!(self.probe, Probe::Wanted(_)) {
            // Another request went first. If the next ones do too, each of them would have the drive to itself.
            self.skip_probe(now);
        }
        sent
    }
    /// What may go by the gate.
    fn dispatch_at(&mut self, cx: &mut Context<'_>, gate: Gate) -> Option<RequestId> {
        let now = cx.now;
        match gate {
            Gate::Batch(group, other, next) => {
                let mut send = |group| self.send_due(cx, group, Basis::Batch, Nanos::ZERO);
                let sent = send(group).or_else(|| send(other?));
                let sent = sent.or_else(|| self.send_due_flush(cx));
                if sent.is_none() {
                    self.wake_at(next);
                    self.wake_at(Some(self.window.shared_until()).filter(|at| *at > now));
                }
                sent
            }
            Gate::Due(group, behind) => {
                let sent = self.send_due(cx, group, Basis::Due, behind);
                let sent = sent.or_else(|| self.send_flush(cx, behind));
                if sent.is_some() {
                    return sent;
                }
                self.wake_at(self.clocks.next_change(now));
                self.wake_at(Some(self.next_write()).filter(|at| *at > now));
                self.wake_at(Some(self.window.shared_until()).filter(|at| *at > now));
                None
            }
            Gate::Closed(behind, until) => {
                let sent = self.send_flush(cx, behind);
                if sent.is_none() {
                    self.wake_at(until);
                    self.wake_at(self.clocks.next_change(now));
                    self.wake_at(Some(self.next_write()).filter(|at| *at > now));
                }
                sent
            }
            Gate::Open => {
                let sent = self.send_urgent(cx).or_else(|| self.send_shared(cx));
                if sent.is_none() && self.queued > 0 {
                    self.wake_at(self.clocks.next_due(now));
                    self.wake_at(Some(self.next_write()).filter(|at| *at > now));
                    self.wake_at(Some(self.window.shared_until()).filter(|at| *at > now));
                    if self.shares.is_queued(EntityId::ROOT, Side::Flush) {
                        // A flush that is too far ahead in virtual time may go when the gate closes.
                        let closes = self.clocks.first().map(|(_, at)| at);
                        self.wake_at(closes.filter(|at| *at > now));
                    }
                }
                sent
            }
        }
    }
}
