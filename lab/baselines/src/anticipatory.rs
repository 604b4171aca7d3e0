//! `anticipatory`: after a read, idles briefly for the next one of the same process.
//!
//! *Idea.* A process reads, thinks briefly, and continues reading near the same place. Just when its next request is
//! about to arrive, the scheduler has no nearby request. If it serves a distant request at once ("deceptive
//! idleness"), each read costs two seeks. So after a synchronous request, and unless a better request is queued, the
//! scheduler dispatches nothing until the process's next request arrives, or until `antic_expire` has passed since
//! the completion.
//!
//! *Batches.* Synchronous requests (reads, synchronous writes) and asynchronous ones alternate in batches, each by
//! sector with short backward movements allowed. While the other kind waits, a synchronous batch lasts for
//! `read_batch_expire` from its first completion; an asynchronous one lasts for `write_batch_expire` and at most a
//! certain number of writes. Without competition, a synchronous batch has no limit. Between batches of different
//! kinds, the drive is *drained*. The number of writes is adjusted after each batch of writes, by the time until the
//! first read completed. If that took too long, the number shrinks (by one; to half if it took three times too long).
//! If it was too short and all writes were used, the number grows (by one; to double below a third). A batch without
//! competition changes nothing. Once in each `read_expire` (`write_expire`), the oldest request of the kind goes
//! first if it has waited that long.
//!
//! *When to idle* for the next request of the process P whose request was dispatched last. The scheduler does not
//! idle if
//!
//! ```text
//! the request to dispatch instead is P's, or P has another one queued;
//! antic_expire has passed since P's completion, or the scheduler has idled for P since its last request;
//! the request to dispatch instead is close: it is synchronous, and it is
//!     within 8192 * 2^ms sectors after the head or half as many before it (ms since P's completion; 0 before it), or nearer to
//!     the head than P's mean seek distance (or that of the first seeks of all processes, if P has none);
//! P has exited, and exited processes seldom have a successor that continues nearby (see below);
//! P's mean think time (or that of the first pauses of all processes, if P has none) is above antic_expire;
//! P is new, and exit * alone > 1/2.
//! ```
//!
//! Think time counts from a completion to the next request. It is at most 19 ms, and zero while P has other requests
//! queued. Both means use an eighth of each new sample. `exit` rises by an eighth of its distance from one for each
//! new process that did not send another request while the scheduler idled, and falls by an eighth for each one that
//! did. `alone` is the same for exited processes: it rises when idling was in vain, and falls when a close request of
//! another process came instead. Above one half, the scheduler no longer idles for exited processes. A close request
//! counts as P's own in P's means, so two processes that take turns reading one file are treated as one.
//!
//! *Parameters* as named. The scheduler also idles on flash: the test for it was compiled out in 2.6.32.
//!
//! *Source*: Iyer and Druschel, "Anticipatory scheduling: a disk scheduling framework to overcome deceptive idleness
//! in synchronous I/O", SOSP 2001, for the idea. All of the above is stated by Linux 2.6.32, `block/as-iosched.c` and
//! `Documentation/block/as-iosched.txt`. Times in that file are in ticks; ours are those at 1000 ticks a second
//! (`antic_expire` is HZ/150; the initial number of writes is an eighth of a second in ticks divided by ten: 12).
//!
//! Two oddities of the source are kept. It starts inside a batch of writes that is used up, so the initial number of
//! writes may double at once. And if the last write of a batch completes while reads already wait, the adjustment
//! assumes that the batch ended 500 ms later than it did, so the number tends to grow. Only if the drive was empty
//! when the batch ended is the time measured as described.
//!
//! *Our choice*, where we differ: a client is a process, and a removed client has exited. A dispatched request is at
//! the drive; there is no list in between. Buffered writes, which in the kernel have as many requests as all others
//! together, may use half of the tags. Two requests of the same kind and first sector both wait (the original
//! dispatches the first when the second arrives). When a merge joins two queued requests and one of them was next,
//! the joined request is compared with the one after it. A process for which the scheduler idles gets no tags beyond
//! the limit.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use crate::parts::anticipatory::{AnticipatoryQueue, AnticipatoryRules, Kind, PARAMETERS, Shared};
use iofair_core::group::{Change, Groups};
use iofair_core::id::RequestId;
use iofair_core::policy::{
    Build, Claim, Context, Gauges, HoldInfo, Judgement, Policy, Role, Row, TagClass,
};
use iofair_core::request::Requests;
use iofair_core::time::Instant;
use iofair_core::trace::Subject;
use iofair_policies::parts::sorted_fifo::Entry;

/// The row of the table.
pub static ROW: Row = Row {
    name: "anticipatory",
    short: "anticipatory",
    role: Role::SCHEDULER,
    enforces: |_, _| false,
    summary: "after a read, idles briefly for the next one of the same process (Linux 2.6.32)",
    file: "anticipatory.rs",
    parameters: &PARAMETERS,
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

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let rules = AnticipatoryRules::new(build);
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
    fn hold_info(&self, _groups: &Groups, _requests: &Requests, _id: RequestId) -> HoldInfo {
        let idles_until = self.queue.next_wakeup().filter(|_| self.queue.is_anticipating());
        let watched = self.queue.watched().filter(|_| idles_until.is_some());
        let serves = watched.map(|process| Subject::Client(process.client));
        HoldInfo { serves, idles_until, ..HoldInfo::default() }
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
