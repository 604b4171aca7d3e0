//! Injection: while BFQ idles for an empty queue, it serves other queues, as much as the empty one tolerates. And
//! wakers: queues whose completions cause requests of other queues.
//!
//! The tolerated amount is learned for each queue: the time from arrival to completion of a request for which BFQ
//! idled is compared with the time that it takes alone. With `inject_coefficient` nothing is learned, and the load of
//! the drive does not matter: the service that a queue received in its slot determines how much others may get.
//!
//! ```text
//! learned          requests in the drive < limit of the queue
//! by service       sectors injected in the slot * coefficient < sectors received * 10
//! ```

use crate::parts::seeks::LARGE_ON_FLASH;
use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};

use super::Bfq;
use super::queue::QueueId;
use super::settings::Injection;

/// Time without learning after the limit was lowered.
const LEARN_AFTER: Nanos = Nanos::from_millis(10);
const LEARN_AFTER_EARLY: Nanos = Nanos::from_millis(100);
/// Interval after which everything is learned again.
const RELEARN_AFTER: Nanos = Nanos::from_secs(1);
/// Shortest time after which a change of the client's behaviour starts learning again.
const RELEARN_ON_CHANGE: Nanos = Nanos::from_millis(100);
/// An arrival within this time after another queue's completion may be caused by it.
const WAKE_WITHIN: Nanos = Nanos::from_millis(4);
/// Number of such arrivals in a row that make a waker.
const WAKES: u8 = 3;
/// Number of queues searched for one to inject from. The kernel searches all. The first one is nearly always
/// suitable, and the limit keeps the cost of a request independent of the number of queues.
const SEARCH_MAX: usize = 32;

/// The request whose time is measured.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sample {
    arrived: Instant,
    /// The request is the next one that the queue in service sends.
    expected: bool,
    request: Option<RequestId>,
    /// Whether another request was injected meanwhile.
    injected: bool,
}

impl Bfq {
    /// Forgets what was learned about a queue, so that it is learned again.
    pub(super) fn relearn_injection(&mut self, now: Instant, id: QueueId) {
        let habits = &mut self.queues[id].habits;
        habits.alone_time = Nanos::ZERO;
        habits.inject_limit = u32::from(!habits.short_think);
        habits.limit_lowered = now;
        self.sample.request = None;
    }
    pub(super) fn relearn_on_change(&mut self, now: Instant, id: QueueId) {
        let habits = &self.queues[id].habits;
        let settled = habits.limit_lowered + RELEARN_ON_CHANGE <= now || !habits.short_think;
        if habits.alone_time == Nanos::ZERO && settled {
            self.relearn_injection(now, id);
        }
    }
    /// Stops measuring at the end of a slot.
    pub(super) fn stop_sampling(&mut self) {
        self.sample = Sample::default();
    }
    /// Starts measuring when a request arrives at an empty synchronous queue, if it is suitable.
    pub(super) fn sample_arrival(&mut self, now: Instant, id: QueueId) {
        if self.queues[id].habits.limit_lowered + RELEARN_AFTER <= now {
            self.relearn_injection(now, id);
        }
        let habits = &self.queues[id].habits;
        let calm = self.in_driver == 0;
        let known = habits.alone_time > Nanos::ZERO && self.sample.injected && !calm;
        let early = self.settings.early_learning;
        let due = habits.limit_lowered + if early { LEARN_AFTER_EARLY } else { LEARN_AFTER } <= now;
        if self.in_service == Some(id) && (calm || known) && due {
            self.sample.arrived = now;
            self.sample.expected = true;
            self.sample.injected &= !calm && !early;
        }
    }
    /// Notes that the queue in service dispatches a request.
    pub(super) fn sample_dispatch(&mut self, request: RequestId) {
        if core::mem::take(&mut self.sample.expected) {
            self.sample.request = Some(request);
        }
    }
    /// Learns from a completion. The request still counts among those in the drive.
    pub(super) fn sample_complete(&mut self, cx: &mut Context<'_>, id: QueueId, of: RequestId) {
        if self.sample.request != Some(of) {
            return;
        }
        let took = cx.now.since(self.sample.arrived);
        let (injected, alone) = (self.sample.injected, self.in_driver == 1);
        let early = self.settings.early_learning;
        let most = if early { self.queueing.peak * 2 } else { self.queueing.peak + 1 };
        let habits = &mut self.queues[id].habits;
        let before = habits.inject_limit;
        if habits.alone_time > Nanos::ZERO && (injected || early) {
            let threshold = habits.alone_time * 3 / 2;
            if took >= threshold && before > 0 {
                habits.inject_limit -= 1;
                habits.limit_lowered = cx.now;
            } else if took < threshold && before < most {
                habits.inject_limit += 1;
            }
        }
        let unknown = habits.alone_time == Nanos::ZERO;
        if (unknown && alone) || took < habits.alone_time {
            if unknown || early {
                habits.inject_limit = before.max(1);
            }
            habits.alone_time = took;
        } else if !injected && alone {
            habits.alone_time = took;
        }
        let limit = habits.inject_limit;
        self.sample.request = None;
        self.sample.injected &= early;
        if limit != before {
            cx.decide(
                self.subject(id),
                "inject: limit; {} at once, its request took {ns}",
                [u64::from(limit), took.0],
            );
        }
    }

