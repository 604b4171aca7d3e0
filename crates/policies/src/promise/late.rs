//! Reads that wait for writes: which reads are late, and how long writes pause afterwards.
//!
//! ```text
//! due   = dispatch + 2 * latency alone + max(time of the read / share of its client, time of all reads in flight)
//! pause = lost * share / 2     of writes, for what a read was late by, counted once for a client
//! ```
//!
//! A drive answers a write when it has it in its cache, and reads wait for what it writes afterwards. Clients that read one
//! request after the other have nothing queued then, and virtual time holds no write: they would get next to nothing
//! beside writers that never pause. So writes wait while a read in flight is late, and after one that was, unless nothing has
//! been written lately: then it was not late because of writes. A reader with
//! half of the weights reaches at least a fifth of what it reaches alone. Groups with a minimum have their clocks for that, and
//! idle clients no claim.

use super::shares::{EntityId, Side};
use super::{NOT_WATCHED, Promise, class_of};
use crate::parts::tree::NodeId;
use iofair_core::group::Class;
use iofair_core::policy::Context;
use iofair_core::request::RequestId;
use iofair_core::time::{Instant, Nanos};

/// The longest delay of one read that writes pause for. A drive that hangs for longer does so for other reasons than writes.
const LOST_MAX: Nanos = Nanos::from_millis(250);

impl Promise {
    /// From when on is a read late? Nobody asks where nothing is written.
    pub(super) fn watch_read(
        &mut self,
        cx: &mut Context<'_>,
        id: RequestId,
        client: EntityId,
        cost: Nanos,
    ) {
        let writes = self.shares.is_queued(EntityId::ROOT, Side::Write) || self.writes > 0;
        if writes || self.drive.writes_about(cx.now) {
            let alone = self.drive.latency();
            let fair = self.shares.fair_time(client, cost);
            let reads = u64::from(self.in_flight - self.writes);
            let before = self.drive.time_of(reads, self.window.reads_in_drive());
            let late = cx.now + alone + alone + fair.max(before);
            let place = self.late.insert(&mut self.reads, (late, id), id);
            cx.requests.set_place(id, place.0);
        }
    }
    /// A read was completed.
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
    /// Is a read in flight later than its share explains?
    pub(super) fn read_is_late(&self, now: Instant) -> bool {
        let first = self.late.first(&self.reads);
        first.is_some_and(|node| self.late.key(node).0 <= now)
    }
    /// A read was late, and writes are about: they pause for half of the client's part of what it lost, by its share. What a
    /// minimum is for is kept by its clock.
    fn compensate(&mut self, cx: &Context<'_>, client: EntityId, due: Instant) {
        let id = client.as_client().and_then(|it| cx.groups.client_id(it.index()));
        let Some(id) = id else { return };
        let of = cx.groups.client(id);
        let is_idle = of.priority.class.max(class_of(cx.groups, of.group)) == Class::Idle;
        if !self.drive.writes_about(cx.now) || is_idle || self.clocks_above(client).next().is_some()
        {
            return;
        }
        let compensated = core::mem::replace(&mut self.clients[id.index()].compensated, cx.now);
        let lost = cx.now.since(due.max(compensated)).min(LOST_MAX);
        let whole = self.shares.fair_time(client, lost);
        self.pace.pause(cx.now, Nanos(lost.0 * lost.0 / whole.0.max(1) / 2));
    }
}
