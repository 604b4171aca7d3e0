//! Limits on I/Os and bytes a second, as volumes of clouds and hypervisors have them ([`crate::volume`]).
//!
//! Two rows of the survey keep many reads in flight and record when how many bytes were complete. With a limit of `R` bytes
//! a second, a bucket that is full at the start and tokens that arrive once in each `slice`,
//!
//! ```text
//! R (t + burst - slice)  <=  bytes(t)  <=  R (t + burst)           once the bucket is empty
//! ```
//!
//! This is the arrival curve of a token bucket (Cruz 1991, "A calculus for network delay"). So the line above the second
//! half of the series has the slope `R` and meets the axis at `burst`, and the steps below it are as deep as `slice` is
//! long. A drive without limits has no such burst: its rate is the same from the beginning.

use iofair_core::time::Nanos;

use super::regimes::{CLIFF, Regime};
use super::row::{LARGE, Record, SMALL, SUSTAINED, SUSTAINED_SMALL};
use super::scope::Scope;
use crate::behind::Path;
use crate::volume;

/// Parts of the second half of a series; each has a point on the line above it.
const PARTS: usize = 8;
/// Entries of a series that are needed.
const ENTRIES_MIN: usize = 8 * PARTS;
/// Bursts and slices below this are the drive's or the host's.
const SHORT: Nanos = Nanos::from_millis(2);
/// A gap is this many times longer than entries are apart.
const GAP: f64 = 4.0;
/// Deepest and flattest step between which all steps of slices are.
const STEPS_ALIKE: f64 = 1.6;
/// Rates that differ by less are the same limit.
const SAME: f64 = 1.03;
/// Lengths of the large reads, and of what fits into one command of many drives.
const LENGTHS: [u64; 2] = [LARGE, LARGE / 2];
/// Longest rest before a row.
const REST_MAX: Nanos = Nanos::from_secs(10);
/// No limit.
const IOPS_MAX: u64 = 1_000_000_000;
const RATE_MAX: u64 = 1 << 40;
/// An I/O of a volume, where nothing shows another size (Amazon EBS).
const IO: u64 = 256 << 10;

/// What the series of reads say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// I/Os a second, where small reads show a limit.
    pub iops: Option<u64>,
    /// Bytes a second, where large reads show a limit.
    pub rate: Option<u64>,
    /// Time in which an empty bucket becomes full.
    pub burst: Option<Nanos>,
    /// Time between arrivals of tokens.
    pub slice: Option<Nanos>,
    /// The rates of both rows, limited or not: I/Os and bytes a second.
    pub reached: (u64, u64),
}

/// The second half of a series.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Line {
    /// Bytes a second.
    rate: f64,
    burst: Option<Nanos>,
    slice: Option<Nanos>,
}

impl Line {
    fn fit(series: &[(u64, u64)]) -> Option<Self> {
        let last = series.last().filter(|_| series.len() >= ENTRIES_MIN)?;
        let from = series.partition_point(|entry| entry.1 < last.1 / 2);
        let late = &series[from..];
        let points: Vec<(f64, f64)> =
            late.iter().map(|(bytes, at)| (*at as f64, *bytes as f64)).collect();
        let (slope, _) = least_squares(&points)?;
        let part = |at: f64| {
            let begin = points[0].0;
            let length = (points[points.len() - 1].0 - begin).max(1.0) / PARTS as f64;
            (((at - begin) / length) as usize).min(PARTS - 1)
        };
        // The highest point of each part.
        let mut tops: [Option<(f64, f64)>; PARTS] = [None; PARTS];
        let over = |point: (f64, f64)| point.1 - slope * point.0;
        for point in &points {
            let top = &mut tops[part(point.0)];
            if top.is_none_or(|top| over(top) < over(*point)) {
                *top = Some(*point);
            }
        }
        let tops: Vec<(f64, f64)> = tops.into_iter().flatten().collect();
        let (slope, intercept) = least_squares(&tops).filter(|line| line.0 > 0.0)?;
        // How far the line is above the bytes just before each entry, at most in each part.
        let mut steps = [0.0_f64; PARTS];
        for pair in points.windows(2) {
            let below = (slope * pair[1].0 + intercept - pair[0].1) / slope;
            let step = &mut steps[part(pair[1].0)];
            *step = step.max(below);
        }
        let (low, high) = (
            steps.iter().copied().fold(f64::MAX, f64::min),
            steps.iter().copied().fold(0.0, f64::max),
        );
        let entry = (last.1 - late[0].1) as f64 / late.len() as f64;
        let is_slice = low > SHORT.0 as f64 && low > GAP * entry && high < STEPS_ALIKE * low;
        // A drive that needs most of a slice for what arrives at once leaves gaps in some slices only.
        let is_step = |slice: &Nanos| slice.0 as f64 <= 2.0 * high;
        let burst = Nanos((intercept / slope).max(0.0) as u64);
        let early = series[..from].iter().find(|entry| entry.1 >= burst.0 / 2);
        let has_burst = burst > SHORT
            && early.is_some_and(|entry| entry.0 as f64 > CLIFF * slope * entry.1.max(1) as f64);
        Some(Self {
            rate: slope * 1e9,
            burst: has_burst.then_some(burst),
            slice: is_slice.then(|| period(&points, high / 2.0)).flatten().filter(is_step),
        })
    }
    fn is_limit(&self) -> bool {
        self.burst.is_some() || self.slice.is_some()
    }
}

