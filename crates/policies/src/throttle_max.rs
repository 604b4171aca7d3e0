//! `throttle-max` (`max`): ceilings in bytes and requests a second, as in the kernel's blk-throttle.
//!
//! *Idea.* A group with a ceiling dispatches as much as its current time slice allows. Further requests wait in the
//! group, first come, first served. Groups nest: a request passes all levels from its group to the root and is
//! charged at each. Where it has to wait, it joins one of the *sources* of that level (the level's own requests,
//! and one source per child), which are served in turns.
//!
//! *Equations*, by direction (reads; all others), on a clock of milliseconds, with `slice` = 100 ms. `elapsed`
//! counts from the slice's start; `up()` rounds up to whole slices:
//!
//! ```text
//! bytes      allowed = rate * up(elapsed)        over = sent + size - allowed
//!            wait    = max(over / rate, 1 ms) + up(elapsed) - elapsed          when over > 0
//! requests   allowed = rate * up(elapsed + 1)
//!            wait    = until the slice begins that allows it                  when sent + 1 > allowed
//! ```
//!
//! The longer wait applies. A slice that has ended is replaced by a new one if nothing is queued, and extended
//! otherwise. After each request, past whole slices are *trimmed*: their allowance is subtracted from the account,
//! and the start moves forward. So the allowance of a whole slice is dispatched at once at the slice's start, and
//! the long-run rate is the ceiling. If a request from a child starts its parent's slice, that slice begins when
//! the child's began (credit for the wait). In its turn, a child dispatches up to six reads, then two writes. A
//! discard counts as 512 bytes.
//!
//! *Parameters.* `linux_7`: the accounting of Linux 7.0, which keeps one slice when trimming, waits at least
//! `1 / rate` for the next request, and carries savings and debts over to a changed limit. Without it, the
//! accounting is that of 4.18, which re-evaluates waiting requests at once when a limit changes.
//! `burst`: replaces blk-throttle's accounting by our own token buckets, exact to the nanosecond. This much time's
//! worth of the rate can be saved up; everything else is spaced evenly.
//!
//! *Bursts and totals.* blk-throttle has neither a burst nor a ceiling on reads and writes together. A group whose
//! contract has one (`max.burst`, `max.total`, ...) is limited by token buckets of our own instead, for all of its
//! ceilings, and by none of the parameters: a request leaves when the buckets of all such groups around it have room,
//! and is charged to all at once. In any time `t`, at most `max(burst, largest request) + rate * t` passes. A burst
//! that is not written is what the rate gives in 100 ms. Groups that wait for the same bucket take turns by weight.
//! Other groups are limited as above. A wake-up that comes up to 5 ms late loses nothing: what it lets go is charged as
//! of the time at which it was due.
//!
//! *What counts.* A request as its client sent it, whether it is merged with others afterwards or sent to the drive in
//! pieces. Write-zeroes count with their full length, since the drive may have to write them.
//!
//! *Source.* Linux `block/blk-throttle.c`, 4.18 (RHEL 8) and 7.0; stated there: all of the above. *Our choice*,
//! where we differ: a changed limit begins no new slice, and the part of the slice that was used stays used (4.18 restarts, so
//! that each change lets another slice's worth through); the root group may have a ceiling, too; requests that pass the root leave in the order of their
//! release, not reads first; the kernel pauses after 32 requests of one level to release the lock, which changes no
//! order and is omitted; where the kernel checks at each slice whether a request fits, we compute that slice
//! directly; 7.0's separate queues for the two kinds of wait are one here.

mod ceilings;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::parts::levels::{Account, Arrival, Levels, TOP, cost, group_of, level_of};
use crate::parts::meter::{Limit, Rule};
use ceilings::Ceilings;
use iofair_core::contract::Limits;
use iofair_core::group::{Change, Groups};
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::key::Key;
use iofair_core::params::{Kind, Parameter};
use iofair_core::policy::{Build, Claim, Context, Gauges, HoldInfo, Judgement, Policy, Role, Row};
use iofair_core::request::Requests;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;

