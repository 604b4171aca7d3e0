//! Worked examples of the study that the rule comes from, and what must hold for every set.

use super::*;
use alloc::format;
use alloc::string::ToString;

const MB: u64 = 1_000_000;
const PLEXTOR: Attainable = drive(535 * MB, 386 * MB, 23_550_000, 1_400);
const SAMSUNG: Attainable = drive(3480 * MB, 2300 * MB, 61_300_000, 900);
const NVME: Attainable = drive(2500 * MB, 1400 * MB, 42_700_000, 300);
/// One client alone in 500 MB.
const HITACHI: Attainable = drive(60 * MB, 60 * MB, 483_000, 12_000);

const fn drive(reads: u64, writes: u64, alone: u64, micros: u64) -> Attainable {
    Attainable {
        reads,
        writes,
        alone,
        small: None,
        latency: Latency::of_reads(Nanos::from_micros(micros)),
    }
}
fn group(name: &str, min: u64) -> Claimant {
    Claimant { name: name.into(), min: Some(min), ..Claimant::default() }
}
fn equal(count: usize, min: u64) -> Vec<Claimant> {
    (0..count).map(|number| group(&format!("g{number}"), min)).collect()
}

/// Goal: what the lab kept is admitted, what it did not is refused. Method: minimums of one group, and of sixteen.
#[test]
fn worked_examples() {
    for (drive, fits, refused) in [
        (PLEXTOR, 20 * MB, 24 * MB),
        (SAMSUNG, 50 * MB, 59 * MB),
        (NVME, 40 * MB, 41 * MB),
        (HITACHI, 483_000 / 2, 483_000),
    ] {
        assert_eq!(check(&drive, &[group("g", fits)]), Ok(()), "{drive:?}");
        check(&drive, &[group("g", refused)]).expect_err("more than a client reaches");
    }
    // 95 % of 23.55 MB/s.
    assert_eq!(check(&PLEXTOR, &[group("g", 22_372_000)]), Ok(()));
    check(&PLEXTOR, &[group("g", 23 * MB)]).expect_err("nothing is left to be late with");
    // The survey's contracts: one reads at random, the others write or read in order. 10 / 23.55 + 150 / 386.
    assert_eq!(check(&PLEXTOR, &equal(16, 10 * MB)), Ok(()));
    // A random reader of 10 MB/s and as much of all else as the drive has time for: 0.525 x 386.
    assert_eq!(check(&PLEXTOR, &equal(20, 10 * MB)), Ok(()));
    check(&PLEXTOR, &equal(22, 10 * MB)).expect_err("10 / 23.55 + 210 / 386");
    // If all read small blocks: 10 / 23.55 + 150 / 290, and one group more.
    let small = Attainable { small: Some(290 * MB), ..PLEXTOR };
    assert_eq!(check(&small, &equal(16, 10 * MB)), Ok(()));
    check(&small, &equal(17, 10 * MB)).expect_err("10 / 23.55 + 160 / 290");
    // A disk has one arm.
    assert_eq!(check(&HITACHI, &equal(4, 100_000)), Ok(()));
    check(&HITACHI, &equal(5, 100_000)).expect_err("5 x 100 of 483");
    assert!(HITACHI.has_head() && !PLEXTOR.has_head());
}

/// Goal: a group that says what it reaches alone is counted with that. Method: a stream, a reader that is slower than
/// the drive's, and one with more requests at once.
#[test]
fn groups_that_say_what_they_reach() {
    let says = |min, alone| Claimant { alone: Some(alone), ..group("g", min) };
    assert_eq!(check(&PLEXTOR, &[says(300 * MB, 400 * MB)]), Ok(()), "300 / 386");
    check(&PLEXTOR, &[says(370 * MB, 400 * MB)]).expect_err("370 / 386");
    assert_eq!(check(&PLEXTOR, &[says(90 * MB, 100 * MB)]), Ok(()), "90 / 100");
    check(&PLEXTOR, &[says(10 * MB, 10 * MB)]).expect_err("all of its time");
    assert_eq!(check(&PLEXTOR, &[says(190 * MB, 400 * MB), group("h", 10 * MB)]), Ok(()));
    check(&PLEXTOR, &[says(220 * MB, 400 * MB), group("h", 10 * MB)]).expect_err("0.42 + 0.57");
    let small = Attainable { small: Some(100 * MB), ..PLEXTOR };
    let (many, stream) = (group("small", 60 * MB), says(60 * MB, 400 * MB));
    let says_small = |min| Claimant { alone: Some(100 * MB), ..group("h", min) };
    assert_eq!(check(&small, &[stream, says_small(60 * MB)]), Ok(()), "60 / 386 + 60 / 100");
    check(&small, &[Claimant { alone: Some(100 * MB), ..many }, says_small(60 * MB)])
        .expect_err("60 / 100 + 60 / 100");
    assert_eq!(check(&HITACHI, &[says(30 * MB, 60 * MB), group("h", 200_000)]), Ok(()));
    check(&HITACHI, &[says(40 * MB, 60 * MB), group("h", 200_000)]).expect_err("0.67 + 0.41");
}

