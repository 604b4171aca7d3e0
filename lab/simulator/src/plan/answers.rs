//! The answers of a plan.

use serde::Serialize;

use super::bench::Sustained;
use super::drives::Approach;
use super::edge::Edge;
use super::fit::{Row, Verdict};
use super::load;
use super::set::Admission;

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Drive profile.
    pub drive: String,
    /// The stack of the contracts.
    pub stack: String,
    /// Warm-up of each run, in nanoseconds.
    pub ramp_ns: u64,
    /// Measured time of each run, in nanoseconds.
    pub time_ns: u64,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Runs that were made.
    pub runs: usize,
    /// What the others did, one mix each.
    pub neighbours: Vec<load::Neighbours>,
    /// What the drive sustains; `None` if it writes at the same rate for ever.
    pub sustained: Option<Sustained>,
    /// What admission says of the contracts on this drive.
    pub admission: Admission,
    /// Groups with clients or promises, parents first.
    pub rows: Vec<Row>,
    /// Is every promise kept in every worst mix?
    pub worst_mix: Verdict,
    /// Is every promise kept in the expected mix?
    pub expected_mix: Verdict,
    /// Which promise breaks first; `None` if there is no promise.
    pub edge: Option<Edge>,
    /// How many drives the clients need.
    pub approaches: Vec<Approach>,
}

impl Plan {
    /// Is every promise kept in every mix?
    pub fn fits(&self) -> bool {
        self.worst_mix.is_kept() && self.expected_mix.is_kept()
    }
}
