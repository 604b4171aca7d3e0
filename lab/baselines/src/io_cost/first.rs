//! The rules of the patches as first mailed, where they differ from today's (`first = true`).
//!
//! T. Heo, "blk-cgroup: Implement io.weight", June 2019, `block/blk-ioweight.c`; the controller that was
//! measured against BFQ in August and September of that year, before Linux 5.4.
//!
//! ```text
//! usage          budget spent in a period, or all that is in flight if that is more; with waiters, all of it
//! who gives      who lies more than 50 % of a period behind the clock, and would keep 3 % less than it has:
//! what it keeps  1.25 times the most of its last three usages, plus 2 %
//! takes back     all, when a request leaves less than 10 % of a period, or at a period's end with waiters
//! busy           as today; while a request from before this period is in flight, a busy level stays, and
//!                the clock goes on getting slower
//! idle           somebody is short, and nobody has much to spare
//! ```
//!
//! Waiting for tags lets the clock fall below `min`, to 1 %. Budget that is thrown away is not made up for. A
//! group that was away keeps what it had, up to 50 % of a period. Timers are late by 1.25 to 2.5 % of a period, of
//! which the kernel's timers take the most. A rotating drive's built-in latency is 50 ms. Debts are today's.

use super::IoCost;
use super::account::Account;
use super::budget::cost_at;
use super::donation::Donor;
use super::latency::Verdict;
use super::period::{BUSY_LEVEL_MAX, Seen};
use super::vrate::{Now, Virtual, WHOLE_RATE};
use crate::parts::shares::{Share, WHOLE, own_node};

/// The slack of timers in hundredths of a percent of a period (a quarter of `WAITQ_TIMER_MARGIN_PCT`).
pub(super) const SLACK_FIRST: u64 = 125;
/// The slowest clock while tags are waited for.
pub(super) const SLOWEST_FIRST: u64 = WHOLE_RATE / 100;
/// A group keeps this percentage of its usage (`SURPLUS_SCALE_PCT`), and this much more (`SURPLUS_SCALE_ABS`).
const KEEP_PERCENT: u64 = 125;
const KEEP_MORE: u64 = WHOLE / 50;
/// It lends if that is at least this much less than what it has (`SURPLUS_MIN_ADJ_DELTA`).
const GIVE_LEAST: u64 = WHOLE / 33;
/// Usages known before it gives anything (`MIN_VALID_USAGES`).
const USAGES_MIN: usize = 2;

fn kept(usage: u64) -> u64 {
    (usage * KEEP_PERCENT).div_ceil(100) + KEEP_MORE
}
fn has_surplus(usage: u64, share: u64) -> bool {
    kept(usage) + GIVE_LEAST <= share
}

impl Account {
    /// The part of the drive that the group used since the last look, which is now; zero is not remembered.
    fn take_usage(&mut self, v: Virtual, share: u64, period: u64) -> u64 {
        let until = if self.waiters.is_empty() { self.vtime } else { v };
        let spent = until.since(self.seen).max(0);
        self.seen = self.seen.plus(spent);
        let spent = spent.max(self.vtime.since(self.done_vtime)).unsigned_abs();
        let usage = (u128::from(spent) * u128::from(share)).div_ceil(u128::from(period));
        let usage = u64::try_from(usage).unwrap_or(u64::MAX).min(u64::from(u32::MAX));
        if usage > 0 {
            self.usage_at = (self.usage_at + 1) % self.usages.len();
            self.usages[self.usage_at] = usage;
        }
        usage
    }
    /// The most of the last usages, if enough are known.
    fn most_used(&self) -> Option<u64> {
        let known = self.usages.iter().filter(|usage| **usage > 0).count();
        (known >= USAGES_MIN).then(|| self.usages.into_iter().max().unwrap_or(0))
    }
}

impl IoCost {
    /// What a request costs the group; one that gave part of its share away and now runs low takes all of it
    /// back.
    pub(super) fn cost_first(&mut self, group: usize, now: Now, device_time: u64) -> u64 {
        let behind = now.v.since(self.accounts[group].vtime);
        let own = *self.weights.node(own_node(group));
        if own.inuse < own.active && behind <= self.clock.margins.min {
            self.set_weights(group, own.active, own.active, None);
        }
        cost_at(device_time, self.share(group).inuse)
    }

    /// Determines each group's usage and which groups need more. Lends unused shares and takes them back. Uses the
    /// shares from before this call throughout.
    pub(super) fn survey_first(&mut self, now: Now) -> Seen {
        let period = now.v.since(self.clock.start().v).unsigned_abs().max(1);
        let target = self.clock.margins.target;
        let mut seen = Seen::default();
        let mut changes = core::mem::take(&mut self.donors);
        changes.clear();
        for at in 0..self.active.len() {
            let group = self.active[at] as usize;
            seen.lagging += u32::from(self.lags(group, now));
            let Share { active, inuse } = self.share(group);
            let leaf = own_node(group);
            let weight = self.weights.node(leaf).inuse;
            let account = &mut self.accounts[group];
            seen.used += self.clock.time_of(core::mem::take(&mut account.used));
            let usage = account.take_usage(now.v, inuse, period);
            let excess = now.v.since(account.vtime) - target;
            let mut change = |after: u64| {
                let to = (u128::from(weight) * u128::from(after)).div_ceil(u128::from(inuse));
                let to = u64::try_from(to).unwrap_or(u64::MAX);
                changes.push(Donor { leaf, share: weight, after, inuse: to });
            };
            if account.waiters.is_empty() && excess > 0 {
                account.skip(excess);
                account.seen = account.seen.plus(excess);
                if has_surplus(usage, inuse) {
                    seen.surpluses += 1;
                    let most = account.most_used().filter(|most| has_surplus(*most, inuse));
                    most.into_iter().for_each(|most| change(kept(most)));
                }
            } else if inuse < active {
                let waits = !account.waiters.is_empty();
                change(if waits { active } else { kept(usage).max(inuse) });
            } else {
                seen.shortages += 1;
            }
        }
        let gives = seen.shortages > 0;
        for Donor { leaf, share: before, inuse: after, .. } in &changes {
            let group = *leaf as usize / 2;
            let active = self.weights.node(*leaf).active;
            if after > before || gives {
                self.set_weights(group, active, (*after).clamp(1, active), None);
            }
        }
        changes.clear();
        self.donors = changes;
        seen
    }

    /// Updates how long the drive has been busy, or idle while a group needed more.
    pub(super) fn judge_first(&mut self, verdict: Verdict, seen: Seen) {
        let unbusy = matches!(verdict, Verdict::Nothing | Verdict::Unbusy);
        let level = if verdict == Verdict::Busy {
            self.busy_level.max(0) + 1
        } else if seen.lagging > 0 {
            self.busy_level.max(0)
        } else if unbusy && seen.shortages > 0 && seen.surpluses == 0 {
            self.busy_level.min(0) - 1
        } else {
            0
        };
        self.busy_level = level.clamp(-BUSY_LEVEL_MAX, BUSY_LEVEL_MAX);
    }
}
