//! Reads that wait for writes: when a read is late, and for how long writes pause afterwards.
//!
//! ```text
//! due   = dispatch + 2 * latency alone + max(time of the read / share of its client, time of all reads in flight),
//!         or when its client is behind its floor or its minimum, if that is later
//! pause = delay * share / 2    of writes; delay: time after `due` at which the read completed, counted once per client
//! ```
//!
//! A drive completes a write once it is in the drive's cache, and reads wait while the cache is written out. A client that
//! sends one read at a time has nothing queued meanwhile, so virtual time does not hold back any write, and the client
//! would get almost nothing beside writers that never pause. Therefore writes wait while a read in flight is late and
//! after a late read, unless nothing was written recently: then writes are not the cause. Writes do not pause after reads
//! of groups with a minimum, which have clocks, or of clients of the idle class, and not for reads far before their turn.
//!
//! *Floors.* Writes that wait may leave the drive idle, so they wait only for clients that get too little. Each client that
//! reads beside writes has a clock, like those of minimums ([`super::clock`]), and is behind while it is in the past. A client
//! is thus behind with less than half of its share of what it reaches with the drive to itself:
//!
//! ```text
//! clock = min(max(clock, now - 20 ms) + increment, now + max(5 ms, increment))      when a command is dispatched
//! increment = 2 * max(drive time, shortest time of a read of the client) / share of the client      of a read in flight alone
//! increment = 2 * drive time / share of the client                                                of other reads, and of writes
//! ```

use super::flash::PASS_MAX;
use super::groups::class_of;
use super::shares::{EntityId, Side};
use super::{NOT_WATCHED, Promise};
use crate::parts::tree::NodeId;
use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};

/// Reads of a client that is further ahead of its turn than this, in virtual time, do not hold writes: nearly all that it may
/// pass waiting writes by. If the writes waited for these reads in turn, neither would go.
const AHEAD_MAX: u64 = PASS_MAX / 20 * 19;
/// A command moves the clock of a floor by this many times its time at the client's share, so that a client reaches its floor
/// with half of its share.
const INCREMENT: u64 = 2;
/// How far the clock of a floor may be ahead and behind.
const AHEAD: Nanos = Nanos::from_millis(5);
const BEHIND_MAX: Nanos = Nanos::from_millis(20);
/// The shortest time of a client's reads grows by this part with each of them.
const GROWS: u64 = 1024;
/// Longest delay of one read that writes pause for. A longer delay has other causes than writes.
const LOST_MAX: Nanos = Nanos::from_millis(250);

/// What a client gets at least beside writes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Floor {
    /// The client is behind from then on.
    clock: Instant,
    /// Shortest time of its reads beside writes; zero before the first one.
    shortest: Nanos,
    /// Its reads in flight that are watched.
    reads: u32,
}

impl Floor {
    /// A command is dispatched that takes this time at the client's share.
    fn serve(&mut self, now: Instant, time: Nanos) {
        let increment = Nanos(time.0.saturating_mul(INCREMENT));
        let from = self.clock.max(now.saturating_sub(BEHIND_MAX));
        self.clock = (from + increment).min(now + increment.max(AHEAD));
    }
    /// A read was completed that took this time.
    fn on_complete(&mut self, took: Nanos) {
        self.reads -= 1;
        self.shortest = match self.shortest {
            Nanos::ZERO => took,
            known => took.min(known + known / GROWS),
        };
    }
}

