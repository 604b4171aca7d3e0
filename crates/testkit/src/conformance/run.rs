//! Runs a list of steps through an engine, with checkers watching, in one of five moods of its owner.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use iofair_core::contract::Contract;
use iofair_core::controller::{Completion, Controller, Dispatch, Plug, Setup, Stack, Submission};
use iofair_core::id::{ClientId, CommandId, GroupId, RequestId};
use iofair_core::policy::Gauges;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation, Part};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::ceilings::Promise;
use super::check::{Accepted, Checker, Event, Settled};
use super::operations::{NewRequest, Step};
use super::random::Random;

/// What to run.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) seed: u64,
    pub(super) setup: Setup,
    /// The stack under test and those it is switched to, itself first.
    pub(super) stacks: Vec<Stack>,
    pub(super) steps: Vec<Step>,
}

/// How the owner of the engine keeps to the contract of [`Controller`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mood {
    /// Asks when something happened and exactly at each wake-up, never else.
    Exact,
    /// Also asks twice, and early, and in between, and reads gauges and the trace.
    Restless,
    /// Serves wake-ups late: when something else happens, or after a while.
    Late,
    /// Asks after a completion only if that was of a flush or [`World::calls_for_dispatch`].
    Sparing,
    /// As exact, but now and then it passes a time that lies back, ids of what is gone or was never there, and requests that
    /// cannot be. All of that must be refused or ignored, and change nothing.
    Confused,
    /// Canary of the mood above: what it passes as wrong is right.
    Misled,
}

/// What came out, to be compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Line {
    Sent { at: Instant, operation: Operation, start: Sectors, length: Sectors, tags: Vec<u64> },
    Completed { at: Instant, tags: Vec<u64> },
}

/// A clause of the law that was broken.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) clause: &'static str,
    pub(super) mood: Mood,
    pub(super) text: String,
    /// How many steps had been taken.
    pub(super) step: usize,
}

/// Wake-ups that one run may serve, besides one a millisecond for this many; more is a runaway (a run of 400 steps
/// needs some hundreds).
const WAKEUPS_MAX: u64 = 100_000;
const PERIODS: u64 = 2_000_000;

/// Runs a case; a panic counts as a broken clause.
pub(super) fn run(
    case: &Case,
    mood: Mood,
    checkers: Vec<Box<dyn Checker>>,
) -> Result<Vec<Line>, Failure> {
    let mut world = World::new(case, mood, checkers);
    let result = catch_unwind(AssertUnwindSafe(|| world.whole_run()));
    let (clause, text) = match result {
        Ok(Ok(())) => return Ok(world.lines),
        Ok(Err(broken)) => broken,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            ("panic", text.unwrap_or_default())
        }
    };
    Err(Failure { clause, mood, text, step: world.step })
}

type Broken = (&'static str, String);

struct World<'a> {
    case: &'a Case,
    mood: Mood,
    checkers: Vec<Box<dyn Checker>>,
    engine: Controller,
    now: Instant,
    lines: Vec<Line>,
    flying: Vec<Dispatch>,
    /// The last command that was completed, and client and group that were removed.
    gone: Option<CommandId>,
    gone_client: Option<ClientId>,
    gone_group: Option<GroupId>,
    clients: Vec<ClientId>,
    /// Submissions in the engine, by tag.
    inside: BTreeMap<u64, (ClientId, RequestId)>,
    groups: Vec<GroupId>,
    groups_made: u32,
    tag: u64,
    step: usize,
    wakeups: u64,
    /// For choices that every mood makes alike.
    drain: Random,
    /// For the mood's own.
    noise: Random,
}

