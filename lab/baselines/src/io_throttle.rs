//! `io-throttle`: ceilings in bytes and requests a second; a submitter over its limit sleeps (Righi's patches).
//!
//! *Idea.* A group has a limit. A process that sends more than the limit allows is put to sleep at submission, for as
//! long as the group is ahead of its limit, and sends the request when it wakes. So a process that is too fast is
//! itself slowed down, and no queue builds up below. There are no shares: what one group leaves unused is lost.
//!
//! *Equations*, for a group and a limit (bytes or requests a second), on a clock of ticks. A request of size `s`:
//!
//! ```text
//! leaky bucket   usage += s;  t = usage / limit          in ticks, rounded up
//!                t > elapsed: sleep t - elapsed; else usage = 0, elapsed = 0
//! token bucket   tokens = min(tokens - s + limit * elapsed, bucket);  elapsed = 0
//!                tokens < 0: sleep -tokens / limit        whole milliseconds, up to whole ticks
//! ```
//!
//! With both limits, the longer sleep applies. The leaky bucket does not count a request that finds it empty, nor
//! does it save unused bandwidth, so it never lets a burst through; a token bucket does. Sleeps of less than a tick
//! are skipped; others end on a tick. The leaky bucket forgets the excess of a sleep as soon as it is empty, so it
//! stays below its limit if requests are small or the limit is close to the drive's rate; the token bucket does not
//! (50 MiB/s on a disk of 66: 47.9 and 51.0; Lunde, mail of 22 June 2008).
//!
//! *Sleep.* A sleeping process sends nothing else, in either direction. Other processes of its group go on: each adds
//! to the group's account and sleeps longer, so they roughly take turns. Buffered writes come from a kernel thread,
//! which must not sleep for one group. Instead, each such write is put into a tree by deadline and sent when its
//! submitter would have woken up (`kiothrottled`).
//!
//! *Stated by the source*: "cgroup: io-throttle controller" v5 to v17 (2008 to 2009): the limits
//! (`blockio.bandwidth-max`, `blockio.iops-max`, a line `DEVICE:LIMIT:STRATEGY:BUCKET`), strategy 0 leaky and 1 token
//! bucket, a bucket of one second's worth by default (v8), sleep at submission, reads and writes in one account,
//! writeback delayed by deadline, and that it limits without sharing. The text of the patches was not available.
//! *Derived* from their descriptions: the order of the steps of the leaky bucket, ticks, and that a token bucket
//! starts empty when its limit is set.
//!
//! *Our choice*: a contract has a ceiling for each direction and these patches have a single one, so the lower
//! ceiling applies to both directions together. A tick is 1 ms. The bucket is given as a time, so that it means the
//! same for bytes and for requests. Omitted: that writers are also slowed down when the dirty limit is near (this
//! happens in the page cache, above the engine; the writer notices the delayed writeback through that limit), and
//! that asynchronous I/O may be refused with EAGAIN instead of putting its sender to sleep.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use iofair_core::contract::Limits;
use iofair_core::group::Change;
use iofair_core::id::{ClientId, RequestId};
use iofair_core::key::Key;
use iofair_core::params::{Kind, Parameter};
use iofair_core::parts::fifo::Fifo;
use iofair_core::policy::{Build, Claim, Context, Gauges, Judgement, Policy, Role, Row};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_policies::parts::levels::cost;
use iofair_policies::parts::tree::{Arena, Summary, Tree};

/// The row of the table.
pub static ROW: Row = Row {
    name: "io-throttle",
    short: "iothrottle",
    role: Role::Throttle,
    enforces: |key, _| matches!(key, Key::Max),
    summary: "ceilings at which the submitter sleeps, with a leaky or token bucket, as in Righi's \
        patches",
    file: "io_throttle.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "No group exceeds its ceiling, and no queue builds up: a process over the ceiling \
                sleeps when it submits.",
            shown_by: "article-2018/figure-1 --stack iothrottle-none",
        }],
        needs: "Ceilings. Minimums follow only if the sum of all ceilings is within the drive's \
            worst-case rate.",
        fails: &[
            Claim {
                says: "Sleeps end on a timer tick, so small requests stay far below the ceiling: \
                    four random readers with 15 MB/s each get {interferer of iothrottle-none [random \
                    target]} together.",
                shown_by: "article-2018/figure-3 --stack iothrottle-none",
            },
            Claim {
                says: "Bandwidth that a group does not use is lost: the total is {total of \
                    iothrottle-none [random target, readers]}, without control {total of none-none \
                    [random target, readers]}.",
                shown_by: "article-2018/figure-1 --stack none-none,iothrottle-none",
            },
        ],
    },
    build,
};

