//! `io-latency` (`lat`): a latency target for a group, kept by shortening the queues of its peers, as in the
//! kernel's io.latency.
//!
//! *Idea.* At the end of each window, a group with a target (the contract's `latency`) checks whether its requests
//! were fast enough. If not, all its siblings with a higher target or none are *scaled down*: each may have half as
//! many requests in flight as before, down to one. When the target is met for a while, they get back a sixteenth of
//! the drive's depth at a time. Requests without a slot wait, first come, first served.
//!
//! *Windows.* A window is 16 targets long, from 100 ms to 1 s, and ends with the first completion after that. The
//! target is met if, on flash, less than a tenth of the requests (or one, of fewer than twenty) took the target or
//! longer; on hard disks, if the mean is at most the target. The time counts from submission and includes the wait
//! in this policy. Groups also count their children's requests, each against its own target.
//!
//! *Scaling.* Each parent holds a `cookie` for its children: how far below its start (1,000,000) they are, in
//! requests of the drive's depth `qd`:
//!
//! ```text
//! down   cookie -= qd / 4 while the distance is at most qd, then 1 at a time until 2 qd
//! up     cookie += qd / 16, or 1 while the distance is above qd; at the start all limits end
//! ```
//!
//! There is at most one step in 500 ms. Down: when a group with the lowest target so far misses it; that group
//! becomes the *culprit*. Up: when the culprit itself meets its target, with at least 5 completions. A culprit that
//! was inactive for 5 s is forgotten, and then each second is a step up (requests set the timer). A child compares
//! the cookie with its own copy when its requests arrive. If the cookie is lower, the child halves its depth, from
//! `qd` at first, unless its own target is as low as the culprit's, or it has a target and had at most 5 % of its
//! siblings' completions. If the cookie is higher, its depth grows by `qd / 16`.
//!
//! *Requests that must not wait.* Metadata is dispatched in the root's name and never waits. If the depth is one
//! already, a further step down is counted in the group's `use_delay` instead. Each metadata request that completes
//! before the target, in a group with limited depth, adds the difference to the group's delay. A client that
//! submitted anything while `use_delay` is above zero sleeps for that delay, at most 250 ms, after the completion.
//! The time slept is subtracted each second.
//!
//! *Parameter.* `linux_4_18`: the rules of the first kernels with io.latency. The mean is used on every drive. Each
//! window is judged on its own; later kernels accumulate completions from one possible step to the next, and
//! require the last window and all of these to be good. Any group that misses its target causes a step down, and
//! one with a lower target than the culprit's need not wait for 500 ms.
//!
//! *Source.* Linux `block/blk-iolatency.c`, 7.0 and RHEL's 4.18, and the delays of `block/blk-cgroup.c`; J. Bacik's
//! patches of July 2018. Stated there: all of the above. *Our choice*, where we differ: `qd` is the drive's depth,
//! as in 4.18; 4.20 and later use `nr_requests`, which is the same unless there is an I/O scheduler. A group with
//! `use_delay` still reads ahead (`blk_cgroup_congested`). The return to user space, where clients sleep, is taken
//! to be the completion, and a client that submits asynchronous writes is taken for a flusher, which never returns
//! there. Requests that merge with an earlier one pass this policy first, while the kernel merges before it
//! throttles.

mod delay;
mod level;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use delay::Sleepers;
use iofair_core::group::Change;
use iofair_core::id::{GroupId, RequestId};
use iofair_core::key::Key;
use iofair_core::params::Parameter;
use iofair_core::parts::fifo::Fifo;
use iofair_core::policy::{Build, Claim, Context, Gauges, Judgement, Policy, Role, Row};
use iofair_core::request::Flags;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::{EventKind, Subject};
use level::{Level, Rule, START, Step, UNLIMITED};

/// The row of the table.
pub static ROW: Row = Row {
    name: "io-latency",
    short: "lat",
    role: Role::Throttle,
    enforces: |key, _| matches!(key, Key::Latency),
    summary: "latency targets, by shortening the queues of siblings, as in the kernel's io.latency",
    file: "io_latency/mod.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "A latency target for a group, at the cost of siblings with a higher target or \
                none: beside 15 sequential readers, the mean latency of a random reader over ten \
                seconds is {target mean of lat-none [ten seconds]}. The first two seconds are as \
                slow as with `none`: {target mean of none-none [ten seconds]}.",
            shown_by: "comparison-2019/plextor-ten-seconds",
        }],
        needs: "Targets close to what the drive can do, and sustained load: each adjustment takes \
            half a second or more.",
        fails: &[
            Claim {
                says: "It has no effect within two seconds: beside 15 sequential readers, the mean \
                    latency of a random reader is {target mean of lat-none [readers]}, with `none` \
                    {target mean of none-none [readers]}.",
                shown_by: "comparison-2019/plextor",
            },
            Claim {
                says: "It guarantees no bandwidth, and does not isolate siblings with the same \
                    target.",
                shown_by: "",
            },
        ],
    },
    build,
};

