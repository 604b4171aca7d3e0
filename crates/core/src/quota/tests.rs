//! Worked examples of dynamic thresholds, and their properties over seeds.

use std::string::ToString;
use std::vec::Vec;

use super::*;
use crate::contract::Contract;

const ROOT: GroupId = GroupId::ROOT;

fn add(groups: &mut Groups, parent: GroupId, weight: u32) -> GroupId {
    let name = groups.group_bound().to_string();
    groups.add_group(&name, parent, Contract { weight, ..Contract::default() })
}

/// Takes one unit at a time until the quota refuses; says how many the group got.
fn take_all(quota: &mut Quota, groups: &Groups, group: GroupId) -> u64 {
    let mut taken = 0;
    while quota.try_take(groups, group, 1) {
        taken += 1;
    }
    taken
}

/// Takes one unit for each group in turn until all are refused.
fn take_in_turn(quota: &mut Quota, groups: &Groups, takers: &[GroupId]) {
    while takers.iter().filter(|group| quota.try_take(groups, **group, 1)).count() > 0 {}
}

/// Goal: a group that is alone leaves a reserve, by its weight. Method: the closed form `w / (w + 100)`.
#[test]
fn a_greedy_group_leaves_a_reserve() {
    for (weight, wanted) in [(1, 9), (50, 333), (100, 500), (300, 750), (1000, 910)] {
        let mut groups = Groups::new();
        let greedy = add(&mut groups, ROOT, weight);
        let mut quota = Quota::new(Limits { guaranteed: 7, shared: 1000 });
        assert_eq!(take_all(&mut quota, &groups, greedy), 7 + wanted, "weight {weight}");
    }
}

/// Gives one unit back for each group in turn; all of them take at once what is free for them then.
fn churn(quota: &mut Quota, groups: &Groups, takers: &[GroupId]) {
    for _ in 0..2000 {
        for group in takers {
            take_in_turn(quota, groups, takers);
            quota.give(*group, quota.held(*group).min(1));
        }
    }
    take_in_turn(quota, groups, takers);
}

/// Goal: greedy siblings come to hold units in proportion to their weights, in whatever order they came. Method:
/// 100 and 300: `q = w/100 * f` and `q1 + q2 + f = 1000` give f = 200. Then a newcomer, who finds the reserve,
/// and as units come back all three arrive at 1:3:1.
#[test]
fn greedy_siblings_divide_by_weight() {
    let mut groups = Groups::new();
    let (light, heavy) = (add(&mut groups, ROOT, 100), add(&mut groups, ROOT, 300));
    for first in [light, heavy] {
        let mut quota = Quota::new(Limits { guaranteed: 0, shared: 1000 });
        take_all(&mut quota, &groups, first);
        churn(&mut quota, &groups, &[light, heavy]);
        let held = [light, heavy].map(|group| quota.held(group));
        assert!(held[0].abs_diff(200) <= 2 && held[1].abs_diff(600) <= 2, "{held:?}");
    }
    let mut quota = Quota::new(Limits { guaranteed: 0, shared: 1000 });
    churn(&mut quota, &groups, &[light, heavy]);
    let late = add(&mut groups, ROOT, 100);
    assert_eq!(take_all(&mut quota, &groups, late), 100);
    churn(&mut quota, &groups, &[heavy, light, late]);
    let held = [light, heavy, late].map(|group| quota.held(group));
    let wanted = [166, 500, 166];
    assert!(held.iter().zip(wanted).all(|(held, wanted)| held.abs_diff(wanted) <= 3), "{held:?}");
}

