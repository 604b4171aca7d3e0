//! B-WF2Q+ against its sources' numbers, its bounds, and a naive model of the same equations.

mod model;

use std::vec;
use std::vec::Vec;

use super::*;
use model::{Model, State};

const START: Instant = Instant::ZERO;
const ROOT: EntityId = EntityId::ROOT;

impl Hierarchy {
    /// The queue in service.
    fn in_service(&self) -> Option<EntityId> {
        self.in_service
    }
    /// The child of a group that is in service.
    fn in_service_of(&self, group: EntityId) -> Option<EntityId> {
        self.level(group).in_service
    }
    /// The child of a group that is served next, apart from the one in service.
    fn next_of(&self, group: EntityId) -> Option<EntityId> {
        self.level(group).next
    }
    /// The queue that [`Self::pick`] would choose if the one in service expired empty now. This is a hint, because
    /// the expiry may change the order.
    fn next_queue(&self) -> Option<EntityId> {
        let mut at = self.level(EntityId::ROOT).next?;
        while !self.is_queue(at) {
            at = self.level(at).next?;
        }
        Some(at)
    }
    /// Virtual start and finish.
    fn timestamps(&self, id: EntityId) -> (Virtual, Virtual) {
        (self.entity(id).start, self.entity(id).finish)
    }
    /// The virtual time of a class of a group.
    fn virtual_time(&self, group: EntityId, class: Class) -> Virtual {
        self.level(group).trees[class as usize].now
    }
    /// Sum of the weights of a class in a group: active, in service, or remembered.
    fn weight_sum(&self, group: EntityId, class: Class) -> u64 {
        self.level(group).trees[class as usize].weight_sum
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) ^ (*state >> 47)
}

/// A backlogged queue.
fn queue(h: &mut Hierarchy, parent: EntityId, weight: u32, budget: u64) -> EntityId {
    let id = h.add_queue(parent, weight, Class::BestEffort);
    h.set_budget(START, id, Sectors(budget));
    h.activate(START, id, Arrival::Plain);
    id
}

/// Serves whoever is next `service` sectors and queues it again.
fn turn(h: &mut Hierarchy, now: Instant, service: u64) -> EntityId {
    let id = h.pick(now).expect("somebody is backlogged");
    h.served(id, Sectors(service));
    h.requeue(now, id);
    id
}

fn units(n: u64) -> Virtual {
    Virtual(n << SHIFT)
}

/// What must hold between calls, whatever happened.
fn check(h: &Hierarchy) {
    for (index, entity) in h.entities.iter().enumerate().filter(|(_, e)| e.live) {
        let id = EntityId(index as u32);
        let active = matches!(entity.place, Place::Active(_));
        let idle = matches!(entity.place, Place::Idle(_));
        if id != ROOT {
            assert_eq!(entity.counted, entity.busy || idle, "{id:?}");
        }
        if entity.level == QUEUE {
            assert_eq!(entity.busy, active || h.is_in_service(id), "{id:?}");
            continue;
        }
        let level = h.level(id);
        if id != ROOT {
            assert_eq!(active, level.next.is_some(), "{id:?}");
            assert_eq!(entity.busy, active || level.in_service.is_some(), "{id:?}");
            assert_eq!(h.is_in_service(id), level.in_service.is_some(), "{id:?}");
            if let Some(next) = level.next {
                assert_eq!(entity.budget, h.budget(next), "{id:?}");
            }
        }
        for (class, tree) in level.trees.iter().enumerate() {
            let inside =
                h.entities.iter().enumerate().filter(|(i, e)| {
                    e.live && *i != 0 && e.parent == id && e.class as usize == class
                });
            let members: Vec<_> = inside.map(|(_, e)| e).collect();
            let weight = |e: &&&Entity| e.counted;
            let sum: u64 = members.iter().filter(weight).map(|e| u64::from(e.weight)).sum();
            assert_eq!(tree.weight_sum, sum);
            assert_eq!(tree.busy as usize, members.iter().filter(|e| e.busy).count());
        }
    }
}

