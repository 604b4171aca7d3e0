//! `io-cost` (`cost`): shares of a drive's time by weight, with a model of the cost of each request.
//!
//! *Idea.* A linear model estimates the device time of a request. A virtual clock represents the available device
//! time. A group with share h pays `1/h` of a request's cost in its own virtual time, and may dispatch while it is
//! not ahead of the clock. The clock runs faster while groups are held back and the drive meets its latency
//! targets, and slower while it does not. A model that is wrong by a constant factor therefore does no harm. Groups
//! that use less than their share lend the rest at the end of each period, and take it back at once when they need
//! it.
//!
//! *Equations.* By direction, with the parameters' rates, in virtual time (2^37 a second):
//!
//! ```text
//! page = 1 s / (bps / 4096)    seq = max(0, 1 s / seqiops - page)    rand = max(0, 1 s / randiops - page)
//! cost = (within 16 MiB of the group's last end ? seq : rand) + pages * page
//! dispatch when  vtime + cost / h <= clock       h = product of w / (sum of w of active siblings)
//! period         max(2, (1,000,000 - ppm) / 50,000) * latency, 1 ms to 1 s (of the longer latency)
//! busy           tag waits > 5 % of the period, or too many late: level = max(level, 0) + 1
//! idle           both below 75 % of the limit, and a group short: level = min(level, 0) - 1
//! clock's rate   changes by 0, 1, 2, 4, 8, 16 % a period, from |level| 0, 4, 20, 36, 44, 52 on
//! lenders        groups more than 20 % of a period behind the clock, and those that lend already
//! they keep      usage / (1 - 50 % + saved): then 50 % will be saved at the next period's end
//! take back      25 % of the weight at a time when less than 20 % is left
//! ```
//!
//! A request is late if the time from the request for a tag to the completion, minus the part that its size takes
//! by the model, exceeds its target. Debts are in `debt.rs`, donations in `donation.rs`.
//!
//! *Parameters.* Those of `io.cost.qos` (`rpct rlat wpct wlat min max`) and `io.cost.model`
//! (`rbps rseqiops rrandiops wbps wseqiops wrandiops`). Missing values come from one of four built-in sets:
//! rotating, flash without a queue, flash, fast flash. If none is given, 10 s at 500 % switch from flash to fast
//! flash, and 10 s at 10 % switch back. Without `rpct` and `wpct`, only tag waits count. `size_latency = false`
//! counts a request's whole latency, as Linux before 5.8. `first`: the rules of the patches as first mailed, in
//! 2019 (`first.rs`).
//!
//! Waiting requests are woken 1 to 2 % of a period late, so that they are woken in batches: at the end of that
//! range, or with another timer that expires earlier (the kernel's timers have such a range, on each processor; we
//! use one).
//!
//! *Source.* Linux 7.0 `block/blk-iocost.c`, `Documentation/admin-guide/cgroup-v2.rst`; Heo et al., "IOCost: Block
//! IO Control for Containers in Datacenters", ASPLOS 2022. The rule that the level is unchanged if there was no
//! completion at all comes from a patch of 2026 by Jialin Wang. Stated there: all of the above. *Our choice*, where
//! we differ:
//! - A group may have requests of its own beside groups inside it: they count as one more child of weight 100. (The
//!   kernel forbids this, but lets such requests pass.) The root group's own requests pass freely, as in the
//!   kernel.
//! - Requests that are merged have been charged in full before; the kernel sees merges first, and charges only the
//!   pages.
//! - Metadata stands for the requests that the kernel issues as root (there is no swap here). A client in debt is
//!   delayed at its group's next requests; the kernel puts the task to sleep on its return to user space.
//! - Times are in nanoseconds, not microseconds. Periods stop after one without submissions and completions, if no
//!   request waits, or if the clock cannot run faster and only the first waiting request can proceed. The next
//!   event ends one long period (the kernel's periods continue, and the level with them).
//! - Model parameters below 1 MiB/s or 16 requests a second count as that value, and `max` is at least 10 % (in the
//!   kernel 1 %), so that no request waits for minutes; a `max` below `min` counts as `min` (the kernel refuses
//!   it).

mod account;
mod budget;
mod debt;
mod donation;
mod first;
mod latency;
mod model;
mod period;
mod settings;
#[cfg(test)]
mod tests;
mod vrate;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::parts::shares::{Weights, group_node};
use account::{Account, Due};
use debt::Forgiveness;
use donation::Donor;
use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::group::Change;
use iofair_core::id::{GroupId, RequestId};
use iofair_core::key::Key;
use iofair_core::parts::fifo::Fifo;
use iofair_core::policy::{Build, Claim, Context, Gauges, Judgement, Policy, Role, Row};
use iofair_core::time::Instant;
use iofair_policies::parts::tree::{Arena, Tree};
use latency::Latency;
use settings::Settings;
use vrate::{Clock, WHOLE_RATE};

