//! The path of a request: activation, its cost for the group, and waiting for budget.

use super::IoCost;
use super::account::{Account, Due};
use super::first::SLACK_FIRST;
use super::model::{nanos, scale, scale_up};
use super::vrate::Now;
use crate::parts::shares::{Share, WHOLE, own_node};
use iofair_core::id::RequestId;
use iofair_core::policy::Context;
use iofair_core::request::Flags;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;

/// A group that takes back what it lent does so in steps of this percentage of its weight (`INUSE_ADJ_STEP_PCT`).
const STEP_PERCENT: u64 = 25;
/// Timers are late, so that waiting requests go in batches: by this many hundredths of a percent of a period
/// (`TIMER_SLACK_PCT`) if another timer expires after that, and at most by twice as much.
const SLACK_PERCENT: u64 = 100;
/// No request costs more than this (two years of device time).
const COST_MAX: u64 = 1 << 62;

/// What device time costs a group with this share.
pub(super) fn cost_at(device_time: u64, share: u64) -> u64 {
    u64::try_from(scale_up(device_time, WHOLE, share)).unwrap_or(COST_MAX).min(COST_MAX)
}
/// The device time that a group with this share gets for an amount of its own time.
pub(super) fn device_time_at(cost: u64, share: u64) -> u64 {
    scale(cost, share, WHOLE) as u64
}

impl IoCost {
    pub(super) fn share(&mut self, group: usize) -> Share {
        let account = &mut self.accounts[group];
        if account.share_of != self.weights.generation() {
            account.share = self.weights.share(own_node(group));
            account.share_of = self.weights.generation();
        }
        account.share
    }
    /// Sets a group's weights. `saves`: records how far it is behind the clock.
    pub(super) fn set_weights(
        &mut self,
        group: usize,
        active: u64,
        inuse: u64,
        saves: Option<Now>,
    ) {
        let node = own_node(group);
        let account = &mut self.accounts[group];
        account.last_inuse = self.weights.node(node).inuse;
        account.lends = inuse.max(1) < active;
        if let Some(now) = saves {
            account.saved_margin = now.v.since(account.vtime);
        }
        self.weights.propagate(node, active, inuse);
    }
    /// The group gives nothing away any more.
    pub(super) fn take_all_back(&mut self, group: usize, now: Now) {
        let account = &mut self.accounts[group];
        if account.lends || account.last_inuse == 0 {
            let active = self.weights.node(own_node(group)).active;
            self.set_weights(group, active, active, Some(now));
        } else {
            account.saved_margin = now.v.since(account.vtime);
        }
    }

    /// A request of a group that may not have sent any for a while. An inactive group starts with the
    /// budget that it may save up, however long it was away.
    pub(super) fn activate(&mut self, group: usize, now: Now) {
        let period = self.periods;
        let account = &mut self.accounts[group];
        account.sent_in = period;
        if account.is_active() {
            return;
        }
        let start = now.v.plus(-self.clock.margins.target);
        let behind = start.since(account.vtime);
        if behind > 0 || !self.settings.first {
            account.skip(behind);
        }
        account.seen = account.vtime;
        account.active = Some(self.active.len() as u32);
        account.active_since = now.at;
        let last = account.last_inuse;
        self.active.push(group as u32);
        let weight = self.weights.node(own_node(group)).weight;
        let inuse = if last == 0 { weight } else { last };
        self.set_weights(group, weight, inuse, Some(now));
        if self.active.len() == 1 && self.period_end.is_none() {
            self.start_first_period(now);
        }
    }
    pub(super) fn deactivate(&mut self, group: usize) {
        let Some(at) = self.accounts[group].active.take() else { return };
        self.set_weights(group, 0, 0, None);
        self.active.swap_remove(at as usize);
        if let Some(moved) = self.active.get(at as usize) {
            self.accounts[*moved as usize].active = Some(at);
        }
    }

    /// The cost of a request for the group. A group that lent part of its share and now runs low takes back what it
    /// needs at once.
    pub(super) fn cost(&mut self, group: usize, now: Now, device_time: u64) -> u64 {
        if self.settings.first {
            return self.cost_first(group, now, device_time);
        }
        let mut cost = cost_at(device_time, self.share(group).inuse);
        let Account { vtime, saved_margin, debt, .. } = self.accounts[group];
        let margin = now.v.since(vtime) - cost as i64;
        let own = *self.weights.node(own_node(group));
        let enough = margin >= saved_margin || margin >= self.clock.margins.low;
        if debt > 0 || enough || own.inuse == own.active {
            return cost;
        }
        let step = (own.active * STEP_PERCENT).div_ceil(100);
        let mut inuse = own.inuse;
        while inuse < own.active {
            inuse = (inuse + step).min(own.active);
            self.set_weights(group, own.active, inuse, Some(now));
            cost = cost_at(device_time, self.share(group).inuse);
            if now.v.since(vtime) >= cost as i64 {
                break;
            }
        }
        cost
    }
    /// Charges a request that is dispatched.
    pub(super) fn charge(&mut self, group: usize, id: RequestId, cost: u64, device_time: u64) {
        let account = &mut self.accounts[group];
        account.vtime = account.vtime.plus(cost as i64);
        account.used = account.used.saturating_add(device_time);
        self.costs[id.0 as usize] = cost;
    }

