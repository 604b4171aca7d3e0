//! `kyber`: keeps the drive's queue short enough for two latency targets.
//!
//! *Idea.* Reads, writes, discards and other requests are four *domains*. Each has FIFO queues and a number of
//! *tokens*; a request needs a token from its dispatch to its completion. When the drive is slow, domains that are
//! faster than their target get fewer tokens, and a domain that misses its target gets more. Requests then wait in
//! the queue of a domain that can afford it, instead of in the drive, where they would delay all requests.
//!
//! *Dispatch.* Domains take turns. A domain dispatches up to a batch (16 reads, 8 writes, 1 discard or other
//! request); then the next domain with a request and a token follows. Requests other than reads and synchronous
//! writes may use only three quarters of the tags.
//!
//! *Tokens.* At most 256, 128, 64 and 16, at least 1; those of the fourth domain never change. Each completion is
//! counted in eight buckets, each a quarter of the target wide (`read_lat`, `write_lat`; 5 s for discards), twice:
//! by total time including the queue, and by the drive's time alone. The tokens are adjusted 100 ms after the first
//! completion since the last adjustment:
//!
//! ```text
//! congested = any domain's p90 of the drive's time is above its target
//! q         = the domain's p99 of the total time, in quarters of its target, rounded up, at most 8
//! tokens    = tokens * q / 4            if congested, or if q > 4
//! ```
//!
//! A percentile is computed from 500 samples, or from fewer after a second, and consumes them. A domain without a
//! value of `q` during congestion uses its last known one, once.
//!
//! *Source*: Linux 7.0, `block/kyber-iosched.c` (Omar Sandoval; these rules since 4.20). Stated there: all of the
//! above. An oddity is kept: the second is shared by both percentiles of a domain, and the drive's is computed
//! first and restarts it. With fewer than 500 samples, `q` is therefore rarely available, unless the domain has
//! become silent.
//!
//! *Our choice*, where we differ: the kernel has one software queue per processor and empties them one by one; here
//! there is one. As in the kernel, a request merges with one of the last eight of its domain that have not moved on
//! to the drive's queue, which all of them do when a token is free. If tokens are removed while all are in use,
//! none is free until enough have been returned (the kernel's bitmap forgets those above its new end). A scheduled
//! flush uses a token of the fourth domain, like everything that is not a read, write or discard.

mod latency;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use iofair_core::id::RequestId;
use iofair_core::params::Parameter;
use iofair_core::parts::fifo::Fifo;
use iofair_core::policy::{Build, Claim, Context, Gauges, Judgement, Policy, Role, Row, TagClass};
use iofair_core::request::{Operation, Requests};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use latency::{GOOD, Latencies};

/// The row of the table.
pub static ROW: Row = Row {
    name: "kyber",
    short: "kyber",
    role: Role::SCHEDULER,
    enforces: |_, _| false,
    summary: "tokens for reads and writes, scaled by two latency targets",
    file: "kyber.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Reads and writes are kept near a latency target each, by reducing the tokens of \
                the other; random readers and writers keep {total: none-kyber / none-none [5 random \
                readers, 5 random writers]} of the throughput.",
            shown_by: "suite/throughput-sync",
        }],
        needs: "A drive with a deep queue, and writes as the cause of slow reads.",
        fails: &[
            Claim {
                says: "All reads belong to one domain: a random reader beside four sequential \
                    readers gets {target of none-kyber [random target, readers]}, with `none` \
                    {target of none-none [random target, readers]}.",
                shown_by: "article-2018/figure-1 --stack none-none,none-kyber",
            },
            Claim {
                says: "Beside buffered writers, the mean latency of reads is {target mean of \
                    none-kyber [random target, writers]}; the target is 2 ms.",
                shown_by: "article-2018/figure-1 --stack none-kyber",
            },
        ],
    },
    build,
};

const PARAMETERS: &[Parameter] = &[
    Parameter::time("read_lat", Nanos::from_millis(2), "target for the 99th percentile of reads"),
    Parameter::time(
        "write_lat",
        Nanos::from_millis(10),
        "target for the 99th percentile of writes",
    ),
];

/// Target of discards.
const DISCARD_LAT: Nanos = Nanos::from_secs(5);
/// Reads, writes, discards, others; only the first three are measured.
const DOMAINS: usize = 4;
const MEASURED: usize = 3;
const TOKENS_MAX: [u32; DOMAINS] = [256, 128, 64, 16];
const BATCH: [u32; DOMAINS] = [16, 8, 1, 1];
/// What a change of tokens is called in the trace.
const RESIZED: [&str; MEASURED] =
    ["tokens of reads: {} to {}", "tokens of writes: {} to {}", "tokens of discards: {} to {}"];
/// How long completions are gathered.
const WINDOW: Nanos = Nanos::from_millis(100);
/// Part of the tags for all but synchronous requests.
const ASYNC_PERCENT: u32 = 75;
/// Waiting requests that a newcomer is compared with.
const MERGE_DEPTH: usize = 8;

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let targets = [build.values.time("read_lat"), build.values.time("write_lat"), DISCARD_LAT];
    Box::new(Kyber {
        domains: TOKENS_MAX.map(|tokens| Domain { tokens, ..Domain::default() }),
        latencies: targets.map(Latencies::new),
        current: 0,
        batched: 0,
        timer: None,
        arrived: Vec::new(),
    })
}

