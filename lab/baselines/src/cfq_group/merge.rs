//! Cooperation: queues of a group that work close together become one, until it turns seeky.

use iofair_core::time::Instant;
use iofair_policies::parts::seeks::CLOSE;

use super::Grouped;
use crate::parts::cfq::queue::QueueId;
use crate::parts::cfq::{Cfq, Splits};

impl Cfq<Grouped> {
    /// The queue of the group that would continue near the head.
    pub(super) fn close_cooperator(&self, active: QueueId) -> Option<QueueId> {
        let queue = &self.queues[active];
        let alone = self.version.groups[queue.group.index()].queues == 1;
        if queue.is_idle_class() || !queue.sync || queue.own.seeky() || alone {
            return None;
        }
        let (distance, other) = self.nearest_to_head(active)?;
        let theirs = &self.queues[other];
        let alike = theirs.group == queue.group && theirs.is_real_time() == queue.is_real_time();
        (distance <= CLOSE && alike && theirs.sync && !theirs.own.seeky()).then_some(other)
    }
}

impl Splits for Cfq<Grouped> {
    fn wants_split(&self, _now: Instant, id: QueueId) -> bool {
        self.queues[id].own.split_asked
    }
    fn after_split(&mut self, id: QueueId, own: Option<QueueId>) {
        match own {
            None => self.queues[id].own.split_asked = false,
            // Think time belongs to a process, positions only to a queue.
            Some(own) => self.queues[own].own.pauses = self.queues[id].own.pauses,
        }
    }
}
