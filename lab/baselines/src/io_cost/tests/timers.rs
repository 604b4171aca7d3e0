//! Timers of waiting groups: those that expire after the next period's end are not in the tree until then.

use std::vec::Vec;

use super::super::model::{scale, scale_up};
use super::world::{MS, Work, World, near};

/// Goal: a request that waits for many periods is dispatched when its group has the budget. Method: 1000 reads a second,
/// shared 1 : 99 with a group that always has requests waiting: the light one gets ten a second, one each 100 ms, a period; at
/// 1 : 999 one each second, ten periods.
#[test]
fn waiting_for_many_periods_ends_in_time() {
    for (heavy, a_minute) in [(99, 600), (999, 60)] {
        let mut world = World::fixed();
        world.client("light", 1, Work::Deep(4));
        world.client("heavy", heavy, Work::Deep(64));
        world.run(MS * 5000);
        let done: Vec<u64> = (0..6).map(|_| world.run(MS * 10_000)[0]).collect();
        let all: u64 = done.iter().sum();
        assert!(near(all, a_minute, 5), "{heavy}: {done:?}");
        assert!(done.iter().all(|done| done.abs_diff(a_minute / 6) <= 2), "{heavy}: {done:?}");
    }
}

/// Goal: while periods pause, the timers of all waiting groups count. Method: periods of 2 ms on a drive of 16 reads a second,
/// so that each request waits for many periods in which nothing else happens; two equal groups.
#[test]
fn timers_count_while_periods_pause() {
    let mut world = World::new(&[
        ("rrandiops", "16"),
        ("rseqiops", "16"),
        ("rbps", "1MiB/s"),
        ("rlat", "1ms"),
        ("wlat", "1ms"),
        ("min", "100"),
        ("max", "100"),
    ]);
    world.client("a", 100, Work::Deep(2));
    world.client("b", 100, Work::Deep(2));
    world.run(MS * 1000);
    let (mut wakeups, end) = (0, world.now + MS * 10_000);
    let before: Vec<u64> = world.clients.iter().map(|client| client.done).collect();
    while world.now < end {
        let next = world.controller.next_wakeup().expect("requests wait");
        world.run(next.since(world.now));
        wakeups += 1;
    }
    let done: Vec<u64> =
        world.clients.iter().zip(before).map(|(c, before)| c.done - before).collect();
    assert!(done.iter().all(|done| near(*done, 80, 5)), "{done:?}");
    // The periods go on for a while after each request, but not all of the time.
    assert!(wakeups < 2500, "{wakeups} wake-ups, of 5000 periods");
}

/// Goal: 64 bits where they suffice give what 128 bits give. Method: values around the limit, against the formula.
#[test]
fn products_beyond_64_bits_are_exact() {
    let values =
        [0, 1, 65_535, 65_536, (1 << 47) - 1, 1 << 47, 1 << 48, (1 << 62) + 12_345, u64::MAX];
    for value in values {
        for (times, parts) in [(65_536, 1), (65_536, 65_535), (1_000, 137_438), (u64::MAX, 3)] {
            let product = u128::from(value) * u128::from(times);
            let (down, up) = (product / u128::from(parts), product.div_ceil(u128::from(parts)));
            assert_eq!(scale(value, times, parts), down, "{value} {times} {parts}");
            assert_eq!(scale_up(value, times, parts), up, "{value} {times} {parts}");
        }
    }
}
