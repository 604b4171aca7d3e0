//! Checks whether the drive can keep all minimums and latencies: at the start and before every change.

use iofair_config::contracts::Contracts;
use iofair_config::contracts::admission::{Admitted, shares_under};
use iofair_config::contracts::effects::{self, Effect, State};
use iofair_core::attainable::Attainable;

use super::facts::admit;
use super::{Server, View};
use crate::confine;
use crate::consent::Consent;
use crate::error::ServeError;
use crate::log;
use crate::places::Need;
use crate::security::Security;

impl Server {
    /// The rate that admission uses under stacks that translate minimums into weights.
    pub fn worst_case(&self) -> Option<u64> {
        self.facts.worst_case(&self.contracts)
    }
    /// The rates of the drive, if minimums are checked against them.
    pub fn reaches(&self) -> Option<Attainable> {
        self.facts.reaches(&self.contracts)
    }
    /// The groups with the weights in force.
    pub(crate) fn admitted(&self) -> Result<Admitted, ServeError> {
        self.facts.admit(&self.contracts, None)
    }
    /// The shares of these groups under these contracts.
    pub(crate) fn shares(
        &self,
        contracts: &Contracts,
        admitted: &Admitted,
    ) -> Result<Vec<Option<f64>>, ServeError> {
        let floors = contracts.floors(&self.facts.known(contracts)?);
        Ok(shares_under(&contracts.drive.stack, admitted, &floors))
    }
    /// What is given up by going from the contracts in force to these, which were admitted so.
    pub(crate) fn given_up(
        &self,
        contracts: &Contracts,
        admitted: &Admitted,
    ) -> Result<Vec<Effect>, ServeError> {
        let before = State { contracts: &self.contracts, groups: &self.admitted()? };
        let after = State { contracts, groups: admitted };
        Ok(effects::given_up(before, after, &self.facts.known(contracts)?))
    }
    /// The groups with the weights that these contracts would give them, what needs consent, and the server as it would be, or why they
    /// would be refused. Sockets, devices and files of volumes are not made, so what stands in their way is not seen.
    pub(crate) fn try_out(
        &self,
        contracts: &Contracts,
        consent: &Consent,
    ) -> Result<(Admitted, Vec<Need>, View), ServeError> {
        self.check_change(contracts, consent)?;
        confine::check(contracts, Some(&self.contracts))?;
        Security::load(&contracts.listen, &contracts.groups)?;
        let (old, remove) = (&self.contracts.volumes, consent.delete.as_slice());
        self.places.check_removal(old, &contracts.volumes, remove)?;
        self.places.check_files(old, &contracts.volumes)?;
        let mut places = self.places.clone();
        let needs = places.try_out(contracts, consent, &self.line)?;
        let plan = admit(contracts, &places, &self.facts, Some(&self.contracts))?;
        Ok((plan.groups, needs, self.view_of(contracts, places)))
    }
    /// Whether the data of a volume of this name, which the contracts do not have any more, can be deleted.
    pub(crate) fn keeps(&self, name: &str) -> bool {
        let is_there = self.contracts.volumes.iter().any(|volume| volume.name == name);
        !is_there && self.places.keeps(name)
    }
    /// What of this consent these contracts do not need, in words.
    pub(crate) fn unneeded(&self, contracts: &Contracts, consent: &Consent) -> Vec<String> {
        if !consent.is_given() {
            return Vec::new();
        }
        // Why they are refused is told by whoever applies them.
        let needs = self.places.clone().place(contracts, consent);
        needs.map(|needs| consent.unneeded(&needs)).unwrap_or_default()
    }
    /// What of these contracts is not refused, and may not be kept.
    pub(crate) fn warnings(&self, contracts: &Contracts) -> Vec<String> {
        self.facts.warnings(contracts)
    }
    /// Tells what of the contracts may not be kept, unless that was so `before`.
    pub(super) fn tell_warnings(&self, before: Option<&Contracts>) {
        let before = before.map(|before| self.warnings(before)).unwrap_or_default();
        let mut notes = self.warnings(&self.contracts);
        notes.retain(|note| !before.contains(note));
        notes.iter().for_each(|note| log::tell("contracts", note));
    }
}