const PARAMETERS: &[Parameter] = &[Parameter::bool(
    "linux_4_18",
    false,
    "the rules of 4.18 and 4.19: the mean of each window, also on flash",
)];

/// From a request to the timer that looks for culprits to forget.
const TIMER: Nanos = Nanos::from_secs(1);

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    Box::new(IoLatency {
        rule: Rule {
            by_percentile: !build.facts.rotational && !build.values.bool("linux_4_18"),
            linux_4_18: build.values.bool("linux_4_18"),
        },
        depth: i64::from(build.facts.depth.max(1)),
        levels: Vec::new(),
        targets: 0,
        counted: Vec::new(),
        passed: Fifo::new(),
        held: 0,
        timer: None,
        sleepers: Sleepers::default(),
    })
}

struct IoLatency {
    rule: Rule,
    /// Of the drive.
    depth: i64,
    /// By group.
    levels: Vec<Level>,
    /// Groups with a target.
    targets: u32,
    /// By slot, whether the request is counted as in flight.
    counted: Vec<bool>,
    /// On their way out.
    passed: Fifo,
    /// Requests that wait for a slot.
    held: u64,
    timer: Option<Instant>,
    sleepers: Sleepers,
}

impl Policy for IoLatency {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.catch_up(cx);
        if self.targets == 0 {
            self.passed.push_back(cx.requests, id);
        } else if self.sleepers.hold(cx.requests, id) {
            let subject = Subject::Request { id, sequence: cx.requests[id].sequence };
            let rule = "its client sleeps, to make up for what a sibling misses; {} sleep now";
            cx.decide(subject, rule, [self.sleepers.len() as u64, 0]);
        } else {
            self.enter(cx, id);
        }
    }

    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.catch_up(cx);
        self.passed.pop_front(cx.requests)
    }

    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.catch_up(cx);
        let request = &cx.requests[id];
        let (group, in_root) = (request.group, request.flags.has(Flags::METADATA));
        let mut completed = 0;
        for (part_id, part) in cx.requests.parts(id) {
            let counted = self.counted.get_mut(part_id.0 as usize);
            if !counted.is_some_and(core::mem::take) {
                continue;
            }
            completed += 1;
            let mut at = group;
            while at != GroupId::ROOT {
                let level = &mut self.levels[at.index()];
                level.in_flight -= 1;
                let is_over = level.completed(cx.now, cx.now.since(part.submitted), in_root);
                let parent = level.parent;
                let step = if is_over { self.judge(cx.now, at, parent) } else { None };
                if let Some(step) = step {
                    let values = self.step_values(parent);
                    let kind = EventKind::Decision { rule: step.rule(), values };
                    cx.trace.push(cx.now, Subject::Group(at), kind);
                }
                at = parent;
            }
            if self.sleepers.is_marked(part.client) {
                let delay = self.delay(cx.now, group);
                self.sleepers.sleep(part.client, cx.now, delay);
            }
        }
        let mut at = group;
        while at != GroupId::ROOT {
            for _ in 0..completed {
                self.wake_one(cx, at.index());
            }
            at = self.levels[at.index()].parent;
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        [self.timer, self.sleepers.next_wakeup()].into_iter().flatten().min()
    }

    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) => self.add(cx, id),
            Change::GroupUpdated(id) => {
                let target = cx.groups.group(id).contract.latency.read;
                self.set_target(cx, id, target);
            }
            Change::GroupRemoved(id) => {
                assert!(self.levels[id.index()].waiting.is_empty(), "{id:?} goes with requests");
                self.set_target(cx, id, None);
                let parent = self.levels[id.index()].parent;
                self.levels[parent.index()].children.reset();
            }
            Change::ClientAdded(id) => self.sleepers.add(id),
            _ => {}
        }
    }

    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("held_requests", self.held);
        gauges.gauge("sleeping_clients", self.sleepers.len() as u64);
        let limited = self.levels.iter().map(|level| level.depth).filter(|d| *d != UNLIMITED);
        gauges.gauge("groups_limited", limited.clone().count() as u64);
        gauges.gauge("smallest_depth", limited.min().unwrap_or(0) as u64);
    }
}

/// Groups and their targets.
impl IoLatency {
    fn add(&mut self, cx: &mut Context<'_>, id: GroupId) {
        let group = cx.groups.group(id);
        let parent = group.parent.unwrap_or(GroupId::ROOT);
        while self.levels.len() <= id.index() {
            self.levels.push(Level::new(cx.now, GroupId::ROOT, START, self.rule));
        }
        let cookie = self.levels[parent.index()].children.cookie;
        self.levels[id.index()] = Level::new(cx.now, parent, cookie, self.rule);
        let target = group.contract.latency.read;
        self.set_target(cx, id, target);
    }
    fn set_target(&mut self, cx: &mut Context<'_>, id: GroupId, target: Option<Nanos>) {
        // As the root group has no siblings, a target of its own means nothing.
        let target = target.filter(|_| id != GroupId::ROOT).unwrap_or(Nanos::ZERO);
        let level = &mut self.levels[id.index()];
        let old = level.target;
        if old == target {
            return;
        }
        level.set_target(target);
        let parent = level.parent;
        self.levels[parent.index()].children.reset();
        self.targets += u32::from(target != Nanos::ZERO);
        self.targets -= u32::from(old != Nanos::ZERO);
        if self.targets == 0 {
            self.free_all(cx);
        }
    }
    /// Nobody has a target any more: nobody waits.
    fn free_all(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.levels.len() {
            self.levels[index].unlimit();
        }
        for index in 0..self.levels.len() {
            self.wake_all(cx, index);
        }
        while let Some(id) = self.sleepers.wake(Instant::MAX, cx.requests) {
            self.enter(cx, id);
        }
        self.timer = None;
    }
}

