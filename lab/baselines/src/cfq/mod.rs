//! `cfq`: completely fair queueing of 2009, without groups. Each process gets the drive for a time slice; the more
//! urgent its I/O priority, the longer the slice.
//!
//! **Idea.** Each process has a queue. The drive serves one queue at a time, for a *slice* that begins with the
//! queue's first completion. All queues with requests are in one tree: real-time ones first, the idle class last, and
//! the others by a key that puts queues with short slices further back:
//!
//! ```text
//! slice = base + base / 5 * (4 - level)                       sync 180 ... 100 ... 40 ms, async 72 ... 16
//! key   = now + (busy - 1) * (slice(sync, 0) - slice) - unused time of the last slice
//! ```
//!
//! When a queue becomes empty, CFQ *idles* for it (`slice_idle`), because its process will probably continue at the
//! same place. This makes readers fast and shares fair. CFQ does not idle for queues whose process thinks too long,
//! nor after a request that says that nothing follows (`NO_IDLE`), and for seeky queues at most 2 ms. If the drive
//! queues commands and `low_latency` is off, CFQ does not idle for seeky queues at all, so a random reader dispatches
//! one request per round: 36 KiB/s beside one sequential reader in the tests of the IO controller, 10 beside four.
//!
//! **The path of a request** (`parts/cfq`). `arrive`: the request enters the queue of its client (buffered writes: of its
//! class and level). Its think time and distance decide whether idling for the queue is worthwhile, and it may preempt.
//! `select`: the active queue dispatches while its slice lasts; then the first queue in the tree follows. `order`:
//! that tree. `idle`: idling. `merge`: processes that work close together.
//!
//! **Rules** (Linux 2.6.32):
//! - The drive has at most `quantum` requests of a queue, four times as many if it is the only queue, and one of the
//!   idle class. A queue for which CFQ idles dispatches nothing while buffered writes are in the drive, and they
//!   dispatch nothing while requests of others are. With `low_latency`, one more buffered write is allowed for each
//!   `slice_sync` since the last completion of a synchronous request.
//! - Once per slice, a queue dispatches its oldest request first, if that is older than `fifo_expire`; otherwise it
//!   continues in the direction of the head.
//! - A slice ends at a completion if its time is used up (unused or excess time counts in the next turn), when the
//!   queue has no request, nothing in the drive, and CFQ does not idle for it, when a close queue can continue, and
//!   for buffered writes after `2 (rq + rq (7 - level))` requests while others have requests.
//! - A request preempts the active queue if that queue's slice is over, if that queue is of the idle class, if the
//!   request is synchronous and that queue is not, if the request is metadata and that queue has none, if the request
//!   is real-time, or if it is as close to the head as the request for which CFQ idles.
//! - A preempting queue starts a new slice before all others of its class; the preempted queue keeps its unused time.
//!
//! **Two versions.** The default is Linux 2.6.32. Linux 2.6.31, which was used for the tests of the IO controller
//! V10, is `low_latency = false` and `queue_merge = false`.
//!
//! **Source.** Linux 2.6.32 `block/cfq-iosched.c`; `Documentation/block/cfq-iosched.txt`; the IO controller V10
//! (September 2009) for what it changed. *Stated there*: all of the above. From memory and not from a text: 2.6.31
//! jumps to a close queue only once before its turn.
//!
//! **Our choice**, where we differ. Times are in nanoseconds, not ticks. Requests arrive one by one, so a small
//! request of a queue for which CFQ idles is dispatched at once and not when its submitter unplugs. Think time is
//! measured for synchronous requests only, and, while processes share a queue, for the queue. Requests go to the
//! drive one by one; there is no dispatch list to sort. CFQ does not idle for a queue that its processes have left.
//! Processes that hold file-system locks get no boost, and no hint says that a synchronous write is the last one. In
//! place of the kernel's separate limits for buffered writes and other requests, buffered writes may use half of the
//! tags.

mod arrive;
mod idle;
mod merge;
mod order;
mod select;
mod settings;
mod state;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use crate::parts::cfq::Cfq;
use crate::parts::hw_tag::HwTag;
use iofair_core::policy::{Build, Claim, Judgement, Policy, Role, Row};
use iofair_core::time::Instant;

/// The row of the table.
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
    let version = state::Early {
        queue_merge: build.values.bool("queue_merge"),
        order: state::Order::default(),
        last_sync_completion: Instant::ZERO,
    };
    Box::new(Cfq::new(build, HwTag::new(false), version))
}
