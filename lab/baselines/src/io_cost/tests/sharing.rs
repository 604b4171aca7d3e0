//! Shares, donations, budgets.

use std::vec::Vec;

use super::super::donation::Donor;
use super::world::{MS, Work, World, near};
use crate::parts::shares::{NIL, WHOLE, Weights};
use iofair_core::contract::Contract;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::Nanos;

/// Goal: requests that are cancelled while they wait cost their group nothing. Method: 1000 reads a second; a second's reads of a
/// client that is gone then, and another client of its group.
#[test]
fn cancelled_requests_are_free() {
    let mut world = World::fixed();
    world.client("a", 100, Work::Nothing);
    world.client("a", 100, Work::Deep(4));
    let reads: Vec<_> = (0..1000).map(|_| world.send(0, Operation::Read, Flags::NONE)).collect();
    let mut gone = Vec::new();
    for read in reads {
        world.controller.cancel(world.now, read, |tag| tag == 0, &mut gone);
    }
    let done = world.run(MS * 1000);
    assert_eq!((gone.len() as u64 + done[0], world.controller.pending()), (1000, 4));
    assert!(near(done[1], 1000, 20), "{done:?}");
}

/// The tree of the source's own example: A (100) with A0 and A1 (100 each), B (300).
fn example() -> Weights {
    let mut weights = Weights::default();
    for (node, parent, weight) in [(0, NIL, 1), (1, 0, 100), (2, 1, 100), (3, 1, 100), (4, 0, 300)]
    {
        weights.place(node, parent, weight);
    }
    weights
}
fn activate(weights: &mut Weights, leaf: u32) {
    let weight = weights.node(leaf).weight;
    weights.propagate(leaf, weight, weight);
}
fn shares(weights: &mut Weights, leaves: &[u32]) -> Vec<u64> {
    leaves.iter().map(|leaf| weights.share(*leaf).active * 1000 / WHOLE).collect()
}

/// Goal: shares by weight over those that are active. Method: the source's example: 12.5, 12.5 and 75 %;
/// without B 50 and 50; without A0 25 and 75.
#[test]
fn shares_follow_the_active_weights() {
    let mut weights = example();
    for leaf in [2, 3, 4] {
        activate(&mut weights, leaf);
    }
    assert_eq!(shares(&mut weights, &[2, 3, 4]), [125, 125, 750]);
    weights.propagate(4, 0, 0);
    assert_eq!(shares(&mut weights, &[2, 3]), [500, 500]);
    activate(&mut weights, 4);
    weights.propagate(2, 0, 0);
    assert_eq!(shares(&mut weights, &[3, 4]), [250, 750]);
    weights.set_weight(1, 300);
    assert_eq!(shares(&mut weights, &[3, 4]), [500, 500]);
    // Half of B lent out: the rest is 150 of 450.
    weights.propagate(4, 300 * WHOLE, 150 * WHOLE);
    assert_eq!(weights.share(4).inuse * 1000 / WHOLE, 333);
    assert_eq!(weights.share_max(4) * 1000 / WHOLE, 500);
}

/// Goal: after donations each donor has what it keeps, and all others gained in the same proportion,
/// wherever they are. Method: random trees of three levels, random donors.
#[test]
fn donations_go_to_all_others_in_proportion() {
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..500 {
        let mut weights = Weights::default();
        weights.place(0, NIL, 100);
        let (mut leaves, mut next) = (Vec::new(), 1);
        for _ in 0..2 + random(3) {
            let inner = next;
            weights.place(inner, 0, 100 + random(400) as u32);
            next += 1;
            for _ in 0..1 + random(4) {
                weights.place(next, inner, 100 + random(400) as u32);
                leaves.push(next);
                next += 1;
            }
        }
        leaves.iter().for_each(|leaf| activate(&mut weights, *leaf));
        let mut donors = Vec::new();
        for leaf in &leaves[1..] {
            if random(2) == 0 {
                continue;
            }
            let share = weights.share(*leaf).active;
            donors.push(Donor { leaf: *leaf, share, after: 1 + random(share), inuse: 0 });
        }
        if donors.is_empty() {
            continue;
        }
        weights.solve(&mut donors);
        for donor in &donors {
            let active = weights.node(donor.leaf).active;
            weights.propagate(donor.leaf, active, donor.inuse);
        }
        // Shares are whole numbers of 1/65536, so small ones are coarse.
        let close = |got: u64, wanted: u64| got.abs_diff(wanted) <= wanted / 40 + 12;
        for donor in &donors {
            let got = weights.share(donor.leaf).inuse;
            assert!(close(got, donor.after), "{got} of {donor:?}");
        }
        let kept: u64 = donors.iter().map(|donor| donor.after).sum();
        let given: u64 = donors.iter().map(|donor| donor.share).sum();
        for leaf in leaves.iter().filter(|leaf| donors.iter().all(|donor| donor.leaf != **leaf)) {
            let share = weights.share(*leaf);
            let wanted = share.active * (WHOLE - kept) / (WHOLE - given);
            assert!(close(share.inuse, wanted), "{share:?} not {wanted}");
        }
    }
}

