//! `fair-noop`, `fair-deadline`, `fair-anticipatory`, `fair-cfq`: the *IO scheduler based IO controller* V10. Groups
//! share the drive's time by weight, and inside each group one of four schedulers of Linux 2.6.31 works as before.
//!
//! **Idea.** CFQ's fair queueing becomes a separate, hierarchical layer, below which any scheduler keeps its queues:
//! `noop`, `deadline` and `anticipatory` have one queue per group; `cfq` has one per client, and shared ones for
//! buffered writes. The layer gives the drive to one queue at a time for a *slice*, and charges the time to the queue
//! and to every group above it:
//!
//! ```text
//! charge        v = v + time * 1000 / weight
//! next          at each level the smallest v of the most urgent class, down to a queue
//! ```
//!
//! The layer shares time, not bytes: a group that seeks pays for its seeks. Each turn is one slice, so a group waits
//! for one queue of another group, however many queues that group has. With `none` above it (`none-fair-cfq`), all
//! clients are in the root group: in this *flat mode*, the first three have a single queue, and `cfq` is CFQ.
//!
//! **A turn.** A slice is 100 ms, or 40 ms for buffered writes, plus or minus a fifth for each priority level away
//! from 4; at most 180 ms. It begins with the first completion. The turn ends when the slice is used up, when the
//! queue is empty and not worth idling for, or when another queue preempts it. It costs the time used, but at most
//! the slice, because otherwise a queue whose last request was slow would miss a round. With `fairness`, the turn
//! lasts, and costs, until the drive has completed everything.
//!
//! **Idling.** The layer idles for `slice_idle` for an empty queue with an idle window (`cfq`: short think time and,
//! if the drive queues commands, no seeks). It idles for `group_idle` for a queue without idle window if its group
//! would otherwise leave the tree, because a group that leaves loses its place, and therefore its share. For the same
//! reason, if a queue is empty when its slice ends (which is always the case for a reader with queue depth 1), the
//! layer idles once more, until the queue is *busy again*, and only then ends the turn; for a queue with an idle
//! window, also with `group_idle` 0. `anticipatory` tells the layer when it anticipates; its queue is not expired
//! then, not even at the end of its slice. After a request that says that nothing follows (`NO_IDLE`, the kernel's
//! `rq_noidle`), the layer only idles for a group that would leave.
//!
//! **Coming back.** A queue that leaves is remembered while its v is larger than all others. A stream that used its
//! slice comes back behind queues that have not used theirs; a queue that used little comes back earlier. Queues that
//! are not remembered go to the end.
//!
//! **Preemption.** A request preempts if it is of a more urgent class, among queues of a group or among sibling
//! groups; if it is a read and buffered writes are served, or a read of metadata while other reads are served, in the
//! same group or in sibling groups; and, in the same group, if it is close to the head while the layer idles for
//! another queue. *Late preemption*: a reader whose first request arrives while its group is not served goes before
//! the group's writers in the group's next turn.
//!
//! **Stated by the source** (Vivek Goyal, "IO scheduler based IO controller V10", 24 September 2009): the layer and
//! its four schedulers, one queue per group for three of them; disk time; weights and slices, 180 ms at level 0; the
//! cache of recently served queues and its three cases; idling until busy, with `group_idle` 0, too; late preemption;
//! readers over writers and metadata over reads in sibling groups; the signal of `anticipatory`; the cost of at most
//! the slice unless `fairness`. From the same author's patch of 28 August 2009 ("group idle", of V9): `group_idle`
//! and the extra period, as described above.
//!
//! **Derived**, because the patches themselves were not available. From the groups of Linux 2.6.33 to 4.20
//! (`block/cfq-iosched.c`), which descend from this layer: virtual disk time, the smallest first, unknown queues
//! last; the cost counts from the first completion, or from the start of the turn if that was the only one, and is at
//! least a clock `tick`. Not taken from there: to idle until busy already in the last tick of a slice. That came in
//! December 2009 ("Take care of corner cases of group losing share due to deletion", Linux 2.6.33); before that, a
//! queue had to have used its slice. If the slice ends while the layer idles for the next request, the group is kept
//! until idling ends. From BFQ, which the layer descends from: which queues are remembered, and until when; one tree
//! per class, the idle class last. From CFQ 2.6.31: slices, levels, `quantum`, idle windows, seeks, close requests.
//! Slices do not shrink with the number of queues: the published worst latencies grow by 238 ms per reader, one slice
//! of each group, up to sixteen readers.
//!
//! **Our choice.** The weight of a queue is proportional to its slice; the default level has the weight of a group of
//! the default weight. Queues then take turns as in CFQ, and flat mode is CFQ and gives its published numbers.
//! Preemption between groups needs a group that is due: it never gets more than its share, and its place does not
//! move. Only one reader per group is remembered for late preemption. Classes are strict. Idling for a group ends
//! with any request of the group. With `fairness`, the layer waits until the drive has completed everything (that the
//! parameter had this effect is from memory). `group_idle` is 8 ms by default, as in the tests with writers; those
//! with readers used 1 ms. The tick is 4 ms (HZ 250, the kernel's default). In Test 1, two to thirty-two writers get
//! 20 to 30 requests for each turn of the reader, at a cost of 4 to 5 ms out of 100 each, although each of their
//! turns ends as soon as its only request is at the drive; with a tick of 1 ms the reader loses a fifth to a third.
//! Jumps between queues that work close together are not implemented.
//!
//! **Tags** are not shared: V10 limited requests by group, while here all groups use the same tags. If more writes
//! are outstanding than there are tags, a reader of another group waits for one.