/// Goal: below the root a level divides what its parent may hold, and clients beside child groups count as one
/// more child. Method: `outer` alone may hold 500 of 1,000; inside, one greedy child leaves a reserve to the other.
#[test]
fn nested_groups_divide_their_parents_part() {
    let mut groups = Groups::new();
    let outer = add(&mut groups, ROOT, 100);
    let (first, second) = (add(&mut groups, outer, 100), add(&mut groups, outer, 100));
    let mut quota = Quota::new(Limits { guaranteed: 0, shared: 1000 });
    // q <= (1000 - q) - q
    assert_eq!(take_all(&mut quota, &groups, first), 334);
    assert!(take_all(&mut quota, &groups, second) > 100);
    assert_eq!(quota.shared(outer), quota.held(first) + quota.held(second));
    assert_eq!(quota.shared(ROOT), quota.shared(outer));
    assert!(quota.shared(outer) <= 500);

    // Another tree finds what its weight gives it.
    let other = add(&mut groups, ROOT, 100);
    assert!(take_all(&mut quota, &groups, other) >= 250);

    let mut quota = Quota::new(Limits { guaranteed: 0, shared: 1000 });
    assert_eq!(take_all(&mut quota, &groups, outer), 334, "its clients are beside two children");
    assert!(take_all(&mut quota, &groups, first) > 100);
    let mut quota = Quota::new(Limits { guaranteed: 0, shared: 1000 });
    assert_eq!(take_all(&mut quota, &groups, ROOT), 500, "so are the root's");
}

/// Goal: a take above the guarantee and every threshold is granted while the group holds nothing else, or it would
/// wait forever. Method: a light group, one take of nearly everything, then one unit more.
#[test]
fn the_first_take_is_not_held_to_the_threshold() {
    let mut groups = Groups::new();
    let (light, other) = (add(&mut groups, ROOT, 1), add(&mut groups, ROOT, 100));
    let mut quota = Quota::new(Limits { guaranteed: 2, shared: 100 });
    assert!(!quota.try_take(&groups, light, 103), "more than there is");
    assert!(quota.try_take(&groups, light, 102));
    assert!(!quota.try_take(&groups, light, 1));
    assert_eq!(take_all(&mut quota, &groups, other), 2, "its guarantee");
    quota.give(light, 102);
    assert_eq!((quota.held(light), quota.shared(ROOT)), (0, 0));
    assert!(!quota.try_take(&groups, other, u64::MAX), "no overflow");
}

/// Goal: a new weight counts from the next take on, and takes nothing back. Method: raise and lower it.
#[test]
fn a_new_weight_counts_at_once() {
    let mut groups = Groups::new();
    let group = add(&mut groups, ROOT, 100);
    let mut quota = Quota::new(Limits { guaranteed: 0, shared: 1000 });
    take_all(&mut quota, &groups, group);
    groups.group_mut(group).contract.weight = 300;
    assert_eq!(take_all(&mut quota, &groups, group), 250);
    groups.group_mut(group).contract.weight = 100;
    assert_eq!((take_all(&mut quota, &groups, group), quota.held(group)), (0, 750));
    quota.give(group, 251);
    assert_eq!((take_all(&mut quota, &groups, group), quota.held(group)), (1, 500));
}

/// Goal: other limits leave the sums right. Method: smaller and larger ones, then everything is given back.
#[test]
fn other_limits_keep_the_books() {
    let mut groups = Groups::new();
    let outer = add(&mut groups, ROOT, 100);
    let inner = add(&mut groups, outer, 100);
    let mut quota = Quota::new(Limits { guaranteed: 10, shared: 100 });
    assert_eq!(take_all(&mut quota, &groups, inner), 44);
    quota.resize(Limits { guaranteed: 3, shared: 20 });
    assert_eq!([inner, outer, ROOT].map(|group| quota.shared(group)), [41; 3]);
    assert_eq!(
        take_all(&mut quota, &groups, outer),
        3,
        "the guarantee holds though the pool is overdrawn"
    );
    quota.resize(Limits { guaranteed: 50, shared: 1000 });
    assert_eq!([inner, outer, ROOT].map(|group| quota.shared(group)), [0; 3]);
    quota.give(inner, 44);
    quota.give(outer, 3);
    assert_eq!(quota.held_by_all(), 0);
}

/// Goal: an index that is used again counts for its new place. Method: a group goes, another comes elsewhere.
#[test]
fn an_index_may_be_used_again() {
    let mut groups = Groups::new();
    let (first, second) = (add(&mut groups, ROOT, 100), add(&mut groups, ROOT, 100));
    let old = add(&mut groups, first, 100);
    let mut quota = Quota::new(Limits { guaranteed: 1, shared: 100 });
    assert!(quota.try_take(&groups, old, 5));
    quota.give(old, 5);
    groups.remove_group(old);
    let new = add(&mut groups, second, 100);
    assert_eq!(new.index(), old.index());
    assert_ne!(new, old);
    assert!(quota.try_take(&groups, new, 5));
    assert_eq!([first, second, ROOT].map(|group| quota.shared(group)), [0, 4, 4]);
}

