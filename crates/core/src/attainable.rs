//! Checks which minimums a drive can keep together, whatever the clients do.
//!
//! A minimum is a rate, and says nothing about the requests. The slowest workload is small random reads with queue depth 1:
//! such a client reaches `alone` bytes a second with the drive to itself, so its minimum `r` takes `r / alone` of the
//! drive's time. [`check`] assumes the worst assignment of workloads to groups:
//!
//! ```text
//! S    = min(reads, writes, small)       rate of all other workloads, bytes a second
//! flash  load = max over groups i of  r_i / alone_i + sum over all others of r_j / S
//! disk   load = sum over groups of    r_i / alone_i
//! admitted  <=>  load <= 95 %
//! ```
//!
//! On flash it is the maximum and not the sum, because flash serves random reads of different clients at the same time: 16
//! random readers with minimums of 10 MB/s leave as much to the writers beside them as one does (measured; the sum would
//! refuse the third reader). A disk has one arm. A group with `alone` in its contract counts with that rate; on flash, if it
//! is more than half of `reads`, the group counts as a stream: `r / min(reads, writes)`.
//!
//! A group with a minimum counts with it, and the minimums inside it must not exceed it; a group without a minimum counts
//! with the sum of those inside it. A refusal contains the value that would fit ([`Unattainable`]).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::contract::{Contract, Latency, Rate, RateBeside};
use crate::key::Key;
use crate::time::Nanos;

/// Part of the drive's time that may be promised, in millionths. With the rest the scheduler catches up on delays.
const LOAD_MAX: u64 = 950_000;
const WHOLE: u64 = 1_000_000;
/// A drive that takes longer for one small read is rotational. The server reads drives at its start and uses the same limit.
pub const FLASH_READ_MAX: Nanos = Nanos::from_millis(2);
/// Bytes of a small read; a minimum in I/Os a second counts as reads of this size.
pub const SMALL_READ: u64 = 4096;
/// Maximum of rates, so that no product overflows: a petabyte a second.
const RATE_MAX: u64 = 1 << 50;
/// Number of groups examined for one whose minimum can be lowered until all fit.
const CANDIDATES_MAX: usize = 16;

/// The rates that a drive reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attainable {
    /// Bytes a second of large reads.
    pub reads: u64,
    /// Bytes a second of large writes, sustained: with the write cache full.
    pub writes: u64,
    /// Bytes a second of random 4 KiB reads with queue depth 1 on an otherwise idle drive.
    pub alone: u64,
    /// Bytes a second of random 4 KiB requests with a large queue depth, reads or writes, whichever is less; `None` if
    /// unknown, which counts as no limit.
    pub small: Option<u64>,
    /// 99th percentiles of the times of one small read, write and flush, on flash beside bounded writes, as far as they are known.
    pub latency: Latency,
}

impl Attainable {
    /// Whether the drive is rotational.
    pub fn has_head(&self) -> bool {
        Nanos::for_units_ceil(SMALL_READ, self.alone.max(1)) > FLASH_READ_MAX
    }
    /// Whether the contract says that the clients of the group send long requests.
    fn is_stream(&self, group: &Claimant) -> bool {
        group.alone.is_some_and(|alone| alone > self.reads / 2)
    }
    /// The rate with which a group's minimum is compared while another group reads at random.
    fn speed(&self, group: &Claimant) -> u64 {
        let streams = self.reads.min(self.writes);
        let speed = match self.small {
            _ if self.has_head() => return self.alone_of(group),
            Some(small) if !self.is_stream(group) => small.min(streams),
            _ => streams,
        };
        speed.clamp(1, RATE_MAX)
    }
    /// The rate with which a group's minimum is compared if its clients have the slowest workload.
    fn alone_of(&self, group: &Claimant) -> u64 {
        let alone = group.alone.unwrap_or(self.alone);
        match self.has_head() {
            true => alone.clamp(1, RATE_MAX),
            false if self.is_stream(group) => self.speed(group),
            false => alone.clamp(1, self.speed(group)),
        }
    }
}

