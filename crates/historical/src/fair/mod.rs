//! `fair-noop`, `fair-deadline`, `fair-anticipatory`, `fair-cfq`: the *IO scheduler based IO controller*
//! V10. Groups share the drive's time by weight, and inside each group one of four schedulers of Linux
//! 2.6.31 goes on as it always did.
//!
//! **Idea.** CFQ's fair queueing is taken out of CFQ and made a layer of its own, hierarchical, under which
//! any scheduler keeps its queues: `noop`, `deadline` and `anticipatory` one a group, `cfq` one a client
//! and shared ones for buffered writes. The layer gives the drive to one queue at a time for a *slice*, and
//! charges the queue and every group above it for the time:
//!
//! ```text
//! charge        v = v + time * 1000 / weight
//! who is next   at each level the smallest v of the most urgent class, down to a queue
//! ```
//!
//! What counts is time, not bytes: a group that seeks pays for its seeks. With one slice a turn a group waits
//! for another group's one queue, however many queues that has. With `none` above it (`none-fair-cfq`) all
//! clients are in the root group: *flat mode*, one queue for the first three leaves, CFQ for the last.
//!
//! **A turn.** A slice is 100 ms, 40 ms for buffered writes, a fifth more or less for each priority level
//! away from 4: at most 180 ms. It runs from the first answer on. The turn ends when the slice is used,
//! when the queue is empty and not worth waiting for, or when another preempts. It costs the time used, at
//! most the slice, for else a queue whose last request was slow would miss a round; with `fairness` it
//! lasts, and costs, until the drive has answered everything.
//!
//! **Waiting.** An empty queue with an idle window (`cfq`: it thinks shortly and, if the drive queues
//! commands, does not seek) is waited for, `slice_idle`. A queue without one whose group would leave the
//! tree with it is waited for, `group_idle`: a group that leaves loses its place, and hence its share. For
//! the same reason a queue whose slice is over while it is empty (a reader that sends one request at a
//! time always is) is waited for once more, until it is *busy again*, and only then makes way; for one with
//! an idle window that holds with `group_idle` 0 too. `anticipatory` says when it anticipates, and is
//! not expired meanwhile, not even at the end of its slice. After a request whose sender says that nothing
//! follows (`NO_IDLE`, the kernel's `rq_noidle`) only a group that would leave is waited for.
//!
//! **Coming back.** A queue that leaves is remembered while its v is ahead of all others: a stream that
//! used its slice comes back behind those who have not, who used little comes back earlier. Whoever is not
//! remembered goes to the end.
//!
//! **Preempting.** A more urgent class, of queues in a group or of sibling groups; a reader over buffered
//! writes, and a read of metadata over other reads, in the same group or in sibling groups; in a group also
//! a request close to the head while another queue is waited for. *Late preemption*: a reader that gets its
//! first request while its group is not served goes before the group's writers at the group's next turn.
//!
//! **Stated by the source** (Vivek Goyal, "IO scheduler based IO controller V10", 24 September 2009): the
//! layer and its four leaves, one queue a group for three of them; disk time; weights and slices, 180 ms at
//! level 0; the cache of recently served queues and its three cases; busy waiting, with `group_idle` 0
//! too; late preemption; readers over writers and metadata over reads in sibling groups; anticipatory's
//! word; the cost of at most the slice unless `fairness`. From the same author's patch of 28 August 2009
//! ("group idle", of V9): `group_idle` and the extra period, in the words above.
//!
//! **Derived**, as the patches themselves were not to be had. From the groups of Linux 2.6.33 to 4.20
//! (`block/cfq-iosched.c`), its descendant: virtual disk time, the smallest first, the unknown to the end; cost
//! from the first answer on, or from the turn's begin if that was the only one, and at least a clock
//! `tick`. Not its rule to wait until busy already in the last tick of a slice: that came in December 2009
//! ("Take care of corner cases of group losing share due to deletion", Linux 2.6.33); until then a queue had to have
//! used its slice. If that ends while the next request is waited for, its group is kept until the wait is over.
//! From BFQ, its ancestor: what is remembered, until when; a tree for each class, the idle class last. From
//! CFQ 2.6.31: slices, levels, `quantum`, idle windows, seeks, close requests.
//! Slices do not shrink with the number of queues: the published worst latencies grow by 238 ms a reader,
//! a slice of each group, up to sixteen readers.
//!
//! **Our choice.** A queue weighs in proportion to its slice, the default level as much as a group of the
//! default weight: so turns go round as in CFQ, and flat mode is CFQ, whose published numbers it gives. A
//! preemption between groups needs a group that is due: it never takes more than its share, nor does it
//! move a group. Only one reader a group is remembered for late preemption. Classes are strict. A wait
//! for a group ends with any request of the group. With `fairness` the drive is let finish (that the knob
//! did so is a memory, not in the text). `group_idle` is 8 ms by default, as in the tests with writers; those
//! with readers used 1 ms. The tick is 4 ms (HZ 250, the kernel's default): in Test 1 two to thirty-two writers
//! get 20 to 30 requests through for each turn of the reader, 4 to 5 ms each of 100, though each turn of
//! theirs ends as soon as its one request is at the drive; with 1 ms the reader loses a fifth to a third. Not
//! there: jumps between queues that work close together.
//!
//! **Requests for tags** are not shared: V10 limited requests by group, here all draw on the same tags. With
//! more writes outstanding than there are tags a reader of another group waits for one.

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

use iofair_core::group::Change;
use iofair_core::policy::{Build, Claim, Context, Gauges, Judgement, Policy, Role, Row, Standing};
use iofair_core::request::{RequestId, Requests};
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;

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
    /// Does it share between groups?
    by_groups: bool,
    leaf: L,
    service: Hierarchy,
    queues: Queues<L::Queue>,
    /// Queues by the index of their entity.
    queue_of: Vec<QueueId>,
    /// Each live request's queue, by its slot.
    owners: Vec<QueueId>,
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
            owners: Vec::new(),
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
    fn standing(&self, _requests: &Requests, _id: RequestId) -> Standing {
        let serves = self.turn.as_ref().map(|turn| self.subject(turn.queue));
        Standing { serves, idles_until: self.next_wakeup(), ..Standing::default() }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("fair_busy_queues", u64::from(self.busy_queues));
        gauges.gauge("fair_sync_in_drive", u64::from(self.in_driver[1]));
        gauges.gauge("fair_async_in_drive", u64::from(self.in_driver[0]));
    }
}
