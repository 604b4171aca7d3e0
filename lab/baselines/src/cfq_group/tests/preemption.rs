//! Who may end another queue's slice: within a group many, across groups few.

use iofair_core::priority::Class;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::apart::World;

/// A queue of group `active` has ten requests and one completion; then one of group `sender` sends.
fn against(
    paths: (&str, &str),
    active: (Class, Operation),
    sender: (Class, Operation, Flags),
) -> Option<&'static str> {
    let mut world = World::new(&crate::TABLE, "prop-cfq-group", &[]);
    let first = world.group(paths.0, 100);
    let second = match world.rig.controller.groups().find(paths.1) {
        Some(group) => group,
        None => world.group(paths.1, 100),
    };
    let (one, other) = (world.add_to(first, active.0, 4), world.add_to(second, sender.0, 4));
    (0..10).for_each(|_| world.send(one, active.1, Flags::NONE));
    assert_eq!(world.serve(1000), Some(one));
    world.decisions();
    world.send(other, sender.1, sender.2);
    let mut rules = world.decisions().into_iter().map(|(rule, _)| rule);
    rules.rfind(|rule| rule.starts_with("preempt"))
}

/// Goal: groups are not disturbed by each other, but by those above them, and writes by any read. Method:
/// the same request from the same group, the parent, a child and a stranger.
#[test]
fn only_groups_above_preempt() {
    use Class::{BestEffort, RealTime};
    use Operation::{Read, Write};
    let (meta, none) = (Flags::METADATA, Flags::NONE);
    let metadata = Some("preempt: metadata");
    let real_time = Some("preempt: real time");
    for (sender, allowed) in [("a/b", true), ("a", true), ("a/b/c", false), ("x", false)] {
        let check = |active, sending, rule: Option<&str>| {
            let expected = rule.filter(|_| allowed);
            assert_eq!(against(("a/b", sender), active, sending), expected, "{sender}");
        };
        check((BestEffort, Read), (BestEffort, Read, meta), metadata);
        check((BestEffort, Read), (RealTime, Read, none), real_time);
        check((BestEffort, Read), (BestEffort, Read, none), None);
        let over = against(("a/b", sender), (BestEffort, Write), (BestEffort, Read, none));
        assert_eq!(over, Some("preempt: synchronous over buffered writes"), "{sender}");
    }
}

/// Goal: nothing but real time preempts real time, and nobody is preempted by the idle class. Method: one
/// group.
#[test]
fn classes_limit_preemption() {
    use Class::{BestEffort, Idle, RealTime};
    use Operation::{Read, Write};
    let one = ("a", "a");
    assert_eq!(against(one, (RealTime, Read), (BestEffort, Read, Flags::METADATA)), None);
    assert_eq!(against(one, (RealTime, Write), (BestEffort, Read, Flags::NONE)), None);
    assert_eq!(against(one, (BestEffort, Write), (Idle, Read, Flags::NONE)), None);
}
