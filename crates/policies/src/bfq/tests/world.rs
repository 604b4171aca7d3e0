//! A closed loop for tests: clients that send, think and send again, and a drive of a few lines:
//! some lanes, each busy for a fixed time a request, and one link that carries the sectors.

use std::format;
use std::vec::Vec;

use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, Dispatch, FlushRule, Setup, Submission};
use iofair_core::id::{ClientId, CommandId, GroupId};
use iofair_core::policy::DriveFacts;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Event;
use iofair_core::unit::Sectors;

/// A drive: `lanes` requests at once, each for `fixed`, then `sector` a sector one after another. On a
/// rotating one a request that does not follow the one before takes `seek` longer.
#[derive(Clone, Copy)]
pub(super) struct Drive {
    pub(super) rotational: bool,
    pub(super) lanes: usize,
    pub(super) fixed: Nanos,
    pub(super) sector: Nanos,
    pub(super) seek: Nanos,
}

impl Drive {
    /// Flash: 64 at once in 150 us each, 520 MB/s.
    pub(super) fn flash() -> Self {
        let (fixed, sector) = (Nanos::from_micros(150), Nanos(985));
        Self { rotational: false, lanes: 64, fixed, sector, seek: Nanos::ZERO }
    }
    /// A disk without queueing: 8 ms a seek, 100 MB/s.
    pub(super) fn disk() -> Self {
        let (fixed, sector) = (Nanos::from_micros(50), Nanos(5_120));
        Self { rotational: true, lanes: 1, fixed, sector, seek: Nanos::from_millis(8) }
    }
}

/// A client's way of sending.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) operation: Operation,
    pub(super) flags: Flags,
    pub(super) random: bool,
    pub(super) length: u64,
    pub(super) depth: u32,
    pub(super) think: Nanos,
    /// Where it reads, and how far apart requests in a row are.
    pub(super) base: u64,
    pub(super) stride: u64,
}

impl Job {
    /// 4 KiB anywhere, one at a time, 10 us after each completion.
    pub(super) fn random_read() -> Self {
        Self {
            operation: Operation::Read,
            flags: Flags::NO_MERGE,
            random: true,
            length: 8,
            depth: 1,
            think: Nanos::from_micros(10),
            base: 0,
            stride: 0,
        }
    }
    /// 128 KiB one after the other, two at a time.
    pub(super) fn sequential_read(base: u64) -> Self {
        Self { random: false, length: 256, depth: 2, base, stride: 256, ..Self::random_read() }
    }
    /// 128 KiB buffered writes, eight at a time.
    pub(super) fn writes(base: u64) -> Self {
        let operation = Operation::Write;
        Self { operation, depth: 8, ..Self::sequential_read(base) }
    }
}

struct Actor {
    client: ClientId,
    job: Job,
    next: u64,
    random: u64,
    /// Times at which it sends next; one a free place of its depth.
    due: Vec<Instant>,
    done: u64,
}

/// Clients, engine and drive.
pub(super) struct World {
    pub(super) controller: Controller,
    pub(super) now: Instant,
    drive: Drive,
    lanes: Vec<Instant>,
    link: Instant,
    head: Sectors,
    in_flight: Vec<(Instant, CommandId)>,
    actors: Vec<Actor>,
}

const CAPACITY: u64 = 1 << 28;

