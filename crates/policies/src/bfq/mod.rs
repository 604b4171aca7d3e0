//! `bfq`: budget fair queueing. Every client gets a share of the drive by weight, whatever the others do, and the
//! drive is kept busy.
//!
//! **Idea.** BFQ serves one queue at a time, for a *budget* of sectors. B-WF2Q+ ([`crate::parts::wf2q`]) chooses
//! the next queue, so that the sectors served to any two queues stay proportional to their weights at every moment,
//! to within about one budget of each and one request:
//!
//! ```text
//! next queue       the smallest F among those with S <= V          (weight w, budget B)
//! at activation    S = max(V, F)     F = S + B / w
//! at expiry        F = S + service / w,  the time instead of the service for slow queues
//! ```
//!
//! If a queue is empty but likely to get another request soon, BFQ *idles* for it (`slice_idle`); otherwise a
//! client with queue depth 1 would lose its turn after each request. Idling costs throughput on a drive that
//! executes many commands at once. It is therefore done only if it increases throughput (a head that need not move)
//! or is necessary for fairness (sharing is asymmetric: weights, classes or groups differ). While BFQ idles, it
//! *injects* requests of other queues, as many as the queue in service was found to tolerate.
//!
//! **Where to read what.** The path of a request: `arrive` (which queue; does it preempt), `select` (which request
//! is dispatched; what follows from a completion). A queue's slot: `budget`, `idle`, `inject`, `part`. The drive's
//! rate: `rate`. Weight raising: `raise`. Queue merging: `merge`. Clients and queues: `members`, `queue`,
//! `activity`.
//!
//! **Queues.** Reads and synchronous writes go to one queue per client. Buffered writes go to queues shared by the
//! group, one per class and priority level. A level weighs `(8 - level) * 10`. With groups (`prop`), groups share
//! by their contracts' weights and classes, and the queues of a group share what the group gets. Without, all
//! clients share by their priorities.
//!
//! **How a slot ends, and the next budget** (between max/32 and max, which is the peak rate of the drive times
//! `timeout_sync`):
//!
//! | end | next budget |
//! |---|---|
//! | budget exhausted | four times as much |
//! | budget timeout | twice as much |
//! | idled in vain, requests in the drive | twice as much |
//! | idled in vain | less by 4/32 of the largest |
//! | no more requests, no idling | the service received |
//! | preempted | the same |
//!
//! A slow queue (random, or half the largest budget not reached after 20 ms), and one that times out with a third
//! of its budget left, are charged `max * time / timeout_sync`, if that is more.
//!
//! Time is charged by the estimate of the peak rate, so the history of the drive matters: if the drive never showed
//! its peak rate, random clients are charged too little. `peak_rate` sets a known rate. (2018 article, Figure 1, a
//! random reader of weight 300 beside four sequential readers of weight 100: a total of 88 MB/s with no history,
//! 233 MB/s with a known 400 MB/s; published 235.)
//!
//! **Four versions.** `bfq` is the algorithm after the patches of 2018 to 2021 (Linux 5.14): injection within
//! learned limits, wakers, no idling in symmetric scenarios by real counts, preemption by weight and class, stable
//! merge. (It is meant to inject one request after `slice_idle` into a queue about which nothing has been learned,
//! but adds that time in nanoseconds to one in ticks, which makes hours. So it does not do so, and neither do we.)
//!
//! `bfq-4.18` is what the distributions of 2018 had: the same without these, and with buffered writes charged ten
//! times their length. It ends a slot whose time is over although the drive has its queue's last requests, if
//! others wait (`wait_past_timeout`).
//!
//! `bfq-4.20` is the first version that injects (commit d0edc2473be9), and therefore the closest to the improved
//! BFQ of the 2018 article, which was a development branch. While BFQ idles for a random queue that is not raised,
//! on flash that queues commands, it serves the queue that became active last instead, as long as
//!
//! ```text
//! sectors injected in the slot * 1 < sectors that the queue received * 10
//! ```
//!
//! (the 1 is `inject_coefficient`: up to nine tenths are injected). It also differs from 4.18 in that any group
//! with requests makes sharing asymmetric (2d29c9f89fcd), and that buffered writes are charged three times their
//! length, whatever is raised (4.19, "reduce write overcharge").
//!
//! In both, a queue preempts another that is raised less if it is back in time, or is raised or about to be.
//! (Later, only a queue that is back in time does, also against one raised as much, and any queue with a higher
//! weight.) A drive once seen to queue commands counts as queueing for good. But in both versions it is also judged
//! by the requests it gets while BFQ idles (`queueing_in_waits`), so that with few clients flash appears to take
//! one command at a time, and 4.20 stops injecting.
//!
//! `bfq-5.3` is what was measured in summer 2019. It has no stable merge (5.13) and does not idle for the only busy
//! queue (5.12). It learns from less evidence (`early_learning`): a limit is checked 100 ms after it was lowered,
//! not 10; it grows with reads before which nothing was injected, up to twice the number of requests that the drive
//! had at once; and it is at least 1 after each time that is shorter than the undisturbed one (until the four
//! patches of 22 August 2019, in 5.4). Wakers are found but not injected, because it examines the next request of
//! the queue for which it idles, which has none. And a queue for which it does not idle is not preempted by any
//! queue (`preempt_unwaited`).
//!
//! The three older versions judge the behaviour of clients differently (`early_habits`). They take a think time
//! from every request, and call it long above `slice_idle`; today, only requests that arrive at a queue with
//! nothing outstanding count, and long is above half of `slice_idle`. They consider a queue busy nearly always,
//! unless idling for it was in vain with less than 2/10 of its budget used, until 120 requests in a row are back in
//! time; today, if it rests for at most 20 % of the time. They may raise clients of any priority level, today only
//! those of the default level.
//!
//! **When it is asked.** If the driver runs the queue after every completion (SCSI, and so SATA), requests of
//! others may be injected from the moment when a completion leaves the queue in service empty. With NVMe, only new
//! requests and BFQ itself cause a dispatch: after idling, and after a completion that leaves the drive empty,
//! unless idling for its queue begins (the simulator imitates this). There, hardly any request goes before the
//! next one of the queue in service, but others are dispatched right behind it.
//!
//! **Source.** Checconi and Valente, "High throughput disk scheduling with fair bandwidth distribution" (2010);
//! Valente and Avanzini, "Evolution of the BFQ storage-I/O scheduler" (2015); Linux `block/bfq-iosched.c` and
//! `Documentation/block/bfq-iosched.rst`; for 4.20, d0edc2473be9 and related commits are also in the stable series 4.19.
//! *Stated there*: all of the above.
//!
//! **Our choice**, where we differ. Times are in nanoseconds, not ticks. The budget counts as known after eleven
//! slots (the kernel's average of 194 on a scale of 256). A search for a queue to inject examines 32 queues, not
//! all. Think time is also taken of a queue for which BFQ idles (`think_in_waits`): 5.14 omits those, because of a
//! test that was meant for queues with requests. There, a client that three times paused for longer than BFQ idled
//! has a long think time for good, and a client whose requests complete at that time becomes its waker: beside
//! writers, the reads of gnome-terminal's start (suite/start-up) take 37 s and more, here 0.9. A changed class
//! applies at once to a waiting queue, and at the end of the slot to the queue in service. Some rules of 4.18 and 4.20
//! that do not matter here (no idling for queues of a large burst, classes ignored for asymmetry, soft real-time's
//! pace after interactive periods) follow the later code.
//!
//! **Later kernels.** `bfq-6.18` is what Linux 6.18 was found to do (reproduction/truth.md). It takes no think times while it idles
//! (`think_in_waits = false`): a client that pauses for 5 ms between single requests keeps the drive to itself in most
//! runs there, and a steady sequential reader gets 8 to 87 MB/s of 535. A queue's first request counts as a pause of twice
//! `slice_idle`, so that its think time is long from the third sample to the fourth, however short the pauses. Three
//! arrivals show a waker only within 1.024 s (`waker_within`). A group in service is charged with all of its slot
//! whenever one of its queues becomes active or empty (`charge_moves`), so that injection from queues of the same
//! group costs its square. A single group with requests no longer makes
//! sharing asymmetric (`busy_groups = 2`), as noted for Linux 7.0; the root counts as one: a reader in a group keeps the drive
//! from the flusher, which works in the root's name. And requests that blk-throttle held come from a worker of the
//! kernel, at random that of one or the other processor (`workers`). Each has its own queue in each group, and what they send waits for
//! the slots of others; but the queue of the first one is merged for good with that of the process if it is made less than 180 ms
//! later. All this was traced on 6.18 only; earlier versions leave it out, but may do the same. Not modelled: a queue or group gets at most a part of the request pool in proportion to
//! its weight, and buffered writes get two thirds of the pool, a quarter while a raised queue is busy.
//!
//! **Ours, and off** in every version: `inject_by_weight`, which `iofair serve` turns on. With groups, sharing is
//! always asymmetric (since 4.20), so a group with few requests in flight has the drive to itself and leaves much
//! of it unused. With `inject_by_weight`, several groups are served at once, in proportion to their weights
//! (`part`).

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

