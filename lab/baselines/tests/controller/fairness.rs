//! Two clauses about time that random lists of operations cannot show: while clients always have requests, groups get their
//! shares with a bounded lag, and no request waits for ever. For every scheduler that shares between groups and every
//! throttle that shares, and for every stack. Policies that are broken on purpose must be caught, as schedulers and as
//! throttles.

#[path = "../support/broken.rs"]
mod broken;

use std::collections::VecDeque;

use iofair_baselines::TABLE;
use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, FlushRule, Setup, Stack, Submission};
use iofair_core::id::{ClientId, CommandId, RequestId};
use iofair_core::policy::{Build, Context, DriveFacts, Policy, Row};
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_testkit::stacks;

use broken::row;

/// The drive completes one command after the other, each after this time.
const SERVICE: Nanos = Nanos::from_micros(100);
const DEPTH: u32 = 4;
const LENGTH: Sectors = Sectors(64);
const TIME: Nanos = Nanos::from_secs(20);
/// Queues are new, and policies learn.
const WARM_UP: Nanos = Nanos::from_secs(2);
/// A group's service and its share of all service may differ by what the drive does in this time. The longest slots and periods
/// of the policies take 180 ms a group (of CFQ and the fair layer), of which there are three.
const LAG: Nanos = Nanos::from_millis(600);
/// No request waits for longer. The longest expiry of a scheduler here is 5 s, of mq-deadline's and deadline's writes.
const WAIT: Nanos = Nanos::from_secs(6);

/// Stacks in which writes wait for as long as a client reads without pauses: their schedulers send no asynchronous request while
/// a read is in the drive, and each read that arrives preempts writes. In the anticipatory ones a single write elsewhere waits for
/// as long as others write in order, and in `none-fair-cfq` a sequential reader for a random one; neither is explained.
const STARVING: [&str; 5] =
    ["none-anticipatory", "none-cfq", "none-cfq-group", "none-fair-anticipatory", "none-fair-cfq"];
/// Shares of an estimate of the drive's rate that lies above it on purpose, so that not all limits act.
const UNBOUNDED: [&str; 1] = ["unified-none"];

/// A client that always has this many requests: sequential in a part of the drive of its own, or anywhere.
struct Actor {
    client: ClientId,
    operation: Operation,
    depth: usize,
    random: bool,
    next: u64,
    sent: VecDeque<(u64, Instant)>,
    served: u64,
    longest: Nanos,
}

struct World {
    engine: Controller,
    now: Instant,
    actors: Vec<Actor>,
    flying: VecDeque<CommandId>,
    tag: u64,
}

