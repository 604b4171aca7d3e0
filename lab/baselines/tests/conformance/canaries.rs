//! Broken policies, each wrapped around a whole one, which the checkers must catch.

use std::sync::atomic::{AtomicU64, Ordering};

use iofair_baselines::TABLE;
use iofair_core::group::Change;
use iofair_core::id::RequestId;
use iofair_core::params::Values;
use iofair_core::policy::{Build, Context, Policy, Row};
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_testkit::conformance::{CONFUSED, REPEATABLE, RESTLESS};

use crate::broken::row;

/// How a canary is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Loses,
    Doubles,
    Invents,
    Damages,
    LetsFlushPass,
    HoldsForEver,
    HoldsAsleep,
    AsksInThePast,
    NeverSleeps,
    CountsCalls,
    WatchesTheTrace,
    DependsOnChance,
    ForgetsWhenLate,
    MergesAnything,
    MergesTooMuch,
    MergesFirst,
    LetsSomeThrough,
}

/// Every canary and the clause that must catch it.
pub(crate) static CANARIES: &[(&str, &Row)] = &[
    ("ledger", &row("loses", |b| broken(b, How::Loses))),
    ("ledger", &row("doubles", |b| broken(b, How::Doubles))),
    ("ledger", &row("invents", |b| broken(b, How::Invents))),
    ("ledger", &row("damages", |b| broken(b, How::Damages))),
    ("ledger", &row("forgets-when-late", |b| broken(b, How::ForgetsWhenLate))),
    ("flush order", &row("lets-flush-pass", |b| broken(b, How::LetsFlushPass))),
    ("wake-ups", &row("holds-for-ever", |b| broken(b, How::HoldsForEver))),
    ("wake-ups", &row("holds-asleep", |b| broken(b, How::HoldsAsleep))),
    ("wake-ups", &row("asks-in-the-past", |b| broken(b, How::AsksInThePast))),
    ("wake-ups", &row("never-sleeps", |b| broken(b, How::NeverSleeps))),
    ("merges", &row("merges-anything", |b| broken(b, How::MergesAnything))),
    ("bounds", &row("merges-too-much", |b| broken(b, How::MergesTooMuch))),
    (RESTLESS, &row("counts-calls", |b| broken(b, How::CountsCalls))),
    (RESTLESS, &row("watches-the-trace", |b| broken(b, How::WatchesTheTrace))),
    (CONFUSED, &row("counts-calls", |b| broken(b, How::CountsCalls))),
    (REPEATABLE, &row("depends-on-chance", |b| broken(b, How::DependsOnChance))),
];

/// The same for throttles: those of the schedulers' that are as wrong above a scheduler, and some that gather requests for a
/// while, without which a throttle has no order.
pub(crate) fn throttles() -> impl Iterator<Item = (&'static str, &'static Row)> {
    const ORDER: [&str; 3] = [RESTLESS, CONFUSED, REPEATABLE];
    let alike =
        |(clause, row): &(&str, &Row)| !ORDER.contains(clause) && !row.name.starts_with("merges");
    let all = CANARIES.iter().copied().filter(alike).chain(GATHERING.iter().copied());
    all.chain(CEILINGS.iter().copied())
}

/// Throttles that claim to keep ceilings.
static CEILINGS: &[(&str, &Row)] = &[
    ("ceilings", &Row { short: "max", ..row("merges-first", |b| limiting(b, How::MergesFirst)) }),
    (
        "ceilings",
        &Row { short: "max", ..row("lets-some-through", |b| limiting(b, How::LetsSomeThrough)) },
    ),
];

static GATHERING: &[(&str, &Row)] = &[
    (RESTLESS, &row("counts-calls", |b| gathering(b, How::CountsCalls))),
    (RESTLESS, &row("watches-the-trace", |b| gathering(b, How::WatchesTheTrace))),
    (CONFUSED, &row("counts-calls", |b| gathering(b, How::CountsCalls))),
    (REPEATABLE, &row("depends-on-chance", |b| gathering(b, How::DependsOnChance))),
];

fn broken(build: &Build<'_>, how: How) -> Box<dyn Policy + Send> {
    Box::new(new(build, how))
}
fn gathering(build: &Build<'_>, how: How) -> Box<dyn Policy + Send> {
    Box::new(Broken { gathers: true, ..new(build, how) })
}
fn limiting(build: &Build<'_>, how: How) -> Box<dyn Policy + Send> {
    Box::new(around("max", build, how))
}
fn new(build: &Build<'_>, how: How) -> Broken {
    around("noop", build, how)
}
fn around(whole: &str, build: &Build<'_>, how: How) -> Broken {
    let row = TABLE.find(whole).expect("in the table");
    let values = Values::new(row.parameters, row.overrides);
    let whole = (row.build)(&Build { values: &values, ..*build });
    Broken { whole, how, gathers: false, calls: 0, held: Vec::new(), wakeup: None }
}

struct Broken {
    whole: Box<dyn Policy + Send>,
    how: How,
    /// Holds each request for up to a millisecond.
    gathers: bool,
    calls: usize,
    /// Kept from the whole policy.
    held: Vec<RequestId>,
    wakeup: Option<Instant>,
}

static CHANCE: AtomicU64 = AtomicU64::new(0);

