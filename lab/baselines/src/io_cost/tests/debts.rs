//! Requests that cannot wait.

use super::world::{MS, Work, World, near};
use iofair_core::request::{Flags, Operation};
use iofair_core::time::Nanos;

fn metadata(world: &mut World, client: usize, count: u32) {
    for _ in 0..count {
        world.send(client, Operation::Read, Flags::METADATA);
    }
}

/// Goal: metadata goes at once, over budget too; the group pays before anything else of it goes. Method: 50
/// reads are what a new group has saved; 200 of metadata go at once, 150 on debt; a plain one waits for them:
/// at 1000 a second.
#[test]
fn metadata_goes_on_debt() {
    let mut world = World::fixed();
    world.client("a", 100, Work::Nothing);
    world.client("b", 100, Work::Deep(16));
    world.set_work(1, Work::Nothing);
    metadata(&mut world, 0, 200);
    world.run(Nanos(1));
    assert_eq!(world.in_flight(), 200);
    world.send(0, Operation::Read, Flags::NONE);
    let done = world.run(MS * 130);
    assert_eq!(done[0], 200);
    let done = world.run(MS * 40);
    assert_eq!(done[0], 1, "paid by now");
}

/// Goal: while it pays, a group in debt still has its share, and lends what paying leaves. Method: b beside
/// a debtor of equal weight: the debt takes half of the time, no more; afterwards b has everything.
#[test]
fn a_debt_is_paid_from_the_share() {
    let mut world = World::fixed();
    world.client("a", 100, Work::Nothing);
    world.client("b", 100, Work::Deep(16));
    world.run(MS * 2000);
    metadata(&mut world, 0, 300);
    world.send(0, Operation::Read, Flags::NONE);
    let done = world.run(MS * 3000);
    assert_eq!(done[0], 301);
    assert!(done[1] >= 2650, "{done:?}");
    assert!(near(world.run(MS * 2000)[1], 2000, 3));
}

/// Goal: who is deep in debt is held up. Method: on periods of 100 ms, 3000 reads on debt at 1000 a second
/// are 30 periods: (3000 - 500) of (25000 - 500) percent of the way from 0.25 to 250 ms are 25.7 ms; but
/// then the debt itself takes three seconds. Debts on an idle drive are forgiven: half each 100 ms, so the
/// plain request goes long before.
#[test]
fn idle_drives_forgive() {
    let mut world = World::fixed();
    world.client("a", 100, Work::Nothing);
    metadata(&mut world, 0, 3000);
    world.send(0, Operation::Read, Flags::NONE);
    world.run(MS * 100);
    let mut waited = 100;
    while world.clients[0].done < 3001 {
        world.run(MS * 10);
        waited += 10;
        assert!(waited < 10_000);
    }
    // Paying 0.1 s and halving the rest each 100 ms: 2.85, 1.4, 0.6, 0.27, 0.08 s.
    assert!((300..=900).contains(&waited), "{waited} ms");
}
