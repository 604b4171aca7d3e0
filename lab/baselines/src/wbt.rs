//! `wbt`: writeback throttling; limits buffered writes so that reads stay fast.
//!
//! *Idea.* The flusher writes as much at once as the drive accepts, and a read that arrives then waits behind all
//! of it. Therefore only a limited number of writeback requests may be in the drive, and the limit is reduced when
//! even the fastest read in a time window took too long (after CoDel, which drops packets according to the smallest
//! delay in a window).
//!
//! *Window.* 100 ms, or `100 ms / sqrt(step + 1)` at `step > 0`. It begins when a write is dispatched, and is
//! followed by another window while writes are in flight or `step` is not 0. At its end:
//!
//! ```text
//! the oldest read in flight takes longer than the window, or than min_lat with no read completed   step down
//! at least one read and three writes completed:   fastest read took longer than min_lat            step down
//!                                                 otherwise                                        step up
//! else, if a write was completed, is in flight, or writers wait for the page cache                 step up
//! else for the fifth time since the last step                                          step towards the middle
//! ```
//!
//! *Depth.* At `step = 0` 16, or the drive's depth d if that is less. Each step down halves the part above one:
//! `1 + (15 >> step)`, down to 1. Each step up doubles it, up to 3/4 d; from there, the first step down returns to 0.
//! A drive without a queue has 2, or 1 below the middle. Three limits follow:
//!
//! ```text
//! max        = depth              synchronous writes, metadata, and all writes while writers wait
//! normal     = (depth + 1) / 2    other writes
//! background = (depth + 3) / 4    other writes if a read was dispatched or completed within 100 ms; discards
//! ```
//!
//! Writes and discards are counted separately. A write waits if the limit is reached or if others wait already.
//! Waiting requests are released, up to the limit, when none is in flight any more, when this many have completed
//! that `background / 2` fit below `normal` again (discards: below `background`), and at each step up. If the drive
//! has a write cache and no writers wait, they are released only when none is in flight.
//!
//! *Parameters.* `min_lat`: the target; 2 ms on flash, 75 ms on hard disks. `dirty_wait`: the kernel checks whether
//! a writer had to wait for the page cache within the last second (`balance_dirty_pages`). The engine cannot see
//! that. On, the default, assumes it whenever a write arrived within the last second, which is right for a client
//! that writes more than the drive accepts; off means never. `write_cache`: does the drive have one? `sync_writes`:
//! are synchronous writes limited, too? The kernel limits those of an fsync and never direct ones; here both have
//! the same flag, so it is off.
//!
//! *Source*: Linux, `block/blk-wbt.c` and `block/blk-rq-qos.c` (Jens Axboe, 4.10; read as of 2025, 7.0). Stated
//! there: all of the above except the parameters. BFQ switches it off.
//!
//! *Our choice*, where we differ: kswapd's writes are treated like others. "Background" writeback (the flusher's,
//! above its threshold) cannot be distinguished from other writeback, so without `dirty_wait` it may use `normal`.
//! The read that is watched in flight is the first one passed on since the last one completed, not the first one in
//! the drive; its time counts from dispatch. Requests are counted before they merge, in the kernel afterwards. A
//! drive of depth 2 can step up to a depth of 1 and never back, as in the kernel, but an idle one is not watched
//! for ever.

mod depth;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use depth::Depth;
use iofair_core::id::RequestId;
use iofair_core::params::Parameter;
use iofair_core::parts::fifo::Fifo;
use iofair_core::policy::{
    Build, Claim, Context, DriveFacts, Gauges, Judgement, Policy, Role, Row,
};
use iofair_core::request::{Flags, Operation, Request, Requests};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;

/// The row of the table.
pub static ROW: Row = Row {
    name: "wbt",
    short: "wbt",
    role: Role::Throttle,
    enforces: |_, _| false,
    summary: "limits buffered writes so that reads stay fast (writeback throttling)",
    file: "wbt.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Beside buffered writers, the fastest read in each time window takes no longer \
                than `min_lat`.",
            shown_by: "article-2018/figure-1 --stack wbt-none",
        }],
        needs: "Buffered writes, and a drive whose read latency reflects its load.",
        fails: &[Claim {
            says: "It limits nothing else: the mean latency of a random reader is {target mean of \
                wbt-none [readers]} beside 15 readers and {target mean of wbt-none [writers]} beside \
                15 synchronous writers; with `none`, {target mean of none-none [readers]} and \
                {target mean of none-none [writers]}.",
            shown_by: "comparison-2019/plextor --stack none-none,wbt-none",
        }],
    },
    build,
};