/// Goal: minimums that take exactly what may be promised are admitted, whatever they are divided into, and a little more is
/// not. Method: 95 % of a disk and of flash in 1 to 50 parts, the same with a group around them.
#[test]
fn what_may_be_promised_may_be_divided() {
    let disk = drive(60 * MB, 60 * MB, 1_000_000, 12_000);
    let flash = Attainable { small: Some(100 * MB), ..drive(500 * MB, 400 * MB, 100 * MB, 100) };
    for (drive, most) in [(disk, 950_000), (flash, 95 * MB)] {
        for parts in 1..=50u64 {
            let mut groups = equal(parts as usize, most / parts);
            groups[0].min = Some(most - most / parts * (parts - 1));
            assert_eq!(check(&drive, &groups), Ok(()), "{parts} parts of {most}");
            let parent = Claimant { name: "p".into(), min: Some(most), ..Claimant::default() };
            let inside = groups.iter().map(|group| Claimant { parent: Some(0), ..group.clone() });
            let nested: Vec<_> = core::iter::once(parent).chain(inside).collect();
            assert_eq!(check(&drive, &nested), Ok(()), "{parts} parts of {most} in a group");
            groups[0].min = groups[0].min.map(|min| min + most / 1000);
            check(&drive, &groups).expect_err("a thousandth more");
        }
    }
}

/// Goal: a refusal names the group, what it asks, what all ask, and what would fit beside the others. Method: the group that
/// asks most; a new one, which is asked to give way; and sets in which no single group is the reason.
#[test]
fn refusals_name_what_fits() {
    let mut groups = equal(2, 10 * MB);
    groups.push(group("tenants/c", 200 * MB));
    let refusal = check(&PLEXTOR, &groups).expect_err("200 of 23.55");
    assert_eq!(refusal.group(), "tenants/c");
    let told = refusal.to_string();
    assert!(
        told.contains("group \"tenants/c\": 200.00 MB/s cannot be kept beside 2 other minimums"),
        "{told}"
    );
    assert!(told.contains("855 % of the drive's time, and at most 95 %"), "{told}");
    // 0.95 - 20 / 386 of 23.55.
    let fitting = refusal.fitting().to_string();
    assert_eq!(fitting, "at most 21.15 MB/s, or all minimums at 11 % of what they are");
    let mut groups = [group("old", 20 * MB), Claimant { is_new: true, ..group("new", 60 * MB) }];
    let refusal = check(&PLEXTOR, &groups).expect_err("60 of 23.55");
    assert_eq!(refusal.group(), "new");
    assert!(refusal.fitting().to_string().starts_with("at most 21.15 MB/s, or"), "{refusal}");
    groups[1] = Claimant { is_new: true, ..group("new", 10 * MB) };
    groups[0].alone = Some(20_500_000);
    let refusal = check(&PLEXTOR, &groups).expect_err("20 of 20.5");
    assert_eq!(refusal.group(), "new", "it is not for the old group to give way: {refusal}");
    assert!(refusal.fitting().to_string().starts_with("no minimum beside the others"), "{refusal}");
    let refusal = check(&PLEXTOR, &equal(20, 30 * MB)).expect_err("each more than it reaches");
    let Unattainable::Minimum { fits: 0, scaled: 34, others: 19, .. } = &refusal else {
        panic!("{refusal:?}")
    };
    assert!(refusal.fitting().to_string().contains("all minimums at 34 %"), "{refusal}");
}

