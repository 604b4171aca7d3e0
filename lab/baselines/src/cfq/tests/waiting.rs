//! Who is waited for, for how long, and who is not.

use crate::parts::habits::SHORT;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::apart::World;
use iofair_core::time::Nanos;

/// Goal: an empty queue is waited for after its completion, 8 ms, and goes on in its slice. Method: a reader
/// that sends one at a time, and one with plenty queued.
#[test]
fn a_reader_is_waited_for() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (lone, other) = (world.usual(), world.usual());
    world.read(lone);
    world.reads(other, 10);
    assert_eq!(world.serve(1000), Some(lone));
    assert_eq!((world.dispatch(), world.wakes_in()), (None, Some(8000)));
    world.wait(7000);
    assert_eq!(world.dispatch(), None);
    world.read(lone);
    assert_eq!((world.serve(1000), world.wakes_in()), (Some(lone), Some(8000)));
    world.wait(8000);
    assert_eq!(world.serve(1000), Some(other));
    assert!(world.decided("idle: in vain"));
}

/// Goal: no scheduler idles after a request whose sender says that nothing follows. Method: the same reader with
/// and without the flag.
#[test]
fn the_no_idle_flag_prevents_idling() {
    for (flags, wait) in [(Flags::NONE, Some(8000)), (Flags::NO_IDLE, None)] {
        let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
        let (lone, other) = (world.usual(), world.usual());
        world.send(lone, Operation::Read, flags);
        world.reads(other, 1);
        assert_eq!(world.serve(1000), Some(lone));
        assert_eq!((world.wakes_in(), world.dispatch().is_none()), (wait, wait.is_some()));
    }
}

/// Goal: while its request is in the drive the queue keeps the slice. Method: nothing else goes out.
#[test]
fn an_outstanding_request_keeps_the_slice() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (lone, other) = (world.usual(), world.usual());
    world.read(lone);
    world.read(other);
    let (client, id) = world.dispatch().expect("free");
    assert_eq!((client, world.dispatch()), (lone, None));
    world.wait(50_000);
    assert_eq!((world.dispatch(), world.wakes_in()), (None, None));
    world.rig.complete(id);
    assert_eq!(world.wakes_in(), Some(8000));
}

/// Goal: who thinks longer than it is waited for loses the window, and gets it back. Method: habits of
/// 12 ms and of 1 ms.
#[test]
fn long_thinkers_are_not_waited_for() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (slow, other) = (world.usual(), world.usual());
    world.habit(slow, 12_000, 0);
    world.read(slow);
    world.read(other);
    assert_eq!(world.serve(1000), Some(slow));
    assert_eq!(world.serve(1000), Some(other));
    world.wait(8000);
    (0..6).for_each(|_| world.habit(slow, 100, 0));
    world.read(slow);
    world.read(other);
    assert_eq!(world.serve(1000), Some(slow));
    assert_eq!(world.dispatch(), None);
}

/// Goal: a seeky queue is waited for 2 ms, or not at all without `low_latency` on a drive that queues.
/// Method: the same habit under both.
#[test]
fn seeky_queues_wait_short() {
    for (low_latency, wait) in [("true", Some(SHORT.as_micros())), ("false", None)] {
        let mut world = World::new(&crate::TABLE, "none-cfq", &[("low_latency", low_latency)]);
        let (seeky, other) = (world.usual(), world.usual());
        world.habit(seeky, 100, 100_000);
        world.read(seeky);
        world.read(other);
        assert_eq!(world.serve(1000), Some(seeky));
        assert_eq!(world.wakes_in(), wait, "{low_latency}");
        assert_eq!(world.dispatch().is_none(), wait.is_some());
    }
}

