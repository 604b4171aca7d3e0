//! `cfq-group`: completely fair queueing in its last form, with groups that share by weight (`blkio.weight`, Linux
//! 4.18).
//!
//! **Idea.** As in `cfq`, the drive serves one queue at a time for a time slice, and CFQ idles for the queue when it
//! becomes empty. Above this, groups take turns by virtual time, and inside a group whole *workloads* take turns:
//! queues for which CFQ idles, queues for which it does not (seeky ones, and those of clients with long think times),
//! and buffered writes. For queues of the second workload, CFQ idles once, when the last of them becomes empty, so
//! many random readers keep a queueing drive busy and still get their time.
//!
//! ```text
//! fraction   = leaf_weight / children_weight * weight / parent's children_weight * ...     12 binary digits
//! a turn     vdisktime += time << 24 / fraction        time of the slice, at most what was allocated
//! group      = target_latency * fraction
//! workload   = group * its queues / all queues of its class
//! slice      = by ioprio as in cfq; if sync_slice * queues > group: slice * group / (sync_slice * queues)
//! ```
//!
//! `children_weight` is the sum over all active children: the groups inside, and the group's own clients as one more
//! child of weight `leaf_weight`.
//!
//! **Keeping a place in the tree.** A group without queues leaves the tree and returns behind the last group. So CFQ
//! idles for the last queue of a group for `group_idle`, even where it would not idle for the queue itself. If the
//! slice of that queue is over, or shorter than its process's think time, the slice is extended until the next
//! request arrives (`wait_busy`); that request belongs to the next turn. Both happen only if the group's think time
//! is known to be short enough.
//!
//! **Rules that differ from `cfq`:**
//! - A queue is seeky if more than 4 of its last 32 requests were more than 800 sectors from the previous one, or, on
//!   flash, shorter than 64 sectors; but not if four were queued at once. CFQ does not idle for a shorter time for
//!   seeky queues, because it idles for their workload.
//! - A queue may have half of `quantum` in the drive late in a slice, all of it early, and any number if it is the
//!   only queue (for reads: the only queue that reads).
//! - Preemption is limited to the group and the groups above it, except that synchronous requests preempt buffered
//!   writes of any group.
//! - Time that a slice took beyond its allocation is not charged to the group, but counts for the queue. A slice that
//!   ended before a completion costs the time since the queue became active; a slice of a group that only writes
//!   costs what was allocated.
//! - With `slice_idle = 0` on a drive that queues commands, turns cost requests instead of time (IOPS mode). On
//!   flash, this is the default.
//!
//! **Groups.** Weights are those of the contracts. A changed weight applies when the group next becomes active.
//! Groups have no class in CFQ, so the contract's class is ignored, and so are minimums. Without `prop`, all clients
//! are in one group.
//!
//! **Where to read what.** The path of a request: `parts/cfq`, `arrive`, `select`. Turns of groups: `groups`. Workloads
//! and slices: `order`. Idling: `idle`. Shared queues: `merge`.
//!
//! **Source.** Linux 4.18 `block/cfq-iosched.c`; `Documentation/block/cfq-iosched.txt`;
//! `Documentation/cgroup-v1/blkio-controller.txt`. *Stated there*: all of the above except what follows.
//!
//! **From memory** and not from a text at hand, therefore the least certain: the *deep* flag (four requests queued at
//! once make CFQ idle for a seeky queue, until the drive proves faster than the queue's client); the last form of the
//! test whether a drive queues commands; that `slice_idle` is 0 by default on flash (`idle_on_flash` disables this);
//! that the offset of a slice may be negative for the first queue of a group; and the order of some rules.
//!
//! **Our choice**, where we differ. Weights default to 100 as in cgroup v2 (500 in v1). `leaf_weight` is a parameter,
//! 100 for every group, because contracts have no such key. Times are in nanoseconds; where the original says "one
//! tick", it is a millisecond. The rest is as in `cfq`: no plugs, no dispatch list, think time of a queue, no hint
//! that a synchronous write is the last one, and half of the tags for buffered writes. Each group has its own queues
//! for buffered writes. A client that moves to another group gets a new queue there.

