//! One slot at a time: how it ends, what follows for the next budget, how long an empty queue is
//! waited for.

use std::vec::Vec;

use super::world::{Drive, Job, World};
use iofair_core::id::GroupId;
use iofair_core::priority::{Class, Priority};
use iofair_core::request::Operation;
use iofair_core::time::Nanos;

/// Budgets of 512 to 16,384 sectors, 10,922 at first; no raising.
const FIXED: &[(&str, &str)] = &[("low_latency", "false"), ("max_budget", "16384")];
/// No raising, and no queues merged for good.
const QUIET_FIXED: &[(&str, &str)] = &[("low_latency", "false"), ("stable_merge", "false")];
/// The same, never waiting.
const BUSY: &[(&str, &str)] =
    &[("low_latency", "false"), ("max_budget", "16384"), ("slice_idle", "0s")];

fn world(set: &[(&str, &str)]) -> World {
    World::new("prop-bfq", Drive::flash(), set)
}

/// Goal: an exhausted budget is followed by one four times as large, but at most the largest. Method:
/// a long backlog of 256 sectors each; the sectors of each slot, and its budget.
#[test]
fn exhausted_budgets_grow_fourfold() {
    let mut world = world(&[("low_latency", "false"), ("max_budget", "40000")]);
    let (a, b) = (world.hand(100), world.hand(100));
    for i in 0..200 {
        world.read(a, i * 256, 256);
        world.read(b, (1 << 27) + i * 256, 256);
    }
    while world.serve(100).is_some() {}
    // 42 requests fit into the first budget of 2/3 of 16 Ki, 64 into one of 16 Ki (the given largest
    // one counts only after eleven slots).
    let slots = world.numbers("expire: budget exhausted");
    assert_eq!(slots[..4], [[10_752, 10_922], [10_752, 10_922], [16_384; 2], [16_384; 2]]);
}

/// Goal: a queue waited for in vain gets 4/32 of the largest less each time, down to the smallest.
/// Method: single requests 100 ms apart.
#[test]
fn useless_waits_shrink_budgets() {
    let mut world = world(FIXED);
    let a = world.hand(100);
    for i in 0..9 {
        world.read(a, i * 8, 8);
        world.serve(100).expect("sent at once");
        assert_eq!(world.wakes_in(), Some(Nanos::from_millis(8)));
        world.wait(Nanos::from_millis(8));
        assert!(world.dispatch().is_none());
        assert_eq!(world.wakes_in(), None);
        world.wait(Nanos::from_millis(92));
    }
    let budgets: Vec<_> = world.numbers("expire: too idle").iter().map(|n| n[1]).collect();
    assert_eq!(budgets, [10_922, 8_874, 6_826, 4_778, 2_730, 682, 512, 512, 512]);
}

/// Goal: a queue that is not waited for gets what it used. Method: batches of different size, one
/// too small for the smallest budget.
#[test]
fn an_unwaited_queue_gets_what_it_used() {
    let mut world = world(BUSY);
    let a = world.hand(100);
    for batch in [20, 3, 1, 1] {
        for i in 0..batch {
            world.read(a, i * 256, 256);
        }
        while world.serve(100).is_some() {}
        world.wait(Nanos::from_millis(100));
    }
    let slots = world.numbers("expire: no more requests");
    // The third slot begins with the 768 sectors of the second, the last with the smallest budget.
    assert_eq!(slots, [[5_120, 10_922], [768, 5_120], [256, 768], [256, 512]]);
}

/// Goal: a slot lasts 125 ms, the next budget is twice as large, and a slot that used little is charged
/// the time. Method: two backlogged queues on a drive that takes 10 ms a request.
#[test]
fn slots_time_out() {
    let mut world = world(FIXED);
    let (a, b) = (world.hand(100), world.hand(100));
    for i in 0..60 {
        world.read(a, i * 8, 8);
        world.read(b, (1 << 27) + i * 8, 8);
    }
    let mut order = Vec::new();
    while let Some(dispatch) = world.serve(10_000) {
        order.push(dispatch.start.0 >= 1 << 27);
    }
    let runs: Vec<_> = order.chunk_by(|a, b| a == b).map(<[bool]>::len).collect();
    // 125 ms are over after 130. The end of the first queue is waited for.
    assert_eq!(runs, [13, 13, 13, 13, 13, 13, 13, 13, 8]);
    let slots = world.numbers("expire: budget timeout");
    assert_eq!(slots[..4], [[104, 10_922], [104, 10_922], [104, 16_384], [104, 16_384]]);
}

