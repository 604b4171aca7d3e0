//! `ioband`: shares or bands of bandwidth above any scheduler, like dm-ioband.
//!
//! *Idea.* A layer above the whole block layer holds requests of groups that have used their share. A *group* has
//! tokens in proportion to its weight; each request takes some, and a group without tokens is *blocked*. No timer is
//! involved: when no blocked group has tokens left, a new *epoch* begins, and all groups get new tokens. So the drive
//! is kept busy by whichever groups send requests, and the layer never idles for a group: a reader between two
//! requests has nothing blocked, and others run ahead of it.
//!
//! *Equations.* There are `bucket = 4 * io_limit` tokens per epoch (times 8 by size). Of these, a group gets
//!
//! ```text
//! initial  = bucket * weight / weights of its siblings              at least 1
//! refill   = initial * min(epochs since its last one, carryover)
//!          + unused * initial / (bucket - unused / 2)               unused: left over in the last epoch
//! priority = 100 * (tokens, with a refill that is due) / initial + 1
//! ```
//!
//! A group is refilled when it has no tokens left and a new epoch has begun. It may go into debt. A *new request*
//! passes at once if its group has tokens, nothing of its class (synchronous or not) is blocked in the group, and
//! fewer than `io_limit` requests of the class have passed and not completed. Otherwise it is blocked in the group,
//! first come, first served, with both directions in one queue. At each *completion*, the conductor releases requests
//! of the blocked group with the highest priority, until the group has no tokens left or has used 20 pages' worth; in
//! the latter case the next group follows at once. If no request could be released and both classes have room, a new
//! epoch begins, unless the *dominant* group (the active group with the most tokens) still has more than an eighth of
//! its tokens and `io_throttle` requests in flight.
//!
//! *Submitters sleep.* Once `io_limit * weight / weights / 4` requests of a class are blocked in a group, a client
//! that submits another one sleeps until all of these are released, and all its further requests wait with it. Kernel
//! threads sleep only when `io_limit` requests are blocked in all; here this applies to the flusher, and so to
//! buffered writes.
//!
//! *Policies.* `weight`: one token per request. `weight-iosize` (parameter `iosize`): one token per sector.
//! `range-bw` (a separate row): a minimum and a maximum for each group over periods of a second, from the contract's
//! `min` and `max`. Blocked groups below their minimum go first, the one that lacks most before the others; then
//! groups that have their minimum. When all have it, they take turns. A group at its maximum sends nothing more: its
//! submitters sleep until 10 ms into the next period. A request is blocked there only when its group's turn (100 ms
//! and more; 20 ms once it has its minimum) is over or `io_limit` requests are in flight, so minimums only have an
//! effect above that number.
//!
//! *Stated by the source*: dm-ioband in its form of late 2009, `drivers/md/dm-ioband-{ctl,policy,rangebw}.c` and
//! `Documentation/device-mapper/{ioband,range-bw}.txt` (Tsuruta and Takahashi; Kang, Kim and Jung). Its oddities are
//! kept:
//! - The maximum does not bind kernel threads.
//! - After its first request, a group without a minimum is treated as one with a minimum of zero: the first request
//!   of each period is blocked, and while blocked it comes after all groups that have their minimum, which may be for
//!   ever.
//! - A group that is released until it has no tokens left ends the conductor's run, even if others have tokens.
//!
//! *Derived.* `io_limit` is 3/2 of the queue's 128 requests. The root group is the device's default group, and
//! therefore a sibling of the groups below it. Further down, weights are percentages of the parent, whose own tokens
//! are the rest.
//!
//! *Our choice*, and why: the group to release is found in an ordered set, while the original searches all groups.
//! Tokens of epochs in which a group is in debt are added before rounding. Groups take turns where range-bw chooses
//! at random, because the engine has no random numbers. Percentages that exceed 100 together are scaled, while the
//! original refuses them. A change of weights gives all groups a full set of tokens, not only the siblings. Sleeping
//! clients are woken in the order in which they fell asleep. A tick is 1 ms. dm-ioband lets pages under reclaim pass;
//! we have no such pages, but `metadata_urgent` treats metadata the same way.