mod arrive;
mod leaf;
mod members;
mod queue;
mod service;
mod settings;
#[cfg(test)]
mod tests;
mod turn;

use alloc::boxed::Box;
use alloc::vec::Vec;

use iofair_core::group::{Change, Groups};
use iofair_core::id::RequestId;
use iofair_core::key::Key;
use iofair_core::policy::{Build, Claim, Context, Gauges, HoldInfo, Judgement, Policy, Role, Row};
use iofair_core::request::Requests;
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;
use iofair_policies::parts::owners::Owners;

use leaf::Leaf;
use leaf::anticipatory::Anticipatory;
use leaf::cfq::Cfq;
use leaf::deadline::Deadline;
use leaf::noop::Noop;
use members::GroupState;
use queue::{QueueId, Queues};
use service::Hierarchy;
use settings::Settings;
use turn::Turn;

/// The layer over `noop`.
pub static ROW_NOOP: Row = Row {
    name: "fair-noop",
    short: "fair-noop",
    role: Role::SHARING_SCHEDULER,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight | Key::Class),
    summary: "disk time shared by groups; first come, first served in each (IO controller V10)",
    file: "fair/mod.rs",
    parameters: &settings::NOOP,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Each group gets drive time by weight: a random reader of weight 300 gets {target \
                of prop-fair-noop [random target, readers]} beside four sequential readers of weight \
                100, alone {target of none-none [0 readers] in survey-2019/no-control}.",
            shown_by: "article-2018/figure-1 --stack prop-fair-noop",
        }],
        needs: "A hard disk; weights; one stream per group.",
        fails: &[
            Claim {
                says: "Readers of the same group cause seeks for each other: 16 sequential readers \
                    get {reader of prop-fair-noop [16 readers]} together, with `fair-cfq` {reader of \
                    prop-fair-cfq [16 readers]}.",
                shown_by: "io-controller-2009/test-3 --stack prop-fair-noop,prop-fair-cfq",
            },
            Claim {
                says: "Tags are not shared by group: beside four buffered writers, a random reader \
                    gets {target of prop-fair-noop [random target, writers]}, with `none` {target of \
                    none-none [random target, writers]}.",
                shown_by: "article-2018/figure-1 --stack none-none,prop-fair-noop",
            },
        ],
    },
    build: build::<Noop>,
};