/// Goal: a removed group that still held something is noticed. Method: its id comes back elsewhere.
#[test]
#[should_panic(expected = "was removed while it held units")]
fn a_group_that_holds_units_must_not_go() {
    let mut groups = Groups::new();
    let outer = add(&mut groups, ROOT, 100);
    let old = add(&mut groups, ROOT, 100);
    let mut quota = Quota::new(Limits { guaranteed: 9, shared: 100 });
    assert!(quota.try_take(&groups, old, 5));
    groups.remove_group(old);
    let new = add(&mut groups, outer, 100);
    assert!(quota.try_take(&groups, new, 1));
}

struct Random(u64);
impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Goal: whatever is taken and given in whatever tree: no take within the guarantee is refused, nobody holds more
/// of the pool than there is, the sums are those of the tree, and what is given back is all there again.
/// Method: random trees and operations, each checked against a model that adds up from the leaves.
#[test]
fn quotas_are_consistent_over_seeds() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut groups = Groups::new();
        let mut all = std::vec![ROOT];
        for _ in 0..random.below(12) {
            let parent = all[random.below(all.len() as u64) as usize];
            all.push(add(&mut groups, parent, 1 + random.below(1000) as u32));
        }
        let limits = Limits { guaranteed: random.below(6), shared: random.below(200) };
        let mut quota = Quota::new(limits);
        for _ in 0..400 {
            let group = all[random.below(all.len() as u64) as usize];
            let held = quota.held(group);
            match random.below(5) {
                0..3 => {
                    let count = 1 + random.below(5);
                    let granted = quota.try_take(&groups, group, count);
                    assert!(granted || held + count > limits.guaranteed, "seed {seed}");
                    assert_eq!(quota.held(group), held + if granted { count } else { 0 });
                }
                3 if held > 0 => quota.give(group, 1 + random.below(held)),
                _ => groups.group_mut(group).contract.weight = 1 + random.below(1000) as u32,
            }
            verify(&quota, &groups, &all, seed);
        }
        for group in &all {
            quota.give(*group, quota.held(*group));
        }
        verify(&quota, &groups, &all, seed);
        assert_eq!(quota.held_by_all(), 0);
    }
}

fn verify(quota: &Quota, groups: &Groups, all: &[GroupId], seed: u64) {
    let Limits { guaranteed, shared } = quota.limits();
    for group in all {
        let below = all.iter().filter(|other| groups.ancestry(**other).any(|id| id == *group));
        let beyond: Vec<u64> =
            below.map(|other| quota.held(*other).saturating_sub(guaranteed)).collect();
        assert_eq!(quota.shared(*group), beyond.iter().sum::<u64>(), "seed {seed}, {group:?}");
    }
    assert!(quota.shared(ROOT) <= shared, "seed {seed}");
    let held: u64 = all.iter().map(|group| quota.held(*group)).sum();
    assert_eq!(quota.held_by_all(), held, "seed {seed}");
    let holders = all.iter().filter(|group| quota.held(**group) > 0).count() as u64;
    assert!(held <= quota.limits().bound(holders), "seed {seed}");
}

/// Goal: with 10,000 greedy groups each has its guarantee and the pool is divided. Method: count.
#[test]
fn ten_thousand_groups_have_their_guarantees() {
    let mut groups = Groups::new();
    let all: Vec<_> = (0..10_000).map(|_| add(&mut groups, ROOT, 100)).collect();
    let limits = Limits { guaranteed: 16, shared: 16 << 10 };
    let mut quota = Quota::new(limits);
    take_all(&mut quota, &groups, all[0]);
    take_in_turn(&mut quota, &groups, &all);
    assert!(all.iter().all(|group| quota.held(*group) >= 16));
    assert!(quota.shared(all[0]) <= 8 << 10);
    assert!(quota.held_by_all() <= limits.bound(10_000));
}
