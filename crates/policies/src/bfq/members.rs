//! Clients with their queues, groups with their shared queues for buffered writes, and the life cycle of all of them.

use alloc::vec::Vec;

use crate::parts::priority_slice::{SHARED, shared_index};
use crate::parts::tree::Tree;
use crate::parts::wf2q::EntityId;
use iofair_core::group::Change;
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::policy::Context;
use iofair_core::priority::Priority;
use iofair_core::request::{Request, Requests};
use iofair_core::trace::Subject;
use iofair_core::unit::Sectors;

use super::Bfq;
use super::budget::Expiry;
use super::merge::Saved;
use super::queue::{Habits, NewQueue, Queue, QueueId, WeakQueue, level_weight};

/// The state of a client.
#[derive(Debug, Default)]
pub(super) struct ClientState {
    pub(super) queue: Option<QueueId>,
    /// The shared queue that its buffered writes went to last.
    pub(super) writes: Option<WeakQueue>,
    /// The state of its own queue when it was merged.
    pub(super) saved: Option<Saved>,
    pub(super) stably_merged: bool,
    /// A queue to merge with later, if both still exist then.
    pub(super) stable_candidate: Option<WeakQueue>,
}

/// The state of a group.
#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) entity: EntityId,
    /// Of buffered writes by class and level.
    writes: [Option<QueueId>; SHARED],
    /// Of workers, which send what throttles held.
    workers: Vec<Option<QueueId>>,
    /// Queues with something to do, here and below.
    pub(super) pending: u32,
    pub(super) counted_weight: u32,
    /// Queues that may be merged, by the sector of their next request.
    pub(super) positions: Tree,
    pub(super) last_created: Option<WeakQueue>,
}

impl GroupState {
    fn new(entity: EntityId) -> Self {
        Self {
            entity,
            writes: [None; SHARED],
            workers: Vec::new(),
            pending: 0,
            counted_weight: 0,
            positions: Tree::new(),
            last_created: None,
        }
    }
}

fn put<T: Default>(all: &mut Vec<T>, index: usize, value: T) {
    if index >= all.len() {
        all.resize_with(index + 1, T::default);
    }
    all[index] = value;
}

impl Default for GroupState {
    fn default() -> Self {
        Self::new(EntityId::ROOT)
    }
}

impl Bfq {
    pub(super) fn subject(&self, id: QueueId) -> Subject {
        let queue = &self.queues[id];
        queue.client.map_or(Subject::Group(queue.group), Subject::Client)
    }
    /// Records the start of a slot in the trace.
    pub(super) fn tell_slot(&self, cx: &mut Context<'_>, id: QueueId) {
        let budget = self.scheduler.budget_left(self.queues[id].entity).0;
        let busy = self.scheduler.busy_queues_total() as u64;
        cx.decide(
            self.subject(id),
            "slot: begins; {} sectors of budget, {} queues busy",
            [budget, busy],
        );
    }
    /// The group itself, or the root if groups are not used.
    fn group_in_force(&self, group: GroupId) -> GroupId {
        if self.by_groups { group } else { GroupId::ROOT }
    }

