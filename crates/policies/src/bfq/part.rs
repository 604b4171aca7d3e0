//! Parts of the drive by weight: with `inject_by_weight`, other queues may have as much in the drive as the queue for
//! which BFQ idles, each in proportion to its weight.
//!
//! In the original, a queue that has all its requests in the drive has the drive to itself, for as long as sharing is
//! asymmetric; with groups it always is. Weights are then kept, but a drive that could execute more requests than one
//! client sends is not busy. Fairness only requires that every queue has its part of the drive:
//!
//! ```text
//! sectors in the drive of another queue * weight of this one  <=  sectors in the drive of this one * weight of the other
//! ```
//!
//! This compares the two queues, or the sibling groups that contain them. So a single large request never goes before
//! many small ones. The rule applies while the queue for which BFQ idles has at least two requests in the drive, on
//! flash that queues commands. A queue that could not use half of its part, even with all its queued requests, is not
//! injected: its own slot, in which BFQ idles for it, is better for it. Reads are not injected beside writes, nor
//! writes beside reads, because their times differ too much for sectors to measure the parts.

use crate::parts::wf2q::EntityId;
use iofair_core::policy::Context;
use iofair_core::unit::Sectors;

use super::Bfq;
use super::queue::QueueId;

impl Bfq {
    /// Counts a request that was dispatched (`add`) or completed (`less`) for its queue and all groups above.
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
    /// Whether another queue may dispatch its next request although BFQ idles for this one: each would stay within
    /// its share of what is in the drive.
    pub(super) fn within_share(&self, cx: &Context<'_>, id: QueueId, other: QueueId) -> bool {
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