/// Goal: the example of Bennett and Zhang (1996): one session with half the weight, ten with a
/// twentieth each, all backlogged at once with unit packets. WF2Q+ serves the big one every second
/// packet, where WFQ (the smallest F, eligible or not) sends ten in a row. Method: the order of picks.
#[test]
fn the_big_session_interleaves() {
    let mut h = Hierarchy::new();
    let big = queue(&mut h, ROOT, 10, 1);
    let small: Vec<_> = (0..10).map(|_| queue(&mut h, ROOT, 1, 1)).collect();
    let order: Vec<_> = (0..40).map(|_| turn(&mut h, START, 1)).collect();
    let expected = |i: usize| if i.is_multiple_of(2) { big } else { small[i / 2 % 10] };
    assert_eq!(order, (0..40).map(expected).collect::<Vec<_>>());
    // 40 units over a weight of 20, each rounded down by less than one.
    assert!(units(2).since(h.virtual_time(ROOT, Class::BestEffort)) < 40);
}

/// Goal: nobody lags its share by more than one budget and one request, however much of their budgets
/// queues really use. Method: random weights and uses, all backlogged; checked after each turn.
#[test]
fn shares_hold_within_one_budget_and_one_request() {
    const BUDGET: u64 = 1000;
    const REQUEST: u64 = 100;
    for seed in 1..=40 {
        let state = &mut (seed * 77);
        let weights: Vec<u64> =
            (0..2 + random(state) % 12).map(|_| 1 + random(state) % 50).collect();
        let total: u64 = weights.iter().sum();
        let mut h = Hierarchy::new();
        let ids: Vec<_> = weights.iter().map(|w| queue(&mut h, ROOT, *w as u32, BUDGET)).collect();
        let (mut got, mut all) = (vec![0u64; ids.len()], 0u64);
        for _ in 0..3000 {
            let id = h.pick(START).expect("all are backlogged");
            let at = ids.iter().position(|i| *i == id).expect("one of ours");
            let requests = 1 + random(state) % (BUDGET / REQUEST);
            for _ in 0..requests {
                h.served(id, Sectors(REQUEST));
                got[at] += REQUEST;
                all += REQUEST;
                for (mine, weight) in got.iter().zip(&weights) {
                    let lag = (all * weight) as i64 - (mine * total) as i64;
                    let bound = ((BUDGET + REQUEST) * total) as i64;
                    assert!(lag <= bound, "seed {seed}: {lag} of {bound}, weights {weights:?}");
                }
            }
            h.requeue(START, id);
        }
        check(&h);
    }
}

/// Goal: shares multiply down the groups. Method: three levels, different budgets, long run.
#[test]
fn shares_multiply_down_the_groups() {
    let mut h = Hierarchy::new();
    let a = h.add_group(ROOT, 100, Class::BestEffort);
    let b = h.add_group(ROOT, 300, Class::BestEffort);
    let inner = h.add_group(b, 200, Class::BestEffort);
    // Expected shares in 24ths of the whole.
    let expected = [
        (queue(&mut h, a, 10, 64), 3),
        (queue(&mut h, a, 10, 512), 3),
        (queue(&mut h, b, 100, 128), 6),
        (queue(&mut h, inner, 50, 512), 6),
        (queue(&mut h, inner, 50, 64), 6),
    ];
    let mut got = vec![0u64; h.entities.len()];
    let mut all = 0;
    while all < 1_000_000 {
        let id = h.pick(START).expect("all are backlogged");
        let service = h.budget(id);
        h.served(id, service);
        h.requeue(START, id);
        check(&h);
        got[id.index()] += service.0;
        all += service.0;
    }
    for (id, share) in expected {
        let off = got[id.index()].abs_diff(all * share / 24);
        // One budget and one of a competitor for each of at most three levels.
        assert!(off <= 3 * 2 * 512, "{id:?} got {} of {all}", got[id.index()]);
    }
}