/// Goal: waiting takes 8 ms, 2 ms for a seeky queue where sharing is symmetric, 20 ms at least for a
/// raised one; 4.18 waits 8 ms for raised ones. Method: one client, its requests near or far apart.
#[test]
fn how_long_a_queue_is_waited_for() {
    let after = |stack: &str, stride: u64, low_latency: &str| {
        let mut world = World::new(stack, Drive::flash(), &[("low_latency", low_latency)]);
        let a = world.hand(100);
        for i in 0..40 {
            world.read(a, i * stride, 8);
            world.serve(100).expect("nobody else is there");
        }
        world.wakes_in().map(Nanos::as_millis)
    };
    assert_eq!(after("none-bfq", 8, "false"), Some(8));
    assert_eq!(after("none-bfq", 100_000, "false"), Some(2));
    assert_eq!(after("prop-bfq", 100_000, "false"), Some(8), "groups are asymmetric");
    assert_eq!(after("none-bfq", 8, "true"), Some(20));
    assert_eq!(after("none-bfq-4.18", 8, "false"), None, "4.18 does not wait for the only queue");
}

/// Goal: a request that comes while its queue is waited for is served at once, before others that
/// wait; after the wait the others go. Method: a light reader with a backlogged competitor.
#[test]
fn a_waited_for_queue_goes_on() {
    let mut world = world(&[("low_latency", "false"), ("injection", "false")]);
    let (a, b) = (world.hand(100), world.hand(100));
    world.read(a, 0, 8);
    for i in 0..10 {
        world.read(b, (1 << 27) + i * 8, 8);
    }
    assert_eq!(world.serve(100).expect("the first").start.0, 0);
    assert!(world.dispatch().is_none(), "waits, though there are others");
    world.wait(Nanos::from_millis(7));
    world.read(a, 8, 8);
    assert_eq!(world.serve(100).expect("it came in time").start.0, 8);
    assert!(world.dispatch().is_none());
    world.wait(Nanos::from_millis(8));
    assert!(world.dispatch().expect("now the others").start.0 >= 1 << 27);
}

/// Goal: strict guarantees mean one request at a time, whatever is queued. Method: ten requests.
#[test]
fn strict_guarantees_serialise() {
    let mut world = world(&[("strict_guarantees", "true"), ("low_latency", "false")]);
    let a = world.hand(100);
    for i in 0..10 {
        world.read(a, i * 8, 8);
    }
    let first = world.dispatch().expect("one");
    assert!(world.dispatch().is_none());
    world.complete(first);
    assert!(world.dispatch().is_some());
}

/// Goal: a queue of higher class, or of a heavier group, does not wait for the end of a slot; in 4.18 it
/// does. Method: a long backlog in service, then an arrival.
#[test]
fn more_important_queues_preempt() {
    let served_next = |stack: &str, weight: u32, class: Class| {
        let mut world = World::new(stack, Drive::flash(), FIXED);
        let a = world.hand(100);
        for i in 0..30 {
            world.read(a, i * 256, 256);
        }
        world.serve(100).expect("a is in service");
        let group = world.group("late", weight);
        let b = world.hand_in(group, Priority { class, level: 4 });
        world.read(b, 1 << 27, 8);
        let next = world.dispatch().expect("there is work").start.0;
        assert!(next >= 1 << 27 || world.count("expire: preempted") == 0);
        next >= 1 << 27
    };
    assert!(served_next("prop-bfq", 500, Class::BestEffort));
    assert!(!served_next("prop-bfq", 50, Class::BestEffort));
    assert!(!served_next("prop-bfq-4.18", 500, Class::BestEffort));
}

