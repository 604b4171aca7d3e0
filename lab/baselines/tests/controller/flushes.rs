//! Flushes that pass throttles and scheduler ([`FlushRule::Scheduled`]): what a loop of them may take from others.

use std::collections::VecDeque;

use iofair_baselines::TABLE;
use iofair_core::contract::{Contract, Limits, Low};
use iofair_core::controller::{
    Completion, Controller, Dispatch, FlushRule, Place, Setup, Submission,
};
use iofair_core::id::ClientId;
use iofair_core::policy::{DriveFacts, Gauges};
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_testkit::stacks;

/// What the drive takes: one command after the other.
const FLUSH: Nanos = Nanos::from_millis(2);
const READ: Nanos = Nanos::from_micros(250);
/// 128 KiB.
const LENGTH: Sectors = Sectors(256);

struct World {
    engine: Controller,
    now: Instant,
    /// Commands, each with the time of its completion.
    drive: VecDeque<(Instant, Dispatch)>,
    /// Time of the drive that went to flushes.
    flushing: Nanos,
    random: u64,
}

impl World {
    fn new(stack: &str, flushes: FlushRule) -> Self {
        let facts = DriveFacts {
            rotational: false,
            depth: 32,
            max_request: Sectors::from_kib(1024),
            capacity: Sectors(1 << 24),
        };
        let setup = Setup {
            facts,
            tags: 256,
            queue_limit: 0,
            guaranteed: 64,
            client_limit: u32::MAX,
            flushes,
            trace: 0,
        };
        let stack = TABLE.stack(stack).expect("in the table");
        Self {
            engine: Controller::new(setup, stack),
            now: Instant(1),
            drive: VecDeque::new(),
            flushing: Nanos::ZERO,
            random: 1,
        }
    }
    fn client(&mut self, group: &str, contract: &Contract) -> ClientId {
        let found = self.engine.groups().find(group);
        let group = found.unwrap_or_else(|| {
            self.engine.add_group(self.now, group, contract.clone()).expect("new")
        });
        self.engine.add_client(self.now, group, Priority::default()).expect("the group is there")
    }
    fn submit(&mut self, client: ClientId, operation: Operation) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let start = Sectors((self.random >> 42) & !255);
        let (start, length) = match operation {
            Operation::Flush => (Sectors::ZERO, Sectors::ZERO),
            _ => (start, LENGTH),
        };
        let (tag, flags) = (operation as u64, Flags::NONE);
        let submission = Submission { tag, client, operation, flags, start, length };
        self.engine.submit(self.now, submission).expect("has room");
    }
    fn dispatch(&mut self) {
        while let Some(command) = self.engine.dispatch(self.now) {
            let is_flush = command.operation == Operation::Flush;
            assert_eq!(is_flush, command.length == Sectors::ZERO, "{command:?}");
            let takes = if is_flush { FLUSH } else { READ };
            if is_flush {
                self.flushing += FLUSH;
            }
            let free = self.drive.back().map_or(self.now, |(at, _)| *at);
            self.drive.push_back((free + takes, command));
        }
    }
    /// Time goes on to the next event; completes at most one command.
    fn step(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        self.dispatch();
        let completion = self.drive.front().map(|(at, _)| *at);
        let next = completion.into_iter().chain(self.engine.next_wakeup()).min();
        self.now = self.now.max(next.expect("there is always work"));
        if self.drive.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, command) = self.drive.pop_front().expect("just looked at");
            self.engine
                .complete(self.now, command.command, 0, &mut done)
                .expect("the drive has it");
        }
        done
    }
    /// Every client keeps what it has outstanding until this time has passed.
    fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end {
            for done in self.step() {
                self.submit(done.part.client, done.operation);
            }
        }
    }
}

