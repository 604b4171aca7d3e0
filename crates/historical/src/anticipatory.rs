//! `anticipatory`: after a read, wait a moment for the next one of the same process.
//!
//! *Idea.* A process that reads, thinks briefly and reads on from there leaves the drive with nothing near to
//! do just when its next request is about to come. A scheduler that goes elsewhere at once ("deceptive
//! idleness") pays two seeks a request. So after a request that somebody waits for, and unless a better one
//! is there, nothing goes out until the process's next request came or `antic_expire` has passed since
//! the answer.
//!
//! *Batches.* Requests that somebody waits for (reads, synchronous writes) and all others take turns, each
//! by sector with short ways back allowed. A batch of the first lasts `read_batch_expire` from its first
//! answer, one of the others `write_batch_expire` and at most a number of writes, while the other kind
//! waits; the first may last as long as it likes while no other waits. Between two batches of different
//! kinds the drive is *drained*. The number of writes is tuned after each batch of writes by the time that
//! passed until the first read was answered: shrunk if it took too long (by one; halved above three times
//! too long), grown if it was too short and all were used (by one; doubled below a third). A batch that was
//! not contended tells nothing and shrinks nothing. Once in `read_expire` (`write_expire`) the oldest
//! request of the kind goes first if it has waited that long.
//!
//! *Whether to wait* for the next request of the process P whose request went out last. Not, if
//!
//! ```text
//! the request to send instead is P's, or P has another queued;
//! antic_expire has passed since P's answer, or P was waited for already since its last request;
//! the request instead is close: somebody waits for it, and it lies
//!     within 8192 * 2^ms sectors after the head and half as much before it (ms since P's answer; 0 before
//!     it), or nearer to the head than P's mean seek (of the first seeks of all processes, if P has none);
//! P has exited, and exited processes seldom have a successor that goes on nearby (below);
//! P's mean think time, or of the first pauses of all if P has none, is above antic_expire;
//! P is new, and exit * alone > 1/2.
//! ```
//!
//! Think time is from an answer to the next request, 19 ms at most, zero while P has others queued; both
//! means take an eighth of each new sample. `exit` rises by an eighth of the way to one with each new
//! process that was waited for in vain and falls by an eighth with each that came back. `alone` is the same
//! for exited processes: it rises when the wait was in vain, falls when a close request of another process
//! came instead; above one half nobody waits for an exited process. A close request counts as P's own in
//! P's means, so two processes that read one file in turns are waited for as one.
//!
//! *Parameters* as named. Flash is waited for like a disk: the test for it was compiled out in 2.6.32.
//!
//! *Source*: Iyer and Druschel, "Anticipatory scheduling: a disk scheduling framework to overcome deceptive
//! idleness in synchronous I/O", SOSP 2001, for the idea; all of the above is stated by Linux 2.6.32,
//! `block/as-iosched.c` and `Documentation/block/as-iosched.txt`. Times of that file are in ticks; ours are
//! those at 1000 ticks a second (`antic_expire` is HZ/150, the first number of writes an eighth of a second
//! in ticks by ten: 12).
//!
//! Two oddities of the source are kept. It begins inside a spent batch of writes, so the first number of
//! writes may double at once. And if the last write of a batch was answered while reads already waited, the
//! tuning takes the batch's end for 500 ms later than it was, so that the number rather grows; only if
//! the drive was empty when the turn changed is the time measured as described.
//!
//! *Our choice*, where we differ: a client is a process, and one that is removed has exited. A request that
//! goes out is at the drive, there is no list in between. Buffered writes, which have as many requests of
//! their own as all others have, may use half of the tags. Two requests of the same kind and first sector both
//! wait (the original sends the first when the second comes). When a gap between two queued requests closes
//! and one of them was next, the whole is compared with its upper neighbour. A waited-for process gets no tag
//! beyond the limit.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use crate::parts::anticipatory::{AnticipatoryQueue, AnticipatoryRules, Kind, Shared};
use iofair_core::group::Change;
use iofair_core::params::Parameter;
use iofair_core::policy::{
    Build, Claim, Context, Gauges, Judgement, Policy, Role, Row, Standing, TagClass,
};
use iofair_core::request::{RequestId, Requests};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_policies::parts::sorted_fifo::{Entry, MergeRules};

