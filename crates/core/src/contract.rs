//! Contracts of groups, and the check whether a drive can keep a set of guaranteed minimums.
//!
//! A contract is a guaranteed minimum, a share of the spare bandwidth (`weight`), a ceiling (`max`), a latency
//! and a class. [`admit`] compares the minimums of sibling groups with the worst-case rate of the drive, and
//! translates them into weights (`w_i` proportional to the claim `c_i`, scaled to 1..1000).
//!
//! By default, a minimum claims its own value: the sum of the minimums must not exceed the worst-case rate of the
//! drive (survey of I/O-control solutions, 2019: 160 MB/s among 16 clients is 10 MB/s each). This assumes that all
//! clients are busy at once. But a scheduler that shares drive time serves one client after the other, and a random
//! reader with queue depth 1 needs far more time per byte than a sequential one: a client that reaches 23 MB/s
//! alone needs 10/23 of the time for 10 MB/s. If a contract says what the group reaches `alone`, its minimum
//! therefore counts as that fraction of the drive's time:
//!
//! ```text
//! c_i = r_i                                    nothing known
//! c_i = worst_case * r_i / (alone_i * 9/10)    a part of the time, in bytes of the worst case
//! sum of c_i <= worst_case
//! ```
//!
//! The factor 9/10 is the part of the drive's rate that remains when clients share it ([`KEPT_PERCENT`]). The scheduler
//! guarantees time, so a client that is slower than its `alone` misses its own minimum, but no other client's.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::bounds::{WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN};
use crate::error::EngineError;
use crate::minimum::Minimum;
use crate::priority::Class;
use crate::request::Direction;
use crate::time::Nanos;
use crate::unit::Size;

/// Percentage of a drive's rate that remains when several clients share it, for groups with `alone`: BFQ
/// "keeps throughput in the range 90-100% of the available speed" (the survey of 2019).
pub const KEPT_PERCENT: u64 = 90;

/// Time at a ceiling's rate that may pass at once if the contract names no burst: a slice of blk-throttle.
pub const BURST_DEFAULT: Nanos = Nanos::from_millis(100);

/// Ceilings; `None` means no ceiling.
///
/// In any time `t`, requests of at most `max(burst, largest request) + rate * t` pass each of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Limits {
    /// Bytes a second of reads, and of writes (index by [`Direction`]).
    pub bytes_per_s: [Option<u64>; 2],
    /// Requests a second of reads, and of writes.
    pub iops: [Option<u64>; 2],
    /// Ceilings on reads and writes together.
    pub total: Total,
    /// What may pass at once above the rates, after a time with fewer requests.
    pub burst: Burst,
}

/// Ceilings on reads and writes together; `None` means no ceiling.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Total {
    /// Bytes a second.
    pub bytes_per_s: Option<u64>,
    /// Requests a second.
    pub iops: Option<u64>,
}

/// How much may pass a ceiling at once, the depth of its token bucket; `None`: what the rate gives in
/// [`BURST_DEFAULT`]. With zero, requests are evenly spaced.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Burst {
    /// Bytes, for each ceiling in bytes a second.
    pub bytes: Option<u64>,
    /// Requests, for each ceiling in requests a second.
    pub requests: Option<u64>,
}