/// Goal: beside groups, a queue of the root counts with its own weight, which is 40 at level 4. Method: a long backlog of a
/// client in the root, then a read of a group that is a little heavier or lighter.
#[test]
fn queues_of_the_root_have_their_own_weight() {
    let preempted = |weight: u32| {
        let mut world = World::new("prop-bfq", Drive::flash(), FIXED);
        let a = world.hand_in(GroupId::ROOT, Priority::default());
        for i in 0..30 {
            world.read(a, i * 256, 256);
        }
        world.serve(100).expect("a is in service");
        let b = world.hand(weight);
        world.read(b, 1 << 27, 8);
        world.count("expire: preempted") > 0
    };
    assert!(preempted(41));
    assert!(!preempted(39));
}

/// Goal: a slow slot is charged for its time by the estimate of the peak rate, also in the first eleven slots, in which
/// budgets do not use it. Method: a peak budget of 40,000 sectors (in force only later; until then 16,384), and a queue that
/// reads 8 sectors in 100 of the 125 ms; how long another, of equal weight, is served before it.
#[test]
fn time_is_charged_by_the_estimate_at_once() {
    let sectors = |max_budget: &str| {
        let set = [QUIET_FIXED, &[("max_budget", max_budget)]].concat();
        let mut world = World::new("prop-bfq", Drive::flash(), &set);
        let (a, b) = (world.hand(100), world.hand(100));
        for i in 0..40 {
            world.read(a, i * 100_000, 8);
        }
        for i in 0..1_000 {
            world.read(b, (1 << 27) + i * 256, 256);
        }
        let mut of_b = 0;
        let mut slow = 0;
        // Each of a's takes 25 ms, b's are served in no time.
        for _ in 0..1_000 {
            let dispatch = world.dispatch().expect("there is work");
            let of_a = dispatch.length.0 == 8;
            world.wait(if of_a { Nanos::from_millis(25) } else { Nanos::ZERO });
            world.complete(dispatch);
            slow += u64::from(of_a);
            of_b += u64::from(!of_a) * dispatch.length.0;
            if slow > 5 {
                break;
            }
        }
        of_b
    };
    let (small, large) = (sectors("16384"), sectors("49152"));
    assert!(large > 2 * small, "{small} {large}");
}

/// Goal: whoever comes ends the slot of a queue that is not waited for; until 5.3 it waits. Method: equal clients,
/// one with a long backlog.
#[test]
fn anybody_preempts_a_queue_that_is_not_waited_for() {
    let preempted = |stack: &str| {
        let set = [FIXED, &[("stable_merge", "false")]].concat();
        let mut world = World::new(stack, Drive::flash(), &set);
        let (a, b) = (world.hand(100), world.hand(100));
        for i in 0..30 {
            world.read(a, i * 256, 256);
        }
        world.serve(100).expect("a is in service");
        world.read(b, 1 << 27, 8);
        world.count("expire: preempted")
    };
    assert_eq!(preempted("none-bfq"), 1);
    assert_eq!(preempted("none-bfq-5.3"), 0);
    assert_eq!(preempted("prop-bfq"), 0, "groups are waited for");
}

/// Goal: classes are strict, but the idle class gets a turn now and then. Method: three clients of one
/// group, two seconds.
#[test]
fn classes_are_strict_but_nobody_starves() {
    let mut world = World::new("none-bfq", Drive::flash(), FIXED);
    let add = |world: &mut World, class, base| {
        let job = Job { depth: 4, ..Job::sequential_read(base) };
        world.add_to(GroupId::ROOT, Priority { class, level: 4 }, job)
    };
    let first = add(&mut world, Class::RealTime, 0);
    let usual = add(&mut world, Class::BestEffort, 1 << 26);
    let idle = add(&mut world, Class::Idle, 1 << 27);
    world.run(Nanos::from_secs(4));
    let all = world.take_all();
    assert!(all[first] > 100 * all[usual].max(1), "{all:?}");
    assert!(all[idle] > 0, "{all:?}");
    world.stop(first);
    world.run(Nanos::from_secs(2));
    let all = world.take_all();
    assert!(all[usual] > 50 * all[idle] && all[idle] > 0, "{all:?}");
}

