//! `throttle-low` (`low`): minimums in bytes and requests a second, kept by holding back all other groups, like
//! blk-throttle's `io.low`.
//!
//! *Idea.* The whole drive is in one of two states. In LOW, every group is limited to its low limit, whatever the
//! drive could do; in MAX, it may exceed that. If a group gets less than its low limit although it is not idle, the
//! drive goes down to LOW. When every group has what it wants, or is idle, the drive goes back up to MAX. Requests
//! wait and move up the tree as in `throttle-max`, with the same queues and accounts.
//!
//! *Limits* apply to bytes and requests, reads and writes, each separately. `scale` counts the slices since the
//! upgrade, up to 4,096, so what groups may send grows by half a low limit per slice:
//!
//! ```text
//! LOW   low; a leaf with no low limit in this direction 320 KiB/s and 10 requests/s; others nothing
//! MAX   min(max, low + low / 2 * scale); without a low limit max
//! ```
//!
//! *Upgrade.* This is checked when a request is over its limit, once per slice as requests arrive, and whenever a
//! timer of held requests expires (at least every 8 slices); never in the first slice after a downgrade. Every leaf,
//! or else one of the groups above it, must agree: it has no low limit; **or all directions with a low limit have
//! requests waiting**; or its last overflow was at least a slice ago and it is idle.
//!
//! *Downgrade.* This is checked once per slice as requests of a leaf arrive. A direction *overflows* if its rate
//! since the last check was at least its low limit. If the upgrade, and the oldest overflow among all limited
//! directions, were at least a slice ago, in the leaf and in all groups above it, and the leaf is not idle, then
//! `scale` is halved; at 0, the drive is in LOW.
//!
//! *Idle.* A group is idle if its last completion is longer ago than the smaller of 5 s and 4 `idle`; or if its mean
//! think time (7/8 old, 1/8 new) exceeds `idle`; or if fewer than a fifth of its requests were bad, both counts
//! halved each slice. A request is bad if it took longer than the usual time for its size and direction plus
//! `latency`, including the wait in this policy. On flash, the usual time is learned in LOW only, from the drive's
//! own completion times: each second, for each of nine sizes (up to 4 KiB, then doubled each time, up to 1 MiB and
//! more), the mean of 32 or more, averaged 7/8 to 1/8, and never less than that of a smaller size. On a drive with a
//! head it is 4 ms for all sizes, and completions within 1 ms are not counted.
//!
//! *Consequences* (all of them the original's): A group with low limits in both directions that only reads never
//! overflows in writes and never has writes waiting. So it counts as below its limit whenever it is not idle, and LOW
//! is left only when every such group is idle. And a child of a group without low limit inherits "no thresholds" from
//! it, which always counts as idle: the child's low limit never takes effect.
//!
//! *Parameters.* A group's low limits are the contract's `low`, or else `min` in both directions; they are ignored
//! unless both thresholds are set. `latency` and `idle` are the defaults of the thresholds (the kernel has none;
//! these are the S suite's); a child's `latency` is at least its parent's, and its `idle` at most its parent's.
//! `slice` is 20 ms on flash and 100 ms otherwise (`throttle_sample_time`). With `ceilings`, the contract's `max`
//! also applies, as in the kernel, where both are one policy; otherwise use `max+low`.
//!
//! *Source.* Linux `block/blk-throttle.c` with `CONFIG_BLK_DEV_THROTTLING_LOW`, 4.12 to 4.18, read in RHEL's 4.18 and
//! in the tree of bfq-mq (4.14); S. Li's patches of January 2017. Stated there: all of the above. *Our choice*, where
//! we differ: milliseconds instead of jiffies; timers expire at their tick, in the kernel one tick later; the time of
//! a bio counts from its submission to the engine (in 4.18, from its arrival at blk-throttle); the root group has no
//! low limit, as there, and no ceiling; 5.x, which does not count the wait, is not available.

