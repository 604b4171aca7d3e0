//! What tests of several modules begin with.

use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, FlushRule, Setup};
use iofair_core::policy::DriveFacts;
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;

/// A controller with these groups, parents first, for tests of what is counted for groups: its drive is the smallest one.
pub(crate) fn controller<'a>(groups: impl IntoIterator<Item = (&'a str, Contract)>) -> Controller {
    let (max_request, capacity) = (Sectors(8), Sectors(1 << 20));
    let facts = DriveFacts { rotational: false, depth: 1, max_request, capacity };
    let setup = Setup {
        facts,
        tags: 1,
        queue_limit: 1,
        guaranteed: 0,
        client_limit: u32::MAX,
        flushes: FlushRule::Bypass,
        trace: 0,
    };
    let mut controller = Controller::new(setup, iofair_policies::TABLE.stack("none-none").unwrap());
    for (name, contract) in groups {
        controller.add_group(Instant::ZERO, name, contract).unwrap();
    }
    controller
}
