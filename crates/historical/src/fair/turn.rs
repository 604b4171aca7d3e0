//! Turns: whose request goes to the drive, how long a queue keeps it, what an empty queue is waited for,
//! and what a turn costs.

use iofair_core::group::{Class, GroupId};
use iofair_core::policy::Context;
use iofair_core::request::{Flags, RequestId};
use iofair_core::time::{Instant, Nanos};

use super::Fair;
use super::leaf::{Leaf, Situation};
use super::queue::QueueId;
use super::settings::Settings;

/// The drive belongs to one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) queue: QueueId,
    began: Instant,
    /// The slice granted.
    slice: Nanos,
    /// When the slice began to run: at the first answer.
    runs_since: Option<Instant>,
    /// Requests sent.
    sent: u32,
    pub(super) wait: Option<Wait>,
    /// It was, or is, waited for although its slice is over, so that its group keeps its place.
    waits_busy: bool,
}

/// An empty queue is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    until: Instant,
    pub(super) of: WaitOf,
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitOf {
    /// The queue's next request.
    Queue,
    /// Any request of the group.
    Group,
}

impl Turn {
    pub(super) fn waits_until(&self) -> Option<Instant> {
        self.wait.map(|wait| wait.until)
    }
    fn used(&self, now: Instant) -> Nanos {
        self.runs_since.map_or(Nanos::ZERO, |since| now.since(since))
    }
    fn is_over(&self, now: Instant) -> bool {
        self.runs_since.is_some() && self.used(now) >= self.slice
    }
    fn left(&self, now: Instant) -> Nanos {
        self.slice.saturating_sub(self.used(now))
    }
    /// What it costs if it ends now: from the first answer on; the way to it counts only if nothing
    /// followed.
    pub(super) fn cost(&self, now: Instant, settings: &Settings) -> Nanos {
        let tick = settings.tick;
        let used = match self.used(now) {
            used if used < tick => now.since(self.began).max(tick),
            used => used,
        };
        if settings.fairness { used } else { used.min(self.slice.max(tick)) }
    }
}

