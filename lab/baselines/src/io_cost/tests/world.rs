//! A world for tests: one client a group, a drive that completes everything after the same time.

use std::collections::BTreeMap;
use std::vec::Vec;

use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, Dispatch, Setup, Submission};
use iofair_core::id::{ClientId, CommandId, RequestId};
use iofair_core::policy::DriveFacts;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// What a client does: random 4 KiB reads.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// This many outstanding.
    Deep(u32),
    /// One after this much time.
    Every(Nanos),
    Nothing,
}

pub(super) struct Client {
    id: ClientId,
    work: Work,
    outstanding: u32,
    next: Instant,
    pub(super) done: u64,
}

pub(super) struct World {
    pub(super) controller: Controller,
    pub(super) now: Instant,
    pub(super) clients: Vec<Client>,
    flying: BTreeMap<(Instant, u64), CommandId>,
    /// The drive's.
    pub(super) latency: Nanos,
    /// each completion of this number takes this long.
    pub(super) slow: Option<(u64, Nanos)>,
    dispatched: u64,
    sent: u64,
}

pub(super) const MS: Nanos = Nanos::from_millis(1);

pub(super) fn facts() -> DriveFacts {
    DriveFacts { depth: 1 << 10, ..testing::wide().facts }
}

impl World {
    pub(super) fn new(set: &[(&str, &str)]) -> Self {
        Self::with_tags(set, 1 << 10)
    }
    pub(super) fn with_tags(set: &[(&str, &str)], tags: u32) -> Self {
        let setup = Setup { facts: facts(), tags, ..testing::wide() };
        let controller = testing::controller(setup, &crate::TABLE, "cost-none", set);
        Self {
            controller,
            now: Instant(1_000_000_000),
            clients: Vec::new(),
            flying: BTreeMap::new(),
            latency: Nanos::from_micros(100),
            slow: None,
            dispatched: 0,
            sent: 0,
        }
    }
    /// A drive of exactly 1000 random reads a second that never changes its mind.
    pub(super) fn fixed() -> Self {
        Self::new(&[
            ("rrandiops", "1000"),
            ("rseqiops", "1000"),
            ("rbps", "4096000B/s"),
            ("rlat", "50ms"),
            ("min", "100"),
            ("max", "100"),
        ])
    }
    /// Client number `clients.len()` in a group of this path and weight.
    pub(super) fn client(&mut self, path: &str, weight: u32, work: Work) {
        let contract = Contract { weight, ..Contract::default() };
        let group = match self.controller.groups().find(path) {
            Some(group) => group,
            None => self.controller.add_group(self.now, path, contract).expect("new"),
        };
        let id = self.controller.add_client(self.now, group, Priority::default()).expect("there");
        self.clients.push(Client { id, work, outstanding: 0, next: self.now, done: 0 });
    }
    pub(super) fn set_work(&mut self, client: usize, work: Work) {
        self.clients[client].work = work;
        self.clients[client].next = self.now;
    }
    /// One request; `tag` is the client's number.
    pub(super) fn send(&mut self, client: usize, operation: Operation, flags: Flags) -> RequestId {
        self.sent += 1;
        // Far from the last one, wherever that was.
        let start = Sectors(self.sent * (1 << 20) % (1 << 39));
        let (id, tag, length) = (self.clients[client].id, client as u64, Sectors(8));
        let submission = Submission { tag, client: id, operation, flags, start, length };
        self.clients[client].outstanding += 1;
        self.controller.submit(self.now, submission).expect("within the limit")
    }
    fn work(&mut self) {
        for at in 0..self.clients.len() {
            match self.clients[at].work {
                Work::Deep(depth) => {
                    while self.clients[at].outstanding < depth {
                        self.send(at, Operation::Read, Flags::NONE);
                    }
                }
                Work::Every(pause) => {
                    while self.clients[at].next <= self.now {
                        self.clients[at].next += pause;
                        self.send(at, Operation::Read, Flags::NONE);
                    }
                }
                Work::Nothing => {}
            }
        }
        while let Some(Dispatch { command: id, .. }) = self.controller.dispatch(self.now) {
            self.dispatched += 1;
            let latency = match self.slow {
                Some((every, latency)) if self.dispatched.is_multiple_of(every) => latency,
                _ => self.latency,
            };
            self.flying.insert((self.now + latency, self.dispatched), id);
        }
    }
    /// Lets this much time pass; what each client got done in it.
    pub(super) fn run(&mut self, time: Nanos) -> Vec<u64> {
        let end = self.now + time;
        let before: Vec<u64> = self.clients.iter().map(|client| client.done).collect();
        self.work();
        loop {
            let completion = self.flying.keys().next().map(|(at, _)| *at);
            let sending = self.clients.iter().filter_map(|client| match client.work {
                Work::Every(_) => Some(client.next),
                _ => None,
            });
            let next = sending.chain(completion).chain(self.controller.next_wakeup()).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            while let Some(first) = self.flying.first_entry().filter(|f| f.key().0 <= self.now) {
                let id = first.remove();
                let mut done = Vec::new();
                self.controller.complete(self.now, id, 0, &mut done).expect("the drive has it");
                for completion in done {
                    let client = &mut self.clients[completion.part.tag as usize];
                    client.done += 1;
                    client.outstanding -= 1;
                }
            }
            self.work();
        }
        self.now = end;
        self.clients.iter().zip(before).map(|(client, before)| client.done - before).collect()
    }
    pub(super) fn in_flight(&self) -> usize {
        self.flying.len()
    }
    pub(super) fn gauge(&self, name: &str) -> u64 {
        testing::gauge(&self.controller, name)
    }
}

/// Whether `got` is within `percent` of `wanted`.
pub(super) fn near(got: u64, wanted: u64, percent: u64) -> bool {
    got.abs_diff(wanted) * 100 <= wanted * percent
}
