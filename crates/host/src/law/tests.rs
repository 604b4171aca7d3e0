//! Tests of the control law on simulated drives.

use super::*;

/// How much a drive gives to a group that asks for `demand`, beside others that get this much.
type Drive = fn(others: u64, demand: u64) -> u64;

/// What others get without a ceiling.
const FREE: u64 = 500_000_000;
const MIN: u64 = 10_000_000;

/// A fast drive that divides its time, one with a cliff, a disk whose seeks cost more the more there are.
const DRIVES: [(&str, Drive); 3] = [
    ("linear", |others, demand| demand.min(24_000_000 * (FREE * 21 / 20 - others) / FREE)),
    ("cliff", |others, demand| {
        demand.min(if others > 200_000_000 { 1_500_000 } else { 20_000_000 })
    }),
    ("convex", |others, demand| {
        let rest = (FREE * 21 / 20 - others) / 1_000_000;
        demand.min(rest * rest * 96)
    }),
];

/// A repeatable disturbance of up to 5 %, by step.
fn noise(step: u64) -> u64 {
    950 + (step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
        >> 33)
        % 100
}

/// Runs it; the rates of group and others by step.
fn simulate(drive: Drive, demand: impl Fn(u64) -> u64, steps: u64) -> Vec<(u64, u64)> {
    let (mut law, mut ceiling) = (Law::default(), None);
    let mut rates = Vec::new();
    for step in 0..steps {
        let others: u64 = ceiling.unwrap_or(FREE).min(FREE);
        let rate = times(drive(others, demand(step)), noise(step));
        rates.push((rate, others));
        ceiling = law.step(&[Promised { min: MIN, rate, ..Promised::default() }], others);
    }
    rates
}

/// Goal: on drives that it has never seen, the law finds a ceiling that keeps the minimum, stays there, and leaves the
/// others most of what is possible. Method: three shapes with noise; after 40 steps the minimum is kept in nine of ten
/// steps, the ceiling moves by less than a fifth of its mean, and the others get 70 % of the best ceiling.
#[test]
fn it_converges_on_drives_that_it_has_never_seen() {
    for (name, drive) in DRIVES {
        let ceilings = (0..=500).map(|megabytes| megabytes * 1_000_000);
        let best = ceilings.filter(|ceiling| drive(*ceiling, u64::MAX) >= MIN).max();
        let rates = simulate(drive, |_| u64::MAX, 300);
        let late = &rates[40..];
        let kept = late.iter().filter(|step| step.0 >= times(MIN, 950)).count();
        assert!(kept * 10 >= late.len() * 9, "{name}: kept in {kept} of {} steps", late.len());
        let mean = late.iter().map(|step| step.1).sum::<u64>() / late.len() as u64;
        assert!(mean >= times(best.unwrap(), 700), "{name}: others get {mean} of {best:?}");
        let last = rates[200..].iter().map(|step| step.1);
        let swing = last.clone().max().unwrap() - last.min().unwrap();
        assert!(swing < mean * 2 / 5, "{name}: swings by {swing} around {mean}");
    }
}

/// Goal: a group that asks for less than its minimum does not cost the others their rate for ever. Method: it asks for a
/// tenth; the others' mean rate; the canary is the same with full demand on the cliff.
#[test]
fn cuts_that_do_not_help_are_taken_back() {
    for (name, drive) in DRIVES {
        let rates = simulate(drive, |_| 1_000_000, 600);
        let mean = rates.iter().map(|step| step.1).sum::<u64>() / 600;
        assert!(mean > FREE / 2, "{name}: others get {mean}");
    }
    let held = simulate(DRIVES[1].1, |_| u64::MAX, 600);
    assert!(held.iter().map(|step| step.1).sum::<u64>() / 600 < FREE / 2);
}

/// Goal: with pressure information, a group that does not wait costs nothing. Method: below the minimum without waiting.
#[test]
fn a_group_that_does_not_wait_costs_nothing() {
    let mut law = Law::default();
    let idle = Promised { min: MIN, rate: 1000, waits: Some(false), slow: false };
    assert!((0..50).all(|_| law.step(&[idle], FREE).is_none()));
    let stuck = Promised { rate: 0, waits: Some(true), ..idle };
    assert!(law.step(&[stuck], FREE).is_none(), "once may be a start");
    assert!(law.step(&[stuck], FREE).is_some(), "it waits and gets nothing");
}

/// Goal: a missed latency is a broken promise. Method: slow at any rate of the others above 100 MB/s.
#[test]
fn a_latency_is_kept() {
    let (mut law, mut ceiling) = (Law::default(), None);
    for _ in 0..60 {
        let others: u64 = ceiling.unwrap_or(FREE).min(FREE);
        let rate = 5_000_000 + (FREE - others) / 100;
        ceiling = law.step(
            &[Promised { min: 0, rate, waits: Some(true), slow: others > 100_000_000 }],
            others,
        );
    }
    let held = ceiling.unwrap();
    assert!((50_000_000..115_000_000).contains(&held), "{held}");
}

/// Goal: without an active group the ceiling goes. Method: the group ends.
#[test]
fn the_ceiling_goes_with_the_group() {
    let mut law = Law::default();
    let active = Promised { min: MIN, rate: 1_000_000, ..Promised::default() };
    assert!(law.step(&[active], FREE).is_none() && law.step(&[active], FREE).is_some());
    let idle = Promised { rate: 0, ..active };
    let ceilings: Vec<_> = (0..5).map(|_| law.step(&[idle], FREE)).collect();
    assert!(ceilings[0].is_some() && ceilings[4].is_none());
}

/// Goal: a ceiling is divided by weight, and what one does not use goes to the others. Method: worked examples.
#[test]
fn a_ceiling_is_divided_by_weight() {
    assert_eq!(divide(400, &[(100, 400), (300, 400)]), [100, 300]);
    let parts = divide(400, &[(100, 400), (300, 30)]);
    assert!(parts[1] >= 40 && parts[0] >= 300 && parts.iter().sum::<u64>() <= 400, "{parts:?}");
    assert_eq!(divide(400, &[(100, 0)]), [400]);
    assert_eq!(divide(0, &[]), Vec::<u64>::new());
}
