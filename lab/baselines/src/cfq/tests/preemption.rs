//! Who may end another queue's slice.

use iofair_core::priority::Class;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::apart::World;

/// The active queue has ten reads and one completion, and its slice is not over; then another one sends.
fn against(active: (Class, Operation), sender: (Class, Operation, Flags)) -> Option<&'static str> {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (one, other) = (world.add(active.0, 4), world.add(sender.0, 4));
    (0..10).for_each(|_| world.send(one, active.1, Flags::NONE));
    assert_eq!(world.serve(1000), Some(one));
    world.decisions();
    world.send(other, sender.1, sender.2);
    let rule = world.decisions().into_iter().find(|(rule, _)| rule.starts_with("preempt"));
    let served = world.serve(1000);
    assert_eq!(served == Some(other), rule.is_some());
    rule.map(|(rule, _)| rule)
}

/// Goal: the published rules, each with a neighbour that it does not cover. Method: a queue with a slice,
/// and a request of another.
#[test]
fn rules_of_preemption() {
    use Class::{BestEffort, Idle, RealTime};
    use Operation::{Read, Write};
    let none = Flags::NONE;
    let check = |active, sender, expected: Option<&str>| {
        assert_eq!(against(active, sender), expected, "{active:?} {sender:?}");
    };
    check((BestEffort, Read), (BestEffort, Read, none), None);
    check((BestEffort, Read), (Idle, Read, none), None);
    check((BestEffort, Read), (BestEffort, Read, Flags::METADATA), Some("preempt: metadata"));
    check((BestEffort, Read), (RealTime, Read, none), Some("preempt: real time"));
    check((RealTime, Read), (RealTime, Read, none), None);
    let over_writes = Some("preempt: synchronous over buffered writes");
    check((BestEffort, Write), (BestEffort, Read, none), over_writes);
    check((BestEffort, Write), (BestEffort, Write, none), None);
}

/// Goal: a queue of the idle class gives way to any other. Method: two of its requests, then a read of
/// another class; and one of its own, which waits.
#[test]
fn idle_class_gives_way() {
    for (class, expected) in [(Class::BestEffort, true), (Class::Idle, false)] {
        let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
        let (idle, other) = (world.add(Class::Idle, 4), world.add(class, 4));
        world.reads(idle, 3);
        let (_, id) = world.dispatch().expect("free");
        world.decisions();
        world.read(other);
        assert_eq!(world.decided("preempt: the active queue is of the idle class"), expected);
        world.rig.complete(id);
    }
}

/// Goal: metadata does not preempt where the active queue has some too. Method: both send it.
#[test]
fn metadata_does_not_preempt_metadata() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (one, other) = (world.usual(), world.usual());
    world.reads(one, 2);
    assert_eq!(world.serve(1000), Some(one));
    world.send(one, Operation::Read, Flags::METADATA);
    world.decisions();
    world.send(other, Operation::Read, Flags::METADATA);
    assert!(!world.decided("preempt: metadata"));
}

/// Goal: a slice that is over is no protection. Method: an arrival 101 ms into it.
#[test]
fn a_used_slice_is_preempted() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (one, other) = (world.usual(), world.usual());
    world.reads(one, 10);
    assert_eq!(world.serve(1000), Some(one));
    world.wait(100_000);
    world.decisions();
    world.read(other);
    assert!(world.decided("preempt: the active slice is over"));
    assert_eq!(world.serve(1000), Some(other));
}

/// Goal: during a wait a request near the head is as good as the one that is waited for. Method: 8192
/// sectors from the head, and one more.
#[test]
fn a_close_request_ends_a_wait() {
    for (distance, expected) in [(8192, true), (8193, false)] {
        let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
        let (one, other) = (world.usual(), world.usual());
        world.read(one);
        assert_eq!(world.serve(1000), Some(one));
        assert_eq!(world.wakes_in(), Some(8000));
        world.seek(other, 8 + distance);
        world.read(other);
        assert_eq!(world.decided("preempt: close to what is waited for"), expected);
    }
}

/// Goal: the preempted queue keeps what was left: it comes before one that had no turn yet. Method: three
/// queues; the first is preempted after a millisecond of its 100.
#[test]
fn preempted_keep_the_rest() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[("fifo_expire_sync", "1m")]);
    let (one, two) = (world.usual(), world.usual());
    let urgent = world.add(Class::RealTime, 4);
    world.reads(one, 10);
    assert_eq!(world.serve(1000), Some(one));
    world.reads(two, 10);
    world.wait(1000);
    world.read(urgent);
    assert_eq!(world.serve(1000), Some(urgent));
    world.wait(8000);
    assert_eq!(world.serve(1000), Some(one));
}