/// Goal: clients of the idle class do not keep the drive from each other: one request a turn. Method: two
/// with a backlog each.
#[test]
fn idle_clients_take_single_turns() {
    let mut world = World::new("none-bfq", Drive::flash(), FIXED);
    let priority = Priority { class: Class::Idle, level: 4 };
    // Of unlike levels, or they would be merged.
    let other = Priority { level: 5, ..priority };
    let clients = [priority, other].map(|priority| world.hand_in(GroupId::ROOT, priority));
    for i in 0..4 {
        for client in clients {
            world.read(client, client.to_bits() * (1 << 27) + i * 8, 8);
        }
    }
    let order: Vec<_> =
        (0..8).map(|_| world.serve(100).expect("a backlog").start.0 >> 27).collect();
    let runs: Vec<_> = order.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
    assert!(runs.len() >= 5, "{order:?}");
    assert!(world.count("expire: budget exhausted") >= 6);
}

/// Goal: where sharing is symmetric, buffered writes are charged three times their length, ten times in
/// 4.18; where it is not, once, but three times in 4.20. Method: a reader and a writer of equal weight.
#[test]
fn buffered_writes_are_charged_more() {
    let ratio = |stack: &str, groups: bool| {
        let mut world = World::new(stack, Drive::flash(), FIXED);
        let reader = Job { depth: 64, ..Job::sequential_read(0) };
        let writer = Job { depth: 64, ..Job::writes(1 << 27) };
        let (reader, writer) = if groups {
            (world.add(100, reader), world.add(100, writer))
        } else {
            let usual = Priority::default();
            let root = GroupId::ROOT;
            (world.add_to(root, usual, reader), world.add_to(root, usual, writer))
        };
        world.run(Nanos::from_secs(1));
        world.take_all();
        world.run(Nanos::from_secs(4));
        world.take(reader) * 100 / world.take(writer)
    };
    assert!((270..330).contains(&ratio("none-bfq", false)), "{}", ratio("none-bfq", false));
    let stock = ratio("none-bfq-4.18", false);
    assert!((900..1100).contains(&stock), "{stock}");
    let groups = ratio("prop-bfq", true);
    assert!((90..115).contains(&groups), "{groups}");
    let always = ratio("prop-bfq-4.20", true);
    assert!((270..330).contains(&always), "{always}");
}

/// Goal: a buffered write is no reason to wait, and goes to a queue of its group. Method: one write,
/// completed.
#[test]
fn buffered_writes_are_not_waited_for() {
    let mut world = world(FIXED);
    let a = world.hand(100);
    world.send_one(a, Operation::Write, 0, 8);
    world.serve(100).expect("sent");
    assert_eq!(world.wakes_in(), None);
    assert_eq!(world.gauge("bfq_busy_queues"), 0);
}

/// Goal: a request that grew old goes before those on the way of the head, but that is looked at only
/// once a slot, after its first request. Method: one far back, many ahead, two slots of 125 ms.
#[test]
fn old_requests_go_first() {
    let mut world = world(&[("low_latency", "false"), ("max_budget", "16384")]);
    let (a, b) = (world.hand(100), world.hand(100));
    world.read(a, 1_000_000, 8);
    let first = world.dispatch().expect("the first of the run");
    world.read(a, 0, 8);
    for i in 1..8 {
        world.read(a, 1_000_000 + i * 8, 8);
    }
    world.read(b, 1 << 27, 8);
    world.complete(first);
    let mut order = Vec::new();
    for _ in 0..6 {
        let dispatch = world.serve(50_000).expect("a backlog");
        order.push(dispatch.start.0);
        if dispatch.start.0 == 1 << 27 {
            world.wait(Nanos::from_millis(8));
        }
    }
    let expected = [1_000_008, 1_000_016, 1_000_024, 1 << 27, 1_000_032, 0];
    assert_eq!(order, expected);
}
