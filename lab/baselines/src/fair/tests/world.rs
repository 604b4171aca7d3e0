//! A disk of a few lines, clients that read on and on, and requests sent by hand.

use std::vec::Vec;

use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, Dispatch, FlushRule, Setup, Submission};
use iofair_core::id::{ClientId, GroupId};
use iofair_core::policy::DriveFacts;
use iofair_core::priority::{Class, Priority};
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::rule_name;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::EventKind;
use iofair_core::unit::Sectors;

/// Far enough apart to be seeky.
const FAR: u64 = 1 << 20;

/// A client that reads 4 KiB, thinks, and reads again.
struct Actor {
    client: ClientId,
    random: bool,
    next: u64,
    due: Option<Instant>,
    done: u64,
    sent: Instant,
    slowest: Nanos,
}

/// One request at a time: 100 us if it follows the one before, else 8 ms.
pub(super) struct World {
    pub(super) controller: Controller,
    pub(super) now: Instant,
    actors: Vec<Actor>,
    busy: Option<(Instant, Dispatch)>,
    head: Sectors,
}

const THINK: Nanos = Nanos::from_micros(30);

impl World {
    pub(super) fn new(stack: &str, set: &[(&str, &str)]) -> Self {
        let facts = DriveFacts {
            rotational: true,
            depth: 31,
            max_request: Sectors(1024),
            capacity: Sectors(1 << 40),
        };
        let setup = Setup {
            facts,
            tags: 128,
            queue_limit: 0,
            guaranteed: 1024,
            client_limit: u32::MAX,
            flushes: FlushRule::Bypass,
            trace: 1 << 16,
        };
        let mut stack = crate::TABLE.stack(stack).expect("in the table");
        let name = stack.scheduler.row.name;
        stack.set(name, "tick", "1ms").expect("in the policy's table");
        for (parameter, text) in set {
            stack.set(name, parameter, text).expect("in the policy's table");
        }
        Self {
            controller: Controller::new(setup, stack),
            now: Instant::ZERO,
            actors: Vec::new(),
            busy: None,
            head: Sectors::ZERO,
        }
    }
    pub(super) fn group(&mut self, path: &str, weight: u32) -> GroupId {
        self.group_of(path, weight, Class::BestEffort)
    }
    pub(super) fn group_of(&mut self, path: &str, weight: u32, class: Class) -> GroupId {
        let contract = Contract { weight, class, ..Contract::default() };
        self.controller.add_group(self.now, path, contract).expect("new")
    }
    pub(super) fn client(&mut self, group: GroupId) -> ClientId {
        self.client_of(group, Priority::default())
    }
    pub(super) fn client_of(&mut self, group: GroupId, priority: Priority) -> ClientId {
        self.controller.add_client(self.now, group, priority).expect("the group is there")
    }
}

