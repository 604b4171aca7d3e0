//! `proportional` (`unified`): shares of an estimated bandwidth by weight, enforced as limits of blk-throttle.
//!
//! *Idea.* A group's share of the drive's capacity becomes a limit, which blk-throttle's accounts enforce. The
//! capacity is unknown and changes with the size, direction and depth of requests. It is therefore estimated from the
//! recent past, slightly too high. Estimate, limits and load then converge where the drive is fully used. A group
//! that uses less than its limit gradually gives up some of its share, and gets all of it back at once when it
//! reaches its limit.
//!
//! *Equations*, once per `period`, in bytes a second, or in requests a second with `requests`:
//!
//! ```text
//! sample    = completed / busy time     capacity moves to it by 1/rise or 1/fall of the distance
//! share     = product of (acting weight / sum of the active siblings')
//! limit     = capacity * (1 + over) * share
//! decay     acting weight -= acting weight * (1 - used / limit) / decay     if used < enough * limit
//! recovery  acting weight = weight                        when a request has to wait for the limit
//! defer     no decay for this number of periods after a recovery
//! ```
//!
//! *Stated by the source*: capacity and cost are in bytes or requests, as the user chooses; bandwidth is the current
//! bandwidth divided by the utilisation; it is always estimated slightly too high; the share is the weight divided by
//! the total weight, and the limit is the share times the bandwidth, enforced by blk-throttle's existing means; the
//! share of a group that does not use it decreases gradually, recovers completely when the acting limit is reached,
//! and does not decrease soon after a recovery. Without this, two groups of which one is idle end at 50, 25, ... of
//! 100 MB/s (`inactive = false` shows it).
//!
//! *Derived*: one estimate for reads and writes together (the slides list a separate weight for writes as future
//! work), so one account per group for both directions; shares of nested groups are multiplied. From
//! TencentOS-kernel's throttle of the same kind: no sample from a drive that was busy for less than 25 %; an estimate
//! that rises by half of the distance and falls by an eighth; and a group without any request in a period does not
//! count until its next request. `over` = 1/8 is what the first patches of January 2016 used, from memory.
//!
//! *Our choice*: the period; decay by a quarter of the unused part, not below 1/64 of the weight (if it were slower,
//! the estimate would fall before the others could use what was given up); two periods of deferral; `enough`, 5/6:
//! with an estimate that is an eighth too high, a group of weight 800 of 1000 reaches only 86 % of its limit on a
//! full drive, and that must not decay; no limit below 320 KiB/s or 10 requests a second (blk-throttle's own
//! minimum); a group's own requests beside groups inside it, and those of the root group, count as one more group of
//! weight 100. Utilisation is the time in which any request was between this policy and its completion.
//!
//! *Where it fails*: a group that is slow because another one fills the drive looks like a group that does not want
//! more. Readers with queue depth 1 lose their share to writers and never reach a limit.
//!
//! *Parameters.* `period`, `slice` (blk-throttle's), `over`, `rise`, `fall`, `decay`, `enough`, `defer`, `requests`;
//! `inactive = false` always counts every group that has a client at its full weight.
//!
//! *Source.* Shaohua Li, "Toward a unified block IO controller" (slides, 2016); blk-throttle as in `throttle-max`,
//! which can be placed above this policy (`max+unified-none`) for upper limits.

mod estimate;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::parts::shares::{WHOLE, Weights, group_node, own_node};
use estimate::{Estimate, Follow};
use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::group::{Change, Groups};
use iofair_core::id::{ClientId, RequestId};
use iofair_core::key::Key;
use iofair_core::params::{Kind, Parameter};
use iofair_core::policy::{Build, Claim, Context, Gauges, HoldInfo, Judgement, Policy, Role, Row};
use iofair_core::request::Requests;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_policies::parts::levels::{
    Account, Arrival, Levels, TOP, cost, level_of, level_of_index,
};
use iofair_policies::parts::meter::{Limit, Rule};

