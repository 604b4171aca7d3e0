//! Reads that wait for writes: when a read is late, and for how long writes pause afterwards.
//!
//! ```text
//! due   = dispatch + 2 * latency alone + max(time of the read / share of its client, time of all reads in flight)
//! pause = delay * share / 2    of writes; delay: time after `due` at which the read completed, counted once per client
//! ```
//!
//! A drive completes a write once it is in the drive's cache, and reads wait while the cache is written out. A client that
//! sends one read at a time has nothing queued meanwhile, so virtual time does not hold back any write, and the client
//! would get almost nothing beside writers that never pause. Therefore writes wait while a read in flight is late and
//! after a late read, unless nothing was written recently: then writes are not the cause. A reader with half of the
//! weights reaches at least a fifth of its rate alone. This does not apply to groups with a minimum, which have clocks,
//! to clients of the idle class, and to reads far before their turn.

use super::flash::PASS_MAX;
use super::groups::class_of;
use super::shares::{EntityId, Side};
use super::{NOT_WATCHED, Promise};
use crate::parts::tree::NodeId;
use iofair_core::group::Class;
use iofair_core::policy::Context;
use iofair_core::request::RequestId;
use iofair_core::time::{Instant, Nanos};

/// Reads of a client that is further ahead of its turn than this, in virtual time, do not hold writes: nearly all that it may
/// pass waiting writes by. If the writes waited for these reads in turn, neither would go.
const AHEAD_MAX: u64 = PASS_MAX / 20 * 19;
/// Longest delay of one read that writes pause for. A longer delay has other causes than writes.
const LOST_MAX: Nanos = Nanos::from_millis(250);

impl Promise {
    /// Whether a read that is about to be dispatched may wait for writes although it is not ahead of its turn.
    pub(super) fn could_wait_for_writes(&self, now: Instant, client: EntityId) -> bool {
        let writes = self.shares.is_queued(EntityId::ROOT, Side::Write) || self.writes > 0;
        !self.head.is_present()
            && (writes || self.drive.writes_recent(now))
            && self.shares.ahead(client) <= AHEAD_MAX
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
        let late = cx.now + alone + alone + fair.max(before);
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
        let id = client.as_client().and_then(|it| cx.groups.client_id(it.index()));
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
