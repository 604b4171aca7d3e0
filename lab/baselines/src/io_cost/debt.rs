//! Debts: requests that must not wait, because others would wait for them, are dispatched without budget.
//!
//! The kernel treats metadata and swap this way, which it issues as the root group. The debt is paid from the group's
//! budget before any other request of the group. A group in debt keeps the smallest weight and lends the rest. The
//! clients of a group deep in debt are delayed, and debts fade while the drive has little to do.

use super::IoCost;
use super::budget::{cost_at, device_time_at};
use super::vrate::Now;
use crate::parts::shares::own_node;
use iofair_core::policy::Context;
use iofair_core::time::{Instant, Nanos};

/// Delays (`MIN_DELAY`, `MAX_DELAY`).
const DELAY: (Nanos, Nanos) = (Nanos::from_micros(250), Nanos::from_micros(250_000));
/// How deep in debt makes the smallest and the largest, in percent of a period's budget
/// (`MIN_DELAY_THR_PCT`, `MAX_DELAY_THR_PCT`).
const DEPTH: (i64, i64) = (500, 25_000);
/// A delay halves in this time.
const HALF_LIFE: Nanos = Nanos::from_secs(1);
/// Debts halve in this time while the drive is used less than this (`DFGV_PERIOD`, `DFGV_USAGE_PCT`).
const FORGIVE: Nanos = Nanos::from_millis(100);
const FORGIVE_USAGE_PERCENT: u64 = 50;

/// When debts were last checked.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Forgiveness {
    since: Instant,
    /// Time of the last look beyond whole [`FORGIVE`]s.
    rest: Nanos,
    /// What all groups used since then.
    used: Nanos,
}

impl Forgiveness {
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Self { since: now, ..Self::default() };
    }
    /// When debts may next be forgiven.
    pub(super) fn next(&self) -> Instant {
        self.since + FORGIVE
    }
}

fn halved(value: u64, times: u64) -> u64 {
    value.checked_shr(u32::try_from(times).unwrap_or(u32::MAX)).unwrap_or(0)
}

impl IoCost {
    pub(super) fn incur_debt(&mut self, group: usize, now: Now, device_time: u64) {
        if self.accounts[group].debt == 0 {
            let active = self.weights.node(own_node(group)).active;
            self.set_weights(group, active, 0, None);
        }
        let account = &mut self.accounts[group];
        account.debt = account.debt.saturating_add(device_time);
        account.used = account.used.saturating_add(device_time);
        if let Some(delay) = self.find_delay(group, now) {
            let account = &mut self.accounts[group];
            account.held_until = account.held_until.max(now.at + delay);
        }
    }
    /// Pays what the group's budget allows at its whole share. Returns the rest of the budget, which is negative
    /// while debt remains.
    pub(super) fn pay_debt(&mut self, group: usize, now: Now) -> i64 {
        let account = &self.accounts[group];
        if account.debt == 0 && account.delay == Nanos::ZERO {
            return now.v.since(account.vtime);
        }
        let share = self.share(group).active;
        let account = &mut self.accounts[group];
        let mut left = now.v.since(account.vtime);
        if account.debt > 0 && left > 0 {
            let paid = device_time_at(left.unsigned_abs(), share).min(account.debt);
            let cost = cost_at(paid, share) as i64;
            account.skip(cost);
            account.debt -= paid;
            left -= cost;
            if account.debt == 0 {
                let active = self.weights.node(own_node(group)).active;
                let before = account.last_inuse;
                self.set_weights(group, active, before, None);
            }
        }
        let account = &self.accounts[group];
        if account.debt > 0 || account.delay > Nanos::ZERO {
            self.find_delay(group, now);
        }
        match self.accounts[group].debt {
            0 => left,
            debt => left.saturating_sub_unsigned(cost_at(debt, share)).min(0),
        }
    }
    /// By how much clients of the group are held up now, if they are.
    fn find_delay(&mut self, group: usize, now: Now) -> Option<Nanos> {
        let share = self.share(group).active;
        let whole = self.clock.period_virtual();
        let account = &mut self.accounts[group];
        let age = now.at.since(account.delay_at).0 / HALF_LIFE.0;
        let old = Nanos(halved(account.delay.0, age));
        let over = account.vtime.since(now.v).saturating_add_unsigned(cost_at(account.debt, share));
        let percent = (i128::from(over) * 100 / i128::from(whole)) as i64;
        let new = if percent <= DEPTH.0 {
            Nanos::ZERO
        } else if percent >= DEPTH.1 {
            DELAY.1
        } else {
            let above = (percent - DEPTH.0).unsigned_abs();
            DELAY.0 + (DELAY.1 - DELAY.0) * above / (DEPTH.1 - DEPTH.0).unsigned_abs()
        };
        if new > old {
            (account.delay, account.delay_at) = (new, now.at);
        }
        let delay = old.max(new);
        if delay >= DELAY.0 {
            return Some(delay);
        }
        account.delay = Nanos::ZERO;
        None
    }
    /// At a period's end: halves all debts and delays for each [`FORGIVE`] in which all groups together
    /// used the drive for less than half of the time. A drive that misses its targets counts as used.
    pub(super) fn forgive(&mut self, cx: &mut Context<'_>, now: Now, used: Nanos, debtors: u32) {
        if debtors == 0 {
            self.forgiveness.restart(now.at);
            return;
        }
        let used = if self.busy_level > 0 { used.max(self.clock.period()) } else { used };
        self.forgiveness.used += used;
        if now.at < self.forgiveness.next() {
            return;
        }
        let Forgiveness { since, rest, used } = self.forgiveness;
        let time = now.at.since(since);
        self.forgiveness.restart(now.at);
        if u128::from(used.0) * 100 / u128::from(time.0) > u128::from(FORGIVE_USAGE_PERCENT) {
            return;
        }
        let time = time + rest;
        self.forgiveness.rest = Nanos(time.0 % FORGIVE.0);
        let times = time.0 / FORGIVE.0;
        for at in 0..self.active.len() {
            let group = self.active[at] as usize;
            let account = &mut self.accounts[group];
            if account.debt == 0 && account.delay == Nanos::ZERO {
                continue;
            }
            if account.debt > 0 {
                account.debt = halved(account.debt, times).max(1);
            }
            if account.delay > Nanos::ZERO {
                account.delay = Nanos(halved(account.delay.0, times).max(1));
            }
            self.kick(cx, group, now);
        }
    }
}