/// The row of the table.
pub static ROW: Row = Row {
    name: "proportional",
    short: "unified",
    role: Role::Throttle,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight),
    summary: "shares of an estimated bandwidth by weight through blk-throttle's limits",
    file: "proportional/mod.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "A share by weight of the drive's measured rate. Unused shares go to other \
                groups.",
            shown_by: "controller-2015/benchmark",
        }],
        needs: "Groups that demand more than their share, because shares are enforced as limits.",
        fails: &[
            Claim {
                says: "Readers with few requests in flight never reach a limit: with weights 200 \
                    and 800 they get {cgroup1 of unified-none [reads]} and {cgroup2 of unified-none \
                    [reads]}.",
                shown_by: "controller-2015/benchmark",
            },
            Claim {
                says: "Writers take a reader's share: the reader, with weight 800, gets {cgroup2 of \
                    unified-none [writes 200, reads 800]}; the writers, with weight 200, get \
                    {cgroup1 of unified-none [writes 200, reads 800]}.",
                shown_by: "controller-2015/benchmark",
            },
        ],
    },
    build,
};

const MS: u64 = 1_000_000;
const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "period",
        doc: "time between two estimates",
        kind: Kind::Time,
        default: 100 * MS,
        range: (10 * MS, 10_000 * MS),
    },
    Parameter {
        name: "slice",
        doc: "length of a slice of the limit, in whole milliseconds",
        kind: Kind::Time,
        default: 100 * MS,
        range: (MS, 1000 * MS),
    },
    Parameter::bool("requests", false, "capacity and cost in requests instead of bytes"),
    Parameter {
        name: "over",
        doc: "the estimate is increased by this percentage",
        kind: Kind::Percent,
        default: 1250,
        range: (0, 10_000),
    },
    Parameter::count("rise", 2, (1, 64), "an estimate rises by 1/this of the distance"),
    Parameter::count("fall", 8, (1, 64), "an estimate falls by 1/this of the distance"),
    Parameter::count("decay", 4, (1, 64), "a share falls by 1/this of its unused part"),
    Parameter {
        name: "enough",
        doc: "a group that uses this part of its limit keeps its share",
        kind: Kind::Percent,
        default: 8333,
        range: (0, 10_000),
    },
    Parameter::count("defer", 2, (0, 1000), "periods without decay after a recovery"),
    Parameter::bool(
        "inactive",
        true,
        "groups that are idle or use less than their share lend it to others",
    ),
];

/// A share does not fall below this part of the weight.
const FLOOR: u64 = 64;
/// Smallest limits, bytes and requests a second (`MIN_THROTL_BPS`, `MIN_THROTL_IOPS`).
const SMALLEST: [u64; 2] = [320 << 10, 10];

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let count = |name| build.values.count(name);
    let slice_ms = build.values.time("slice").as_millis().max(1);
    let rule =
        Rule { slice_ms, linux_7: false, ask_each_slice: false, burst: Nanos::ZERO, joint: true };
    let shares = Shares {
        weights: Weights::default(),
        capacity: None,
        over: count("over"),
        unit: usize::from(build.values.bool("requests")),
    };
    Box::new(Proportional {
        levels: Levels::new(rule, Nanos::MAX, shares),
        groups: Vec::new(),
        active: Vec::new(),
        costs: Vec::new(),
        estimate: Estimate::new(Follow { up: count("rise"), down: count("fall") }),
        period: build.values.time("period"),
        decay: count("decay"),
        enough: count("enough"),
        defer: count("defer"),
        adapts: build.values.bool("inactive"),
        period_end: None,
        happened: false,
    })
}

/// What makes limits.
struct Shares {
    weights: Weights,
    /// Units a second.
    capacity: Option<u64>,
    /// Hundredths of a percent above it.
    over: u64,
    /// Bytes or requests.
    unit: usize,
}

impl Shares {
    /// A group's limit; none before the first estimate.
    fn limit(&mut self, group: usize) -> Option<u64> {
        let share = self.weights.share(own_node(group)).inuse;
        let capacity = u128::from(self.capacity?) * u128::from(10_000 + self.over) / 10_000;
        let limit = capacity * u128::from(share) / u128::from(WHOLE);
        Some(u64::try_from(limit).unwrap_or(u64::MAX).max(SMALLEST[self.unit]))
    }
}

/// The group of a level; none for the one above all.
#[derive(Clone, Copy, Default, Debug)]
struct Part(Option<u32>);

impl Account for Part {
    type State = Shares;
    fn limit(&self, shares: &mut Shares, _now: Instant, _direction: usize) -> Limit {
        let mut limit = Limit::default();
        limit.0[shares.unit] = self.0.and_then(|group| shares.limit(group as usize));
        limit
    }
}

/// What a group did in this period.
#[derive(Clone, Copy, Default, Debug)]
struct Group {
    /// Its place among those that count.
    active: Option<u32>,
    /// Units that passed.
    used: u64,
    /// Its requests here and below.
    inside: u64,
    sent: bool,
    /// Whether it hit its limit.
    hit: bool,
    recovered: Option<Instant>,
    /// Its acting weight from the next period on.
    next: u64,
}

