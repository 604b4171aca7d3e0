//! A closed loop through an engine, for tests and benches that count: every group keeps its requests
//! outstanding, the drive completes in order, a new request follows each completion. Nothing here allocates
//! once it is warm.

use std::collections::VecDeque;

use iofair_core::contract::{Burst, Contract, Latency, Limits, Low, Total};
use iofair_core::controller::{Completion, Controller, FlushRule, Setup, Stack, Submission};
use iofair_core::id::{ClientId, CommandId, GroupId};
use iofair_core::policy::DriveFacts;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// Commands that the drive takes.
const DEPTH: u32 = 32;
/// From one completion of the drive to the next.
const SERVICE: Nanos = Nanos::from_micros(10);
/// 4 KiB.
const LENGTH: Sectors = Sectors(8);

/// An engine under load.
pub(crate) struct Load {
    engine: Controller,
    now: Instant,
    clients: Vec<ClientId>,
    contract: Contract,
    flying: VecDeque<CommandId>,
    done: Vec<Completion>,
    random: u64,
    tag: u64,
    /// Every this many submissions a write and a flush; 0: only reads.
    flush_every: u64,
    /// A number that stands for the whole order of service.
    pub(crate) hash: u64,
}

impl Load {
    /// `groups` groups with one client each, nothing submitted yet. `iops` is each group's ceiling and
    /// low limit; far above what the drive does, a throttle counts and never holds.
    pub(crate) fn new(stack: Stack, groups: u32, iops: u64) -> Self {
        let facts = DriveFacts {
            rotational: false,
            depth: DEPTH,
            max_request: Sectors::from_kib(1024),
            capacity: Sectors(1 << 40),
        };
        let outstanding = Self::outstanding(groups);
        let guaranteed = outstanding as usize + 1;
        let setup = Setup {
            facts,
            tags: outstanding + 1,
            queue_limit: 0,
            guaranteed,
            client_limit: u32::MAX,
            flushes: FlushRule::Scheduled,
            trace: 0,
        };
        let mut this = Self {
            engine: Controller::new(setup, stack),
            now: Instant::ZERO,
            clients: Vec::with_capacity(groups as usize),
            contract: Contract::default(),
            flying: VecDeque::with_capacity(DEPTH as usize),
            done: Vec::with_capacity(DEPTH as usize),
            random: 1,
            tag: 0,
            flush_every: 0,
            hash: 0xcbf2_9ce4_8422_2325,
        };
        let max = Limits { iops: [Some(iops); 2], ..Limits::both(iops * LENGTH.bytes()) };
        let low = Low { limits: max, ..Low::default() };
        let contract = Contract { max, low, ..Contract::default() };
        this.contract = contract;
        for number in 0..groups {
            let name = format!("group-{number}");
            let (now, contract) = (this.now, this.contract.clone());
            let group = this.engine.add_group_under(now, &name, GroupId::ROOT, contract);
            let group = group.expect("a new name");
            let client = this.engine.add_client(now, group, Priority::default());
            this.clients.push(client.expect("the group is there"));
        }
        this
    }
    // Not every user of this file changes contracts.
    #[allow(dead_code)]
    /// Gives one group after the other another weight, ceiling and latency, each while requests are in flight.
    pub(crate) fn update_contracts(&mut self, count: u64) {
        for turn in 0..count {
            self.tag += 1;
            let client = self.clients[self.tag as usize % self.clients.len()];
            let group = self.engine.groups().client(client).group;
            self.contract.weight = 100 + (turn & 1) as u32;
            self.contract.max.bytes_per_s[0] = Some((1 << 40) + turn);
            self.contract.latency = Latency::of_reads(Nanos::from_millis(100 + (turn & 1)));
            let updated = self.engine.update_group(self.now, group, self.contract.clone());
            updated.expect("the group is there");
        }
    }
    // Not every user of this file has ceilings on reads and writes together.
    #[allow(dead_code)]
    /// Gives each group a ceiling on reads and writes together, with bursts, in place of those that it has.
    pub(crate) fn limit_totals(&mut self, iops: u64) {
        let bytes_per_s = Some(iops * LENGTH.bytes());
        let burst = Burst { bytes: Some(64 << 10), requests: Some(4) };
        let total = Total { bytes_per_s, iops: Some(iops) };
        self.contract.max = Limits { total, burst, ..Limits::NONE };
        for client in &self.clients {
            let group = self.engine.groups().client(*client).group;
            let updated = self.engine.update_group(self.now, group, self.contract.clone());
            updated.expect("the group is there");
        }
    }
    // Not every user of this file has minimums.
    #[allow(dead_code)]
    /// Gives all groups the same minimum, together half of what the drive does.
    pub(crate) fn promise_half(&mut self) {
        let whole = 1_000_000_000 / SERVICE.0 * LENGTH.bytes() / 2;
        self.contract.min = Some(whole / self.clients.len() as u64);
        for client in &self.clients {
            let group = self.engine.groups().client(*client).group;
            let updated = self.engine.update_group(self.now, group, self.contract.clone());
            updated.expect("the group is there");
        }
    }
    // Not every user of this file changes the stack.
    #[allow(dead_code)]
    /// Changes the stack while requests are in flight.
    pub(crate) fn switch(&mut self, stack: Stack) {
        self.engine.switch(self.now, stack);
    }
    // Not every user of this file has flushes.
    #[allow(dead_code)]
    /// Of every `count` submissions one is a write and the next one a flush.
    pub(crate) fn flush_every(&mut self, count: u64) {
        self.flush_every = count;
    }
    /// Requests outstanding in all: two a group, and at least enough to fill the drive four times.
    pub(crate) fn outstanding(groups: u32) -> u32 {
        2 * groups * (2 * DEPTH).div_ceil(groups)
    }
    /// Submits half of the outstanding requests, from every group alike; call it twice.
    pub(crate) fn fill_half(&mut self) {
        let clients = core::mem::take(&mut self.clients);
        for number in 0..Self::outstanding(clients.len() as u32) as usize / 2 {
            self.submit(clients[number % clients.len()]);
        }
        self.clients = clients;
    }
    /// Submits, dispatches and completes this many more requests.
    pub(crate) fn run(&mut self, requests: u64) {
        let end = self.tag + requests;
        while self.tag < end {
            while let Some(command) = self.engine.dispatch(self.now) {
                // FNV-1a over the order of service.
                self.hash = (self.hash ^ command.start.0).wrapping_mul(0x0100_0000_01b3);
                self.flying.push_back(command.command);
            }
            let Some(id) = self.flying.pop_front() else {
                self.now = self.engine.next_wakeup().expect("held work asks for a wake-up");
                continue;
            };
            self.now += SERVICE;
            let mut done = core::mem::take(&mut self.done);
            self.engine.complete(self.now, id, 0, &mut done).expect("the drive has it");
            for completion in done.drain(..) {
                self.submit(completion.part.client);
            }
            self.done = done;
        }
    }
    fn submit(&mut self, client: ClientId) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.tag += 1;
        // Every other block, so that nothing merges.
        let start = Sectors((self.random >> 34) * 2 * LENGTH.0);
        let operation = match self.tag.checked_rem(self.flush_every) {
            Some(0) => Operation::Write,
            Some(1) => Operation::Flush,
            _ => Operation::Read,
        };
        let length = if operation == Operation::Flush { Sectors::ZERO } else { LENGTH };
        let (tag, flags) = (self.tag, Flags::NONE);
        let submission = Submission { tag, client, operation, flags, start, length };
        self.engine.submit(self.now, submission).expect("within the limit");
    }
}