/// Goal: a client that sends flushes in a loop is limited by its ceiling of writes, and its flushes are counted.
/// Method: 100 writes a second for each throttle that knows ceilings, four seconds; beside it the rule of before.
#[test]
fn a_ceiling_of_writes_limits_flushes() {
    for (stack, rule) in [
        ("max-none", FlushRule::Scheduled),
        ("max-none", FlushRule::Bypass),
        ("iothrottle-none", FlushRule::Scheduled),
    ] {
        let mut world = World::new(stack, rule);
        let max = Limits { iops: [None, Some(100)], ..Limits::NONE };
        let low = Low { limits: max, ..Low::default() };
        let client = world.client("bad", &Contract { max, low, ..Contract::default() });
        (0..8).for_each(|_| world.submit(client, Operation::Flush));
        world.run(Nanos::from_secs(4));
        let flushes = world.engine.counters(client).flushes;
        if rule == FlushRule::Bypass {
            assert!(flushes > 2000, "the canary: without the rule {flushes} in 4 s");
        } else {
            assert!((350..=450).contains(&flushes), "{stack}: {flushes} in 4 s");
        }
    }
}

/// Goal: a group that sends flushes in a loop cannot take the drive from another one. Method: eight clients with
/// a flush outstanding each beside one that reads with four; who gets how much of the drive's time, by weight.
#[test]
fn flushes_take_no_more_than_their_share() {
    for (rule, weight, least) in [
        (FlushRule::Scheduled, 100, 45),
        (FlushRule::Scheduled, 300, 68),
        (FlushRule::Bypass, 100, 0),
    ] {
        for clients in [1, 8] {
            let mut world = World::new("prop-bfq", rule);
            let reader = world.client("good", &Contract { weight, ..Contract::default() });
            (0..4).for_each(|_| world.submit(reader, Operation::Read));
            world.run(Nanos::from_secs(1));
            for _ in 0..clients {
                let client = world.client("bad", &Contract::default());
                world.submit(client, Operation::Flush);
            }
            world.run(Nanos::from_secs(2));
            let (start, before) = (world.now, world.flushing);
            world.run(Nanos::from_secs(8));
            let all = world.now.since(start).0;
            let percent = 100 - (world.flushing.0 - before.0) * 100 / all;
            println!("{rule:?} weight {weight}, {clients} clients: reader {percent} %");
            if rule == FlushRule::Bypass {
                assert!(percent <= 40, "the canary: without the rule the reader gets {percent} %");
            } else {
                assert!(percent >= least, "{clients} clients, weight {weight}: {percent} %");
            }
        }
    }
}

/// Goal: flushes that were given by the scheduler share the next command, and whoever waits to share one does not
/// wait for a flush that is held elsewhere. Method: one runs, two wait for it, a third is held by a throttle.
#[test]
fn flushes_that_were_given_share_a_command() {
    let mut world = World::new("max-noop", FlushRule::Scheduled);
    let max = Limits { iops: [None, Some(10)], ..Limits::NONE };
    let slow = world.client("slow", &Contract { max, ..Contract::default() });
    let good = world.client("good", &Contract::default());
    (0..3).for_each(|_| world.submit(slow, Operation::Flush));
    world.dispatch();
    assert_eq!(world.drive.len(), 1);
    (0..2).for_each(|_| world.submit(good, Operation::Flush));
    world.dispatch();
    assert_eq!(world.drive.len(), 1, "they wait for the one in flight");
    let mut places: Vec<Place> = world.engine.held(|_| true).map(|held| held.place).collect();
    places.sort_unstable();
    let throttle = Place::Throttle(0);
    assert_eq!(places, [throttle, throttle, Place::Flush, Place::Flush, Place::Drive]);
    assert_eq!(world.step().len(), 1);
    let done = world.step();
    assert_eq!(done.iter().map(|done| done.part.client).collect::<Vec<_>>(), [good, good]);
    assert_eq!(world.now.since(Instant(1)), FLUSH * 2);
    while world.engine.pending() > 0 {
        world.step();
    }
    assert!(world.now.since(Instant(1)) > Nanos::from_millis(150));
    assert_eq!(world.engine.slots_of(world.engine.groups().client(slow).group), 0);
}