impl Limits {
    /// The same byte rate for reads and writes, each.
    #[must_use]
    pub const fn both(bytes_per_s: u64) -> Self {
        let none = Self::NONE;
        Self { bytes_per_s: [Some(bytes_per_s); 2], ..none }
    }
    /// No ceiling.
    pub const NONE: Self = Self {
        bytes_per_s: [None; 2],
        iops: [None; 2],
        total: Total { bytes_per_s: None, iops: None },
        burst: Burst { bytes: None, requests: None },
    };
    /// Is this direction limited in any way?
    #[must_use]
    pub const fn limits(&self, direction: Direction) -> bool {
        let i = direction as usize;
        self.bytes_per_s[i].is_some() || self.iops[i].is_some() || self.has_total()
    }
    /// Is there a ceiling on reads and writes together?
    pub const fn has_total(&self) -> bool {
        self.total.bytes_per_s.is_some() || self.total.iops.is_some()
    }
    /// Is there a burst?
    pub const fn has_burst(&self) -> bool {
        self.burst.bytes.is_some() || self.burst.requests.is_some()
    }
    /// Every rate in bytes a second.
    pub fn byte_rates(&self) -> impl Iterator<Item = u64> {
        self.bytes_per_s.into_iter().chain([self.total.bytes_per_s]).flatten()
    }
    /// Every rate in requests a second.
    pub fn request_rates(&self) -> impl Iterator<Item = u64> {
        self.iops.into_iter().chain([self.total.iops]).flatten()
    }
}

/// Low limits of `throttle-low`: the rate that a group gets while other groups are busy, too.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Low {
    /// The limits. If there are none, the contract's `min` applies to both directions.
    pub limits: Limits,
    /// Increase of a request's latency over the usual one that counts as bad; `None`: the policy's
    /// parameter.
    pub latency: Option<Nanos>,
    /// Mean think time above which the group counts as idle; `None`: the policy's parameter.
    pub idle: Option<Nanos>,
}

/// Completion times that 99 of 100 requests of a group keep.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Latency {
    /// Of reads.
    pub read: Option<Nanos>,
    /// Of writes that a program waits for.
    pub write: Option<Nanos>,
    /// Of flushes: what `fsync` sends after its writes.
    pub sync: Option<Nanos>,
}

impl Latency {
    /// No latency.
    pub const NONE: Self = Self { read: None, write: None, sync: None };
    /// Of reads, and none of others.
    #[must_use]
    pub const fn of_reads(time: Nanos) -> Self {
        Self { read: Some(time), ..Self::NONE }
    }
    /// Those of reads, writes and flushes.
    pub fn times(self) -> [Option<Nanos>; 3] {
        [self.read, self.write, self.sync]
    }
    /// These, and those of `known` where there is none.
    #[must_use]
    pub fn or(self, known: Self) -> Self {
        let (read, write, sync) =
            (self.read.or(known.read), self.write.or(known.write), self.sync.or(known.sync));
        Self { read, write, sync }
    }
    /// Whether there is one.
    #[must_use]
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// One group's contract.
///
/// ```
/// use iofair_core::contract::{Contract, Limits};
///
/// let max = Limits::both(50_000_000);
/// let contract = Contract { min: Some(10_000_000), max, ..Contract::default() };
/// assert!(contract.check().is_ok());
/// assert!(Contract { weight: 0, ..contract }.check().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contract {
    /// Guaranteed bytes a second; also the low limit of `throttle-low` if `low` has none.
    pub min: Option<u64>,
    /// Guaranteed I/Os a second, of at most [`IO_BYTES`](crate::minimum::IO_BYTES) each; only `promise` keeps it.
    pub min_iops: Option<u64>,
    /// Rate in bytes a second that the group reaches with the drive to itself; `None`: unknown.
    pub alone: Option<u64>,
    /// Low limits.
    pub low: Low,
    /// Share of the spare bandwidth relative to sibling groups, [`WEIGHT_MIN`] to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Ceilings.
    pub max: Limits,
    /// Completion times.
    pub latency: Latency,
    /// Scheduling class of the group among its siblings.
    pub class: Class,
}

impl Default for Contract {
    fn default() -> Self {
        Self {
            min: None,
            min_iops: None,
            alone: None,
            low: Low::default(),
            weight: WEIGHT_DEFAULT,
            max: Limits::default(),
            latency: Latency::NONE,
            class: Class::default(),
        }
    }
}