struct Proportional {
    levels: Levels<Part>,
    groups: Vec<Group>,
    /// Groups that count.
    active: Vec<u32>,
    /// By request: its cost.
    costs: Vec<u64>,
    estimate: Estimate,
    period: Nanos,
    decay: u64,
    /// In hundredths of a percent.
    enough: u64,
    defer: u64,
    adapts: bool,
    /// `None` while nothing happens.
    period_end: Option<Instant>,
    /// Whether anything was submitted or completed in this period.
    happened: bool,
}

impl Policy for Proportional {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.wake(cx.now);
        let request = &cx.requests[id];
        let (group, direction) = (request.group.index(), request.operation.direction() as usize);
        let (at, sequence) = (level_of(request.group), request.sequence);
        self.activate(group);
        self.groups[group].sent = true;
        self.groups[group].inside += 1;
        let cost = cost(cx.requests, id);
        self.note_cost(id, cost);
        let mut waits = self.levels.queued(at, direction) > 0
            || self.levels.wait(cx.now, at, direction, cost).is_some();
        if waits {
            self.groups[group].hit = true;
            if self.recover(cx.now, group) {
                let subject = Subject::Group(cx.requests[id].group);
                cx.decide(subject, "hits its acting limit: the whole share", [0; 2]);
                waits = self.levels.queued(at, direction) > 0
                    || self.levels.wait(cx.now, at, direction, cost).is_some();
            }
        }
        if waits {
            self.levels.hold(cx.now, cx.requests, Arrival { at, from: at }, id);
            let limit = self.levels.state.limit(group).unwrap_or(0);
            let subject = Subject::Request { id, sequence };
            cx.decide(subject, "over its limit: {} units a second", [limit, 0]);
        } else {
            self.levels.charge(cx.now, at, direction, cost);
            self.levels.pass(cx.requests, id);
        }
    }

    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        if self.period_end.is_some_and(|end| end <= cx.now) {
            self.end_period(cx);
        }
        if !self.levels.has_passed() {
            while let Some(at) = self.levels.due(cx.now) {
                self.levels.serve(cx.now, cx.requests, at);
            }
        }
        let id = self.levels.pop_passed(cx.requests)?;
        self.estimate.enter(cx.now);
        let group = &mut self.groups[cx.requests[id].group.index()];
        group.used = group.used.saturating_add(self.costs[id.0 as usize]);
        Some(id)
    }

    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.wake(cx.now);
        let (mut requests, mut units) = (0, 0);
        for (part, _) in cx.requests.parts(id) {
            let cost = self.costs.get_mut(part.0 as usize).map_or(0, core::mem::take);
            requests += u64::from(cost > 0);
            units += cost;
        }
        self.estimate.leave(cx.now, requests, units);
        self.groups[cx.requests[id].group.index()].inside -= requests;
    }

    fn has_worker(&self, _client: ClientId) -> bool {
        true
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.period_end.into_iter().chain(self.levels.next_wakeup()).min()
    }

    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) => {
                let group = cx.groups.group(id);
                let weights = [group.contract.weight, WEIGHT_DEFAULT];
                self.levels.state.weights.add_group(id, group.parent, weights);
                while self.groups.len() <= id.index() {
                    self.groups.push(Group::default());
                }
                self.groups[id.index()] = Group::default();
                self.levels.add(cx.now, level_of(id), TOP, Part(Some(id.index() as u32)));
            }
            Change::GroupUpdated(id) => {
                let weight = cx.groups.group(id).contract.weight;
                self.levels.state.weights.set_weight(group_node(id), weight);
            }
            Change::GroupRemoved(id) => {
                assert!(!self.levels.holds(level_of(id)), "{id:?} goes with requests inside");
                self.deactivate(id.index());
            }
            Change::ClientAdded(id) | Change::ClientUpdated(id) => self.count_client(cx, id),
            _ => {}
        }
    }

    fn hold_info(&self, _groups: &Groups, requests: &Requests, id: RequestId) -> HoldInfo {
        let until = self.levels.ready(level_of(requests[id].group));
        HoldInfo { until, ..HoldInfo::default() }
    }

    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("capacity_per_s", self.estimate.capacity().unwrap_or(0));
        gauges.gauge("active_groups", self.active.len() as u64);
        gauges.gauge("held_requests", self.levels.held());
    }
}

