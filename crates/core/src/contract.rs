//! What a client is promised, and whether the drive can keep a set of promises.
//!
//! A contract is a guaranteed minimum, a share of what is left (`weight`), a ceiling (`max`), a latency
//! and a class. [`admit`] checks the minimums of sibling groups against what the drive can do at its
//! worst and turns them into weights (`w_i` proportional to `r_i`, scaled to 1..1000).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::group::Class;
use crate::request::Direction;
use crate::time::Nanos;

/// Smallest and largest weight of a group, and what it is when nobody says (blkio, BFQ).
pub const WEIGHT_MIN: u32 = 1;
/// See [`WEIGHT_MIN`].
pub const WEIGHT_MAX: u32 = 1000;
/// See [`WEIGHT_MIN`].
pub const WEIGHT_DEFAULT: u32 = 100;

/// Ceilings, `None` where there is none; index by [`Direction`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Limits {
    /// Bytes a second, reads and writes.
    pub bytes_per_s: [Option<u64>; 2],
    /// Requests a second, reads and writes.
    pub iops: [Option<u64>; 2],
}

impl Limits {
    /// The same byte rate for reads and writes.
    pub const fn both(bytes_per_s: u64) -> Self {
        Self { bytes_per_s: [Some(bytes_per_s); 2], iops: [None; 2] }
    }
    /// Is this direction limited in any way?
    pub const fn limits(&self, direction: Direction) -> bool {
        let i = direction as usize;
        self.bytes_per_s[i].is_some() || self.iops[i].is_some()
    }
}

/// Low limits of `throttle-low`: what a group gets at least while others want the drive too.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Low {
    /// The limits; none at all: the contract's `min`, in both directions.
    pub limits: Limits,
    /// How much longer than usual a request of the group may take before that counts as bad; `None`:
    /// the policy's parameter.
    pub latency: Option<Nanos>,
    /// Mean think time above which the group counts as idle; `None`: the policy's parameter.
    pub idle: Option<Nanos>,
}

/// One group's contract.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contract {
    /// Guaranteed bytes a second; also the low limit of `throttle-low` if `low` has none.
    pub min: Option<u64>,
    /// Low limits.
    pub low: Low,
    /// Share of what is left among siblings, [`WEIGHT_MIN`] to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Ceilings.
    pub max: Limits,
    /// Latency wanted.
    pub latency: Option<Nanos>,
    /// Scheduling class of the group among its siblings.
    pub class: Class,
}

impl Default for Contract {
    fn default() -> Self {
        Self {
            min: None,
            low: Low::default(),
            weight: WEIGHT_DEFAULT,
            max: Limits::default(),
            latency: None,
            class: Class::default(),
        }
    }
}

impl Contract {
    /// The low limits: those written, else the minimum in both directions.
    pub fn low_limits(&self) -> Limits {
        match self.min {
            Some(min) if self.low.limits == Limits::default() => Limits::both(min),
            _ => self.low.limits,
        }
    }
}

/// A set of minimums that the drive cannot keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Sum of the minimums, bytes a second.
    pub asked: u64,
    /// What the drive gives at its worst, bytes a second.
    pub worst_case: u64,
    /// The groups that ask, largest first, with what each asks.
    pub groups: Vec<(String, u64)>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = self.asked - self.worst_case;
        write!(
            f,
            "the minimums add up to {} but the drive keeps only {} at its worst: {} too much (",
            Rate(self.asked),
            Rate(self.worst_case),
            Rate(over)
        )?;
        for (i, (name, min)) in self.groups.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", Rate(*min))?;
        }
        f.write_str(")")
    }
}
impl core::error::Error for Refusal {}

/// A byte rate for people: `12.34 MB/s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} MB/s", self.0 / 1_000_000, self.0 / 10_000 % 100)
    }
}

/// Admits sibling groups, each `(name, min, weight)`, on a drive whose worst-case rate is
/// `worst_case` bytes a second, and returns the weight that each must get.
///
/// Without any minimum the weights stay as given. With minimums, group i needs at least
/// `min_i / worst_case` of the total weight; weights are scaled so that the largest is
/// [`WEIGHT_MAX`], groups without a minimum share the rest in proportion to their own weights, and
/// every rounding is in favour of those with a minimum.
pub fn admit(worst_case: u64, groups: &[(String, Option<u64>, u32)]) -> Result<Vec<u32>, Refusal> {
    let asked: u64 = groups.iter().filter_map(|(_, min, _)| *min).sum();
    if asked == 0 {
        return Ok(groups.iter().map(|(_, _, weight)| *weight).collect());
    }
    let free: u64 = groups.iter().filter(|g| g.1.is_none()).map(|g| u64::from(g.2)).sum();
    // At least 1/1000 must be left for every group that has no minimum: weights have no zero.
    let reserve = if free > 0 { worst_case / u64::from(WEIGHT_MAX) } else { 0 };
    if asked + reserve > worst_case {
        let asking = groups.iter().filter_map(|(name, min, _)| Some((name.clone(), (*min)?)));
        let mut asking: Vec<_> = asking.collect();
        asking.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        return Err(Refusal { asked: asked + reserve, worst_case, groups: asking });
    }
    let rest = worst_case - asked;
    // Shares in bytes a second: a group with a minimum counts as that minimum, plus its part of the
    // rest when nobody else is there to take it (then everybody's ratio is unchanged).
    let share = |group: &(String, Option<u64>, u32)| match group.1 {
        Some(min) => min,
        None => (u128::from(rest) * u128::from(group.2) / u128::from(free.max(1))) as u64,
    };
    let largest = groups.iter().map(share).max().unwrap_or(1).max(1);
    let scale = |group: &(String, Option<u64>, u32)| {
        let scaled = u128::from(share(group)) * u128::from(WEIGHT_MAX);
        let scaled = match group.1 {
            Some(_) => scaled.div_ceil(u128::from(largest)),
            None => scaled / u128::from(largest),
        };
        (scaled as u32).clamp(WEIGHT_MIN, WEIGHT_MAX)
    };
    Ok(groups.iter().map(scale).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn group(name: &str, min: Option<u64>, weight: u32) -> (String, Option<u64>, u32) {
        (name.to_string(), min, weight)
    }

    /// Goal: an admitted minimum is kept by its weight on a drive at its worst. Method: the survey's
    /// case, 16 clients of 10 MB/s on 160 MB/s, and a mixed one.
    #[test]
    fn admitted_minimums_are_kept_by_weights() {
        let equal: Vec<_> = (0..16).map(|_| group("c", Some(10_000_000), 100)).collect();
        assert_eq!(admit(160_000_000, &equal), Ok(alloc::vec![1000; 16]));
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

    /// Goal: a set that does not fit is refused with the numbers. Method: one too many.
    #[test]
    fn too_much_is_refused_with_numbers() {
        let groups: Vec<_> = (0..17).map(|_| group("c", Some(10_000_000), 100)).collect();
        let refusal = admit(160_000_000, &groups).expect_err("170 of 160 does not fit");
        assert_eq!((refusal.asked, refusal.worst_case), (170_000_000, 160_000_000));
        assert!(refusal.to_string().contains("10.00 MB/s too much"), "{refusal}");
    }
}