/// A group and its minimum, as input of [`check`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Claimant {
    /// Its path.
    pub name: String,
    /// The position of its parent in the list, which is before its own.
    pub parent: Option<usize>,
    /// Its minimum in bytes a second; a minimum in I/Os a second is converted with [`SMALL_READ`].
    pub min: Option<u64>,
    /// Whether the minimum was given in I/Os a second.
    pub in_ios: bool,
    /// The rate that it reaches alone, if its contract says so.
    pub alone: Option<u64>,
    /// Its latencies.
    pub latency: Latency,
    /// Whether its contract is new. A refusal then asks for a lower minimum of this group rather than of others.
    pub is_new: bool,
}

impl Claimant {
    /// A group with this contract.
    pub fn new(name: &str, contract: &Contract, parent: Option<usize>) -> Self {
        let Contract { min: bytes, alone, latency, .. } = *contract;
        let min = contract.minimum().in_bytes(SMALL_READ);
        let in_ios = min.unwrap_or(0) > bytes.unwrap_or(0);
        Self { name: name.into(), parent, min, in_ios, alone, latency, is_new: false }
    }
}

/// A promise that the drive cannot keep.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unattainable {
    /// All minimums together take too much of the drive's time.
    Minimum {
        /// The group whose minimum should be lower.
        group: String,
        /// Whether to show the rates in I/Os a second, of [`SMALL_READ`] bytes each.
        in_ios: bool,
        /// Its minimum, bytes a second.
        asked: u64,
        /// The largest minimum that it could have beside the others; 0 if the others alone are too much.
        fits: u64,
        /// The percentage of their minimums that all groups could have.
        scaled: u64,
        /// Number of other groups with a minimum.
        others: usize,
        /// What all minimums take together, in percent of the drive's time.
        load: u64,
    },
    /// The minimums inside a group exceed the minimum of the group.
    Inside {
        /// The group whose minimum should be lower.
        group: String,
        /// Whether to show the rates in I/Os a second, of [`SMALL_READ`] bytes each.
        in_ios: bool,
        /// Its minimum, bytes a second.
        asked: u64,
        /// The largest minimum that it could have; 0 if the others inside take all.
        fits: u64,
        /// Its parent.
        parent: String,
        /// The minimum of the parent, bytes a second.
        has: u64,
    },
    /// The minimum of a group was lowered below those inside it.
    Above {
        /// The group.
        group: String,
        /// Its minimum, bytes a second.
        has: u64,
        /// The minimums inside it, bytes a second.
        inside: u64,
    },
    /// The drive does not reach this latency.
    Latency {
        /// The group.
        group: String,
        /// The key of the latency.
        key: Key,
        /// Its latency.
        asked: Nanos,
        /// The lowest latency that the drive reaches.
        reaches: Nanos,
    },
}

impl Unattainable {
    /// The group whose contract cannot be kept.
    pub fn group(&self) -> &str {
        let (Self::Minimum { group, .. }
        | Self::Inside { group, .. }
        | Self::Above { group, .. }
        | Self::Latency { group, .. }) = self;
        group
    }
    /// The values that would fit, as text.
    pub fn fitting(&self) -> Fitting<'_> {
        Fitting(self)
    }
}

