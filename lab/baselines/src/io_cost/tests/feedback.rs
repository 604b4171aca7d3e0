//! What the drive's completions do to the clock.

use super::world::{MS, Work, World};
use iofair_core::time::Nanos;

const TARGET: [(&str, &str); 4] =
    [("rpct", "95"), ("rlat", "10ms"), ("wlat", "10ms"), ("rrandiops", "1000")];

/// Goal: a drive that keeps its latency while groups wait is given more, one that does not is given less.
/// Method: a target of 10 ms, completions after 5 ms, then after 30 ms; the model says 1000 a second.
#[test]
fn latency_drives_the_clock() {
    let mut world = World::new(&TARGET);
    world.client("a", 100, Work::Deep(64));
    world.latency = MS * 5;
    world.run(MS * 20);
    assert_eq!(world.gauge("rate_percent"), 100);
    // A period is 20 ms, and the first four do nothing: then 1 % for 16, 2 % for 16, 4 % for 8, ...
    world.run(MS * 20 * 13);
    assert!((107..=112).contains(&world.gauge("rate_percent")), "{}", world.gauge("rate_percent"));
    world.run(MS * 2000);
    let fast = world.gauge("rate_percent");
    assert!(fast > 1000, "{fast}");
    world.latency = MS * 30;
    world.run(MS * 4000);
    assert!(world.gauge("rate_percent") < 200, "{}", world.gauge("rate_percent"));
}

/// Goal: nobody waits: the clock stays, though the drive is fast. Method: a trickle.
#[test]
fn without_shortage_the_clock_stays() {
    let mut world = World::new(&TARGET);
    world.client("a", 100, Work::Every(MS * 3));
    world.run(MS * 5000);
    assert_eq!(world.gauge("rate_percent"), 100);
}

/// Goal: some late ones are allowed. Method: the target holds for 95 %; one of 40 is late, then one of 10.
#[test]
fn misses_count_against_their_share() {
    for (every, slower) in [(40, false), (10, true)] {
        let mut world = World::new(&TARGET);
        world.client("a", 100, Work::Deep(64));
        (world.latency, world.slow) = (MS * 5, Some((every, MS * 12)));
        world.run(MS * 2000);
        let rate = world.gauge("rate_percent");
        assert_eq!(rate < 100, slower, "one of {every}: {rate}");
    }
}

/// Goal: without latency targets, waiting for tags slows the clock. Method: a model far too fast, 4 tags.
#[test]
fn waiting_for_tags_slows_the_clock() {
    let mut world = World::with_tags(&[("rrandiops", "100000"), ("rbps", "1GB/s")], 4);
    world.client("a", 100, Work::Deep(64));
    world.latency = MS;
    world.run(MS * 10_000);
    // 4 tags of 1 ms are 4000 a second.
    assert!(world.gauge("rate_percent") <= 8, "{}", world.gauge("rate_percent"));
}

/// Goal: flash that stays above 500 % for ten seconds is taken for fast flash, and back below 10 %. Method: a
/// drive that takes everything; then one of 32,000 a second, where everybody waits for tags.
#[test]
fn fast_flash_is_found_out() {
    let mut world = World::with_tags(&[], 256);
    world.client("a", 100, Work::Deep(128));
    world.latency = Nanos::from_micros(200);
    world.run(MS * 9_000);
    assert!(world.gauge("rate_percent") > 500);
    assert_eq!(world.gauge("built_in_set"), 2);
    world.run(MS * 10_000);
    assert_eq!(world.gauge("built_in_set"), 3);
    world.set_work(0, Work::Deep(1024));
    world.latency = MS * 8;
    world.run(MS * 15_000);
    assert_eq!(world.gauge("built_in_set"), 2);
}

/// Goal: parameters that the user set are kept. Method: the same drive with one of them set.
#[test]
fn what_the_user_set_stays() {
    let mut world = World::with_tags(&[("rlat", "30ms")], 256);
    world.client("a", 100, Work::Deep(128));
    world.run(MS * 20_000);
    assert!(world.gauge("rate_percent") > 500);
    assert_eq!(world.gauge("built_in_set"), 2);
}

/// Goal: an engine with nothing to do asks for nothing, and comes back. Method: requests, a pause, requests;
/// the same while a completion takes for ever.
#[test]
fn an_idle_engine_needs_no_wake_up() {
    let mut world = World::fixed();
    world.client("a", 100, Work::Deep(4));
    world.run(MS * 500);
    world.set_work(0, Work::Nothing);
    world.run(MS * 1000);
    assert_eq!(world.controller.next_wakeup(), None);
    assert_eq!(world.gauge("active_groups"), 0);
    world.set_work(0, Work::Deep(4));
    world.latency = MS * 100_000;
    world.run(MS * 1000);
    assert_eq!((world.in_flight(), world.controller.next_wakeup()), (4, None));
    world.latency = MS;
    world.run(MS * 100_000);
    assert!(world.run(MS * 1000)[0] > 990);
}