mod device;
mod share;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use device::{Device, jiffies, micros};
use iofair_core::contract::Limits;
use iofair_core::group::{Change, Groups};
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::key::Key;
use iofair_core::params::{Kind, Parameter};
use iofair_core::policy::{Build, Claim, Context, Gauges, HoldInfo, Judgement, Policy, Role, Row};
use iofair_core::request::Requests;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_policies::parts::levels::{Arrival, Levels, TOP, cost, group_of, level_of};
use iofair_policies::parts::meter::Rule;
use share::{Latency, Settings, Share};

/// The row of the table.
pub static ROW: Row = Row {
    name: "throttle-low",
    short: "low",
    role: Role::Throttle,
    enforces: |key, values| match key {
        Key::Max => values.bool("ceilings"),
        key => matches!(key, Key::Min | Key::Low),
    },
    summary: "minimums, by limiting all groups to theirs while one is missed, as in blk-throttle's \
        io.low",
    file: "throttle_low/mod.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "A minimum for each group: while one is missed, all groups are limited to theirs.",
            shown_by: "article-2018/figure-1",
        }],
        needs: "Minimums whose sum is within the drive's worst-case rate; both thresholds, \
            `latency` and `idle`.",
        fails: &[
            Claim {
                says: "While one minimum is missed, the total is low: a random reader beside four \
                    sequential readers gets {target of low-none [random target, readers]} of its 10 \
                    MB/s, with a total of {total of low-none [random target, readers]}, without \
                    control {total of none-none [random target, readers]}.",
                shown_by: "article-2018/figure-1",
            },
            Claim {
                says: "Beside four constant and five on/off interferers, a random reader gets \
                    {target of low-none [random target]} of its 10 MB/s.",
                shown_by: "article-2018/figure-4a",
            },
            Claim {
                says: "A group with minimums for reads and writes that only reads never reaches its \
                    write minimum, so only idleness ends the low state.",
                shown_by: "",
            },
        ],
    },
    build,
};

const PARAMETERS: &[Parameter] = &[
    Parameter::time(
        "latency",
        Nanos::from_micros(100),
        "a request is bad if it takes this much longer than usual; 0: unset",
    ),
    Parameter::time(
        "idle",
        Nanos::from_micros(1000),
        "a group with a longer mean think time is idle; 0: unset",
    ),
    Parameter {
        name: "slice",
        doc: "time between checks, at least 10 ms; 0: 20 ms on flash, otherwise 100 ms",
        kind: Kind::Time,
        default: 0,
        range: (0, 1_000_000_000),
    },
    Parameter::bool("ceilings", false, "also enforce the contracts' max"),
];

/// A tick of the kernel's slowest clock (`HZ` = 100): held requests wake up every 8 slices, which at
/// shorter ones would be all that happens.
const SLICE_MIN_MS: u64 = 10;

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let slice_ms = match build.values.time("slice") {
        Nanos::ZERO if build.facts.rotational => 100,
        Nanos::ZERO => 20,
        slice => slice.as_millis().max(SLICE_MIN_MS),
    };
    let rule =
        Rule { slice_ms, linux_7: false, ask_each_slice: true, burst: Nanos::ZERO, joint: false };
    // The limits may change while a request waits, so nobody sleeps longer than this.
    let sleep_max = Nanos::from_millis(8 * slice_ms);
    Box::new(ThrottleLow {
        levels: Levels::new(rule, sleep_max, Device::new(slice_ms, build.facts.rotational)),
        latency: build.values.time("latency"),
        idle: build.values.time("idle"),
        ceilings: build.values.bool("ceilings"),
        stale: false,
        walk: Vec::new(),
        refuser: TOP,
    })
}

struct ThrottleLow {
    levels: Levels<Share>,
    latency: Nanos,
    idle: Nanos,
    ceilings: bool,
    /// Low limits changed: who is limited and all thresholds must be found anew.
    stale: bool,
    walk: Vec<GroupId>,
    /// The leaf that last refused an upgrade: it is asked first.
    refuser: usize,
}