use crate::parts::owners::Owners;
use crate::parts::positions::Positions;
use crate::parts::sorted_fifo::Sorted;
use crate::parts::wf2q::Hierarchy;
use iofair_core::group::{Change, Groups};
use iofair_core::id::{GroupId, RequestId};
use iofair_core::policy::{
    Build, Claim, Context, Gauges, HoldInfo, Judgement, Policy, Role, Row, TagClass,
};
use iofair_core::request::{Direction, Requests};
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
                says: "A share by weight for every group: a random reader of weight 300 gets \
                    {target of prop-bfq [random target, readers]} beside four sequential readers of \
                    weight 100, alone {target of none-none [0 readers] in survey-2019/no-control}.",
                shown_by: "article-2018/figure-1",
            },
            Claim {
                says: "For a client of the real-time class, nearly the latency of an idle drive: \
                    {target mean of none-bfq [readers]} beside 15 readers.",
                shown_by: "comparison-2019/plextor --stack none-bfq",
            },
        ],
        needs: "Weights, and the drive's peak rate (`peak_rate`, or some seconds of load to learn \
            it). Guaranteed rates also need admission (`complete`).",
        fails: &[
            Claim {
                says: "Injection reduces the share of clients with gaps between requests: two \
                    readers with calls of 4 KiB and weights 1000 and 100 share {heavy of prop-bfq / \
                    light of prop-bfq [100 and 1000, calls of 4 KiB]} : 1, with `bfq-4.18` {heavy of \
                    prop-bfq-4.18 / light of prop-bfq-4.18 [100 and 1000, calls of 4 KiB]} : 1.",
                shown_by: "suite/fairness",
            },
            Claim {
                says: "It serves one queue at a time, which leaves much of an NVMe drive unused: \
                    eight readers get {total of prop-bfq}, without control {total of none-none}.",
                shown_by: "mails-2019/samsung-970-pro --stack none-none,prop-bfq",
            },
            Claim {
                says: "Beside buffered writers, a random reader of weight 300 gets {target of \
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
    /// Whether it shares between groups.
    by_groups: bool,
    rotational: bool,
    scheduler: Hierarchy,
    queues: Queues,
    /// Queues by the index of their entity, groups by that of theirs.
    queue_of: Vec<QueueId>,
    group_of: Vec<GroupId>,
    /// Each live request's queue, by its slot.
    owners: Owners<QueueId>,
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
    /// Sectors in the drive, by the index of a queue's entity or a group's.
    in_drive: Vec<Sectors>,
    queued: u32,
    /// Busy queues that are raised.
    raised_busy: u32,
    /// There were some after the last arrival or completion. Tags go by this, so that they do not depend on
    /// how often somebody asks for a request.
    raised_for_tags: bool,
    /// Average of 256 a budget handed out: how far the estimate of the peak rate can be trusted.
    budgets_assigned: u64,
    /// The largest budget, given or estimated.
    budget_limit: Sectors,
    /// Whose request was completed last, unless the queue is shared.
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
            owners: Owners::new(),
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
        if settings.charge_moves {
            this.scheduler.charge_moves();
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
    fn next_wakeup(&self) -> Option<Instant> {
        self.wait_until
    }
    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        self.on_change(cx, change);
    }
    fn tag_limit(&self, class: TagClass, tags: u32) -> u32 {
        self.tags_for(class, tags)
    }
    fn hold_info(&self, _groups: &Groups, _requests: &Requests, _id: RequestId) -> HoldInfo {
        let serves = self.in_service.map(|id| self.subject(id));
        HoldInfo { serves, idles_until: self.wait_until, ..HoldInfo::default() }
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
