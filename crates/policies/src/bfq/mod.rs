//! `bfq`: budget fair queueing. Every client gets the share of the drive that its weight promises,
//! whatever the others do, and the drive is still kept busy.
//!
//! **Idea.** The drive is given to one queue at a time, for a *budget* of sectors. Queues take their
//! turns by B-WF2Q+ ([`crate::parts::wf2q`]), so that the sectors served to any two stay in proportion
//! to their weights at every moment, to within about one budget of each and one request:
//!
//! ```text
//! who is next      the smallest F among those with S <= V          (weight w, budget B)
//! at activation    S = max(V, F)     F = S + B / w
//! at expiry        F = S + service / w,  the time instead of the service for slow queues
//! ```
//!
//! A queue that is empty but about to send more is *waited for* (`slice_idle`), else a client that
//! sends one request at a time would lose its turn after each. Waiting costs throughput on a drive that
//! does many things at once; so it is done only where it boosts throughput (a head that need not move)
//! or is owed (sharing is asymmetric: weights, classes or groups differ), and while it lasts others'
//! requests are *injected*, as many as the waited-for queue was found not to notice.
//!
//! **Where to read what.** A request's way: `arrive` (which queue; does it preempt), `select` (whose
//! request is sent; what an answer brings about). A queue's slot: `budget`, `idle`, `inject`, `part`. What the
//! drive can do: `rate`. Who is favoured: `raise`. Who shares a queue: `merge`. Who there is: `members`,
//! `queue`, `activity`.
//!
//! **Queues.** Reads and writes that somebody waits for go to one queue a client; buffered writes to
//! queues shared by the group, one a class and priority level. A level weighs `(8 - level) * 10`. With
//! groups (`prop`), groups share by their contracts' weights and classes, and the queues of a group
//! share what the group gets; without, all clients share by their priorities.
//!
//! **How a slot ends, and what it says about the next budget** (between max/32 and max, which is what
//! the drive does at its peak in `timeout_sync`):
//!
//! | end | next budget |
//! |---|---|
//! | budget exhausted | four times as much |
//! | budget timeout | twice as much |
//! | waited for in vain, requests in the drive | twice as much |
//! | waited for in vain | less by 4/32 of the largest |
//! | no more requests, not waited for | what it received |
//! | preempted | the same |
//!
//! A slow queue (seeky, or half the largest budget not reached after 20 ms) and one that times out with
//! a third of its budget left are charged `max * time / timeout_sync`, if that is more.
//!
//! Time is charged by the estimate of the peak rate, so what the drive did before matters: a drive that
//! never showed its peak charges seeky clients too little. `peak_rate` says what a drive is known to do.
//! (2018 article, Figure 1, a random reader of weight 300 beside four sequential ones of 100: 88 MB/s in
//! all with nothing known, 233 MB/s with 400 MB/s known; published 235.)
//!
//! **Four rows.** `bfq` is the algorithm after the series of 2018 to 2021 (Linux 5.14): injection
//! within learned limits, wakers, no waiting in symmetric scenarios by real counts, preemption by weight
//! and class, stable merge. (It means to inject one request after `slice_idle` into a queue that nothing was
//! learned of yet, but adds that time in nanoseconds to one in ticks, which makes hours; so it does not, here either.)
//! `bfq-4.18` is what the distributions of 2018 had: the same with these
//! switched off, and with buffered writes charged ten times their length. `bfq-4.20` is the first one that
//! injects (commit d0edc2473be9), and so what came nearest to the improved BFQ of the 2018 article, which
//! was a development branch: while a seeky, unraised queue is waited for on flash that queues, the queue
//! that became active last is served instead, as long as
//!
//! ```text
//! sectors injected in the slot * 1 < sectors that the queue received * 10
//! ```
//!
//! (the 1 is `inject_coefficient`: up to nine tenths are injected). Beyond that it differs from 4.18 in
//! that any group with requests makes sharing asymmetric (2d29c9f89fcd), and that buffered writes are
//! charged three times their length, whoever is raised (4.19, "reduce write overcharge"). In both a queue that is
//! back in time, or is raised or about to be, preempts one that is raised less. (Later only one that is back in
//! time, also one that is raised as much, and whoever has a higher weight.) A drive that was once seen to queue
//! counts so for good; but in both it is judged also by what it gets while a queue is waited for
//! (`queueing_in_waits`), so that a few clients make flash look as if it took one command at a time, and 4.20 stops
//! injecting. And 4.18 ends a slot that is over though the drive has its queue's last requests, where others wait
//! (`wait_past_timeout`).
//!
//! `bfq-5.3` is what was measured in summer 2019. It has no stable merge (5.13) and does not wait for the only
//! busy queue (5.12). It learns from less evidence (`early_learning`): a limit is looked at 100 ms after it was
//! lowered, not 10; it grows with reads that nothing was injected before, up to twice what the drive had at
//! once; and it is at least 1 after each time that is shorter than the one that counts as undisturbed (until
//! the four patches of 22 August 2019, in 5.4). Wakers are found but not injected, since what is looked at is the next
//! request of the queue that is waited for, which has none; and a queue that is not waited for is not preempted by
//! just anybody (`preempt_unwaited`).
//!
//! The habits of clients were judged otherwise (`early_habits`, in the three older rows). A think time is
//! taken of every request, and is long above `slice_idle`; now of those that come to a queue with nothing
//! outstanding, and above half of it. A queue is busy nearly always unless a wait for it ended in vain with less
//! than 2/10 of its budget used, until 120 requests in a row are back in time; now if it rests for 20 % of the time
//! at most. Clients of any level may be raised, not only those of the usual one.
//!
//! **When it is asked.** Where the driver has the queue run after every answer (SCSI, so SATA), others may be
//! injected from the moment when an answer leaves the queue in service empty. With NVMe a dispatch comes of requests
//! that come, and of what BFQ itself schedules: after a wait, and after an answer that leaves the drive empty, unless
//! the wait for its queue begins ([`Policy::schedules_dispatch`]). There hardly anything goes before the next request
//! of a queue that is waited for, but others are sent right behind it.
//!
//! **Source.** Checconi and Valente, "High throughput disk scheduling with fair bandwidth
//! distribution" (2010); Valente and Avanzini, "Evolution of the BFQ storage-I/O scheduler" (2015);
//! Linux `block/bfq-iosched.c` and `Documentation/block/bfq-iosched.rst`; for 4.20 as d0edc2473be9 and
//! what belongs to it also are in the stable series 4.19. *Stated there*: all of the above.
//!
//! **Our choice**, where we differ. Times are nanoseconds, not ticks. The budget counts as known after eleven
//! slots (the kernel's average of 194 on a scale of 256). A search for somebody to inject looks at 32
//! queues, not at all. Think time is taken also of a queue that is waited for (`think_in_waits`): 5.14
//! leaves those out, by a test that was meant for queues with requests. Who paused three times for longer than it
//! was waited for then thinks long for good, and whose answers come at that time becomes its waker: beside writers
//! the reads of gnome-terminal's start (suite/start-up) take 37 s and more, and 0.9 as it is here.
//! A changed class counts at once for a queue that waits, and at the end of its slot for one in
//! service. Tests of 4.18 and 4.20 that are beside the point here (no waiting
//! for queues of a large burst, classes not looked at for asymmetry, soft real-time's pace after
//! interactive periods) follow the later code.
//!
//! **Ours, and off** in every row: `inject_by_weight`, which `iofair serve` turns on. With groups sharing is always
//! asymmetric (since 4.20), so a group with a few requests at once has the drive to itself and leaves much of it
//! unused; with it several are served at once, weights kept (`part`).