impl Promise {
    /// Whether a read that is about to be dispatched may wait for writes although it is not ahead of its turn.
    pub(super) fn could_wait_for_writes(&self, now: Instant, client: EntityId) -> bool {
        let writes = self.shares.is_queued(EntityId::ROOT, Side::Write) || self.writes > 0;
        (writes || self.drive.writes_recent(now)) && self.shares.ahead(client) <= AHEAD_MAX
    }
    /// A command of a client is dispatched; `reads`: a read that is watched. Returns from when on the client is behind.
    fn serve_floor(&mut self, now: Instant, client: EntityId, cost: Nanos, reads: bool) -> Instant {
        let Some(index) = client.as_client() else { return now };
        let floor = &mut self.clients[index.index()].floor;
        let alone = if reads && floor.reads == 0 { floor.shortest } else { Nanos::ZERO };
        floor.serve(now, self.shares.fair_time(client, cost.max(alone)));
        floor.reads += u32::from(reads);
        floor.clock
    }
    /// A write is dispatched: it counts for the floor of a client that reads as well.
    pub(super) fn count_for_floor(&mut self, now: Instant, client: EntityId, cost: Nanos) {
        let own = client.as_client().map(|index| &self.clients[index.index()].floor);
        if own.is_some_and(|floor| floor.shortest > Nanos::ZERO) {
            self.serve_floor(now, client, cost, false);
        }
    }
    /// Notes the time from which a dispatched read is late.
    pub(super) fn watch_read(
        &mut self,
        cx: &mut Context<'_>,
        id: RequestId,
        client: EntityId,
        cost: Nanos,
    ) {
        let alone = self.drive.latency();
        let fair = self.shares.fair_time(client, cost);
        let reads = u64::from(self.in_flight - self.writes);
        let before = self.drive.time_of(reads, self.window.reads_in_drive());
        let floor = self.serve_floor(cx.now, client, cost, true);
        let minimums = self.clocks_above(client).filter_map(|id| self.clocks.kept_until(id));
        let behind = minimums.fold(floor, Instant::min);
        let late = (cx.now + alone + alone + fair.max(before)).max(behind);
        let place = self.late.insert(&mut self.reads, (late, id), id);
        cx.requests.set_place(id, place.0);
    }
    /// A read was completed; if it was late, writes pause.
    pub(super) fn end_watch(&mut self, cx: &Context<'_>, id: RequestId, client: EntityId) {
        let node = NodeId(cx.requests.place(id));
        if node == NOT_WATCHED {
            return;
        }
        let (due, _) = self.late.key(node);
        self.late.remove(&mut self.reads, node);
        if let Some(index) = client.as_client() {
            let took = cx.now.since(cx.requests[id].dispatched);
            self.clients[index.index()].floor.on_complete(took);
        }
        if cx.now > due {
            self.compensate(cx, client, due);
        }
    }
    /// Whether any read in flight is late.
    pub(super) fn read_is_late(&self, now: Instant) -> bool {
        let first = self.late.first(&self.reads);
        first.is_some_and(|node| self.late.key(node).0 <= now)
    }
    /// Makes writes pause after a late read, for half of its delay times the client's share.
    fn compensate(&mut self, cx: &Context<'_>, client: EntityId, due: Instant) {
        let id = client.as_client().and_then(|client| cx.groups.client_id(client.index()));
        let Some(id) = id else { return };
        let of = cx.groups.client(id);
        let is_idle = of.priority.class.max(class_of(cx.groups, of.group)) == Class::Idle;
        if !self.drive.writes_recent(cx.now)
            || is_idle
            || self.clocks_above(client).next().is_some()
        {
            return;
        }
        let compensated = core::mem::replace(&mut self.clients[id.index()].compensated, cx.now);
        let lost = cx.now.since(due.max(compensated)).min(LOST_MAX);
        let whole = self.shares.fair_time(client, lost);
        self.pace.pause(cx.now, Nanos(lost.0 * lost.0 / whole.0.max(1) / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a client is behind if it gets less than half of its share. Method: reads that take 400 us at its share, every 1.0
    /// or 0.7 ms; then a pause.
    #[test]
    fn a_client_is_behind_its_floor_below_half_of_its_share() {
        let micros = Nanos::from_micros;
        for (every, behind) in [(1000, true), (700, false)] {
            let mut now = Instant(1_000_000_000);
            let mut floor = Floor { clock: now, ..Floor::default() };
            for _ in 0..100 {
                floor.serve(now, micros(400));
                now += micros(every);
            }
            assert_eq!(floor.clock <= now, behind, "every {every} us");
            now += Nanos::from_secs(1);
            (0..26).for_each(|_| floor.serve(now, micros(400)));
            assert!(floor.clock > now, "no claim of more than 20 ms is left");
        }
    }
}
