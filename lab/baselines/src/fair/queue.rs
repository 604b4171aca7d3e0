//! Queues as the layer sees them, and the arena that holds them.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use iofair_core::id::{ClientId, GroupId};
use iofair_core::priority::Priority;

use super::service::EntityId;

/// The id of a queue in [`Queues`]; reused after the queue is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueId(pub(super) u32);

/// One queue; `content` belongs to the leaf scheduler.
#[derive(Debug)]
pub(super) struct Queue<C> {
    pub(super) entity: EntityId,
    pub(super) group: GroupId,
    /// Its client, if it has one. If the client moved away, the queue is deleted once it is empty.
    pub(super) client: Option<ClientId>,
    pub(super) orphan: bool,
    /// Whether its requests are synchronous; also true for a queue with a group's requests of all kinds.
    pub(super) sync: bool,
    pub(super) priority: Priority,
    /// Requests in the drive.
    pub(super) dispatched: u32,
    pub(super) content: C,
}

/// All queues. Allocates nothing unless more queues exist than ever before.
#[derive(Debug)]
pub(super) struct Queues<C> {
    slots: Vec<Option<Queue<C>>>,
    free: Vec<QueueId>,
}

impl<C> Default for Queues<C> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<C> Queues<C> {
    pub(super) fn insert(&mut self, queue: Queue<C>) -> QueueId {
        if let Some(id) = self.free.pop() {
            self.slots[id.0 as usize] = Some(queue);
            return id;
        }
        self.slots.push(Some(queue));
        QueueId(self.slots.len() as u32 - 1)
    }
    pub(super) fn remove(&mut self, id: QueueId) {
        self.slots[id.0 as usize] = None;
        self.free.push(id);
    }
}

impl<C> Index<QueueId> for Queues<C> {
    type Output = Queue<C>;
    fn index(&self, id: QueueId) -> &Queue<C> {
        self.slots[id.0 as usize].as_ref().expect("a queue's id is valid until the queue ends")
    }
}
impl<C> IndexMut<QueueId> for Queues<C> {
    fn index_mut(&mut self, id: QueueId) -> &mut Queue<C> {
        self.slots[id.0 as usize].as_mut().expect("a queue's id is valid until the queue ends")
    }
}