const PARAMETERS: &[Parameter] = &[
    Parameter::time(
        "min_lat",
        Nanos::ZERO,
        "target for the fastest read of a window; 0: 2 ms on flash, 75 ms on disks",
    ),
    Parameter::bool("dirty_wait", true, "assume that writers wait for the page cache"),
    Parameter::bool("write_cache", true, "the drive has a write cache"),
    Parameter::bool("sync_writes", false, "also hold synchronous writes"),
];

/// Writes get the limit `background` within this time after a read was dispatched or completed.
const NEAR: Nanos = Nanos::from_millis(100);
/// Time for which writers count as waiting for the page cache.
const RECENT: Nanos = Nanos::from_secs(1);
/// Completed writes in a window that show that the writes slow the reads.
const WRITES_MIN: u32 = 3;
/// Windows without a verdict before a step towards the middle.
const UNKNOWN_MAX: u32 = 5;

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let values = build.values;
    let min_lat = match values.time("min_lat") {
        Nanos::ZERO => target(build.facts),
        given => given,
    };
    Box::new(Wbt {
        min_lat,
        dirty_wait: values.bool("dirty_wait"),
        write_cache: values.bool("write_cache"),
        sync_writes: values.bool("sync_writes"),
        depth: Depth::new(build.facts.depth),
        passed: Fifo::new(),
        classes: Default::default(),
        tracked: Vec::new(),
        timer: None,
        window: Window::default(),
        unknown: 0,
        watched: None,
        watched_sent: false,
        last_sent: Instant::ZERO,
        last_completed: Instant::ZERO,
        last_written: None,
    })
}

const fn target(facts: &DriveFacts) -> Nanos {
    Nanos::from_millis(if facts.rotational { 75 } else { 2 })
}

/// The classes of requests that are counted separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RequestClass {
    Writes,
    Discards,
}

/// Requests of a class: those that wait, and the number of those that were released and are not completed.
#[derive(Clone, Copy, Default, Debug)]
struct ClassQueue {
    waiting: Fifo,
    in_flight: u32,
}

/// Completions in the present window.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    fastest_read: Option<Nanos>,
    writes: u32,
}

/// The result of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Exceeded,
    Fine,
    OnlyWrites,
    Unknown,
}

struct Wbt {
    min_lat: Nanos,
    dirty_wait: bool,
    write_cache: bool,
    sync_writes: bool,
    depth: Depth,
    /// Requests that were released.
    passed: Fifo,
    classes: [ClassQueue; 2],
    /// The class in which a request is counted, by its slot.
    tracked: Vec<Option<RequestClass>>,
    /// The end of the present window.
    timer: Option<Instant>,
    window: Window,
    /// Windows without a verdict since the last step.
    unknown: u32,
    /// The read that is watched while it is in flight.
    watched: Option<RequestId>,
    /// Whether it was dispatched at the last check.
    watched_sent: bool,
    /// When a read was last released, and last completed.
    last_sent: Instant,
    last_completed: Instant,
    /// When a write was last submitted.
    last_written: Option<Instant>,
}