/// The layer over `deadline`.
pub static ROW_DEADLINE: Row = Row {
    name: "fair-deadline",
    short: "fair-deadline",
    role: Role::SHARING_SCHEDULER,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight | Key::Class),
    summary: "disk time shared by groups, deadline in each (IO controller V10)",
    file: "fair/mod.rs",
    parameters: &settings::DEADLINE,
    overrides: &[],
    judgement: Judgement {
        promises: &[
            Claim {
                says: "Each group gets drive time by weight: a random reader of weight 300 gets \
                    {target of prop-fair-deadline [random target, readers]} beside four sequential \
                    readers of weight 100, alone {target of none-none [0 readers] in \
                    survey-2019/no-control}.",
                shown_by: "article-2018/figure-1 --stack prop-fair-deadline",
            },
            Claim {
                says: "Guests with weights 1000 and 500 that write through a virtual disk, one \
                    request at a time, share {target of prop-fair-deadline / guest of \
                    prop-fair-deadline} : 1.",
                shown_by: "io-controller-2009/test-4",
            },
        ],
        needs: "A hard disk; weights; one stream per group.",
        fails: &[
            Claim {
                says: "Readers of the same group cause seeks for each other: 16 sequential readers \
                    get {reader of prop-fair-deadline [16 readers]} together, with `fair-cfq` \
                    {reader of prop-fair-cfq [16 readers]}.",
                shown_by: "io-controller-2009/test-3 --stack prop-fair-deadline,prop-fair-cfq",
            },
            Claim {
                says: "Requests of one group that are still in the drive use the time of the next \
                    group: a random reader gets {target of prop-fair-deadline [1 writers]} beside \
                    one random writer, {target of prop-fair-deadline [32 writers]} beside 32.",
                shown_by: "io-controller-2009/every-scheduler-test-1",
            },
            Claim {
                says: "Tags are not shared by group: beside four buffered writers, a random reader \
                    gets {target of prop-fair-deadline [random target, writers]}, with `none` \
                    {target of none-none [random target, writers]}.",
                shown_by: "article-2018/figure-1 --stack none-none,prop-fair-deadline",
            },
        ],
    },
    build: build::<Deadline>,
};

/// The layer over `anticipatory`.
pub static ROW_ANTICIPATORY: Row = Row {
    name: "fair-anticipatory",
    short: "fair-anticipatory",
    role: Role::SHARING_SCHEDULER,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight | Key::Class),
    summary: "disk time shared by groups, anticipatory in each (IO controller V10)",
    file: "fair/mod.rs",
    parameters: &settings::ANTICIPATORY,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Each group gets drive time by weight, and readers of a group are served one \
                after the other: eight get {reader of prop-fair-anticipatory} together, with \
                `fair-noop` {reader of prop-fair-noop}.",
            shown_by: "io-controller-2009/every-scheduler",
        }],
        needs: "A hard disk; weights.",
        fails: &[
            Claim {
                says: "Idling leaves flash unused: five random readers get {total of \
                    prop-fair-anticipatory [random target]}, with `none` {total of none-none [random \
                    target]}.",
                shown_by: "article-2018/figure-3 --stack none-none,prop-fair-anticipatory",
            },
            Claim {
                says: "Tags are not shared by group: beside four buffered writers, a random reader \
                    gets {target of prop-fair-anticipatory [random target, writers]}, with `none` \
                    {target of none-none [random target, writers]}.",
                shown_by: "article-2018/figure-1 --stack none-none,prop-fair-anticipatory",
            },
        ],
    },
    build: build::<Anticipatory>,
};

