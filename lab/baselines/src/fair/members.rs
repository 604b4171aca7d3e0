//! Groups and clients: which queue a request belongs to, and the lives of queues.

use alloc::vec::Vec;

use iofair_core::bounds::{WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN};
use iofair_core::group::Change;
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::policy::Context;
use iofair_core::priority::{Class, Priority};
use iofair_core::trace::Subject;

use super::Fair;
use super::leaf::{Leaf, NewQueue};
use super::queue::{Queue, QueueId};
use super::service::{EntityId, Share};

/// Number of queues that a group's clients share: for buffered writes eight levels of two classes and one for the
/// idle class. The first one is also the only queue of leaf schedulers with one queue per group.
const SHARED_QUEUES: usize = 17;

/// The state of a group.
#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) entity: EntityId,
    shared: [Option<QueueId>; SHARED_QUEUES],
}

impl Default for GroupState {
    fn default() -> Self {
        Self { entity: EntityId::ROOT, shared: [None; SHARED_QUEUES] }
    }
}

fn shared_index(priority: Priority) -> usize {
    let level = usize::from(priority.level.min(7));
    match priority.class {
        Class::RealTime => level,
        Class::BestEffort => 8 + level,
        Class::Idle => 16,
    }
}

fn put<T: Default>(all: &mut Vec<T>, index: usize, value: T) {
    if index >= all.len() {
        all.resize_with(index + 1, T::default);
    }
    all[index] = value;
}

/// The queue of a request.
#[derive(Clone, Copy)]
enum Home {
    Client(ClientId),
    /// A separate queue: the client moved to another group while the request was in flight.
    Stray(ClientId, GroupId),
    Shared(GroupId, usize),
}

impl<L: Leaf> Fair<L> {
    pub(super) fn subject(&self, id: QueueId) -> Subject {
        let queue = &self.queues[id];
        queue.client.map_or(Subject::Group(queue.group), Subject::Client)
    }
    /// The group itself, or the root if groups are not used.
    fn group_in_force(&self, group: GroupId) -> GroupId {
        if self.by_groups { group } else { GroupId::ROOT }
    }
    fn home(&self, cx: &Context<'_>, id: RequestId) -> Home {
        let request = &cx.requests[id];
        let sync = request.is_sync();
        if L::QUEUE_A_CLIENT && sync {
            let now_in = self.group_in_force(cx.groups.client(request.client).group);
            let group = self.group_in_force(request.group);
            return match group == now_in {
                true => Home::Client(request.client),
                false => Home::Stray(request.client, group),
            };
        }
        let in_root = self.settings.async_in_root && !sync;
        let group = if in_root { GroupId::ROOT } else { self.group_in_force(request.group) };
        Home::Shared(group, if L::QUEUE_A_CLIENT { shared_index(request.priority) } else { 0 })
    }
    fn queue_at(&self, home: Home) -> Option<QueueId> {
        match home {
            Home::Client(client) => self.clients[client.index()],
            Home::Stray(..) => None,
            Home::Shared(group, index) => self.groups[group.index()].shared[index],
        }
    }
    /// The queue that a request would enter, if it exists.
    pub(super) fn existing_queue_for(&self, cx: &Context<'_>, id: RequestId) -> Option<QueueId> {
        self.queue_at(self.home(cx, id))
    }
    /// The queue that a request enters; creates it if necessary. All requests of a queue are of its group, so no
    /// queue outlives its group.
    pub(super) fn queue_for(&mut self, cx: &Context<'_>, id: RequestId) -> QueueId {
        let home = self.home(cx, id);
        if let Some(queue) = self.queue_at(home) {
            return queue;
        }
        match home {
            Home::Client(client) => {
                let known = cx.groups.client(client);
                let group = self.group_in_force(known.group);
                let queue = self.make_queue(cx, group, known.priority, Some(client));
                self.clients[client.index()] = Some(queue);
                queue
            }
            Home::Stray(client, group) => {
                let priority = cx.requests[id].priority;
                let queue = self.make_queue(cx, group, priority, Some(client));
                self.queues[queue].orphan = true;
                queue
            }
            Home::Shared(group, index) => {
                // A queue with requests of all kinds has no priority of its own.
                let theirs = cx.requests[id].priority;
                let priority = if L::QUEUE_A_CLIENT { theirs } else { Priority::default() };
                let queue = self.make_queue(cx, group, priority, None);
                self.groups[group.index()].shared[index] = Some(queue);
                queue
            }
        }
    }
    fn make_queue(
        &mut self,
        cx: &Context<'_>,
        group: GroupId,
        priority: Priority,
        client: Option<ClientId>,
    ) -> QueueId {
        let sync = client.is_some() || !L::QUEUE_A_CLIENT;
        let parent = self.groups[group.index()].entity;
        let entity = self.service.add_queue(parent, self.queue_share(sync, priority));
        let content = self.leaf.new_queue(&NewQueue { now: cx.now, sync, priority });
        let queue =
            Queue { entity, group, client, orphan: false, sync, priority, dispatched: 0, content };
        let id = self.queues.insert(queue);
        if entity.index() >= self.queue_of.len() {
            self.queue_of.resize(entity.index() + 1, id);
        }
        self.queue_of[entity.index()] = id;
        id
    }
    /// The weight of a queue is proportional to its slice, so that each full turn costs the same in virtual time:
    /// queues take turns, as in CFQ. A queue of the default priority has the weight of a default group.
    fn queue_share(&self, sync: bool, priority: Priority) -> Share {
        let slices = &self.settings.slices;
        let slice = slices.slice(sync, priority.level).0;
        let weight = u64::from(WEIGHT_DEFAULT) * slice / slices.sync.0.max(1);
        let weight = weight.clamp(u64::from(WEIGHT_MIN), u64::from(WEIGHT_MAX)) as u32;
        Share { weight, class: priority.class, sync }
    }