impl World {
    pub(super) fn new(stack: &str, drive: Drive, set: &[(&str, &str)]) -> Self {
        let facts = DriveFacts {
            rotational: drive.rotational,
            depth: 32,
            max_request: Sectors(512),
            capacity: Sectors(CAPACITY),
        };
        let setup = Setup {
            facts,
            tags: 1024,
            queue_limit: 0,
            guaranteed: 1024,
            client_limit: u32::MAX,
            flushes: FlushRule::Bypass,
            trace: 1 << 20,
        };
        let mut stack = crate::tests::ALL.stack(stack).expect("in the table");
        let name = stack.scheduler.row.name;
        for (parameter, text) in set.iter().filter(|_| name != "none") {
            stack.set(name, parameter, text).expect("in the policy's table");
        }
        Self {
            controller: Controller::new(setup, stack),
            now: Instant::ZERO,
            drive,
            lanes: alloc::vec![Instant::ZERO; drive.lanes],
            link: Instant::ZERO,
            head: Sectors::ZERO,
            in_flight: Vec::new(),
            actors: Vec::new(),
        }
    }
    pub(super) fn group(&mut self, path: &str, weight: u32) -> GroupId {
        let contract = Contract { weight, ..Contract::default() };
        self.controller.add_group(self.now, path, contract).expect("new")
    }
    /// A client in a group of its own, of this weight.
    pub(super) fn add(&mut self, weight: u32, job: Job) -> usize {
        let path = format!("g{}", self.controller.groups().group_bound());
        let group = self.group(&path, weight);
        self.add_to(group, Priority::default(), job)
    }
    pub(super) fn add_to(&mut self, group: GroupId, priority: Priority, job: Job) -> usize {
        let client = self.controller.add_client(self.now, group, priority).expect("there");
        let index = self.actors.len();
        let due = (0..job.depth).map(|_| self.now).collect();
        let random = 88_172_645_463_325_252 ^ (index as u64 * 7919);
        self.actors.push(Actor { client, job, next: job.base, random, due, done: 0 });
        index
    }
    pub(super) fn client(&self, actor: usize) -> ClientId {
        self.actors[actor].client
    }
    /// The client sends no more.
    pub(super) fn stop(&mut self, actor: usize) {
        self.actors[actor].job.depth = 0;
        self.actors[actor].due.clear();
    }
    pub(super) fn become_random(&mut self, actor: usize) {
        self.actors[actor].job = Job { length: 8, random: true, ..self.actors[actor].job };
    }
    /// Bytes completed since the last call.
    pub(super) fn take(&mut self, actor: usize) -> u64 {
        core::mem::take(&mut self.actors[actor].done)
    }
    pub(super) fn take_all(&mut self) -> Vec<u64> {
        (0..self.actors.len()).map(|actor| self.take(actor)).collect()
    }

    /// Goes on for this long.
    pub(super) fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.turn();
        }
        self.now = end;
    }
    fn next_event(&self) -> Option<Instant> {
        let due = self.actors.iter().flat_map(|actor| actor.due.iter().copied());
        let completions = self.in_flight.iter().map(|(at, _)| *at);
        due.chain(completions).chain(self.controller.next_wakeup()).min()
    }
    fn turn(&mut self) {
        while let Some(index) = self.in_flight.iter().position(|(at, _)| *at <= self.now) {
            let (_, id) = self.in_flight.remove(index);
            self.completion(id);
        }
        for index in 0..self.actors.len() {
            while let Some(place) = self.actors[index].due.iter().position(|at| *at <= self.now) {
                self.actors[index].due.remove(place);
                self.send(index);
            }
        }
        while let Some(dispatch) = self.controller.dispatch(self.now) {
            let far = self.drive.rotational && dispatch.start != self.head;
            self.head = dispatch.start + dispatch.length;
            let fixed = self.drive.fixed + if far { self.drive.seek } else { Nanos::ZERO };
            let lane = self.lanes.iter_mut().min().expect("a drive has lanes");
            *lane = (*lane).max(self.now) + fixed;
            self.link = self.link.max(*lane) + self.drive.sector * dispatch.length.0;
            if self.drive.rotational {
                *lane = self.link;
            }
            self.in_flight.push((self.link, dispatch.command));
        }
    }
    fn completion(&mut self, id: CommandId) {
        let mut done = Vec::new();
        self.controller.complete(self.now, id, 0, &mut done).expect("the drive has it");
        for completion in done {
            let actor = &mut self.actors[completion.part.tag as usize];
            actor.done += completion.part.length.bytes();
            if actor.job.depth > 0 {
                actor.due.push(self.now + actor.job.think);
            }
        }
    }
    fn send(&mut self, index: usize) {
        let actor = &mut self.actors[index];
        let job = actor.job;
        if job.random {
            actor.random ^= actor.random << 13;
            actor.random ^= actor.random >> 7;
            actor.random ^= actor.random << 17;
            actor.next = actor.random % (CAPACITY - job.length) / 8 * 8;
        }
        let start = Sectors(actor.next % (CAPACITY - job.length));
        actor.next = start.0 + job.stride;
        let submission = Submission {
            tag: index as u64,
            client: actor.client,
            operation: job.operation,
            flags: job.flags,
            start,
            length: Sectors(job.length),
        };
        self.controller.submit(self.now, submission).expect("within the limit");
    }
}

