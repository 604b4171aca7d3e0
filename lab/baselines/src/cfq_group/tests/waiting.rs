//! Waiting for a queue, for the last of a workload, for a group; and how deep the drive is filled.

use iofair_core::testing::apart::World;

const STACK: &str = "prop-cfq-group";

/// Goal: the last queue of a group is waited for `group_idle` where queues are not. Method: `slice_idle`
/// zero, one client in the group and then two.
#[test]
fn the_last_queue_of_a_group_is_waited_for() {
    for (clients, wait) in [(1, Some(8000)), (2, None)] {
        let mut world = World::new(&crate::TABLE, STACK, &[("slice_idle", "0s")]);
        let (group, other) = (world.group("g", 100), world.group("h", 100));
        (0..clients).for_each(|_| assert!(world.usual_in(group) < 6));
        let outsider = world.usual_in(other);
        (0..clients).for_each(|client| world.read(client));
        world.reads(outsider, 4);
        let (first, id) = world.dispatch().expect("free");
        assert_eq!(first, 0);
        world.wait(1000);
        world.rig.complete(id);
        assert_eq!(world.wakes_in(), wait, "{clients}");
    }
}

/// Goal: without `group_idle` nor `slice_idle` nobody is waited for. Method: as above.
#[test]
fn waiting_can_be_switched_off() {
    let mut world = World::new(&crate::TABLE, STACK, &[("slice_idle", "0s"), ("group_idle", "0s")]);
    let (one, other) = (world.usual(), world.usual());
    world.read(one);
    world.read(other);
    assert_eq!(world.serve(1000), Some(one));
    assert_eq!((world.wakes_in(), world.serve(1000)), (None, Some(other)));
}

/// Goal: seeky queues are not waited for one by one, but the last of them is. Method: two seeky clients of
/// one group beside another group; only when the second runs empty is there a wait.
#[test]
fn seeky_queues_are_waited_for_together() {
    let mut world = World::new(&crate::TABLE, STACK, &[]);
    let (group, other) = (world.group("g", 100), world.group("h", 100));
    let (one, two) = (world.usual_in(group), world.usual_in(group));
    let outsider = world.usual_in(other);
    for client in [one, two] {
        world.habit(client, 100, 100_000);
        world.habit(client, 100, 100_000);
        world.wait(8000);
        assert_eq!(world.dispatch(), None);
    }
    world.read(one);
    world.read(two);
    assert_eq!(world.serve(1000), Some(one));
    assert_eq!(world.wakes_in(), None);
    assert_eq!(world.serve(1000), Some(two));
    world.reads(outsider, 4);
    assert_eq!((world.wakes_in(), world.dispatch()), (Some(8000), None));
    // While the last one is waited for, another one of its kind is as welcome.
    world.decisions();
    world.read(one);
    assert!(world.decided("preempt: another queue not waited for"));
}

/// Goal: a slice that is over is extended for the last queue of a group, so that the group keeps its place;
/// what comes is the next turn's. Method: a reader, one at a time, past its 100 ms.
#[test]
fn wait_busy_keeps_the_place() {
    let mut world = World::new(&crate::TABLE, STACK, &[]);
    let (one, other) = (world.usual(), world.usual());
    world.reads(other, 4);
    world.read(one);
    assert_eq!(world.serve(10), Some(other));
    world.runs(3, 10);
    world.wait(8000);
    assert_eq!(world.serve(1000), Some(one));
    for _ in 0..20 {
        world.read(one);
        assert_eq!(world.serve(5000), Some(one));
        assert_eq!(world.wakes_in(), Some(8000));
    }
    world.reads(other, 4);
    world.decisions();
    assert_eq!(world.dispatch(), None);
    world.read(one);
    assert_eq!(world.serve(10), Some(other));
    assert!(world.decided("slice: over, and the group stays"));
}

/// Goal: a group that thinks long is not waited for. Method: a client whose requests come 12 ms apart.
#[test]
fn long_thinking_groups_are_not_waited_for() {
    let mut world = World::new(&crate::TABLE, STACK, &[]);
    let (one, other) = (world.usual(), world.usual());
    world.habit(one, 14_000, 0);
    world.habit(one, 14_000, 0);
    world.read(one);
    world.read(other);
    assert_eq!(world.serve(1000), Some(one));
    assert_eq!(world.wakes_in(), None);
    assert_eq!(world.serve(1000), Some(other));
}

/// Goal: the drive has half of `quantum` of a queue whose slice is about to end or has not begun, all of it
/// in between, and any number of the only queue. Method: bursts.
#[test]
fn depth_follows_the_slice() {
    let mut world = World::new(&crate::TABLE, STACK, &[]);
    let one = world.usual();
    world.reads(one, 40);
    assert_eq!(world.burst().len(), 32);

    let mut world = World::new(&crate::TABLE, STACK, &[]);
    let (one, other) = (world.usual(), world.usual());
    [one, other].into_iter().for_each(|client| world.reads(client, 40));
    let first = world.burst();
    assert_eq!(first.len(), 4);
    world.wait(1000);
    world.rig.complete(first[0].1);
    assert_eq!(world.burst().len(), 5, "three are there, and eight may be");
    world.wait(60_000);
    world.rig.complete(first[1].1);
    assert_eq!(world.burst().len(), 0, "seven more would take 56 ms, and 39 are left");
}