struct NoGauges;
impl Gauges for NoGauges {
    fn gauge(&mut self, _: &'static str, _: u64) {}
}

fn fold<T: Copy>(number: u64, list: &[T]) -> Option<T> {
    let index = number.checked_rem(list.len() as u64)?;
    Some(list[index as usize])
}

impl<'a> World<'a> {
    fn new(case: &'a Case, mood: Mood, checkers: Vec<Box<dyn Checker>>) -> Self {
        let trace = if mood == Mood::Restless { 16 } else { 0 };
        let setup = Setup { trace, ..case.setup };
        Self {
            case,
            mood,
            checkers,
            engine: Controller::new(setup, case.stacks[0].clone()),
            now: Instant(1_000_000),
            lines: Vec::new(),
            flying: Vec::new(),
            gone: None,
            gone_client: None,
            gone_group: None,
            clients: Vec::new(),
            inside: BTreeMap::new(),
            groups: vec![GroupId::ROOT],
            groups_made: 0,
            tag: 0,
            step: 0,
            wakeups: 0,
            drain: Random::new(case.seed ^ 0xd12a),
            noise: Random::new(case.seed ^ 0x2015e),
        }
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Broken> {
        for checker in &mut self.checkers {
            checker.see(self.now, event).map_err(|text| (checker.name(), text))?;
        }
        Ok(())
    }
    fn state(&self) -> Settled {
        Settled {
            in_flight: self.engine.in_flight(),
            pending: self.engine.pending(),
            groups: self.engine.groups().iter().count(),
            of_one_client: self.clients.iter().map(|client| self.engine.pending_of(*client)).max(),
            next_wakeup: self.engine.next_wakeup(),
        }
    }

    fn whole_run(&mut self) -> Result<(), Broken> {
        for number in 0..3 {
            self.add_group(number, Contract::default());
            self.add_client(number + 1, Priority::default());
        }
        self.tell_contracts()?;
        for step in &self.case.steps {
            self.take(step)?;
            self.step += 1;
        }
        self.drain()?;
        for client in core::mem::take(&mut self.clients) {
            let counters = self.engine.counters(client);
            self.see(&Event::Counted(client, &counters))?;
        }
        let state = self.state();
        self.see(&Event::Ended(&state))
    }
    /// Completions everything, then lets the engine come to rest.
    fn drain(&mut self) -> Result<(), Broken> {
        while self.engine.pending() > 0 {
            if !self.flying.is_empty() {
                let pause = self.drain.scale(1, 1_000_000);
                self.advance(self.now + Nanos(pause))?;
                let pick = self.drain.next();
                self.complete(pick, 0)?;
            } else if let Some(at) = self.engine.next_wakeup() {
                self.advance(at)?;
            } else {
                break;
            }
        }
        for _ in 0..1000 {
            let Some(at) = self.engine.next_wakeup() else { break };
            self.advance(at)?;
        }
        Ok(())
    }

    fn take(&mut self, step: &Step) -> Result<(), Broken> {
        match step {
            Step::Submit(ask) => self.submit(ask)?,
            Step::Plug(asks) => self.plug(asks)?,
            Step::Complete { pick, status } => return self.complete(*pick, *status).map(|_| ()),
            Step::Reply { pick, think, elsewhere } => {
                let Some(done) = self.complete(*pick, 0)? else { return Ok(()) };
                self.advance(self.now + *think)?;
                self.go_on(&done, *elsewhere)?;
            }
            Step::Advance(time) => return self.advance(self.now + *time),
            Step::AddGroup { parent, contract } => self.add_group(*parent, contract.clone()),
            Step::UpdateGroup { group, contract } => {
                let group = fold(*group, &self.groups).expect("the root is there");
                let updated = self.engine.update_group(self.now, group, contract.clone());
                updated.expect("a group that is there");
            }
            Step::RemoveGroup { group } => {
                let group = fold(*group, &self.groups).expect("the root is there");
                if self.engine.remove_group(self.now, group).is_ok() {
                    self.groups.retain(|other| *other != group);
                    self.gone_group = Some(group);
                }
            }
            Step::AddClient { group, priority } => self.add_client(*group, *priority),
            Step::UpdateClient { client, group, priority } => {
                let group = fold(*group, &self.groups).expect("the root is there");
                if let Some(client) = fold(*client, &self.clients) {
                    let updated = self.engine.update_client(self.now, client, group, *priority);
                    updated.expect("a client and a group that are there");
                }
            }
            Step::RemoveClient { client } => self.remove_client(*client)?,
            Step::Cancel { client, odd } => self.cancel(*client, *odd)?,
            Step::Switch { stack } => {
                let index = *stack as usize % self.case.stacks.len();
                self.engine.switch(self.now, self.case.stacks[index].clone());
            }
        }
        if let Step::AddGroup { .. }
        | Step::UpdateGroup { .. }
        | Step::RemoveGroup { .. }
        | Step::Switch { .. } = step
        {
            self.tell_contracts()?;
        }
        self.settle()
    }
    fn tell_contracts(&mut self) -> Result<(), Broken> {
        let tags = self.case.setup.tags;
        let (groups, promise) = (self.engine.groups(), Promise::made_by(self.engine.stack(), tags));
        for checker in &mut self.checkers {
            let seen = checker.see(self.now, &Event::Changed(groups, promise));
            seen.map_err(|text| (checker.name(), text))?;
        }
        Ok(())
    }
    fn add_group(&mut self, parent: u64, contract: Contract) {
        self.groups_made += 1;
        let parent = fold(parent, &self.groups).expect("the root is there");
        let above = &self.engine.groups().group(parent).name;
        let slash = if above.is_empty() { "" } else { "/" };
        let path = format!("{above}{slash}g{}", self.groups_made);
        let added = self.engine.add_group(self.now, &path, contract);
        self.groups.push(added.expect("a new name under a group that is there"));
    }
    fn add_client(&mut self, group: u64, priority: Priority) {
        let group = fold(group, &self.groups).expect("the root is there");
        let added = self.engine.add_client(self.now, group, priority);
        self.clients.push(added.expect("the group is there"));
    }
    fn remove_client(&mut self, client: u64) -> Result<(), Broken> {
        let Some(client) = fold(client, &self.clients) else { return Ok(()) };
        let counters = self.engine.counters(client);
        if self.engine.remove_client(self.now, client).is_ok() {
            self.clients.retain(|other| *other != client);
            self.gone_client = Some(client);
            self.see(&Event::Counted(client, &counters))?;
        }
        Ok(())
    }

    fn cancel(&mut self, client: u64, odd: bool) -> Result<(), Broken> {
        let Some(client) = fold(client, &self.clients) else { return Ok(()) };
        let goes = |tag: u64, of: ClientId| of == client && !(odd && tag.is_multiple_of(2));
        let ids = self.inside.iter().filter(|(tag, (of, _))| goes(**tag, *of));
        let ids: Vec<RequestId> = ids.map(|(_, (_, id))| *id).collect();
        let mut gone = Vec::new();
        for id in ids {
            let inside = &self.inside;
            let is_gone = |tag| inside.get(&tag).is_some_and(|(of, _)| goes(tag, *of));
            self.engine.cancel(self.now, id, is_gone, &mut gone);
        }
        self.inside.retain(|tag, _| !gone.contains(tag));
        self.see(&Event::Cancelled(&gone))
    }

    fn submission(&mut self, ask: &NewRequest) -> Option<Submission> {
        let client = fold(ask.client, &self.clients)?;
        self.tag += 1;
        let NewRequest { operation, flags, start, length, .. } = *ask;
        Some(Submission { tag: self.tag, client, operation, flags, start, length })
    }
    fn accepted(&mut self, submission: &Submission) -> Result<(), Broken> {
        let Submission { tag, client, operation, flags, start, length } = *submission;
        let known = self.engine.groups().client(client);
        let (group, priority) = (known.group, known.priority);
        let accepted = Accepted { tag, client, group, priority, operation, flags, start, length };
        self.see(&Event::Accepted(&accepted))
    }
    fn submit(&mut self, ask: &NewRequest) -> Result<(), Broken> {
        let Some(submission) = self.submission(ask) else { return Ok(()) };
        self.hand_in(&submission)
    }
    fn hand_in(&mut self, submission: &Submission) -> Result<(), Broken> {
        match self.engine.submit(self.now, *submission) {
            Ok(id) => {
                self.inside.insert(submission.tag, (submission.client, id));
                self.accepted(submission)
            }
            Err(_) => Ok(()),
        }
    }
    fn plug(&mut self, asks: &[NewRequest]) -> Result<(), Broken> {
        let (mut plug, mut gathered) = (Plug::new(), Vec::new());
        // A plug that reserves slots loses none of its requests; another one those that are refused.
        let reserves = self.case.seed.is_multiple_of(2);
        for ask in asks {
            let Some(submission) = self.submission(ask) else { return Ok(()) };
            if !reserves {
                plug.add(submission);
            } else if self.engine.gather(&mut plug, submission).is_err() {
                continue;
            }
            gathered.push(submission);
        }
        let unplugged = self.engine.unplug(self.now, &mut plug);
        assert!(!reserves || unplugged.is_ok(), "a plug with slots was refused: {unplugged:?}");
        let taken = gathered.len() - plug.len();
        assert_eq!(plug.admitted().len(), taken, "what was taken is known");
        for ((tag, id), submission) in plug.admitted().iter().zip(&gathered) {
            assert_eq!(*tag, submission.tag, "in the order of submission");
            self.inside.insert(*tag, (submission.client, *id));
        }
        gathered[..taken].iter().try_for_each(|submission| self.accepted(submission))
    }

    /// The client of an completed request sends another like it.
    fn go_on(&mut self, done: &Completion, elsewhere: Option<Sectors>) -> Result<(), Broken> {
        let Part { client, start, length, .. } = done.part;
        let next = start + length;
        let fits = next + length <= self.case.setup.facts.capacity;
        let start = elsewhere.unwrap_or(if fits { next } else { Sectors::ZERO });
        self.tag += 1;
        let (tag, operation, flags) = (self.tag, done.operation, Flags::NONE);
        self.hand_in(&Submission { tag, client, operation, flags, start, length })
    }
    /// Completions one command; returns its first submission.
    fn complete(&mut self, pick: u64, status: i32) -> Result<Option<Completion>, Broken> {
        if self.flying.is_empty() {
            return Ok(None);
        }
        let index = pick as usize % self.flying.len();
        let command = self.flying.swap_remove(index);
        self.gone = Some(command.command);
        let mut done = Vec::new();
        let parts: Vec<_> = self.engine.parts(command.command).collect();
        let idled_until = self.engine.next_wakeup();
        self.engine
            .complete(self.now, command.command, status, &mut done)
            .expect("the drive has it");
        let tags: Vec<u64> = done.iter().map(|done| done.part.tag).collect();
        self.inside.retain(|tag, _| !tags.contains(tag));
        self.lines.push(Line::Completed { at: self.now, tags });
        self.see(&Event::Completed { parts: &parts, done: &done, status })?;
        let called = command.operation == Operation::Flush || self.calls_for_dispatch(idled_until);
        if called || self.mood != Mood::Sparing {
            self.settle()?;
        } else {
            let state = self.state();
            self.see(&Event::Settled(&state))?;
        }
        Ok(done.first().copied())
    }

    /// Whether the kernel runs its queue after a completion with an NVMe driver, as the laboratory has it: BFQ only if the
    /// drive is empty and it did not begin to idle, unless the drive was full or something waits outside of it.
    fn calls_for_dispatch(&self, idled_until: Option<Instant>) -> bool {
        let (engine, stack) = (&self.engine, self.engine.stack());
        let until = engine.next_wakeup();
        let begins_to_idle = until.is_some() && until != idled_until;
        engine.in_flight() + 1 >= engine.facts().depth
            || engine.has_waiting()
            || !stack.throttles.is_empty()
            || !stack.scheduler.row.name.starts_with("bfq")
            || (engine.in_flight() == 0 && !begins_to_idle)
    }
    /// Asks the engine until it has nothing for the drive.
    fn settle(&mut self) -> Result<(), Broken> {
        loop {
            while let Some(command) = self.engine.dispatch(self.now) {
                self.sent(command)?;
            }
            if matches!(self.mood, Mood::Confused | Mood::Misled) {
                self.confuse()?;
                break;
            }
            if self.mood != Mood::Restless || self.noise.one_in(2) {
                break;
            }
            self.engine.observe(&mut NoGauges);
        }
        let state = self.state();
        self.see(&Event::Settled(&state))
    }
    fn sent(&mut self, command: Dispatch) -> Result<(), Broken> {
        let parts: Vec<_> = self.engine.parts(command.command).collect();
        let tags = parts.iter().map(|part| part.tag).collect();
        let Dispatch { operation, start, length, .. } = command;
        self.lines.push(Line::Sent { at: self.now, operation, start, length, tags });
        self.flying.push(command);
        self.see(&Event::Dispatched { command: &command, parts: &parts })
    }
    /// A time before the present one.
    fn back(&mut self) -> Instant {
        Instant(self.now.0 - self.noise.below(self.now.0))
    }
    /// Mistakes of the engine's owner. The engine must refuse ids and requests that are wrong, and a time that lies back
    /// must count as the latest that it was told.
    fn confuse(&mut self) -> Result<(), Broken> {
        let wrong = |what: &str| Err(("mistakes", format!("{what} was accepted")));
        let at = self.back();
        if let Some(command) = self.engine.dispatch(at) {
            return wrong(&format!("{at:?}, and gave {command:?}, which"));
        }
        let mut done = Vec::new();
        let gone = self.gone.filter(|gone| self.flying.iter().all(|sent| sent.command != *gone));
        if gone.is_some_and(|gone| self.engine.complete(at, gone, 0, &mut done).is_ok()) {
            return wrong("the completion of a command that is not in the drive");
        }
        let nobody = ClientId::from_bits(u64::MAX - 1);
        let client = fold(self.noise.next(), &self.clients);
        let misled = client.filter(|_| self.mood == Mood::Misled);
        let submission = Submission {
            tag: u64::MAX,
            client: misled.or(self.gone_client).unwrap_or(nobody),
            operation: Operation::Read,
            flags: Flags::NONE,
            start: Sectors(0),
            length: Sectors(1),
        };
        if self.engine.submit(at, submission).is_ok() {
            return wrong("a request of a client that is not there");
        }
        let beyond = Submission {
            client: client.unwrap_or(nobody),
            start: self.case.setup.facts.capacity,
            ..submission
        };
        if self.engine.submit(at, beyond).is_ok() {
            return wrong("a request beyond the end of the drive");
        }
        let group = self.gone_group.unwrap_or(GroupId::from_bits(u64::MAX - 1));
        if self.engine.update_group(at, group, Contract::default()).is_ok()
            || self.engine.remove_group(at, group).is_ok()
            || self.engine.add_client(at, group, Priority::default()).is_ok()
        {
            return wrong("a group that is not there");
        }
        Ok(())
    }
    /// Lets time pass.
    fn advance(&mut self, to: Instant) -> Result<(), Broken> {
        let to = match self.mood {
            Mood::Late if self.noise.one_in(2) => to + Nanos(self.noise.scale(1, 50_000_000)),
            _ => to,
        };
        if self.mood == Mood::Late {
            self.now = self.now.max(to);
            let due = self.engine.next_wakeup().is_some_and(|at| at <= self.now);
            return if due { self.wake() } else { Ok(()) };
        }
        loop {
            let wakeup = self.engine.next_wakeup().filter(|at| *at <= to);
            if self.mood == Mood::Restless {
                self.fidget(wakeup.unwrap_or(to))?;
            }
            let Some(at) = wakeup else { break };
            self.now = self.now.max(at);
            self.wake()?;
        }
        self.now = self.now.max(to);
        Ok(())
    }
    fn wake(&mut self) -> Result<(), Broken> {
        self.wakeups += 1;
        let periods = self.now.since(Instant::ZERO).as_millis();
        if self.wakeups > WAKEUPS_MAX + periods.min(PERIODS) {
            return Err(("runaway", format!("{} wake-ups in {periods} ms", self.wakeups)));
        }
        self.see(&Event::Woken)?;
        self.settle()
    }
    /// Asks early, at up to two moments before `until`.
    fn fidget(&mut self, until: Instant) -> Result<(), Broken> {
        for _ in 0..self.noise.below(3) {
            let left = until.since(self.now).0;
            if left > 1 {
                self.now += Nanos(self.noise.below(left - 1));
                self.settle()?;
            }
        }
        Ok(())
    }
}
