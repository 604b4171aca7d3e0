//! The controllers of a run: one, or one a drive of a stripe that is controlled at its leaves. All know
//! the same groups and clients, by the same ids, because they are told the same in the same order.

use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, Setup};
use iofair_core::group::{ClientId, GroupError, GroupId, Priority};
use iofair_core::time::Instant;
use iofair_drive::Drive;
use iofair_drive::stripe::Geometry;

use super::engine::Lane;
use crate::run::RunError;
use crate::scenario::{Control, Scenario};

/// Equal controllers, at least one.
pub(super) struct Controllers(Vec<Controller>);

impl Controllers {
    pub(super) fn new(setup: Setup, scenario: &Scenario, count: usize) -> Self {
        let controller = |_| Controller::new(setup, scenario.stack.clone());
        Self((0..count).map(controller).collect())
    }
    pub(super) fn first(&self) -> &Controller {
        &self.0[0]
    }
    pub(super) fn add_group(&mut self, name: &str, contract: &Contract) -> Result<(), GroupError> {
        for controller in &mut self.0 {
            controller.add_group(Instant::ZERO, name, contract.clone())?;
        }
        Ok(())
    }
    pub(super) fn find(&self, name: &str) -> Result<GroupId, RunError> {
        let missing = || RunError::NoGroup(name.to_string());
        self.first().groups().find(name).ok_or_else(missing)
    }
    pub(super) fn add_client(
        &mut self,
        group: GroupId,
        priority: Priority,
    ) -> Result<ClientId, RunError> {
        let mut ids = Vec::new();
        for controller in &mut self.0 {
            ids.push(controller.add_client(Instant::ZERO, group, priority)?);
        }
        assert!(ids.iter().all(|id| *id == ids[0]), "controllers were told the same");
        Ok(ids[0])
    }
    /// Each with its drive.
    pub(super) fn with(self, drives: Vec<Box<dyn Drive + Send>>) -> Vec<Lane> {
        let lanes = self.0.into_iter().zip(drives);
        lanes.map(|(controller, drive)| Lane::new(controller, drive)).collect()
    }
}

/// How requests are split among several controllers; `None`: they are not.
pub(super) fn split(scenario: &Scenario) -> Option<Geometry> {
    scenario.stripe.filter(|stripe| stripe.control == Control::Leaf).map(|stripe| stripe.geometry)
}
