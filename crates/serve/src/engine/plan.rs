//! The desired state of an engine.

use iofair_config::contracts::faults::Faults;
use iofair_core::contract::Contract;
use iofair_core::controller::Stack;
use iofair_core::time::Nanos;

use crate::back::volume::PlannedVolume;

/// Time limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// For a command; after it, its client gets an error.
    pub timeout: Nanos,
    /// For a shutdown; after it, the server ends even if clients do not read their replies.
    pub drain: Nanos,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { timeout: Nanos::from_secs(30), drain: Nanos::from_secs(30) }
    }
}

/// The desired state of an engine: every contract admitted, every volume placed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The policy stack.
    pub stack: Stack,
    /// Groups, parents first, with the weights that keep their minimums.
    pub groups: Vec<(String, Contract)>,
    /// Volumes.
    pub volumes: Vec<PlannedVolume>,
    /// Names of removed volumes whose clients must be disconnected. Clients of other removed volumes may stay until
    /// they disconnect.
    pub closed: Vec<String>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Injected faults, for a back end that supports them.
    pub faults: Faults,
}