/// By itself.
impl World {
    pub(super) fn reader(&mut self, group: GroupId, random: bool) -> usize {
        self.reader_of(group, Priority::default(), random)
    }
    pub(super) fn reader_of(&mut self, group: GroupId, of: Priority, random: bool) -> usize {
        let client = self.client_of(group, of);
        self.actors.push(Actor {
            client,
            random,
            next: (self.actors.len() as u64 + 1) << 32,
            due: Some(self.now),
            done: 0,
            sent: self.now,
            slowest: Nanos::ZERO,
        });
        self.actors.len() - 1
    }
    /// Requests completed and the slowest, since the last call.
    pub(super) fn take(&mut self, actor: usize) -> (u64, Nanos) {
        let actor = &mut self.actors[actor];
        (core::mem::take(&mut actor.done), core::mem::take(&mut actor.slowest))
    }
    /// Goes on for this long.
    pub(super) fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        loop {
            let due = self.actors.iter().filter_map(|actor| actor.due);
            let completion = self.busy.iter().map(|(at, _)| *at);
            // A drive of depth one: while it is busy nobody is asked.
            let wake = self.controller.next_wakeup().filter(|_| self.busy.is_none());
            let Some(at) = due.chain(completion).chain(wake).min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            self.turn();
        }
        self.now = end;
    }
    fn turn(&mut self) {
        let now = self.now;
        if let Some((_, dispatch)) = self.busy.take_if(|(at, _)| *at <= now) {
            let mut done = Vec::new();
            self.controller
                .complete(now, dispatch.command, 0, &mut done)
                .expect("the drive has it");
            for completion in done {
                let actor = &mut self.actors[completion.part.tag as usize];
                actor.done += 1;
                actor.slowest = actor.slowest.max(now.since(actor.sent));
                actor.due = Some(now + THINK);
            }
        }
        for index in 0..self.actors.len() {
            let actor = &mut self.actors[index];
            if actor.due.take_if(|due| *due <= now).is_none() {
                continue;
            }
            actor.sent = now;
            let (start, client) = (actor.next, actor.client);
            actor.next += if actor.random { FAR } else { 8 };
            self.submit(client, (index as u64, start), Operation::Read, Flags::NO_MERGE);
        }
        if self.busy.is_none()
            && let Some(dispatch) = self.controller.dispatch(now)
        {
            let follows = dispatch.start == self.head;
            self.head = dispatch.start + dispatch.length;
            let time = Nanos::from_micros(if follows { 100 } else { 8_000 });
            self.busy = Some((now + time, dispatch));
        }
    }
    pub(super) fn submit(
        &mut self,
        client: ClientId,
        (tag, start): (u64, u64),
        op: Operation,
        flags: Flags,
    ) {
        let (start, length) = (Sectors(start), Sectors(8));
        let submission = Submission { tag, client, operation: op, flags, start, length };
        self.controller.submit(self.now, submission).expect("within the limit");
    }
}

/// By hand.
impl World {
    pub(super) fn read(&mut self, client: ClientId, start: u64) {
        self.submit(client, (0, start), Operation::Read, Flags::NO_MERGE);
    }
    pub(super) fn read_metadata(&mut self, client: ClientId, start: u64) {
        let flags = Flags::NO_MERGE.with(Flags::METADATA);
        self.submit(client, (0, start), Operation::Read, flags);
    }
    /// A buffered write.
    pub(super) fn write(&mut self, client: ClientId, start: u64) {
        self.submit(client, (0, start), Operation::Write, Flags::NO_MERGE);
    }
    pub(super) fn wait(&mut self, time: Nanos) {
        self.now += time;
    }
    pub(super) fn dispatch(&mut self) -> Option<Dispatch> {
        self.controller.dispatch(self.now)
    }
    pub(super) fn complete(&mut self, dispatch: Dispatch) {
        self.controller
            .complete(self.now, dispatch.command, 0, &mut Vec::new())
            .expect("the drive has it");
    }
    /// Dispatches one and completes it this many milliseconds later: its first sector.
    pub(super) fn serve(&mut self, millis: u64) -> Option<u64> {
        let dispatch = self.dispatch()?;
        self.wait(Nanos::from_millis(millis));
        self.complete(dispatch);
        Some(dispatch.start.0)
    }
    /// The client reads one after the other for this long, a millisecond each, and sends at once; the
    /// last completion finds it with nothing to send.
    pub(super) fn stream(&mut self, client: ClientId, start: u64, millis: u64) {
        for number in 0..millis {
            self.read(client, start + 8 * number);
            assert_eq!(self.serve(1), Some(start + 8 * number));
        }
    }
    /// How long until the scheduler wants to be asked again.
    pub(super) fn wakes_in(&self) -> Option<Nanos> {
        self.controller.next_wakeup().map(|at| at.since(self.now))
    }
    /// Decisions since the last call whose rule begins with this, with their first number.
    pub(super) fn decisions(&mut self, prefix: &str) -> Vec<(&'static str, u64)> {
        let events = self.controller.trace().drain();
        let rules = events.filter_map(|event| match event.kind {
            EventKind::Decision { rule, values } => Some((rule_name(rule), values[0])),
            _ => None,
        });
        rules.filter(|(rule, _)| rule.starts_with(prefix)).collect()
    }
}
