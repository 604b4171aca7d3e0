//! Early queue merge: clients whose requests interleave near each other share a queue, so that the drive sees one
//! sequential stream. A client that turns out to seek gets its own queue again. Clients of the same group and
//! priority that are created at the same time may be merged for good ("stable merge").

use crate::parts::positions::nearest;
use crate::parts::seeks::CLOSE;
use iofair_core::id::{ClientId, RequestId};
use iofair_core::policy::Context;
use iofair_core::priority::Class;
use iofair_core::time::Nanos;

use super::Bfq;
use super::queue::{Habits, QueueId};
use super::raise::{BURST_INTERVAL, Kind, Raise};

/// A queue is merged only within this time after its first service since it became busy.
const MERGE_WITHIN: Nanos = Nanos::from_millis(100);
/// A candidate for a stable merge is replaced by a queue made later than this after it; on drives
/// that need it, the merge waits for as long.
const STABLE_AFTER: Nanos = Nanos::from_millis(600);

/// What a client's queue was like before its merge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    habits: Habits,
    raise: Raise,
}

impl Bfq {
    fn merges(&self) -> bool {
        !self.is_queueing_flash() || self.settings.merge_on_queueing_flash
    }
    fn too_late(&self, cx: &Context<'_>, id: QueueId) -> bool {
        let queue = &self.queues[id];
        queue.raise.served_lately() && queue.first_served + MERGE_WITHIN < cx.now
    }
    /// Puts a queue at the position of its next request, among those of its group that may be merged.
    pub(super) fn place(&mut self, cx: &Context<'_>, id: QueueId) {
        self.unplace(id);
        if !self.merges() {
            return;
        }
        let queue = &self.queues[id];
        let Some(next) = queue.next else { return };
        if !queue.sync || queue.priority.class == Class::Idle || self.too_late(cx, id) {
            return;
        }
        let tree = &mut self.groups[queue.group.index()].positions;
        let node = self.positions.insert(tree, cx.requests[next].start, id.0);
        self.queues[id].position = Some(node);
    }
    pub(super) fn unplace(&mut self, id: QueueId) {
        let queue = &mut self.queues[id];
        if let Some(node) = queue.position.take() {
            let tree = &mut self.groups[queue.group.index()].positions;
            self.positions.remove(tree, node);
        }
    }

    /// The queue that a request enters: its client's, or the one with which it is merged now.
    pub(super) fn cooperate(
        &mut self,
        cx: &mut Context<'_>,
        id: QueueId,
        request: RequestId,
    ) -> QueueId {
        if !self.queues[id].sync {
            return id;
        }
        let client = cx.requests[request].client;
        let Some(target) = self.find_cooperator(cx, id, request) else { return id };
        self.queues[id].just_created = false;
        self.merge_client(cx, client, id, target);
        target
    }
    fn find_cooperator(
        &mut self,
        cx: &Context<'_>,
        id: QueueId,
        request: RequestId,
    ) -> Option<QueueId> {
        if let Some(target) = self.queues[id].merge_into {
            return Some(target);
        }
        let client = cx.requests[request].client;
        if !self.is_queueing_flash() && self.stable_merge_is_due(cx, client, id) {
            let candidate = self.clients[client.index()].stable_candidate.take()?;
            let target = self.queues.alive(candidate)?;
            if self.idling_boosts_throughput(id) || self.queues[target].owners == 0 {
                return None;
            }
            let target = self.prepare_merge(id, target)?;
            self.mark_stable(client, target);
            return Some(target);
        }
        if !self.merges() || self.too_late(cx, id) || self.scheduler.busy_queues_total() == 1 {
            return None;
        }
        let start = cx.requests[request].start;
        let served = self.in_service.filter(|served| {
            let near = self.in_service_position.distance(start) <= CLOSE;
            near && *served != id && self.may_cooperate(cx, id, *served)
        });
        if let Some(target) = served.and_then(|served| self.prepare_merge(id, served)) {
            return Some(target);
        }
        let tree = &self.groups[self.queues[id].group.index()].positions;
        let near = nearest(&self.positions, tree, start, id.0).filter(|(way, _)| *way <= CLOSE);
        let other = QueueId(near?.1);
        self.may_cooperate(cx, id, other).then_some(())?;
        self.prepare_merge(id, other)
    }
    fn may_cooperate(&self, cx: &Context<'_>, id: QueueId, other: QueueId) -> bool {
        let (a, b) = (&self.queues[id], &self.queues[other]);
        let alike = a.group == b.group
            && a.priority.class == b.priority.class
            && a.priority.class != Class::Idle
            && a.sync
            && b.sync;
        alike && !a.habits.seeky() && !b.habits.seeky() && !self.too_late(cx, other)
    }
    /// Follows merges of the target. `None` if they lead back to this queue, or to a queue without clients.
    fn prepare_merge(&mut self, id: QueueId, mut target: QueueId) -> Option<QueueId> {
        while let Some(further) = self.queues[target].merge_into {
            if further == id {
                return None;
            }
            target = further;
        }
        if target == id || self.queues[target].owners == 0 {
            return None;
        }
        self.queues[id].merge_into = Some(target);
        self.queues[target].references += 1;
        Some(target)
    }
    /// Moves a client from its queue to another one. Queued requests stay where they are.
    fn merge_client(&mut self, cx: &mut Context<'_>, client: ClientId, old: QueueId, new: QueueId) {
        let queue = &self.queues[old];
        let saved = Saved { habits: queue.habits, raise: queue.raise };
        let state = &mut self.clients[client.index()];
        // A client that moves from one shared queue to another keeps the saved state of its own.
        state.saved = state.saved.or(Some(saved));
        state.queue = Some(new);
        self.join(cx, old, new);
    }
    /// An owner of a queue now uses another one.
    pub(super) fn join(&mut self, cx: &mut Context<'_>, old: QueueId, new: QueueId) {
        let queue = &self.queues[old];
        let (raise, io_bound) = (queue.raise, queue.habits.io_bound);
        cx.decide(self.subject(old), "merge: joins", [u64::from(new.0), 0]);
        let kind = raise.kind;
        if kind != Kind::No {
            if !self.queues[new].raise.is_raised() {
                self.queues[new].raise.take_over(&raise);
                self.set_raise(new, kind);
            }
            self.set_raise(old, Kind::No);
        }
        let other = &mut self.queues[new];
        other.habits.io_bound |= io_bound;
        (other.shared, other.client) = (true, None);
        other.owners += 1;
        let queue = &mut self.queues[old];
        queue.owners -= 1;
        queue.client = None;
        if queue.owners == 0 && queue.busy && queue.is_quiet() && self.in_service != Some(old) {
            self.become_idle(cx.now, old);
        }
        self.release_if_unused(old);
    }