mod conduct;
mod order;
mod range;
#[cfg(test)]
mod tests;
mod weight;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use iofair_core::group::Change;
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::key::Key;
use iofair_core::params::Parameter;
use iofair_core::parts::fifo::Fifo;
use iofair_core::policy::{Build, Claim, Context, Gauges, Judgement, Policy, Role, Row};
use iofair_core::request::Flags;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use order::Blocked;
use range::Range;
use weight::{Settings, Weight};

/// The row of the table.
pub static ROW: Row = Row {
    name: "ioband",
    short: "ioband",
    role: Role::Throttle,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight),
    summary: "tokens by weight, refilled when all groups have used theirs, as in dm-ioband",
    file: "ioband/mod.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Bandwidth by weight, above any scheduler, without idling.",
            shown_by: "io-controller-2009/test-3 --stack ioband-cfq",
        }],
        needs: "Groups that always have many requests queued, from many clients or deep queues.",
        fails: &[
            Claim {
                says: "A single reader has no requests queued, so others overtake it: a reader of \
                    weight 1000 gets {target of ioband-cfq [16 readers]} beside 16 readers of weight \
                    500, which get {reader of ioband-cfq [16 readers]}.",
                shown_by: "io-controller-2009/test-3 --stack ioband-cfq",
            },
            Claim {
                says: "A random reader beside four sequential readers gets {target of ioband-none \
                    [random target, readers]}, with `none` {target of none-none [random target, \
                    readers]}.",
                shown_by: "article-2018/figure-1 --stack none-none,ioband-none",
            },
        ],
    },
    build,
};

/// The row of its other policy.
pub static ROW_RANGE: Row = Row {
    name: "ioband-range-bw",
    short: "rangebw",
    role: Role::Throttle,
    enforces: |key, _| matches!(key, Key::Min | Key::Max),
    summary: "minimum and maximum bandwidth, as in dm-ioband's policy range-bw",
    file: "ioband/mod.rs",
    parameters: PARAMETERS,
    overrides: &[("range_bw", 1)],
    judgement: Judgement {
        promises: &[Claim {
            says: "A minimum and a maximum rate; the maximum is enforced for readers.",
            shown_by: "article-2018/figure-1 --stack rangebw-none",
        }],
        needs: "More than `io_limit` requests in the stages below, and no flusher.",
        fails: &[
            Claim {
                says: "The maximum does not limit the flusher: four buffered writers with 15 MB/s \
                    each write {interferer of rangebw-none [random target, writers]}.",
                shown_by: "article-2018/figure-1 --stack rangebw-none",
            },
            Claim {
                says: "The minimum has an effect only while `io_limit` (192) requests are in the \
                    stages below or turns are over; a few readers with one request each never reach \
                    that.",
                shown_by: "",
            },
        ],
    },
    build,
};

const SHORT_MAX: u64 = i16::MAX as u64;
const INT_MAX: u64 = i32::MAX as u64;

const PARAMETERS: &[Parameter] = &[
    Parameter::bool(
        "iosize",
        false,
        "one token per sector (weight-iosize) instead of one per request",
    ),
    Parameter::bool("range_bw", false, "use minimums and maximums (range-bw) instead of weights"),
    Parameter::count(
        "io_limit",
        192,
        (1, SHORT_MAX),
        "requests of a class in flight at which further ones are held",
    ),
    Parameter::count(
        "io_throttle",
        4,
        (1, SHORT_MAX),
        "requests in flight at which a new epoch waits for the dominant group",
    ),
    Parameter::count(
        "token",
        0,
        (0, INT_MAX),
        "tokens of all groups in an epoch; 0: derived from io_limit",
    ),
    Parameter::count(
        "carryover",
        0,
        (0, INT_MAX),
        "epochs whose tokens a group can save; 0: 2048 divided by the tokens",
    ),
    Parameter::bool("metadata_urgent", false, "metadata passes at once, and is charged"),
];

