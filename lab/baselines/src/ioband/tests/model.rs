//! The weight policy as a plain program, every group looked at at every step, against the ordered set.

use std::vec::Vec;

use super::super::order::Blocked;
use super::super::weight::{Settings, Weight};
use iofair_core::contract::Contract;
use iofair_core::controller::Controller;
use iofair_core::testing::wide;
use iofair_core::time::Instant;

/// A group as the model sees it: tokens, tokens an epoch, its epoch, used since the last refill.
#[derive(Clone, Copy, Debug)]
struct Share {
    token: i64,
    initial: i64,
    epoch: i64,
    consumed: i64,
}

struct Model {
    shares: Vec<Share>,
    bucket: i64,
    carryover: i64,
    epoch: i64,
    left: i64,
    extra: i64,
    current: Option<usize>,
    mark: i64,
    dominant: Option<usize>,
}

impl Model {
    fn effective(&self, group: usize) -> i64 {
        let share = self.shares[group];
        share.token + share.initial * (self.epoch - share.epoch).min(self.carryover)
    }
    fn priority(&self, group: usize) -> i64 {
        self.effective(group) * 100 / self.shares[group].initial + 1
    }
    fn may_submit(&mut self, group: usize) -> bool {
        let epochs = (self.epoch - self.shares[group].epoch).min(self.carryover);
        let share = &mut self.shares[group];
        if share.token <= 0 && epochs > 0 {
            share.epoch = self.epoch;
            share.consumed = 0;
            self.left -= share.initial * epochs;
            let unused = self.extra * share.initial / (self.bucket - self.extra / 2);
            share.token += share.initial * epochs + unused;
            if self.current == Some(group) {
                self.mark += share.initial * epochs + unused;
            }
        }
        self.shares[group].token > 0
    }
    fn charge(&mut self, group: usize, cost: i64) -> bool {
        let share = self.shares[group];
        let quiet = share.consumed * 8 < share.initial && share.consumed * 16 < self.bucket;
        let most = self.dominant.is_none_or(|d| self.effective(group) > self.effective(d));
        if !quiet && most {
            self.dominant = Some(group);
        }
        let ends = share.epoch == self.epoch && share.token > 0 && share.token - cost <= 0;
        if ends && self.dominant == Some(group) {
            self.dominant = None;
        }
        if self.current != Some(group) {
            (self.current, self.mark) = (Some(group), share.token - 20);
        }
        let share = &mut self.shares[group];
        share.token -= cost;
        share.consumed += cost;
        let yields = share.token <= self.mark;
        if yields {
            self.current = None;
        }
        yields
    }
    fn best(&mut self, blocked: &[u32]) -> Option<usize> {
        let mut best = (0, None);
        for group in (0..self.shares.len()).filter(|group| blocked[*group] > 0) {
            if self.may_submit(group) && self.priority(group) > best.0 {
                best = (self.priority(group), Some(group));
            }
        }
        best.1
    }
    fn restart(&mut self, issued: i64) -> bool {
        if self.dominant.is_some_and(|d| self.priority(d) * 8 > 100) && issued >= 4 {
            return false;
        }
        self.epoch += 1;
        self.extra = self.left.max(0);
        self.left = self.bucket;
        self.dominant = None;
        true
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// Twelve groups and the root, in both.
fn both(random: &mut Random) -> (Weight, Model) {
    let settings = Settings { token: 8000, carryover: 3, io_limit: 1000, io_throttle: 4, unit: 0 };
    let none = crate::TABLE.stack("none-none").expect("in the table");
    let mut controller = Controller::new(wide(), none);
    let mut weight = Weight::new(settings);
    weight.add(0, 100);
    let mut weights = Vec::from([100]);
    for group in 1..=12 {
        let own = 50 + random.below(500) as u32;
        let path = std::format!("g{group}");
        controller.add_group(Instant::ZERO, &path, Contract::default()).expect("new");
        weight.add(group, own);
        weights.push(i64::from(own));
    }
    weight.refresh(controller.groups());
    let total: i64 = weights.iter().sum();
    let share = |weight: &i64| {
        let initial = 8000 * weight / total;
        Share { token: initial, initial, epoch: 0, consumed: 0 }
    };
    let model = Model {
        shares: weights.iter().map(share).collect(),
        bucket: 8000,
        carryover: 3,
        epoch: 0,
        left: 8000,
        extra: 0,
        current: None,
        mark: 0,
        dominant: None,
    };
    (weight, model)
}

const fn blocked_of(blocked: u32) -> Blocked {
    if blocked > 0 { Blocked::Open } else { Blocked::Nothing }
}

/// Goal: groups are released in the order that a scan of all gives, tokens, epochs, turns and dominance
/// included. Method: random arrivals and completions, requests of 1 to 8 tokens, so that no debt lasts for an epoch.
#[test]
fn the_ordered_set_matches_a_scan() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let (mut ours, mut model) = both(&mut random);
        let mut blocked = [0; 13];
        let mut issued = 0;
        let active = 1 + random.below(13);
        for step in 0..20_000 {
            let cost = 1 + random.below(8) as i64;
            if random.below(2) == 0 || issued == 0 {
                let group = random.below(active) as usize;
                let passes = blocked[group] == 0 && ours.may_submit(group);
                assert_eq!(passes, blocked[group] == 0 && model.may_submit(group), "{seed} {step}");
                if passes {
                    issued += 1;
                    assert_eq!(ours.charge(group, cost, false), model.charge(group, cost));
                } else {
                    blocked[group] += 1;
                }
                ours.place(group, blocked_of(blocked[group]));
            }
            issued -= i64::from(issued > 0 && random.below(2) == 0);
            let best = ours.best([true; 2]);
            assert_eq!(best, model.best(&blocked), "seed {seed}, step {step}");
            let Some(group) = best else {
                if blocked.iter().any(|blocked| *blocked > 0) {
                    assert_eq!(ours.restart(issued), model.restart(issued), "{seed} {step}");
                }
                continue;
            };
            while blocked[group] > 0 {
                let may = ours.may_submit(group);
                assert_eq!(may, model.may_submit(group), "seed {seed}, step {step}");
                if !may {
                    break;
                }
                (blocked[group], issued) = (blocked[group] - 1, issued + 1);
                let yields = ours.charge(group, cost, false);
                assert_eq!(yields, model.charge(group, cost), "seed {seed}, step {step}");
                if yields {
                    break;
                }
            }
            ours.place(group, blocked_of(blocked[group]));
        }
    }
}