    /// The client's queue, split off first if that is due; `None`: it needs a new one.
    pub(super) fn split_if_asked(
        &mut self,
        cx: &mut Context<'_>,
        client: ClientId,
        id: QueueId,
    ) -> Option<QueueId> {
        let queue = &mut self.queues[id];
        let stays = self.clients[client.index()].stably_merged || queue.stably_merged;
        if !queue.shared || !queue.split_asked || stays {
            return Some(id);
        }
        cx.decide(
            iofair_core::trace::Subject::Client(client),
            "merge: split",
            [u64::from(id.0), 0],
        );
        if queue.owners > 1 {
            queue.owners -= 1;
            let in_burst = queue.raise.in_large_burst;
            let state = &mut self.clients[client.index()];
            state.queue = None;
            if let Some(saved) = &mut state.saved {
                saved.raise.in_large_burst |= in_burst;
            }
            return None;
        }
        (queue.shared, queue.split_asked, queue.client) = (false, false, Some(client));
        self.resume(cx, client, id);
        Some(id)
    }
    /// Restores the state that a queue had before its merge.
    pub(super) fn resume(&mut self, cx: &mut Context<'_>, client: ClientId, id: QueueId) {
        self.queues[id].split_at = Some(cx.now);
        self.queues[id].just_created = false;
        if let Some(saved) = self.clients[client.index()].saved.take() {
            self.queues[id].habits.resume(&saved.habits);
            self.resume_raise(cx, id, saved.raise);
        }
    }

    /// A queue was made: merged at once with one that its group made just before, or later, or not.
    pub(super) fn merge_stably(
        &mut self,
        cx: &mut Context<'_>,
        client: ClientId,
        id: QueueId,
    ) -> QueueId {
        let Some(last) = self.made_before(cx, id) else { return id };
        if !self.is_queueing_flash() {
            self.clients[client.index()].stable_candidate = Some(self.queues.weak(last));
            return id;
        }
        let Some(target) = self.prepare_merge(id, last) else { return id };
        self.mark_stable(client, target);
        self.merge_client(cx, client, id, target);
        target
    }
    /// The queue with which a worker's queue, which was just made, is merged at once.
    pub(super) fn stable_target(&mut self, cx: &Context<'_>, id: QueueId) -> Option<QueueId> {
        let last = self.made_before(cx, id).filter(|_| self.is_queueing_flash())?;
        self.prepare_merge(id, last)
    }
    /// The queue that the group of a new queue made just before it.
    fn made_before(&mut self, cx: &Context<'_>, id: QueueId) -> Option<QueueId> {
        if !self.settings.stable_merge {
            return None;
        }
        let queue = &self.queues[id];
        let (group, priority) = (queue.group, queue.priority);
        let last = self.groups[group.index()].last_created;
        let last = last.and_then(|weak| self.queues.alive(weak)).filter(|last| {
            let last = &self.queues[*last];
            last.created + STABLE_AFTER >= cx.now
                && last.priority == priority
                && last.group == group
        });
        let Some(last) = last else {
            self.groups[group.index()].last_created = Some(self.queues.weak(id));
            return None;
        };
        (self.queues[last].created + BURST_INTERVAL >= cx.now).then_some(last)
    }
    fn mark_stable(&mut self, client: ClientId, target: QueueId) {
        self.clients[client.index()].stably_merged = true;
        self.queues[target].stably_merged = true;
    }
    fn stable_merge_is_due(&self, cx: &Context<'_>, client: ClientId, id: QueueId) -> bool {
        let queue = &self.queues[id];
        let waited = |since| since + STABLE_AFTER < cx.now;
        self.clients[client.index()].stable_candidate.is_some()
            && !queue.just_created
            && waited(queue.created)
            && queue.split_at.is_none_or(waited)
    }
}
