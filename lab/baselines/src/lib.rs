//! Policies to compare with: schedulers and throttles that Linux has, once had, or that were proposed for it. The policies of
//! servers are in `iofair-policies`.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod anticipatory;
pub mod cfq;
pub mod cfq_group;
pub mod deadline;
pub mod fair;
pub mod io_cost;
pub mod io_latency;
pub mod io_throttle;
pub mod ioband;
pub mod kyber;
pub mod noop;
pub mod parts;
pub mod proportional;
pub mod throttle_low;
pub mod wbt;

use iofair_core::policy::Table;
use iofair_policies::{bfq, mq_deadline, none, promise, throttle_max};

/// All policies of this crate and of `iofair-policies`, and its stacks.
pub static TABLE: Table = Table {
    policies: &[
        &none::ROW,
        &noop::ROW,
        &deadline::ROW,
        &anticipatory::ROW,
        &mq_deadline::ROW,
        &kyber::ROW,
        &bfq::ROW,
        &bfq::versions::ROW_6_18,
        &bfq::versions::ROW_5_3,
        &bfq::versions::ROW_4_20,
        &bfq::versions::ROW_4_18,
        &cfq::ROW,
        &cfq_group::ROW,
        &fair::ROW_NOOP,
        &fair::ROW_DEADLINE,
        &fair::ROW_ANTICIPATORY,
        &fair::ROW_CFQ,
        &io_latency::ROW,
        &throttle_low::ROW,
        &throttle_max::ROW,
        &ioband::ROW,
        &ioband::ROW_RANGE,
        &io_throttle::ROW,
        &io_cost::ROW,
        &promise::ROW,
        &proportional::ROW,
        &wbt::ROW,
    ],
    stacks: iofair_policies::TABLE.stacks,
};