/// A clock tick.
const TICK: Nanos = Nanos::from_millis(1);

/// Classes: buffered writes, and what somebody waits for.
const ASYNC: usize = 0;
const SYNC: usize = 1;

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let values = build.values;
    let count = |name| values.count(name) as i64;
    let io_throttle = count("io_throttle");
    let io_limit = count("io_limit").max(io_throttle);
    let (by_size, by_range) = (values.bool("iosize"), values.bool("range_bw"));
    let unit = if by_size { 3 } else { 0 };
    let (token, carryover) = (count("token"), count("carryover"));
    let settings = Settings { token, carryover, io_limit, io_throttle, unit };
    let rule = match by_range {
        true => Rule::Range(Range::new(io_limit)),
        false => Rule::Weight(Weight::new(settings)),
    };
    Box::new(Ioband {
        rule,
        by_sectors: by_size || by_range,
        metadata_urgent: values.bool("metadata_urgent"),
        io_limit,
        queues: Vec::new(),
        clients: Vec::new(),
        urgent: Fifo::new(),
        out: Fifo::new(),
        issued: [0; 2],
        blocked: [0; 2],
        full: [false; 2],
        waiters: [const { VecDeque::new() }; 2],
        woken: VecDeque::new(),
        asleep: 0,
        charged: Vec::new(),
        conduct_at: None,
    })
}

/// What decides who may send.
enum Rule {
    Weight(Weight),
    Range(Range),
}

/// A group's blocked requests.
#[derive(Debug)]
struct Queue {
    waiting: Fifo,
    /// Passed over because their class had no room; all of one class.
    parked: Fifo,
    parked_class: usize,
    /// By class.
    blocked: [i64; 2],
    /// Too many are blocked that somebody waits for: submitters sleep until none is.
    full: bool,
    waiters: VecDeque<ClientId>,
}

impl Queue {
    fn new() -> Self {
        Self {
            waiting: Fifo::new(),
            parked: Fifo::new(),
            parked_class: 0,
            blocked: [0; 2],
            full: false,
            waiters: VecDeque::new(),
        }
    }
    fn blocked(&self) -> Blocked {
        match (self.waiting.is_empty(), self.parked.is_empty()) {
            (true, true) => Blocked::Nothing,
            (true, false) => Blocked::Parked(self.parked_class),
            (false, _) => Blocked::Open,
        }
    }
}

/// Where a submitter sleeps: kernel threads by class, others by group.
#[derive(Clone, Copy, Debug)]
enum WaitQueue {
    Device(usize),
    Group(usize),
}

struct Ioband {
    rule: Rule,
    by_sectors: bool,
    metadata_urgent: bool,
    io_limit: i64,
    queues: Vec<Queue>,
    /// By client: what it would send if it did not sleep, the first of which it sleeps over.
    clients: Vec<Fifo>,
    urgent: Fifo,
    /// On their way out.
    out: Fifo,
    /// Below, by class.
    issued: [i64; 2],
    blocked: [i64; 2],
    /// Too many are blocked in all: kernel threads sleep.
    full: [bool; 2],
    waiters: [VecDeque<ClientId>; 2],
    /// Where sleepers are to look again.
    woken: VecDeque<WaitQueue>,
    asleep: u64,
    /// By slot of a request: its class plus one while it is below.
    charged: Vec<u8>,
    conduct_at: Option<Instant>,
}

