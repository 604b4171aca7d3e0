//! Any list of operations on the controller: submissions, dispatches, answers in any order, time that jumps,
//! groups and clients that come and go, stacks that change under way. Whatever was taken in is answered
//! exactly once, and nothing else is.

use std::collections::BTreeSet;

use iofair_baselines::TABLE;
use iofair_core::contract::{Contract, Limits};
use iofair_core::controller::{
    Completion, Controller, Dispatch, FlushRule, Setup, Stack, Submission,
};
use iofair_core::id::{ClientId, GroupId};
use iofair_core::policy::DriveFacts;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

const STACKS: [&str; 8] = [
    "none-none",
    "none-mq-deadline",
    "max-noop",
    "prop-bfq",
    "max+prop-bfq",
    "none-kyber",
    "low-cfq",
    "max-mq-deadline",
];
/// Requests that may be inside; a list longer than this meets a full queue.
const QUEUE: usize = 64;
/// Dispatches and wake-ups in which everything must be answered at the end.
const PATIENCE: usize = 100_000;

struct World {
    controller: Controller,
    now: Instant,
    groups: Vec<GroupId>,
    clients: Vec<ClientId>,
    /// Taken in and not answered.
    inside: BTreeSet<u64>,
    at_drive: Vec<Dispatch>,
    next: u64,
    done: Vec<Completion>,
}

fn stack(byte: u8) -> Stack {
    TABLE.stack(STACKS[usize::from(byte) % STACKS.len()]).expect("these are there")
}

impl World {
    fn new(byte: u8) -> Self {
        let facts = DriveFacts {
            rotational: byte & 8 != 0,
            depth: 8,
            max_request: Sectors(256),
            capacity: Sectors(1 << 20),
        };
        let flushes = FlushRule::Scheduled;
        let (queue_limit, guaranteed, client_limit) = (QUEUE, 0, u32::MAX);
        let setup =
            Setup { facts, tags: 16, queue_limit, guaranteed, client_limit, flushes, trace: 0 };
        let mut controller = Controller::new(setup, stack(byte));
        let now = Instant::ZERO;
        let group = controller.add_group(now, "g", Contract::default()).expect("the first");
        let client = controller.add_client(now, group, Priority::default()).expect("just made");
        Self {
            controller,
            now,
            groups: vec![group],
            clients: vec![client],
            inside: BTreeSet::new(),
            at_drive: Vec::new(),
            next: 0,
            done: Vec::new(),
        }
    }
    fn submit(&mut self, a: u8, b: u8) {
        let operation = match a >> 5 {
            0..=2 => Operation::Read,
            3 | 4 => Operation::Write,
            5 => Operation::Discard,
            6 => Operation::WriteZeroes,
            _ => Operation::Flush,
        };
        let flush = operation == Operation::Flush;
        let submission = Submission {
            tag: self.next,
            client: self.clients[usize::from(a & 31) % self.clients.len()],
            operation,
            flags: if b & 1 != 0 { Flags::SYNC } else { Flags::default() },
            start: Sectors(if flush { 0 } else { u64::from(b) * 8 }),
            length: Sectors(if flush { 0 } else { 1 + u64::from(b % 16) }),
        };
        if self.controller.submit(self.now, submission).is_ok() {
            self.inside.insert(self.next);
        }
        self.next += 1;
        assert!(self.controller.pending() <= QUEUE);
    }
    fn dispatch(&mut self) -> bool {
        if self.at_drive.len() >= 8 {
            return false;
        }
        let dispatched = self.controller.dispatch(self.now);
        self.at_drive.extend(dispatched);
        dispatched.is_some()
    }
    fn answer(&mut self, which: u8) {
        if self.at_drive.is_empty() {
            return;
        }
        let index = usize::from(which) % self.at_drive.len();
        let dispatch = self.at_drive.swap_remove(index);
        let status = if which > 250 { 5 } else { 0 };
        self.controller
            .complete(self.now, dispatch.command, status, &mut self.done)
            .expect("the drive has it");
        for completion in self.done.drain(..) {
            assert!(self.inside.remove(&completion.part.tag), "answered twice or never asked");
        }
    }
    fn change(&mut self, a: u8, b: u8) {
        let contract = Contract {
            weight: 1 + u32::from(b) * 3,
            max: if b & 1 != 0 {
                Limits::both(1 << 20 | u64::from(b) << 12)
            } else {
                Limits::default()
            },
            ..Contract::default()
        };
        let group = self.groups[usize::from(a) % self.groups.len()];
        match b % 5 {
            0 if self.groups.len() < 8 => {
                let name = format!("g{}", self.next);
                self.next += 1;
                self.groups.extend(self.controller.add_group(self.now, &name, contract).ok());
            }
            1 if self.clients.len() < 16 => {
                let client = self.controller.add_client(self.now, group, Priority::default());
                self.clients.extend(client.ok());
            }
            2 => {
                let _ = self.controller.update_group(self.now, group, contract);
            }
            3 => {
                let client = self.clients[usize::from(a) % self.clients.len()];
                let _ = self.controller.update_client(self.now, client, group, Priority::default());
            }
            _ => {
                self.controller.switch(self.now, stack(a));
            }
        }
    }
    /// Everything that was taken in comes out.
    fn drain(&mut self) {
        for _ in 0..PATIENCE {
            if self.inside.is_empty() {
                return;
            }
            if self.dispatch() {
                continue;
            }
            if !self.at_drive.is_empty() {
                self.answer(0);
                continue;
            }
            let next = self.controller.next_wakeup();
            let next = next.expect("held work with nothing in flight implies a wake-up");
            self.now = self.now.max(next);
        }
        panic!("{} requests never came out", self.inside.len());
    }
}

pub fn operations(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let mut world = World::new(*first);
    for operation in data.chunks_exact(3) {
        let &[kind, a, b] = operation else { unreachable!("three bytes") };
        match kind % 8 {
            0..=2 => world.submit(a, b),
            3 => while world.dispatch() {},
            4 => {
                world.dispatch();
            }
            5 => world.answer(a),
            6 => world.now += Nanos::from_micros(u64::from(a) * u64::from(b)),
            _ => world.change(a, b),
        }
    }
    world.drain();
    assert_eq!(world.controller.pending(), 0);
}