impl World {
    fn new(stack: Stack) -> Self {
        let facts = DriveFacts {
            rotational: false,
            depth: DEPTH,
            max_request: LENGTH,
            capacity: Sectors(1 << 32),
        };
        let setup = Setup {
            facts,
            tags: 256,
            queue_limit: 1024,
            guaranteed: 16,
            client_limit: u32::MAX,
            flushes: FlushRule::Scheduled,
            trace: 0,
        };
        let engine = Controller::new(setup, stack);
        let (actors, flying) = (Vec::new(), VecDeque::new());
        Self { engine, now: Instant(1_000_000), actors, flying, tag: 0 }
    }
    fn add(&mut self, weight: u32, operation: Operation, depth: usize, random: bool) {
        let contract = Contract { weight, ..Contract::default() };
        let path = format!("g{}", self.actors.len());
        let group = self.engine.add_group(self.now, &path, contract).expect("a new name");
        let client = self.engine.add_client(self.now, group, Priority::default());
        let (client, next) =
            (client.expect("the group is there"), (self.actors.len() as u64) << 28);
        let (sent, longest) = (VecDeque::new(), Nanos::ZERO);
        let actor = Actor { client, operation, depth, random, next, sent, served: 0, longest };
        self.actors.push(actor);
    }
    fn submit_all(&mut self) {
        for index in 0..self.actors.len() {
            while self.actors[index].sent.len() < self.actors[index].depth {
                self.tag += 1;
                let tag = self.tag;
                let actor = &mut self.actors[index];
                let base = (index as u64) << 28;
                actor.next = match actor.random {
                    true => base + tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 27),
                    false => base + (actor.next - base + LENGTH.0) % (1 << 27),
                };
                actor.sent.push_back((tag, self.now));
                let submission = Submission {
                    tag,
                    client: actor.client,
                    operation: actor.operation,
                    flags: Flags::NO_MERGE,
                    start: Sectors(actor.next),
                    length: LENGTH,
                };
                self.engine.submit(self.now, submission).expect("within the limit");
            }
        }
    }
    /// Goes to the next completion or wake-up. `false`: the engine holds requests and asks for nothing.
    fn step(&mut self) -> bool {
        self.submit_all();
        while let Some(command) = self.engine.dispatch(self.now) {
            self.flying.push_back(command.command);
        }
        let Some(first) = self.flying.pop_front() else {
            let Some(at) = self.engine.next_wakeup() else { return false };
            self.now = self.now.max(at);
            return true;
        };
        self.now += SERVICE;
        let mut done = Vec::new();
        self.engine.complete(self.now, first, 0, &mut done).expect("the drive has it");
        for completion in done {
            let client = completion.part.client;
            let actor = self.actors.iter_mut().find(|actor| actor.client == client);
            let actor = actor.expect("it sent this");
            let at = actor.sent.iter().position(|(tag, _)| *tag == completion.part.tag);
            let sent = actor.sent.remove(at.expect("it sent this"));
            actor.served += 1;
            actor.longest = actor.longest.max(self.now.since(sent.expect("there").1));
        }
        true
    }
    /// The longest that a request has waited so far, in the drive's time, and whose.
    fn longest_wait(&self) -> (Nanos, usize) {
        let of = |actor: &Actor| {
            let waiting = actor.sent.iter().map(|(_, sent)| self.now.since(*sent)).max();
            actor.longest.max(waiting.unwrap_or(Nanos::ZERO))
        };
        let waits = self.actors.iter().enumerate().map(|(index, actor)| (of(actor), index));
        waits.max().expect("there are clients")
    }
}

/// The largest lag of a group, in time of the drive, with weights of 100, 200 and 300.
fn largest_lag(stack: Stack) -> Result<Nanos, String> {
    const WEIGHTS: [u32; 3] = [100, 200, 300];
    let mut world = World::new(stack);
    for weight in WEIGHTS {
        world.add(weight, Operation::Read, 32, false);
    }
    let start = world.now;
    let mut before = [0; 3];
    let mut largest = 0;
    while world.now.since(start) < WARM_UP + TIME {
        if !world.step() {
            return Err("holds requests for ever".to_string());
        }
        let served: Vec<u64> = world.actors.iter().map(|actor| actor.served).collect();
        if world.now.since(start) < WARM_UP {
            before = [served[0], served[1], served[2]];
            continue;
        }
        let served: Vec<u64> =
            served.iter().zip(before).map(|(all, before)| all - before).collect();
        let all: u64 = served.iter().sum();
        for (served, weight) in served.iter().zip(WEIGHTS) {
            largest = largest.max((served * 600).abs_diff(all * u64::from(weight)) / 600);
        }
    }
    Ok(SERVICE * largest)
}

/// The longest wait beside clients that always have many requests, and whose it was: a reader of one random request at a
/// time, sequential readers and writers.
fn longest_wait(stack: Stack) -> Result<(Nanos, usize), String> {
    let mut world = World::new(stack);
    world.add(100, Operation::Read, 1, true);
    world.add(100, Operation::Read, 64, false);
    world.add(100, Operation::Write, 64, false);
    world.add(100, Operation::Write, 1, true);
    let start = world.now;
    while world.now.since(start) < TIME {
        if !world.step() {
            return Err("holds requests for ever".to_string());
        }
    }
    Ok(world.longest_wait())
}

fn stack(name: &str) -> Stack {
    TABLE.stack(name).expect("in the table")
}