/// A request's way up.
impl IoLatency {
    fn enter(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let slot = id.0 as usize;
        if self.counted.len() <= slot {
            self.counted.resize(slot + 1, false);
        }
        self.counted[slot] = true;
        if self.timer.is_none() && self.targets > 0 {
            self.timer = Some(cx.now + TIMER);
        }
        let group = cx.requests[id].group;
        self.climb(cx, id, group);
    }
    /// Takes a slot at each level from `at` up, or waits where there is none.
    fn climb(&mut self, cx: &mut Context<'_>, id: RequestId, mut at: GroupId) {
        let request = &cx.requests[id];
        let (client, returns) = (request.client, request.is_sync());
        let (sequence, in_root) = (request.sequence, request.flags.has(Flags::METADATA));
        while at != GroupId::ROOT {
            self.follow(cx, at);
            let level = &mut self.levels[at.index()];
            if level.use_delay > 0 && (returns || in_root) {
                self.sleepers.mark(client);
            }
            if !in_root && (!level.waiting.is_empty() || !level.has_room()) {
                level.waiting.push_back(cx.requests, id);
                self.held += 1;
                let values = [at.index() as u64, level.depth as u64];
                let subject = Subject::Request { id, sequence };
                cx.decide(subject, "as many in flight as {group} may have: {}", values);
                return;
            }
            level.in_flight += 1;
            at = level.parent;
        }
        self.passed.push_back(cx.requests, id);
    }
    /// The first waiter of a level takes a slot, if there is one.
    fn wake_one(&mut self, cx: &mut Context<'_>, at: usize) -> bool {
        let level = &mut self.levels[at];
        if !level.has_room() {
            return false;
        }
        let Some(id) = level.waiting.pop_front(cx.requests) else { return false };
        level.in_flight += 1;
        self.held -= 1;
        let parent = level.parent;
        self.climb(cx, id, parent);
        true
    }
    /// Wakes all requests that wait at the level with this index.
    fn wake_all(&mut self, cx: &mut Context<'_>, at: usize) {
        while self.wake_one(cx, at) {}
    }
}

/// Scaling.
impl IoLatency {
    /// A request of the group arrives: adopts the parent's cookie, and traces a change of its depth.
    fn follow(&mut self, cx: &mut Context<'_>, at: GroupId) {
        let parent = self.levels[at.index()].parent;
        let children = self.levels[parent.index()].children;
        let level = &mut self.levels[at.index()];
        if level.follow(&children, self.depth) {
            let values = [level.depth.min(self.depth) as u64, level.use_delay];
            cx.decide(Subject::Group(at), "follows its siblings' culprit: depth now {}", values);
            self.wake_all(cx, at.index());
        }
    }
    /// The window of a group with a target is over.
    fn judge(&mut self, now: Instant, at: GroupId, parent: GroupId) -> Option<Step> {
        let mut children = self.levels[parent.index()].children;
        let step = self.levels[at.index()].judge(now, at, &mut children, self.depth);
        self.levels[parent.index()].children = children;
        step
    }
    /// For the trace: how far the cookie is down, and the target that was missed.
    fn step_values(&self, parent: GroupId) -> [u64; 2] {
        let children = &self.levels[parent.index()].children;
        [(START - children.cookie) as u64, children.target.0]
    }
    /// What was due by now: the timer, and clients that have slept enough.
    fn catch_up(&mut self, cx: &mut Context<'_>) {
        if self.timer.is_some_and(|timer| timer <= cx.now) {
            self.timer = None;
            for level in &mut self.levels {
                level.children.forget(cx.now, self.depth);
            }
        }
        while let Some(id) = self.sleepers.wake(cx.now, cx.requests) {
            self.enter(cx, id);
        }
    }
    /// How long a client of this group must sleep.
    fn delay(&mut self, now: Instant, group: GroupId) -> Nanos {
        let (mut at, mut longest) = (group, Nanos::ZERO);
        while at != GroupId::ROOT {
            let level = &mut self.levels[at.index()];
            if level.use_delay > 0 {
                longest = longest.max(level.delay.owed(now, level.use_delay));
            }
            at = level.parent;
        }
        longest.min(delay::SLEEP_MAX)
    }
}