/// Its row in the table.
pub static ROW: Row = Row {
    name: "anticipatory",
    short: "anticipatory",
    role: Role::SCHEDULER,
    summary: "after a read, idles briefly for the next one of the same process (Linux 2.6.32)",
    file: "anticipatory.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "The drive idles for a process that is likely to read nearby next, so that its \
                reads need no seek.",
            shown_by: "io-controller-2009/every-scheduler",
        }],
        needs: "A hard disk, and readers that send their next request within `antic_expire`.",
        fails: &[
            Claim {
                says: "It also idles on flash, where this only costs time: of five random readers, \
                    one gets {target of none-anticipatory [random target]} and the other four get \
                    {interferer of none-anticipatory [random target]} together; with `none`, {target \
                    of none-none [random target]} and {interferer of none-none [random target]}.",
                shown_by: "article-2018/figure-3 --stack none-none,none-anticipatory",
            },
            Claim {
                says: "It has no shares: a random reader beside eight sequential readers gets \
                    {target of none-anticipatory}; a group of equal weight would get {target of \
                    prop-fair-anticipatory}.",
                shown_by: "io-controller-2009/every-scheduler",
            },
        ],
    },
    build,
};

const PARAMETERS: &[Parameter] = &[
    Parameter::time(
        "read_expire",
        Nanos::from_millis(125),
        "a read or synchronous write older than this may go first",
    ),
    Parameter::time("write_expire", Nanos::from_millis(250), "another write older than this may"),
    Parameter::time("read_batch_expire", Nanos::from_millis(500), "a batch while writes wait"),
    Parameter::time("write_batch_expire", Nanos::from_millis(125), "a batch while reads wait"),
    Parameter::time("antic_expire", Nanos::from_millis(6), "longest wait; 0: never wait"),
];

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let time = |name| build.values.time(name);
    let rules = AnticipatoryRules {
        fifo_expire: [time("read_expire"), time("write_expire")],
        batch_expire: [time("read_batch_expire"), time("write_batch_expire")],
        antic_expire: time("antic_expire"),
        merges: MergeRules { front: true, max: build.facts.max_request },
    };
    Box::new(Anticipatory { shared: Shared::default(), queue: AnticipatoryQueue::new(rules) })
}

struct Anticipatory {
    shared: Shared,
    queue: AnticipatoryQueue,
}

impl Policy for Anticipatory {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let entry = Entry { id, arrived: cx.now };
        self.queue.insert(&mut self.shared, cx.requests, entry);
    }
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        self.queue.try_merge(&mut self.shared, cx.requests, id)
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let before = (self.queue.is_anticipating(), self.queue.is_draining());
        let id = self.queue.dispatch(&mut self.shared, cx.requests, cx.now);
        let after = (self.queue.is_anticipating(), self.queue.is_draining());
        let held = self.queue.len() as u64;
        if !before.0
            && after.0
            && let Some(watched) = self.queue.watched()
        {
            let until = self.queue.next_wakeup().map_or(0, |until| until.since(cx.now).0);
            cx.decide(
                Subject::Client(watched.client),
                "is waited for while {} wait, for {ns}",
                [held, until],
            );
        }
        if !before.1 && after.1 {
            cx.decide(
                Subject::Drive,
                "drains between batches: {} wait, {} in the drive",
                [held, cx.in_flight.into()],
            );
        }
        id
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.queue.complete(&mut self.shared, cx.requests, id, cx.now);
    }
    fn next_wakeup(&self) -> Option<Instant> {
        self.queue.next_wakeup()
    }
    fn change(&mut self, _: &mut Context<'_>, change: Change) {
        self.shared.processes.change(change);
    }
    fn tag_limit(&self, class: TagClass, tags: u32) -> u32 {
        class.single_queue_limit(tags)
    }
    fn standing(&self, _requests: &Requests, _id: RequestId) -> Standing {
        let idles_until = self.queue.next_wakeup().filter(|_| self.queue.is_anticipating());
        let watched = self.queue.watched().filter(|_| idles_until.is_some());
        let serves = watched.map(|process| Subject::Client(process.client));
        Standing { serves, idles_until, ..Standing::default() }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("anticipatory_queued_sync", self.queue.queued(Kind::Sync) as u64);
        gauges.gauge("anticipatory_queued_async", self.queue.queued(Kind::Async) as u64);
        gauges.gauge("anticipatory_write_batch_requests", self.queue.write_count().into());
        let [exit, alone] = self.shared.processes.exits();
        gauges.gauge("anticipatory_exit_percent", exit * 100 / 256);
        gauges.gauge("anticipatory_exit_alone_percent", alone * 100 / 256);
        let (think, seek) = self.shared.processes.newcomers();
        gauges.gauge("anticipatory_new_think_ns", think.0);
        gauges.gauge("anticipatory_new_seek_sectors", seek.0);
    }
}