impl fmt::Display for Unattainable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minimum { group, in_ios, asked, fits, others, load, .. } => {
                let asked = Asked { rate: *asked, in_ios: *in_ios, beside: *fits };
                write!(f, "group \"{group}\": {asked} cannot be kept")?;
                match others {
                    0 => {}
                    1 => write!(f, " beside another minimum")?,
                    others => write!(f, " beside {others} other minimums")?,
                }
                let most = LOAD_MAX * 100 / WHOLE;
                write!(
                    f,
                    ": with small random reads that is {load} % of the drive's time, and at most {most} % can be promised"
                )
            }
            Self::Inside { group, in_ios, asked, fits, parent, has } => {
                let asked = Asked { rate: *asked, in_ios: *in_ios, beside: *fits };
                let has = RateBeside { rate: *has, differs: asked.rate.abs_diff(*fits) };
                write!(
                    f,
                    "group \"{group}\": {asked} cannot be kept inside \"{parent}\", which has {has} for all in it"
                )
            }
            Self::Above { group, has, inside } => {
                let differs = inside.abs_diff(*has);
                let [has, inside] = [*has, *inside].map(|rate| RateBeside { rate, differs });
                write!(f, "group \"{group}\": {has} is below the minimums inside, {inside} in all")
            }
            Self::Latency { group, key, asked, reaches } => {
                let request = match key {
                    Key::LatencyWrite => "write",
                    Key::LatencySync => "flush",
                    _ => "read",
                };
                write!(
                    f,
                    "group \"{group}\": a latency of {asked} cannot be kept, since beside writes one {request} in a hundred \
                     takes {reaches}"
                )
            }
        }
    }
}
impl core::error::Error for Unattainable {}

/// A rate in bytes a second or, if true, in I/Os a second of [`SMALL_READ`] bytes, rounded down.
struct Shown(u64, bool);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(bytes, true) => write!(f, "{} I/Os a second", bytes / SMALL_READ),
            Self(bytes, false) => Rate(*bytes).fmt(f),
        }
    }
}

/// The same, beside the rate that fits.
struct Asked {
    rate: u64,
    in_ios: bool,
    beside: u64,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, in_ios, beside } = *self;
        match in_ios {
            true => Shown(rate, true).fmt(f),
            false => RateBeside { rate, differs: rate.abs_diff(beside) }.fmt(f),
        }
    }
}

/// The values that would fit, as text.
#[derive(Clone, Copy, Debug)]
pub struct Fitting<'a>(&'a Unattainable);

impl fmt::Display for Fitting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unattainable::Minimum { fits, in_ios, scaled, others, .. } => {
                match fits {
                    0 => f.write_str("no minimum beside the others")?,
                    fits => write!(f, "at most {}", Shown(*fits, *in_ios))?,
                }
                let scaled = if *scaled == 0 { "less than 1" } else { &scaled.to_string() };
                match others {
                    0 => Ok(()),
                    _ => write!(f, ", or all minimums at {scaled} % of what they are"),
                }
            }
            Unattainable::Inside { fits: 0, .. } => {
                write!(f, "no minimum beside the others inside")
            }
            Unattainable::Inside { fits, in_ios, .. } => {
                write!(f, "at most {}", Shown(*fits, *in_ios))
            }
            Unattainable::Above { inside, .. } => write!(f, "at least {}", Rate(*inside)),
            Unattainable::Latency { reaches, .. } => write!(f, "at least {reaches}"),
        }
    }
}

/// Checks whether the drive can keep all minimums and latencies. Parents come before their children.
///
/// # Errors
///
/// The first minimum or latency that the drive cannot keep beside the others, and the value that it can keep.
pub fn check(drive: &Attainable, groups: &[Claimant]) -> Result<(), Unattainable> {
    for group in groups {
        let times = group.latency.times().into_iter().zip(drive.latency.times());
        let keys = [Key::Latency, Key::LatencyWrite, Key::LatencySync];
        for (key, times) in keys.into_iter().zip(times) {
            if let (Some(asked), Some(reaches)) = times
                && asked < reaches
            {
                return Err(Unattainable::Latency {
                    group: group.name.clone(),
                    key,
                    asked,
                    reaches,
                });
            }
        }
    }
    let minimums: Vec<Option<u64>> = groups.iter().map(|group| group.min).collect();
    let tree = Tree { drive, groups };
    check_inside(groups)?;
    let load = tree.load(&minimums);
    if load <= LOAD_MAX {
        return Ok(());
    }
    let order = tree.candidates();
    let lowered = |index: &usize| Some((*index, tree.lowered(&minimums, *index)?));
    let (index, fits) = order.iter().find_map(lowered).unwrap_or((order[0], 0));
    Err(Unattainable::Minimum {
        group: groups[index].name.clone(),
        in_ios: groups[index].in_ios,
        asked: groups[index].min.unwrap_or(0),
        fits,
        scaled: LOAD_MAX * 100 / load,
        others: minimums.iter().flatten().count() - 1,
        load: load.div_ceil(WHOLE / 100),
    })
}

