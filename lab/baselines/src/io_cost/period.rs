//! A period's end: waiters and debts, donations, feedback, and the next period.

use super::IoCost;
use super::budget::device_time_at;
use super::donation::Donor;
use super::first::SLOWEST_FIRST;
use super::latency::Verdict;
use super::model::{SECOND, scale, scale_up};
use super::vrate::Now;
use crate::parts::shares::own_node;
use crate::parts::shares::{Share, WHOLE};
use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;

/// What a group may save up, as a part of [`WHOLE`] of a period's budget (`MARGIN_TARGET_PCT`).
const TARGET: u64 = WHOLE / 2;
/// A request older than this number of periods is not waited for (`MAX_LAGGING_PERIODS`).
const LAGGING_PERIODS_MAX: i64 = 10;
/// The smallest share, in parts of [`WHOLE`], of which some can be lent.
const DONOR_SHARE_MIN: u64 = 2;
pub(super) const BUSY_LEVEL_MAX: i32 = 1000;

/// Findings about all groups.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Seen {
    /// Groups with nothing to spare.
    pub(super) shortages: u32,
    /// `first.rs`: groups with much to spare.
    pub(super) surpluses: u32,
    /// Groups with a request from before this period.
    pub(super) lagging: u32,
    /// Device time used.
    pub(super) used: Nanos,
}

