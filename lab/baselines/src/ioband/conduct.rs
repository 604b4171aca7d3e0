//! A request's way through: its submitter sleeps, or it goes straight on, or it is blocked until the
//! conductor releases it.

use alloc::collections::VecDeque;

use super::{ASYNC, Context, Fifo, Flags, Ioband, RequestId, Rule, SYNC, TICK, WaitQueue};
use iofair_core::id::ClientId;
use iofair_core::trace::Subject;

/// How the release of a group ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// It has nothing left, may not send more, or there is no room.
    Rest,
    /// Other groups should have a turn.
    Yield,
}

impl Ioband {
    fn class(cx: &Context<'_>, id: RequestId) -> usize {
        if cx.requests[id].is_sync() { SYNC } else { ASYNC }
    }
    fn is_urgent(&self, cx: &Context<'_>, id: RequestId) -> bool {
        self.metadata_urgent && cx.requests[id].flags.has(Flags::METADATA)
    }
    fn cost(&self, cx: &Context<'_>, id: RequestId) -> i64 {
        let request = &cx.requests[id];
        // A flush has no sectors, but it is not free.
        match self.by_sectors {
            _ if request.is_cancelled() => 0,
            true => request.length.0.max(1) as i64,
            false => 1,
        }
    }
    fn has_room(&self, class: usize) -> bool {
        self.issued[class] < self.io_limit
    }
    fn total(of: [i64; 2]) -> i64 {
        of[ASYNC] + of[SYNC]
    }

    /// Sends the requests of a client that is awake, until it falls asleep.
    pub(super) fn go_on(&mut self, cx: &mut Context<'_>, client: ClientId) {
        while let Some(id) = self.clients[client.index()].front() {
            if let Some(queue) = self.must_sleep(cx, id) {
                self.asleep += 1;
                match queue {
                    WaitQueue::Device(class) => self.waiters[class].push_back(client),
                    WaitQueue::Group(group) => self.queues[group].waiters.push_back(client),
                }
                let sequence = cx.requests[id].sequence;
                let blocked = Self::total(self.blocked) as u64;
                let subject = Subject::Request { id, sequence };
                cx.decide(
                    subject,
                    "its submitter sleeps: {} requests blocked, {} asleep",
                    [blocked, self.asleep],
                );
                return;
            }
            self.clients[client.index()].pop_front(cx.requests);
            self.arrive(cx, id);
        }
    }
    fn must_sleep(&mut self, cx: &Context<'_>, id: RequestId) -> Option<WaitQueue> {
        let (group, class) = (cx.requests[id].group.index(), Self::class(cx, id));
        if class == ASYNC || self.is_urgent(cx, id) {
            self.full[class] |= self.blocked[class] >= self.io_limit;
            return self.full[class].then_some(WaitQueue::Device(class));
        }
        if !self.queues[group].full {
            if let Rule::Range(range) = &mut self.rule
                && range.is_shut(cx.now, group)
            {
                return Some(WaitQueue::Group(group));
            }
            self.queues[group].full = self.queues[group].blocked[SYNC] >= self.rule.limit(group);
        }
        self.queues[group].full.then_some(WaitQueue::Group(group))
    }

    /// Handles a request of a client that is awake: it passes, or is blocked.
    fn arrive(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let (group, class) = (cx.requests[id].group.index(), Self::class(cx, id));
        let blocked = self.queues[group].blocked;
        if blocked[class] == 0 && self.has_room(class) {
            if self.rule.may_submit(cx.now, group, blocked != [0; 2]) {
                self.issue(cx, class, id);
                self.rule.place(group, self.queues[group].blocked());
                return;
            }
            if self.blocked == [0; 2] && self.issued == [0; 2] {
                let at = cx.now + TICK;
                self.conduct_at = Some(self.conduct_at.map_or(at, |before| before.min(at)));
            }
        }
        self.block(cx, group, class, id);
    }
    fn block(&mut self, cx: &mut Context<'_>, group: usize, class: usize, id: RequestId) {
        self.blocked[class] += 1;
        if self.is_urgent(cx, id) {
            let cost = self.cost(cx, id);
            self.rule.charge(cx.now, group, cost, true);
            self.urgent.push_back(cx.requests, id);
        } else {
            let queue = &mut self.queues[group];
            queue.blocked[class] += 1;
            queue.waiting.push_back(cx.requests, id);
        }
        self.rule.place(group, self.queues[group].blocked());
        let sequence = cx.requests[id].sequence;
        let [blocked, issued] = [self.blocked, self.issued].map(|of| Self::total(of) as u64);
        let subject = Subject::Request { id, sequence };
        cx.decide(
            subject,
            "blocked: no tokens, no room, or others before it; {} blocked, {} below",
            [blocked, issued],
        );
    }
    /// Charges a request and passes it on. Returns whether other groups should have a turn now.
    fn issue(&mut self, cx: &mut Context<'_>, class: usize, id: RequestId) -> bool {
        let (group, cost) = (cx.requests[id].group.index(), self.cost(cx, id));
        self.send(cx, class, id);
        self.rule.charge(cx.now, group, cost, false)
    }
    fn send(&mut self, cx: &mut Context<'_>, class: usize, id: RequestId) {
        let slot = id.0 as usize;
        if self.charged.len() <= slot {
            self.charged.resize(slot + 1, 0);
        }
        self.charged[slot] = class as u8 + 1;
        self.issued[class] += 1;
        self.out.push_back(cx.requests, id);
    }