/// Goal: classes are strict, except that the idle class is served every 200 ms. Method: 10 s in turns
/// of 10 ms with one queue a class.
#[test]
fn classes_are_strict_but_idle_never_starves() {
    let mut h = Hierarchy::new();
    let [rt, be, idle] = Class::ALL.map(|class| {
        let id = h.add_queue(ROOT, 10, class);
        h.set_budget(START, id, Sectors(8));
        h.activate(START, id, Arrival::Plain);
        id
    });
    let run = |h: &mut Hierarchy, from: u64| {
        let mut counts = [0; 3];
        for ms in 0..1000 {
            let id = turn(h, START + Nanos::from_millis(from + ms * 10), 8);
            counts[[rt, be, idle].iter().position(|i| *i == id).expect("ours")] += 1;
        }
        counts
    };
    // Found due at the first requeueing more than 200 ms after its last turn: every 22nd turn.
    assert_eq!(run(&mut h, 0), [955, 0, 45]);
    h.deactivate(START + Nanos::from_secs(10), rt, Leave::Remembered);
    assert_eq!(h.busy_queues(Class::RealTime), 0);
    let counts = run(&mut h, 10_000);
    assert_eq!((counts[0], counts[1] + counts[2]), (0, 1000));
    assert!((45..=46).contains(&counts[2]), "{counts:?}");
    h.deactivate(START + Nanos::from_secs(20), be, Leave::Remembered);
    assert_eq!(run(&mut h, 20_000), [0, 0, 1000]);
}

/// Goal: where moves are charged, a group in service pays for all service of its slot again whenever another of its queues
/// becomes active or empty; otherwise once. Method: worked numbers, with weights of 1: 4 sectors of one queue, then twice a
/// sector of another one, which comes and goes.
#[test]
fn moves_of_a_group_in_service_may_be_charged() {
    for (charges, finish) in [(false, 6), (true, 4 + 5 + 5 + 6 + 6)] {
        let mut h = Hierarchy::new();
        if charges {
            h.charge_moves();
        }
        let group = h.add_group(ROOT, 1, Class::BestEffort);
        let served = queue(&mut h, group, 1, 10);
        assert_eq!(h.pick(START), Some(served));
        h.served(served, Sectors(4));
        let other = h.add_queue(group, 1, Class::BestEffort);
        for _ in 0..2 {
            h.set_budget(START, other, Sectors(10));
            h.activate(START, other, Arrival::Plain);
            h.served(other, Sectors(1));
            h.deactivate(START, other, Leave::Remembered);
        }
        h.deactivate(START, served, Leave::Remembered);
        assert_eq!(h.timestamps(group).1, units(finish), "{charges}");
        check(&h);
    }
}

/// Two queues; the first left early at F = 4 and the other was served until V = 10.
fn one_away() -> (Hierarchy, EntityId, EntityId) {
    let mut h = Hierarchy::new();
    let a = queue(&mut h, ROOT, 1, 10);
    let b = queue(&mut h, ROOT, 1, 10);
    assert_eq!(h.pick(START), Some(a));
    h.served(a, Sectors(4));
    assert_eq!(h.virtual_time(ROOT, Class::BestEffort), units(2));
    h.deactivate(START, a, Leave::Remembered);
    assert_eq!(
        h.timestamps(a),
        (units(0), units(4)),
        "charged for what it received, not its budget"
    );
    assert_eq!(h.weight_sum(ROOT, Class::BestEffort), 2, "its finish lies ahead: remembered");
    assert_eq!(h.service(a), Sectors(4), "still readable");
    assert_eq!(turn(&mut h, START, 10), b);
    assert_eq!(h.weight_sum(ROOT, Class::BestEffort), 1, "forgotten");
    assert_eq!(h.virtual_time(ROOT, Class::BestEffort), units(10), "jumped to b's start");
    (h, a, b)
}

/// Goal: a queue whose next request arrived in time goes on as if it had not left; not so for others,
/// and not with more than the present allows. Method: worked numbers.
#[test]
fn back_shifting() {
    let (mut h, a, b) = one_away();
    h.activate(START, a, Arrival::Plain);
    assert_eq!(h.timestamps(a), (units(10), units(20)));
    assert_eq!(h.next_queue(), Some(b), "b has the same finish and was there first");

    let (mut h, a, _) = one_away();
    h.activate(START, a, Arrival::InTime { raising: 1 });
    assert_eq!(h.timestamps(a), (units(4), units(14)));
    assert_eq!(h.next_queue(), Some(a));

    // F = 4 + 2 lies 4 below V: moved up by 4, or by a quarter of it when raised fourfold.
    for (raising, expected) in [(1, (8, 10)), (4, (5, 7))] {
        let (mut h, a, _) = one_away();
        h.set_budget(START, a, Sectors(2));
        h.activate(START, a, Arrival::InTime { raising });
        assert_eq!(h.timestamps(a), (units(expected.0), units(expected.1)));
    }
}

