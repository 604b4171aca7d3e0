//! The parameters of the last CFQ.

use crate::parts::cfq_parameters::{
    BACK_SEEK_MAX, BACK_SEEK_PENALTY, FIFO_EXPIRE_ASYNC, FIFO_EXPIRE_SYNC, SLICE_ASYNC,
    SLICE_ASYNC_RQ, SLICE_SYNC,
};
use iofair_core::params::{Parameter, Values};
use iofair_core::time::Nanos;

/// What the original calls a tick (`HZ` 1000).
pub(super) const TICK: Nanos = Nanos::from_millis(1);

/// The kernel's own parameters.
pub(super) static PARAMETERS: &[Parameter] = &[
    Parameter::count(
        "quantum",
        8,
        (1, 1 << 20),
        "number of requests of one queue that the drive may have; half of it late in a slice, any number if it is the only queue",
    ),
    FIFO_EXPIRE_SYNC,
    FIFO_EXPIRE_ASYNC,
    BACK_SEEK_MAX,
    BACK_SEEK_PENALTY,
    SLICE_SYNC,
    SLICE_ASYNC,
    SLICE_ASYNC_RQ,
    Parameter::time(
        "slice_idle",
        Nanos::from_millis(8),
        "how long to idle for an empty queue; 0s: never, and turns cost requests instead of time on a drive that queues commands",
    ),
    Parameter::time(
        "group_idle",
        Nanos::from_millis(8),
        "how long to idle for the last queue of a group without a reason of its own; 0s: never",
    ),
    Parameter::bool(
        "idle_on_flash",
        false,
        "use slice_idle on flash, too (before 4.1); off: it is 0s there",
    ),
    Parameter::bool(
        "low_latency",
        true,
        "fit the slices of a group's queues into its part of target_latency, and admit buffered writes slowly after late reads",
    ),
    Parameter::time(
        "target_latency",
        Nanos::from_millis(300),
        "time in which every queue should have a turn",
    ),
    Parameter::count(
        "leaf_weight",
        100,
        (1, 1000),
        "weight of a group's own clients beside the groups inside it",
    ),
];

/// Those that only this version has, as values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) group_idle: Nanos,
    pub(super) target_latency: Nanos,
    pub(super) leaf_weight: u64,
}

impl Settings {
    pub(super) fn new(values: &Values) -> Self {
        Self {
            group_idle: values.time("group_idle"),
            target_latency: values.time("target_latency").max(TICK),
            leaf_weight: values.count("leaf_weight"),
        }
    }
}