/// The row of the table.
pub static ROW: Row = Row {
    name: "io-cost",
    short: "cost",
    role: Role::Throttle,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight),
    summary: "shares of device time by weight with a cost model and latency feedback, as in io.cost",
    file: "io_cost/mod.rs",
    parameters: settings::PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Device time by weight. Unused time is lent to other groups, and latency targets \
                limit the total rate.",
            shown_by: "mails-2019/io-cost",
        }],
        needs: "A cost model and latency targets that fit the drive (`rpct`, `rlat` and so on).",
        fails: &[
            Claim {
                says: "A latency target that is too high has no effect, and one that is too low \
                    stops the drive: the total is {total of rlat 10 ms} at 10 ms, {total of rlat 1 \
                    ms} at 1 ms.",
                shown_by: "mails-2019/io-cost",
            },
            Claim {
                says: "Without targets, only waiting for tags slows it down: readers with weights \
                    1000 and 100 share {heavy of cost-none / light of cost-none [100 and 1000]} : 1.",
                shown_by: "suite/fairness",
            },
        ],
    },
    build,
};

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let settings = Settings::new(build.values, build.facts);
    Box::new(IoCost {
        clock: Clock::new(settings.period),
        settings,
        weights: Weights::default(),
        accounts: Vec::new(),
        active: Vec::new(),
        costs: Vec::new(),
        passed: Fifo::new(),
        held: 0,
        timers: Arena::new(),
        waiting: Tree::new(),
        horizon: Instant::MAX,
        timers_set: 0,
        latency: Latency::default(),
        busy_level: 0,
        periods: 0,
        running: false,
        period_end: None,
        forgiveness: Forgiveness::default(),
        donors: Vec::new(),
    })
}

struct IoCost {
    settings: Settings,
    clock: Clock,
    weights: Weights,
    /// By group.
    accounts: Vec<Account>,
    /// Groups that sent something lately.
    active: Vec<u32>,
    /// By request: the device time that it asks for while it waits, then what its group paid until it is
    /// done.
    costs: Vec<u64>,
    /// On their way out.
    passed: Fifo,
    /// Requests that wait.
    held: u64,
    timers: Arena<Due, u32>,
    /// Groups whose first waiter's time comes before `horizon`, by that time.
    waiting: Tree,
    horizon: Instant,
    /// Timers set so far.
    timers_set: u64,
    latency: Latency,
    /// Periods in a row in which the drive was busy; idle, if negative.
    busy_level: i32,
    /// Periods so far.
    periods: u64,
    /// Whether any group was active at the last period's end.
    running: bool,
    /// `None` while not running, and while periods rest.
    period_end: Option<Instant>,
    forgiveness: Forgiveness,
    donors: Vec<Donor>,
}

impl Policy for IoCost {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let index = id.0 as usize;
        if index >= self.costs.len() {
            self.costs.resize(index + 1, 0);
        }
        let request = &cx.requests[id];
        let group = request.group;
        let device_time = self.settings.model.cost(request, self.accounts[group.index()].cursor);
        if group == GroupId::ROOT || device_time == 0 {
            self.passed.push_back(cx.requests, id);
            return;
        }
        self.catch_up(cx);
        self.decide(cx, id, device_time);
    }

    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        if self.next_timer().is_some_and(|at| at <= cx.now) {
            self.catch_up(cx);
            self.serve_timers(cx);
        }
        if self.period_end.is_some_and(|end| end <= cx.now) {
            self.end_period(cx);
        }
        self.passed.pop_front(cx.requests)
    }

    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.catch_up(cx);
        self.latency.count(&self.settings, &cx.requests[id], cx.now);
        let mut paid: i64 = 0;
        for (part, _) in cx.requests.parts(id) {
            if let Some(cost) = self.costs.get_mut(part.0 as usize) {
                paid = paid.wrapping_add(core::mem::take(cost) as i64);
            }
        }
        let account = &mut self.accounts[cx.requests[id].group.index()];
        account.done_vtime = account.done_vtime.plus(paid);
    }

    fn cancel(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let group = cx.requests[id].group.index();
        if !self.accounts[group].waiters.is_empty() {
            self.catch_up(cx);
            let now = self.clock.read(cx.now);
            self.kick(cx, group, now);
        }
        false
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.next_timer().into_iter().chain(self.period_end).min()
    }

    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) => {
                let group = cx.groups.group(id);
                let weights = [group.contract.weight, WEIGHT_DEFAULT];
                self.weights.add_group(id, group.parent, weights);
                while self.accounts.len() <= id.index() {
                    self.accounts.push(Account::new());
                }
                self.accounts[id.index()] = Account::new();
            }
            Change::GroupUpdated(id) => {
                self.weights.set_weight(group_node(id), cx.groups.group(id).contract.weight);
            }
            Change::GroupRemoved(id) => {
                assert!(self.accounts[id.index()].waiters.is_empty(), "{id:?} goes with requests");
                self.deactivate(id.index());
            }
            _ => {}
        }
    }

    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("rate_percent", self.clock.base_rate() * 100 / WHOLE_RATE);
        gauges.gauge("busy_periods", u64::from(self.busy_level.max(0).unsigned_abs()));
        gauges.gauge("idle_periods", u64::from(self.busy_level.min(0).unsigned_abs()));
        gauges.gauge("active_groups", self.active.len() as u64);
        gauges.gauge("held_requests", self.held);
        gauges.gauge("built_in_set", self.settings.set() as u64);
    }
}