/// Goal: the drive's time by weight, and all of it. Method: 1000 random reads a second by the model, groups
/// of 100 and 300; then one of them alone.
#[test]
fn time_is_shared_by_weight() {
    let mut world = World::fixed();
    world.client("a", 100, Work::Deep(16));
    world.client("b", 300, Work::Deep(16));
    world.run(MS * 1000);
    let done = world.run(MS * 10_000);
    assert!(near(done[0], 2500, 2) && near(done[1], 7500, 2), "{done:?}");
    world.set_work(1, Work::Nothing);
    world.run(MS * 1000);
    let done = world.run(MS * 10_000);
    assert!(near(done[0], 10_000, 2), "{done:?}");
}

/// Goal: groups nest, a group's own requests count as one more of weight 100, and the root's pass.
/// Method: a (100) with own requests and a/x (300), b (300): 6.25, 18.75, 75 %.
#[test]
fn groups_nest() {
    let mut world = World::fixed();
    world.client("a", 100, Work::Deep(16));
    world.client("a/x", 300, Work::Deep(16));
    world.client("b", 300, Work::Deep(16));
    world.run(MS * 1000);
    let done = world.run(MS * 20_000);
    let near = [1250, 3750, 15_000].iter().zip(&done).all(|(wanted, got)| near(*got, *wanted, 3));
    assert!(near, "{done:?}");
    // Equal from now on.
    let a = world.controller.groups().find("a").expect("made above");
    let contract = Contract { weight: 300, ..Contract::default() };
    world.controller.update_group(world.now, a, contract).expect("there");
    let done = world.run(MS * 10_000);
    assert!(done[2].abs_diff(5000) < 150, "{done:?}");
}

/// Goal: who uses less than its share lends the rest, and has it back at once when it wants it. Method:
/// b (300 of 400) sends 100 a second, the other gets the rest; then b wants all: within a fifth of a second
/// it has its 75 %.
#[test]
fn what_is_not_used_is_lent_and_taken_back() {
    let mut world = World::fixed();
    world.client("a", 100, Work::Deep(16));
    world.client("b", 300, Work::Every(MS * 10));
    world.run(MS * 2000);
    let done = world.run(MS * 10_000);
    assert!(near(done[1], 1000, 2) && done[0] > 8500, "{done:?}");
    world.set_work(1, Work::Deep(16));
    let done = world.run(MS * 200);
    assert!(done[1] >= 130, "{done:?}");
    let done = world.run(MS * 10_000);
    assert!(near(done[1], 7500, 2), "{done:?}");
}

/// Goal: nobody saves up more than half a period's budget by being away. Method: a group that was away for
/// ten seconds sends at once 50 reads, half of what its whole period of 100 ms gives, besides another.
#[test]
fn being_away_saves_half_a_period() {
    let mut world = World::fixed();
    world.client("a", 100, Work::Nothing);
    world.run(MS * 10_000);
    world.set_work(0, Work::Deep(500));
    world.run(Nanos(1));
    assert!((49..=51).contains(&world.in_flight()), "{}", world.in_flight());
}

/// Goal: waiters of all groups go in bunches. Method: periods of 100 ms, so that timers have 1 ms of play; eight equal
/// groups that began 0.3 ms apart; in how many steps of 0.1 ms several, in how many one was completed.
#[test]
fn waiters_go_in_bunches() {
    let mut world = World::fixed();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        world.client(name, 100, Work::Deep(16));
        world.run(Nanos::from_micros(300));
    }
    world.run(MS * 1000);
    let (mut together, mut alone) = (0, 0);
    for _ in 0..10_000 {
        let done = world.run(Nanos::from_micros(100));
        match done.iter().filter(|done| **done > 0).count() {
            0 => {}
            1 => alone += 1,
            _ => together += 1,
        }
    }
    assert!(together > 50 && together > alone, "{together} {alone}");
}