impl Contract {
    /// Checks the contract: weight in range, no ceiling and no latency of zero.
    ///
    /// # Errors
    ///
    /// [`EngineError::BadWeight`] or [`EngineError::Zero`].
    pub fn check(&self) -> Result<(), EngineError> {
        if !(WEIGHT_MIN..=WEIGHT_MAX).contains(&self.weight) {
            return Err(EngineError::BadWeight(self.weight));
        }
        if self.max.byte_rates().chain(self.max.request_rates()).any(|rate| rate == 0) {
            return Err(EngineError::Zero("a ceiling"));
        }
        if self.latency.times().contains(&Some(Nanos::ZERO)) {
            return Err(EngineError::Zero("a latency"));
        }
        Ok(())
    }
    /// The guaranteed minimum.
    #[must_use]
    pub const fn minimum(&self) -> Minimum {
        Minimum { bytes_per_s: self.min, ios_per_s: self.min_iops }
    }
    /// The low limits as written, or else the minimum in both directions.
    #[must_use]
    pub fn low_limits(&self) -> Limits {
        match self.min {
            Some(min) if self.low.limits == Limits::default() => Limits::both(min),
            _ => self.low.limits,
        }
    }
}

/// A group among its siblings, as input of [`admit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sibling {
    /// Its name.
    pub name: String,
    /// Claim of its minimum, or the sum of the claims inside it, in bytes a second of the worst case; `None`: no
    /// minimum.
    pub claim: Option<u64>,
    /// Minimum and rate alone, if the claim was computed from them.
    pub by_time: Option<[u64; 2]>,
    /// Its weight as written.
    pub weight: u32,
}

impl Sibling {
    /// From a contract, on a drive with a worst-case rate of `worst_case` bytes a second.
    pub fn new(name: &str, contract: &Contract, worst_case: u64) -> Self {
        let by_time = contract.min.zip(contract.alone).map(|(min, alone)| [min, alone.max(1)]);
        let claim = match by_time {
            None => contract.min,
            Some([min, alone]) => {
                // Rounded down, so that claims that are exactly the worst case together do not exceed it.
                let claim = u128::from(worst_case) * u128::from(min) * 100;
                let claim = claim / (u128::from(alone) * u128::from(KEPT_PERCENT));
                Some(u64::try_from(claim).unwrap_or(u64::MAX).max(u64::from(min > 0)))
            }
        };
        Self { name: name.into(), claim, by_time, weight: contract.weight }
    }
}

/// A set of minimums that the drive cannot keep.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// Sum of the claims, bytes a second.
    pub asked: u64,
    /// Worst-case rate of the drive, or what the group around them has, bytes a second.
    pub worst_case: u64,
    /// The group around them, unless they are at the top.
    pub parent: Option<String>,
    /// The groups with claims, largest claim first.
    pub groups: Vec<Sibling>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = self.asked - self.worst_case;
        let shown = |rate| RateBeside { rate, differs: over };
        let has = shown(self.worst_case);
        write!(f, "the minimums add up to {} but ", shown(self.asked))?;
        match &self.parent {
            None => write!(f, "the drive keeps only {has} at its worst")?,
            Some(parent) => write!(f, "\"{parent}\" has {has} for all in it")?,
        }
        write!(f, ": {} too much (", shown(over))?;
        for (i, group) in self.groups.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", group.name, shown(group.claim.unwrap_or(0)))?;
            if let Some([min, alone]) = group.by_time {
                write!(f, " for {} of {} alone", shown(min), shown(alone))?;
            }
        }
        f.write_str(")")
    }
}
impl core::error::Error for Refusal {}

/// A rate in bytes a second, displayed in the largest of `MB/s`, `kB/s` and `B/s` that is not above it, rounded down to
/// two decimals: `12.34 MB/s`, `1.50 kB/s`, `1 B/s`. [`parse_rate`](crate::unit::parse_rate) reads what is displayed.
///
/// ```
/// use iofair_core::contract::Rate;
/// use iofair_core::unit::parse_rate;
///
/// assert_eq!(Rate(12_345_678).to_string(), "12.34 MB/s");
/// assert_eq!(Rate(1_500).to_string(), "1.50 kB/s");
/// assert_eq!(parse_rate(&Rate(1).to_string()), Ok(1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Size(self.0))
    }
}