impl Broken {
    fn keeps_all(&self) -> bool {
        matches!(self.how, How::CountsCalls | How::WatchesTheTrace | How::DependsOnChance)
    }
    fn take_held(&mut self, cx: &Context<'_>) -> Option<RequestId> {
        let last = self.held.len().checked_sub(1)?;
        let index = match self.how {
            How::CountsCalls => self.calls % self.held.len(),
            How::WatchesTheTrace if cx.trace.is_on() => last,
            How::DependsOnChance => {
                CHANCE.fetch_add(1, Ordering::Relaxed) as usize % self.held.len()
            }
            _ => 0,
        };
        Some(self.held.remove(index))
    }
    /// An earlier request that `id` follows, whatever the rules say.
    fn follows(&self, cx: &Context<'_>, id: RequestId, rules: bool) -> Option<RequestId> {
        let longest = Sectors(if rules { cx.facts.max_request.0 } else { u64::MAX });
        self.held.iter().copied().find(|other| {
            let alike = cx.requests[*other].operation == cx.requests[id].operation
                && cx.requests[id].operation != Operation::Flush;
            let fits = cx.requests[*other].length + cx.requests[id].length <= longest;
            let alike = alike && (rules || cx.requests.can_merge(*other, id, longest));
            alike && fits && cx.requests[*other].end() == cx.requests[id].start
        })
    }
    fn waiting_flush(&self, cx: &Context<'_>) -> Option<RequestId> {
        (0..512).map(RequestId).find(|id| {
            let live = cx.requests.is_live(*id);
            live && cx.requests[*id].operation == Operation::Flush
                && cx.requests[*id].dispatched == Instant::MAX
        })
    }
}

impl Policy for Broken {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.calls += 1;
        match self.how {
            How::Loses if self.calls.is_multiple_of(7) => return,
            How::MergesAnything | How::MergesTooMuch => return self.held.push(id),
            How::HoldsForEver | How::HoldsAsleep if self.calls.is_multiple_of(5) => {
                self.wakeup = Some(cx.now + Nanos::from_millis(1));
                return self.held.push(id);
            }
            How::ForgetsWhenLate => {
                self.wakeup.get_or_insert(cx.now + Nanos::from_millis(1));
                return self.held.push(id);
            }
            How::LetsSomeThrough if self.calls.is_multiple_of(5) => return self.held.push(id),
            // As if a plug above had merged them: the ceilings see one request.
            How::MergesFirst => {
                let longest = cx.facts.max_request;
                let last = self.held.pop().filter(|last| cx.requests.head(*last).is_some());
                if let Some(last) = last.filter(|last| cx.requests.can_merge(*last, id, longest)) {
                    self.held.push(last);
                    return cx.requests.merge_back(last, id);
                }
                self.held.push(id);
            }
            _ if self.keeps_all() => {
                if self.gathers {
                    self.wakeup.get_or_insert(cx.now + Nanos::from_millis(1));
                }
                return self.held.push(id);
            }
            _ => {}
        }
        self.whole.submit(cx, id);
    }
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let into = match self.how {
            How::MergesAnything => self.follows(cx, id, true),
            How::MergesTooMuch => self.follows(cx, id, false),
            _ => return self.held.is_empty() && self.whole.try_merge(cx, id),
        };
        if let Some(into) = into {
            cx.requests.merge_back(into, id);
        }
        into.is_some()
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.calls += usize::from(self.how == How::CountsCalls);
        match self.how {
            How::LetsFlushPass => {
                if let Some(flush) = self.waiting_flush(cx) {
                    return Some(flush);
                }
            }
            How::HoldsForEver => self.wakeup = Some(cx.now + Nanos::from_millis(1)),
            How::NeverSleeps => self.wakeup = Some(cx.now + Nanos::from_secs(1)),
            How::AsksInThePast => self.wakeup = Some(Instant(1)),
            How::ForgetsWhenLate => {
                let late = self.wakeup.is_some_and(|at| cx.now > at + Nanos::from_millis(1));
                if self.wakeup.is_none_or(|at| cx.now < at) {
                    return None;
                }
                self.wakeup = self.wakeup.filter(|_| !self.held.is_empty());
                if late {
                    self.held.clear();
                }
                return self.take_held(cx);
            }
            How::MergesAnything | How::MergesTooMuch => return self.take_held(cx),
            How::LetsSomeThrough if !self.held.is_empty() => return self.take_held(cx),
            _ if self.keeps_all() => {
                if self.wakeup.is_some_and(|at| cx.now < at) {
                    return None;
                }
                let id = self.take_held(cx);
                self.wakeup = self.wakeup.filter(|_| !self.held.is_empty());
                return id;
            }
            _ => {}
        }
        let id = self.whole.dispatch(cx)?;
        self.calls += 1;
        match self.how {
            How::MergesFirst => {
                self.held.retain(|held| *held != id);
                let parts: Vec<_> = cx.requests.parts(id).map(|(part, _)| part).collect();
                parts.into_iter().for_each(|part| cx.requests[part].asked_tag = cx.now);
            }
            How::Doubles if self.calls.is_multiple_of(7) => self.whole.submit(cx, id),
            How::Damages if self.calls.is_multiple_of(7) => cx.requests[id].length += Sectors(1),
            How::Invents if self.calls.is_multiple_of(7) => {
                let mut invented = cx.requests[id].clone();
                invented.tag += 1 << 40;
                let invented = cx.requests.insert(invented);
                self.whole.submit(cx, invented);
            }
            _ => {}
        }
        Some(id)
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.whole.complete(cx, id);
    }
    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        self.whole.change(cx, change);
    }
    fn next_wakeup(&self) -> Option<Instant> {
        let own = self.wakeup.filter(|_| self.how != How::HoldsAsleep);
        own.into_iter().chain(self.whole.next_wakeup()).min()
    }
}
