//! Processes that work close together.

use iofair_core::priority::Priority;
use iofair_core::testing::apart::World;

/// Two clients that read one file in turns: the one 8 sectors, the other the next 8.
fn interleave(world: &mut World, rounds: u64) -> (usize, usize) {
    let (one, other) = (world.usual(), world.usual());
    for round in 0..rounds {
        for (number, client) in [one, other].into_iter().enumerate() {
            world.seek(client, 16 * round + 8 * number as u64);
            world.read(client);
        }
        while world.rig.controller.pending() > 0 {
            let Some((id, _)) = world.rig.dispatch() else {
                world.rig.now = world.rig.controller.next_wakeup().expect("held");
                continue;
            };
            world.wait(100);
            world.rig.complete(id);
        }
    }
    (one, other)
}

/// Goal: close queues become one: no wait between their requests. Method: two interleaved readers; after
/// some rounds no wait in vain is seen any more.
#[test]
fn close_queues_are_merged() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    interleave(&mut world, 10);
    let decisions = world.decisions();
    let position = |rule| decisions.iter().position(|(name, _)| *name == rule);
    let (planned, shared) = (position("merge: will share"), position("merge: shares"));
    assert!(planned.is_some() && planned < shared, "{decisions:?}");
    let after = &decisions[shared.expect("seen")..];
    assert!(after.iter().all(|(rule, _)| *rule != "idle: in vain"), "{after:?}");
}

/// Goal: 2.6.31 merges nothing but goes to the close queue at once, and not twice in a row. Method: as
/// above.
#[test]
fn close_queues_are_jumped_to() {
    let mut world = World::new(
        &crate::TABLE,
        "none-cfq",
        &[("queue_merge", "false"), ("low_latency", "false")],
    );
    interleave(&mut world, 10);
    let decisions = world.decisions();
    let count = |rule| decisions.iter().filter(|(name, _)| *name == rule).count();
    assert_eq!(count("merge: will share"), 0);
    assert!(count("slice: another queue is close") > 3, "{decisions:?}");
}

/// Goal: no cooperation between levels, nor with a seeky queue. Method: the interleaved readers, one of
/// another level.
#[test]
fn levels_do_not_cooperate() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (one, other) = (world.usual(), world.usual());
    let group = world.rig.controller.groups().client(world.client(other)).group;
    let priority = Priority { level: 5, ..Priority::default() };
    let (now, client) = (world.rig.now, world.client(other));
    world.rig.controller.update_client(now, client, group, priority).expect("there");
    world.read(one);
    world.seek(other, 8);
    world.read(other);
    assert_eq!(world.serve(100), Some(one));
    assert_eq!(world.wakes_in(), Some(8000));
}

/// Goal: a shared queue that was seeky for a second is split. Method: merged readers go apart; each later
/// sends to a queue of its own again.
#[test]
fn seeky_shared_queues_are_split() {
    let mut world = World::new(&crate::TABLE, "none-cfq", &[]);
    let (one, other) = interleave(&mut world, 10);
    world.decisions();
    for round in 0..60 {
        for client in [one, other] {
            world.seek(client, 4_000_000 * (1 + round % 7) + 8_000_000 * client as u64);
            world.read(client);
            while world.rig.controller.pending() > 0 {
                let Some((id, _)) = world.rig.dispatch() else {
                    world.rig.now = world.rig.controller.next_wakeup().expect("held");
                    continue;
                };
                world.wait(20_000);
                world.rig.complete(id);
            }
        }
    }
    let decisions = world.decisions();
    assert!(decisions.iter().any(|(rule, _)| *rule == "merge: split"), "{decisions:?}");
}