    /// The queue from which to inject while BFQ idles for the queue in service.
    pub(super) fn choose_injected(&mut self, cx: &mut Context<'_>, id: QueueId) -> Option<QueueId> {
        match self.settings.injection {
            Injection::Never => return None,
            Injection::ByService(coefficient) => {
                return self.inject_by_service(cx, id, coefficient);
            }
            Injection::Learned => (),
        }
        let queue = &self.queues[id];
        let can = |other: &QueueId| self.queues[*other].busy && self.next_fits(cx, *other);
        let own = self.own_async(cx, id).filter(can);
        let waker = || queue.waker.filter(can);
        let woken = || queue.woken_first.filter(can);
        let (chosen, rule) = if let Some(own) = own {
            (own, "inject: own writes; {} in the drive")
        } else if let Some(waker) = waker() {
            (waker, "inject: waker; {} in the drive")
        } else if let Some(woken) = woken() {
            (woken, "inject: woken; {} in the drive")
        } else {
            let free =
                !queue.raise.is_raised() || self.raised_busy > 1 || !queue.habits.short_think;
            let free = free && !self.idling_boosts_throughput(id);
            let found = if free { self.search_injected(cx, id) } else { None };
            (found?, "inject: another; {} in the drive")
        };
        cx.decide(self.subject(chosen), rule, [u64::from(self.in_driver), 0]);
        Some(chosen)
    }
    /// The rule of 4.20: the queue that became active last and has budget for its next request, as long as the queue
    /// for which BFQ idles has had its part. That queue must be one with slow random requests.
    fn inject_by_service(
        &self,
        cx: &mut Context<'_>,
        id: QueueId,
        coefficient: u64,
    ) -> Option<QueueId> {
        let queue = &self.queues[id];
        let injectable =
            queue.habits.seeky() && !queue.raise.is_raised() && self.is_queueing_flash();
        let received = self.scheduler.service(queue.entity);
        if !injectable || self.injected.0 * coefficient >= received.0 * 10 {
            return None;
        }
        let chosen = self.active().find(|other| self.next_fits(cx, *other))?;
        cx.decide(
            self.subject(chosen),
            "inject: by service; {} sectors injected, {} its own",
            [self.injected.0, received.0],
        );
        Some(chosen)
    }
    /// Active queues that are not in service, newest first, as many as a search examines.
    fn active(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.active_from(None)
    }
    /// The same, starting with those older than this one.
    fn active_from(&self, last: Option<QueueId>) -> impl Iterator<Item = QueueId> + '_ {
        let older = |id: &QueueId| self.queues[*id].older;
        let from = |first| core::iter::successors(first, older);
        let first = last.and_then(|last| older(&last));
        from(first).chain(from(self.queues.newest())).take(SEARCH_MAX)
    }
    /// The asynchronous queue of a queue's client, if a write of the client is next there.
    fn own_async(&self, cx: &Context<'_>, id: QueueId) -> Option<QueueId> {
        let client = self.queues[id].client?;
        let weak = self.clients.get(client.index())?.writes?;
        let queue = self.queues.alive(weak)?;
        let next = self.queues[queue].next?;
        (cx.requests[next].client == client).then_some(queue)
    }
    fn search_injected(&mut self, cx: &Context<'_>, id: QueueId) -> Option<QueueId> {
        let queue = &self.queues[id];
        let always = !queue.raise.is_raised() || !queue.habits.short_think;
        // Linux is meant to inject one request after `slice_idle` if nothing has been learned, but adds its
        // nanoseconds to ticks, which makes hours.
        let limit = queue.habits.inject_limit;
        let deep = queue.dispatched > 1 && self.is_queueing_flash();
        let by_weight = self.settings.inject_by_weight && deep;
        if self.in_driver >= limit && !by_weight {
            return None;
        }
        // By weight, queues alternate: the queue from which a request was injected last usually has its part already.
        let last = self.last_injected.filter(|_| by_weight);
        let last = last.and_then(|weak| self.queues.alive(weak));
        let found = self.active_from(last).find(|other| {
            let candidate = &self.queues[*other];
            let allowed = always || candidate.raise.is_raised();
            let large = |next| !self.rotational && cx.requests[next].length >= LARGE_ON_FLASH;
            let limit = if candidate.next.is_some_and(large) { limit.min(1) } else { limit };
            let unnoticed = self.in_driver < limit;
            let may = unnoticed || (by_weight && self.within_share(cx, id, *other));
            allowed && may && self.next_fits(cx, *other)
        });
        self.sample.injected |= found.is_some();
        self.last_injected = found.map(|found| self.queues.weak(found)).or(self.last_injected);
        found
    }

    /// Checks whether another queue's completion caused this request for an empty queue.
    pub(super) fn check_waker(&mut self, cx: &mut Context<'_>, id: QueueId) {
        let Some(last) = self.last_completed.and_then(|weak| self.queues.alive(weak)) else {
            return;
        };
        let queue = &self.queues[id];
        let late = cx.now.since(self.rate.last_completion()) >= WAKE_WITHIN;
        let known = last == id || queue.waker == Some(last);
        if late || known || queue.habits.short_think || queue.dispatched > 0 {
            return;
        }
        let suspect = Some(self.queues.weak(last));
        let queue = &mut self.queues[id];
        let longest = self.settings.waker_within;
        let in_time = longest == Nanos::ZERO || cx.now <= queue.waker_suspected + longest;
        if queue.suspected_waker == suspect && in_time {
            queue.waker_detections += 1;
        } else {
            (queue.suspected_waker, queue.waker_detections) = (suspect, 1);
            queue.waker_suspected = cx.now;
        }
        if queue.waker_detections == WAKES {
            self.forget_waker(id);
            let queue = &mut self.queues[id];
            queue.suspected_waker = None;
            self.link_waker(id, last);
            cx.decide(self.subject(id), "waker: found", [u64::from(last.0), 0]);
        }
    }
    fn link_waker(&mut self, id: QueueId, waker: QueueId) {
        let first = self.queues[waker].woken_first.replace(id);
        let queue = &mut self.queues[id];
        (queue.waker, queue.woken_next, queue.woken_previous) = (Some(waker), first, None);
        if let Some(first) = first {
            self.queues[first].woken_previous = Some(id);
        }
    }
    fn forget_waker(&mut self, id: QueueId) {
        let queue = &mut self.queues[id];
        let Some(waker) = queue.waker.take() else { return };
        let (next, previous) = (queue.woken_next.take(), queue.woken_previous.take());
        match previous {
            Some(previous) => self.queues[previous].woken_next = next,
            None => self.queues[waker].woken_first = next,
        }
        if let Some(next) = next {
            self.queues[next].woken_previous = previous;
        }
    }
    /// Removes a queue that is deleted from all waker relations.
    pub(super) fn forget_wakers(&mut self, id: QueueId) {
        self.forget_waker(id);
        while let Some(woken) = self.queues[id].woken_first {
            self.forget_waker(woken);
        }
    }
}
