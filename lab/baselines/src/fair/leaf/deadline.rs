//! `deadline`: batches by sector and deadlines, inside each group on its own.

use iofair_core::id::RequestId;
use iofair_core::policy::{Build, Context};
use iofair_core::unit::Sectors;
use iofair_policies::parts::deadline_queue::{DeadlineQueue, DeadlineRules};
use iofair_policies::parts::sorted_fifo::{Entry, Sorted};

use super::{Leaf, NewQueue, Situation};

pub(in super::super) struct Deadline {
    rules: DeadlineRules,
    sorted: Sorted,
}

impl Leaf for Deadline {
    type Queue = DeadlineQueue;
    const QUEUE_A_CLIENT: bool = false;

    fn new(build: &Build<'_>) -> Self {
        Self { rules: DeadlineRules::new(build), sorted: Sorted::new() }
    }
    fn new_queue(&self, _: &NewQueue) -> DeadlineQueue {
        DeadlineQueue::new(self.rules)
    }
    fn queued(&self, queue: &DeadlineQueue) -> usize {
        queue.len()
    }
    fn insert(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut DeadlineQueue,
        id: RequestId,
        _: Sectors,
    ) {
        queue.insert(&mut self.sorted, cx.requests, Entry { id, arrived: cx.now });
    }
    fn try_merge(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut DeadlineQueue,
        id: RequestId,
        _: Sectors,
    ) -> bool {
        queue.try_merge(&mut self.sorted, cx.requests, id)
    }
    fn dispatch(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut DeadlineQueue,
        _: &Situation,
    ) -> Option<RequestId> {
        queue.dispatch(&mut self.sorted, cx.requests, cx.now)
    }
}
