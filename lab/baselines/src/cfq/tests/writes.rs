//! Buffered writes: shared queues, few at a time, and never beside reads.

use iofair_core::priority::Class;
use iofair_core::testing::apart::World;

/// Goal: buffered writes of one class and level share a queue, whoever sends them. Method: two clients;
/// the second one's go out in the same slice.
#[test]
fn writers_of_a_level_share_a_queue() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[("low_latency", "false")]);
    let (one, two) = (world.usual(), world.usual());
    let other = world.add(Class::BestEffort, 3);
    [one, two, other].into_iter().for_each(|client| world.writes(client, 4));
    world.decisions();
    assert_eq!(world.runs(12, 10), [(one, 4), (two, 4), (other, 4)]);
    let begun = world.decisions().iter().filter(|(rule, _)| *rule == "slice: begins").count();
    assert_eq!(begun, 2);
}

/// Goal: a writer gives way after twice `rq (8 - level)` requests while others wait. Method: levels 0, 4
/// and 7, a millisecond a request.
#[test]
fn writes_a_slice() {
    let mut world = World::new(
        &crate::TABLE,
        "none-cfq",
        &[("low_latency", "false"), ("fifo_expire_async", "1m")],
    );
    for level in [0, 4, 7] {
        let client = world.add(Class::BestEffort, level);
        world.writes(client, 300);
    }
    let mut first = [0; 3];
    for (client, count) in world.runs(400, 1000) {
        first[client] = if first[client] == 0 { count } else { first[client] };
    }
    assert_eq!(first, [32, 16, 4]);
}

/// Goal: no buffered write goes out beside reads, and no read of a queue that is waited for beside them.
/// Method: one of each in the drive.
#[test]
fn kinds_do_not_mix_in_the_drive() {
    let mut world =
        World::new(&crate::TABLE, "none-cfq", &[("low_latency", "false"), ("slice_idle", "8ms")]);
    let (reader, writer) = (world.usual(), world.usual());
    world.writes(writer, 1);
    let (_, write) = world.dispatch().expect("free");
    world.read(reader);
    assert_eq!(world.dispatch(), None);
    assert!(world.decided("hold: buffered writes are in the drive"));
    world.rig.complete(write);
    let (client, read) = world.dispatch().expect("the write is through");
    assert_eq!(client, reader);
    world.writes(writer, 1);
    world.wait(200_000);
    assert_eq!(world.dispatch(), None);
    world.rig.complete(read);
    world.wait(8000);
    assert_eq!(world.serve(10), Some(writer));
}

/// Goal: with `low_latency` writes come in slowly after a read: one, and one more for each 100 ms.
/// Method: bursts this long after the completion to a read.
#[test]
fn writes_ramp_up_after_a_read() {
    for (after_millis, expected) in [(0, 1), (199, 1), (200, 2), (300, 3), (1000, 10)] {
        let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
        let (reader, writer) = (world.usual(), world.usual());
        world.wait(5_000_000);
        world.read(reader);
        assert_eq!(world.serve(1000), Some(reader));
        world.wait(after_millis * 1000);
        world.writes(writer, 30);
        let wait = world.wakes_in().unwrap_or(0);
        if wait > 0 && after_millis == 0 {
            world.wait(wait);
        }
        assert_eq!(world.burst().len(), expected, "{after_millis}");
    }
}

/// Goal: buffered writes cannot take the last tags from readers. Method: a flood of them, then a read,
/// which a full half would let in only late.
#[test]
fn writes_use_half_of_the_tags() {
    let mut world = World::with(&crate::TABLE, "none-cfq", &[], |setup| setup.tags = 8);
    let (reader, writer) = (world.usual(), world.usual());
    world.writes(writer, 30);
    assert_eq!(world.serve(10), Some(writer));
    world.read(reader);
    assert_eq!(world.serve(10), Some(reader));
}
