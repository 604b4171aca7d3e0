//! Who gets how much: groups, their own clients, workloads, queues.

use std::vec::Vec;

use iofair_core::priority::{Class, Priority};
use iofair_core::testing::apart::World;

const STACK: &str = "prop-cfq-group";
const LATE: (&str, &str) = ("fifo_expire_sync", "1m");

/// Requests served of each client, all of which always hold 40, a millisecond each.
fn served(world: &mut World, clients: &[usize], requests: u32) -> Vec<u32> {
    clients.iter().for_each(|client| world.reads(*client, 40));
    let mut served = std::vec![0; clients.len()];
    for _ in 0..requests {
        let client = world.serve(1000).expect("busy");
        world.read(client);
        served[clients.iter().position(|other| *other == client).expect("known")] += 1;
    }
    served
}
/// Permille of all.
fn shares(served: &[u32]) -> Vec<u32> {
    let all: u32 = served.iter().sum();
    served.iter().map(|count| count * 1000 / all).collect()
}
fn near(shares: &[u32], expected: &[u32]) {
    let off = shares.iter().zip(expected).any(|(share, wanted)| share.abs_diff(*wanted) > 15);
    assert!(!off, "{shares:?} instead of {expected:?}");
}

/// Goal: groups share the drive's time by weight, however many clients each has. Method: 100 to 300, one
/// client against three.
#[test]
fn groups_share_by_weight() {
    let mut world = World::new(&crate::TABLE, STACK, &[LATE]);
    let (light, heavy) = (world.group("light", 100), world.group("heavy", 300));
    let clients: Vec<_> =
        [light, heavy, light, light].into_iter().map(|group| world.usual_in(group)).collect();
    let served = served(&mut world, &clients, 20_000);
    let light = served[0] + served[2] + served[3];
    near(&shares(&[light, served[1]]), &[250, 750]);
    near(&shares(&[served[0], served[2], served[3]]), &[333, 333, 333]);
}

/// Goal: without `prop` groups count for nothing. Method: the same weights, one client each.
#[test]
fn without_groups_clients_are_alike() {
    let mut world = World::new(&crate::TABLE, "none-cfq-group", &[LATE]);
    let (light, heavy) = (world.group("light", 100), world.group("heavy", 300));
    let clients = [light, heavy].map(|group| world.usual_in(group));
    near(&shares(&served(&mut world, &clients, 10_000)), &[500, 500]);
}

/// Goal: a group's own clients compete with the groups in it by `leaf_weight`, and fractions multiply down
/// the tree. Method: a parent of weight 200 with a client of its own (leaf 100) and a child of 300, beside a
/// group of 200: 1/8, 3/8, 1/2.
#[test]
fn own_clients_are_a_leaf() {
    let mut world = World::new(&crate::TABLE, STACK, &[LATE]);
    let (parent, beside) = (world.group("a", 200), world.group("b", 200));
    let child = world.group("a/c", 300);
    let clients = [parent, child, beside].map(|group| world.usual_in(group));
    near(&shares(&served(&mut world, &clients, 40_000)), &[125, 375, 500]);
}

/// Goal: only those that have something to do count. Method: the fraction that turns are charged by, with
/// one group alone and beside another of 300.
#[test]
fn idle_siblings_do_not_count() {
    let mut world = World::new(&crate::TABLE, STACK, &[LATE]);
    let (one, other) = (world.group("one", 100), world.group("other", 300));
    let clients = [one, other].map(|group| world.usual_in(group));
    let fractions = |world: &mut World| {
        let events = world.rig.controller.trace().drain();
        let charges = events.filter_map(|event| match event.kind {
            iofair_core::trace::EventKind::Decision { rule, values } => {
                rule.starts_with("group: charged").then_some(values[1])
            }
            _ => None,
        });
        charges.collect::<Vec<_>>()
    };
    world.read(clients[0]);
    assert_eq!(world.serve(1000), Some(clients[0]));
    world.wait(8000);
    assert_eq!(world.dispatch(), None);
    assert_eq!(fractions(&mut world), [4096]);
    clients.iter().for_each(|client| world.reads(*client, 500));
    world.runs(900, 1000);
    // The first turn's fraction was made before the other group came.
    let all = fractions(&mut world);
    assert!(all[1..].iter().all(|fraction| [1024, 3072].contains(fraction)), "{all:?}");
}

/// Goal: a changed weight counts when the group next becomes active. Method: 100 and 100, then the one gets
/// 300 while busy, and empties.
#[test]
fn weights_change_on_activation() {
    let mut world = World::new(&crate::TABLE, STACK, &[LATE]);
    let (one, other) = (world.group("one", 100), world.group("other", 100));
    let clients = [one, other].map(|group| world.usual_in(group));
    near(&shares(&served(&mut world, &clients, 5_000)), &[500, 500]);
    let contract = iofair_core::contract::Contract { weight: 300, ..Default::default() };
    world.rig.controller.update_group(world.rig.now, one, contract).expect("there");
    world.drain(1000);
    near(&shares(&served(&mut world, &clients, 20_000)), &[750, 250]);
}

