//! A rig for tests of policies by worked examples: a stack, clients, a clock set by hand, and a drive
//! that completes commands at once. Requests are 8 sectors long and known by their first sector.

#![allow(missing_docs, clippy::missing_panics_doc, reason = "only tests of policies see this")]

pub mod apart;

use std::format;
use std::vec::Vec;

use crate::contract::Contract;
use crate::controller::{Controller, Dispatch, FlushRule, Setup, Submission};
use crate::id::{ClientId, CommandId};
use crate::policy::{DriveFacts, Gauges, Table};
use crate::priority::{Class, Priority};
use crate::request::{Flags, Operation};
use crate::time::Instant;
use crate::unit::Sectors;

/// A setup for a rig whose drive is not what the test is about: a flash drive with more slots of each kind than a test
/// uses, without a trace.
pub fn wide() -> Setup {
    let facts = DriveFacts {
        rotational: false,
        depth: 1 << 20,
        max_request: Sectors(1 << 16),
        capacity: Sectors(1 << 40),
    };
    Setup {
        facts,
        tags: 1 << 20,
        queue_limit: 1 << 20,
        guaranteed: 0,
        client_limit: u32::MAX,
        flushes: FlushRule::Bypass,
        trace: 0,
    }
}

/// A controller with this stack; `set` are parameters of its first throttle, or of its scheduler if it has no throttle.
pub fn controller(
    setup: Setup,
    table: &'static Table,
    stack: &str,
    set: &[(&str, &str)],
) -> Controller {
    let mut stack = table.stack(stack).expect("in the table");
    let policy = stack.throttles.first().unwrap_or(&stack.scheduler).row.name;
    for (parameter, text) in set {
        stack.set(policy, parameter, text).expect("in the policy's table");
    }
    Controller::new(setup, stack)
}

/// The value of a gauge.
pub fn gauge(controller: &Controller, name: &str) -> u64 {
    struct Find<'a>(&'a str, Option<u64>);
    impl Gauges for Find<'_> {
        fn gauge(&mut self, name: &'static str, value: u64) {
            if name == self.0 {
                self.1 = Some(value);
            }
        }
    }
    let mut find = Find(name, None);
    controller.observe(&mut find);
    find.1.unwrap_or_else(|| panic!("no gauge {name}"))
}

/// A rule's name: what comes before its numbers.
pub fn rule_name(rule: &'static str) -> &'static str {
    rule.split_once(';').map_or(rule, |(name, _)| name)
}

pub struct Rig {
    pub controller: Controller,
    /// The present; move it by hand.
    pub now: Instant,
    tag: u64,
}

impl Rig {
    /// A stack with `(stage, parameter, text)` set, 64 tags and a drive of depth 32.
    pub fn new(table: &'static Table, stack: &str, set: &[(&str, &str, &str)]) -> Self {
        Self::with(table, stack, set, |_| {})
    }
    pub fn with(
        table: &'static Table,
        stack: &str,
        set: &[(&str, &str, &str)],
        adjust: impl FnOnce(&mut Setup),
    ) -> Self {
        let facts = DriveFacts {
            rotational: true,
            depth: 32,
            max_request: Sectors(1024),
            capacity: Sectors(1 << 30),
        };
        let mut setup = Setup {
            facts,
            tags: 64,
            queue_limit: 0,
            guaranteed: 1024,
            client_limit: u32::MAX,
            flushes: FlushRule::Bypass,
            trace: 64,
        };
        adjust(&mut setup);
        let mut stack = table.stack(stack).expect("in the table");
        for (stage, parameter, text) in set {
            stack.set(stage, parameter, text).expect("in the policy's table");
        }
        Self { controller: Controller::new(setup, stack), now: Instant::ZERO, tag: 0 }
    }
    /// A new client in a group of its own.
    pub fn client(&mut self) -> ClientId {
        self.client_of(Class::BestEffort)
    }
    /// A new client of this class in a group of its own.
    pub fn client_of(&mut self, class: Class) -> ClientId {
        let path = format!("g{}", self.controller.groups().group_bound());
        let group = self.controller.add_group(self.now, &path, Contract::default()).expect("new");
        let priority = Priority { class, level: 4 };
        self.controller.add_client(self.now, group, priority).expect("the group is there")
    }
    pub fn read(&mut self, client: ClientId, start: u64) {
        self.submit(client, start, Operation::Read, Flags::NONE);
    }
    pub fn reads(&mut self, client: ClientId, starts: &[u64]) {
        starts.iter().for_each(|start| self.read(client, *start));
    }
    pub fn writes(&mut self, client: ClientId, starts: &[u64]) {
        starts.iter().for_each(|start| self.write(client, *start));
    }
    /// An asynchronous write.
    pub fn write(&mut self, client: ClientId, start: u64) {
        self.submit(client, start, Operation::Write, Flags::NONE);
    }
    pub fn send(&mut self, client: ClientId, start: u64, write: bool) {
        if write { self.write(client, start) } else { self.read(client, start) }
    }
    pub fn submit(&mut self, client: ClientId, start: u64, op: Operation, flags: Flags) {
        self.tag += 1;
        let (start, length) = (Sectors(start), Sectors(8));
        let submission = Submission { tag: self.tag, client, operation: op, flags, start, length };
        self.controller.submit(self.now, submission).expect("within the limit");
    }
    /// What goes to the drive now, left in flight: its first sector.
    pub fn dispatch(&mut self) -> Option<(CommandId, u64)> {
        self.controller.dispatch(self.now).map(|Dispatch { command, start, .. }| (command, start.0))
    }
    pub fn complete(&mut self, id: CommandId) {
        let done = self.controller.complete(self.now, id, 0, &mut Vec::new());
        done.expect("the drive has it");
    }
    /// Dispatches and completes one at once: the first sectors of its parts.
    pub fn serve(&mut self) -> Option<Vec<u64>> {
        let (id, _) = self.dispatch()?;
        let parts = self.controller.parts(id).map(|part| part.start.0).collect();
        self.complete(id);
        Some(parts)
    }
    /// Dispatches and completes one by one until nothing comes: the parts of each.
    pub fn served_parts(&mut self) -> Vec<Vec<u64>> {
        core::iter::from_fn(|| self.serve()).collect()
    }
    /// Dispatches and completes one by one until nothing comes: the first sector of each.
    pub fn served(&mut self) -> Vec<u64> {
        self.served_parts().iter().map(|parts| parts[0]).collect()
    }
}
