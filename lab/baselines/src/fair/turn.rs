//! Turns: whose request goes to the drive, how long a queue keeps it, what an empty queue is waited for,
//! and what a turn costs.

use iofair_core::id::{GroupId, RequestId};
use iofair_core::policy::Context;
use iofair_core::priority::Class;
use iofair_core::request::Flags;
use iofair_core::time::{Instant, Nanos};

use super::Fair;
use super::leaf::{Leaf, Situation};
use super::queue::QueueId;
use super::settings::Settings;

/// The turn of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) queue: QueueId,
    began: Instant,
    /// The length of the slice.
    slice: Nanos,
    /// When the slice began: at the first completion.
    runs_since: Option<Instant>,
    /// Requests dispatched.
    sent: u32,
    pub(super) wait: Option<Wait>,
    /// Whether the layer idles (or has idled) for it although its slice is over, so that its group keeps its place.
    waits_busy: bool,
}

/// Idling for an empty queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    until: Instant,
    pub(super) of: WaitOf,
}

/// What ends idling.
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
    /// The cost if the turn ends now: from the first completion on. The time before that only counts if nothing
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

/// The state of the queue in service when a request is needed.
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
        // A repeated call without an event gives the same result at any time.
        if self.holds {
            return None;
        }
        let chosen = self.select(cx);
        self.holds = chosen.is_none();
        chosen
    }
    fn select(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        // Each turn that begins dispatches a request, or its queue holds its requests, or is empty and leaves.
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
        let completions_come = queue.dispatched > 0;
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
            // With `fairness`, the time until the drive has completed its requests also counts. A group keeps its
            // place until its last completion, or until its next request if the layer idled for that when the slice
            // ended.
            let place = empty && self.keeps_place(turn.queue);
            let holds = match completions_come {
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
        let waits = turn.wait.is_some() || (completions_come && self.is_worth_waiting(turn.queue));
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
        let id = self.owners.queue(request);
        let sync = usize::from(cx.requests[request].is_sync());
        self.in_driver[sync] -= 1;
        let queue = &mut self.queues[id];
        queue.dispatched -= 1;
        self.leaf.complete(cx, &mut queue.content, request);
        match &mut self.turn {
            Some(turn) if turn.queue == id => {
                turn.runs_since.get_or_insert(cx.now);
                self.completed(cx, request);
            }
            _ => self.end_if_unused(id),
        }
    }
    /// Handles a completion for the queue in service: idles for it, or ends its turn.
    fn completed(&mut self, cx: &mut Context<'_>, request: RequestId) {
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
            // It may be late: the slice is over anyway.
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
        // After its slice, it is only kept for its group.
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
    /// Ends idling if its time has passed without a request.
    pub(super) fn check_wait(&mut self, cx: &mut Context<'_>) {
        let wait = self.turn.as_ref().and_then(|turn| turn.wait);
        if wait.is_some_and(|wait| wait.until <= cx.now) {
            self.holds = false;
            self.expire(cx, "expire: waited in vain; charged {ns} for {} requests");
        }
    }
    /// Ends idling because a request arrived, in the queue or elsewhere in the group.
    pub(super) fn stop_waiting(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.wait = None;
        }
    }

    /// Whether its group would leave the tree with it. (The root group is in no tree.)
    pub(super) fn group_would_leave(&self, id: QueueId) -> bool {
        let queue = &self.queues[id];
        let group = self.groups[queue.group.index()].entity;
        queue.group != GroupId::ROOT && self.service.busy_inside(group) == 1
    }
    /// Whether its group is entitled to one more idle period after the slice.
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
    /// When the leaf scheduler must be called again. If that time came while its queue held its requests for another
    /// reason, only that reason counts.
    pub(super) fn leaf_wakeup(&self) -> Option<Instant> {
        let turn = self.turn.as_ref()?;
        let wakeup = self.leaf.next_wakeup(&self.queues[turn.queue].content);
        wakeup.filter(|at| *at > self.asked)
    }

    /// Ends the turn: charges it, and the queue waits for the next turn or leaves.
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