/// Turns of half a budget, after which the second queue leaves and comes back at once, against whole
/// budgets of one that stays.
fn leaving_and_coming_back(arrival: Arrival) -> [u64; 2] {
    let mut h = Hierarchy::new();
    let stays = queue(&mut h, ROOT, 1, 100);
    let leaves = queue(&mut h, ROOT, 1, 100);
    let mut got = [0; 2];
    for _ in 0..1000 {
        let id = h.pick(START).expect("both are backlogged");
        let service = if id == stays { 100 } else { 50 };
        h.served(id, Sectors(service));
        got[usize::from(id == leaves)] += service;
        if id == stays {
            h.requeue(START, id);
        } else {
            h.deactivate(START, id, Leave::Remembered);
            h.activate(START, id, arrival);
        }
    }
    got
}

/// Goal: leaving gains nothing, and who comes back in time loses nothing (it otherwise forfeits what
/// it lagged behind). Method: a thousand turns for the same weight, both ways of coming back.
#[test]
fn leaving_gains_nothing_and_coming_back_in_time_loses_nothing() {
    let [stays, leaves] = leaving_and_coming_back(Arrival::Plain);
    assert!(leaves <= stays + 100, "{stays} {leaves}");
    let [stays, leaves] = leaving_and_coming_back(Arrival::InTime { raising: 1 });
    assert!(leaves.abs_diff(stays) <= 200, "{stays} {leaves}");
}

/// Goal: weights and classes asked for count from the next entry into the tree; `apply_weight` counts
/// for the sum at once. Method: worked numbers.
#[test]
fn weights_count_from_the_next_entry() {
    let mut h = Hierarchy::new();
    let a = queue(&mut h, ROOT, 1, 30);
    let b = queue(&mut h, ROOT, 1, 30);
    h.set_weight(a, 3);
    assert_eq!((h.weight(a), h.weight_sum(ROOT, Class::BestEffort)), (1, 2));
    assert_eq!(turn(&mut h, START, 30), a);
    assert_eq!((h.weight(a), h.weight_sum(ROOT, Class::BestEffort)), (3, 4));
    assert_eq!(h.timestamps(a), (units(30), units(40)), "charged at 1, queued at 3");
    assert_eq!(h.pick(START), Some(b));
    h.set_weight(b, 5);
    h.apply_weight(b);
    assert_eq!((h.weight(b), h.weight_sum(ROOT, Class::BestEffort)), (5, 8));
    h.set_class(b, Class::RealTime);
    h.served(b, Sectors(30));
    assert_eq!(h.class(b), Class::BestEffort);
    h.requeue(START, b);
    assert_eq!(h.class(b), Class::RealTime);
    assert_eq!(h.timestamps(b), (units(0), units(6)), "starts at the other class's time");
    assert_eq!(h.weight_sum(ROOT, Class::BestEffort), 3);
    assert_eq!((h.busy_queues(Class::RealTime), h.busy_queues(Class::BestEffort)), (1, 1));
    check(&h);
}

/// Goal: preemption is worth a thought only when the root would serve somebody else; a group in
/// service with more to serve stays a candidate, and charges its service once. Method: by hand.
#[test]
fn next_in_service_is_known_while_somebody_is_served() {
    let mut h = Hierarchy::new();
    let group = h.add_group(ROOT, 10, Class::BestEffort);
    let a = queue(&mut h, group, 10, 100);
    assert_eq!(h.pick(START), Some(a));
    assert!(!h.next_may_preempt() && h.next_of(ROOT).is_none());
    h.served(a, Sectors(60));
    let b = queue(&mut h, group, 10, 200);
    assert_eq!((h.next_of(ROOT), h.next_queue()), (Some(group), Some(b)));
    assert!(!h.next_may_preempt(), "the root serves the same group");
    assert_eq!(h.budget(group), Sectors(200), "that of its next entity");
    let rt = h.add_queue(ROOT, 1, Class::RealTime);
    h.activate(START, rt, Arrival::Plain);
    assert!(h.next_may_preempt());
    assert_eq!(h.next_queue(), Some(rt));
    h.deactivate(START, rt, Leave::Forgotten);
    h.served(a, Sectors(40));
    h.requeue(START, a);
    assert_eq!(h.timestamps(group).0, units(10), "100 sectors over weight 10");
    assert_eq!(h.in_service(), None);
    check(&h);
}

