//! The queue of each request, and the life cycle of clients and queues.

use iofair_core::group::Change;
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::policy::Context;
use iofair_core::time::Instant;
use iofair_core::trace::Subject;
use iofair_policies::parts::priority_slice::{SHARED, shared_index};

use super::queue::{Member, Queue, QueueId};
use super::{Cfq, Order, Rules, Slices, Version};

impl<V: Version> Cfq<V>
where
    Self: Rules,
{
    pub(crate) fn subject(&self, id: QueueId) -> Subject {
        let client = self.queues[id].sharing.client;
        client.map_or_else(|| self.shared_subject(id), Subject::Client)
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
        self.writes[group.index()][shared_index(request.priority)]
    }
    /// The queue that a request enters; creates it if necessary.
    pub(super) fn queue_for(&mut self, cx: &mut Context<'_>, id: RequestId) -> QueueId {
        let request = &cx.requests[id];
        let (client, priority) = (request.client, request.priority);
        let group = self.group_in_force(request.group);
        if !request.is_sync() {
            let place = shared_index(priority);
            let known = self.writes[group.index()][place];
            let member = Member { group, priority, client: None };
            let queue = known.unwrap_or_else(|| self.make_queue(cx.now, member));
            self.writes[group.index()][place] = Some(queue);
            return queue;
        }
        self.leave_other_group(cx, client, group);
        let queue = match self.clients[client.index()] {
            Some(queue) => self.cooperate(cx, client, queue),
            None => self.make_queue(cx.now, Member { group, priority, client: Some(client) }),
        };
        // A changed priority applies from the next request on; a shared queue keeps its own.
        let known = &self.queues[queue];
        if !known.sharing.shared && known.priority != priority {
            self.unplace(queue);
            self.set_priority(queue, priority);
        }
        queue
    }
    pub(super) fn make_queue(&mut self, now: Instant, member: Member) -> QueueId {
        let queue = self.queues.insert(Queue::new(V::own(now, &member), member));
        if let Some(client) = member.client {
            self.clients[client.index()] = Some(queue);
        }
        queue
    }

    pub(super) fn on_change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) => {
                let bound = self.writes.len().max(id.index() + 1);
                self.writes.resize(bound, [None; SHARED]);
                self.change_group(cx, change);
            }
            Change::GroupUpdated(_) => self.change_group(cx, change),
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
            if let Some(queue) = self.writes[id.index()][index].take() {
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