/// Goal: slices shrink so that all queues of a group have a turn in 300 ms. Method: six queues of a lone
/// group: 50 ms each, once the average knows them; without `low_latency` 100.
#[test]
fn slices_fit_the_target_latency() {
    for (low_latency, expected) in [("true", 51), ("false", 101)] {
        let set = [LATE, ("low_latency", low_latency)];
        let mut world = World::with(&crate::TABLE, STACK, &set, |setup| setup.guaranteed = 2048);
        let group = world.group("g", 100);
        (0..6).for_each(|_| assert!(world.usual_in(group) < 6));
        (0..6).for_each(|client| world.reads(client, 330));
        let runs = world.runs(1900, 1000);
        let (_, last) = runs[runs.len() - 3];
        assert_eq!(last, expected, "{runs:?}");
    }
}

/// Goal: levels count within a group. Method: levels 0 and 7, 180 to 40.
#[test]
fn levels_count_in_a_group() {
    let mut world = World::new(&crate::TABLE, STACK, &[LATE, ("low_latency", "false")]);
    let group = world.group("g", 100);
    let high = world.add_to(group, Class::BestEffort, 0);
    let low = world.add_to(group, Class::BestEffort, 7);
    let served = served(&mut world, &[high, low], 10_000);
    near(&shares(&served), &[815, 185]);
}

/// Goal: with `slice_idle` zero on a drive that queues turns cost requests. Method: on flash, where that is
/// the default, one group's requests take three times as long; the requests are shared, not the time.
#[test]
fn requests_are_charged_on_flash() {
    let mut world = World::with(&crate::TABLE, STACK, &[LATE, ("group_idle", "0s")], |setup| {
        setup.facts.rotational = false;
    });
    let (one, other) = (world.group("one", 100), world.group("other", 100));
    let clients = [one, other].map(|group| world.usual_in(group));
    clients.iter().for_each(|client| world.reads(*client, 500));
    let mut served = [0u32; 2];
    for _ in 0..80 {
        for (client, id) in world.burst() {
            world.wait(if client == clients[0] { 3000 } else { 1000 });
            world.rig.complete(id);
            served[client] += 1;
        }
    }
    assert!(served[0].abs_diff(served[1]) < 110, "{served:?}");
}

/// Goal: a turn that ended before a completion costs the way there. Method: a queue of the idle class, which
/// gives way at once.
#[test]
fn a_turn_without_an_answer_costs_its_time() {
    let mut world = World::new(&crate::TABLE, STACK, &[]);
    let group = world.group("g", 100);
    let clients = [4, 4].map(|level| world.add_to(group, Class::Idle, level));
    clients.iter().for_each(|client| world.reads(*client, 2));
    world.decisions();
    assert_eq!(world.serve(1000), Some(clients[0]));
    let charged: Vec<_> =
        world.decisions().into_iter().filter(|(rule, _)| *rule == "group: charged").collect();
    assert_eq!(charged, [("group: charged", 1_000_000)]);
}

/// Goal: a group is not charged for what a slice took beyond its allocation. Method: the second request of a
/// slice of 100 ms takes 500.
#[test]
fn overrun_is_not_charged_to_the_group() {
    let mut world = World::new(&crate::TABLE, STACK, &[LATE]);
    let (one, other) = (world.usual(), world.usual());
    [one, other].into_iter().for_each(|client| world.reads(client, 10));
    assert_eq!(world.serve(1000), Some(one));
    world.decisions();
    assert_eq!(world.serve(500_000), Some(one));
    assert!(world.decisions().contains(&("group: charged", 100_000_000)));
}

/// Goal: buffered writes get a small part of a group's time beside reads. Method: a reader and a writer
/// that are never empty.
#[test]
fn writes_are_a_workload_of_their_own() {
    let mut world = World::new(&crate::TABLE, STACK, &[LATE, ("fifo_expire_async", "1m")]);
    let group = world.group("g", 100);
    let (reader, writer) = (world.usual_in(group), world.usual_in(group));
    world.reads(reader, 40);
    world.writes(writer, 40);
    let mut served = [0u32; 2];
    for _ in 0..10_000 {
        let client = world.serve(1000).expect("busy");
        match client == reader {
            true => world.read(reader),
            false => world.writes(writer, 1),
        }
        served[client] += 1;
    }
    let writes = served[writer] * 1000 / (served[reader] + served[writer]);
    assert!((50..=300).contains(&writes), "{served:?}");
}

/// Goal: a client that moves to another group is charged there. Method: two clients of a light group, one
/// of which moves to a heavy one with requests inside.
#[test]
fn a_client_moves() {
    let mut world = World::new(&crate::TABLE, STACK, &[LATE]);
    let (light, heavy) = (world.group("light", 100), world.group("heavy", 300));
    let clients = [light, light].map(|group| world.usual_in(group));
    near(&shares(&served(&mut world, &clients, 5_000)), &[500, 500]);
    let (now, client) = (world.rig.now, world.client(clients[1]));
    world.rig.controller.update_client(now, client, heavy, Priority::default()).expect("there");
    near(&shares(&served(&mut world, &clients, 20_000)), &[250, 750]);
}