/// What the queue in service does when asked for a request.
enum Step {
    Sends(RequestId),
    Holds,
    Ends(&'static str),
}

impl<L: Leaf> Fair<L> {
    pub(super) fn on_dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.check_wait(cx);
        if self.leaf_wakeup().is_some_and(|at| at <= cx.now) {
            self.holds = false;
        }
        self.asked = cx.now;
        // Asked again though nothing happened: the answer stays, whatever the time.
        if self.holds {
            return None;
        }
        let chosen = self.select(cx);
        self.holds = chosen.is_none();
        chosen
    }
    fn select(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        // Each turn begun sends a request, or its queue holds, or is empty and leaves.
        loop {
            let turn = match self.turn {
                Some(turn) => turn,
                None => self.begin_turn(cx)?,
            };
            match self.step(cx, &turn) {
                Step::Sends(id) => {
                    self.sent(cx, turn.queue, id);
                    return Some(id);
                }
                Step::Holds => return None,
                Step::Ends(rule) => self.expire(cx, rule),
            }
        }
    }
    fn begin_turn(&mut self, cx: &mut Context<'_>) -> Option<Turn> {
        let in_driver = self.in_driver[0] + self.in_driver[1];
        if self.settings.fairness && in_driver > 0 {
            return None;
        }
        let entity = self.service.pick()?;
        let id = self.queue_of[entity.index()];
        let queue = &self.queues[id];
        let slice = self.settings.slices.slice(queue.sync, queue.priority.level);
        let turn = Turn {
            queue: id,
            began: cx.now,
            slice,
            runs_since: None,
            sent: 0,
            wait: None,
            waits_busy: false,
        };
        self.turn = Some(turn);
        self.leaf.begin_turn(cx, &mut self.queues[id].content);
        cx.decide(
            self.subject(id),
            "turn: begins; a slice of {ns}, {} others in the drive",
            [slice.0, u64::from(in_driver)],
        );
        Some(turn)
    }
    fn step(&mut self, cx: &mut Context<'_>, turn: &Turn) -> Step {
        let queue = &self.queues[turn.queue];
        let empty = self.leaf.queued(&queue.content) == 0;
        let answers_come = queue.dispatched > 0;
        if turn.waits_busy {
            return match (empty, turn.wait) {
                (true, Some(_)) => Step::Holds,
                (true, None) => Step::Ends("expire: waited in vain; charged {ns} for {} requests"),
                (false, _) => {
                    Step::Ends("expire: busy again, slice used; charged {ns} for {} requests")
                }
            };
        }
        if self.leaf.anticipates(&queue.content, cx.now) {
            return Step::Holds;
        }
        if turn.is_over(cx.now) {
            // With `fairness` what the drive still does for it is its time too. A group keeps its place until
            // its last answer has come, or its next request, if that was waited for when the slice ended.
            let place = empty && self.keeps_place(turn.queue);
            let holds = match answers_come {
                true => self.settings.fairness || place,
                false => turn.wait.is_some() && place,
            };
            return match holds {
                true => Step::Holds,
                false => Step::Ends("expire: slice used; charged {ns} for {} requests"),
            };
        }
        if !empty {
            let situation = self.situation(cx.now, turn);
            let content = &mut self.queues[turn.queue].content;
            return match self.leaf.dispatch(cx, content, &situation) {
                Some(id) => Step::Sends(id),
                None => Step::Holds,
            };
        }
        let waits = turn.wait.is_some() || (answers_come && self.is_worth_waiting(turn.queue));
        if waits { Step::Holds } else { Step::Ends("expire: empty; charged {ns} for {} requests") }
    }
    fn sent(&mut self, cx: &mut Context<'_>, id: QueueId, request: RequestId) {
        let sync = usize::from(cx.requests[request].is_sync());
        self.in_driver[sync] += 1;
        self.head = cx.requests[request].end();
        let queue = &mut self.queues[id];
        queue.dispatched += 1;
        let idle_class = queue.priority.class == Class::Idle;
        let Some(turn) = &mut self.turn else { return };
        turn.sent += 1;
        let turn = *turn;
        let situation = self.situation(cx.now, &turn);
        let content = &self.queues[id].content;
        let enough = idle_class || self.leaf.has_had_enough(content, &situation);
        if enough && situation.busy_queues > 1 {
            self.expire(cx, "expire: had enough; charged {ns} for {} requests");
        }
    }