    /// Handles a request that costs something: it is dispatched, dispatched as a debt, or waits.
    pub(super) fn decide(&mut self, cx: &mut Context<'_>, id: RequestId, device_time: u64) {
        let now = self.clock.read(cx.now);
        let request = &cx.requests[id];
        let (group, sequence, end) = (request.group.index(), request.sequence, request.end());
        let urgent = request.flags.has(Flags::METADATA);
        let subject = Subject::Request { id, sequence };
        self.activate(group, now);
        self.accounts[group].cursor = Some(end);
        let cost = self.cost(group, now, device_time);
        let account = &self.accounts[group];
        let left = now.v.since(account.vtime) - cost as i64;
        let free = account.waiters.is_empty() && account.debt == 0;
        if free && left >= 0 && account.held_until <= cx.now {
            self.charge(group, id, cost, device_time);
            self.passed.push_back(cx.requests, id);
        } else if urgent {
            self.incur_debt(group, now, device_time);
            self.passed.push_back(cx.requests, id);
            cx.decide(
                subject,
                "metadata goes on debt: {ns} of the drive owed",
                [nanos(self.accounts[group].debt), 0],
            );
        } else {
            let share = self.share(group).inuse;
            cx.decide(
                subject,
                "over budget: its group's share is {} of 65536, it takes {ns} of the drive",
                [share, nanos(device_time)],
            );
            self.hold(cx, id, device_time);
        }
    }
    fn hold(&mut self, cx: &mut Context<'_>, id: RequestId, device_time: u64) {
        let now = self.clock.read(cx.now);
        let group = cx.requests[id].group.index();
        let own = *self.weights.node(own_node(group));
        let in_debt = self.accounts[group].debt > 0;
        if !in_debt && own.inuse != own.active && !self.settings.first {
            self.take_all_back(group, now);
        }
        self.costs[id.0 as usize] = device_time;
        self.accounts[group].waiters.push_back(cx.requests, id);
        self.held += 1;
        self.kick(cx, group, now);
    }

    /// Pays the group's debt from its budget, dispatches waiting requests for which the rest suffices, and sets a
    /// timer for the next one.
    pub(super) fn kick(&mut self, cx: &mut Context<'_>, group: usize, now: Now) {
        let mut left = self.pay_debt(group, now);
        let share = self.share(group).inuse;
        let held = self.accounts[group].held_until > now.at;
        while let Some(id) = self.accounts[group].waiters.front() {
            let is_free = cx.requests[id].is_cancelled();
            let device_time = if is_free { 0 } else { self.costs[id.0 as usize] };
            let cost = cost_at(device_time, share);
            left = left.saturating_sub_unsigned(cost);
            if !is_free && (left < 0 || held) {
                break;
            }
            self.accounts[group].waiters.pop_front(cx.requests);
            self.held -= 1;
            self.charge(group, id, cost, device_time);
            self.passed.push_back(cx.requests, id);
        }
        if self.accounts[group].waiters.is_empty() {
            self.set_timer(group, None);
            return;
        }
        let missing = u64::try_from(-left.min(0)).expect("not negative");
        let ready = self.clock.after(now.at, missing).max(self.accounts[group].held_until);
        let at = ready + self.slack() * 2;
        // Already set, and near enough.
        let near = |set: &Due| set.at > now.at && set.at.0.abs_diff(at.0) <= self.slack().0;
        match self.accounts[group].due.filter(near) {
            Some(due) => self.insert_timer(group, due),
            None => self.set_timer(group, Some(at)),
        }
    }
    /// Timers are late on purpose, by one to two of these.
    fn slack(&self) -> Nanos {
        let percent = if self.settings.first { SLACK_FIRST } else { SLACK_PERCENT };
        (self.clock.period() * percent / 10_000).max(Nanos(1))
    }
    fn set_timer(&mut self, group: usize, at: Option<Instant>) {
        let number = self.timers_set;
        let due = at.map(|at| Due { at, number });
        self.timers_set += 1;
        self.accounts[group].due = due;
        if let Some(timer) = self.accounts[group].timer.take() {
            self.timers.remove(&mut self.waiting, timer);
        }
        if let Some(due) = due {
            self.insert_timer(group, due);
        }
    }
    /// Inserts a group's timer into the tree, unless it is there or a period ends long before.
    fn insert_timer(&mut self, group: usize, due: Due) {
        if due.at <= self.horizon && self.accounts[group].timer.is_none() {
            let timer = self.timers.insert(&mut self.waiting, due, group as u32);
            self.accounts[group].timer = Some(timer);
        }
    }
    /// Timers are due in the tree up to a quarter of a period after the end of this one (`None`: all timers). At a
    /// period's end all waiting groups are examined, and most timers change, so the tree need not have those after it.
    /// The quarter is for wake-ups that are served late.
    pub(super) fn plan_timers(&mut self, end: Option<Instant>) {
        self.horizon = end.map_or(Instant::MAX, |end| end + self.clock.period() / 4);
    }
    /// Inserts the timers up to a later horizon than when they were set.
    pub(super) fn insert_timers(&mut self) {
        for at in 0..self.active.len() {
            let group = self.active[at] as usize;
            if let Some(due) = self.accounts[group].due {
                self.insert_timer(group, due);
            }
        }
    }
    /// The first timer of a group.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first(&self.waiting).map(|timer| self.timers.key(timer).at)
    }
    /// Serves groups whose time has come. When a timer expires, all groups that may dispatch are served.
    pub(super) fn serve_timers(&mut self, cx: &mut Context<'_>) {
        if self.next_timer().is_none_or(|first| first > cx.now) {
            return;
        }
        let until = cx.now + self.slack();
        while let Some(timer) = self.timers.first(&self.waiting) {
            if self.timers.key(timer).at > until {
                return;
            }
            let group = self.timers.value(timer) as usize;
            self.set_timer(group, None);
            let now = self.clock.read(cx.now);
            self.kick(cx, group, now);
        }
    }
}