impl Wbt {
    fn class(&self, request: &Request) -> Option<RequestClass> {
        match request.operation {
            Operation::Write if self.sync_writes || !request.flags.has(Flags::SYNC) => {
                Some(RequestClass::Writes)
            }
            Operation::Discard => Some(RequestClass::Discards),
            _ => None,
        }
    }
    /// Whether writers had to wait for the page cache recently.
    fn writers_wait(&self, now: Instant) -> bool {
        self.dirty_wait && self.last_written.is_some_and(|last| now < last + RECENT)
    }
    /// The number of requests in its class up to which the request is released.
    fn limit(&self, now: Instant, request: &Request) -> u32 {
        let near = |last: Instant| now < last + NEAR;
        let urgent = request.flags.has(Flags::SYNC) || request.flags.has(Flags::METADATA);
        if request.operation == Operation::Discard {
            self.depth.background()
        } else if urgent || self.writers_wait(now) {
            self.depth.max()
        } else if near(self.last_sent) || near(self.last_completed) {
            self.depth.background()
        } else {
            self.depth.normal()
        }
    }
    fn may_go(
        &self,
        requests: &Requests,
        now: Instant,
        class: RequestClass,
        id: RequestId,
    ) -> bool {
        self.classes[class as usize].in_flight < self.limit(now, &requests[id])
    }
    fn let_go(
        &mut self,
        requests: &mut Requests,
        now: Instant,
        class: RequestClass,
        id: RequestId,
    ) {
        let slot = id.0 as usize;
        if self.tracked.len() <= slot {
            self.tracked.resize(slot + 1, None);
        }
        self.tracked[slot] = Some(class);
        self.classes[class as usize].in_flight += 1;
        self.passed.push_back(requests, id);
        if self.timer.is_none() {
            self.open_window(now);
        }
    }
    /// Releases waiting requests in order, up to the limit.
    fn wake(&mut self, requests: &mut Requests, now: Instant, class: RequestClass) {
        while let Some(id) = self.classes[class as usize].waiting.front()
            && self.may_go(requests, now, class, id)
        {
            self.classes[class as usize].waiting.remove(requests, id);
            self.let_go(requests, now, class, id);
        }
    }
    /// Counts completions in a class, and releases waiting requests if enough were completed.
    fn completed(&mut self, cx: &mut Context<'_>, class: RequestClass, many: u32) {
        self.classes[class as usize].in_flight -= many;
        let in_flight = self.classes[class as usize].in_flight;
        let limit = match class {
            RequestClass::Discards => self.depth.background(),
            RequestClass::Writes if self.write_cache && !self.writers_wait(cx.now) => 0,
            RequestClass::Writes => self.depth.normal(),
        };
        let room = limit.saturating_sub(in_flight);
        if in_flight == 0 || room > 0 && room >= self.depth.background() / 2 {
            self.wake(cx.requests, cx.now, class);
        }
    }
}

/// Windows.
impl Wbt {
    fn open_window(&mut self, now: Instant) {
        self.window = Window::default();
        self.timer = Some(now + self.depth.window());
    }
    /// Ends every window that is due, each at its own time: without waiting requests, calls may come late.
    fn judge(&mut self, cx: &mut Context<'_>) {
        while let Some(end) = self.timer.filter(|end| *end <= cx.now) {
            self.end_window(cx, end);
        }
    }
    fn end_window(&mut self, cx: &mut Context<'_>, now: Instant) {
        self.timer = None;
        let in_flight = self.classes[0].in_flight + self.classes[1].in_flight;
        match self.verdict(cx.requests, now, in_flight) {
            Verdict::Exceeded => self.step_down(cx, true),
            Verdict::Fine | Verdict::OnlyWrites => self.step_up(cx, now),
            Verdict::Unknown => {
                self.unknown += 1;
                if self.unknown >= UNKNOWN_MAX && self.depth.step() > 0 {
                    self.step_up(cx, now);
                } else if self.unknown >= UNKNOWN_MAX && self.depth.step() < 0 {
                    self.step_down(cx, false);
                }
            }
        }
        // A request that was released by a step up has opened the next window.
        if self.timer.is_none() && (self.depth.can_return() || in_flight > 0) {
            self.open_window(now);
        }
    }
    /// Whether the fastest read was too slow while enough writes completed.
    fn window_is_slow(&self) -> bool {
        let Window { fastest_read, writes } = self.window;
        writes >= WRITES_MIN && fastest_read.is_some_and(|fastest| fastest > self.min_lat)
    }
    fn verdict(&self, requests: &Requests, now: Instant, in_flight: u32) -> Verdict {
        let Window { fastest_read, writes } = self.window;
        let on_its_way = self.watched.map_or(Nanos::ZERO, |id| now.since(requests[id].dispatched));
        let alone = fastest_read.is_none();
        let overdue = on_its_way > self.depth.window() || on_its_way > self.min_lat && alone;
        if overdue || self.window_is_slow() {
            Verdict::Exceeded
        } else if !alone && writes >= WRITES_MIN {
            Verdict::Fine
        } else if writes > 0 || self.writers_wait(now) || in_flight > 0 {
            Verdict::OnlyWrites
        } else {
            Verdict::Unknown
        }
    }
    fn step_up(&mut self, cx: &mut Context<'_>, now: Instant) {
        if self.depth.up() {
            self.unknown = 0;
            self.tell(cx, "more depth for writeback: {}; fastest read {ns}");
            self.wake(cx.requests, now, RequestClass::Writes);
            self.wake(cx.requests, now, RequestClass::Discards);
        }
    }
    fn step_down(&mut self, cx: &mut Context<'_>, hard: bool) {
        if self.depth.down(hard) {
            self.unknown = 0;
            self.tell(cx, "less depth for writeback: {}; fastest read {ns}");
        }
    }
    fn tell(&self, cx: &mut Context<'_>, rule: &'static str) {
        let fastest = self.window.fastest_read.map_or(0, |latency| latency.0);
        cx.decide(Subject::Drive, rule, [self.depth.max().into(), fastest]);
    }
}