/// Goal: time charging raises service and budget; what was injected is charged to the queue and its
/// groups before their next turn. Method: by hand.
#[test]
fn extra_service_is_charged() {
    let mut h = Hierarchy::new();
    let a = queue(&mut h, ROOT, 1, 100);
    let b = queue(&mut h, ROOT, 1, 100);
    assert_eq!(h.pick(START), Some(a));
    h.served(a, Sectors(10));
    h.charge_up_to(a, Sectors(150));
    assert_eq!((h.service(a), h.budget(a)), (Sectors(150), Sectors(150)));
    h.charge_up_to(a, Sectors(70));
    assert_eq!(h.service(a), Sectors(150), "never less");
    h.served(b, Sectors(20));
    assert_eq!((h.service(b), h.budget_left(b)), (Sectors(20), Sectors(80)));
    h.requeue(START, a);
    assert_eq!(h.timestamps(a).0, units(150));
    assert_eq!(h.pick(START), Some(b));
    h.requeue(START, b);
    assert_eq!(h.timestamps(b).0, units(20), "the injected service");
}

/// Goal: ids are used again, moves keep a queue active, removal leaves nothing. Method: by hand.
#[test]
fn ids_are_reused_and_queues_move() {
    let mut h = Hierarchy::new();
    let a = h.add_group(ROOT, 100, Class::BestEffort);
    let b = h.add_group(ROOT, 100, Class::BestEffort);
    let q = queue(&mut h, a, 10, 8);
    h.reparent(START, q, b);
    check(&h);
    assert!(!h.is_busy(a) && h.is_busy(b) && h.is_busy(q));
    assert_eq!(turn(&mut h, START, 8), q);
    h.deactivate(START, q, Leave::Remembered);
    h.reparent(START, b, a);
    h.remove(q);
    h.remove(b);
    h.remove(a);
    check(&h);
    assert_eq!(h.add_queue(ROOT, 1, Class::Idle), a);
    assert_eq!(h.add_group(ROOT, 1, Class::Idle), b);
    assert_eq!(h.weight_sum(ROOT, Class::BestEffort) + h.weight_sum(ROOT, Class::Idle), 0);
}

/// Goal: 100,000 queues in 1,000 groups work, and everybody gets its turn. Method: three rounds.
#[test]
fn a_hundred_thousand_queues() {
    let mut h = Hierarchy::new();
    let groups: Vec<_> = (0..1000).map(|_| h.add_group(ROOT, 100, Class::BestEffort)).collect();
    for i in 0..100_000 {
        queue(&mut h, groups[i % 1000], 40, 8);
    }
    let mut turns = vec![0u8; h.entities.len()];
    for _ in 0..300_000 {
        turns[turn(&mut h, START, 8).index()] += 1;
    }
    assert!(turns[1..].iter().filter(|t| **t > 0).all(|t| *t == 3));
    assert_eq!(h.busy_queues_total(), 100_000);
}

/// The hierarchy and the model side by side.
struct Pair {
    hierarchy: Hierarchy,
    model: Model,
    epoch: u64,
    serving: Option<usize>,
    now: Instant,
}