/// By hand: no client sends by itself, no completion comes by itself.
impl World {
    /// A client that sends only what [`Self::send_one`] says, in a group of its own.
    pub(super) fn hand(&mut self, weight: u32) -> ClientId {
        let quiet = Job { depth: 0, ..Job::random_read() };
        let actor = self.add(weight, quiet);
        self.client(actor)
    }
    pub(super) fn hand_in(&mut self, group: GroupId, priority: Priority) -> ClientId {
        let quiet = Job { depth: 0, ..Job::random_read() };
        let actor = self.add_to(group, priority, quiet);
        self.client(actor)
    }
    pub(super) fn send_one(
        &mut self,
        client: ClientId,
        operation: Operation,
        at: u64,
        length: u64,
    ) {
        let (start, length) = (Sectors(at), Sectors(length));
        let flags = Flags::NO_MERGE;
        let submission = Submission { tag: 0, client, operation, flags, start, length };
        self.controller.submit(self.now, submission).expect("within the limit");
    }
    pub(super) fn read(&mut self, client: ClientId, at: u64, length: u64) {
        self.send_one(client, Operation::Read, at, length);
    }
    pub(super) fn dispatch(&mut self) -> Option<Dispatch> {
        self.controller.dispatch(self.now)
    }
    pub(super) fn complete(&mut self, dispatch: Dispatch) {
        self.controller
            .complete(self.now, dispatch.command, 0, &mut Vec::new())
            .expect("the drive has it");
    }
    /// Dispatches one, and completes it this many microseconds later.
    pub(super) fn serve(&mut self, micros: u64) -> Option<Dispatch> {
        let dispatch = self.dispatch()?;
        self.wait(Nanos::from_micros(micros));
        self.complete(dispatch);
        Some(dispatch)
    }
    pub(super) fn wait(&mut self, time: Nanos) {
        self.now += time;
    }
    /// How long until the scheduler wants to be asked again.
    pub(super) fn wakes_in(&self) -> Option<Nanos> {
        self.controller.next_wakeup().map(|at| at.since(self.now))
    }
}

/// What was decided.
impl World {
    /// Decisions since the last call.
    pub(super) fn decisions(&mut self) -> Vec<(&'static str, [u64; 2])> {
        use iofair_core::trace::EventKind::Decision;
        let events = self.controller.trace().drain();
        let rules = events.filter_map(|event| match event.kind {
            Decision { rule, values } => Some((rule, values)),
            _ => None,
        });
        rules.collect()
    }
    /// How many slots of queues without a client began since the last call.
    pub(super) fn slots_of_groups(&mut self) -> usize {
        use iofair_core::trace::{EventKind::Decision, Subject::Group};
        let events = self.controller.trace().drain();
        let begins = |event: &Event| matches!((event.subject, event.kind), (Group(_), Decision { rule, .. }) if rule.starts_with("slot: begins"));
        events.filter(begins).count()
    }
    /// For each client, whether it was waited for since the last call.
    pub(super) fn waited_for(&mut self) -> Vec<bool> {
        use iofair_core::trace::{EventKind::Decision, Subject::Client};
        let mut waited = alloc::vec![false; self.actors.len()];
        for event in self.controller.trace().drain() {
            if let (Client(id), Decision { rule, .. }) = (event.subject, event.kind)
                && rule.starts_with("idle: wait")
            {
                waited[id.index()] = true;
            }
        }
        waited
    }
    /// How many decisions since the last call begin with this.
    pub(super) fn count(&mut self, rule: &str) -> usize {
        self.decisions().iter().filter(|(name, _)| name.starts_with(rule)).count()
    }
    /// The numbers of the decisions since the last call that begin with this.
    pub(super) fn numbers(&mut self, rule: &str) -> Vec<[u64; 2]> {
        let all = self.decisions();
        all.iter().filter(|(name, _)| name.starts_with(rule)).map(|(_, n)| *n).collect()
    }
    /// A gauge of the scheduler.
    pub(super) fn gauge(&self, name: &str) -> u64 {
        struct One<'a>(&'a str, Option<u64>);
        impl iofair_core::policy::Gauges for One<'_> {
            fn gauge(&mut self, name: &'static str, value: u64) {
                if name == self.0 {
                    self.1 = Some(value);
                }
            }
        }
        let mut one = One(name, None);
        self.controller.observe(&mut one);
        one.1.expect("the scheduler has this gauge")
    }
}
