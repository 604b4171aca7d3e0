//! What is to be done about contracts, and what that does not achieve.

use iofair_core::contract::Contract;
use serde::Serialize;

use crate::Write;

/// What enforces weights.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Weights {
    /// The scheduler bfq.
    Bfq,
    /// `io.cost` of cgroup v2.
    Cost,
    /// Nothing.
    Nothing,
}

/// Everything that is to be done, and what it does not achieve.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In the order in which they have to be made.
    pub writes: Vec<Write>,
    /// What the kernel cannot guarantee, one sentence each.
    pub notes: Vec<String>,
    /// What enforces weights.
    pub weights: Weights,
    /// Each group with the weight that it is to have, in the order of the file.
    pub groups: Vec<Planned>,
}

/// One group of the plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its name in the file.
    pub name: String,
    /// Its path below the root of the hierarchy.
    pub path: String,
    /// What it was promised, with the weight that keeps its minimum.
    pub contract: Contract,
}