impl Policy for ThrottleLow {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.settle(cx);
        let request = &cx.requests[id];
        let (direction, mut at) = (request.operation.direction() as usize, level_of(request.group));
        if !self.levels.account(at).limited[direction] {
            self.levels.pass(cx.requests, id);
            return;
        }
        let now = jiffies(cx.now);
        self.levels.state.learn(now);
        self.levels.account_mut(at).came(micros(cx.now));
        let cost = cost(cx.requests, id);
        let mut from = at;
        while at != TOP {
            let overflow = &mut self.levels.account_mut(at).overflow[direction];
            if *overflow == 0 {
                *overflow = now;
            }
            self.try_downgrade(cx, at);
            self.try_upgrade(cx, at);
            if self.levels.queued(at, direction) == 0 {
                if self.levels.wait(cx.now, at, direction, cost).is_none() {
                    self.levels.charge(cx.now, at, direction, cost);
                    from = at;
                    at = self.levels.parent(at);
                    continue;
                }
                self.levels.account_mut(at).overflow[direction] = now;
                if self.can_upgrade(cx.now, at) {
                    self.upgrade(cx);
                    continue;
                }
            }
            self.levels.account_mut(at).overflow[direction] = now;
            self.levels.hold(cx.now, cx.requests, Arrival { at, from }, id);
            let subject = Subject::Request { id, sequence: cx.requests[id].sequence };
            let rule = match self.levels.state.is_low {
                true => "LOW: over the low limit of {group}",
                false => "MAX: over the limit of {group}",
            };
            cx.decide(subject, rule, [group_of(at), 0]);
            return;
        }
        self.levels.pass(cx.requests, id);
    }

    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        if !self.levels.has_passed() {
            while let Some(at) = self.levels.due(cx.now) {
                self.settle(cx);
                if self.can_upgrade(cx.now, TOP) {
                    self.upgrade(cx);
                }
                self.levels.serve(cx.now, cx.requests, at);
            }
        }
        self.levels.pop_passed(cx.requests)
    }

    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        if self.levels.state.lows == 0 {
            return;
        }
        self.settle(cx);
        let request = &cx.requests[id];
        let at = level_of(request.group);
        let direction = request.operation.direction() as usize;
        for (_, part) in cx.requests.parts(id) {
            let device = &self.levels.state;
            let usual = device.usual(direction, part.length);
            let took = micros(cx.now).saturating_sub(micros(part.submitted));
            let (counts_from, slice_ms) = (device.latency_counted(), device.slice_ms);
            let latency = Latency { took, usual, counts_from };
            self.levels.account_mut(at).completed(cx.now, latency, slice_ms);
        }
        let took = micros(cx.now).saturating_sub(micros(request.dispatched));
        self.levels.state.measure(request.operation, request.length, took);
    }

    fn has_worker(&self, _client: ClientId) -> bool {
        true
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.levels.next_wakeup()
    }

    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) => self.add(cx, id),
            Change::GroupUpdated(id) => self.update(cx, id),
            Change::GroupRemoved(id) => self.remove(cx, id),
            _ => {}
        }
    }

    fn hold_info(&self, _groups: &Groups, requests: &Requests, id: RequestId) -> HoldInfo {
        let until = self.levels.ready(level_of(requests[id].group));
        HoldInfo { until, ..HoldInfo::default() }
    }

    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("held_requests", self.levels.held());
        gauges.gauge("state_low", u64::from(self.levels.state.is_low));
        gauges.gauge("scale", self.levels.state.scale);
        gauges.gauge("groups_with_low", u64::from(self.levels.state.lows));
    }
}