mod activity;
mod arrive;
mod budget;
mod idle;
mod inject;
mod members;
mod merge;
mod part;
mod queue;
mod raise;
mod rate;
mod select;
mod settings;
#[cfg(test)]
mod tests;
pub mod versions;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::parts::positions::Positions;
use crate::parts::sorted_fifo::Sorted;
use crate::parts::wf2q::Hierarchy;
use iofair_core::group::{Change, GroupId};
use iofair_core::policy::{
    Build, Claim, Context, Gauges, Judgement, Policy, Role, Row, Standing, TagClass,
};
use iofair_core::request::{Direction, RequestId, Requests};
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;

use queue::{QueueId, Queues, WeakQueue};

/// The improved one.
pub static ROW: Row = Row {
    name: "bfq",
    short: "bfq",
    role: Role::SHARING_SCHEDULER,
    summary: "budget fair queueing: shares by weight, with injection (Linux 5.14)",
    file: "bfq/mod.rs",
    parameters: settings::PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[
            Claim {
                says: "A part of the service by weight for every group: a random reader of weight \
                    300 gets {target of prop-bfq [random target, readers]} beside four sequential \
                    ones of weight 100, alone {target of none-none [0 readers] in \
                    survey-2019/no-control}.",
                shown_by: "article-2018/figure-1",
            },
            Claim {
                says: "Nearly the latency of the idle drive for a client of the real-time class: \
                    {target mean of none-bfq [readers]} beside 15 readers.",
                shown_by: "comparison-2019/plextor --stack none-bfq",
            },
        ],
        needs: "Weights; to know what the drive does at its peak (`peak_rate`, or some seconds of \
            work). Rates in MB/s need admission as well (`complete`).",
        fails: &[
            Claim {
                says: "Injection costs the share of who leaves gaps: two readers that make calls \
                    of 4 KiB, with weights 1000 and 100, get {heavy of prop-bfq / light of \
                    prop-bfq [100 and 1000, calls of 4 KiB]} : 1, with `bfq-4.18` {heavy of \
                    prop-bfq-4.18 / light of prop-bfq-4.18 [100 and 1000, calls of 4 KiB]} : 1.",
                shown_by: "suite/fairness",
            },
            Claim {
                says: "One queue at a time leaves much of an NVMe drive unused: eight readers get \
                    {total of prop-bfq} from it, without control {total of none-none}.",
                shown_by: "mails-2019/samsung-970-pro --stack none-none,prop-bfq",
            },
            Claim {
                says: "Beside buffered writers a random reader of weight 300 gets {target of \
                    prop-bfq [random target, writers]}, with `bfq-4.18` {target of prop-bfq-4.18 \
                    [random target, writers]}.",
                shown_by: "article-2018/figure-1",
            },
        ],
    },
    build,
};

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    Box::new(Bfq::new(build))
}