fn domain(operation: Operation) -> usize {
    match operation {
        Operation::Read => 0,
        Operation::Write => 1,
        Operation::Discard => 2,
        _ => 3,
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Domain {
    queue: Fifo,
    /// The first this many of it are on the way to the drive and merge no more.
    moved: usize,
    tokens: u32,
    used: u32,
    /// Who was last found without a token, to tell it once.
    blocked: Option<RequestId>,
}

struct Kyber {
    domains: [Domain; DOMAINS],
    latencies: [Latencies; MEASURED],
    /// The domain whose batch runs, and what it gave.
    current: usize,
    batched: u32,
    /// When the completions gathered so far are judged.
    timer: Option<Instant>,
    /// When each request came in, by its slot.
    arrived: Vec<Instant>,
}

impl Kyber {
    /// The next request of the current domain, if it has one and a token.
    fn take_from_current(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let domain = &mut self.domains[self.current];
        let id = domain.queue.front()?;
        if domain.used >= domain.tokens {
            if domain.blocked.replace(id) != Some(id) {
                let subject = Subject::Request { id, sequence: cx.requests[id].sequence };
                let values = [domain.tokens.into(), domain.queue.len() as u64];
                cx.decide(subject, "no token of its domain: it has {}, and {} wait", values);
            }
            return None;
        }
        if domain.moved == 0 {
            domain.moved = domain.queue.len();
        }
        domain.moved -= 1;
        domain.queue.remove(cx.requests, id);
        domain.blocked = None;
        domain.used += 1;
        self.batched += 1;
        Some(id)
    }
    /// Judges what was gathered if it is time; being late changes nothing but the moment.
    fn judge(&mut self, cx: &mut Context<'_>) {
        let Some(due) = self.timer.filter(|due| *due <= cx.now) else { return };
        self.timer = None;
        let mut congested = false;
        for latencies in &mut self.latencies {
            congested |= latencies.is_congested(due);
        }
        for (index, latencies) in self.latencies.iter_mut().enumerate() {
            let Some(p99) = latencies.p99(due, congested) else { continue };
            if !congested && p99 < GOOD {
                continue;
            }
            let domain = &mut self.domains[index];
            let scaled = domain.tokens * (p99 as u32 + 1) / GOOD as u32;
            let scaled = scaled.clamp(1, TOKENS_MAX[index]);
            let before = core::mem::replace(&mut domain.tokens, scaled);
            if before != scaled {
                cx.decide(Subject::Drive, RESIZED[index], [before.into(), scaled.into()]);
            }
        }
    }
    /// The waiting request with which this one was merged.
    fn merge(&self, cx: &mut Context<'_>, id: RequestId) -> Option<RequestId> {
        let domain = &self.domains[domain(cx.requests[id].operation)];
        let max = cx.facts.max_request;
        let requests: &mut Requests = cx.requests;
        let open = (domain.queue.len() - domain.moved).min(MERGE_DEPTH);
        let mut next = domain.queue.back();
        for _ in 0..open {
            let waiting = next.expect("so many are in the queue");
            if requests.can_merge(waiting, id, max) {
                requests.merge_back(waiting, id);
                return Some(waiting);
            }
            if requests.can_merge(id, waiting, max) {
                requests.merge_front(waiting, id);
                return Some(waiting);
            }
            next = domain.queue.previous(requests, waiting);
        }
        None
    }
}

impl Policy for Kyber {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.judge(cx);
        let slot = id.0 as usize;
        if self.arrived.len() <= slot {
            self.arrived.resize(slot + 1, Instant::ZERO);
        }
        self.arrived[slot] = cx.now;
        let domain = &mut self.domains[domain(cx.requests[id].operation)];
        domain.queue.push_back(cx.requests, id);
    }
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        self.merge(cx, id).is_some()
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.judge(cx);
        if self.batched < BATCH[self.current]
            && let Some(id) = self.take_from_current(cx)
        {
            return Some(id);
        }
        self.batched = 0;
        for _ in 0..DOMAINS {
            self.current = (self.current + 1) % DOMAINS;
            if let Some(id) = self.take_from_current(cx) {
                return Some(id);
            }
        }
        None
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.judge(cx);
        let request = &cx.requests[id];
        let domain = domain(request.operation);
        self.domains[domain].used -= 1;
        if let Some(latencies) = self.latencies.get_mut(domain) {
            let total = cx.now.since(self.arrived[id.0 as usize]);
            latencies.add(total, cx.now.since(request.dispatched));
            self.timer.get_or_insert(cx.now + WINDOW);
        }
    }
    fn next_wakeup(&self) -> Option<Instant> {
        // Tokens matter only to those who wait for one.
        let waits = self.domains.iter().any(|domain| !domain.queue.is_empty());
        self.timer.filter(|_| waits)
    }
    fn tag_limit(&self, class: TagClass, tags: u32) -> u32 {
        match class {
            TagClass::Async => (u64::from(tags) * u64::from(ASYNC_PERCENT) / 100) as u32,
            _ => tags,
        }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        let [reads, writes, discards, _] = &self.domains;
        gauges.gauge("kyber_read_tokens", reads.tokens.into());
        gauges.gauge("kyber_write_tokens", writes.tokens.into());
        gauges.gauge("kyber_discard_tokens", discards.tokens.into());
        let queued = self.domains.iter().map(|domain| domain.queue.len()).sum::<usize>();
        gauges.gauge("kyber_queued_requests", queued as u64);
    }
}