    /// The queue that a request would enter, if it exists.
    pub(super) fn existing_queue_for(&self, cx: &Context<'_>, id: RequestId) -> Option<QueueId> {
        let request = &cx.requests[id];
        if self.comes_from_worker(cx.requests, id) {
            let group = self.group_in_force(request.group);
            let worker = self.worker_of(request);
            return self.groups[group.index()].workers.get(worker).copied().flatten();
        }
        if request.is_sync() {
            let queue = self.clients[request.client.index()].queue?;
            return Some(self.queues[queue].merge_into.unwrap_or(queue));
        }
        let group = self.group_in_force(request.group);
        self.groups[group.index()].writes[shared_index(request.priority)]
    }
    /// The queue that a request enters; creates it if necessary.
    pub(super) fn queue_for(&mut self, cx: &mut Context<'_>, id: RequestId) -> QueueId {
        let request = &cx.requests[id];
        let (client, group, priority) = (request.client, request.group, request.priority);
        if self.comes_from_worker(cx.requests, id) {
            return self.worker_queue(cx, group, self.worker_of(request));
        }
        if request.is_sync() {
            if let Some(queue) = self.clients[client.index()].queue {
                return self.split_if_asked(cx, client, queue).unwrap_or_else(|| {
                    let queue = self.make_client_queue(cx, client);
                    self.resume(cx, client, queue);
                    queue
                });
            }
            let queue = self.make_client_queue(cx, client);
            self.note_burst(cx, queue);
            return self.merge_stably(cx, client, queue);
        }
        let group = self.group_in_force(group);
        let index = shared_index(priority);
        let queue = match self.groups[group.index()].writes[index] {
            Some(queue) => queue,
            None => {
                let queue = self.make_queue(cx, group, priority, None);
                self.groups[group.index()].writes[index] = Some(queue);
                queue
            }
        };
        self.clients[client.index()].writes = Some(self.queues.weak(queue));
        queue
    }
    /// Whether a throttle held a synchronous request, so that it comes from a worker of the kernel and not from its process.
    pub(super) fn comes_from_worker(&self, requests: &Requests, id: RequestId) -> bool {
        let request = &requests[id];
        let is_held = request.is_sync() && request.asked_tag > request.submitted;
        self.settings.workers > 0 && is_held
    }
    /// Which worker sends a request that a throttle held: that of the processor whose timer ended the time, which is any of
    /// them. What goes at the same time comes from the same one.
    fn worker_of(&self, request: &Request) -> usize {
        let random = request.asked_tag.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        random as usize % self.settings.workers
    }
    /// A worker's queue in a group. It stays as long as its group, unless it is merged at once with one that was made shortly
    /// before.
    fn worker_queue(&mut self, cx: &mut Context<'_>, group: GroupId, worker: usize) -> QueueId {
        let group = self.group_in_force(group);
        if self.groups[group.index()].workers.is_empty() {
            self.groups[group.index()].workers.resize(self.settings.workers, None);
        }
        if let Some(queue) = self.groups[group.index()].workers[worker] {
            return queue;
        }
        let mut id = self.make_queue(cx, group, Priority::default(), None);
        let queue = &mut self.queues[id];
        (queue.sync, queue.just_created, queue.owners) = (true, true, 1);
        queue.habits = Habits::new(cx.now, true);
        if let Some(target) = self.stable_target(cx, id) {
            self.queues[target].stably_merged = true;
            self.join(cx, id, target);
            id = target;
        }
        self.groups[group.index()].workers[worker] = Some(id);
        id
    }
    fn make_client_queue(&mut self, cx: &mut Context<'_>, client: ClientId) -> QueueId {
        let known = cx.groups.client(client);
        let group = self.group_in_force(known.group);
        let id = self.make_queue(cx, group, known.priority, Some(client));
        self.clients[client.index()].queue = Some(id);
        id
    }
    fn make_queue(
        &mut self,
        cx: &Context<'_>,
        group: GroupId,
        priority: Priority,
        client: Option<ClientId>,
    ) -> QueueId {
        let parent = self.groups[group.index()].entity;
        let weight = level_weight(priority.level);
        let entity = self.scheduler.add_queue(parent, weight, priority.class);
        let max_budget = self.first_budget();
        let new = NewQueue { now: cx.now, entity, group, priority, client, max_budget };
        let id = self.queues.insert(Queue::new(&new));
        put_at(&mut self.queue_of, entity.index(), id);
        id
    }
    /// Deletes a queue that no client uses any more.
    pub(super) fn release_if_unused(&mut self, id: QueueId) {
        let queue = &self.queues[id];
        if queue.owners > 0 || queue.references > 0 || queue.busy || !queue.sync {
            return;
        }
        self.end_queue(id);
    }
    fn end_queue(&mut self, id: QueueId) {
        self.unplace(id);
        self.forget_wakers(id);
        let queue = &mut self.queues[id];
        let (entity, target) = (queue.entity, queue.merge_into.take());
        self.scheduler.remove(entity);
        self.queues.remove(id);
        if let Some(target) = target {
            self.queues[target].references -= 1;
            self.release_if_unused(target);
        }
    }
    /// Separates a client from its queue.
    fn detach(&mut self, cx: &mut Context<'_>, client: ClientId) {
        let state = &mut self.clients[client.index()];
        (state.saved, state.stably_merged, state.stable_candidate) = (None, false, None);
        let Some(id) = state.queue.take() else { return };
        let queue = &mut self.queues[id];
        queue.owners -= 1;
        if queue.client == Some(client) {
            queue.client = None;
        }
        let waited = queue.owners == 0 && self.in_service == Some(id) && queue.is_quiet();
        if waited {
            self.expire(cx, id, Expiry::NoMoreRequests.now());
        } else if self.queues[id].owners == 0 && self.queues[id].busy && self.queues[id].is_quiet()
        {
            self.become_idle(cx.now, id);
            self.release_if_unused(id);
        } else {
            self.release_if_unused(id);
        }
    }

