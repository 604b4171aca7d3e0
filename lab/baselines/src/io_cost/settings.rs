//! Parameters: the cost model, the quality of service, and built-in sets for missing values.

use super::model::{Model, Rates};
use super::vrate::WHOLE_RATE;
use iofair_core::params::{Kind, Parameter, Values};
use iofair_core::policy::DriveFacts;
use iofair_core::time::{Instant, Nanos};

/// Everything `io.cost.qos` and `io.cost.model` take.
pub(super) const PARAMETERS: &[Parameter] = &[
    percent(
        "rpct",
        0,
        (0, 100 * PERCENT),
        "percentage of reads that must complete within rlat; 0: no target",
    ),
    Parameter::time("rlat", Nanos::ZERO, "target latency of reads; 0: that of the built-in set"),
    percent(
        "wpct",
        0,
        (0, 100 * PERCENT),
        "percentage of writes that must complete within wlat; 0: no target",
    ),
    Parameter::time("wlat", Nanos::ZERO, "target latency of writes; 0: that of the built-in set"),
    percent("min", PERCENT, RATE_RANGE, "slowest rate of the device's virtual clock"),
    percent(
        "max",
        10_000 * PERCENT,
        (10 * PERCENT, RATE_RANGE.1),
        "fastest rate of the device's virtual clock",
    ),
    Parameter::rate("rbps", 0, "sequential read rate; 0, here and below: that of the built-in set"),
    iops("rseqiops", "sequential 4 KiB reads a second"),
    iops("rrandiops", "random 4 KiB reads a second"),
    Parameter::rate("wbps", 0, "sequential write rate"),
    iops("wseqiops", "sequential 4 KiB writes a second"),
    iops("wrandiops", "random 4 KiB writes a second"),
    Parameter::bool(
        "size_latency",
        true,
        "subtract the time that the size takes by the model from latencies",
    ),
    Parameter::bool("first", false, "the rules of the patches as first mailed, in 2019"),
];
/// [`Kind::Percent`] counts hundredths.
const PERCENT: u64 = 100;
const RATE_RANGE: (u64, u64) = (PERCENT, 10_000 * PERCENT);

const fn percent(
    name: &'static str,
    default: u64,
    range: (u64, u64),
    doc: &'static str,
) -> Parameter {
    Parameter { name, doc, kind: Kind::Percent, default, range }
}
const fn iops(name: &'static str, doc: &'static str) -> Parameter {
    Parameter::count(name, 0, (0, 1_000_000_000), doc)
}

/// A built-in set (`autop[]`).
struct Set {
    latency: Nanos,
    /// Reads, writes.
    rates: [Rates; 2],
    /// If the clock runs this fast, in percent, the drive belongs to the next set.
    too_fast: Option<u64>,
    /// The clock runs so slow that it must be one of the set before.
    too_slow: Option<u64>,
}

const fn rates(bytes: u64, sequential: u64, random: u64) -> Rates {
    Rates { bytes, sequential, random }
}

const HDD: usize = 0;
const SSD_SINGLE: usize = 1;
const SSD: usize = 2;

/// A rotating drive's latency in the patches as first mailed.
const FIRST_HDD_LATENCY: Nanos = Nanos::from_millis(50);

static SETS: [Set; 4] = [
    Set {
        latency: Nanos::from_millis(250),
        rates: [rates(174_019_176, 41_708, 370), rates(178_075_866, 42_705, 378)],
        too_fast: None,
        too_slow: None,
    },
    Set {
        latency: Nanos::from_millis(25),
        rates: [rates(245_855_193, 61_575, 6_946), rates(141_365_009, 33_716, 26_796)],
        too_fast: None,
        too_slow: None,
    },
    Set {
        latency: Nanos::from_millis(25),
        rates: [rates(488_636_629, 8_932, 8_518), rates(427_891_549, 28_755, 21_940)],
        too_fast: Some(500),
        too_slow: None,
    },
    Set {
        latency: Nanos::from_millis(5),
        rates: [rates(3_102_524_156, 724_816, 778_122), rates(1_742_780_862, 425_702, 443_193)],
        too_fast: None,
        too_slow: Some(10),
    },
];

/// The clock must have been too fast or too slow for this long (`AUTOP_CYCLE_NSEC`).
const CYCLE: Nanos = Nanos::from_secs(10);
/// Bounds of a period.
const PERIOD: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_secs(1));
const MILLION: u64 = 1_000_000;

/// What the user set; zero where nothing.
#[derive(Clone, Copy, Debug)]
struct Asked {
    latency: [Nanos; 2],
    rates: [Rates; 2],
    /// Whether the user set anything. The set then never changes.
    any: bool,
}