/// The row of the table.
pub static ROW: Row = Row {
    name: "throttle-max",
    short: "max",
    role: Role::Throttle,
    enforces: |key, _| matches!(key, Key::Max | Key::MaxTotal | Key::MaxBurst),
    summary: "ceilings in bytes and requests a second, hierarchical, as in blk-throttle",
    file: "throttle_max.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "No group exceeds its ceiling.",
            shown_by: "article-2018/figure-1",
        }],
        needs: "Ceilings. Minimums follow only if the sum of all ceilings is within the drive's \
            worst-case rate.",
        fails: &[Claim {
            says: "Bandwidth that a group does not use is lost: the total is {total of max-none \
                [random target, readers]} with five of ten clients active, without control {total of \
                none-none [random target, readers]}.",
            shown_by: "article-2018/figure-1",
        }],
    },
    build,
};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "slice",
        doc: "time over which a ceiling holds, in whole milliseconds",
        kind: Kind::Time,
        default: 100 * MILLISECOND,
        range: (MILLISECOND, 1000 * MILLISECOND),
    },
    Parameter::bool("linux_7", false, "accounts of Linux 7.0, not of 4.18"),
    Parameter::time("burst", Nanos::ZERO, "token buckets that save up this much; 0: time slices"),
];
const MILLISECOND: u64 = 1_000_000;

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let rule = Rule {
        slice_ms: build.values.time("slice").as_millis().max(1),
        linux_7: build.values.bool("linux_7"),
        ask_each_slice: false,
        joint: false,
        burst: build.values.time("burst"),
    };
    let levels = Levels::new(rule, Nanos::MAX, ());
    Box::new(ThrottleMax { levels, walk: Vec::new(), ceilings: Ceilings::default() })
}

const OVER: &str = "over the ceiling of {group}";

/// What limits a level.
#[derive(Clone, Copy, Default, Debug)]
struct Ceiling {
    limits: [Limit; 2],
    /// By direction, whether there is a ceiling here or above.
    limited: [bool; 2],
}

impl Account for Ceiling {
    type State = ();
    fn limit(&self, _state: &mut (), _now: Instant, direction: usize) -> Limit {
        self.limits[direction]
    }
}

/// What blk-throttle's accounts enforce. A ceiling of zero would hold for ever; it counts as one.
fn limits_by_direction(limits: &Limits) -> [Limit; 2] {
    if ceilings::applies(limits) {
        return [Limit::default(); 2];
    }
    [0, 1].map(|d| Limit([limits.bytes_per_s[d], limits.iops[d]].map(|l| l.map(|l| l.max(1)))))
}

struct ThrottleMax {
    levels: Levels<Ceiling>,
    walk: Vec<GroupId>,
    /// Comes after `levels`.
    ceilings: Ceilings,
}

