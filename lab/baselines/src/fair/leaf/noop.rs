//! `noop`: a group's requests in the order of their arrival, through a dispatch list that all groups
//! share the boundary of.

use crate::parts::noop_queue::NoopQueue;
use iofair_core::id::RequestId;
use iofair_core::policy::{Build, Context};
use iofair_core::unit::Sectors;
use iofair_policies::parts::sorted_fifo::{Entry, MergeRules, Sorted};

use super::{Leaf, NewQueue, Situation};

pub(in super::super) struct Noop {
    batch: usize,
    sorted: Sorted,
}

impl Leaf for Noop {
    type Queue = NoopQueue;
    const QUEUE_A_CLIENT: bool = false;

    fn new(build: &Build<'_>) -> Self {
        Self { batch: build.values.count("dispatch_batch") as usize, sorted: Sorted::new() }
    }
    fn new_queue(&self, _: &NewQueue) -> NoopQueue {
        NoopQueue::new(self.batch)
    }
    fn queued(&self, queue: &NoopQueue) -> usize {
        queue.len()
    }
    fn insert(&mut self, cx: &mut Context<'_>, queue: &mut NoopQueue, id: RequestId, _: Sectors) {
        queue.insert(&mut self.sorted, cx.requests, Entry { id, arrived: cx.now });
    }
    fn try_merge(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut NoopQueue,
        id: RequestId,
        _: Sectors,
    ) -> bool {
        let rules = MergeRules { front: true, max: cx.facts.max_request };
        queue.try_merge(&mut self.sorted, cx.requests, id, rules)
    }
    fn dispatch(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut NoopQueue,
        situation: &Situation,
    ) -> Option<RequestId> {
        queue.dispatch(&mut self.sorted, cx.requests, situation.head)
    }
}
