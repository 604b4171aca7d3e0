//! Who is waited for, injected and raised.

use std::vec::Vec;

use super::world::{Drive, Job, World};
use iofair_core::id::GroupId;
use iofair_core::priority::{Class, Priority};
use iofair_core::time::Nanos;

const QUIET: &[(&str, &str)] = &[("low_latency", "false")];

fn level(level: u8) -> Priority {
    Priority { class: Class::BestEffort, level }
}

/// Goal: flash that queues is waited on only where sharing is asymmetric: different weights (the
/// smallest spared), classes, groups; 4.18 counts weights of groups, not groups, and spares nobody;
/// 4.20 counts groups.
/// Method: two random readers; who is waited for in the second second.
#[test]
fn only_asymmetric_sharing_waits() {
    let waits = |stack: &str, priorities: [Priority; 2], weights: Option<[u32; 2]>| {
        let mut world = World::new(stack, Drive::flash(), QUIET);
        let groups =
            weights.map(|weights| [world.group("a", weights[0]), world.group("b", weights[1])]);
        let groups = groups.unwrap_or([GroupId::ROOT; 2]);
        for (group, priority) in groups.into_iter().zip(priorities) {
            world.add_to(group, priority, Job::random_read());
        }
        world.run(Nanos::from_secs(1));
        world.decisions();
        world.run(Nanos::from_secs(1));
        world.waited_for()
    };
    let equal = [level(4), level(4)];
    assert_eq!(waits("none-bfq", equal, None), [false, false]);
    assert_eq!(waits("none-bfq", [level(0), level(7)], None), [true, false]);
    assert_eq!(waits("none-bfq-4.18", [level(0), level(7)], None), [true, true]);
    let classes = [Priority { class: Class::RealTime, level: 4 }, level(4)];
    assert!(waits("none-bfq", classes, None)[0]);
    assert_eq!(waits("prop-bfq", equal, Some([100, 100])), [true, true]);
    assert!(waits("prop-bfq-4.20", equal, Some([100, 100])).contains(&true));
    assert_eq!(waits("prop-bfq-4.18", equal, Some([100, 100])), [false, false]);
    assert_eq!(waits("prop-bfq-4.18", equal, Some([100, 300])), [true, true]);
    // Two in one group take turns there, which 4.18 notices.
    let mut world = World::new("prop-bfq-4.18", Drive::flash(), QUIET);
    let group = world.group("both", 100);
    world.add_to(group, level(4), Job::random_read());
    world.add_to(group, level(4), Job::random_read());
    world.run(Nanos::from_secs(1));
    assert_eq!(world.waited_for(), [true, true]);
}

/// Goal: with 6.18 one group with requests leaves sharing symmetric, and the root is a group like others. Method: two random readers, both in a group, both in the root, or one in each.
#[test]
fn the_root_counts_as_a_group_since_6_18() {
    let waits = |stack: &str, in_root: [bool; 2]| {
        let mut world = World::new(stack, Drive::flash(), QUIET);
        let group = world.group("g", 100);
        for in_root in in_root {
            let of = if in_root { GroupId::ROOT } else { group };
            world.add_to(of, level(4), Job::random_read());
        }
        world.run(Nanos::from_secs(1));
        world.decisions();
        world.run(Nanos::from_secs(1));
        world.waited_for()
    };
    // One may be waited for while it is alone.
    assert_ne!(waits("prop-bfq-6.18", [false, false]), [true, true]);
    assert_ne!(waits("prop-bfq-6.18", [true, true]), [true, true]);
    assert_eq!(waits("prop-bfq-6.18", [true, false]), [true, true]);
}

/// Goal: the limit of injection is learned: from nothing to one with the first time taken alone, up
/// while the waited-for request does not notice, down when it does. Method: a drive that slows down
/// with what is injected, by hand.
#[test]
fn the_limit_of_injection_is_learned() {
    let mut world = World::new("prop-bfq", Drive::flash(), QUIET);
    let (a, b) = (world.hand(100), world.hand(100));
    let mut at = 0;
    let mut one = |world: &mut World, micros: u64| {
        at += 8;
        world.read(a, at, 8);
        let dispatch = world.dispatch().expect("a is waited for");
        assert_eq!(dispatch.start.0, at);
        world.wait(Nanos::from_micros(micros));
        // What was injected is completed meanwhile.
        world.complete(dispatch);
    };
    for _ in 0..4 {
        one(&mut world, 100);
        world.wait(Nanos::from_millis(3));
    }
    assert_eq!(world.numbers("inject: limit"), Vec::<[u64; 2]>::new(), "too early to learn");
    one(&mut world, 100);
    assert_eq!(world.numbers("inject: limit"), [[1, 100_000]], "alone it takes 100 us");
    // One at a time may be injected now, and is while a is waited for.
    world.read(b, 1 << 27, 8);
    world.read(b, (1 << 27) + 8, 8);
    let injected = world.dispatch().expect("injected");
    assert!(injected.start.0 >= 1 << 27);
    assert!(world.dispatch().is_none(), "one is the limit");
    one(&mut world, 149);
    assert_eq!(world.numbers("inject: limit"), [[2, 149_000]], "not noticed");
    one(&mut world, 150);
    world.complete(injected);
    assert_eq!(world.numbers("inject: limit"), Vec::<[u64; 2]>::new(), "nothing was injected");
    let injected = world.dispatch().expect("injected");
    one(&mut world, 300);
    assert_eq!(world.numbers("inject: limit"), [[1, 300_000]], "noticed");
    world.complete(injected);
}