/// The sum of the minimums inside each group, in bytes a second; those inside another minimum are a part of it.
fn sums_inside(groups: &[Claimant]) -> Vec<u64> {
    let mut sums = alloc::vec![0u64; groups.len()];
    for (index, group) in groups.iter().enumerate().rev() {
        let own = group.min.unwrap_or(sums[index]).min(RATE_MAX);
        if let Some(parent) = group.parent {
            sums[parent] = sums[parent].saturating_add(own).min(RATE_MAX);
        }
    }
    sums
}

/// The nearest group around this one that has a minimum.
fn minimum_above(groups: &[Claimant], group: &Claimant) -> Option<usize> {
    let mut above = group.parent;
    while let Some(index) = above.filter(|index| groups[*index].min.is_none()) {
        above = groups[index].parent;
    }
    above
}

/// Checks that no group promises more to the groups inside it than it has, on whatever drive. Parents come before their children.
///
/// # Errors
///
/// For the first group whose minimum is exceeded: [`Unattainable::Above`] if only its own contract is new, or else
/// [`Unattainable::Inside`].
pub fn check_inside(groups: &[Claimant]) -> Result<(), Unattainable> {
    let sums = sums_inside(groups);
    for (index, parent) in groups.iter().enumerate() {
        let Some(has) = parent.min.filter(|has| sums[index] > *has) else { continue };
        let inside = |child: &&Claimant| minimum_above(groups, child) == Some(index);
        let asks = |child: &&Claimant| child.min.is_some();
        let rest = |child: &Claimant| {
            let min = child.min.unwrap_or(0).min(RATE_MAX);
            has.saturating_sub(sums[index] - min.min(sums[index]))
        };
        let key = |child: &&Claimant| (child.is_new, rest(child) > 0, child.min);
        let children = groups.iter().filter(asks).filter(inside);
        let Some(child) = children.max_by_key(key) else { continue };
        if parent.is_new && !child.is_new {
            let (group, inside) = (parent.name.clone(), sums[index]);
            return Err(Unattainable::Above { group, has, inside });
        }
        return Err(Unattainable::Inside {
            group: child.name.clone(),
            in_ios: child.in_ios,
            asked: child.min.unwrap_or(0),
            fits: rest(child),
            parent: parent.name.clone(),
            has,
        });
    }
    Ok(())
}

/// The load of minimums on a drive, in the worst case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// The part of the drive's time, in millionths, each minimum's rounded down; it may exceed a million.
    pub millionths: u64,
    /// Rate of long reads and writes in the remaining time, in bytes a second, rounded down.
    pub left: u64,
}

/// The load of the minimums of these groups, fully used with the slowest workload. Parents come before their children.
pub fn load(drive: &Attainable, groups: &[Claimant]) -> Load {
    let minimums: Vec<Option<u64>> = groups.iter().map(|group| group.min).collect();
    let millionths = Tree { drive, groups }.load(&minimums);
    let rest = WHOLE.saturating_sub(millionths);
    let streams = u128::from(drive.reads.min(drive.writes).min(RATE_MAX));
    let left = streams * u128::from(rest) / u128::from(WHOLE);
    Load { millionths, left: u64::try_from(left).unwrap_or(u64::MAX) }
}

/// The groups; the minimums are passed to each call, because some calls try other ones.
struct Tree<'a> {
    drive: &'a Attainable,
    groups: &'a [Claimant],
}