    pub(super) fn on_complete(&mut self, cx: &mut Context<'_>, request: RequestId) {
        self.holds = false;
        let id = self.owners[request.0 as usize];
        let sync = usize::from(cx.requests[request].is_sync());
        self.in_driver[sync] -= 1;
        let queue = &mut self.queues[id];
        queue.dispatched -= 1;
        self.leaf.complete(cx, &mut queue.content, request);
        match &mut self.turn {
            Some(turn) if turn.queue == id => {
                turn.runs_since.get_or_insert(cx.now);
                self.answered(cx, request);
            }
            _ => self.end_if_unused(id),
        }
    }
    /// The queue in service got an answer: is it waited for, or is its turn over?
    fn answered(&mut self, cx: &mut Context<'_>, request: RequestId) {
        let Some(turn) = self.turn else { return };
        let no_idle = cx.requests[request].flags.has(Flags::NO_IDLE);
        let queue = &self.queues[turn.queue];
        let empty = self.leaf.queued(&queue.content) == 0;
        if !empty || queue.dispatched > 0 || turn.wait.is_some() {
            return;
        }
        if queue.orphan {
            self.expire(cx, "expire: nobody left; charged {ns} for {} requests");
            return;
        }
        let over = turn.left(cx.now) == Nanos::ZERO;
        if over && self.keeps_place(turn.queue) {
            self.wait(cx, &turn, true);
        } else if over && !self.leaf.anticipates(&queue.content, cx.now) {
            self.expire(cx, "expire: slice used; charged {ns} for {} requests");
        } else if self.is_worth_waiting(turn.queue)
            && (!no_idle || self.group_would_leave(turn.queue))
        {
            self.wait(cx, &turn, false);
        }
    }
    fn wait(&mut self, cx: &mut Context<'_>, turn: &Turn, busy: bool) {
        let queue = &self.queues[turn.queue];
        let mut situation = self.situation(cx.now, turn);
        if busy {
            // It may come late: the slice is over anyway.
            situation.slice_left = Nanos::MAX;
        }
        let (time, of) = match self.leaf.idle(&queue.content, &situation) {
            Some(time) => (time, WaitOf::Queue),
            None if self.group_would_leave(turn.queue) => (self.settings.group_idle, WaitOf::Group),
            None => return,
        };
        if time == Nanos::ZERO {
            return;
        }
        // Once its slice is over it is only kept for its group's sake.
        let of = if busy { WaitOf::Group } else { of };
        let rule = match (busy, of) {
            (true, _) => "wait: busy; {ns} more for its group, {ns} of the slice left",
            (false, WaitOf::Queue) => {
                "wait: queue; {ns} for its next request, {ns} of the slice left"
            }
            (false, WaitOf::Group) => {
                "wait: group; {ns} for its next request, {ns} of the slice left"
            }
        };
        cx.decide(self.subject(turn.queue), rule, [time.0, turn.left(cx.now).0]);
        if let Some(turn) = &mut self.turn {
            turn.wait = Some(Wait { until: cx.now + time, of });
            turn.waits_busy = busy;
        }
    }
    /// The wait is over and nothing came, if its time has passed.
    pub(super) fn check_wait(&mut self, cx: &mut Context<'_>) {
        let wait = self.turn.as_ref().and_then(|turn| turn.wait);
        if wait.is_some_and(|wait| wait.until <= cx.now) {
            self.holds = false;
            self.expire(cx, "expire: waited in vain; charged {ns} for {} requests");
        }
    }
    /// Something came, or came elsewhere in the group: nothing to wait for any more.
    pub(super) fn stop_waiting(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.wait = None;
        }
    }

    /// Would its group leave the tree with it? (The root group is in none.)
    pub(super) fn group_would_leave(&self, id: QueueId) -> bool {
        let queue = &self.queues[id];
        let group = self.groups[queue.group.index()].entity;
        queue.group != GroupId::ROOT && self.service.busy_inside(group) == 1
    }
    /// Its slice is over: is one more idle period owed to its group?
    fn keeps_place(&self, id: QueueId) -> bool {
        self.group_would_leave(id) && self.is_worth_waiting(id)
    }
    fn is_worth_waiting(&self, id: QueueId) -> bool {
        let queue = &self.queues[id];
        let group = self.settings.group_idle > Nanos::ZERO && self.group_would_leave(id);
        queue.sync && (group || self.leaf.has_idle_window(&queue.content))
    }
    fn situation(&self, now: Instant, turn: &Turn) -> Situation {
        Situation {
            head: self.head,
            sync_in_driver: self.in_driver[1],
            async_in_driver: self.in_driver[0],
            dispatched: self.queues[turn.queue].dispatched,
            sent: turn.sent,
            busy_queues: self.busy_queues,
            slice_left: turn.left(now),
        }
    }
    /// When the leaf wants to be asked again. It may not have been heard when that time came, because its
    /// queue holds for another reason: then there is nothing to wait for but that.
    pub(super) fn leaf_wakeup(&self) -> Option<Instant> {
        let turn = self.turn.as_ref()?;
        let wakeup = self.leaf.next_wakeup(&self.queues[turn.queue].content);
        wakeup.filter(|at| *at > self.asked)
    }

    /// The turn ends: it is charged, and the queue waits for the next one, or leaves.
    pub(super) fn expire(&mut self, cx: &mut Context<'_>, rule: &'static str) {
        let Some(turn) = self.turn.take() else { return };
        self.holds = false;
        let cost = turn.cost(cx.now, &self.settings);
        cx.decide(self.subject(turn.queue), rule, [cost.0, u64::from(turn.sent)]);
        let queue = &mut self.queues[turn.queue];
        self.leaf.end_turn(cx, &mut queue.content);
        self.service.charge(queue.entity, cost);
        if self.leaf.queued(&queue.content) == 0 {
            self.service.deactivate(queue.entity);
            self.busy_queues -= 1;
        }
        self.end_if_unused(turn.queue);
    }
}
