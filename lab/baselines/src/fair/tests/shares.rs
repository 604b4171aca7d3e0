//! Who gets how much, in a closed loop on a small disk.

use super::world::World;
use iofair_core::id::GroupId;
use iofair_core::priority::{Class, Priority};
use iofair_core::time::Nanos;

const ALL: [&str; 4] = ["fair-noop", "fair-deadline", "fair-anticipatory", "fair-cfq"];

fn prop(name: &str) -> std::string::String {
    std::format!("prop-{name}")
}

/// Goal: sequential readers of groups that weigh 500 and 1000 get one part and two, whichever leaf
/// orders them. Method: ten seconds (the controller's test 3, one reader each).
#[test]
fn groups_share_by_weight_under_every_leaf() {
    for name in ALL {
        let mut world = World::new(&prop(name), &[]);
        let groups = [world.group("a", 500), world.group("b", 1000)];
        let [a, b] = groups.map(|group| world.reader(group, false));
        world.run(Nanos::from_secs(10));
        let (a, b) = (world.take(a).0, world.take(b).0);
        let percent = b * 100 / a;
        assert!((190..=215).contains(&percent), "{name}: {a} {b}");
        assert!(a + b > 60_000, "{name}: {a} {b}");
    }
}

/// Goal: how many readers a group has does not matter to the other group. Method: one reader of weight
/// 1000 against 1, 4 and 16 of weight 500, a queue a client (test 3).
#[test]
fn a_groups_size_does_not_matter() {
    for count in [1, 4, 16] {
        let mut world = World::new("prop-fair-cfq", &[]);
        let (many, one) = (world.group("many", 500), world.group("one", 1000));
        for _ in 0..count {
            world.reader(many, false);
        }
        let one = world.reader(one, false);
        world.run(Nanos::from_secs(20));
        let one = world.take(one).0;
        let many: u64 = (0..count).map(|actor| world.take(actor).0).sum();
        assert!((185..=225).contains(&(one * 100 / many)), "{count}: {one} {many}");
    }
}

/// Goal: a random reader in its group gets half of the time and a bounded latency, whatever goes on in
/// the other group; with all in one group it gets a request a round. Method: against 1, 4 and 16
/// sequential readers with `group_idle` 1 ms (test 2).
#[test]
fn a_random_reader_is_isolated() {
    for count in [1, 4, 16] {
        let mut rates = [0, 0];
        for (rate, stack) in rates.iter_mut().zip(["prop-fair-cfq", "none-fair-cfq"]) {
            let mut world = World::new(stack, &[("group_idle", "1ms")]);
            let (many, one) = (world.group("many", 500), world.group("one", 500));
            for _ in 0..count {
                world.reader(many, false);
            }
            let one = world.reader(one, true);
            world.run(Nanos::from_secs(20));
            let (done, slowest) = world.take(one);
            *rate = done / 20;
            if stack.starts_with("prop") {
                assert!(slowest < Nanos::from_millis(130), "{count}: {slowest}");
            }
        }
        // It alone would get 124 a second.
        assert!((58..=72).contains(&rates[0]), "{count}: {rates:?}");
        assert!(rates[1] < 20, "{count}: {rates:?}");
    }
}

/// Goal: weights hold on every level of a tree, and tasks of a group compete with groups inside it as
/// equals of the default weight. Method: a group of two groups, beside a reader in the root.
#[test]
fn groups_nest() {
    let mut world = World::new("prop-fair-cfq", &[]);
    let above = world.group("x", 300);
    let inner = [world.group("x/a", 100), world.group("x/b", 200)];
    let [a, b] = inner.map(|group| world.reader(group, false));
    let (own, root) = (world.reader(above, false), world.reader(GroupId::ROOT, false));
    world.run(Nanos::from_secs(40));
    let [a, b, own, root] = [a, b, own, root].map(|actor| world.take(actor).0 as i64);
    let near = |x: i64, y: i64| (x - y).abs() * 100 < 12 * y;
    assert!(near(a + b + own, 3 * root), "{a} {b} {own} {root}");
    assert!(near(b, 2 * a) && near(own, a), "{a} {b} {own} {root}");
}

/// Goal: in a group clients share by level as in CFQ, by the lengths of their slices: 180 ms to 100 ms to
/// 40 ms. Method: three readers, in flat mode.
#[test]
fn levels_share_by_their_slices() {
    let mut world = World::new("none-fair-cfq", &[]);
    let of = |level| Priority { class: Class::BestEffort, level };
    let readers = [0, 4, 7].map(|level| world.reader_of(GroupId::ROOT, of(level), false));
    world.run(Nanos::from_secs(30));
    let [high, usual, low] = readers.map(|reader| world.take(reader).0);
    assert!((165..=195).contains(&(high * 100 / usual)), "{high} {usual} {low}");
    assert!((400..=500).contains(&(high * 100 / low)), "{high} {usual} {low}");
}

/// Goal: a group of class idle gets what is left, one of class realtime all it wants. Method: three
/// groups that always want.
#[test]
fn classes_of_groups_are_strict() {
    for (class, all) in [(Class::Idle, [true, false]), (Class::RealTime, [false, true])] {
        let mut world = World::new("prop-fair-noop", &[]);
        let groups = [world.group("a", 100), world.group_of("b", 100, class)];
        let readers = groups.map(|group| world.reader(group, false));
        world.run(Nanos::from_secs(2));
        let got = readers.map(|reader| world.take(reader).0 > 10_000);
        assert_eq!(got, all, "{class:?}");
    }
}