impl Policy for Ioband {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.refresh(cx);
        let client = cx.requests[id].client;
        let behind = &mut self.clients[client.index()];
        behind.push_back(cx.requests, id);
        if behind.len() == 1 {
            self.go_on(cx, client);
        } else {
            let subject = Subject::Request { id, sequence: cx.requests[id].sequence };
            let before = behind.len() as u64 - 1;
            cx.decide(subject, "its submitter sleeps already: {} before it", [before, 0]);
        }
        self.wake(cx);
    }

    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        if self.out.is_empty() {
            self.refresh(cx);
            self.look_at_timers(cx);
            if self.conduct_at.is_some_and(|at| at <= cx.now) {
                self.conduct(cx);
            }
        }
        self.out.pop_front(cx.requests)
    }

    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        // Others that passed here may have been merged into it further down.
        for (part, _) in cx.requests.parts(id) {
            if let Some(class) = self.charged.get_mut(part.0 as usize).filter(|class| **class > 0) {
                self.issued[usize::from(*class) - 1] -= 1;
                *class = 0;
            }
        }
        if self.blocked != [0; 2] {
            self.conduct_at = Some(cx.now);
        }
    }

    fn has_worker(&self, client: ClientId) -> bool {
        self.clients[client.index()].is_empty()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let timer = match &self.rule {
            Rule::Weight(_) => None,
            Rule::Range(range) => range.next_timer(),
        };
        self.conduct_at.into_iter().chain(timer).min()
    }

    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::GroupAdded(id) | Change::GroupUpdated(id) => self.set_group(cx, change, id),
            Change::GroupRemoved(id) => {
                let queue = &self.queues[id.index()];
                assert!(queue.blocked == [0; 2], "{id:?} goes with requests inside");
                match &mut self.rule {
                    Rule::Weight(weight) => weight.remove(id.index()),
                    Rule::Range(range) => range.remove(id.index()),
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
        gauges.gauge("blocked_requests", (self.blocked[ASYNC] + self.blocked[SYNC]) as u64);
        gauges.gauge("issued_requests", (self.issued[ASYNC] + self.issued[SYNC]) as u64);
        gauges.gauge("sleeping_clients", self.asleep);
        if let Rule::Weight(weight) = &self.rule {
            gauges.gauge("epochs", weight.epoch());
        }
    }
}

/// Groups.
impl Ioband {
    fn set_group(&mut self, cx: &Context<'_>, change: Change, id: GroupId) {
        let (contract, index) = (&cx.groups.group(id).contract, id.index());
        while self.queues.len() <= index {
            self.queues.push(Queue::new());
        }
        let is_new = matches!(change, Change::GroupAdded(_));
        match (&mut self.rule, is_new) {
            (Rule::Weight(weight), true) => weight.add(index, contract.weight),
            (Rule::Weight(weight), false) => weight.update(index, contract.weight),
            (Rule::Range(range), true) => range.add(index, contract),
            (Rule::Range(range), false) => range.update(index, contract),
        }
    }
    /// Takes changes of the tree of groups into account.
    fn refresh(&mut self, cx: &Context<'_>) {
        match &mut self.rule {
            Rule::Weight(weight) => weight.refresh(cx.groups),
            Rule::Range(range) => range.refresh(),
        }
    }
}

impl Rule {
    fn limit(&self, group: usize) -> i64 {
        match self {
            Self::Weight(weight) => weight.limit(group),
            Self::Range(range) => range.limit(group),
        }
    }
    fn best(&mut self, room: [bool; 2]) -> Option<usize> {
        match self {
            Self::Weight(weight) => weight.best(room),
            Self::Range(range) => range.best(room),
        }
    }
    fn may_submit(&mut self, now: Instant, group: usize, blocked: bool) -> bool {
        match self {
            Self::Weight(weight) => weight.may_submit(group),
            Self::Range(range) => range.may_submit(now, group, blocked),
        }
    }
    /// Takes what a request costs. `true`: others should have a turn now.
    fn charge(&mut self, now: Instant, group: usize, tokens: i64, urgent: bool) -> bool {
        match self {
            Self::Weight(weight) => weight.charge(group, tokens, urgent),
            Self::Range(range) => range.charge(now, group, tokens),
        }
    }
    fn place(&mut self, group: usize, blocked: Blocked) {
        match self {
            Self::Weight(weight) => weight.place(group, blocked),
            Self::Range(range) => range.place(group, blocked),
        }
    }
    /// Nobody who waits may send: `true` if that has changed now.
    fn restart(&mut self, issued: i64) -> bool {
        match self {
            Self::Weight(weight) => weight.restart(issued),
            // Blocked requests may always be sent, so it does not come to this.
            Self::Range(_) => false,
        }
    }
}