/// Goal: a switch of the stack takes waiting flushes along, in order, and waits for none. Method: a flush in flight, one
/// that waits to share the next command, one that waits for its write; a switch; one more; then the group can go.
#[test]
fn a_switch_takes_flushes_along() {
    let mut world = World::new("max-noop", FlushRule::Scheduled);
    let client = world.client("a", &Contract::default());
    let other = world.client("a", &Contract::default());
    world.submit(other, Operation::Flush);
    world.submit(client, Operation::Write);
    world.submit(client, Operation::Flush);
    world.dispatch();
    world.submit(other, Operation::Flush);
    world.dispatch();
    let places = |world: &World| -> Vec<Place> {
        let mut places: Vec<_> = world.engine.held(|_| true).map(|held| held.place).collect();
        places.sort_unstable();
        places
    };
    let before = places(&world);
    assert_eq!(before, [Place::Flush, Place::Flush, Place::Drive, Place::Drive]);
    let stack = TABLE.stack("none-bfq").expect("in the table");
    world.engine.switch(world.now, stack);
    assert_eq!(world.engine.stack().name(), "none-bfq");
    assert_eq!(places(&world), before);
    world.submit(other, Operation::Flush);
    let mut done = Vec::new();
    while world.engine.pending() > 0 {
        done.extend(world.step().into_iter().map(|done| (done.part.client, done.operation)));
    }
    let (flush, write) = (Operation::Flush, Operation::Write);
    let of = |who, what| done.iter().position(|one| *one == (who, what)).expect("completed");
    assert!(of(client, write) < of(client, flush), "{done:?}");
    assert!(of(other, flush) < of(client, flush), "{done:?}");
    assert_eq!(done.len(), 5);
    let group = world.engine.groups().client(client).group;
    for client in [client, other] {
        world.engine.remove_client(world.now, client).expect("idle");
    }
    world.engine.remove_group(world.now, group).expect("empty");
}

/// Numbers to watch, by name.
struct Watched(Vec<(&'static str, u64)>);
impl Gauges for Watched {
    fn gauge(&mut self, name: &'static str, value: u64) {
        self.0.push((name, value));
    }
}

/// Goal: each throttle takes a flush for one request that costs no bytes, and forgets it once it is completed.
/// Method: flush loops with and without writes through each; then nothing is held, and no group counts as active.
#[test]
fn every_throttle_forgets_a_completed_flush() {
    for throttle in stacks::throttles(&TABLE) {
        let mut world = World::new(&format!("{throttle}-none"), FlushRule::Scheduled);
        for name in ["a", "b"] {
            let client = world.client(name, &Contract::default());
            world.submit(client, Operation::Flush);
            world.submit(client, Operation::Write);
        }
        world.run(Nanos::from_secs(2));
        while world.engine.pending() > 0 {
            world.step();
        }
        let mut left = 1000;
        while let Some(at) = world.engine.next_wakeup() {
            world.now = at;
            world.dispatch();
            left -= 1;
            assert!(left > 0, "{throttle} does not come to rest");
        }
        let mut watched = Watched(Vec::new());
        world.engine.observe(&mut watched);
        let active = ["active_groups", "held_requests"];
        let active = watched.0.iter().filter(|(name, value)| active.contains(name) && *value > 0);
        assert_eq!(active.count(), 0, "{throttle}: {:?}", watched.0);
    }
}

/// Goal: under a model of costs a flush costs what a small write does, as in Linux, where it is a write without
/// sectors. Method: two groups under io-cost, one with flushes, one with reads; the flushes are limited.
#[test]
fn a_flush_costs_a_write_under_io_cost() {
    let stack = "cost-none";
    let mut world = World::new(stack, FlushRule::Scheduled);
    let client = world.client("bad", &Contract::default());
    (0..8).for_each(|_| world.submit(client, Operation::Flush));
    world.run(Nanos::from_secs(1));
    let mut watched = Watched(Vec::new());
    world.engine.observe(&mut watched);
    assert!(watched.0.contains(&("active_groups", 1)), "{:?}", watched.0);
}
