//! The law, one clause a checker. Checkers stand outside: they see what goes into the engine and what
//! comes out of it, and know no policy. A request that was cancelled has left: it must not come out.

use std::collections::BTreeMap;

use iofair_core::controller::{Completion, Dispatch, Setup};
use iofair_core::group::Groups;
use iofair_core::id::{ClientId, GroupId};
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation, Part};
use iofair_core::stats::counters::Counters;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::ceilings::{Ceilings, Promise};

/// A submission as the engine took it in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Accepted {
    pub(super) tag: u64,
    pub(super) client: ClientId,
    pub(super) group: GroupId,
    pub(super) priority: Priority,
    pub(super) operation: Operation,
    pub(super) flags: Flags,
    pub(super) start: Sectors,
    pub(super) length: Sectors,
}

/// The engine after its owner asked until it said "nothing".
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub(super) in_flight: u32,
    pub(super) pending: usize,
    /// Groups there are, the root included.
    pub(super) groups: usize,
    /// The largest number of pending requests of one client.
    pub(super) of_one_client: Option<u32>,
    pub(super) next_wakeup: Option<Instant>,
}

/// What a checker sees.
pub(super) enum Event<'a> {
    Accepted(&'a Accepted),
    Dispatched {
        command: &'a Dispatch,
        parts: &'a [Part],
    },
    Completed {
        /// What the completed command stood for.
        parts: &'a [Part],
        done: &'a [Completion],
        status: i32,
    },
    /// These submissions will neither reach the drive nor be completed.
    Cancelled(&'a [u64]),
    Settled(&'a Settled),
    /// A wake-up was served.
    Woken,
    /// Groups, their contracts or the stack are others from now on.
    Changed(&'a Groups, Option<Promise>),
    /// A client is about to go, or the run is over: what the engine counted for it.
    Counted(ClientId, &'a Counters),
    /// Everything was completed and every wake-up served that could be.
    Ended(&'a Settled),
}

/// One clause of the law.
pub(super) trait Checker {
    fn name(&self) -> &'static str;
    fn see(&mut self, now: Instant, event: &Event<'_>) -> Result<(), String>;
}

/// All clauses for a drive and its limits, and an owner that serves wake-ups so late.
pub(super) fn all(setup: &Setup, late: Nanos) -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(Ledger::default()),
        Box::new(FlushOrder::default()),
        Box::new(Merges::default()),
        Box::new(WakeUps::default()),
        Box::new(Bounds { setup: *setup }),
        Box::new(Counts::default()),
        Box::new(Ceilings::new(setup, late)),
    ]
}

pub(super) fn law(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}

/// A request as the drive sees it.
struct Open {
    accepted: Accepted,
    /// Sectors of it that were sent, from its first one on; a flush has none, and counts as one.
    sent: Sectors,
    /// Commands with a piece of it that were not completed.
    commands: u32,
    /// The first error of one of them.
    status: i32,
}

/// No request lost, doubled or invented: each is sent once, whole or piece by piece in order, and completed once, when
/// all of it was, with its own sectors and the first error of its pieces.
#[derive(Default)]
pub(super) struct Ledger {
    /// Taken in and not yet completed.
    open: BTreeMap<u64, Open>,
}

impl Ledger {
    fn sent(&mut self, command: &Dispatch, parts: &[Part]) -> Result<(), String> {
        let flush = command.operation == Operation::Flush;
        let mut next = command.start;
        for part in parts {
            let tag = part.tag;
            let open = self.open.get_mut(&tag).ok_or(format!("{tag} was invented"))?;
            let Open { accepted, sent, .. } = open;
            let whole = if flush { Sectors(1) } else { accepted.length };
            law(*sent < whole, || format!("{tag} was sent twice"))?;
            let start = if flush { accepted.start } else { accepted.start + *sent };
            let follows = (part.start, command.operation) == (start, accepted.operation);
            law(follows, || format!("{accepted:?} was sent as {part:?} of {command:?}"))?;
            law(flush || part.start == next, || {
                format!("{part:?} does not follow in {command:?}")
            })?;
            next += part.length;
            *sent += if flush { Sectors(1) } else { part.length };
            law(*sent <= whole, || format!("{accepted:?} was sent as {part:?} of {command:?}"))?;
            open.commands += 1;
        }
        let whole = flush || next == command.start + command.length;
        law(whole, || format!("{command:?} is not the sum of its parts {parts:?}"))
    }
    fn came(&mut self, parts: &[Part], status: i32) -> Result<(), String> {
        for part in parts {
            let tag = part.tag;
            let open = self.open.get_mut(&tag).ok_or(format!("{tag} was not awaited"))?;
            open.commands -= 1;
            open.status = if open.status == 0 { status } else { open.status };
        }
        Ok(())
    }
    fn completed(&mut self, done: &Completion, status: i32) -> Result<(), String> {
        let tag = done.part.tag;
        let open = self.open.remove(&tag).ok_or(format!("{tag} was not awaited"))?;
        let Open { accepted, sent, commands, status: first } = open;
        // Flushes that share a command are sent as one of them.
        let flush = accepted.operation == Operation::Flush;
        let whole = sent == accepted.length && commands == 0;
        law(flush || whole, || format!("{tag} was completed before all of it came"))?;
        let status = if flush { status } else { first };
        let told = (done.part.client, done.part.start, done.part.length, done.operation);
        let asked = (accepted.client, accepted.start, accepted.length, accepted.operation);
        law(told == asked && done.status == status, || {
            format!("{accepted:?} with {status} came as {done:?}")
        })
    }
}

impl Checker for Ledger {
    fn name(&self) -> &'static str {
        "ledger"
    }
    fn see(&mut self, _: Instant, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Accepted(accepted) => {
                let (sent, accepted) = (Sectors::ZERO, **accepted);
                let open = Open { accepted, sent, commands: 0, status: 0 };
                self.open.insert(accepted.tag, open);
                Ok(())
            }
            Event::Dispatched { command, parts } => self.sent(command, parts),
            Event::Completed { parts, done, status } => {
                self.came(parts, *status)?;
                done.iter().try_for_each(|done| self.completed(done, *status))
            }
            Event::Cancelled(tags) => tags.iter().try_for_each(|tag| {
                let open = self.open.remove(tag).ok_or(format!("{tag} was not awaited"))?;
                law(open.commands == 0 && open.sent == Sectors::ZERO, || {
                    format!("{tag} was cancelled though the drive had a part of it")
                })
            }),
            Event::Settled(state) => law(state.pending == self.open.len(), || {
                format!("{} are open, the engine says {}", self.open.len(), state.pending)
            }),
            Event::Ended(_) => {
                let lost: Vec<_> = self.open.values().map(|open| open.accepted.tag).collect();
                law(lost.is_empty(), || format!("never completed: {lost:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// A flush is sent only after the writes that its client submitted before it were completed.
#[derive(Default)]
pub(super) struct FlushOrder {
    /// Unanswered writes, by client in order of submission.
    writes: BTreeMap<(ClientId, u64), ()>,
    /// Flushes by their tag: the client, and the number of its first write after.
    flushes: BTreeMap<u64, (ClientId, u64)>,
    /// Writes by their tag.
    numbers: BTreeMap<u64, (ClientId, u64)>,
    next: u64,
    /// The oldest uncompleted write of each client when the running flush was sent.
    at_send: BTreeMap<ClientId, u64>,
}

impl FlushOrder {
    fn oldest_writes(&self) -> BTreeMap<ClientId, u64> {
        let mut oldest = BTreeMap::new();
        for (client, number) in self.writes.keys() {
            oldest.entry(*client).or_insert(*number);
        }
        oldest
    }
    fn covers_none_of(&self, tag: u64, oldest: &BTreeMap<ClientId, u64>) -> Result<(), String> {
        let Some((client, end)) = self.flushes.get(&tag) else { return Ok(()) };
        let passed = oldest.get(client).is_some_and(|number| number < end);
        law(!passed, || format!("flush {tag} passed a write of {client:?}"))
    }
}

impl Checker for FlushOrder {
    fn name(&self) -> &'static str {
        "flush order"
    }
    fn see(&mut self, _: Instant, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Accepted(accepted) => {
                self.next += 1;
                let entry = (accepted.client, self.next);
                if accepted.operation == Operation::Flush {
                    self.flushes.insert(accepted.tag, entry);
                } else if accepted.operation.modifies() {
                    self.writes.insert(entry, ());
                    self.numbers.insert(accepted.tag, entry);
                }
            }
            Event::Dispatched { command, parts } if command.operation == Operation::Flush => {
                self.at_send = self.oldest_writes();
                for part in *parts {
                    self.covers_none_of(part.tag, &self.at_send)?;
                }
            }
            Event::Cancelled(tags) => {
                for write in tags.iter().filter_map(|tag| self.numbers.remove(tag)) {
                    self.writes.remove(&write);
                }
            }
            Event::Completed { done, .. } => {
                for done in *done {
                    self.covers_none_of(done.part.tag, &self.at_send)?;
                    self.flushes.remove(&done.part.tag);
                    if let Some(write) = self.numbers.remove(&done.part.tag) {
                        self.writes.remove(&write);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Only what is alike becomes one command: operation, flags, group, priority; and never what said
/// that it must not.
#[derive(Default)]
pub(super) struct Merges {
    open: BTreeMap<u64, Accepted>,
}

impl Checker for Merges {
    fn name(&self) -> &'static str {
        "merges"
    }
    fn see(&mut self, _: Instant, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Accepted(accepted) => {
                self.open.insert(accepted.tag, **accepted);
            }
            Event::Dispatched { parts, .. } if parts.len() > 1 => {
                let accepted = parts.iter().filter_map(|part| self.open.get(&part.tag));
                let kinds = accepted.map(|a| (a.operation, a.flags, a.group, a.priority));
                let kinds: Vec<_> = kinds.collect();
                let alike = kinds.windows(2).all(|pair| pair[0] == pair[1]);
                law(alike, || format!("merged though different: {kinds:?}"))?;
                let first = kinds.first().ok_or("merged from nothing")?;
                let allowed = matches!(first.0, Operation::Read | Operation::Write)
                    && !first.1.has(Flags::NO_MERGE);
                law(allowed, || format!("merged though it must not be: {first:?}"))?;
            }
            Event::Cancelled(tags) => self.open.retain(|tag, _| !tags.contains(tag)),
            Event::Completed { done, .. } => {
                for done in *done {
                    self.open.remove(&done.part.tag);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Held work with nothing in flight asks for a wake-up, a wake-up lies in the future, serving them
/// makes progress, and an empty engine lets its owner sleep.
#[derive(Default)]
pub(super) struct WakeUps {
    /// Wake-ups served in a row that sent nothing though nothing was in flight.
    fruitless: u64,
    /// When the last command was sent.
    sent: Instant,
    woken: bool,
}

/// This many wake-ups may be served in vain before one must send something, besides one a millisecond for this many: the
/// shortest period of a policy that checks its clients from time to time. At a few bytes a second a command takes
/// minutes.
const FRUITLESS_MAX: u64 = 1000;
const FRUITLESS_PERIODS: u64 = 1_000_000;

impl Checker for WakeUps {
    fn name(&self) -> &'static str {
        "wake-ups"
    }
    fn see(&mut self, now: Instant, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Woken => self.woken = true,
            Event::Dispatched { .. } => (self.fruitless, self.sent) = (0, now),
            Event::Settled(state) => {
                let held = state.pending > 0 && state.in_flight == 0;
                law(!held || state.next_wakeup.is_some(), || {
                    format!("{} held, nothing in flight, no wake-up", state.pending)
                })?;
                let future = state.next_wakeup.is_none_or(|at| at > now);
                law(future, || format!("at {now:?} asks for {:?}", state.next_wakeup))?;
                self.fruitless += u64::from(held && self.woken);
                self.woken = false;
                let periods = now.since(self.sent).as_millis();
                law(self.fruitless <= FRUITLESS_MAX + periods.min(FRUITLESS_PERIODS), || {
                    format!("{} wake-ups without progress in {periods} ms", self.fruitless)
                })?;
            }
            Event::Ended(state) => {
                let sleeps = state.next_wakeup.is_none();
                law(sleeps, || "empty, and still asks to be woken".to_string())?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Every limit holds: the drive's depth and longest command, its end, the queue's length.
pub(super) struct Bounds {
    setup: Setup,
}

impl Checker for Bounds {
    fn name(&self) -> &'static str {
        "bounds"
    }
    fn see(&mut self, _: Instant, event: &Event<'_>) -> Result<(), String> {
        let Setup { facts, queue_limit, guaranteed, client_limit, .. } = &self.setup;
        match event {
            Event::Dispatched { command, .. } => {
                let end = command.start + command.length;
                let fits = command.length <= facts.max_request && end <= facts.capacity;
                law(fits, || format!("{command:?} is too much for {facts:?}"))
            }
            Event::Settled(Settled { in_flight, pending, groups, of_one_client, .. }) => {
                let slots = queue_limit + guaranteed * groups;
                let held = *in_flight <= facts.depth && *pending <= slots;
                let held = held && of_one_client.is_none_or(|most| most <= *client_limit);
                law(held, || format!("{in_flight} of {} sent, {pending} inside", facts.depth))
            }
            _ => Ok(()),
        }
    }
}

/// The engine's counters are what the completions add up to.
#[derive(Default)]
pub(super) struct Counts {
    clients: BTreeMap<ClientId, ([u64; 2], [u64; 2], u64)>,
}

impl Checker for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }
    fn see(&mut self, _: Instant, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Completed { done, .. } => {
                for done in *done {
                    let entry = self.clients.entry(done.part.client).or_default();
                    let (requests, bytes, flushes) = entry;
                    if done.operation == Operation::Flush {
                        *flushes += 1;
                        continue;
                    }
                    let direction = done.operation.direction() as usize;
                    requests[direction] += 1;
                    bytes[direction] += done.part.length.bytes();
                }
                Ok(())
            }
            Event::Counted(client, counters) => {
                let seen = self.clients.remove(client).unwrap_or_default();
                law(seen == (counters.requests, counters.bytes, counters.flushes), || {
                    format!("{client:?}: {seen:?} seen, {counters:?} counted")
                })
            }
            _ => Ok(()),
        }
    }
}
