//! `cfq`: completely fair queueing of 2009, flat. Every process gets the drive for a slice of time, the
//! longer the more urgent its ioprio.
//!
//! **Idea.** A queue a process; the drive serves one of them at a time, for a *slice* that begins with
//! its first answer. Whoever has requests lies in one tree, real time first, the idle class last, and in
//! between by a time that moves away from those with short slices:
//!
//! ```text
//! slice = base + base / 5 * (4 - level)                       sync 180 ... 100 ... 40 ms, async 72 ... 16
//! key   = now + (busy - 1) * (slice(sync, 0) - slice) - what was left of the last slice
//! ```
//!
//! A queue that runs empty is *waited for* (`slice_idle`), since its process will most likely go on
//! right there: that is what makes readers fast and shares fair. Not waited for are those whose process
//! thinks too long, those whose last request says that nothing follows (`NO_IDLE`), and seeky ones beyond
//! 2 ms. While a drive queues commands and `low_latency` is off,
//! seeky ones are not waited for at all, so that a random reader sends one request a round: 36 KiB/s
//! beside one sequential reader in the tests of the IO controller, 10 beside four.
//!
//! **A request's way.** `arrive`: into the queue of its client (buffered writes: of its class and level);
//! its think time and distance tell whether the queue is worth waiting for; it may preempt. `select`:
//! the active queue sends as long as its slice lasts, else the first in the tree. `order`: that tree.
//! `idle`: the wait. `merge`: processes that work close together. `members`: who there is.
//!
//! **Rules** (Linux 2.6.32):
//! - The drive has at most `quantum` requests of a queue, four times as many of the only one, one of the
//!   idle class. A queue that is waited for sends nothing while buffered writes are in the drive, and
//!   they nothing while others' requests are; with `low_latency` one more of them for each `slice_sync`
//!   since the last answer to a reader.
//! - A queue goes to its oldest request once a slice, if that is older than `fifo_expire`, and else its
//!   next in the way of the head.
//! - The slice ends when its time is over at an answer (then what was left or taken too much counts at
//!   the next turn), when nothing is queued, in the drive or waited for, when a close queue can go on,
//!   and for buffered writes after `2 (rq + rq (7 - level))` requests while others have some.
//! - Preemption: the active slice is over; it is of the idle class; synchronous over buffered; metadata
//!   where the active queue has none; real time; or as close to the head as what is waited for.
//! - A preempting queue starts a new slice before all others of its class; the preempted one keeps its
//!   residual.
//!
//! **Two versions.** By default this is Linux 2.6.32. 2.6.31, under the tests of the IO controller V10,
//! is `low_latency = false` and `queue_merge = false`.
//!
//! **Source.** Linux 2.6.32 `block/cfq-iosched.c`; `Documentation/block/cfq-iosched.txt`; the IO controller
//! V10 (September 2009) for what it did. *Stated there*: all of the above. From memory, not from a text:
//! that 2.6.31 jumps to a close queue only once before its turn.
//!
//! **Our choice**, where we differ. Times are nanoseconds, not ticks. Requests come as they come, so a small request of
//! a waited-for queue goes out at once and not when its submitter unplugs. Think time is taken of
//! synchronous requests only, and of a queue, not a process, while processes share one. Requests go to the
//! drive one by one; there is no dispatch list to be sorted. A queue that its processes left is not waited
//! for. No boost for processes that hold locks of a file system, no hint that a synchronous write is the
//! last one. The kernel's separate limits of requests for buffered writes and for the rest are here: buffered
//! writes may use half of the tags.

mod arrive;
mod idle;
mod members;
mod merge;
mod order;
mod queue;
mod select;
mod settings;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::parts::backlog::Head;
use crate::parts::hw_tag::HwTag;
use crate::parts::slots::Slots;
use iofair_core::group::Change;
use iofair_core::policy::{
    Build, Claim, Context, Gauges, Judgement, Policy, Role, Row, Standing, TagClass,
};
use iofair_core::request::{RequestId, Requests};
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;
use iofair_policies::parts::positions::Positions;
use iofair_policies::parts::priority_slice::SHARED;
use iofair_policies::parts::sorted_fifo::Sorted;
use iofair_policies::parts::tree::Tree;