mod arrive;
mod groups;
mod idle;
mod merge;
mod order;
mod queue;
mod select;
mod settings;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::parts::cfq::queue::Member;
use crate::parts::cfq::{Cfq, Version};
use crate::parts::hw_tag::HwTag;
use iofair_core::id::GroupId;
use iofair_core::policy::{Build, Claim, Judgement, Policy, Role, Row};
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};

use queue::{Own, Workload};

/// The row of the table.
pub static ROW: Row = Row {
    name: "cfq-group",
    short: "cfq-group",
    role: Role::SHARING_SCHEDULER,
    summary: "completely fair queueing with groups that share time by weight (Linux 4.18)",
    file: "cfq_group/mod.rs",
    parameters: settings::PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Each group gets disk time by weight: a random reader gets {target of \
                prop-cfq-group [1 readers]} beside one sequential reader and {target of \
                prop-cfq-group [16 readers]} beside sixteen.",
            shown_by: "io-controller-2009/test-2 --stack prop-cfq-group",
        }],
        needs: "A hard disk; weights. It ignores the classes and minimums of groups.",
        fails: &[
            Claim {
                says: "On flash it counts requests instead of time: a random reader of weight 300 \
                    beside four sequential readers of weight 100 gets {target of prop-cfq-group \
                    [random target, readers]}; by time (`fair-cfq`) it gets {target of prop-fair-cfq \
                    [random target, readers]}.",
                shown_by: "article-2018/figure-1 --stack prop-cfq-group,prop-fair-cfq",
            },
            Claim {
                says: "`group_idle` leaves flash idle: five random readers get {total of \
                    prop-cfq-group [random target]}, with `none` {total of none-none [random \
                    target]}.",
                shown_by: "article-2018/figure-3 --stack none-none,prop-cfq-group",
            },
            Claim {
                says: "Slices shrink with the number of readers in a group, down to two revolutions \
                    of the disk: beside the random reader, 16 sequential readers get {reader of \
                    prop-cfq-group [16 readers]} together, with `fair-cfq` {reader of prop-fair-cfq \
                    [16 readers]}.",
                shown_by: "io-controller-2009/test-2 --stack prop-cfq-group,prop-fair-cfq",
            },
            Claim {
                says: "For the same reason, 16 sequential readers and one in a group of twice the \
                    weight share 1 : {target of prop-cfq-group / reader of prop-cfq-group [16 \
                    readers]}, with a total of {total of prop-cfq-group [16 readers]}; with \
                    `fair-cfq`, the total is {total of prop-fair-cfq [16 readers]}.",
                shown_by: "io-controller-2009/test-3 --stack prop-cfq-group,prop-fair-cfq",
            },
        ],
    },
    build,
};

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let version = Grouped {
        settings: settings::Settings::new(build.values),
        groups: Vec::new(),
        group_order: groups::GroupOrder::default(),
        services: order::ServiceArena::new(),
        serving: order::Serving {
            group: GroupId::ROOT,
            class: Class::BestEffort,
            workload: Workload::Async,
            until: None,
        },
        busy: 0,
        busy_sync: 0,
        last_late_completion: None,
    };
    let mut cfq = Cfq::new(build, HwTag::new(true), version);
    if !build.facts.rotational && !build.values.bool("idle_on_flash") {
        cfq.settings.slice_idle = Nanos::ZERO;
    }
    Box::new(cfq)
}

/// The state of this version.
struct Grouped {
    settings: settings::Settings,
    groups: Vec<groups::GroupState>,
    group_order: groups::GroupOrder,
    /// Queues of all service trees.
    services: order::ServiceArena,
    /// Which group, class and workload is served.
    serving: order::Serving,
    /// Queues in service trees, and those of them that somebody waits for.
    busy: u32,
    busy_sync: u32,
    /// When a synchronous request was last completed that had waited for `fifo_expire_sync`.
    last_late_completion: Option<Instant>,
}

impl Version for Grouped {
    type Own = Own;
    fn own(now: Instant, member: &Member) -> Own {
        Own::new(now, member)
    }
}

impl Cfq<Grouped> {
    /// Whether turns cost requests instead of time (IOPS mode).
    fn counts_requests(&self) -> bool {
        self.settings.slice_idle == Nanos::ZERO && self.hw_tag.queues()
    }
}
