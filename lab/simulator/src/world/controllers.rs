//! The controllers of a run: one, or one a drive of a stripe that is controlled at its leaves. All know
//! the same groups and clients, by the same ids, because they are told the same in the same order.

use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, Setup};
use iofair_core::error::EngineError;
use iofair_core::id::{ClientId, GroupId};
use iofair_core::priority::Priority;
use iofair_core::time::{Instant, Nanos};
use iofair_drive::Drive;
use iofair_drive::random::Random;
use iofair_drive::stripe::Geometry;

use crate::engine::device::{Device, Dispatcher};
use crate::error::RunError;
use crate::scenario::{Control, Scenario, Scheduling};

/// The schedulers of blk-mq: after a completion they are asked for work by a worker of kblockd. The older ones
/// are asked by the completion itself, and without a scheduler nothing is left to ask for.
const WOKEN: &[&str] =
    &["mq-deadline", "kyber", "bfq", "bfq-6.18", "bfq-5.3", "bfq-4.20", "bfq-4.18"];

/// Streams of random numbers of dispatchers: one each, from the last one down.
const STREAM_LAST: u64 = u64::MAX;

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
    pub(super) fn add_group(&mut self, name: &str, contract: &Contract) -> Result<(), EngineError> {
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
    pub(super) fn with(
        self,
        drives: Vec<Box<dyn Drive + Send>>,
        scenario: &Scenario,
    ) -> Vec<Device> {
        let scheduling = scenario.host.scheduling;
        let Scheduling { wakeup, wakeup_spread: spread, .. } = scheduling;
        let scheduler = scenario.stack.scheduler.row.name;
        let time = scheduling.time_of(scheduler);
        let device = |((controller, drive), index)| {
            let random = Random::new(scenario.seed, STREAM_LAST - index);
            let thread = Dispatcher { wakeup, spread, random };
            let woken = wakeup > Nanos::ZERO && WOKEN.contains(&scheduler);
            let thread = Some(thread).filter(|_| woken);
            Device::new(controller, drive).with_cost(time, thread).with_scheduling(&scheduling)
        };
        self.0.into_iter().zip(drives).zip(0..).map(device).collect()
    }
}

/// How requests are split among several controllers; `None`: they are not.
pub(super) fn split(scenario: &Scenario) -> Option<Geometry> {
    scenario.stripe.filter(|stripe| stripe.control == Control::Leaf).map(|stripe| stripe.geometry)
}