/// Groups come and change.
impl ThrottleLow {
    fn settings(&self, groups: &Groups, id: GroupId) -> Settings {
        let contract = &groups.group(id).contract;
        let (max, low) = match id {
            GroupId::ROOT => (Limits::default(), Limits::default()),
            _ if self.ceilings => (contract.max, contract.low_limits()),
            _ => (Limits::default(), contract.low_limits()),
        };
        let latency = contract.low.latency.unwrap_or(self.latency);
        let idle = contract.low.idle.unwrap_or(self.idle);
        Settings::new(max, low, [latency, idle])
    }
    fn add(&mut self, cx: &Context<'_>, id: GroupId) {
        let parent = cx.groups.group(id).parent.map_or(TOP, level_of);
        let settings = self.settings(cx.groups, id);
        let share = match id {
            GroupId::ROOT => Share::default(),
            _ => Share::new(settings),
        };
        self.levels.add(cx.now, level_of(id), parent, share);
        self.levels.account_mut(parent).children += 1;
        if settings.has_low() {
            self.levels.state.lows += 1;
            self.levels.state.is_low = true;
            self.stale = true;
        } else {
            self.find_rules(cx.now, level_of(id));
        }
    }
    fn update(&mut self, cx: &mut Context<'_>, id: GroupId) {
        let (at, now) = (level_of(id), cx.now);
        let new = self.settings(cx.groups, id);
        let old = self.levels.account(at).settings;
        if old == new {
            return;
        }
        let limits = [0, 1].map(|direction| self.levels.limit(now, at, direction));
        self.levels.account_mut(at).settings = new;
        let device = &mut self.levels.state;
        device.lows = device.lows - u32::from(old.has_low()) + u32::from(new.has_low());
        if device.lows == 0 {
            device.is_low = false;
        } else if !old.same_low(&new) {
            device.is_low = true;
            self.stale = true;
        }
        self.find_rules_below(cx, id);
        self.levels.limits_changed(now, cx.requests, at, limits);
    }
    fn remove(&mut self, cx: &mut Context<'_>, id: GroupId) {
        let at = level_of(id);
        assert!(!self.levels.holds(at), "{id:?} goes with requests inside");
        let had_low = self.levels.account(at).settings.has_low();
        *self.levels.account_mut(at) = Share::default();
        let parent = self.levels.parent(at);
        self.levels.account_mut(parent).children -= 1;
        self.levels.state.lows -= u32::from(had_low);
        if self.levels.state.is_low && self.levels.state.lows == 0 {
            self.upgrade(cx);
        }
    }
    /// Finds all rules anew if low limits changed since.
    fn settle(&mut self, cx: &Context<'_>) {
        if core::mem::take(&mut self.stale) {
            self.find_rules_below(cx, GroupId::ROOT);
        }
    }
    fn find_rules_below(&mut self, cx: &Context<'_>, id: GroupId) {
        let mut walk = core::mem::take(&mut self.walk);
        walk.push(id);
        while let Some(id) = walk.pop() {
            self.find_rules(cx.now, level_of(id));
            walk.extend_from_slice(&cx.groups.group(id).children);
        }
        self.walk = walk;
    }
    /// Whether a group is limited at all, here or above, and its thresholds. As in the kernel this is
    /// found when limits are set, in the state that the drive is in then.
    fn find_rules(&mut self, now: Instant, at: usize) {
        let limits = [0, 1].map(|direction| self.levels.limit(now, at, direction));
        let parent_level = self.levels.parent(at);
        let parent = *self.levels.account(parent_level);
        // The root and the groups directly below it inherit no thresholds.
        let inherits = parent_level != TOP && self.levels.parent(parent_level) != TOP;
        let share = self.levels.account_mut(at);
        share.limited = [0, 1].map(|d| parent.limited[d] || !limits[d].is_none());
        [share.latency, share.idle] = share.settings.thresholds();
        if inherits {
            share.latency = share.latency.max(parent.latency);
            share.idle = share.idle.min(parent.idle);
        }
    }
}