impl Pair {
    fn new(seed: u64) -> (Self, u64) {
        let mut state = seed * 1_000_003;
        // Half of the seeds wrap around within the first turns.
        let epoch = if seed.is_multiple_of(2) { u64::MAX - (random(&mut state) << 8) } else { 0 };
        let mut hierarchy = Hierarchy::new();
        hierarchy.set_epoch(epoch);
        let mut model = Model::new(epoch);
        if seed.is_multiple_of(3) {
            hierarchy.charge_moves();
            model.charges = true;
        }
        let mut groups = vec![0];
        for i in 1..=3 + random(&mut state) % 20 {
            let parent = groups[random(&mut state) as usize % groups.len()];
            let weight = 1 + random(&mut state) as u32 % 100;
            let class = Class::ALL[[1, 1, 0, 2][random(&mut state) as usize % 4]];
            let is_group = random(&mut state).is_multiple_of(3);
            model.add(parent, is_group, weight, class);
            let parent = EntityId(parent as u32);
            if is_group {
                groups.push(i as usize);
                hierarchy.add_group(parent, weight, class);
                hierarchy.set_epoch_of(EntityId(i as u32), epoch);
            } else {
                hierarchy.add_queue(parent, weight, class);
            }
        }
        (Self { hierarchy, model, epoch, serving: None, now: START }, state)
    }
    fn step(&mut self, state: &mut u64) {
        let i = 1 + random(state) as usize % (self.model.items.len() - 1);
        let (id, now) = (EntityId(i as u32), self.now);
        let (is_group, busy) = (self.model.items[i].is_group, self.model.items[i].busy);
        let amount = 1 + random(state) % 64;
        let leave =
            if random(state).is_multiple_of(4) { Leave::Forgotten } else { Leave::Remembered };
        match random(state) % 10 {
            0 => {
                let wanted = (amount as u32, Class::ALL[random(state) as usize % 3]);
                self.hierarchy.set_weight(id, wanted.0);
                self.hierarchy.set_class(id, wanted.1);
                self.model.items[i].wanted = wanted;
            }
            1 if !is_group => {
                self.hierarchy.set_budget(now, id, Sectors(amount));
                self.model.set_budget(now, i, amount);
            }
            2..=4 if !is_group && !busy => {
                let raising = 1 + amount as u32 % 3;
                let in_time = Arrival::InTime { raising };
                let arrival = if amount > 32 { Arrival::Plain } else { in_time };
                self.hierarchy.activate(now, id, arrival);
                self.model.activate(now, i, arrival);
            }
            5 if !is_group && busy => {
                self.hierarchy.served(id, Sectors(amount));
                self.model.served(i, amount);
            }
            6 if !is_group && busy => {
                self.hierarchy.deactivate(now, id, leave);
                self.model.deactivate(now, i, leave);
                self.serving = self.serving.filter(|s| *s != i);
            }
            7 => self.now += Nanos::from_millis(amount),
            _ => match self.serving.take() {
                Some(i) => {
                    self.hierarchy.served(EntityId(i as u32), Sectors(amount));
                    self.model.served(i, amount);
                    self.hierarchy.requeue(now, EntityId(i as u32));
                    self.model.requeue(now, i);
                }
                None => {
                    self.serving = self.model.pick(now);
                    let picked = self.hierarchy.pick(now).map(EntityId::index);
                    assert_eq!(picked, self.serving);
                }
            },
        }
    }
    fn compare(&self) {
        for (i, item) in self.model.items.iter().enumerate() {
            let id = EntityId(i as u32);
            let h = &self.hierarchy;
            let entity = h.entity(id);
            assert_eq!(entity.budget.0, item.budget, "{i}");
            assert_eq!(entity.service.0, item.service, "{i}");
            assert_eq!((entity.busy, entity.counted), (item.busy, item.counted), "{i}");
            let active = matches!(entity.place, Place::Active(_));
            assert_eq!(active, matches!(item.state, State::Active(_)), "{i}");
            if item.counted {
                assert_eq!(entity.start.0, item.start as u64, "{i}, epoch {}", self.epoch);
                assert_eq!(entity.finish.0, item.finish as u64, "{i}, epoch {}", self.epoch);
            }
            if item.is_group {
                assert_eq!(h.next_of(id).map(EntityId::index), item.next, "next of {i}");
                assert_eq!(h.in_service_of(id).map(EntityId::index), item.in_service, "{i}");
                for class in Class::ALL {
                    let clock = item.clocks[class as usize] as u64;
                    assert_eq!(h.virtual_time(id, class).0, clock, "{i} {class:?}");
                    assert_eq!(h.weight_sum(id, class), self.model.weight_sum(i, class), "{i}");
                }
            }
        }
    }
}

/// Goal: trees, summaries and wrapping arithmetic give what plain lists and wide integers give.
/// Method: random trees and operations over many seeds, everything compared after each step.
#[test]
fn agrees_with_a_naive_model() {
    for seed in 1..=300 {
        let (mut pair, mut state) = Pair::new(seed);
        for _ in 0..300 {
            pair.step(&mut state);
            pair.compare();
        }
        check(&pair.hierarchy);
    }
}

impl Hierarchy {
    /// Starts the root's virtual times at `epoch`.
    fn set_epoch(&mut self, epoch: u64) {
        self.set_epoch_of(ROOT, epoch);
    }
    fn set_epoch_of(&mut self, group: EntityId, epoch: u64) {
        for tree in &mut self.level_mut(group).trees {
            tree.now = Virtual(epoch);
        }
    }
}