/// Goal: a drive that never had five at once counts as one that does not queue, and then seeky queues are
/// waited for even without `low_latency`. Method: seven queues of seeky requests one at a time, not
/// waited for, so that fifty completions come while six are queued.
#[test]
fn hw_tag_is_detected() {
    let mut world =
        World::new(&crate::TABLE, "none-cfq", &[("low_latency", "false"), ("quantum", "1")]);
    let clients: std::vec::Vec<_> = (0..8).map(|_| world.usual()).collect();
    for client in &clients {
        world.habit(*client, 100, 100_000);
    }
    clients.iter().for_each(|client| world.read(*client));
    for _ in 0..51 {
        let (client, id) = world.dispatch().expect("none is waited for");
        world.wait(1000);
        world.rig.complete(id);
        world.seek(
            client,
            iofair_core::testing::apart::OWN * client as u64 + world.rig.now.0 % 4_000_000 / 8 * 8,
        );
        world.read(client);
    }
    for _ in 0..8 {
        let (client, id) = world.dispatch().expect("busy");
        world.wait(1000);
        world.rig.complete(id);
        if world.wakes_in().is_some() {
            return assert_eq!(world.wakes_in(), Some(SHORT.as_micros()));
        }
        world.read(client);
    }
    panic!("nobody is waited for");
}

/// Goal: flash that queues is never waited for, nor anybody with `slice_idle` zero. Method: a reader that
/// would be.
#[test]
fn no_wait_without_a_seek_to_save() {
    for (rotational, slice_idle) in [(false, "8ms"), (true, "0s")] {
        let set = [("slice_idle", slice_idle)];
        let mut world = World::with(&crate::TABLE, "none-cfq", &set, |setup| {
            setup.facts.rotational = rotational
        });
        let (lone, other) = (world.usual(), world.usual());
        world.read(lone);
        world.read(other);
        assert_eq!(world.serve(1000), Some(lone));
        assert_eq!((world.wakes_in(), world.serve(1000)), (None, Some(other)));
    }
}

/// Goal: nobody is waited for beyond its slice, by its mean think time. Method: a thinker of 5 ms whose
/// slice has 3 ms left.
#[test]
fn no_wait_beyond_the_slice() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[("slice_sync", "20ms")]);
    let (lone, other) = (world.usual(), world.usual());
    world.habit(lone, 5000, 0);
    world.wait(8000);
    world.read(other);
    assert_eq!(world.serve(1000), Some(other));
    world.wait(8000);
    world.read(lone);
    assert_eq!(world.serve(1000), Some(lone));
    assert_eq!(world.wakes_in(), Some(8000));
    world.read(other);
    world.read(lone);
    assert_eq!(world.serve(17_000), Some(lone));
    assert_eq!((world.wakes_in(), world.serve(1000)), (None, Some(other)));
}

/// Goal: with nobody else there the wait goes by and the slice stays. Method: the same queue goes on after
/// 20 ms without a new slice.
#[test]
fn alone_the_slice_goes_on() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let lone = world.usual();
    world.read(lone);
    assert_eq!(world.serve(1000), Some(lone));
    world.wait(8000);
    assert_eq!((world.dispatch(), world.wakes_in()), (None, None));
    world.wait(12_000);
    world.read(lone);
    world.decisions();
    assert_eq!(world.serve(1000), Some(lone));
    assert!(!world.decided("slice: begins"));
}

/// Goal: early, late and double wake-ups change nothing. Method: asked all the time, and too late.
#[test]
fn wake_ups_are_harmless() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (lone, other) = (world.usual(), world.usual());
    world.read(lone);
    world.read(other);
    assert_eq!(world.serve(1000), Some(lone));
    for _ in 0..7 {
        world.wait(1000);
        assert_eq!((world.dispatch(), world.dispatch()), (None, None));
    }
    world.rig.now += Nanos::from_secs(5);
    assert_eq!(world.serve(1000), Some(other));
}

/// Goal: a removed client is not waited for. Method: it is removed while it is waited for.
#[test]
fn a_removed_client_is_not_waited_for() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (lone, other) = (world.usual(), world.usual());
    world.read(lone);
    world.read(other);
    assert_eq!(world.serve(1000), Some(lone));
    assert_eq!(world.dispatch(), None);
    let (now, client) = (world.rig.now, world.client(lone));
    world.rig.controller.remove_client(now, client).expect("nothing inside");
    assert_eq!(world.serve(1000), Some(other));
}
