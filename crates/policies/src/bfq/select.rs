//! The loop that chooses the next request for the drive, and the handling of completions.

use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::priority::Class;
use iofair_core::unit::Sectors;

use super::Bfq;
use super::budget::Expiry;
use super::queue::QueueId;

impl Bfq {
    pub(super) fn on_dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.check_wait(cx);
        // A repeated call without an event gives the same result at any time (a slot that has timed out meanwhile
        // ends with the next event). So only the end of idling needs a wake-up.
        if self.holds {
            return None;
        }
        let chosen = self.select_if_free(cx);
        self.holds = chosen.is_none();
        chosen.map(|queue| self.send(cx, queue))
    }
    fn select_if_free(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        let alone = !self.settings.strict_guarantees || self.in_driver == 0;
        if alone && self.scheduler.busy_queues_total() > 0 { self.select(cx) } else { None }
    }

    /// The queue from which to dispatch: the one in service, one to inject from, or the next one.
    fn select(&mut self, cx: &mut Context<'_>) -> Option<QueueId> {
        if let Some(id) = self.in_service {
            if self.may_time_out(cx.now, id) && !self.must_idle(id) {
                self.expire(cx, id, Expiry::BudgetTimeout.now());
            } else {
                match self.stay(cx, id) {
                    Ok(chosen) => return chosen,
                    Err(reason) => self.expire(cx, id, reason.now()),
                }
            }
        }
        // Each iteration removes an empty queue or serves one, so their number bounds the loop.
        loop {
            let entity = self.scheduler.pick(cx.now)?;
            let id = self.queue_of[entity.index()];
            self.in_service = Some(id);
            self.queues.unlist(id);
            self.start_slot(cx.now, id);
            self.tell_slot(cx, id);
            match self.stay(cx, id) {
                Ok(chosen) => return chosen,
                Err(reason) => self.expire(cx, id, reason.now()),
            }
        }
    }
    /// Whether the queue in service stays in service, and which queue dispatches (`None`: none, because BFQ idles);
    /// or else why its slot ends.
    fn stay(&mut self, cx: &mut Context<'_>, id: QueueId) -> Result<Option<QueueId>, Expiry> {
        if self.queues[id].next.is_some() {
            if !self.next_fits(cx, id) {
                return Err(Expiry::BudgetExhausted);
            }
            if self.queues[id].waiting {
                self.stop_waiting(id);
            }
            return Ok(Some(id));
        }
        let queue = &self.queues[id];
        if queue.waiting || (queue.dispatched > 0 && self.better_to_idle(id)) {
            return Ok(self.choose_injected(cx, id));
        }
        Err(Expiry::NoMoreRequests)
    }

    fn send(&mut self, cx: &mut Context<'_>, id: QueueId) -> RequestId {
        let queue = &mut self.queues[id];
        let request = queue.next.expect("a queue is chosen for its next request");
        let (start, length) = (cx.requests[request].start, cx.requests[request].length);
        let cost = self.cost(id, length);
        let queue = &mut self.queues[id];
        if queue.raise.on_served(cost) {
            queue.first_served = cx.now;
        }
        queue.dispatched += 1;
        self.scheduler.served(self.queues[id].entity, cost);
        let serves = self.in_service == Some(id);
        if serves {
            self.sample_dispatch(request);
            self.in_service_position = start + length;
            self.in_service_direction = cx.requests[request].operation.direction();
        } else {
            self.injected += cost;
        }
        if self.rate.on_dispatch(cx.now, self.in_driver, start, length) {
            self.follow_rate();
        }
        self.in_driver += 1;
        self.count_in_drive(id, length, Sectors::ZERO);
        self.take_out(cx, id, request);
        if serves {
            if self.settings.low_latency {
                self.check_raise(cx, id);
            }
            let idle_class = self.queues[id].priority.class == Class::Idle;
            if idle_class && self.scheduler.busy_queues_total() > 1 {
                self.expire(cx, id, Expiry::BudgetExhausted.now());
            }
        }
        request
    }
    /// Removes a request that is dispatched from its queue, and finds the next one.
    fn take_out(&mut self, cx: &mut Context<'_>, id: QueueId, request: RequestId) {
        let queue = &mut self.queues[id];
        // Age is checked once per slot; otherwise requests go in order of sectors.
        let look = !core::mem::replace(&mut queue.fifo_checked, true);
        let expire = match queue.sync {
            true => self.settings.fifo_expire_sync,
            false => self.settings.fifo_expire_async,
        };
        let expired = queue.list.oldest().filter(|oldest| {
            let arrived = || queue.list.arrived(&self.sorted, cx.requests, *oldest);
            look && *oldest != request && arrived() + expire <= cx.now
        });
        let seek = &self.settings.seek;
        queue.next =
            expired.or_else(|| queue.list.next_request(&self.sorted, cx.requests, request, seek));
        queue.list.remove(&mut self.sorted, cx.requests, request);
        self.queued -= 1;
        self.place(cx, id);
        if self.queues[id].is_empty() && self.in_service != Some(id) {
            // Injection emptied the queue: its service is charged, and it starts again.
            self.become_idle(cx.now, id);
            let entity = self.queues[id].entity;
            self.scheduler.set_budget(cx.now, entity, Sectors::ZERO);
        } else {
            self.follow_next(cx, id);
        }
    }

    pub(super) fn on_complete(&mut self, cx: &mut Context<'_>, request: RequestId) {
        self.holds = false;
        let id = self.owners.queue(request);
        self.sample_complete(cx, id, request);
        self.sample_queueing();
        self.in_driver -= 1;
        self.count_in_drive(id, Sectors::ZERO, cx.requests[request].length);
        let now = cx.now;
        let queue = &mut self.queues[id];
        queue.dispatched -= 1;
        queue.references -= 1;
        queue.last_end = now;
        let last = (!queue.shared).then_some(id);
        if queue.dispatched == 0 && !queue.busy {
            queue.budget_timeout = Some(now);
            self.recount(id);
        }
        if self.rate.on_complete(now) {
            self.follow_rate();
        }
        self.last_completed = last.map(|id| self.queues.weak(id));
        self.raise_on_complete(now, id);
        if self.in_service == Some(id) {
            self.completed_in_service(cx, id);
        } else {
            self.release_if_unused(id);
        }
    }
    fn completed_in_service(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let queue = &self.queues[id];
        let (empty, completed) = (queue.is_empty(), queue.dispatched == 0);
        let idles = empty && self.better_to_idle(id);
        if idles && completed {
            self.start_waiting(cx, id);
        } else if idles && (self.settings.wait_past_timeout || !self.may_time_out(cx.now, id)) {
            // BFQ idles for it once all its requests have completed.
        } else if self.may_time_out(cx.now, id) {
            self.expire(cx, id, Expiry::BudgetTimeout.now());
        } else if empty {
            self.expire(cx, id, Expiry::NoMoreRequests.now());
        }
    }
    fn sample_queueing(&mut self) {
        let (in_driver, queued) = (self.in_driver, self.queued);
        let served = self.in_service.map(|id| &self.queues[id]);
        self.queueing.sample(in_driver, |threshold| {
            let holds_back = served.is_some_and(|queue| {
                queue.habits.short_think
                    && queue.dispatched + (queue.list.len() as u32) < threshold
                    && in_driver < threshold
            });
            (in_driver + queued, holds_back)
        });
    }
}