/// The layer over `cfq`.
pub static ROW_CFQ: Row = Row {
    name: "fair-cfq",
    short: "fair-cfq",
    role: Role::SHARING_SCHEDULER,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight | Key::Class),
    summary: "disk time shared by groups, and by clients in each (IO controller V10)",
    file: "fair/mod.rs",
    parameters: &settings::CFQ,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Each group gets disk time by weight: a group of twice the weight gets {target of \
                prop-fair-cfq / reader of prop-fair-cfq [1 readers]} : 1 beside one reader, {target \
                of prop-fair-cfq / reader of prop-fair-cfq [16 readers]} : 1 beside sixteen. Without \
                groups it is `cfq`.",
            shown_by: "io-controller-2009/test-3",
        }],
        needs: "A hard disk; weights.",
        fails: &[
            Claim {
                says: "Buffered writers with weights 1000 and 500 share {target of prop-fair-cfq / \
                    writer of prop-fair-cfq [one flusher, in the owners' names]} : 1, because the \
                    flusher does not keep the heavier queue filled.",
                shown_by: "io-controller-2009/test-5",
            },
            Claim {
                says: "Idling leaves flash unused: five random readers get {total of prop-fair-cfq \
                    [random target]}, with `none` {total of none-none [random target]}.",
                shown_by: "article-2018/figure-3 --stack none-none,prop-fair-cfq",
            },
            Claim {
                says: "Tags are not shared by group: beside four buffered writers, a random reader \
                    gets {target of prop-fair-cfq [random target, writers]}, with `none` {target of \
                    none-none [random target, writers]}.",
                shown_by: "article-2018/figure-1 --stack none-none,prop-fair-cfq",
            },
        ],
    },
    build: build::<Cfq>,
};

fn build<L: Leaf>(build: &Build<'_>) -> Box<dyn Policy + Send> {
    Box::new(Fair::<L>::new(build))
}

/// The layer's whole state.
struct Fair<L: Leaf> {
    settings: Settings,
    /// Whether it shares between groups.
    by_groups: bool,
    leaf: L,
    service: Hierarchy,
    queues: Queues<L::Queue>,
    /// Queues by the index of their entity.
    queue_of: Vec<QueueId>,
    /// Each live request's queue, by its slot.
    owners: Owners<QueueId>,
    clients: Vec<Option<QueueId>>,
    groups: Vec<GroupState>,
    turn: Option<Turn>,
    /// Nothing was to be sent when last asked, and nothing happened since.
    holds: bool,
    /// When that was.
    asked: Instant,
    busy_queues: u32,
    /// Requests that the drive has: buffered writes, and what is waited for.
    in_driver: [u32; 2],
    /// The end of what was sent last.
    head: Sectors,
}

impl<L: Leaf> Fair<L> {
    fn new(build: &Build<'_>) -> Self {
        Self {
            settings: Settings::new(build.values),
            by_groups: build.groups,
            leaf: L::new(build),
            service: Hierarchy::new(),
            queues: Queues::default(),
            queue_of: Vec::new(),
            owners: Owners::new(),
            clients: Vec::new(),
            groups: Vec::new(),
            turn: None,
            holds: false,
            asked: Instant::ZERO,
            busy_queues: 0,
            in_driver: [0; 2],
            head: Sectors::ZERO,
        }
    }
}

impl<L: Leaf> Policy for Fair<L> {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.on_submit(cx, id);
    }
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        self.on_try_merge(cx, id)
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.on_dispatch(cx)
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.on_complete(cx, id);
    }
    fn next_wakeup(&self) -> Option<Instant> {
        let wait = self.turn.as_ref().and_then(Turn::waits_until);
        wait.into_iter().chain(self.leaf_wakeup()).min()
    }
    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        self.on_change(cx, change);
    }
    fn hold_info(&self, _groups: &Groups, _requests: &Requests, _id: RequestId) -> HoldInfo {
        let serves = self.turn.as_ref().map(|turn| self.subject(turn.queue));
        HoldInfo { serves, idles_until: self.next_wakeup(), ..HoldInfo::default() }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("fair_busy_queues", u64::from(self.busy_queues));
        gauges.gauge("fair_sync_in_drive", u64::from(self.in_driver[1]));
        gauges.gauge("fair_async_in_drive", u64::from(self.in_driver[0]));
    }
}
