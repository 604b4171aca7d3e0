//! The queue of each request, and the life cycle of clients and queues.

use iofair_core::group::Change;
use iofair_core::id::{ClientId, RequestId};
use iofair_core::policy::Context;
use iofair_core::priority::Priority;
use iofair_core::trace::Subject;
use iofair_policies::parts::priority_slice::shared_index;

use super::Cfq;
use super::queue::{Queue, QueueId};

impl Cfq {
    pub(super) fn subject(&self, id: QueueId) -> Subject {
        self.queues[id].sharing.client.map_or(Subject::Drive, Subject::Client)
    }

    /// The queue in which a request could be merged, if there is one.
    pub(super) fn existing_queue_for(&self, cx: &Context<'_>, id: RequestId) -> Option<QueueId> {
        let request = &cx.requests[id];
        match request.is_sync() {
            true => self.clients[request.client.index()],
            false => self.writes[shared_index(request.priority)],
        }
    }
    /// The queue that a request enters; creates it if necessary.
    pub(super) fn queue_for(&mut self, cx: &mut Context<'_>, id: RequestId) -> QueueId {
        let request = &cx.requests[id];
        let (client, priority) = (request.client, request.priority);
        if !request.is_sync() {
            let (place, queues) = (&mut self.writes[shared_index(priority)], &mut self.queues);
            return *place.get_or_insert_with(|| queues.insert(Queue::new(cx.now, priority, None)));
        }
        let queue = match self.clients[client.index()] {
            Some(queue) => self.cooperate(cx, client, queue),
            None => self.make_client_queue(cx, client, priority),
        };
        self.follow_priority(queue, priority);
        queue
    }
    pub(super) fn make_client_queue(
        &mut self,
        cx: &Context<'_>,
        client: ClientId,
        priority: Priority,
    ) -> QueueId {
        let queue = self.queues.insert(Queue::new(cx.now, priority, Some(client)));
        self.clients[client.index()] = Some(queue);
        queue
    }
    /// Applies a changed priority, from the next request on; a shared queue keeps its own.
    fn follow_priority(&mut self, id: QueueId, priority: Priority) {
        let queue = &mut self.queues[id];
        if queue.sharing.shared || queue.priority == priority {
            return;
        }
        self.unplace(id);
        self.queues[id].priority.level = priority.level;
        self.reclass(id, priority.class);
    }

    pub(super) fn on_change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::ClientAdded(id) => {
                if id.index() >= self.clients.len() {
                    self.clients.resize(id.index() + 1, None);
                }
                self.clients[id.index()] = None;
            }
            Change::ClientRemoved(id) => self.detach(cx, id),
            // Groups have no effect; a priority is read from each request.
            _ => {}
        }
    }
    fn detach(&mut self, cx: &mut Context<'_>, client: ClientId) {
        let Some(id) = self.clients[client.index()].take() else { return };
        self.disown(cx, id, client);
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
