//! `anticipatory`: batches, and a short wait for the process that was served last, inside each group on
//! its own. What is known of processes is known to all groups.

use crate::parts::anticipatory::{AnticipatoryQueue, AnticipatoryRules, Shared};
use iofair_core::group::Change;
use iofair_core::id::RequestId;
use iofair_core::policy::{Build, Context};
use iofair_core::time::Instant;
use iofair_core::trace::Subject;
use iofair_core::unit::Sectors;
use iofair_policies::parts::sorted_fifo::Entry;

use super::{Leaf, NewQueue, Situation};

pub(in super::super) struct Anticipatory {
    rules: AnticipatoryRules,
    shared: Shared,
}

impl Leaf for Anticipatory {
    type Queue = AnticipatoryQueue;
    const QUEUE_A_CLIENT: bool = false;

    fn new(build: &Build<'_>) -> Self {
        let rules = AnticipatoryRules::new(build);
        Self { rules, shared: Shared::default() }
    }
    fn new_queue(&self, _: &NewQueue) -> AnticipatoryQueue {
        AnticipatoryQueue::new(self.rules)
    }
    fn queued(&self, queue: &AnticipatoryQueue) -> usize {
        queue.len()
    }
    fn insert(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut AnticipatoryQueue,
        id: RequestId,
        _: Sectors,
    ) {
        queue.insert(&mut self.shared, cx.requests, Entry { id, arrived: cx.now });
    }
    fn try_merge(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut AnticipatoryQueue,
        id: RequestId,
        _: Sectors,
    ) -> bool {
        queue.try_merge(&mut self.shared, cx.requests, id)
    }
    fn dispatch(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut AnticipatoryQueue,
        _: &Situation,
    ) -> Option<RequestId> {
        let before = queue.is_anticipating();
        let id = queue.dispatch(&mut self.shared, cx.requests, cx.now);
        if !before
            && queue.is_anticipating()
            && let Some(watched) = queue.watched()
        {
            let until = queue.next_wakeup().map_or(0, |until| until.since(cx.now).0);
            let values = [queue.len() as u64, until];
            cx.decide(
                Subject::Client(watched.client),
                "is waited for while {} wait, for {ns}",
                values,
            );
        }
        id
    }
    fn complete(&mut self, cx: &mut Context<'_>, queue: &mut AnticipatoryQueue, id: RequestId) {
        queue.complete(&mut self.shared, cx.requests, id, cx.now);
    }
    fn begin_turn(&mut self, cx: &Context<'_>, queue: &mut AnticipatoryQueue) {
        queue.enter(cx.now);
    }
    fn end_turn(&mut self, cx: &Context<'_>, queue: &mut AnticipatoryQueue) {
        queue.leave(cx.now);
    }
    fn change(&mut self, change: Change) {
        self.shared.processes.change(change);
    }
    fn anticipates(&self, queue: &AnticipatoryQueue, now: Instant) -> bool {
        queue.is_anticipating() && queue.next_wakeup().is_none_or(|until| until > now)
    }
    fn next_wakeup(&self, queue: &AnticipatoryQueue) -> Option<Instant> {
        queue.next_wakeup()
    }
}