/// The parameters in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    asked: Asked,
    set: usize,
    too_fast_since: Option<Instant>,
    too_slow_since: Option<Instant>,
    pub(super) model: Model,
    /// Reads, writes.
    pub(super) latency: [Nanos; 2],
    /// The rules as first mailed (`first.rs`).
    pub(super) first: bool,
    /// Whether the time that the size takes by the model is subtracted from latencies.
    pub(super) size_latency: bool,
    /// Reads and writes per million that may take longer; a million means no target.
    pub(super) misses_max: [u64; 2],
    /// Bounds of the clock's rate.
    pub(super) rate_range: (u64, u64),
    pub(super) period: Nanos,
}

impl Settings {
    pub(super) fn new(values: &Values, facts: &DriveFacts) -> Self {
        let direction = |names: [&str; 3]| {
            let [bytes, sequential, random] = names.map(|name| values.count(name));
            Rates { bytes, sequential, random }
        };
        let asked = Asked {
            latency: [values.time("rlat"), values.time("wlat")],
            rates: [
                direction(["rbps", "rseqiops", "rrandiops"]),
                direction(["wbps", "wseqiops", "wrandiops"]),
            ],
            any: values.iter().any(|(p, value)| p.kind != Kind::Bool && p.default != value),
        };
        let set = match facts {
            DriveFacts { rotational: true, .. } => HDD,
            DriveFacts { depth: 1, .. } => SSD_SINGLE,
            _ => SSD,
        };
        // From hundredths of a percent to the clock's own measure.
        let rate = |percent: u64| percent * WHOLE_RATE / (100 * PERCENT);
        let slowest = rate(values.count("min"));
        let mut this = Self {
            asked,
            set,
            too_fast_since: None,
            too_slow_since: None,
            model: Model::new(SETS[set].rates),
            latency: [Nanos::ZERO; 2],
            first: values.bool("first"),
            size_latency: values.bool("size_latency") && !values.bool("first"),
            misses_max: ["rpct", "wpct"].map(|name| MILLION - values.count(name) * 100),
            rate_range: (slowest, rate(values.count("max")).max(slowest)),
            period: PERIOD.0,
        };
        this.take(set);
        this
    }
    /// Applies a set, except for values set by the user.
    fn take(&mut self, index: usize) {
        let set = &SETS[index];
        let or = |asked: u64, otherwise: u64| if asked == 0 { otherwise } else { asked };
        (self.set, self.too_fast_since, self.too_slow_since) = (index, None, None);
        let latency = match (index, self.first) {
            (HDD, true) => FIRST_HDD_LATENCY,
            _ => set.latency,
        };
        self.latency = self.asked.latency.map(|asked| Nanos(or(asked.0, latency.0)));
        let mut rates = self.asked.rates;
        for (rates, set) in rates.iter_mut().zip(set.rates) {
            *rates = Rates {
                bytes: or(rates.bytes, set.bytes),
                sequential: or(rates.sequential, set.sequential),
                random: or(rates.random, set.random),
            };
        }
        self.model = Model::new(rates);
        self.period = self.find_period();
    }
    /// Long enough to hold requests enough to see misses: `max(misses_max / 50,000, 2)` times the
    /// longer latency, in whole microseconds.
    fn find_period(&self) -> Nanos {
        let longer = usize::from(self.latency[0] < self.latency[1]);
        let times = match self.misses_max[longer] {
            MILLION => 2,
            misses => (misses / 50_000).max(2),
        };
        let period = (self.latency[longer] * times).clamp(PERIOD.0, PERIOD.1);
        Nanos::from_micros(period.as_micros())
    }
    /// Whether there are latency targets.
    pub(super) fn has_targets(&self) -> bool {
        self.misses_max != [MILLION; 2]
    }
    /// Looks whether the clock's rate shows that another built-in set is right; `true`: it was taken, and
    /// the clock must start again at 100 %.
    pub(super) fn try_other_set(&mut self, now: Instant, rate: u64) -> bool {
        if self.asked.any {
            return false;
        }
        let percent = rate * 100 / WHOLE_RATE;
        let for_long = |since: &mut Option<Instant>, holds: bool| {
            *since = holds.then(|| since.unwrap_or(now));
            since.is_some_and(|since| now.since(since) >= CYCLE)
        };
        let set = &SETS[self.set];
        let too_fast = set.too_fast.is_some_and(|limit| limit <= percent);
        let too_slow = set.too_slow.is_some_and(|limit| limit >= percent);
        if for_long(&mut self.too_fast_since, too_fast) {
            self.take(self.set + 1);
        } else if for_long(&mut self.too_slow_since, too_slow) {
            self.take(self.set - 1);
        } else {
            return false;
        }
        true
    }
    /// The built-in set in force: 0 rotating, 1 flash without a queue, 2 flash, 3 fast flash.
    pub(super) fn set(&self) -> usize {
        self.set
    }
}
