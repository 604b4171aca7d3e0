//! Who has how much in the drive: with `inject_by_weight` others may have as much there as the queue that is
//! waited for, each by its weight.
//!
//! In the original a queue that has all its requests in the drive has the drive to itself, for as long as
//! sharing is asymmetric, and with groups it always is. Weights are then kept, and a drive that would take
//! more than one client sends is not full. What nobody takes offence at is a drive in which everybody has
//! its part:
//!
//! ```text
//! sectors there of another * weight of the waited-for one  <=  sectors there of that one * weight of the other
//! ```
//!
//! for the two queues, or the groups side by side that hold them. So one large request never comes before
//! many small ones. It is asked while the waited-for queue has two requests or more in the drive, on flash that
//! queues. Whoever is too small for half of its part (with all it has queued) is better off in a slot of its own,
//! where it is waited for in turn, and is not injected; nor are reads beside writes or writes beside reads, whose
//! times differ too much for sectors to tell the parts.

use crate::parts::wf2q::EntityId;
use iofair_core::policy::Context;
use iofair_core::unit::Sectors;

use super::Bfq;
use super::queue::QueueId;

impl Bfq {
    /// The drive got a request of a queue, or one came back: counted for it and every group above.
    pub(super) fn count_in_drive(&mut self, id: QueueId, add: Sectors, less: Sectors) {
        let mut at = self.queues[id].entity;
        while at != EntityId::ROOT {
            let index = at.index();
            if self.in_drive.len() <= index {
                self.in_drive.resize(index + 1, Sectors::ZERO);
            }
            self.in_drive[index] = Sectors(self.in_drive[index].0 + add.0 - less.0);
            at = self.scheduler.parent(at);
        }
    }
    /// What the drive has of a queue.
    pub(super) fn in_drive_of(&self, id: QueueId) -> Sectors {
        self.in_drive_by(self.queues[id].entity)
    }
    fn in_drive_by(&self, entity: EntityId) -> Sectors {
        self.in_drive.get(entity.index()).copied().unwrap_or(Sectors::ZERO)
    }
    /// May another queue send its next request though this one is waited for: would each have its part of what is
    /// in the drive?
    pub(super) fn parts_suit(&self, cx: &Context<'_>, id: QueueId, other: QueueId) -> bool {
        let candidate = &self.queues[other];
        let Some(next) = candidate.next else { return false };
        let [own, others] = self.scheduler.side_by_side([self.queues[id].entity, candidate.entity]);
        let next = &cx.requests[next];
        let alike = next.operation.direction() == self.in_service_direction;
        if !alike || self.scheduler.class(own) != self.scheduler.class(others) {
            return false;
        }
        let [weight, theirs] = [own, others].map(|entity| u64::from(self.scheduler.weight(entity)));
        let (length, queued) = (next.length.0, candidate.list.len() as u64);
        let there = self.in_drive_by(others).0;
        let part = self.in_drive_by(own).0 * theirs;
        (there + length) * weight <= part && (there + length * queued) * weight * 2 >= part
    }
}
