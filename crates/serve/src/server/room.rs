//! Free space of a pool that must be zeroed before a change can give it to volumes.

use std::sync::Arc;

use iofair_config::contracts::Contracts;

use super::Server;
use super::facts::admit;
use crate::confine;
use crate::consent::Consent;
use crate::error::ServeError;
use crate::pool::zeroing::{Demand, Progress, Zeroing};

impl Server {
    /// What of a pool must be zeroed before these contracts can be taken over; nothing if they cannot at all.
    pub(crate) fn lacking(&self, contracts: &Contracts, consent: &Consent) -> Vec<Demand> {
        let checked = self.check_change(contracts, consent).and_then(|()| {
            confine::check(contracts, Some(&self.contracts))?;
            admit(contracts, &self.places, &self.facts, Some(&self.contracts)).map(drop)
        });
        let lacking = checked.and_then(|()| self.places.lacking(contracts, consent, &self.line));
        // Taking them over says why.
        lacking.unwrap_or_default()
    }
    /// Zeroes what of a pool these contracts need, in the name of whoever needs it.
    pub(super) fn zero_room(
        &self,
        contracts: &Contracts,
        consent: &Consent,
    ) -> Result<(), ServeError> {
        loop {
            let demands = self.places.lacking(contracts, consent, &self.line)?;
            if demands.is_empty() {
                return Ok(());
            }
            demands.iter().try_for_each(|demand| demand.carry_out(&self.line, None))?;
        }
    }
    /// How far zeroing of a pool is.
    pub(crate) fn zeroing(&self) -> Option<&Arc<Progress>> {
        self.zeroing.as_ref().map(Zeroing::progress)
    }
}