/// Goal: inside a group no more is promised than it has, and it counts once. Method: a tree with and without a minimum at
/// the top, and one that promises too much inside.
#[test]
fn trees() {
    let tree = |own: Option<u64>, inside: [u64; 2]| {
        let mut groups = alloc::vec![Claimant { min: own, ..group("t", 0) }];
        for (number, min) in inside.into_iter().enumerate() {
            let name = format!("t/{number}");
            groups.push(Claimant { parent: Some(0), ..group(&name, min) });
        }
        groups
    };
    assert_eq!(check(&PLEXTOR, &tree(Some(20 * MB), [10 * MB, 10 * MB])), Ok(()));
    assert_eq!(check(&PLEXTOR, &tree(None, [20 * MB, 20 * MB])), Ok(()), "20 / 23.55 + 20 / 386");
    check(&PLEXTOR, &tree(Some(24 * MB), [MB, MB])).expect_err("one client may want all of it");
    let refusal = check(&PLEXTOR, &tree(Some(15 * MB), [10 * MB, 6 * MB])).expect_err("16 of 15");
    assert_eq!(
        refusal.to_string(),
        "group \"t/0\": 10.00 MB/s cannot be kept inside \"t\", which has 15.00 MB/s for all in it"
    );
    assert_eq!(refusal.fitting().to_string(), "at most 9.00 MB/s");
    // What is new gives way, even if nothing is left for it, and so does a parent that has less than before.
    let mut full = tree(Some(15 * MB), [15 * MB, 2 * MB]);
    full[2].is_new = true;
    let refusal = check(&PLEXTOR, &full).expect_err("17 of 15");
    assert_eq!(refusal.group(), "t/1", "{refusal}");
    assert_eq!(refusal.fitting().to_string(), "no minimum beside the others inside");
    (full[0].is_new, full[2].is_new) = (true, false);
    let refusal = check(&PLEXTOR, &full).expect_err("17 of 15");
    assert_eq!(
        refusal.to_string(),
        "group \"t\": 15.00 MB/s is below the minimums inside, 17.00 MB/s in all"
    );
    assert_eq!(refusal.fitting().to_string(), "at least 17.00 MB/s");
    check(&HITACHI, &tree(Some(400_000), [200_000, 200_000])).expect("they share its time");
    let mut slow = tree(Some(400_000), [200_000, 200_000]);
    slow[1].alone = Some(300_000);
    check(&HITACHI, &slow).expect_err("200 / 300 + 200 / 483");
}

/// Goal: a minimum in I/Os a second counts as small reads, and so is what would fit. Method: contracts with one, and with both
/// units.
#[test]
fn minimums_in_ios() {
    let both = |min, min_iops| {
        let contract = Contract { min, min_iops, ..Contract::default() };
        [Claimant::new("g", &contract, None)]
    };
    assert_eq!(check(&PLEXTOR, &both(None, Some(5_000))), Ok(()), "20.5 MB/s");
    let refusal = check(&PLEXTOR, &both(None, Some(6_000))).expect_err("24.6 MB/s");
    assert!(refusal.to_string().contains("group \"g\": 6000 I/Os a second cannot"), "{refusal}");
    assert_eq!(refusal.fitting().to_string(), "at most 5462 I/Os a second");
    assert_eq!(check(&PLEXTOR, &both(None, Some(5_462))), Ok(()));
    let refusal = check(&PLEXTOR, &both(Some(30 * MB), Some(6_000))).expect_err("30 MB/s");
    assert!(refusal.fitting().to_string().starts_with("at most 22.37 MB/s"), "{refusal}");
}

/// Goal: a latency below the drive's is refused with the drive's. Method: just below and at it.
#[test]
fn latencies() {
    let wants = |micros| Claimant {
        name: "g".into(),
        latency: Latency::of_reads(Nanos::from_micros(micros)),
        ..Claimant::default()
    };
    assert_eq!(check(&PLEXTOR, &[wants(1_400)]), Ok(()));
    let refusal = check(&PLEXTOR, &[wants(1_000)]).expect_err("below 1.4 ms");
    assert!(refusal.to_string().contains("latency of 1ms cannot be kept"), "{refusal}");
    assert_eq!(refusal.fitting().to_string(), "at least 1.400ms");
    check(&HITACHI, &[wants(11_000)]).expect_err("below 12 ms");
    assert_eq!(check(&Attainable { latency: Latency::NONE, ..PLEXTOR }, &[wants(1)]), Ok(()));
}

