//! A run as a line of `reproduction/evidence/stacks.csv`, and what it keeps.

use serde::{Deserialize, Serialize};

/// The states of a drive.
pub(super) const STATES: [&str; 2] = ["fresh", "overwritten"];
/// The stacks of `make stacks`; the first one is what the others are compared with.
pub const STACKS: [&str; 4] = ["none-none", "none-mq-deadline", "prop-bfq", "promise"];
pub(super) const BASE: &str = STACKS[0];
/// The stack whose losses are explained.
pub(super) const OURS: &str = STACKS[3];

/// Parts from which on something counts as kept.
pub(super) const MINIMUM: f64 = 0.97;
pub(super) const JAIN: f64 = 0.95;
pub(super) const SHARE: f64 = 0.25;
pub(super) const TOTAL: f64 = 0.95;

/// One run: a line of `reproduction/evidence/stacks.csv`. Rates are in MB/s and times in milliseconds.
#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
pub(super) struct Line {
    pub(super) drive: String,
    pub(super) class: String,
    pub(super) state: String,
    pub(super) load: String,
    pub(super) stack: String,
    /// What the reader was promised, if it was.
    pub(super) minimum: Option<f64>,
    pub(super) bound: Option<f64>,
    /// Jain's index of the others by weight.
    pub(super) jain: Option<f64>,
    /// The reader's rate as a part of what it has alone, divided by the number of clients.
    pub(super) share: Option<f64>,
    /// What all clients together should have.
    pub(super) wanted: f64,
    pub(super) reader: f64,
    pub(super) reads: f64,
    pub(super) writes: f64,
    pub(super) mean: f64,
    pub(super) p99: f64,
}

/// Something that a run keeps or breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aspect {
    Minimum,
    Shares,
    Latency,
    Total,
}

impl Aspect {
    pub(super) const ALL: [Self; 4] = [Self::Minimum, Self::Shares, Self::Latency, Self::Total];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Minimum => "minimum",
            Self::Shares => "shares",
            Self::Latency => "latency",
            Self::Total => "total",
        }
    }
    /// How much of it a run keeps: 1 is all. `None` if the load does not ask.
    pub(super) fn part(self, line: &Line) -> Option<f64> {
        let least = |parts: [Option<f64>; 2]| parts.into_iter().flatten().reduce(f64::min);
        match self {
            Self::Minimum => line.minimum.map(|minimum| line.reader / minimum / MINIMUM),
            Self::Shares => {
                least([line.jain.map(|jain| jain / JAIN), line.share.map(|share| share / SHARE)])
            }
            Self::Latency => line.bound.map(|bound| bound / line.p99.max(1e-6)),
            Self::Total => Some((line.reads + line.writes) / line.wanted / TOTAL),
        }
    }
    /// Whether a run breaks it.
    pub(super) fn is_broken(self, line: &Line) -> bool {
        self.part(line).is_some_and(|part| part < 1.0)
    }
}

/// The lines that `stacks_csv` wrote.
pub(super) fn read(text: &str) -> Result<Vec<Line>, String> {
    let lines = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
    lines.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// The drives, in the order of the lines.
pub(super) fn drives(lines: &[Line]) -> Vec<&str> {
    let mut drives: Vec<&str> = lines.iter().map(|line| line.drive.as_str()).collect();
    drives.dedup();
    drives
}