/// The scheduler's whole state.
struct Bfq {
    settings: settings::Settings,
    /// Does it share between groups?
    by_groups: bool,
    rotational: bool,
    scheduler: Hierarchy,
    queues: Queues,
    /// Queues by the index of their entity, groups by that of theirs.
    queue_of: Vec<QueueId>,
    group_of: Vec<GroupId>,
    /// Each live request's queue, by its slot.
    owners: Vec<QueueId>,
    clients: Vec<members::ClientState>,
    groups: Vec<members::GroupState>,
    /// Requests by sector, and queues by the sector of their next request.
    sorted: Sorted,
    positions: Positions,
    activity: activity::Activity,
    rate: rate::PeakRate,
    queueing: rate::Queueing,
    burst: raise::Burst,
    sample: inject::Sample,
    /// Charged to others in the slot of the queue in service.
    injected: Sectors,
    in_service: Option<QueueId>,
    /// Where the queue in service sent its last request to, and what it was.
    in_service_position: Sectors,
    in_service_direction: Direction,
    slot_started: Instant,
    wait_started: Instant,
    /// The queue in service is empty and waited for until then.
    wait_until: Option<Instant>,
    /// Nothing was to be sent when last asked, and nothing happened since.
    holds: bool,
    /// Requests that the drive has from us, and that we hold.
    in_driver: u32,
    /// The last answer, if there was one, left the drive empty, and its queue is not waited for.
    schedules: bool,
    /// Sectors in the drive, by the index of a queue's entity or a group's.
    in_drive: Vec<Sectors>,
    queued: u32,
    /// Busy queues that are raised.
    raised_busy: u32,
    /// There were some after the last arrival or answer. Tags go by this, so that they do not depend on
    /// how often somebody asks for a request.
    raised_for_tags: bool,
    /// Average of 256 a budget handed out: how far the estimate of the peak rate can be trusted.
    budgets_assigned: u64,
    /// The largest budget, given or estimated.
    budget_limit: Sectors,
    /// Whose request was answered last, unless the queue is shared.
    last_completed: Option<WeakQueue>,
    /// Who was injected last.
    last_injected: Option<WeakQueue>,
}