const PARAMETERS: &[Parameter] = &[
    Parameter::bool("token_bucket", false, "use a token bucket instead of a leaky bucket"),
    Parameter::time(
        "bucket",
        Nanos::from_secs(1),
        "tokens that can be saved, as time at the limit",
    ),
    Parameter {
        name: "tick",
        doc: "the clock's tick, in whole milliseconds: the shortest sleep",
        kind: Kind::Time,
        default: MILLISECOND,
        range: (MILLISECOND, 100 * MILLISECOND),
    },
];

const MILLISECOND: u64 = 1_000_000;

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let rule = Rule {
        token_bucket: build.values.bool("token_bucket"),
        bucket_ms: build.values.time("bucket").as_millis(),
        tick_ms: build.values.time("tick").as_millis().max(1),
    };
    Box::new(IoThrottle {
        rule,
        accounts: Vec::new(),
        clients: Vec::new(),
        nodes: Arena::new(),
        deadlines: Tree::new(),
        sequence: 0,
        out: Fifo::new(),
        asleep: 0,
    })
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    token_bucket: bool,
    bucket_ms: u64,
    tick_ms: u64,
}

impl Rule {
    /// The tick in which `now` is.
    const fn ticks(self, now: Instant) -> u64 {
        now.0 / MILLISECOND / self.tick_ms
    }
    const fn instant(self, ticks: u64) -> Instant {
        Instant(ticks.saturating_mul(self.tick_ms).saturating_mul(MILLISECOND))
    }
}

/// A group's account of bytes or of requests.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// A second.
    limit: u64,
    /// Leaky: used since `since`. Tokens: what is there, or owed.
    level: i128,
    /// In ticks.
    since: u64,
}

impl Account {
    /// Counts a request in. Ticks to sleep.
    fn count(&mut self, now: u64, rule: Rule, size: u64) -> u64 {
        let elapsed = now.saturating_sub(self.since);
        let limit = i128::from(self.limit);
        if rule.token_bucket {
            let gained = i128::from(elapsed * rule.tick_ms) * limit / 1000;
            let bucket = i128::from(rule.bucket_ms) * limit / 1000;
            self.level = (self.level + gained - i128::from(size)).min(bucket);
            self.since = now;
            let debt = (-self.level).max(0);
            return ((debt * 1000 / limit) as u64).div_ceil(rule.tick_ms);
        }
        self.level += i128::from(size);
        let tick_us = u128::from(rule.tick_ms) * 1000;
        let micros = self.level as u128 * 1_000_000 / u128::from(self.limit);
        let due = u64::try_from(micros.div_ceil(tick_us)).unwrap_or(u64::MAX);
        if due > elapsed {
            return due - elapsed;
        }
        (self.level, self.since) = (0, now);
        0
    }
}

/// Who goes on at a deadline.
#[derive(Clone, Copy, Debug)]
enum Waiter {
    /// A client wakes.
    Client(ClientId),
    /// A write that was put aside is sent.
    Write(RequestId),
}

impl Summary for Waiter {
    type Of = ();
    fn alone(&self) {}
    fn join(_one: (), _other: ()) {}
}

struct IoThrottle {
    rule: Rule,
    /// By group: of bytes and of requests.
    accounts: Vec<[Option<Account>; 2]>,
    /// By client: what it would send if it did not sleep, the first of which is counted already.
    clients: Vec<Fifo>,
    /// By deadline, then in the order of falling asleep.
    nodes: Arena<(Instant, u64), Waiter>,
    deadlines: Tree,
    sequence: u64,
    /// On their way out.
    out: Fifo,
    asleep: u64,
}

