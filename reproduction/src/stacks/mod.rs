//! What each policy stack keeps on every drive of the library, fresh and in the steady state.
//!
//! ```text
//! minimum   a reader with a minimum has 0.97 of it
//! shares    clients of one kind have rates as their weights, and a reader has a quarter of its share at least
//! latency   one read in a hundred takes longer than what was promised, at most
//! total     all clients together have 0.95 of what no control gives them and the minimum leaves
//! ```
//!
//! Four loads ([`load`]) ask this. `make stacks` runs them and keeps what was measured as `reproduction/evidence/stacks.csv`; the
//! tables ([`table`]) and the picture ([`picture`]) of `reproduction/stacks.md` follow from that.

mod load;
mod picture;
mod run;
mod table;

use serde::{Deserialize, Serialize};

pub use picture::stacks_picture;
pub use run::stacks_csv;
pub use table::stacks_tables;

/// The states of a drive.
const STATES: [&str; 2] = ["fresh", "overwritten"];
/// The stacks; the first one is what the others are compared with.
const STACKS: [&str; 4] = ["none-none", "none-mq-deadline", "prop-bfq", "promise"];
const BASE: &str = STACKS[0];
/// The stack whose losses are explained.
const OURS: &str = STACKS[3];

/// Parts from which on something counts as kept.
const MINIMUM: f64 = 0.97;
const JAIN: f64 = 0.95;
const SHARE: f64 = 0.25;
const TOTAL: f64 = 0.95;

/// One run: a line of `reproduction/evidence/stacks.csv`. Rates are in MB/s and times in milliseconds.
#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
struct Line {
    drive: String,
    class: String,
    state: String,
    load: String,
    stack: String,
    /// What the reader was promised, if it was.
    minimum: Option<f64>,
    bound: Option<f64>,
    /// Jain's index of the others by weight.
    jain: Option<f64>,
    /// The reader's rate as a part of what it has alone, divided by the number of clients.
    share: Option<f64>,
    /// What all clients together should have.
    wanted: f64,
    reader: f64,
    reads: f64,
    writes: f64,
    mean: f64,
    p99: f64,
}

/// Something that a run keeps or breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Aspect {
    Minimum,
    Shares,
    Latency,
    Total,
}

impl Aspect {
    const ALL: [Self; 4] = [Self::Minimum, Self::Shares, Self::Latency, Self::Total];

    fn name(self) -> &'static str {
        match self {
            Self::Minimum => "minimum",
            Self::Shares => "shares",
            Self::Latency => "latency",
            Self::Total => "total",
        }
    }
    /// How much of it a run keeps: 1 is all. `None` if the load does not ask.
    fn part(self, line: &Line) -> Option<f64> {
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
    fn is_broken(self, line: &Line) -> bool {
        self.part(line).is_some_and(|part| part < 1.0)
    }
}

/// What [`stacks_csv`] wrote.
fn read(text: &str) -> Result<Vec<Line>, String> {
    let lines = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
    lines.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// The drives, in the order of the lines.
fn drives(lines: &[Line]) -> Vec<&str> {
    let mut drives: Vec<&str> = lines.iter().map(|line| line.drive.as_str()).collect();
    drives.dedup();
    drives
}

#[cfg(test)]
mod tests;
