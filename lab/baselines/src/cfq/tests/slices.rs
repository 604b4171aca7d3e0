//! How long a slice lasts, who comes next, and how much the drive gets of a queue.

use iofair_core::priority::{Class, Priority};
use iofair_core::testing::apart::World;

/// Goal: slices last as the level says, from their first completion on. Method: three levels with plenty
/// queued, a millisecond a request; the completion at the slice's end is the last one.
#[test]
fn slices_follow_levels() {
    let mut world =
        World::with(&crate::TABLE, "none-cfq", &[("fifo_expire_sync", "1m")], |setup| {
            setup.guaranteed = 2048
        });
    for level in [0, 4, 7] {
        let client = world.add(Class::BestEffort, level);
        world.reads(client, 600);
    }
    let mut served = [0; 3];
    for (client, count) in world.runs(1000, 1000) {
        if served[client] == 0 {
            assert_eq!(count, [181, 101, 41][client], "client {client}");
        }
        served[client] += count;
    }
}

/// Goal: in the long run the drive's time is shared as the slices are, 180 to 40. Method: two queues
/// that are never empty.
#[test]
fn time_is_shared_as_slices_are() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[("fifo_expire_sync", "1m")]);
    let (high, low) = (world.add(Class::BestEffort, 0), world.add(Class::BestEffort, 7));
    [high, low].into_iter().for_each(|client| world.reads(client, 300));
    let mut served = [0u32; 2];
    for _ in 0..10_000 {
        let client = world.serve(1000).expect("busy");
        world.read(client);
        served[client] += 1;
    }
    let ratio = served[high] * 100 / served[low];
    assert!((430..450).contains(&ratio), "{served:?}");
}

/// Goal: classes go before keys. Method: idle came first, then best effort, then real time.
#[test]
fn classes_go_first() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[("slice_idle", "0s")]);
    let idle = world.add(Class::Idle, 4);
    let usual = world.usual();
    let urgent = world.add(Class::RealTime, 7);
    for client in [idle, usual, urgent] {
        world.reads(client, 2);
    }
    assert_eq!(world.runs(6, 10), [(urgent, 2), (usual, 2), (idle, 2)]);
}

/// Goal: the drive has at most `quantum` requests of a queue while others wait, four times as many of the
/// only one, and one of the idle class. Method: bursts without a completion.
#[test]
fn depth_is_bounded() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let first = world.usual();
    world.reads(first, 20);
    assert_eq!(world.burst().len(), 16);
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (first, second) = (world.usual(), world.usual());
    [first, second].into_iter().for_each(|client| world.reads(client, 20));
    assert_eq!(world.burst().len(), 4);
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let idle = world.add(Class::Idle, 4);
    world.reads(idle, 3);
    assert_eq!(world.burst().len(), 1);
}

/// Goal: a queue of the idle class gives way after each request. Method: two of them, served in turn.
#[test]
fn idle_class_takes_turns() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (one, other) = (world.add(Class::Idle, 4), world.add(Class::Idle, 4));
    [one, other].into_iter().for_each(|client| world.reads(client, 3));
    let order = [one, other, one, other, one, other];
    assert_eq!(world.runs(6, 10), order.map(|client| (client, 1)));
}

/// Goal: what a slice took too much comes off at the next turn. Method: three queues; the first one's only
/// slice is over its 100 ms by 400, so the others come five times before it.
#[test]
fn overrun_is_charged() {
    let mut world =
        World::new(&crate::TABLE, "none-cfq", &[("fifo_expire_sync", "1m"), ("quantum", "1")]);
    let clients = [world.usual(), world.usual(), world.usual()];
    clients.into_iter().for_each(|client| world.reads(client, 330));
    // The slice begins with the first completion; the second one takes 500 ms.
    assert_eq!(world.serve(1000), Some(0));
    assert_eq!(world.serve(500_000), Some(0));
    let runs = world.runs(800, 1000);
    let order: std::vec::Vec<_> = runs.iter().map(|(client, _)| *client).take(6).collect();
    assert_eq!(order, [1, 2, 1, 2, 1, 0], "{runs:?}");
}

/// Goal: an old request goes first, but only once a slice. Method: two old ones behind the head's way.
#[test]
fn age_is_looked_at_once_a_slice() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let first = world.usual();
    for sector in [5_000_000, 6_000_000] {
        world.seek(first, sector);
        world.read(first);
    }
    world.wait(126_000);
    for sector in [8, 16, 24] {
        world.seek(first, sector);
        world.read(first);
    }
    let mut sectors = std::vec::Vec::new();
    while let Some((id, sector)) = world.rig.dispatch() {
        sectors.push(sector);
        world.rig.complete(id);
    }
    assert_eq!(sectors, [5_000_000, 6_000_000, 8, 16, 24]);
    let mut young = World::new(&crate::TABLE, "none-cfq", &[]);
    let first = young.usual();
    for sector in [5_000_000, 8] {
        young.seek(first, sector);
        young.read(first);
    }
    assert_eq!(young.rig.dispatch().map(|(_, sector)| sector), Some(8));
}

/// Goal: another level counts from the next request on. Method: a queue of level 7 becomes one of level 0
/// while it holds requests.
#[test]
fn another_level_counts_from_the_next_request() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[("fifo_expire_sync", "1m")]);
    let (first, second) = (world.add(Class::BestEffort, 7), world.usual());
    [first, second].into_iter().for_each(|client| world.reads(client, 300));
    let group = world.rig.controller.groups().client(world.client(first)).group;
    let priority = Priority { class: Class::BestEffort, level: 0 };
    let (now, client) = (world.rig.now, world.client(first));
    world.rig.controller.update_client(now, client, group, priority).expect("there");
    world.read(first);
    assert_eq!(world.runs(250, 1000)[0], (first, 181));
}