impl Bfq {
    fn new(build: &Build<'_>) -> Self {
        let settings = settings::Settings::new(build.values);
        let rotational = build.facts.rotational;
        let mut this = Self {
            settings,
            by_groups: build.groups,
            rotational,
            scheduler: Hierarchy::new(),
            queues: Queues::default(),
            queue_of: Vec::new(),
            group_of: Vec::new(),
            owners: Vec::new(),
            clients: Vec::new(),
            groups: Vec::new(),
            sorted: Sorted::new(),
            positions: Positions::new(),
            activity: activity::Activity::new(),
            rate: rate::PeakRate::new(rotational),
            queueing: rate::Queueing::new(settings.queueing_threshold, settings.queueing_in_waits),
            burst: raise::Burst::new(),
            sample: inject::Sample::default(),
            injected: Sectors::ZERO,
            in_service: None,
            in_service_position: Sectors::ZERO,
            in_service_direction: Direction::Read,
            slot_started: Instant::ZERO,
            wait_started: Instant::ZERO,
            wait_until: None,
            holds: false,
            in_driver: 0,
            schedules: true,
            in_drive: Vec::new(),
            queued: 0,
            raised_busy: 0,
            raised_for_tags: false,
            budgets_assigned: 0,
            budget_limit: Self::first_limit(settings.max_budget),
            last_completed: None,
            last_injected: None,
        };
        if let Some(rate) = settings.peak_rate {
            this.know_peak(rate);
        }
        this
    }
}

impl Policy for Bfq {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.on_submit(cx, id);
        self.raised_for_tags = self.raised_busy > 0;
    }
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        self.on_try_merge(cx, id)
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.on_dispatch(cx)
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.on_complete(cx, id);
        self.raised_for_tags = self.raised_busy > 0;
    }
    fn schedules_dispatch(&self) -> bool {
        self.schedules
    }
    fn next_wakeup(&self) -> Option<Instant> {
        self.wait_until
    }
    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        self.on_change(cx, change);
    }
    fn tag_limit(&self, class: TagClass, tags: u32) -> u32 {
        self.tags_for(class, tags)
    }
    fn standing(&self, _requests: &Requests, _id: RequestId) -> Standing {
        let serves = self.in_service.map(|id| self.subject(id));
        Standing { serves, idles_until: self.wait_until, ..Standing::default() }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("bfq_peak_rate_bytes_per_s", self.rate.bytes_per_s());
        gauges.gauge("bfq_max_budget_bytes", self.max_budget().bytes());
        gauges.gauge("bfq_busy_queues", u64::from(self.scheduler.busy_queues_total()));
        gauges.gauge("bfq_raised_queues", u64::from(self.raised_busy));
        gauges.gauge("bfq_busy_groups", u64::from(self.activity.groups()));
        gauges.gauge("bfq_waiting", u64::from(self.wait_until.is_some()));
    }
}
