//! What can happen to an engine, as data: a list of it is drawn from a seed, run, and cut down when it
//! fails. Clients, groups and commands are named by numbers that the runner folds onto those that
//! exist, so that a list stays runnable whatever is cut out of it.

use iofair_core::contract::{Burst, Contract, Latency, Limits, Low, Total};
use iofair_core::controller::{FlushRule, PLUG_MAX, Setup};
use iofair_core::policy::DriveFacts;
use iofair_core::priority::{Class, Priority};
use iofair_core::request::{Flags, Operation};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

use super::random::Random;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Submit(NewRequest),
    /// Several requests of one client, gathered in a plug.
    Plug(Vec<NewRequest>),
    /// The drive completes one of its commands, not always well.
    Complete {
        pick: u64,
        status: i32,
    },
    Advance(Nanos),
    /// The drive completes, and after a while the client that waited goes on: behind the completed
    /// sectors, or elsewhere. This is what policies that watch their clients learn from.
    Reply {
        pick: u64,
        think: Nanos,
        elsewhere: Option<Sectors>,
    },
    AddGroup {
        parent: u64,
        contract: Contract,
    },
    UpdateGroup {
        group: u64,
        contract: Contract,
    },
    RemoveGroup {
        group: u64,
    },
    AddClient {
        group: u64,
        priority: Priority,
    },
    UpdateClient {
        client: u64,
        group: u64,
        priority: Priority,
    },
    RemoveClient {
        client: u64,
    },
    /// Nobody waits any more for what a client has inside; with `odd`, for every other request of it.
    Cancel {
        client: u64,
        odd: bool,
    },
    /// To the stack under test, or to another and back.
    Switch {
        stack: u64,
    },
}

/// A request to submit.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRequest {
    pub(super) client: u64,
    pub(super) operation: Operation,
    pub(super) flags: Flags,
    pub(super) start: Sectors,
    pub(super) length: Sectors,
}

/// A drive and limits of it, small ones often: that is where the corners are.
pub(super) fn setup(random: &mut Random) -> Setup {
    let facts = DriveFacts {
        rotational: random.one_in(2),
        depth: random.pick(&[1, 2, 4, 32]),
        max_request: Sectors(random.pick(&[8, 64, 256, 2048])),
        capacity: Sectors(1 << 22),
    };
    let tags = random.pick(&[1, 2, 8, 64]);
    let queue_limit = random.pick(&[8, 64, 512]) as usize;
    let guaranteed = random.pick(&[1, 4, 16]) as usize;
    let flushes = random.pick(&[FlushRule::Bypass, FlushRule::Scheduled]);
    let client_limit = random.pick(&[4, 16, u64::from(u32::MAX)]) as u32;
    Setup { facts, tags, queue_limit, guaranteed, client_limit, flushes, trace: 0 }
}

/// Draws lists of steps. Which kinds are frequent is drawn too (swarm testing, Groce et al. 2012).
pub(super) struct Generator<'a> {
    random: &'a mut Random,
    setup: &'a Setup,
    weights: [u64; 13],
    /// Where each client goes on.
    positions: [u64; 8],
}

/// Index of [`Step::Switch`] among the weights.
const SWITCH: usize = 10;

impl<'a> Generator<'a> {
    pub(super) fn new(random: &'a mut Random, setup: &'a Setup) -> Self {
        // Indexed as the match in `step`; submissions and completions always happen.
        let usual = [40, 12, 30, 25, 1, 3, 1, 2, 3, 1, 1, 40, 2];
        let mut weights = usual;
        for weight in &mut weights[3..] {
            *weight *= random.pick(&[0, 1, 1, 3]);
        }
        weights[0] = random.pick(&[10, 40, 100]);
        let positions = core::array::from_fn(|_| random.below(1 << 20));
        Self { random, setup, weights, positions }
    }

    /// The stack is changed at every tenth step or so.
    pub(super) fn switch_often(&mut self) {
        self.weights[SWITCH] = self.weights.iter().sum::<u64>() / 9;
    }
    pub(super) fn list(&mut self, length: usize) -> Vec<Step> {
        (0..length).map(|_| self.step()).collect()
    }