impl Policy for IoThrottle {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let client = cx.requests[id].client;
        let behind = &mut self.clients[client.index()];
        let sleeps = !behind.is_empty();
        behind.push_back(cx.requests, id);
        if !sleeps {
            return self.go_on(cx, client);
        }
        let subject = Subject::Request { id, sequence: cx.requests[id].sequence };
        let before = behind.len() as u64 - 1;
        cx.decide(subject, "its client sleeps already: {} before it", [before, 0]);
    }

    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        while self.out.is_empty() {
            let first = self.nodes.first(&self.deadlines)?;
            if self.nodes.key(first).0 > cx.now {
                return None;
            }
            match self.nodes.remove(&mut self.deadlines, first) {
                Waiter::Write(id) => self.out.push_back(cx.requests, id),
                Waiter::Client(client) => {
                    self.asleep -= 1;
                    let slept_over = self.clients[client.index()].pop_front(cx.requests);
                    let id = slept_over.expect("a client sleeps over a request");
                    self.out.push_back(cx.requests, id);
                    self.go_on(cx, client);
                }
            }
        }
        self.out.pop_front(cx.requests)
    }

    fn has_worker(&self, client: ClientId) -> bool {
        self.clients[client.index()].is_empty()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.nodes.first(&self.deadlines).map(|node| self.nodes.key(node).0)
    }

    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) | Change::GroupUpdated(id) => {
                if self.accounts.len() <= id.index() {
                    self.accounts.resize(id.index() + 1, [None; 2]);
                }
                let limits = limits(&cx.groups.group(id).contract.max);
                let accounts = &mut self.accounts[id.index()];
                let is_new = matches!(change, Change::GroupAdded(_));
                for (account, limit) in accounts.iter_mut().zip(limits) {
                    if is_new || account.map(|account| account.limit) != limit {
                        let since = self.rule.ticks(cx.now);
                        *account = limit.map(|limit| Account { limit, level: 0, since });
                    }
                }
            }
            Change::ClientAdded(id) => {
                let bound = self.clients.len().max(id.index() + 1);
                self.clients.resize(bound, Fifo::new());
            }
            _ => {}
        }
    }

    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("sleeping_clients", self.asleep);
        gauges.gauge("delayed_writes", self.deadlines.len() as u64 - self.asleep);
    }
}

/// Bytes and requests a second; the lower of both directions. None at all would stop the group: it is one.
fn limits(max: &Limits) -> [Option<u64>; 2] {
    [&max.bytes_per_s, &max.iops].map(|of| of.iter().flatten().min().map(|limit| (*limit).max(1)))
}

impl IoThrottle {
    /// A client that is awake sends what it has, until it falls asleep.
    fn go_on(&mut self, cx: &mut Context<'_>, client: ClientId) {
        while let Some(id) = self.clients[client.index()].front() {
            let ticks = self.count(cx, id);
            if ticks > 0 && cx.requests[id].is_sync() {
                self.asleep += 1;
                self.wait(cx, id, ticks, Waiter::Client(client));
                return;
            }
            self.clients[client.index()].pop_front(cx.requests);
            match ticks {
                0 => self.out.push_back(cx.requests, id),
                ticks => self.wait(cx, id, ticks, Waiter::Write(id)),
            }
        }
    }
    fn count(&mut self, cx: &Context<'_>, id: RequestId) -> u64 {
        let [length, number] = cost(cx.requests, id);
        let (now, rule) = (self.rule.ticks(cx.now), self.rule);
        let [bytes, requests] = &mut self.accounts[cx.requests[id].group.index()];
        let ticks = |account: &mut Option<Account>, size| match account {
            Some(account) if size > 0 => account.count(now, rule, size),
            _ => 0,
        };
        ticks(bytes, length).max(ticks(requests, number))
    }
    fn wait(&mut self, cx: &mut Context<'_>, id: RequestId, ticks: u64, waiter: Waiter) {
        let until = self.rule.instant(self.rule.ticks(cx.now).saturating_add(ticks));
        self.sequence += 1;
        self.nodes.insert(&mut self.deadlines, (until, self.sequence), waiter);
        let sequence = cx.requests[id].sequence;
        let subject = Subject::Request { id, sequence };
        cx.decide(
            subject,
            "over the limit: sleeps {ns}; {} sleep now",
            [until.since(cx.now).0, self.asleep],
        );
    }
}
