//! Injection as 5.3 has it: learned from less evidence.

use std::vec::Vec;

use super::world::{Drive, Job, World};
use crate::controller::Dispatch;
use crate::group::ClientId;
use crate::time::Nanos;

const QUIET: &[(&str, &str)] = &[("low_latency", "false")];
const FAR: u64 = 1 << 27;

/// Sends a read of a client that is waited for.
fn send(world: &mut World, client: ClientId, at: u64) -> Dispatch {
    world.read(client, at, 8);
    let dispatch = world.dispatch().expect("it is waited for");
    assert_eq!(dispatch.start.0, at);
    dispatch
}
/// Reads for 102 ms, 100 us each, with pauses in which the client is waited for.
fn read_on(world: &mut World, client: ClientId) {
    for i in 0..33 {
        let sent = send(world, client, 10_000 + 8 * i);
        world.wait(Nanos::from_micros(100));
        world.complete(sent);
        world.wait(Nanos::from_millis(3));
    }
}

/// Goal: nothing is learned for 100 ms, limits grow with reads that nothing was injected before, and the
/// time of a read behind what was injected counts as undisturbed when it was alone at its end. Method:
/// reads by hand.
#[test]
fn limits_grow_on_little_evidence() {
    let mut world = World::new("prop-bfq-5.3", Drive::flash(), QUIET);
    let (a, b) = (world.hand(100), world.hand(100));
    let learned = |world: &mut World| world.numbers("inject: limit");
    let alone = |world: &mut World, at: u64, micros: u64| {
        let sent = send(world, a, at);
        world.wait(Nanos::from_micros(micros));
        world.complete(sent);
    };
    let behind = |world: &mut World, at: u64, micros: u64| {
        world.read(b, FAR + at, 8);
        let injected = world.dispatch().expect("injected");
        let sent = send(world, a, at);
        world.wait(Nanos::from_micros(micros));
        world.complete(injected);
        world.complete(sent);
    };
    read_on(&mut world, a);
    assert_eq!(learned(&mut world), Vec::<[u64; 2]>::new(), "too early to learn");
    alone(&mut world, 0, 100);
    assert_eq!(learned(&mut world), [[1, 100_000]]);
    alone(&mut world, 8, 149);
    assert_eq!(learned(&mut world), [[2, 149_000]], "nothing was injected, and yet");
    behind(&mut world, 16, 300);
    assert_eq!(learned(&mut world), [[1, 300_000]], "noticed");
    read_on(&mut world, a);
    assert_eq!(learned(&mut world), Vec::<[u64; 2]>::new(), "too early to learn again");
    behind(&mut world, 24, 400);
    assert_eq!(learned(&mut world), [[2, 400_000]], "300 us count as undisturbed");
}

/// Goal: the requests of a queue that another one wakes are not injected into that one's wait. Method: a
/// reader in order, and one that reads now and then right after its answers.
#[test]
fn woken_queues_wait() {
    let woken = |stack: &str| {
        let mut world = World::new(stack, Drive::flash(), QUIET);
        world.add(100, Job::sequential_read(0));
        world.add(100, Job { think: Nanos::from_millis(50), ..Job::random_read() });
        world.run(Nanos::from_secs(4));
        world.count("inject: woken")
    };
    assert!(woken("prop-bfq") > 0);
    assert_eq!(woken("prop-bfq-5.3"), 0);
}