/// Time between the ends of gaps that are longer than this, as the median.
fn period(points: &[(f64, f64)], gap: f64) -> Option<Nanos> {
    let gaps = points.windows(2).filter(|pair| pair[1].0 - pair[0].0 > gap);
    let ends: Vec<f64> = gaps.map(|pair| pair[1].0).collect();
    let mut periods: Vec<f64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    periods.sort_by(f64::total_cmp);
    periods.get(periods.len() / 2).map(|period| Nanos(*period as u64))
}

/// Slope and intercept of the line through these points.
fn least_squares(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let count = points.len() as f64;
    let x: f64 = points.iter().map(|point| point.0 / count).sum();
    let y: f64 = points.iter().map(|point| point.1 / count).sum();
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let common: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    (spread > 0.0).then(|| (common / spread, y - common / spread * x))
}

impl Limits {
    /// From the rows of the survey; `None` if they did not run long enough.
    pub(super) fn found(records: &[Record]) -> Option<Self> {
        let record = |name| records.iter().find(|record| record.row == name);
        let line = |name| Line::fit(&record(name)?.series);
        let (small, large) = (line(SUSTAINED_SMALL)?, line(SUSTAINED)?);
        // Where small reads carry as much as large ones, the limit is on bytes.
        let limits_ios = small.is_limit() && small.rate * SAME < large.rate;
        // Large reads that are as many as small ones show no limit on bytes.
        let as_many = LENGTHS.iter().any(|bytes| {
            let ratio = large.rate * SMALL as f64 / (small.rate * *bytes as f64);
            (1.0 / SAME..SAME).contains(&ratio)
        });
        let limits_bytes = match limits_ios {
            true => large.is_limit() && !as_many,
            false => large.is_limit() || small.is_limit(),
        };
        let shown = |of: fn(&Line) -> Option<Nanos>| {
            let both = [(limits_ios, of(&small)), (limits_bytes, of(&large))];
            both.into_iter().find_map(|(limits, number)| number.filter(|_| limits))
        };
        let reached = ((small.rate / SMALL as f64) as u64, large.rate as u64);
        Some(Self {
            iops: limits_ios.then_some(reached.0),
            rate: limits_bytes.then_some(reached.1),
            burst: shown(|line| line.burst),
            slice: shown(|line| line.slice),
            reached,
        })
    }
    /// Whether a series shows a limit.
    pub(super) fn are_shown(&self) -> bool {
        self.iops.is_some() || self.rate.is_some()
    }
    /// A series of large writes, if its rate in the end is that of the limits: until the burst is over, and from then on.
    pub(super) fn limited(&self, series: &[(u64, u64)]) -> Option<Vec<Regime>> {
        let line = Line::fit(series)?;
        let of_ios = self.iops.map_or(f64::MAX, |iops| (iops * LARGE) as f64);
        let limit = self.rate.map_or(f64::MAX, |rate| rate as f64).min(of_ios);
        let burst = line.burst.or(line.slice).unwrap_or(Nanos::ZERO);
        let after = Regime { from: (line.rate * burst.0 as f64 / 1e9) as u64, rate: line.rate };
        let at_first = series.partition_point(|entry| entry.0 < after.from.max(1));
        let (bytes, at) = *series.get(at_first)?;
        let before = Regime { from: 0, rate: bytes as f64 * 1e9 / at.max(1) as f64 };
        (limit / line.rate < SAME && line.rate / limit < SAME).then(|| vec![before, after])
    }
    /// The burst as a profile has it: at least a slice.
    pub(super) fn whole_burst(&self, volume: &volume::Parameters) -> Nanos {
        self.burst.unwrap_or(volume.burst).max(volume.slice)
    }
    /// How long a device rests before each row, so that a burst is allowed again.
    pub fn rest(&self, scope: &Scope) -> Option<Nanos> {
        self.burst.filter(|burst| *burst <= REST_MAX || scope.is_simulated)
    }
    /// A volume with these limits, as rows meet it: without a burst for which they do not wait. Where no series shows a
    /// limit, what was reached is one.
    pub(super) fn volume(&self, scope: &Scope) -> volume::Parameters {
        let depth = scope.facts.depth;
        let (iops, rate) = match self.are_shown() {
            true => (self.iops.unwrap_or(IOPS_MAX), self.rate.unwrap_or(RATE_MAX)),
            false => self.reached,
        };
        let slice = self.slice.unwrap_or(Nanos(1000));
        let zero = Nanos::ZERO;
        volume::Parameters {
            path: Path { fixed: zero, jitter: zero, serial: zero, per_mib: zero, depth },
            iops: iops.clamp(1, IOPS_MAX),
            rate: rate.clamp(4096, RATE_MAX),
            io: IO,
            burst: self.rest(scope).unwrap_or(slice).max(slice),
            slice,
            shared: true,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::fit::tests::{measured, scope};
    use crate::profile::{self, Profile};

    fn limits(name: &str) -> (Profile, Limits) {
        let truth = profile::read(name).unwrap();
        let mut rows = scope(&truth).survey();
        rows.retain(|row| LONG.contains(&row.name.as_str()));
        let found = Limits::found(&measured(&truth, 3, &rows)).unwrap();
        (truth, found)
    }
    const LONG: [&str; 2] = [SUSTAINED, SUSTAINED_SMALL];

    /// Whether a number that was found is within 10 % of the drive's, and how often one was found.
    fn agree(found: &mut u32, number: Option<u64>, truth: u64) -> bool {
        *found += u32::from(number.is_some());
        number.is_none_or(|found| found.abs_diff(truth) * 10 <= truth)
    }

    /// Goal: limits that are found are the volume's, and most are found. Method: forty volumes that nobody offers. Two of them
    /// need most of a slice for what arrives in it, and their slices cannot be told from each other.
    #[test]
    fn limits_of_volumes_are_found() {
        let (mut counts, mut wrong) = ([0; 4], Vec::new());
        for seed in 0..40 {
            let (truth, found) = limits(&format!("random-volume:{seed}"));
            let volume = truth.volume.unwrap();
            // As many I/Os as are allowed may carry fewer bytes than are allowed.
            let longest = truth.build(1).facts().max_request.bytes().min(volume.io);
            let rate = volume.rate.min(volume.iops * longest);
            let mut check = |index: usize, key: &str, number: Option<u64>, truth: u64| {
                if !agree(&mut counts[index], number, truth) {
                    wrong.push(format!("{seed}: {key} {number:?}, not {truth}"));
                }
            };
            check(0, "iops", found.iops, volume.iops);
            check(1, "rate", found.rate, rate);
            check(
                2,
                "burst",
                found.burst.filter(|_| found.slice.is_none()).map(|burst| burst.0),
                volume.burst.0,
            );
            check(3, "slice", found.slice.map(|slice| slice.0), volume.slice.0);
        }
        println!("iops, rate, burst, slice found: {counts:?} of 40; wrong: {wrong:?}");
        assert!(wrong.len() <= 2, "{wrong:?}");
        assert!(counts[0] >= 20 && counts[1] >= 20 && counts[2] >= 20, "{counts:?}");
    }

    /// Goal: a burst of minutes is found, and only rows in simulated time begin with it. Method: a volume with a burst of 20 s.
    #[test]
    fn a_long_burst_is_not_waited_for() {
        let name = "random-volume:17?volume.iops=3000&volume.burst=20s&volume.slice=1us";
        let (truth, found) = limits(name);
        let burst = found.burst.unwrap();
        assert!(burst.0.abs_diff(20_000_000_000) < 200_000_000, "{burst}");
        let simulated = scope(&truth);
        let live = Scope { row_time: Nanos::from_secs(5), is_simulated: false, ..simulated };
        assert_eq!((found.rest(&simulated), found.rest(&live)), (Some(burst), None));
        let volume = found.volume(&live);
        assert_eq!((volume.burst, found.whole_burst(&volume)), (volume.slice, burst));
        // A longer row has more requests, since it ends with them, too.
        let requests = |row_time| {
            let scope = Scope { row_time: Nanos::from_secs(row_time), ..live };
            let row = scope.survey().into_iter().find(|row| row.name == SUSTAINED).unwrap();
            row.load.measured.requests
        };
        assert_eq!(requests(50), 10 * requests(5));
    }

    /// Goal: a drive without limits shows none. Method: the flash drives among the profiles, and random ones.
    #[test]
    fn drives_have_no_limits() {
        let random = (0..20).map(|seed| format!("random-flash:{seed}"));
        let names = ["plextor-px256m5s", "samsung-970-pro", "nvme-2015", "nvme-2021"];
        for name in names.map(str::to_owned).into_iter().chain(random) {
            let (_, found) = limits(&name);
            assert!(!found.are_shown(), "{name}: {found:?}");
        }
    }
}
