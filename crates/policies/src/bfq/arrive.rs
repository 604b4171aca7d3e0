//! The arrival of a request: which queue it enters, what it shows about its client, and whether it preempts.

use crate::parts::sorted_fifo::{Entry, MergeRules, choose};
use crate::parts::wf2q::EntityId;
use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::request::Requests;
use iofair_core::time::Nanos;

use super::Bfq;
use super::budget::Expiry;
use super::queue::QueueId;
use super::raise::IDLE_MIN;
use super::settings::Injection;

impl Bfq {
    pub(super) fn on_submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.check_wait(cx);
        self.holds = false;
        let queue = self.queue_for(cx, id);
        let queue = match self.comes_from_worker(cx.requests, id) {
            true => queue,
            false => self.cooperate(cx, queue, id),
        };
        self.observe_arrival(cx, queue, id);
        self.add(cx, queue, id);
        if self.in_service == Some(queue) && self.queues[queue].waiting {
            // The kernel goes on idling if the request is small and idling increases throughput, so that more
            // requests can be merged with it. Its requests come in plugs that end soon, so that wait is short. Ours
            // come one by one.
            let timed_out = self.budget_timed_out(cx.now, queue);
            self.stop_waiting(queue);
            if timed_out {
                self.expire(cx, queue, Expiry::BudgetTimeout.now());
            }
        }
    }

    /// Records think time and position of a request, before it enters its queue.
    fn observe_arrival(&mut self, cx: &mut Context<'_>, id: QueueId, request: RequestId) {
        let (now, idle) = (cx.now, self.settings.slice_idle);
        let (start, length) = (cx.requests[request].start, cx.requests[request].length);
        let queue = &mut self.queues[id];
        let early = self.settings.early_habits;
        let rested = queue.is_quiet() && (self.settings.think_in_waits || !queue.busy);
        if queue.sync && (early || rested) {
            let most = idle * 2;
            let thought = now.since(queue.last_end).min(most);
            let is_first = queue.just_created && !self.settings.think_in_waits;
            queue.habits.think.add(if is_first { most } else { thought });
        }
        let settled = queue.split_at.is_none_or(|at| at + IDLE_MIN < now);
        let watched = queue.sync && queue.priority.class != iofair_core::priority::Class::Idle;
        if watched && idle > Nanos::ZERO && settled {
            let most = if early { idle } else { idle / 2 };
            let long = queue.habits.think.mean().is_some_and(|mean| mean > most);
            let was = core::mem::replace(&mut queue.habits.short_think, !long);
            if was == long {
                self.relearn_on_change(now, id);
            }
        }
        let rotational = self.rotational;
        self.queues[id].habits.note_position(rotational, start, length);
        self.drop_seeky_soft(cx, id);
    }

    fn add(&mut self, cx: &mut Context<'_>, id: QueueId, request: RequestId) {
        let now = cx.now;
        let queue = &mut self.queues[id];
        let was_raised = queue.raise.is_raised();
        let idle_since = queue.is_quiet().then_some(queue.last_end);
        if !self.settings.early_habits {
            queue.habits.note_intensity(now, idle_since, queue.just_created);
        }
        if queue.sync && queue.is_empty() {
            if self.settings.wakers {
                self.check_waker(cx, id);
            }
            if self.settings.injection == Injection::Learned {
                self.sample_arrival(now, id);
            }
        }
        let entry = Entry { id: request, arrived: now };
        let queue = &mut self.queues[id];
        queue.list.insert(&mut self.sorted, cx.requests, entry);
        queue.references += 1;
        self.queued += 1;
        self.owners.set(request, id);
        let changed = self.prefer(cx.requests, id, request);
        if changed {
            self.place(cx, id);
        }
        let interactive = if !self.queues[id].busy {
            self.wake(cx, id)
        } else {
            if self.settings.low_latency && !was_raised {
                self.raise_async(cx, id);
            }
            if changed {
                self.follow_next(cx, id);
            }
            false
        };
        let raise = &mut self.queues[id].raise;
        if self.settings.low_latency && (!was_raised || !raise.is_raised() || interactive) {
            raise.since = now;
        }
    }
    /// Makes a queued request the next one if it is better placed. Returns whether the next request changed.
    fn prefer(&mut self, requests: &Requests, id: QueueId, request: RequestId) -> bool {
        let queue = &mut self.queues[id];
        let best = match queue.next {
            Some(next) if next != request => {
                let position = self.rate.last_position();
                choose(requests, next, request, position, &self.settings.seek)
            }
            _ => request,
        };
        queue.next.replace(best) != Some(best)
    }

    /// Handles a request for a queue that was empty. Returns whether the queue was found interactive.
    fn wake(&mut self, cx: &mut Context<'_>, id: QueueId) -> bool {
        let arrived = self.judge_arrival(cx.now, id);
        let deserves = self.grant_budget(cx, id, arrived.deserves);
        if self.settings.early_habits {
            let in_time = self.is_in_time(cx.now, id);
            self.queues[id].habits.note_in_time(in_time);
        }
        self.raise_on_arrival(cx, id, arrived);
        self.become_busy(cx.now, id);
        if let Some(served) = self.in_service
            && self.preempts(id, served, deserves)
            && self.scheduler.next_may_preempt()
        {
            self.expire(cx, served, Expiry::Preempted.now());
        }
        arrived.interactive
    }
    fn preempts(&self, id: QueueId, served: QueueId, deserves: bool) -> bool {
        let (queue, other) = (&self.queues[id], &self.queues[served]);
        let least = other.raise.coefficient() + u32::from(!self.settings.preempt_equal);
        if deserves && queue.raise.coefficient() >= least {
            return true;
        }
        let unwaited = self.settings.preempt_unwaited && !self.better_to_idle(served);
        unwaited || (self.settings.preempt_lower && self.is_above(id, served))
    }
    /// Of higher class, or of higher weight, even in a lower class; if their groups differ, the groups'
    /// weights count, and of queues in the root their own.
    fn is_above(&self, id: QueueId, other: QueueId) -> bool {
        let (a, b) = (&self.queues[id], &self.queues[other]);
        if a.priority.class < b.priority.class {
            return true;
        }
        let (above_a, above_b) = (self.scheduler.parent(a.entity), self.scheduler.parent(b.entity));
        if above_a == above_b {
            return self.scheduler.weight(a.entity) > self.scheduler.weight(b.entity);
        }
        let weight = |queue, above| match above {
            EntityId::ROOT => self.scheduler.weight(queue),
            group => self.scheduler.weight(group),
        };
        weight(a.entity, above_a) > weight(b.entity, above_b)
    }

    /// Merges an incoming request into one that its client's queue holds.
    pub(super) fn on_try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let Some(queue_id) = self.existing_queue_for(cx, id) else { return false };
        let rules = MergeRules { front: true, max: cx.facts.max_request };
        let queue = &mut self.queues[queue_id];
        let merged = queue.list.try_merge(&mut self.sorted, cx.requests, id, rules);
        let Some(merged) = merged else { return false };
        self.holds = false;
        if let Some(absorbed) = merged.absorbed {
            queue.references -= 1;
            self.queued -= 1;
            if queue.next == Some(absorbed) {
                queue.next = Some(merged.into);
            }
        }
        self.prefer(cx.requests, queue_id, merged.into);
        // Even with the same next request its position or its cost may be another now.
        self.place(cx, queue_id);
        self.follow_next(cx, queue_id);
        true
    }

    /// How many of `tags` leave room for this class (Linux 4.18's and 5.14's table).
    pub(super) fn tags_for(&self, class: iofair_core::policy::TagClass, tags: u32) -> u32 {
        use iofair_core::policy::TagClass;
        let sixteenths = match (class, self.raised_for_tags) {
            (TagClass::SyncRead, _) => return tags,
            (TagClass::SyncWrite, false) => 12,
            (TagClass::SyncWrite, true) => 6,
            (TagClass::Async, false) => 8,
            (TagClass::Async, true) => 3,
        };
        ((u64::from(tags) * sixteenths / 16) as u32).max(1)
    }
}