/// Up and down.
impl ThrottleLow {
    /// The oldest overflow of the limited directions; a group above without low limit says nothing.
    fn last_overflow(&self, now: u64, leaf: usize) -> u64 {
        let mut last = self.levels.account(leaf).last_overflow(now);
        let mut at = self.levels.parent(leaf);
        while at != TOP {
            let share = self.levels.account(at);
            if share.settings.has_low() {
                last = last.max(share.last_overflow(now));
            }
            at = self.levels.parent(at);
        }
        last
    }
    /// Whether this group agrees that others may exceed their low limits.
    fn agrees(&self, now: Instant, at: usize) -> bool {
        let share = self.levels.account(at);
        let waits = [0, 1].map(|direction| self.levels.queued(at, direction) > 0);
        share.has_enough_waiting(waits)
            || (jiffies(now) >= self.last_overflow(jiffies(now), at) + self.levels.state.slice_ms
                && share.is_idle(micros(now)))
    }
    /// Whether the leaf or a group above it agrees.
    fn branch_agrees(&self, now: Instant, leaf: usize) -> bool {
        let mut at = leaf;
        loop {
            if self.agrees(now, at) {
                return true;
            }
            at = self.levels.parent(at);
            if at == TOP || self.levels.parent(at) == TOP {
                return false;
            }
        }
    }
    /// Whether all leaves except this one agree.
    fn can_upgrade(&mut self, now: Instant, except: usize) -> bool {
        let device = &self.levels.state;
        if !device.is_low || jiffies(now) < device.downgraded + device.slice_ms {
            return false;
        }
        let count = self.levels.len();
        for offset in 0..count {
            let at = (self.refuser + offset) % count;
            let share = self.levels.account(at);
            if at != except && share.is_live && share.children == 0 && !self.branch_agrees(now, at)
            {
                self.refuser = at;
                return false;
            }
        }
        true
    }
    /// A request of this group comes: once a slice that is a reason to look.
    fn try_upgrade(&mut self, cx: &mut Context<'_>, at: usize) {
        let (now, slice) = (jiffies(cx.now), self.levels.state.slice_ms);
        let share = self.levels.account(at);
        if !self.levels.state.is_low || share.looked + slice > now {
            return;
        }
        let is_due = now >= share.last_overflow(now) + slice;
        self.levels.account_mut(at).looked = now;
        if is_due && self.can_upgrade(cx.now, TOP) {
            self.upgrade(cx);
        }
    }
    fn upgrade(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let device = &mut self.levels.state;
        (device.is_low, device.upgraded, device.scale) = (false, jiffies(now), 0);
        cx.decide(Subject::Drive, "all have enough or are idle: MAX", [0; 2]);
        self.levels.ask_all_again(now);
        while let Some(at) = self.levels.due(now) {
            self.levels.serve(now, cx.requests, at);
        }
    }
    /// A request of this group comes: once a slice the rates since the last look are compared with the
    /// low limits.
    fn try_downgrade(&mut self, cx: &mut Context<'_>, at: usize) {
        let (now, slice) = (jiffies(cx.now), self.levels.state.slice_ms);
        let share = self.levels.account(at);
        let idle_state = self.levels.state.is_low || self.levels.state.lows == 0;
        if idle_state || share.children > 0 || share.looked + slice > now {
            return;
        }
        let elapsed = now - share.looked;
        self.levels.account_mut(at).looked = now;
        if now < self.last_overflow(now, at) + slice {
            return;
        }
        self.levels.account_mut(at).find_overflows(now, elapsed);
        if self.branch_can_downgrade(cx.now, at) {
            let scale = self.levels.state.downgrade(now);
            let subject = cx.groups.group_id(at - 1).map_or(Subject::Drive, Subject::Group);
            let rule = match scale {
                0 => "below its low limit and not idle: LOW",
                _ => "below its low limit and not idle: scale halved to {}",
            };
            cx.decide(subject, rule, [scale, self.levels.held()]);
        }
        self.levels.account_mut(at).sent = [[0; 2]; 2];
    }
    fn branch_can_downgrade(&self, now: Instant, leaf: usize) -> bool {
        let device = &self.levels.state;
        let mut at = leaf;
        loop {
            let share = self.levels.account(at);
            let ticks = jiffies(now);
            let missed = ticks >= device.upgraded + device.slice_ms
                && ticks >= self.last_overflow(ticks, at) + device.slice_ms
                && (share.children > 0 || !share.is_idle(micros(now)));
            if !missed {
                return false;
            }
            at = self.levels.parent(at);
            if at == TOP || self.levels.parent(at) == TOP {
                return true;
            }
        }
    }
}