/// Goal: groups get their shares, except where it is known that they do not. Method: three groups that always have requests; at each completion of 20 s, the difference
/// between what a group got and its part of all.
#[test]
fn shares_have_a_bounded_lag() {
    let mut failures = Vec::new();
    let shared = stacks::schedulers(&TABLE).into_iter().filter(|name| name.starts_with("prop-"));
    for name in shared.chain(["cost-none", "unified-none", "ioband-none"].map(String::from)) {
        let mut stack = stack(&name);
        let row = stack.scheduler.row;
        if row.parameters.iter().any(|parameter| parameter.name == "low_latency") {
            // New queues are raised for seconds, whatever their weight.
            stack.set(row.name, "low_latency", "false").expect("in the table");
        }
        if name == "cost-none" {
            // A model that nearly fills the drive: 300 MB/s of 328.
            for (key, value) in [("rbps", "300MB/s"), ("min", "100"), ("max", "100")] {
                stack.set("io-cost", key, value).expect("in the table");
            }
            for key in ["rseqiops", "rrandiops"] {
                stack.set("io-cost", key, "1000000").expect("in the table");
            }
        }
        match largest_lag(stack) {
            Ok(lag) if (lag <= LAG) != UNBOUNDED.contains(&&*name) => println!("{name}: {lag:?}"),
            other => failures.push(format!("{name}: {other:?}")),
        }
    }
    assert!(failures.is_empty(), "not as known, with {LAG:?}:\n{}", failures.join("\n"));
}

/// Goal: every request ends, except where it is known that some do not. Method: the longest wait in 20 s, for each scheduler alone and each throttle.
#[test]
fn no_request_starves() {
    let mut failures = Vec::new();
    let throttles = stacks::throttles(&TABLE).into_iter().map(|name| format!("{name}-none"));
    for name in stacks::schedulers(&TABLE).into_iter().chain(throttles) {
        match longest_wait(stack(&name)) {
            Ok((wait, whose)) if (wait <= WAIT) != STARVING.contains(&&*name) => {
                println!("{name}: {wait:?} of {whose}");
            }
            other => failures.push(format!("{name}: {other:?}")),
        }
    }
    assert!(failures.is_empty(), "not as known, with {WAIT:?}:\n{}", failures.join("\n"));
}

/// A policy that is broken on purpose: it lets few requests out at a time, the newest first or in order of arrival.
struct Broken {
    newest_first: bool,
    held: VecDeque<RequestId>,
    out: u32,
}

impl Policy for Broken {
    fn submit(&mut self, _: &mut Context<'_>, id: RequestId) {
        self.held.push_back(id);
    }
    fn dispatch(&mut self, _: &mut Context<'_>) -> Option<RequestId> {
        if self.out >= DEPTH {
            return None;
        }
        let id = if self.newest_first { self.held.pop_back() } else { self.held.pop_front() }?;
        self.out += 1;
        Some(id)
    }
    fn complete(&mut self, _: &mut Context<'_>, _: RequestId) {
        self.out -= 1;
    }
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }
}

fn starves(_: &Build<'_>) -> Box<dyn Policy + Send> {
    Box::new(Broken { newest_first: true, held: VecDeque::new(), out: 0 })
}
fn ignores_weights(_: &Build<'_>) -> Box<dyn Policy + Send> {
    Box::new(Broken { newest_first: false, held: VecDeque::new(), out: 0 })
}

static STARVES: Row = row("starves", starves);
static IGNORES_WEIGHTS: Row = row("ignores-weights", ignores_weights);

/// Goal: both clauses see. Method: a policy that serves the newest request first, and one that ignores weights, each as scheduler
/// and as throttle.
#[test]
fn broken_policies_are_caught() {
    let both = |row: &'static Row| {
        let (mut scheduler, mut throttle) = (stack("none-none"), stack("none-none"));
        throttle.throttles.push(throttle.scheduler.clone());
        scheduler.scheduler.row = row;
        throttle.throttles[0].row = row;
        [scheduler, throttle]
    };
    for stack in both(&STARVES) {
        let wait = longest_wait(stack);
        assert!(wait.as_ref().is_ok_and(|(wait, _)| *wait > WAIT), "{wait:?}");
    }
    for stack in both(&IGNORES_WEIGHTS) {
        assert!(longest_wait(stack.clone()).is_ok_and(|(wait, _)| wait <= WAIT));
        let lag = largest_lag(stack);
        assert!(lag.as_ref().is_ok_and(|lag| *lag > LAG), "{lag:?}");
    }
}
