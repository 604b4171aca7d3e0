//! Injection by weight: who may have how much in the drive beside a queue that is waited for.

use std::vec::Vec;

use super::world::{Drive, Job, World};
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::Nanos;

const WITH: &[(&str, &str)] = &[("low_latency", "false"), ("inject_by_weight", "true")];
const WITHOUT: &[(&str, &str)] = &[("low_latency", "false")];

/// Flash that needs some 15 requests at once for all that it can do: 98,000 of 4 KiB in a second.
fn flash() -> Drive {
    Drive { sector: Nanos(1_275), ..Drive::flash() }
}
fn deep(depth: u32) -> Job {
    Job { depth, ..Job::random_read() }
}
/// Writes that the client waits for.
fn deep_write(depth: u32) -> Job {
    let flags = Flags::NO_MERGE.with(Flags::SYNC);
    Job { operation: Operation::Write, flags, ..deep(depth) }
}
/// Requests of 256 KiB, four at once.
fn large() -> Job {
    Job { length: 512, depth: 4, ..Job::random_read() }
}
/// Bytes of each client in three seconds; each is in a group of its own with its weight.
fn shares(stack: &str, set: &[(&str, &str)], clients: &[(u32, Job)]) -> Vec<u64> {
    let mut world = World::new(stack, flash(), set);
    for (weight, job) in clients {
        world.add(*weight, *job);
    }
    world.run(Nanos::from_secs(1));
    world.take_all();
    world.run(Nanos::from_secs(3));
    world.take_all()
}

/// Goal: equal groups that keep several requests at the drive lose nothing beside no control, and nobody gets
/// more than another; in the original one has the drive to itself. Method: four groups, reads and writes.
#[test]
fn equal_groups_fill_the_drive() {
    for job in [deep(8), deep_write(8)] {
        let clients = [(100, job); 4];
        let total = |stack, set| shares(stack, set, &clients).iter().sum::<u64>();
        let (none, without) = (total("none-none", &[]), total("prop-bfq", WITHOUT));
        let with = shares("prop-bfq", WITH, &clients);
        assert!(with.iter().sum::<u64>() * 100 >= none * 97, "{none} {with:?}");
        assert!(with.iter().all(|share| (23..=27).contains(&(share * 100 / none))), "{with:?}");
        assert!(without * 100 < none * 70, "{none} {without}");
    }
}

/// Goal: groups of weights 2 and 1 get 2 and 1, and more than they would without. Method: readers and writers
/// of several depths.
#[test]
fn deep_groups_share_by_weight() {
    for job in [deep(8), deep(32), deep_write(8), deep_write(32)] {
        let clients = [(1000, job), (500, job)];
        let with = shares("prop-bfq", WITH, &clients);
        let without = shares("prop-bfq", WITHOUT, &clients);
        assert!((180..=220).contains(&(with[0] * 100 / with[1])), "{} {with:?}", job.depth);
        assert!(with.iter().sum::<u64>() >= without.iter().sum(), "{with:?} {without:?}");
    }
}

/// Goal: large requests never come before the small ones of a queue that is waited for, writes not before
/// reads, and a reader of one request at a time is waited for as ever. Method: each beside what would hurt it.
#[test]
fn others_are_kept_off_as_ever() {
    for clients in [
        [(100, deep(8)), (100, large())],
        [(100, deep(1)), (100, large())],
        [(100, deep(1)), (100, deep(32))],
        [(100, deep(8)), (100, deep_write(8))],
    ] {
        let with = shares("prop-bfq", WITH, &clients);
        let without = shares("prop-bfq", WITHOUT, &clients);
        assert!(with[0] * 100 >= without[0] * 95, "{with:?} {without:?}");
    }
}

/// Goal: what counts is the groups side by side, not who is inside. Method: one group with a client and one
/// with three of the same kind, one of them a level below; the client moves to another group meanwhile.
#[test]
fn groups_count_as_a_whole() {
    let mut world = World::new("prop-bfq", flash(), WITH);
    let (one, many) = (world.group("one", 100), world.group("many", 100));
    let (below, other) = (world.group("many/below", 100), world.group("other", 100));
    let alone = world.add_to(one, Priority::default(), deep(16));
    for group in [many, many, below] {
        world.add_to(group, Priority::default(), deep(16));
    }
    for home in [one, other] {
        let client = world.client(alone);
        world
            .controller
            .update_client(world.now, client, home, Priority::default())
            .expect("there");
        world.run(Nanos::from_secs(1));
        world.take_all();
        world.run(Nanos::from_secs(3));
        let all = world.take_all();
        let part = all[alone] * 100 / all.iter().sum::<u64>();
        assert!((45..=55).contains(&part), "{all:?}");
    }
}