/// Goal: extreme numbers neither overflow nor pass. Method: the largest of each.
#[test]
fn extremes() {
    for drive in [PLEXTOR, HITACHI, drive(0, 0, 0, 0), drive(u64::MAX, u64::MAX, u64::MAX, 1)] {
        for alone in [None, Some(0), Some(u64::MAX)] {
            let most = Claimant { alone, ..group("g", u64::MAX) };
            let refusal = check(&drive, &[most.clone(), most]).expect_err("far too much");
            assert!(!refusal.to_string().is_empty() && !refusal.fitting().to_string().is_empty());
        }
    }
    assert_eq!(check(&drive(0, 0, 0, 0), &[]), Ok(()), "nobody was promised anything");
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
    /// About as many small ones as large ones.
    fn scale(&mut self, low: u64, high: u64) -> u64 {
        let doublings = u64::from((high / low).ilog2());
        let base = low << self.below(doublings + 1);
        (base + self.below(base)).min(high)
    }
    fn drive(&mut self) -> Attainable {
        let reads = self.scale(50 * MB, 8_000 * MB);
        let writes = self.scale(20 * MB, reads.max(40 * MB));
        let small = (self.below(2) == 0).then(|| self.scale(20 * MB, reads));
        Attainable { small, ..drive(reads, writes, self.scale(300_000, 20 * MB), 1_000) }
    }
    fn groups(&mut self) -> Vec<Claimant> {
        let mut groups: Vec<Claimant> = Vec::new();
        for number in 0..self.below(12) + 1 {
            let parent = (number > 0 && self.below(3) == 0)
                .then(|| usize::try_from(self.below(number)).expect("small"));
            let name = format!("g{number}");
            let min = (self.below(4) > 0).then(|| self.scale(10_000, 100 * MB) & !1023);
            let alone = (self.below(3) == 0).then(|| self.scale(100_000, 1_000 * MB));
            let is_new = self.below(3) == 0;
            let in_ios = self.below(2) == 0;
            groups.push(Claimant {
                name,
                parent,
                min,
                in_ios,
                alone,
                latency: Latency::NONE,
                is_new,
            });
        }
        groups
    }
}

/// Goal: whoever does what a refusal says is admitted; a set of which everything is scaled down stays admitted, and
/// one that is refused stays refused when it asks for more. Method: random drives and trees; each refusal is followed, which
/// takes one step where the value is the last word.
#[test]
fn what_a_refusal_names_fits() {
    let (mut refused, mut admitted) = (0, 0);
    for seed in 1..=2_000 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let (drive, mut groups) = (random.drive(), random.groups());
        let mut steps = 0;
        while let Err(refusal) = check(&drive, &groups) {
            refused += 1;
            steps += 1;
            assert!(steps <= 3 * groups.len() + 2, "{seed}: {refusal:?}");
            let index =
                groups.iter().position(|group| group.name == refusal.group()).expect("named");
            match refusal {
                Unattainable::Minimum { fits, asked, scaled, .. } => {
                    assert!(fits < asked, "{seed}: {fits} of {asked}");
                    if fits > 0 {
                        groups[index].min = Some(fits);
                    } else {
                        let all = groups.iter_mut().filter_map(|group| group.min.as_mut());
                        all.for_each(|min| *min = *min * scaled / 100);
                    }
                    // Rounding may leave a child more than its parent, by a byte.
                    match check(&drive, &groups) {
                        Ok(()) | Err(Unattainable::Inside { .. } | Unattainable::Above { .. }) => {}
                        Err(error) => panic!("{seed}: {error:?} after {fits} and {scaled} %"),
                    }
                }
                Unattainable::Inside { fits, asked, .. } => {
                    assert!(fits < asked, "{seed}: {fits} of {asked}");
                    groups[index].min = Some(fits).filter(|fits| *fits > 0);
                }
                Unattainable::Above { has, inside, .. } => {
                    assert!(has < inside, "{seed}: {has} of {inside}");
                    // Or those inside are to give way.
                    groups[index].is_new = false;
                }
                Unattainable::Latency { .. } => unreachable!("nobody asked for one"),
            }
        }
        admitted += 1;
        for percent in [97, 50, 10, 1] {
            let mut less = groups.clone();
            less.iter_mut().filter_map(|group| group.min.as_mut()).for_each(|min| {
                *min = *min * percent / 100;
            });
            match check(&drive, &less) {
                Ok(()) | Err(Unattainable::Inside { .. } | Unattainable::Above { .. }) => {}
                Err(error) => panic!("{seed}: at {percent} %: {error:?}"),
            }
        }
    }
    assert!(refused > 1_000 && admitted == 2_000, "{refused} refused");
}