/// Goal: 4.18 injects nothing, and so an equal wait is a loss. Method: decisions of two readers.
#[test]
fn stock_does_not_inject() {
    for (stack, injects) in [("prop-bfq", true), ("prop-bfq-4.20", true), ("prop-bfq-4.18", false)]
    {
        let mut world = World::new(stack, Drive::flash(), QUIET);
        world.add(100, Job::random_read());
        world.add(300, Job::random_read());
        world.run(Nanos::from_secs(1));
        assert_eq!(world.count("inject") > 0, injects, "{stack}");
    }
}

/// Goal: three arrivals show a waker only within some time, where that is limited. Method: a, then b 1 ms after a's completion,
/// eight times, with pauses that are short or long.
#[test]
fn arrivals_that_show_a_waker_grow_old() {
    let found = |within: &str, pause: u64| {
        let set = [QUIET, &[("waker_within", within)]].concat();
        let mut world = World::new("prop-bfq", Drive::flash(), &set);
        let (a, b) = (world.hand(100), world.hand(100));
        for i in 0..8 {
            world.read(a, i * 8, 8);
            world.serve(100).expect("sent");
            world.wait(Nanos::from_millis(1));
            world.read(b, 1_000_000 + i * 8, 8);
            world.wait(Nanos::from_millis(pause));
            world.serve(100).expect("a was waited for long enough");
            world.wait(Nanos::from_millis(pause));
            world.dispatch();
        }
        world.count("waker: found")
    };
    assert_eq!([found("0s", 12), found("0s", 600)], [1, 1]);
    assert_eq!([found("1024ms", 12), found("1024ms", 600)], [1, 0]);
}

/// Goal: a client that goes on when another one's request is completed has that one as its waker, whose
/// requests are then let in first. Method: a journal's dance: a, then b 1 ms after a's completion, with a
/// bystander that has requests all the time.
#[test]
fn wakers_are_found_and_injected() {
    let mut world = World::new("prop-bfq", Drive::flash(), QUIET);
    let (a, b, c) = (world.hand(100), world.hand(100), world.hand(100));
    let pause = Nanos::from_millis(12);
    for i in 0..8 {
        world.read(a, i * 8, 8);
        world.serve(100).expect("sent");
        world.wait(Nanos::from_millis(1));
        world.read(b, 1_000_000 + i * 8, 8);
        world.wait(pause);
        world.serve(100).expect("a was waited for long enough");
        world.wait(pause);
        world.dispatch();
    }
    assert_eq!(world.count("waker: found"), 1);
    // B in service and waited for; the bystander's turn would come first, but a goes.
    world.read(b, 500_000, 8);
    world.serve(100).expect("sent");
    assert!(world.wakes_in().is_some(), "b is waited for");
    for i in 0..8 {
        world.read(c, (1 << 27) + i * 8, 256);
    }
    world.read(a, 8 * 100, 8);
    let next = world.serve(100).expect("injected").start.0;
    assert_eq!(next, 800);
    assert_eq!(world.count("inject: waker"), 1);
    // When the waker goes, whoever gets its place is none.
    world.controller.remove_client(world.now, a).expect("it has no request");
    let d = world.hand(100);
    world.read(b, 600_000, 8);
    while world.serve(100).is_some_and(|sent| sent.start.0 != 600_000) {}
    world.read(d, 8 * 200, 8);
    world.dispatch();
    assert_eq!(world.count("inject: waker"), 0);
}