impl IoCost {
    pub(super) fn start_first_period(&mut self, now: Now) {
        self.running = true;
        self.forgiveness.restart(now.at);
        self.clock.start_period(now);
        self.period_end = Some(now.at + self.clock.period());
        self.plan_timers(self.period_end);
    }
    /// Wakes the periods if they rest: what should have been several becomes one.
    pub(super) fn catch_up(&mut self, cx: &mut Context<'_>) {
        if !self.running || self.period_end.is_some() {
            return;
        }
        let end = self.clock.start().at + self.clock.period();
        self.period_end = Some(end);
        self.plan_timers(self.period_end);
        if cx.now >= end {
            self.end_period(cx);
        }
    }
    pub(super) fn end_period(&mut self, cx: &mut Context<'_>) {
        let now = self.clock.read(cx.now);
        let mut settings = self.settings;
        if settings.first && self.latency.is_clogged(self.clock.period()) {
            settings.rate_range.0 = settings.rate_range.0.min(SLOWEST_FIRST);
        }
        let verdict = self.latency.take(&self.settings, self.clock.period());
        let sent = |group: &u32| self.accounts[*group as usize].sent_in == self.periods;
        let quiet = verdict == Verdict::Nothing && !self.active.iter().any(sent);
        self.plan_timers(Some(cx.now + self.clock.period()));
        let debtors = self.look_after(cx, now);
        let seen = if settings.first { self.survey_first(now) } else { self.survey(now) };
        if !self.donors.is_empty() && seen.shortages > 0 && !settings.first {
            self.donate(now);
        }
        self.judge(verdict, seen);
        let lagging = seen.lagging > 0 && !settings.first;
        self.clock.adjust(self.busy_level, lagging, &settings);
        if self.settings.try_other_set(cx.now, self.clock.base_rate()) {
            self.clock.restart(self.settings.period);
        }
        self.forgive(cx, now, seen.used, debtors);
        self.periods += 1;
        let rate = self.clock.base_rate();
        cx.decide(
            Subject::Drive,
            "period ends: the clock runs at {} %, {} groups ran short",
            [rate * 100_000_000 / SECOND, seen.shortages.into()],
        );
        if self.active.is_empty() {
            (self.running, self.period_end, self.busy_level) = (false, None, 0);
            self.clock.forget_error();
        } else {
            self.clock.start_period(now);
            self.period_end = self.find_period_end(cx.now, quiet, debtors);
            let planned = self.horizon;
            self.plan_timers(self.period_end);
            if self.horizon > planned && self.held > 0 {
                self.insert_timers();
            }
        }
        if settings.first {
            self.clock.keep_to_base();
        } else {
            self.clock.compensate(cx.now);
        }
    }
    /// Serves waiting groups, and deactivates those without activity for a whole period. Returns the number of groups
    /// in debt.
    fn look_after(&mut self, cx: &mut Context<'_>, now: Now) -> u32 {
        let mut debtors = 0;
        for at in (0..self.active.len()).rev() {
            let group = self.active[at] as usize;
            let account = &self.accounts[group];
            if account.waits() {
                self.kick(cx, group, now);
                let account = &self.accounts[group];
                debtors += u32::from(account.debt > 0 || account.delay > Nanos::ZERO);
            } else if !account.is_under_way() && account.sent_in != self.periods {
                // Savings beyond the target are lost to the group, and the clock compensates for them.
                if !self.settings.first {
                    let share = self.share(group).inuse;
                    self.throw_away(group, share, now);
                }
                self.deactivate(group);
            }
        }
        debtors
    }
    /// Takes savings beyond the target from a group.
    fn throw_away(&mut self, group: usize, share: u64, now: Now) {
        let account = &mut self.accounts[group];
        let excess = now.v.since(account.vtime) - self.clock.margins.target;
        if excess > 0 {
            account.skip(excess);
            self.clock.note_error(-(device_time_at(excess.unsigned_abs(), share) as i64));
        }
    }
    /// Determines each group's usage, and which groups can lend or need more.
    fn survey(&mut self, now: Now) -> Seen {
        let mut seen = Seen::default();
        self.donors.clear();
        for at in 0..self.active.len() {
            let group = self.active[at] as usize;
            seen.lagging += u32::from(self.lags(group, now));
            let used = self.clock.time_of(core::mem::take(&mut self.accounts[group].used));
            seen.used += used;
            let Share { active, inuse } = self.share(group);
            let account = &self.accounts[group];
            let behind = now.v.since(account.vtime);
            let saved = account.waiters.is_empty() && behind > self.clock.margins.low;
            if inuse >= active && !saved {
                seen.shortages += 1;
                continue;
            }
            if active < DONOR_SHARE_MIN {
                if self.accounts[group].debt == 0 {
                    self.take_excess(group, inuse, now);
                    self.take_all_back(group, now);
                    seen.shortages += 1;
                }
                continue;
            }
            let usage = self.usage(group, used, now);
            let most = self.weights.share_max(own_node(group));
            let after = self.keeps(group, most, usage, now);
            if after < most {
                let leaf = own_node(group);
                self.donors.push(Donor { leaf, share: active, after, inuse: 0 });
            } else if self.accounts[group].debt == 0 {
                self.take_all_back(group, now);
                seen.shortages += 1;
            }
        }
        seen
    }
    /// Whether the group has a request in flight since before this period. Such requests do not show in latencies
    /// yet.
    pub(super) fn lags(&self, group: usize, now: Now) -> bool {
        let account = &self.accounts[group];
        let period = now.v.since(self.clock.start().v);
        let (spent, done) = (now.v.since(account.vtime), now.v.since(account.done_vtime));
        (self.settings.has_targets() || self.settings.first)
            && account.delay == Nanos::ZERO
            && spent < done
            && spent < period.saturating_mul(LAGGING_PERIODS_MAX)
            && done > period
    }
    /// The part of the drive that the group has used since the period began, or since it became active. Requests in
    /// flight count, so that slow requests do not look like idleness.
    fn usage(&mut self, group: usize, used: Nanos, now: Now) -> u64 {
        let share = self.share(group).inuse;
        let account = &self.accounts[group];
        let under_way = account.vtime.since(account.done_vtime).unsigned_abs();
        let used = used.max(self.clock.time_of(device_time_at(under_way, share)));
        let since = account.active_since.max(self.clock.start().at);
        let time = now.at.since(since).0.max(1);
        u64::try_from(scale_up(used.0, WHOLE, time)).unwrap_or(WHOLE).clamp(1, WHOLE)
    }
    /// The share that a group should keep so that, with the same usage, it will have saved the target at the end of
    /// the next period: `usage = (1 - target + saved) * share`.
    fn keeps(&mut self, group: usize, most: u64, usage: u64, now: Now) -> u64 {
        let share = self.share(group).inuse;
        if self.accounts[group].debt > 0 {
            return 1;
        }
        if !self.take_excess(group, share, now) {
            return most;
        }
        let behind = now.v.since(self.accounts[group].vtime).unsigned_abs();
        let period = now.v.since(self.clock.start().v).unsigned_abs().max(1);
        let saved = scale(behind, WHOLE, period) as u64;
        (WHOLE * usage / (WHOLE - TARGET + saved)).clamp(1, most)
    }
    /// Takes savings beyond the target from a group that may have something to lend. `false`: it needs what it has.
    fn take_excess(&mut self, group: usize, share: u64, now: Now) -> bool {
        let account = &self.accounts[group];
        let behind = now.v.since(account.vtime);
        let may = account.waiters.is_empty() && behind >= self.clock.margins.min;
        if may {
            self.throw_away(group, share, now);
        }
        may
    }
    fn donate(&mut self, now: Now) {
        let mut donors = core::mem::take(&mut self.donors);
        self.weights.solve(&mut donors);
        for donor in &donors {
            let group = donor.leaf as usize / 2;
            if self.accounts[group].debt == 0 {
                let active = self.weights.node(donor.leaf).active;
                self.set_weights(group, active, donor.inuse, Some(now));
            }
        }
        self.donors = donors;
    }
    /// Updates how long the drive has been busy, or idle while a group needed more.
    fn judge(&mut self, verdict: Verdict, seen: Seen) {
        let lagging = seen.lagging > 0;
        if self.settings.first {
            return self.judge_first(verdict, seen);
        }
        let level = match verdict {
            // It is unknown whether the requests in flight will be in time.
            Verdict::Nothing if lagging => self.busy_level,
            Verdict::Busy => self.busy_level.max(0) + 1,
            Verdict::Fine => 0,
            Verdict::Nothing | Verdict::Unbusy => match (seen.shortages, lagging) {
                (0, _) => 0,
                (_, true) => self.busy_level.min(0),
                (_, false) => self.busy_level.min(0) - 1,
            },
        };
        self.busy_level = level.clamp(-BUSY_LEVEL_MAX, BUSY_LEVEL_MAX);
    }
    /// The end of the period that begins now. `None`: periods pause, after one without submissions and completions,
    /// if time brings nothing but the first waiting request's turn. They would find nothing new.
    fn find_period_end(&self, now: Instant, quiet: bool, debtors: u32) -> Option<Instant> {
        let regular = now + self.clock.period();
        if !quiet || !self.passed.is_empty() {
            return Some(regular);
        }
        if self.held == 0 {
            return None;
        }
        let stays = |group: &u32| {
            let account = &self.accounts[*group as usize];
            account.waits() || account.is_under_way()
        };
        let fastest = self.clock.base_rate() >= self.settings.rate_range.1;
        if !fastest || !self.active.iter().all(stays) {
            return Some(regular);
        }
        (debtors > 0).then(|| regular.max(self.forgiveness.next()))
    }
}
