//! Whether a drive can keep contracts: what is known of it, and the plan that follows.

use std::sync::OnceLock;

use iofair_config::contracts::Contracts;
use iofair_config::contracts::admission::{AdmissionError, Admitted, Basis, Known};
use iofair_config::contracts::effects::{self, State};
use iofair_core::attainable::Attainable;
use iofair_drive::profile;

use crate::engine::{Plan, Timeouts};
use crate::error::ServeError;
use crate::places::Places;

/// What is known of the back end, whatever the contracts say.
#[derive(Debug)]
pub(super) struct Facts {
    worst_case: Option<u64>,
    /// What it reaches, measured when it is first needed.
    reaches: OnceLock<Attainable>,
}

impl Facts {
    pub(super) const fn new(worst_case: Option<u64>) -> Self {
        Self { worst_case, reaches: OnceLock::new() }
    }
    pub(super) fn known(&self, contracts: &Contracts) -> Result<Known, ServeError> {
        if let (Some(name), None) = (contracts.asks_reaches(), self.reaches.get()) {
            let profile = profile::read(name);
            let profile = profile.map_err(|error| contracts.back_error(error.to_string()))?;
            self.reaches.get_or_init(|| profile.reaches());
        }
        Ok(Known { worst_case: self.worst_case, reaches: self.reaches.get().copied() })
    }
    /// Promises that are not refused, and may not be kept. Contracts whose drive is not known are refused elsewhere.
    pub(super) fn warnings(&self, contracts: &Contracts) -> Vec<String> {
        self.known(contracts).map(|known| contracts.warnings(&known)).unwrap_or_default()
    }
    /// What an operator should know of contracts: what they may not keep, and what they leave.
    pub(super) fn notes(&self, contracts: &Contracts) -> Result<Vec<String>, ServeError> {
        let known = self.known(contracts)?;
        let groups = &self.admit(contracts, None)?;
        let told = effects::notes(State { contracts, groups }, &known);
        Ok(contracts.warnings(&known).into_iter().chain(told).collect())
    }
    /// The rate that admission uses under stacks that translate minimums into weights.
    pub(super) fn worst_case(&self, contracts: &Contracts) -> Option<u64> {
        contracts.drive.worst_case.or(self.worst_case)
    }
    /// The rates of the drive, if minimums are checked against them.
    pub(super) fn reaches(&self, contracts: &Contracts) -> Option<Attainable> {
        let known = self.known(contracts).ok()?;
        match contracts.basis(&known) {
            Basis::Reaches(drive) if contracts.drive.stack.keeps_minimums() => Some(drive),
            _ => None,
        }
    }
    pub(super) fn admit(
        &self,
        contracts: &Contracts,
        before: Option<&Contracts>,
    ) -> Result<Admitted, ServeError> {
        contracts.admit(&self.known(contracts)?, before).map_err(|error| match error {
            AdmissionError::Config(error) => ServeError::Infeasible(error),
            AdmissionError::Sum(refusal) => ServeError::Refused(refusal),
        })
    }
}

/// A plan without volumes, if the promises can be kept and the volumes fit. `before`: the contracts in force.
pub(super) fn admit(
    contracts: &Contracts,
    places: &Places,
    facts: &Facts,
    before: Option<&Contracts>,
) -> Result<Plan, ServeError> {
    let groups = facts.admit(contracts, before)?;
    places.check_room(contracts)?;
    let (volumes, closed) = (Vec::new(), Vec::new());
    let drive = &contracts.drive;
    let timeouts = Timeouts { timeout: drive.timeout, drain: drive.drain };
    let (stack, faults) = (drive.stack.clone(), drive.faults.clone());
    Ok(Plan { stack, groups, volumes, closed, timeouts, faults })
}
