//! Injection as 4.20 has it: bounded by the service that the waited-for queue received.

use std::vec::Vec;

use super::world::{Drive, World};
use iofair_core::id::ClientId;
use iofair_core::priority::{Class, Priority};
use iofair_core::time::Nanos;

const QUIET: (&str, &str) = ("low_latency", "false");
const FAR: u64 = 1 << 27;

/// Forty reads of 8 sectors, one after the other: 320 sectors, and the client is waited for.
fn forty_reads(world: &mut World, client: ClientId, stride: u64) {
    for i in 0..40 {
        world.read(client, i * stride, 8);
        world.serve(100).expect("nobody else is there");
    }
    assert!(world.wakes_in().is_some(), "it is waited for");
}
/// Sends requests until none is to be sent; where they start.
fn dispatch_all(world: &mut World) -> Vec<u64> {
    core::iter::from_fn(|| world.dispatch()).map(|dispatch| dispatch.start.0).collect()
}

/// Goal: others are served while what they got, times the coefficient, is less than ten times what the
/// waited-for queue received; more of that allows more. Method: 320 sectors received, then requests of
/// 256 of another client, with the coefficient of 4.20 and two larger ones; then single reads more.
#[test]
fn service_received_bounds_what_is_injected() {
    // 12 * 256 sectors are below ten times 320, and 13 * 256 below ten times 336.
    let cases = [("1", 13, [0, 1, 0, 0]), ("10", 2, [0; 4]), ("40", 1, [0; 4])];
    for (coefficient, first, then) in cases {
        let set = [QUIET, ("inject_coefficient", coefficient)];
        let mut world = World::new("prop-bfq-4.20", Drive::flash(), &set);
        let (a, b) = (world.hand(100), world.hand(100));
        forty_reads(&mut world, a, 100_000);
        for i in 0..20 {
            world.read(b, FAR + i * 256, 256);
        }
        assert_eq!(dispatch_all(&mut world).len(), first, "coefficient {coefficient}");
        for (i, more) in then.into_iter().enumerate() {
            let at = 5_000_000 + i as u64 * 100_000;
            world.read(a, at, 8);
            let dispatch = world.dispatch().expect("a goes on");
            assert_eq!(dispatch.start.0, at);
            let injected = dispatch_all(&mut world).len();
            assert_eq!(injected, more, "read {i}, coefficient {coefficient}");
            world.complete(dispatch);
        }
    }
}

/// Goal: only flash that queues injects, and only while an unraised seeky queue is waited for. Method:
/// one condition less at a time.
#[test]
fn who_is_injectable() {
    let injects = |drive: Drive, set: &[(&str, &str)], stride: u64| {
        let mut world = World::new("prop-bfq-4.20", drive, set);
        let a = world.hand(100);
        // Not of the usual level, so that it is not raised itself and does not preempt.
        let group = world.group("late", 100);
        let b = world.hand_in(group, Priority { class: Class::BestEffort, level: 5 });
        forty_reads(&mut world, a, stride);
        world.read(b, FAR, 8);
        dispatch_all(&mut world) == [FAR]
    };
    assert!(injects(Drive::flash(), &[QUIET], 100_000));
    assert!(!injects(Drive::flash(), &[QUIET], 8), "sequential");
    assert!(!injects(Drive::flash(), &[], 100_000), "raised");
    assert!(!injects(Drive::disk(), &[QUIET], 100_000), "rotating");
    assert!(!injects(Drive::flash(), &[QUIET, ("injection", "false")], 100_000));
    // A drive that gets one at a time although there is more does not queue.
    let mut world = World::new("prop-bfq-4.20", Drive::flash(), &[QUIET]);
    let (a, b) = (world.hand(100), world.hand(100));
    for i in 0..40 {
        world.read(a, i * 100_000, 8);
    }
    while world.serve(100).is_some() {}
    assert!(world.wakes_in().is_some(), "it is waited for");
    world.read(b, FAR, 8);
    assert!(dispatch_all(&mut world).is_empty());
}

/// Goal: each slot counts anew what it injects. Method: a slot that injects all it may, then another
/// one of the same queue with little service.
#[test]
fn a_new_slot_injects_anew() {
    let mut world = World::new("prop-bfq-4.20", Drive::flash(), &[QUIET]);
    let (a, b) = (world.hand(100), world.hand(100));
    forty_reads(&mut world, a, 100_000);
    for i in 0..14 {
        world.read(b, FAR + i * 256, 256);
    }
    assert_eq!(dispatch_all(&mut world).len(), 13);
    world.wait(Nanos::from_millis(8));
    assert_eq!(dispatch_all(&mut world), [FAR + 13 * 256], "b's own slot");
    world.wait(Nanos::from_millis(200));
    world.read(a, 5_000_000, 8);
    world.read(b, FAR + 20 * 256, 256);
    world.read(b, FAR + 21 * 256, 256);
    assert_eq!(dispatch_all(&mut world), [5_000_000, FAR + 20 * 256]);
    let injected = world.numbers("inject: by service");
    assert_eq!(injected[12..], [[3_072, 320], [0, 8]]);
}

/// Goal: whoever became active last is injected first. Method: two others with one request each.
#[test]
fn the_newest_queue_is_injected_first() {
    let mut world = World::new("prop-bfq-4.20", Drive::flash(), &[QUIET]);
    let (a, b, c) = (world.hand(100), world.hand(100), world.hand(100));
    forty_reads(&mut world, a, 100_000);
    world.read(b, FAR, 8);
    world.read(c, 2 * FAR - 8, 8);
    assert_eq!(dispatch_all(&mut world), [2 * FAR - 8, FAR]);
}