/// A rate beside another one: as [`Rate`], but exact where that would hide the difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RateBeside {
    pub(crate) rate: u64,
    /// The difference.
    pub(crate) differs: u64,
}

impl fmt::Display for RateBeside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.differs {
            0..10_000 => ExactRate(self.rate).fmt(f),
            _ => Rate(self.rate).fmt(f),
        }
    }
}

/// As [`Rate`], with as many decimals as it has: rates that are displayed add up. `12.345678 MB/s`, `12.00 MB/s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ExactRate(u64);

impl fmt::Display for ExactRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, bytes, mut digits) = match self.0 {
            0..1_000 => return write!(f, "{} B/s", self.0),
            1_000..1_000_000 => ("kB", 1_000, 3),
            _ => ("MB", 1_000_000, 6),
        };
        let mut fraction = self.0 % bytes;
        while digits > 2 && fraction.is_multiple_of(10) {
            (fraction, digits) = (fraction / 10, digits - 1);
        }
        write!(f, "{}.{fraction:0digits$} {unit}/s", self.0 / bytes)
    }
}

/// Admits sibling groups on a drive whose worst-case rate is `worst_case` bytes a second, and returns the
/// weight that each must get.
///
/// Without claims, the weights stay as given. With claims, group i needs at least `c_i / worst_case` of
/// the total weight. If all groups have claims, the weights are proportional to them. Otherwise each group gets its claim or
/// the value of its weight, whichever is larger:
///
/// ```text
/// share_i = max(c_i, level * weight_i)      with the level at which the shares add up to worst_case
/// ```
///
/// A claim therefore raises its group's share up to the claim and no further, and the rest is shared by weight among all
/// other groups, with or without claims. Weights are scaled so that the largest is [`WEIGHT_MAX`]; rounding
/// favours groups with claims. There is no weight of zero, so a group without a claim has the smallest weight even where the
/// claims leave nothing.
///
/// # Errors
///
/// [`Refusal`] if the claims add up to more than `worst_case`.
pub fn admit(worst_case: u64, groups: &[Sibling]) -> Result<Vec<u32>, Refusal> {
    let asked: u64 = groups.iter().filter_map(|group| group.claim).fold(0, u64::saturating_add);
    if asked == 0 {
        return Ok(groups.iter().map(|group| group.weight).collect());
    }
    let unclaimed = groups.iter().filter(|group| group.claim.is_none());
    let free: u64 = unclaimed.map(|group| u64::from(group.weight)).sum();
    if asked > worst_case {
        let mut siblings: Vec<_> = groups.iter().filter(|g| g.claim.is_some()).cloned().collect();
        siblings.sort_by(|a, b| b.claim.cmp(&a.claim).then_with(|| a.name.cmp(&b.name)));
        return Err(Refusal { asked, worst_case, parent: None, groups: siblings });
    }
    // Shares in bytes a second. When nobody else is there to take the rest, claims say how it is shared.
    let Level { rest, weights } = match free {
        0 => Level { rest: 0, weights: 1 },
        _ => level(worst_case, groups),
    };
    let share = |group: &Sibling| {
        let by_weight = u128::from(rest) * u128::from(group.weight) / u128::from(weights);
        group.claim.unwrap_or(0).max(by_weight as u64)
    };
    let largest = groups.iter().map(share).max().unwrap_or(1).max(1);
    let scale = |group: &Sibling| {
        let scaled = u128::from(share(group)) * u128::from(WEIGHT_MAX);
        let scaled = match group.claim {
            Some(_) => scaled.div_ceil(u128::from(largest)),
            None => scaled / u128::from(largest),
        };
        (scaled as u32).clamp(WEIGHT_MIN, WEIGHT_MAX)
    };
    Ok(groups.iter().map(scale).collect())
}

/// The rate shared by the groups whose weight is worth at least their claim, and the sum of their weights.
struct Level {
    rest: u64,
    weights: u64,
}