/// What sibling groups take together.
#[derive(Clone, Copy, Default)]
struct Sum {
    /// Bytes a second.
    bytes: u64,
    /// Time beside a group that reads at random, in millionths.
    time: u64,
}

/// Parts of a second, in millionths, rounded down: parts that are exactly what may be promised do not exceed it together.
fn parts(bytes: u64, per_second: u64) -> u64 {
    let parts = u128::from(bytes) * u128::from(WHOLE) / u128::from(per_second);
    u64::try_from(parts).unwrap_or(u64::MAX)
}

impl Tree<'_> {
    /// What those inside each group ask, and last what all ask.
    fn sums(&self, minimums: &[Option<u64>]) -> Vec<Sum> {
        let mut sums = alloc::vec![Sum::default(); self.groups.len() + 1];
        for (index, group) in self.groups.iter().enumerate().rev() {
            let inside = sums[index];
            let own = minimums[index].map_or(inside, |min| {
                let (min, speed) = (min.min(RATE_MAX), self.drive.speed(group));
                // Those inside may have all of it, or leave some to clients that are as slow as this group's.
                let rest = parts(min.saturating_sub(inside.bytes), speed);
                Sum { bytes: min, time: parts(min, speed).max(inside.time.saturating_add(rest)) }
            });
            let above = &mut sums[group.parent.unwrap_or(self.groups.len())];
            above.bytes = above.bytes.saturating_add(own.bytes).min(RATE_MAX);
            above.time = above.time.saturating_add(own.time);
        }
        sums
    }
    /// The part of the drive's time that the minimums take at worst, in millionths.
    fn load(&self, minimums: &[Option<u64>]) -> u64 {
        let all = self.sums(minimums)[self.groups.len()];
        if self.drive.has_head() {
            return all.time;
        }
        // r / alone + all others / S as r (S - alone) / (alone S) + all / S, in which each term grows with its rates.
        let slower = |(group, min): (&Claimant, &Option<u64>)| {
            let (speed, alone) = (self.drive.speed(group), self.drive.alone_of(group));
            let more = u128::from((*min)?.min(RATE_MAX)) * u128::from(speed - alone);
            let more = more * u128::from(WHOLE) / (u128::from(alone) * u128::from(speed));
            Some(u64::try_from(more).unwrap_or(u64::MAX))
        };
        let slowest = self.groups.iter().zip(minimums).filter_map(slower).max().unwrap_or(0);
        slowest.saturating_add(all.time)
    }
    fn fits(&self, minimums: &[Option<u64>]) -> bool {
        self.load(minimums) <= LOAD_MAX
    }
    /// Groups with a minimum that may be asked to lower it: the new ones, if there are any, and those first that take most.
    fn candidates(&self) -> Vec<usize> {
        let time = |index: &usize| {
            let group = &self.groups[*index];
            parts(group.min.unwrap_or(0), self.drive.alone_of(group))
        };
        let mut order: Vec<usize> =
            (0..self.groups.len()).filter(|index| self.groups[*index].min.is_some()).collect();
        if order.iter().any(|index| self.groups[*index].is_new) {
            order.retain(|index| self.groups[*index].is_new);
        }
        order.sort_by_key(|index| (core::cmp::Reverse(time(index)), *index));
        order.truncate(CANDIDATES_MAX);
        order
    }
    /// The largest minimum of this group with which all fit, if there is one.
    fn lowered(&self, minimums: &[Option<u64>], index: usize) -> Option<u64> {
        let mut minimums = minimums.to_vec();
        let mut with = |min: u64| {
            minimums[index] = Some(min);
            self.fits(&minimums)
        };
        let inside = sums_inside(self.groups)[index];
        let (mut low, mut high) = (inside.max(1), self.groups[index].min?);
        if !with(low) {
            return None;
        }
        while low < high {
            let middle = high - (high - low) / 2;
            if with(middle) { low = middle } else { high = middle - 1 }
        }
        Some(low)
    }
}

#[cfg(test)]
mod tests;