impl Policy for ThrottleMax {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let request = &cx.requests[id];
        let (direction, mut at) = (request.operation.direction() as usize, level_of(request.group));
        if !self.levels.account(at).limited[direction] {
            self.levels.pass(cx.requests, id);
            return;
        }
        let cost = cost(cx.requests, id);
        let mut from = at;
        while at != TOP {
            // A further piece of a request that has passed does not wait again behind others.
            let free = cost[1] == 0 && self.levels.limit(cx.now, at, direction).is_free(cost);
            let holds = !free && self.levels.queued(at, direction) > 0;
            if holds || !free && self.levels.wait(cx.now, at, direction, cost).is_some() {
                self.levels.hold(cx.now, cx.requests, Arrival { at, from }, id);
                let sequence = cx.requests[id].sequence;
                let subject = Subject::Request { id, sequence };
                let values = [group_of(at), 0];
                cx.decide(subject, OVER, values);
                return;
            }
            self.levels.charge(cx.now, at, direction, cost);
            from = at;
            at = self.levels.parent(at);
        }
        self.levels.pass(cx.requests, id);
    }

    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        loop {
            if let Some(id) = self.ceilings.pop(cx.now, cx.requests) {
                return Some(id);
            }
            if !self.levels.has_passed() {
                while let Some(at) = self.levels.due(cx.now) {
                    self.levels.serve(cx.now, cx.requests, at);
                }
            }
            let id = self.levels.pop_passed(cx.requests)?;
            let Some(index) = self.ceilings.submit(cx.now, cx.requests, id) else {
                return Some(id);
            };
            let sequence = cx.requests[id].sequence;
            let values = [index as u64, 0];
            cx.decide(Subject::Request { id, sequence }, OVER, values);
        }
    }

    fn cancel(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let group = cx.requests[id].group;
        self.levels.cancelled(cx.now, cx.requests, level_of(group));
        self.ceilings.cancelled(cx.now, cx.requests, group);
        false
    }

    fn has_worker(&self, _client: ClientId) -> bool {
        true
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let wakeups = [self.levels.next_wakeup(), self.ceilings.next_wakeup()];
        wakeups.into_iter().flatten().min()
    }

    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) => self.add(cx, id),
            Change::GroupUpdated(id) => self.update(cx, id),
            Change::GroupRemoved(id) => {
                assert!(!self.levels.holds(level_of(id)), "{id:?} goes with requests inside");
                self.ceilings.remove(id);
            }
            _ => {}
        }
    }

    fn hand_over(&mut self) -> bool {
        self.levels.forget_requests();
        self.ceilings.forget_requests();
        true
    }

    fn hold_info(&self, _groups: &Groups, requests: &Requests, id: RequestId) -> HoldInfo {
        let (group, direction) = (requests[id].group, requests[id].operation.direction());
        let until = self.ceilings.ready_at(group, direction as usize);
        let until = until.max(self.levels.ready(level_of(group)));
        HoldInfo { until, ..HoldInfo::default() }
    }

    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("held_requests", self.held());
        gauges.gauge("levels_waiting_for", self.levels.timers() as u64);
    }
}

/// Groups come and change.
impl ThrottleMax {
    fn held(&self) -> u64 {
        self.levels.held() + self.ceilings.held()
    }
    fn add(&mut self, cx: &Context<'_>, id: GroupId) {
        let group = cx.groups.group(id);
        let parent = group.parent.map_or(TOP, level_of);
        let limits = limits_by_direction(&group.contract.max);
        let ceiling = Ceiling { limits, limited: [false; 2] };
        self.levels.add(cx.now, level_of(id), parent, ceiling);
        self.find_limited(level_of(id));
        self.ceilings.update(cx.now, cx.groups, cx.requests, id);
    }
    /// `true` if that changed.
    fn find_limited(&mut self, at: usize) -> bool {
        let above = self.levels.account(self.levels.parent(at)).limited;
        let ceiling = self.levels.account_mut(at);
        let limited = [0, 1].map(|d| above[d] || !ceiling.limits[d].is_none());
        core::mem::replace(&mut ceiling.limited, limited) != limited
    }
    fn update(&mut self, cx: &mut Context<'_>, id: GroupId) {
        self.ceilings.update(cx.now, cx.groups, cx.requests, id);
        let at = level_of(id);
        let limits = limits_by_direction(&cx.groups.group(id).contract.max);
        if self.levels.account(at).limits == limits {
            return;
        }
        let old = core::mem::replace(&mut self.levels.account_mut(at).limits, limits);
        self.find_limited_below(cx.groups, id);
        self.levels.limits_changed(cx.now, cx.requests, at, old);
    }
    fn find_limited_below(&mut self, groups: &Groups, id: GroupId) {
        let mut walk = core::mem::take(&mut self.walk);
        walk.push(id);
        while let Some(id) = walk.pop() {
            // Where nothing changes, nothing changes below.
            if self.find_limited(level_of(id)) {
                walk.extend_from_slice(&groups.group(id).children);
            }
        }
        self.walk = walk;
    }
}