impl Policy for Wbt {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.judge(cx);
        let request = &cx.requests[id];
        let Some(class) = self.class(request) else {
            if request.operation == Operation::Read {
                self.last_sent = cx.now;
                self.watched.get_or_insert(id);
            }
            self.passed.push_back(cx.requests, id);
            return;
        };
        if class == RequestClass::Writes {
            self.last_written = Some(cx.now);
        }
        let first = self.classes[class as usize].waiting.is_empty();
        if first && self.may_go(cx.requests, cx.now, class, id) {
            self.let_go(cx.requests, cx.now, class, id);
            return;
        }
        let subject = Subject::Request { id, sequence: request.sequence };
        let values =
            [self.limit(cx.now, request).into(), self.classes[class as usize].in_flight.into()];
        cx.decide(subject, "over the depth of writeback: {}, with {} in flight", values);
        self.classes[class as usize].waiting.push_back(cx.requests, id);
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.judge(cx);
        let sent = |id: RequestId| cx.requests[id].dispatched != Instant::MAX;
        self.watched_sent = self.watched.is_some_and(sent);
        self.passed.pop_front(cx.requests)
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.judge(cx);
        let request = &cx.requests[id];
        let (operation, took) = (request.operation, cx.now.since(request.dispatched));
        if self.timer.is_some() {
            match operation {
                Operation::Read => {
                    let fastest = self.window.fastest_read.map_or(took, |least| least.min(took));
                    self.window.fastest_read = Some(fastest);
                }
                _ => self.window.writes += 1,
            }
        }
        if operation == Operation::Read {
            self.last_completed = cx.now;
            let mut parts = cx.requests.parts(id);
            if parts.any(|(part, _)| Some(part) == self.watched) {
                self.watched = None;
            }
            return;
        }
        let (mut of, mut many) = (None, 0);
        for (part, _) in cx.requests.parts(id) {
            if let Some(class) = self.tracked.get_mut(part.0 as usize).and_then(Option::take) {
                (of, many) = (Some(class), many + 1);
            }
        }
        if let Some(class) = of {
            self.completed(cx, class, many);
        }
    }
    fn next_wakeup(&self) -> Option<Instant> {
        let waits = self.classes.iter().any(|class| !class.waiting.is_empty());
        // Only a step up releases requests. At the top, a step down must come first; if none is possible, the ends of windows
        // can wait for the next call.
        let matters = !self.depth.is_at_top() || self.watched_sent || self.window_is_slow();
        self.timer.filter(|_| waits && matters)
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("wbt_depth", self.depth.max().into());
        gauges.gauge("wbt_window_ns", self.depth.window().0);
        let [writes, discards] = &self.classes;
        gauges.gauge("wbt_in_flight_writes", writes.in_flight.into());
        gauges.gauge("wbt_in_flight_discards", discards.in_flight.into());
        let held = writes.waiting.len() + discards.waiting.len();
        gauges.gauge("wbt_held_requests", held as u64);
    }
}