    fn step(&mut self) -> Step {
        let total: u64 = self.weights.iter().sum();
        let mut drawn = self.random.below(total);
        let kind = self.weights.iter().position(|weight| {
            let hit = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            hit
        });
        let (a, b) = (self.random.next() >> 8, self.random.next() >> 8);
        match kind.expect("less than the total") {
            0 => Step::Submit(self.ask(a % 8)),
            1 => Step::Plug(self.plug(a % 8)),
            2 => Step::Complete { pick: a, status: if b.is_multiple_of(20) { 5 } else { 0 } },
            3 => Step::Advance(self.time()),
            4 => Step::AddGroup { parent: a, contract: self.contract() },
            5 => Step::UpdateGroup { group: a, contract: self.contract() },
            6 => Step::RemoveGroup { group: a },
            7 => Step::AddClient { group: a, priority: self.priority() },
            8 => Step::UpdateClient { client: a, group: b, priority: self.priority() },
            9 => Step::RemoveClient { client: a },
            SWITCH => Step::Switch { stack: a },
            12 => Step::Cancel { client: a, odd: b.is_multiple_of(2) },
            _ => Step::Reply { pick: a, think: self.think(), elsewhere: self.elsewhere() },
        }
    }
    fn ask(&mut self, client: u64) -> NewRequest {
        let random = &mut *self.random;
        let flags = [
            Flags::NONE,
            Flags::NONE,
            Flags::NONE,
            Flags::SYNC,
            Flags::SYNC.with(Flags::FUA),
            Flags::METADATA,
            Flags::READ_AHEAD,
            Flags::NO_MERGE,
        ];
        let operation = match random.below(20) {
            0..10 => Operation::Read,
            10..17 => Operation::Write,
            17 => Operation::Flush,
            18 => Operation::Discard,
            _ => Operation::WriteZeroes,
        };
        let flags = if operation == Operation::Flush { Flags::NONE } else { random.pick(&flags) };
        let longest = self.setup.facts.max_request.0;
        let length = if random.one_in(4) { random.between(1, longest) } else { 8.min(longest) };
        let position = &mut self.positions[client as usize];
        let start = match random.below(8) {
            0..4 => *position,
            4 => position.saturating_sub(2 * length),
            5 => random.below(64) * 8,
            _ => random.below(self.setup.facts.capacity.0 - length),
        };
        *position = (start + length) % (self.setup.facts.capacity.0 - longest);
        let length = if operation == Operation::Flush { 0 } else { length };
        NewRequest { client, operation, flags, start: Sectors(start), length: Sectors(length) }
    }
    fn plug(&mut self, client: u64) -> Vec<NewRequest> {
        let first = self.ask(client);
        let count = self.random.between(2, PLUG_MAX as u64);
        let mut list = vec![first];
        for _ in 1..count {
            let mut next = self.ask(client);
            // Mostly more of the same, so that there is something to merge.
            if next.operation != Operation::Flush && first.operation != Operation::Flush {
                (next.operation, next.flags) = (first.operation, first.flags);
            }
            list.push(next);
        }
        list
    }
    fn time(&mut self) -> Nanos {
        let longest = if self.random.one_in(10) { 20_000_000_000 } else { 20_000_000 };
        Nanos(self.random.scale(1, longest))
    }
    fn think(&mut self) -> Nanos {
        Nanos(self.random.scale(1, 4_000_000))
    }
    fn elsewhere(&mut self) -> Option<Sectors> {
        let capacity = self.setup.facts.capacity.0 - self.setup.facts.max_request.0;
        self.random.one_in(4).then(|| Sectors(self.random.below(capacity)))
    }
    fn class(&mut self) -> Class {
        self.random.pick(&[Class::RealTime, Class::BestEffort, Class::BestEffort, Class::Idle])
    }
    fn priority(&mut self) -> Priority {
        Priority { class: self.class(), level: self.random.below(8) as u8 }
    }
    fn contract(&mut self) -> Contract {
        let random = &mut *self.random;
        let mut rate = |low, high| random.one_in(3).then(|| random.scale(low, high));
        let mut max = Limits {
            bytes_per_s: [rate(50_000, 500_000_000), rate(50_000, 500_000_000)],
            iops: [rate(10, 100_000), rate(10, 100_000)],
            ..Limits::NONE
        };
        let min = rate(50_000, 50_000_000);
        let min_iops = rate(10, 50_000);
        let [read, write, sync] = [(); 3].map(|()| rate(10_000, 50_000_000).map(Nanos));
        let latency = Latency { read, write, sync };
        let low = Low {
            limits: Limits {
                bytes_per_s: [rate(50_000, 50_000_000), rate(50_000, 50_000_000)],
                iops: [rate(10, 10_000), rate(10, 10_000)],
                ..Limits::NONE
            },
            latency: rate(1_000, 50_000_000).map(Nanos),
            idle: rate(1_000, 50_000_000).map(Nanos),
        };
        let weight = random.scale(1, 1000) as u32;
        if random.one_in(3) {
            let mut some = |low, high| random.one_in(2).then(|| random.scale(low, high));
            max.total = Total { bytes_per_s: some(50_000, 500_000_000), iops: some(10, 100_000) };
            max.burst = Burst { bytes: some(1, 50_000_000), requests: some(1, 1000) };
        }
        let class = self.class();
        Contract { min, min_iops, alone: None, low, weight, max, latency, class }
    }
}
