//! Injection as 5.3 has it: learned from less evidence.

use std::vec::Vec;

use super::world::{Drive, Job, World};
use iofair_core::controller::Dispatch;
use iofair_core::id::ClientId;
use iofair_core::request::Operation;
use iofair_core::time::Nanos;

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

/// Goal: wakers are not injected, nor the requests of a queue that another one wakes. Method: a reader in order,
/// and one that reads now and then right after its completions.
#[test]
fn who_wakes_whom_does_not_count() {
    let injected = |stack: &str, rule: &str| {
        let mut world = World::new(stack, Drive::flash(), QUIET);
        world.add(100, Job::sequential_read(0));
        world.add(100, Job { think: Nanos::from_millis(50), ..Job::random_read() });
        world.run(Nanos::from_secs(4));
        world.count(rule)
    };
    assert!(injected("prop-bfq", "inject: woken") > 0);
    assert_eq!(injected("prop-bfq-5.3", "inject: woken"), 0);
    assert_eq!(injected("prop-bfq-5.3", "inject: waker"), 0);
}

/// Goal: what is learned of a queue is learned within a slot. Method: a read whose time would raise the limit, with
/// and without a heavier client that ends the slot before its completion.
#[test]
fn a_slot_that_ends_teaches_nothing() {
    let learned = |preempted: bool| {
        let mut world = World::new("prop-bfq-5.3", Drive::flash(), QUIET);
        let (a, heavy) = (world.hand(100), world.hand(500));
        read_on(&mut world, a);
        let sent = send(&mut world, a, 0);
        if preempted {
            world.read(heavy, FAR, 8);
            assert_eq!(world.count("expire: preempted"), 1);
        }
        world.wait(Nanos::from_micros(100));
        world.complete(sent);
        world.count("inject: limit")
    };
    assert_eq!(learned(false), 1);
    assert_eq!(learned(true), 0);
}

/// Goal: where nothing is measured while BFQ idles, the first request counts as a long pause, so that a client with short pauses
/// thinks long at its third request, and one request may be injected; otherwise not. Method: a reader that rests for 100 us
/// and is not waited for, and then a request of another one beside its last one.
#[test]
fn the_first_request_is_a_pause() {
    let injects = |think_in_waits: &str, requests: u64| {
        let alone = [("idle_alone", "false"), ("busy_groups", "2")];
        let set = [("think_in_waits", think_in_waits), alone[0], alone[1]];
        let mut world = World::new("prop-bfq", Drive::flash(), &[QUIET, &set].concat());
        let (a, b) = (world.hand(100), world.hand(100));
        for i in 1..requests {
            let sent = send(&mut world, a, 8 * i);
            world.wait(Nanos::from_micros(100));
            world.complete(sent);
            assert!(world.dispatch().is_none());
            world.wait(Nanos::from_micros(100));
        }
        let sent = send(&mut world, a, 8 * requests);
        world.read(b, FAR, 8);
        world.wait(Nanos::from_micros(100));
        world.complete(sent);
        world.dispatch().is_some()
    };
    assert_eq!([2, 3].map(|requests| injects("false", requests)), [false, true]);
    assert_eq!([2, 3].map(|requests| injects("true", requests)), [false, false]);
}

/// Goal: think times are taken of every request and are long above `slice_idle`; now of rests only, and above half of
/// it, or not of those that were waited for either. Method: a reader that pauses for 5 ms of the 8 that it is waited
/// for; once it thinks long, one request may be injected. A write that the drive has all the time keeps it from learning.
#[test]
fn long_thinking_changed() {
    let long = |stack: &str, set: &[(&str, &str)]| {
        let mut world = World::new(stack, Drive::flash(), &[QUIET, set].concat());
        let (a, b) = (world.hand(100), world.hand(100));
        world.send_one(b, Operation::Write, FAR, 8);
        let write = world.dispatch().expect("nobody is waited for");
        for i in 0..8 {
            let sent = send(&mut world, a, 8 * i);
            world.complete(sent);
            world.wait(Nanos::from_millis(5));
        }
        world.complete(write);
        world.read(b, FAR, 8);
        world.dispatch().is_some()
    };
    assert!(long("prop-bfq", &[]));
    assert!(!long("prop-bfq", &[("think_in_waits", "false")]));
    assert!(!long("prop-bfq-5.3", &[]));
    assert!(long("prop-bfq-5.3", &[("early_habits", "false")]));
}