/// Groups and their shares.
impl Proportional {
    fn activate(&mut self, group: usize) {
        if self.groups[group].active.is_none() {
            self.groups[group].active = Some(self.active.len() as u32);
            self.active.push(group as u32);
            let weight = self.weight(group);
            self.act_with(group, weight);
        }
    }
    fn deactivate(&mut self, group: usize) {
        let Some(at) = self.groups[group].active.take() else { return };
        self.levels.state.weights.propagate(own_node(group), 0, 0);
        self.active.swap_remove(at as usize);
        if let Some(moved) = self.active.get(at as usize) {
            self.groups[*moved as usize].active = Some(at);
        }
    }
    /// With `inactive` off, groups count from their first client on.
    fn count_client(&mut self, cx: &Context<'_>, id: ClientId) {
        if !self.adapts {
            self.activate(cx.groups.client(id).group.index());
        }
    }
    fn weight(&self, group: usize) -> u64 {
        self.levels.state.weights.node(own_node(group)).weight
    }
    fn acting(&self, group: usize) -> u64 {
        self.levels.state.weights.node(own_node(group)).inuse
    }
    fn act_with(&mut self, group: usize, acting: u64) {
        let weight = self.weight(group);
        self.levels.state.weights.propagate(own_node(group), weight, acting);
    }
    /// The whole share again; `true` if it was less.
    fn recover(&mut self, now: Instant, group: usize) -> bool {
        let weight = self.weight(group);
        let less = self.acting(group) < weight;
        if less {
            self.groups[group].recovered = Some(now);
            self.act_with(group, weight);
        }
        less
    }
    fn note_cost(&mut self, id: RequestId, cost: [u64; 2]) {
        let index = id.0 as usize;
        if index >= self.costs.len() {
            self.costs.resize(index + 1, 0);
        }
        // At least one unit, as zero means that the request is not counted: a flush has no bytes.
        self.costs[index] = cost[self.levels.state.unit].max(1);
    }
}

/// Periods.
impl Proportional {
    /// Something happens; if nothing did for a while a period begins.
    fn wake(&mut self, now: Instant) {
        self.happened = true;
        if self.period_end.is_none() {
            self.start_period(now);
        }
    }
    fn start_period(&mut self, now: Instant) {
        self.estimate.restart(now);
        self.period_end = Some(now + self.period);
    }
    fn end_period(&mut self, cx: &mut Context<'_>) {
        let started = self.period_end.map_or(cx.now, |end| end.saturating_sub(self.period));
        let length = cx.now.since(started);
        if self.adapts {
            self.decay(cx.now, length);
        }
        for group in &mut self.groups {
            (group.used, group.sent, group.hit) = (0, false, false);
        }
        self.estimate.sample(cx.now);
        self.levels.state.capacity = self.estimate.capacity();
        let capacity = self.estimate.capacity().unwrap_or(0);
        cx.decide(
            Subject::Drive,
            "period: the drive is taken for {} units a second; {} groups active",
            [capacity, self.active.len() as u64],
        );
        self.levels.ask_all_again(cx.now);
        self.period_end = None;
        if core::mem::take(&mut self.happened) {
            self.start_period(cx.now);
        }
    }
    /// Groups that did nothing do not count any more; those that underuse their share lose some of it.
    fn decay(&mut self, now: Instant, length: Nanos) {
        for at in (0..self.active.len()).rev() {
            let index = self.active[at] as usize;
            let group = self.groups[index];
            if !group.sent && group.inside == 0 {
                self.deactivate(index);
                continue;
            }
            self.groups[index].next = self.acting(index);
            let recent = self.period * self.defer;
            let deferred = group.recovered.is_some_and(|at| now.since(at) <= recent);
            let Some(limit) = self.levels.state.limit(index) else { continue };
            let allowed = length.units_floor(limit).max(1);
            let waits = self.levels.holds(level_of_index(index));
            if group.hit || waits || deferred || group.used * 10_000 >= allowed * self.enough {
                continue;
            }
            let unused = u128::from(allowed - group.used);
            let acting = self.acting(index);
            let lost = u128::from(acting) * unused / u128::from(allowed) / u128::from(self.decay);
            let floor = (self.weight(index) / FLOOR).max(1);
            self.groups[index].next = (acting - lost as u64).max(floor);
        }
        for at in 0..self.active.len() {
            let index = self.active[at] as usize;
            self.act_with(index, self.groups[index].next);
        }
    }
}
