//! Contracts of a run, and those that change during it. The drive's speed is the drive's own affair ([`iofair_drive::paced`]).

use iofair_config::contracts::admission::{admitted, check_attainable};
use iofair_core::contract::Contract;
use iofair_core::id::GroupId;
use iofair_core::time::Instant;
use iofair_drive::profile;

use super::controllers::Controllers;
use crate::engine::Engine;
use crate::error::RunError;
use crate::scenario::{Change, Scenario, What};
use crate::sim::Token;

/// Actor of these timers; no process has this number.
pub(super) const ACTOR: u32 = u32::MAX;

/// Groups with their contracts; with the weights that keep their minimums if the stack admits them, and the drive could keep
/// them at all.
pub(super) fn groups(
    scenario: &Scenario,
    worst_case: u64,
) -> Result<Vec<(String, Contract)>, RunError> {
    let written = scenario.groups.iter().map(|group| (group.name.as_str(), &group.contract));
    if scenario.stack.admits {
        let admitted = admitted(written, worst_case)?;
        // A drive of a test has no profile.
        if let (Ok(profile), None) = (profile::read(&scenario.drive), scenario.stripe) {
            check_attainable(&profile.reaches(), &admitted)?;
        }
        return Ok(admitted);
    }
    Ok(written.map(|(name, contract)| (name.to_string(), contract.clone())).collect())
}

/// Changes for the controllers, in order of time.
#[derive(Default)]
pub(super) struct Changes(Vec<(Instant, Vec<(GroupId, Contract)>)>);

impl Changes {
    /// Those of a scenario. Where a stack admits minimums, one group's change may change the weights of all, or be
    /// refused.
    pub(super) fn new(
        scenario: &Scenario,
        worst_case: u64,
        controllers: &Controllers,
    ) -> Result<Self, RunError> {
        let mut known = groups(scenario, worst_case)?;
        let mut scenario = scenario.clone();
        let mut all = Vec::new();
        for Change { at, what } in std::mem::take(&mut scenario.changes) {
            let What::Contract { group, contract } = what else { continue };
            let found = scenario.groups.iter_mut().find(|known| known.name == group);
            found.ok_or(RunError::NoGroup(group))?.contract = *contract;
            let next = groups(&scenario, worst_case)?;
            let mut updates = Vec::new();
            for ((name, contract), _) in next.iter().zip(&known).filter(|(new, old)| new.1 != old.1)
            {
                updates.push((controllers.find(name)?, contract.clone()));
            }
            all.push((Instant::ZERO + at, updates));
            known = next;
        }
        Ok(Self(all))
    }
    /// Sets a timer for each.
    pub(super) fn start(&self, engine: &mut Engine<'_>) {
        for (slot, (at, _)) in (0..).zip(&self.0) {
            engine.wake(*at, Token { actor: ACTOR, slot });
        }
    }
    /// The time of one has come.
    pub(super) fn apply(&self, slot: u32, engine: &mut Engine<'_>) {
        engine.update_groups(&self.0[slot as usize].1);
    }
}