    /// Marks a queue that no client uses any more; it is deleted once it is empty.
    fn abandon(&mut self, cx: &mut Context<'_>, id: QueueId) {
        self.queues[id].orphan = true;
        let waited = self.leaf.queued(&self.queues[id].content) == 0;
        if waited && self.turn.as_ref().is_some_and(|turn| turn.queue == id) {
            self.expire(cx, "expire: nobody left; charged {ns} for {} requests");
        } else {
            self.end_if_unused(id);
        }
    }
    /// Deletes a queue that no client uses any more and that is empty.
    pub(super) fn end_if_unused(&mut self, id: QueueId) {
        let queue = &self.queues[id];
        let holds = queue.dispatched > 0 || self.leaf.queued(&queue.content) > 0;
        if !queue.orphan || holds || self.service.is_busy(queue.entity) {
            return;
        }
        self.service.remove(queue.entity);
        self.queues.remove(id);
    }

    pub(super) fn on_change(&mut self, cx: &mut Context<'_>, change: Change) {
        self.holds = false;
        self.leaf.change(change);
        match change {
            Change::GroupAdded(id) => self.add_group(cx, id),
            Change::GroupUpdated(id) => {
                let entity = self.groups[id.index()].entity;
                if entity != EntityId::ROOT {
                    self.service.set_share(entity, group_share(cx, id));
                }
            }
            Change::GroupRemoved(id) => self.remove_group(cx, id),
            Change::ClientAdded(id) => put(&mut self.clients, id.index(), None),
            Change::ClientUpdated(id) => self.update_client(cx, id),
            Change::ClientRemoved(id) => self.remove_client(cx, id),
            _ => {}
        }
    }
    fn add_group(&mut self, cx: &Context<'_>, id: GroupId) {
        let entity = match cx.groups.group(id).parent {
            Some(parent) if self.by_groups => {
                let parent = self.groups[parent.index()].entity;
                self.service.add_group(parent, group_share(cx, id))
            }
            _ => EntityId::ROOT,
        };
        put(&mut self.groups, id.index(), GroupState { entity, ..GroupState::default() });
    }
    fn remove_group(&mut self, cx: &mut Context<'_>, id: GroupId) {
        for index in 0..SHARED_QUEUES {
            if let Some(queue) = self.groups[id.index()].shared[index].take() {
                self.abandon(cx, queue);
            }
        }
        let entity = self.groups[id.index()].entity;
        if entity != EntityId::ROOT {
            self.service.remove(entity);
        }
    }
    /// Applies a client's new priority to its queue; or gives a client that moved to another group a new queue, while
    /// requests in the old one are served there.
    fn update_client(&mut self, cx: &mut Context<'_>, client: ClientId) {
        let Some(id) = self.clients[client.index()] else { return };
        let known = cx.groups.client(client);
        let (group, priority) = (self.group_in_force(known.group), known.priority);
        let queue = &mut self.queues[id];
        if queue.group != group {
            self.clients[client.index()] = None;
            self.abandon(cx, id);
            return;
        }
        queue.priority = priority;
        let (entity, share) = (queue.entity, self.queue_share(true, priority));
        self.service.set_share(entity, share);
    }
    fn remove_client(&mut self, cx: &mut Context<'_>, client: ClientId) {
        if let Some(id) = self.clients[client.index()].take() {
            self.abandon(cx, id);
        }
    }
}

fn group_share(cx: &Context<'_>, id: GroupId) -> Share {
    let contract = &cx.groups.group(id).contract;
    Share { weight: contract.weight.max(WEIGHT_MIN), class: contract.class, sync: true }
}