    pub(super) fn on_change(&mut self, cx: &mut Context<'_>, change: Change) {
        self.holds = false;
        match change {
            Change::GroupAdded(id) => self.add_group(cx, id),
            Change::GroupUpdated(id) => self.update_group(cx, id),
            Change::GroupRemoved(id) => self.remove_group(cx, id),
            Change::ClientAdded(id) => {
                put(&mut self.clients, id.index(), ClientState::default());
            }
            Change::ClientUpdated(id) => self.update_client(cx, id),
            Change::ClientRemoved(id) => self.detach(cx, id),
            _ => {}
        }
    }
    fn add_group(&mut self, cx: &Context<'_>, id: GroupId) {
        let group = cx.groups.group(id);
        let entity = match group.parent {
            Some(parent) if self.by_groups => {
                let parent = self.groups[parent.index()].entity;
                let contract = &group.contract;
                self.scheduler.add_group(parent, contract.weight.max(1), contract.class)
            }
            _ => EntityId::ROOT,
        };
        put(&mut self.groups, id.index(), GroupState::new(entity));
        if entity != EntityId::ROOT {
            put_at(&mut self.group_of, entity.index(), id);
        }
    }
    fn update_group(&mut self, cx: &Context<'_>, id: GroupId) {
        let entity = self.groups[id.index()].entity;
        if entity != EntityId::ROOT {
            let contract = &cx.groups.group(id).contract;
            self.scheduler.set_weight(entity, contract.weight.max(1));
            self.scheduler.set_class(entity, contract.class);
        }
    }
    fn remove_group(&mut self, cx: &mut Context<'_>, id: GroupId) {
        let state = &mut self.groups[id.index()];
        let workers = core::mem::take(&mut state.workers);
        for queue in core::mem::replace(&mut state.writes, [None; SHARED]).into_iter().flatten() {
            self.end_queue_of_group(cx, queue);
        }
        for queue in workers.into_iter().flatten() {
            match self.queues[queue].owners {
                1 => self.end_queue_of_group(cx, queue),
                _ => self.queues[queue].owners -= 1,
            }
        }
        let entity = self.groups[id.index()].entity;
        if entity != EntityId::ROOT {
            self.scheduler.remove(entity);
        }
    }
    fn end_queue_of_group(&mut self, cx: &mut Context<'_>, queue: QueueId) {
        if self.in_service == Some(queue) {
            self.expire(cx, queue, Expiry::NoMoreRequests.now());
        } else if self.queues[queue].busy {
            self.become_idle(cx.now, queue);
        }
        self.end_queue(queue);
    }
    /// Applies a client's new priority, or its new group, to which its queue moves with all its requests.
    fn update_client(&mut self, cx: &mut Context<'_>, client: ClientId) {
        let known = cx.groups.client(client);
        let (group, priority) = (self.group_in_force(known.group), known.priority);
        let Some(id) = self.clients[client.index()].queue else { return };
        self.queues[id].wanted = priority;
        if self.in_service != Some(id) {
            self.reapply(cx, id);
        }
        if self.queues[id].group == group {
            return;
        }
        // A shared queue stays with its other clients.
        if self.queues[id].owners > 1 || self.queues[id].merge_into.is_some() {
            self.detach(cx, client);
            return;
        }
        if self.in_service == Some(id) {
            self.expire(cx, id, Expiry::Preempted.now());
        }
        let Some(id) = self.clients[client.index()].queue else { return };
        self.move_queue(cx, id, group);
    }
    fn reapply(&mut self, cx: &mut Context<'_>, id: QueueId) {
        if self.queues[id].busy && self.queues[id].priority != self.queues[id].wanted {
            self.become_idle(cx.now, id);
            self.become_busy(cx.now, id);
        }
        self.apply_priority(id);
    }
    fn move_queue(&mut self, cx: &mut Context<'_>, id: QueueId, group: GroupId) {
        self.unplace(id);
        let parent = self.groups[group.index()].entity;
        let queue = &mut self.queues[id];
        queue.group = group;
        let (busy, entity) = (queue.busy, queue.entity);
        if busy {
            self.become_idle(cx.now, id);
        }
        // Requests in the drive count for the groups that the queue was in until now.
        let queue = &mut self.queues[id];
        let dispatched = core::mem::take(&mut queue.dispatched);
        self.recount(id);
        let in_drive = self.in_drive_of(id);
        self.count_in_drive(id, Sectors::ZERO, in_drive);
        self.scheduler.reparent(cx.now, entity, parent);
        self.count_in_drive(id, in_drive, Sectors::ZERO);
        self.queues[id].dispatched = dispatched;
        self.recount(id);
        if busy {
            self.become_busy(cx.now, id);
        }
        self.place(cx, id);
    }
}

fn put_at<T: Copy>(all: &mut Vec<T>, index: usize, value: T) {
    if index >= all.len() {
        all.resize(index + 1, value);
    }
    all[index] = value;
}