use queue::{Queue, QueueId};

/// Its row in the table.
pub static ROW: Row = Row {
    name: "cfq",
    short: "cfq",
    role: Role::SCHEDULER,
    summary: "completely fair queueing: time slices by I/O priority, with idling (Linux 2.6.32)",
    file: "cfq/mod.rs",
    parameters: settings::PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[
            Claim {
                says: "Each process gets slices of disk time: sixteen sequential readers together \
                    still get {client: none-cfq [16 clients] / none-cfq [1 clients]} of the rate of \
                    one.",
                shown_by: "io-controller-2009/cfq-sequential-readers",
            },
            Claim {
                says: "The I/O priority of a process sets the length of its slices.",
                shown_by: "",
            },
        ],
        needs: "A hard disk, and sequential readers.",
        fails: &[
            Claim {
                says: "A random reader gets one request per round: beside 16 sequential readers it \
                    gets {target of none-cfq [16 readers]}, alone {client of none-cfq [1 clients] in \
                    io-controller-2009/cfq-random-readers}, and waits for up to {target max of \
                    none-cfq [16 readers]}.",
                shown_by: "io-controller-2009/test-2",
            },
            Claim {
                says: "It also idles on flash: five random readers get {total of none-cfq [random \
                    target]}, with `none` {total of none-none [random target]}.",
                shown_by: "article-2018/figure-3 --stack none-none,none-cfq",
            },
            Claim {
                says: "It idles while a writer waits for the journal commit of another process: the \
                    writer gets {target of none-cfq}, with `noop` {target of none-noop}.",
                shown_by: "mails-2019/journal",
            },
        ],
    },
    build,
};

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let settings = settings::Settings::new(build.values);
    Box::new(Cfq {
        settings,
        rotational: build.facts.rotational,
        queues: Slots::default(),
        owners: Vec::new(),
        clients: Vec::new(),
        writes: [None; SHARED],
        sorted: Sorted::new(),
        order: order::Order::default(),
        positions: Positions::new(),
        position_trees: [Tree::new(); 8],
        hw_tag: HwTag::new(false),
        active: None,
        wait_until: None,
        holds: false,
        in_driver: [0; 2],
        queued: 0,
        head: Head { at: Sectors::ZERO, rules: settings.seek },
        last_sync_answer: Instant::ZERO,
    })
}

/// The scheduler's whole state.
struct Cfq {
    settings: settings::Settings,
    rotational: bool,
    queues: Slots<Queue>,
    /// Each live request's queue, by its slot.
    owners: Vec<QueueId>,
    /// Each client's queue for what it waits for.
    clients: Vec<Option<QueueId>>,
    /// Queues for buffered writes.
    writes: [Option<QueueId>; SHARED],
    /// Requests by sector.
    sorted: Sorted,
    order: order::Order,
    /// Queues by the sector of their next request, one tree a level.
    positions: Positions,
    position_trees: [Tree; 8],
    hw_tag: HwTag,
    /// Whose slice it is.
    active: Option<QueueId>,
    /// The active queue is empty and waited for until then.
    wait_until: Option<Instant>,
    /// Nothing was to be sent when last asked, and nothing happened since.
    holds: bool,
    /// Requests that the drive has from us: synchronous ones, buffered writes.
    in_driver: [u32; 2],
    /// Requests that we hold.
    queued: u32,
    head: Head,
    last_sync_answer: Instant,
}

impl Policy for Cfq {
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
        self.wait_until
    }
    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        self.holds = false;
        self.on_change(cx, change);
    }
    fn tag_limit(&self, class: TagClass, tags: u32) -> u32 {
        class.single_queue_limit(tags)
    }
    fn standing(&self, _requests: &Requests, _id: RequestId) -> Standing {
        let serves = self.active.map(|id| self.subject(id));
        Standing { serves, idles_until: self.wait_until, ..Standing::default() }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("cfq_busy_queues", self.order.busy() as u64);
        gauges.gauge("cfq_queued_requests", u64::from(self.queued));
        gauges.gauge("cfq_waiting", u64::from(self.wait_until.is_some()));
        gauges.gauge("cfq_drive_queues", u64::from(self.hw_tag.queues()));
    }
}