/// Goal: a new client is raised for the time that an interactive start takes on the drive, and goes
/// before busy ones; then no more. Method: three busy readers, then a newcomer.
#[test]
fn newcomers_are_raised_for_a_while() {
    let mut world = World::new("prop-bfq", Drive::flash(), &[]);
    let job = Job { depth: 64, ..Job::sequential_read(0) };
    for i in 0..3 {
        world.add(100, Job { base: i << 26, ..job });
    }
    world.run(Nanos::from_secs(40));
    world.decisions();
    world.take_all();
    let new = world.add(100, Job { length: 8, ..Job::random_read() });
    world.run(Nanos::from_secs(1));
    let raised = world.take(new);
    let started = world.numbers("raise: interactive");
    // The drive does about 1 sector a microsecond: 2.5 s * 33000 / 65536 is below the bound of 3 s.
    assert_eq!(started, [[3_000_000_000, 0]]);
    world.run(Nanos::from_secs(4));
    assert_eq!(world.count("raise: ends"), 1);
    world.take(new);
    world.run(Nanos::from_secs(1));
    let usual = world.take(new);
    assert!(raised > 3 * usual, "{raised} {usual}");
}

/// Goal: the length of the interactive period follows the drive: 3.75 s on flash and 10.5 s on a disk
/// before anything was measured; a great reader loses it by its service. Method: first requests.
#[test]
fn the_interactive_period_depends_on_the_drive() {
    for (drive, nanos) in [(Drive::flash(), 3_750_000_000), (Drive::disk(), 10_500_562_524)] {
        let mut world = World::new("prop-bfq", drive, &[]);
        world.add(100, Job::sequential_read(0));
        world.run(Nanos::from_millis(100));
        let started = world.numbers("raise: interactive");
        assert_eq!(started.len(), 1);
        assert!(started[0][0].abs_diff(nanos) < 2_000_000, "{started:?}");
    }
    let mut world = World::new("prop-bfq", Drive::flash(), &[]);
    world.add(100, Job::sequential_read(0));
    world.run(Nanos::from_secs(1));
    // 60 MB are 0.12 s.
    let ended = world.numbers("raise: ends");
    assert!(ended[0][0] > 120_000 && ended[0][0] < 121_000, "{ended:?}");
}

/// Goal: a client that keeps a slow pace is soft real-time, one that sends as soon as it can is not.
/// Method: 32 KiB every 40 ms against no pause; it is raised anew with each request, so that raising begins once and
/// does not end.
#[test]
fn a_kept_pace_is_soft_real_time() {
    let soft = |think: u64| {
        let mut world = World::new("prop-bfq", Drive::flash(), &[]);
        world.add(100, Job { depth: 16, ..Job::sequential_read(1 << 27) });
        let think = Nanos::from_micros(think);
        let job = Job { length: 64, depth: 1, stride: 64, ..Job::sequential_read(0) };
        world.add(100, Job { think, ..job });
        world.run(Nanos::from_secs(10));
        let begins = world.count("raise: soft real-time");
        world.run(Nanos::from_secs(2));
        (begins, world.count("raise: "))
    };
    assert_eq!(soft(40_000), (1, 0));
    assert_eq!(soft(10), (0, 0));
}

/// Goal: eight clients made in one go are no interactive ones. Method: eight and nine of one group,
/// twenty milliseconds apart, then a straggler.
#[test]
fn a_large_burst_is_not_raised() {
    let mut world = World::new("prop-bfq", Drive::flash(), &[("stable_merge", "false")]);
    let group = world.group("g", 100);
    for i in 0..9 {
        let client = world.hand_in(group, Priority::default());
        world.read(client, i << 20, 8);
        world.serve(100);
        world.wait(Nanos::from_millis(20));
        world.dispatch();
        world.wait(Nanos::from_millis(20));
        let raised = world.count("raise: interactive");
        let expected = usize::from(i < 7);
        assert_eq!(raised, expected, "client {i}");
    }
    world.wait(Nanos::from_millis(181));
    let client = world.hand_in(group, Priority::default());
    world.read(client, 1 << 27, 8);
    assert_eq!(world.count("raise: interactive"), 1, "the burst is over");
}

/// Goal: buffered writes leave tags to others, more so beside raised queues. Method: the table.
#[test]
fn tags_are_kept_for_those_who_wait() {
    use iofair_core::policy::TagClass;
    let limits = |raised: bool| {
        let row = &super::super::ROW;
        let values = iofair_core::params::Values::new(row.parameters, row.overrides);
        let facts = iofair_core::policy::DriveFacts {
            rotational: false,
            depth: 32,
            max_request: iofair_core::unit::Sectors(256),
            capacity: iofair_core::unit::Sectors(1 << 20),
        };
        let build = iofair_core::policy::Build { values: &values, facts: &facts, groups: true };
        let mut bfq = super::super::Bfq::new(&build);
        bfq.raised_for_tags = raised;
        TagClass::ALL.map(|class| (bfq.tags_for(class, 64), bfq.tags_for(class, 2)))
    };
    assert_eq!(limits(false), [(64, 2), (48, 1), (32, 1)]);
    assert_eq!(limits(true), [(64, 2), (24, 1), (12, 1)]);
}