    /// Releases blocked requests.
    pub(super) fn conduct(&mut self, cx: &mut Context<'_>) {
        loop {
            self.conduct_at = None;
            let before = self.out.len();
            self.release_urgent(cx);
            let room = [self.has_room(ASYNC), self.has_room(SYNC)];
            let best = self.rule.best(room);
            let mut again = best.is_some_and(|group| self.release(cx, group) == Ended::Yield);
            for class in [ASYNC, SYNC] {
                if self.full[class] && self.blocked[class] < self.io_limit {
                    self.full[class] = false;
                    self.woken.push_back(WaitQueue::Device(class));
                }
            }
            let none = self.out.len() == before && self.blocked != [0; 2];
            if none && self.has_room(ASYNC) && self.has_room(SYNC) {
                again |= self.rule.restart(Self::total(self.issued));
            }
            if !again {
                break;
            }
        }
        self.wake(cx);
    }
    fn release_urgent(&mut self, cx: &mut Context<'_>) {
        // The original checks only the room for asynchronous requests.
        while self.has_room(ASYNC) {
            let Some(id) = self.urgent.pop_front(cx.requests) else { return };
            let class = Self::class(cx, id);
            self.blocked[class] -= 1;
            self.send(cx, class, id);
        }
    }
    fn release(&mut self, cx: &mut Context<'_>, group: usize) -> Ended {
        let ended = self.release_queue(cx, group);
        self.rule.place(group, self.queues[group].blocked());
        ended
    }
    fn release_queue(&mut self, cx: &mut Context<'_>, group: usize) -> Ended {
        while !self.queues[group].parked.is_empty() {
            if !self.rule.may_submit(cx.now, group, true) {
                return Ended::Rest;
            }
            let class = self.queues[group].parked_class;
            if !self.has_room(class) {
                break;
            }
            let id = Self::pop(&mut self.queues[group].parked, cx);
            if self.release_one(cx, group, class, id) {
                return Ended::Yield;
            }
        }
        while !self.queues[group].waiting.is_empty() {
            let some_room = self.has_room(ASYNC) || self.has_room(SYNC);
            if !some_room || !self.rule.may_submit(cx.now, group, true) {
                return Ended::Rest;
            }
            let id = Self::pop(&mut self.queues[group].waiting, cx);
            let class = Self::class(cx, id);
            if !self.has_room(class) {
                let queue = &mut self.queues[group];
                queue.parked_class = class;
                queue.parked.push_back(cx.requests, id);
                continue;
            }
            if self.release_one(cx, group, class, id) {
                return Ended::Yield;
            }
        }
        Ended::Rest
    }
    fn pop(queue: &mut Fifo, cx: &mut Context<'_>) -> RequestId {
        queue.pop_front(cx.requests).expect("the caller saw that it is not empty")
    }
    fn release_one(
        &mut self,
        cx: &mut Context<'_>,
        group: usize,
        class: usize,
        id: RequestId,
    ) -> bool {
        self.blocked[class] -= 1;
        let queue = &mut self.queues[group];
        queue.blocked[class] -= 1;
        if queue.blocked[SYNC] == 0 && core::mem::take(&mut queue.full) {
            self.woken.push_back(WaitQueue::Group(group));
        }
        self.issue(cx, class, id)
    }

    /// Wakes clients that sleep because of a maximum that is counted anew.
    pub(super) fn look_at_timers(&mut self, cx: &mut Context<'_>) {
        if let Rule::Range(range) = &mut self.rule {
            while let Some(group) = range.pop_timer(cx.now) {
                self.woken.push_back(WaitQueue::Group(group));
            }
        }
        self.wake(cx);
    }
    /// Lets sleeping clients check again whether they may send.
    pub(super) fn wake(&mut self, cx: &mut Context<'_>) {
        loop {
            if let Rule::Range(range) = &mut self.rule
                && range.take_renewed()
            {
                let sleeps = |group: &usize| !self.queues[*group].waiters.is_empty();
                self.woken.extend((0..self.queues.len()).filter(sleeps).map(WaitQueue::Group));
            }
            let Some(queue) = self.woken.pop_front() else { return };
            for _ in 0..self.waiters_at(queue).len() {
                let client = self.waiters_at(queue).pop_front();
                self.asleep -= 1;
                self.go_on(cx, client.expect("counted just now"));
            }
        }
    }
    fn waiters_at(&mut self, queue: WaitQueue) -> &mut VecDeque<ClientId> {
        match queue {
            WaitQueue::Device(class) => &mut self.waiters[class],
            WaitQueue::Group(group) => &mut self.queues[group].waiters,
        }
    }
}
