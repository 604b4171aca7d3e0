//! The rules, one by one, by hand.

use std::vec::Vec;

use super::world::World;
use iofair_core::contract::{Contract, Limits};
use iofair_core::id::{ClientId, GroupId};
use iofair_core::priority::{Class, Priority};
use iofair_core::request::{Flags, Operation};
use iofair_core::time::Nanos;

const MS: Nanos = Nanos::from_millis(1);
/// Far from everything else.
const FAR: u64 = 1 << 30;

/// Two groups with a client each.
fn two_groups(stack: &str, set: &[(&str, &str)]) -> (World, [ClientId; 2]) {
    let mut world = World::new(stack, set);
    let groups = [world.group("a", 100), world.group("b", 100)];
    let clients = groups.map(|group| world.client(group));
    (world, clients)
}

fn rules(decisions: Vec<(&'static str, u64)>) -> Vec<&'static str> {
    decisions.into_iter().map(|(rule, _)| rule).collect()
}

/// Goal: without groups there is one queue, and the leaf alone decides. Method: arrival order across
/// clients of two groups.
#[test]
fn flat_mode_is_the_leaf() {
    let (mut world, [a, b]) = two_groups("none-fair-noop", &[]);
    for (client, start) in [(a, 500), (b, 100), (a, 300), (b, 700)] {
        world.read(client, start);
    }
    let served: Vec<_> = (0..4).map(|_| world.serve(1)).collect();
    assert_eq!(served, [Some(500), Some(100), Some(300), Some(700)]);
    assert_eq!(world.wakes_in(), None);
}

/// Goal: each group has its own queue, and the drive is one queue's for a turn. Method: the same.
#[test]
fn groups_take_turns() {
    let (mut world, [a, b]) = two_groups("prop-fair-noop", &[("group_idle", "0s")]);
    for (client, start) in [(a, 500), (b, 100), (a, 300), (b, 700)] {
        world.read(client, start);
    }
    let served: Vec<_> = (0..4).map(|_| world.serve(1)).collect();
    assert_eq!(served, [Some(500), Some(300), Some(100), Some(700)]);
}

/// Goal: a group that would leave the tree is waited for, `group_idle` long (patch of 28 August 2009).
/// Method: its next request in time, then too late; then with `group_idle` 0.
#[test]
fn an_emptying_group_is_waited_for() {
    let (mut world, [a, b]) = two_groups("prop-fair-noop", &[]);
    world.read(a, 0);
    world.read(b, FAR);
    assert_eq!(world.serve(1), Some(0));
    assert!(world.dispatch().is_none());
    assert_eq!(world.wakes_in(), Some(MS * 8));
    world.wait(MS * 3);
    world.read(a, 8);
    assert_eq!(world.serve(1), Some(8));
    world.wait(MS * 8);
    assert_eq!(world.serve(1), Some(FAR));
    assert_eq!(rules(world.decisions("wait")), ["wait: group"; 3]);

    let (mut world, [a, b]) = two_groups("prop-fair-noop", &[("group_idle", "0s")]);
    world.read(a, 0);
    world.read(b, FAR);
    assert_eq!(world.serve(1), Some(0));
    assert_eq!(world.serve(1), Some(FAR));
}

/// Goal: no scheduler idles after a request whose sender says that nothing follows, but the last queue of a group
/// keeps its group's place. Method: such a request of one client in a group, of one of two, and in the root.
#[test]
fn the_no_idle_flag_prevents_idling_except_for_the_group() {
    let completion = |world: &mut World, client, waits: &[&str]| {
        world.submit(client, (0, 0), Operation::Read, Flags::NO_MERGE.with(Flags::NO_IDLE));
        assert_eq!(world.serve(1), Some(0));
        assert_eq!(rules(world.decisions("wait")), waits);
    };
    let (mut world, [a, _]) = two_groups("prop-fair-cfq", &[]);
    completion(&mut world, a, &["wait: queue"]);
    let mut world = World::new("prop-fair-cfq", &[]);
    let group = world.group("a", 100);
    let (a, beside) = (world.client(group), world.client(group));
    world.submit(a, (0, 0), Operation::Read, Flags::NO_MERGE.with(Flags::NO_IDLE));
    world.read(beside, FAR);
    assert_eq!((world.serve(1), world.serve(1)), (Some(0), Some(FAR)));
    let (mut world, _) = two_groups("prop-fair-cfq", &[]);
    let root = world.client(GroupId::ROOT);
    completion(&mut world, root, &[]);
}

/// Goal: tasks in the root are in no group that could leave. Method: one reads, nobody waits.
#[test]
fn the_root_is_not_waited_for() {
    let (mut world, [_, b]) = two_groups("prop-fair-noop", &[]);
    let root = world.client(GroupId::ROOT);
    world.read(root, 0);
    world.read(b, FAR);
    assert_eq!(world.serve(1), Some(0));
    assert_eq!(world.serve(1), Some(FAR));
}

/// Goal: a group whose slice is over is kept for one more idle period, so that it keeps its place; its
/// request then waits for its next turn. Method: a stream of 100 ms beside a request of another group.
#[test]
fn a_used_slice_waits_until_busy() {
    let (mut world, [a, b]) = two_groups("prop-fair-noop", &[]);
    world.read(a, 0);
    assert_eq!(world.serve(1), Some(0));
    world.read(b, FAR);
    world.stream(a, 8, 100);
    assert_eq!(rules(world.decisions("wait")).last(), Some(&"wait: busy"));
    assert!(world.dispatch().is_none());
    assert_eq!(world.wakes_in(), Some(MS * 8));
    world.read(a, 1000);
    assert_eq!(world.serve(1), Some(FAR));
    assert_eq!(world.decisions("expire"), [("expire: busy again, slice used", 100_000_000)]);
}

/// Goal: while anything is left of the slice the next request goes out; if the slice ends while that is
/// waited for, the group is kept all the same. Method: a stream that leaves 1 ms, and a request at once or
/// after 3 ms, beside one of another group.
#[test]
fn a_slice_may_end_while_a_request_is_waited_for() {
    for pause in [0, 3] {
        let (mut world, [a, b]) = two_groups("prop-fair-noop", &[]);
        world.read(a, 0);
        assert_eq!(world.serve(1), Some(0));
        world.read(b, FAR);
        world.stream(a, 8, 99);
        assert_eq!(rules(world.decisions("wait")).last(), Some(&"wait: group"));
        world.wait(MS * pause);
        assert!(world.dispatch().is_none());
        world.read(a, 1000);
        assert_eq!(world.serve(1), Some(if pause == 0 { 1000 } else { FAR }));
    }
}

/// Goal: a sequential reader's queue is waited for like that with `group_idle` 0 as well, a seeky one is
/// not. Method: both, a queue a client.
#[test]
fn sequential_queues_wait_busy_without_group_idle() {
    let (mut world, [a, b]) = two_groups("prop-fair-cfq", &[("group_idle", "0s")]);
    world.read(a, 0);
    assert_eq!(world.serve(1), Some(0));
    world.read(b, FAR);
    world.stream(a, 8, 100);
    assert_eq!(rules(world.decisions("wait")).last(), Some(&"wait: busy"));
    world.read(a, 1000);
    assert_eq!(world.serve(1), Some(FAR));

    let (mut world, [a, _]) = two_groups("prop-fair-cfq", &[("group_idle", "0s")]);
    for number in 0..20 {
        world.read(a, number << 24);
        assert_eq!(world.serve(5), Some(number << 24));
    }
    world.decisions("");
    world.read(a, FAR);
    assert_eq!(world.serve(1), Some(FAR));
    assert_eq!(rules(world.decisions("wait")), [""; 0]);
}

/// Goal: a turn costs the time from its first completion, at most the slice; with `fairness` all of it, and
/// at least a tick. Method: a second request that takes 500 ms.
#[test]
fn a_turn_costs_at_most_its_slice() {
    for (fairness, cost) in [("false", 100), ("true", 508)] {
        let (mut world, [a, _]) = two_groups("prop-fair-noop", &[("fairness", fairness)]);
        world.read(a, 0);
        world.read(a, FAR);
        assert_eq!((world.serve(1), world.serve(500)), (Some(0), Some(FAR)));
        assert!(world.dispatch().is_none());
        world.wait(MS * 8);
        assert!(world.dispatch().is_none());
        assert_eq!(world.decisions("expire"), [("expire: waited in vain", cost * MS.0)]);
    }
}

/// Goal: with `fairness` the next queue starts when the drive has completed everything, and what it still
/// did is charged. Method: a request left at the drive for 50 ms over the end of a turn of 5 ms.
#[test]
fn fairness_lets_the_drive_finish() {
    for (fairness, overlaps, cost) in [("false", true, 5), ("true", false, 55)] {
        let set = [("fairness", fairness), ("group_idle", "0s"), ("slice_sync", "5ms")];
        let (mut world, [a, b]) = two_groups("prop-fair-noop", &set);
        for start in [0, 8, 16] {
            world.read(a, start);
        }
        world.read(b, FAR);
        let [first, second] = [0, 1].map(|_| world.dispatch().expect("two at once"));
        world.wait(MS);
        world.complete(first);
        world.wait(MS * 5);
        // The slice is over; the third request is left for another turn.
        assert_eq!(world.dispatch().is_some(), overlaps);
        world.wait(MS * 50);
        world.complete(second);
        assert!(world.dispatch().is_some());
        assert_eq!(world.decisions("expire")[0].1, cost * MS.0);
    }
}

/// Goal: a slice is 100 ms for reads and 40 ms for buffered writes at level 4, a fifth more or less for
/// each level: 180 ms at most. Method: what turns begin with.
#[test]
fn slices_follow_the_level() {
    for (level, slices) in [(0, [180, 72]), (4, [100, 40]), (7, [40, 16])] {
        let mut world = World::new("prop-fair-cfq", &[("group_idle", "0s")]);
        let group = world.group("a", 100);
        let priority = Priority { class: Class::BestEffort, level };
        let client = world.client_of(group, priority);
        world.read(client, 0);
        world.serve(1);
        world.wait(MS * 8);
        world.write(client, FAR);
        world.serve(1);
        let begun = world.decisions("turn").into_iter().map(|(_, slice)| slice / MS.0);
        assert_eq!(begun.collect::<Vec<_>>(), slices, "{level}");
    }
}

/// Goal: a reader takes the drive from a writer of its group. Method: a read while writes go out.
#[test]
fn a_reader_preempts_a_writer_of_its_group() {
    let mut world = World::new("prop-fair-cfq", &[]);
    let group = world.group("a", 100);
    let [writer, reader] = [(); 2].map(|()| world.client(group));
    for number in 0..4 {
        world.write(writer, number * 1000);
    }
    assert_eq!(world.serve(1), Some(0));
    world.read(reader, FAR);
    assert_eq!(world.serve(1), Some(FAR));
    assert_eq!(rules(world.decisions("preempt")), ["preempt: reader over writer"]);
}

/// Goal: a preempting queue goes before all others of its group. Method: a read of metadata takes the drive from a
/// reader while another one waits.
#[test]
fn a_preempting_request_is_next() {
    let mut world = World::new("prop-fair-cfq", &[]);
    let group = world.group("a", 100);
    let [active, waiting, metadata] = [(); 3].map(|()| world.client(group));
    world.read(active, 0);
    world.read(active, 8);
    world.read(waiting, 1000);
    assert_eq!(world.serve(1), Some(0));
    world.read_metadata(metadata, FAR);
    assert_eq!(world.serve(1), Some(FAR));
}

/// Goal: late preemption: a reader that became backlogged while its group was not served goes before the
/// writers of the group that came earlier. Method: both come during another group's turn.
#[test]
fn a_late_reader_goes_before_writers() {
    let mut world = World::new("prop-fair-cfq", &[("group_idle", "0s"), ("slice_idle", "0s")]);
    let groups = [world.group("a", 100), world.group("b", 100)];
    let (other, writer, reader) =
        (world.client(groups[0]), world.client(groups[1]), world.client(groups[1]));
    world.read(other, 0);
    let served = world.dispatch().expect("nobody else");
    world.write(writer, 1000);
    world.read(reader, FAR);
    world.complete(served);
    assert_eq!((world.serve(1), world.serve(1)), (Some(FAR), Some(1000)));
    assert!(rules(world.decisions("preempt")).is_empty());
}

/// Goal: a reader preempts a writer of a sibling group, unless its own group has had more than its share.
/// Method: a group that is new, and one of weight 1 that has just streamed for a slice.
#[test]
fn a_reader_preempts_writers_of_sibling_groups() {
    for streamed in [false, true] {
        let (mut world, [writer, reader]) = two_groups("prop-fair-cfq", &[("group_idle", "1ms")]);
        let group = world.controller.groups().find("b").expect("made");
        let contract = Contract { weight: 1, ..Contract::default() };
        world.controller.update_group(world.now, group, contract).expect("there");
        world.write(writer, 0);
        assert_eq!(world.serve(1), Some(0));
        if streamed {
            world.wait(MS * 8);
            world.stream(reader, 0, 50);
            world.write(writer, 8);
            world.wait(MS * 8);
            assert_eq!(world.serve(1), Some(8));
        }
        world.write(writer, 1000);
        world.write(writer, 2000);
        assert_eq!(world.serve(1), Some(1000));
        world.decisions("");
        world.read(reader, FAR);
        assert_eq!(world.serve(1), Some(if streamed { 2000 } else { FAR }));
        let preempted = rules(world.decisions("preempt"));
        assert_eq!(preempted.is_empty(), streamed, "{preempted:?}");
    }
}

/// Goal: a read of metadata takes the drive from another read, in a sibling group too; a plain read does
/// not. Method: both against a reader with two requests.
#[test]
fn metadata_preempts_other_readers() {
    for metadata in [false, true] {
        let (mut world, [a, b]) = two_groups("prop-fair-cfq", &[]);
        for start in [0, 8, 16] {
            world.read(a, start);
        }
        assert_eq!(world.serve(1), Some(0));
        if metadata {
            world.read_metadata(b, FAR);
        } else {
            world.read(b, FAR);
        }
        assert_eq!(world.serve(1), Some(if metadata { FAR } else { 8 }));
    }
}

/// Goal: a group of class realtime takes the drive at once, one of class idle never. Method: both beside
/// a stream.
#[test]
fn classes_preempt() {
    for (class, next) in [(Class::RealTime, FAR), (Class::Idle, 8)] {
        let (mut world, [a, _]) = two_groups("prop-fair-noop", &[]);
        let group = world.group_of("c", 1, class);
        let client = world.client(group);
        world.read(a, 0);
        world.read(a, 8);
        assert_eq!(world.serve(1), Some(0));
        world.read(client, FAR);
        assert_eq!(world.serve(1), Some(next), "{class:?}");
    }
}

/// Goal: anticipatory says that it anticipates, and is not expired meanwhile, not even at the end of
/// its slice. Method: two processes of a group, one of which is waited for; then slices of 3 ms.
#[test]
fn an_anticipating_queue_is_not_expired() {
    for (slice, expired) in [("100ms", 0), ("3ms", 1)] {
        let set = [("group_idle", "0s"), ("slice_sync", slice)];
        let mut world = World::new("prop-fair-anticipatory", &set);
        let groups = [world.group("a", 100), world.group("b", 100)];
        let [near, far] = [(); 2].map(|()| world.client(groups[0]));
        let other = world.client(groups[1]);
        world.read(near, 0);
        world.read(far, FAR);
        world.read(other, 2 * FAR);
        assert_eq!(world.serve(1), Some(0));
        assert!(world.dispatch().is_none(), "it waits for the near one");
        world.wait(MS * 4);
        // Something happens, so that the layer looks again.
        world.read(other, 3 * FAR);
        assert!(world.dispatch().is_none());
        assert!(rules(world.decisions("expire")).is_empty());
        world.read(near, 8);
        let next = world.serve(1);
        assert_eq!(next, Some(if expired == 0 { 8 } else { 2 * FAR }));
        assert_eq!(rules(world.decisions("expire: slice")).len(), expired);
    }
}

/// Goal: buffered writes belong to the group that wrote, or to the root. Method: after one the group is
/// waited for, or the root is not.
#[test]
fn buffered_writes_belong_to_their_group_or_the_root() {
    for (in_root, waits) in [("false", 1), ("true", 0)] {
        let (mut world, [a, _]) = two_groups("prop-fair-noop", &[("async_in_root", in_root)]);
        world.write(a, 0);
        assert_eq!(world.serve(1), Some(0));
        assert_eq!(world.decisions("wait").len(), waits);
    }
}

/// Goal: a client that moves to another group gets another queue; what it sent before is served where it
/// was. Method: one request before the move and one after, in a group and one of class idle.
#[test]
fn a_client_moves_between_groups() {
    let (mut world, [a, b]) =
        two_groups("prop-fair-cfq", &[("group_idle", "0s"), ("slice_idle", "0s")]);
    let idle = world.group_of("c", 100, Class::Idle);
    world.read(a, 0);
    let moved = world.controller.update_client(world.now, a, idle, Priority::default());
    moved.expect("the group is there");
    world.read(a, 8);
    world.read(b, FAR);
    let served: Vec<_> = (0..3).map(|_| world.serve(1)).collect();
    assert_eq!(served, [Some(0), Some(FAR), Some(8)]);
}

/// Goal: what a throttle still held when its client moved is served in the group that sent it, and no queue
/// outlives its group. Method: a request held back over two moves; the group in between is removed.
#[test]
fn a_late_request_belongs_to_the_group_that_sent_it() {
    let mut world = World::new("max+prop-fair-cfq", &[("group_idle", "0s"), ("slice_idle", "0s")]);
    let slow = Limits { iops: [Some(10), None], ..Limits::default() };
    let groups = ["a", "b", "c"].map(|path| world.group(path, 100));
    let contract = Contract { max: slow, ..Contract::default() };
    world.controller.update_group(world.now, groups[0], contract).expect("there");
    let client = world.client(groups[0]);
    let other = world.client(groups[2]);
    (0..4).for_each(|number| world.read(client, number * 1000));
    let move_to = |world: &mut World, group| {
        let moved = world.controller.update_client(world.now, client, group, Priority::default());
        moved.expect("the group is there");
    };
    move_to(&mut world, groups[1]);
    let mut served = 0;
    while served < 3 {
        match world.serve(1) {
            Some(_) => served += 1,
            None => world.wait(world.wakes_in().expect("the throttle holds one")),
        }
    }
    world.read(other, FAR);
    assert_eq!(world.serve(1), Some(FAR));
    world.wait(world.wakes_in().expect("the throttle holds one"));
    world.read(other, FAR);
    let last = world.dispatch().expect("two wait");
    move_to(&mut world, groups[2]);
    world.controller.remove_group(world.now, groups[1]).expect("it holds nothing");
    world.complete(last);
    assert!(world.serve(1).is_some());
    assert_eq!(world.controller.pending(), 0);
    world.controller.remove_group(world.now, groups[0]).expect("it holds nothing");
}