/// The level of [`admit`]. Who claims more than its weight is worth leaves less for the others, so it is looked
/// again until that is nobody else; a group without a claim never does, so that one is left.
fn level(worst_case: u64, groups: &[Sibling]) -> Level {
    let mut weights: u64 = groups.iter().map(|group| u64::from(group.weight)).sum();
    let mut rest = worst_case;
    let mut lifted = alloc::vec![false; groups.len()];
    loop {
        let (share, total) = (rest, weights);
        for (group, lifted) in groups.iter().zip(&mut lifted) {
            let (claim, weight) = (group.claim.unwrap_or(0), u64::from(group.weight));
            let needs = u128::from(claim) * u128::from(total);
            if !*lifted && needs > u128::from(share) * u128::from(weight) {
                *lifted = true;
                (rest, weights) = (rest - claim, weights - weight);
            }
        }
        if weights == total {
            return Level { rest, weights };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const WORST: u64 = 160_000_000;

    fn group(name: &str, min: Option<u64>, weight: u32) -> Sibling {
        Sibling::new(name, &Contract { min, weight, ..Contract::default() }, WORST)
    }
    fn by_time(min: u64, alone: u64) -> Sibling {
        let contract = Contract { min: Some(min), alone: Some(alone), ..Contract::default() };
        Sibling::new("t", &contract, WORST)
    }

    /// Goal: an admitted minimum is kept by its weight on a drive at its worst. Method: the survey's
    /// case, 16 clients of 10 MB/s on 160 MB/s, and a mixed one.
    #[test]
    fn admitted_minimums_are_kept_by_weights() {
        let equal: Vec<_> = (0..16).map(|_| group("c", Some(10_000_000), 100)).collect();
        assert_eq!(admit(WORST, &equal), Ok(alloc::vec![1000; 16]));
        let mixed =
            [group("a", Some(10_000_000), 100), group("b", None, 100), group("c", None, 300)];
        let weights = admit(100_000_000, &mixed).expect("10 of 100 fits");
        let total: u32 = weights.iter().sum();
        assert!(
            u64::from(weights[0]) * 100_000_000 / u64::from(total) >= 10_000_000,
            "{weights:?}"
        );
        assert!(weights[2] >= 3 * weights[1] - 3, "{weights:?}");
    }

    /// Goal: a claim lifts its own group and no other, up to itself; what is left goes by weight, to those who claim
    /// something too. Method: shares by hand, 10 + 81.8 + 8.2 of 100, and a second group whose weight is worth too
    /// little only when the first was lifted.
    #[test]
    fn a_claim_lifts_no_further_than_itself() {
        let min = Some(10_000_000);
        let groups = [group("a", min, 100), group("b", min, 1000), group("c", None, 100)];
        assert_eq!(admit(100_000_000, &groups), Ok(alloc::vec![123, 1000, 99]));
        let groups = [group("a", Some(50), 1), group("b", Some(30), 4), group("c", None, 4)];
        assert_eq!(admit(100, &groups), Ok(alloc::vec![1000, 600, 400]), "30 + 20 of the other 50");
    }

    /// Goal: who says what it reaches alone is counted by time, and has the part of the weights that its
    /// minimum takes. Method: the survey's mixed case: 10 MB/s of a random reader that reaches 23 alone beside
    /// fifteen that reach 400; then with the fifteen unknown, then all at random, which do not fit.
    #[test]
    fn minimums_by_time() {
        const MIN: u64 = 10_000_000;
        let random = by_time(MIN, 23_000_000);
        assert_eq!(random.claim, Some(77_294_685), "10/20.7 of 160 MB/s, rounded down");
        let mut groups = alloc::vec![by_time(MIN, 400_000_000); 15];
        groups.push(random.clone());
        let weights = admit(WORST, &groups).expect("0.48 and 15 x 0.028 of the time");
        let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        for (group, weight) in groups.iter().zip(&weights) {
            let [min, alone] = group.by_time.expect("said");
            assert!(alone / 10 * 9 * u64::from(*weight) / total >= min, "{group:?}: {weights:?}");
        }
        let mut unknown = alloc::vec![group("u", Some(MIN), 100); 15];
        unknown.push(random.clone());
        let refusal = admit(WORST, &unknown).expect_err("77 and 15 x 10 of 160");
        assert_eq!(refusal.groups[0], random, "the largest claim first");
        assert!(
            refusal
                .to_string()
                .contains("(t 77.29 MB/s for 10.00 MB/s of 23.00 MB/s alone, u 10.00"),
            "{refusal}"
        );
        let random: Vec<_> = (0..3).map(|_| random.clone()).collect();
        admit(WORST, &random[..2]).expect("two fit");
        admit(WORST, &random).expect_err("three do not");
    }

    /// Goal: claims that fill the worst case exactly are admitted, one byte more is not, and the numbers of the refusal add up.
    /// Method: tenths and thirds, by rate and by time, with a group without a claim beside them, which has the smallest weight.
    #[test]
    fn claims_that_fill_the_worst_case_fit() {
        const RATE: u64 = 100_000_000;
        let thirds = [33_333_333, 33_333_333, 33_333_334];
        let by_rate = |mins: &[u64]| mins.iter().map(|min| group("c", Some(*min), 100)).collect();
        // A third of the time each: 30 of 100 MB/s alone, of which 90 are kept.
        let contract = Contract { min: Some(30_000_000), alone: Some(RATE), ..Contract::default() };
        let by_time = alloc::vec![Sibling::new("t", &contract, RATE); 3];
        let sets: [Vec<Sibling>; 3] = [by_rate(&[10_000_000; 10]), by_rate(&thirds), by_time];
        for mut groups in sets {
            admit(RATE, &groups).expect("exactly all of it");
            groups.push(group("rest", None, 1000));
            let weights = admit(RATE, &groups).expect("exactly all of it, beside another group");
            assert_eq!(weights.last(), Some(&WEIGHT_MIN), "{weights:?}");
            groups.push(group("more", Some(1_000), 100));
            let refusal = admit(RATE, &groups).expect_err("a little more");
            let claims: u64 = refusal.groups.iter().filter_map(|group| group.claim).sum();
            assert_eq!(refusal.asked, claims);
        }
        let mut groups: Vec<Sibling> = by_rate(&thirds);
        groups.push(group("rest", None, 100));
        groups.push(group("more", Some(1), 100));
        assert_eq!(
            admit(RATE, &groups).expect_err("a byte too much").to_string(),
            "the minimums add up to 100.000001 MB/s but the drive keeps only 100.00 MB/s at its worst: 1 B/s too much \
             (c 33.333334 MB/s, c 33.333333 MB/s, c 33.333333 MB/s, more 1 B/s)"
        );
    }

    /// Goal: extreme numbers neither overflow nor pass. Method: the largest of each.
    #[test]
    fn extreme_claims() {
        assert_eq!(by_time(u64::MAX, 0).claim, Some(u64::MAX));
        assert_eq!(by_time(1, u64::MAX).claim, Some(1), "never nothing");
        let most = [by_time(u64::MAX, 1), by_time(u64::MAX, 1), group("c", None, 1)];
        assert_eq!(admit(WORST, &most).expect_err("far too much").asked, u64::MAX);
    }

    /// Goal: a set that does not fit is refused with the numbers. Method: one too many.
    #[test]
    fn too_much_is_refused_with_numbers() {
        let groups: Vec<_> = (0..17).map(|_| group("c", Some(10_000_000), 100)).collect();
        let refusal = admit(WORST, &groups).expect_err("170 of 160 does not fit");
        assert_eq!((refusal.asked, refusal.worst_case), (170_000_000, WORST));
        assert!(refusal.to_string().contains("10.00 MB/s too much"), "{refusal}");
    }
}
