//! The queue of each request, and the life cycle of groups, clients and queues.

use iofair_core::group::Change;
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::policy::Context;
use iofair_core::priority::Priority;
use iofair_core::time::Instant;
use iofair_core::trace::Subject;
use iofair_policies::parts::priority_slice::{SHARED, shared_index};

use super::CfqGroup;
use super::groups::GroupState;
use super::queue::{Queue, QueueId};

impl CfqGroup {
    pub(super) fn subject(&self, id: QueueId) -> Subject {
        let queue = &self.queues[id];
        queue.sharing.client.map_or(Subject::Group(queue.group), Subject::Client)
    }
    /// The group itself, or the root if groups are not used.
    fn group_in_force(&self, group: GroupId) -> GroupId {
        if self.by_groups { group } else { GroupId::ROOT }
    }

    /// The queue in which a request could be merged, if there is one.
    pub(super) fn existing_queue_for(&self, cx: &Context<'_>, id: RequestId) -> Option<QueueId> {
        let request = &cx.requests[id];
        let group = self.group_in_force(request.group);
        if request.is_sync() {
            let queue = self.clients[request.client.index()]?;
            return (self.queues[queue].group == group).then_some(queue);
        }
        self.groups[group.index()].writes[shared_index(request.priority)]
    }
    /// The queue that a request enters; creates it if necessary.
    pub(super) fn queue_for(&mut self, cx: &mut Context<'_>, id: RequestId) -> QueueId {
        let request = &cx.requests[id];
        let (client, priority) = (request.client, request.priority);
        let group = self.group_in_force(request.group);
        if request.is_sync() {
            self.leave_other_group(cx, client, group);
            let queue = match self.clients[client.index()] {
                Some(queue) => self.cooperate(cx, client, queue),
                None => self.make_client_queue(cx.now, client, group, priority),
            };
            self.follow_priority(queue, priority);
            return queue;
        }
        let place = &mut self.groups[group.index()].writes[shared_index(priority)];
        let queues = &mut self.queues;
        *place.get_or_insert_with(|| queues.insert(Queue::new(cx.now, group, priority, None)))
    }
    pub(super) fn make_client_queue(
        &mut self,
        now: Instant,
        client: ClientId,
        group: GroupId,
        priority: Priority,
    ) -> QueueId {
        let queue = self.queues.insert(Queue::new(now, group, priority, Some(client)));
        self.clients[client.index()] = Some(queue);
        queue
    }
    /// Applies a changed priority, from the next request on; a shared queue keeps its own.
    fn follow_priority(&mut self, id: QueueId, priority: Priority) {
        if !self.queues[id].sharing.shared && self.queues[id].priority != priority {
            self.unplace(id);
            self.queues[id].priority = priority;
        }
    }

    pub(super) fn on_change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) => {
                let group = cx.groups.group(id);
                let state = GroupState::new(cx.now, group.parent, weight(cx, id));
                match self.groups.get_mut(id.index()) {
                    Some(old) => *old = state,
                    // Ids are dense: each new one is the next number.
                    None => {
                        while self.groups.len() < id.index() {
                            self.groups.push(GroupState::new(cx.now, None, 1));
                        }
                        self.groups.push(state);
                    }
                }
            }
            Change::GroupUpdated(id) => self.groups[id.index()].reweigh(weight(cx, id)),
            Change::GroupRemoved(id) => self.remove_group(cx, id),
            Change::ClientAdded(id) => {
                if id.index() >= self.clients.len() {
                    self.clients.resize(id.index() + 1, None);
                }
                self.clients[id.index()] = None;
            }
            Change::ClientUpdated(id) => {
                let group = self.group_in_force(cx.groups.client(id).group);
                self.leave_other_group(cx, id, group);
            }
            Change::ClientRemoved(id) => self.detach(cx, id),
            _ => {}
        }
    }
    fn remove_group(&mut self, cx: &mut Context<'_>, id: GroupId) {
        // A client that moved may have dispatched its last request from here after the move.
        for index in 0..self.clients.len() {
            let queue = self.clients[index];
            if queue.is_some_and(|queue| self.queues[queue].group == id)
                && let Some(client) = cx.groups.client_id(index)
            {
                self.detach(cx, client);
            }
        }
        for index in 0..SHARED {
            if let Some(queue) = self.groups[id.index()].writes[index].take() {
                if self.active == Some(queue) {
                    self.expire(cx, "slice: the group is gone; {} requests sent", false);
                }
                self.queues.remove(queue);
            }
        }
    }
    /// Gives a client that moved to another group a new queue; the old one keeps its requests.
    fn leave_other_group(&mut self, cx: &mut Context<'_>, client: ClientId, group: GroupId) {
        let queue = self.clients[client.index()];
        if queue.is_some_and(|queue| self.queues[queue].group != group) {
            self.detach(cx, client);
        }
    }
    fn detach(&mut self, cx: &mut Context<'_>, client: ClientId) {
        if let Some(id) = self.clients[client.index()].take() {
            self.disown(cx, id, client);
        }
    }
    /// Separates a client from its queue.
    pub(super) fn disown(&mut self, cx: &mut Context<'_>, id: QueueId, client: ClientId) {
        self.queues[id].sharing.leave(client);
        self.release_if_unused(cx, id);
    }
    /// Deletes a queue that no client uses any more.
    pub(super) fn release_if_unused(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let mut next = Some(id);
        while let Some(id) = next.filter(|id| self.queues[*id].is_unused()) {
            if self.active == Some(id) {
                self.expire(cx, "slice: nobody uses the queue any more; {} requests sent", false);
            }
            self.unplace(id);
            next = self.queues[id].sharing.merge_into.take();
            self.queues.remove(id);
            if let Some(target) = next {
                self.queues[target].sharing.merging -= 1;
            }
        }
    }
}

fn weight(cx: &Context<'_>, id: GroupId) -> u64 {
    u64::from(cx.groups.group(id).contract.weight.max(1))
}
