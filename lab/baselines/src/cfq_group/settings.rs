//! The parameters of the last CFQ.

use crate::parts::cfq_parameters::{
    BACK_SEEK_MAX, BACK_SEEK_PENALTY, FIFO_EXPIRE_ASYNC, FIFO_EXPIRE_SYNC, SLICE_ASYNC,
    SLICE_ASYNC_RQ, SLICE_SYNC, seek_rules,
};
use iofair_core::params::{Parameter, Values};
use iofair_core::time::Nanos;
use iofair_policies::parts::priority_slice::PrioritySlices;
use iofair_policies::parts::sorted_fifo::SeekRules;

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

/// [`PARAMETERS`] as values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) quantum: u32,
    pub(super) fifo_expire_sync: Nanos,
    pub(super) fifo_expire_async: Nanos,
    pub(super) seek: SeekRules,
    pub(super) slices: PrioritySlices,
    pub(super) slice_async_rq: u64,
    pub(super) slice_idle: Nanos,
    pub(super) group_idle: Nanos,
    pub(super) low_latency: bool,
    pub(super) target_latency: Nanos,
    pub(super) leaf_weight: u64,
}

impl Settings {
    pub(super) fn new(values: &Values, rotational: bool) -> Self {
        // The kernel's shortest slice is one tick.
        let slice = |name| values.time(name).max(super::TICK);
        let idles = rotational || values.bool("idle_on_flash");
        Self {
            quantum: values.count("quantum") as u32,
            fifo_expire_sync: values.time("fifo_expire_sync"),
            fifo_expire_async: values.time("fifo_expire_async"),
            seek: seek_rules(values),
            slices: PrioritySlices {
                sync: slice("slice_sync"),
                asynchronous: slice("slice_async"),
            },
            slice_async_rq: values.count("slice_async_rq"),
            slice_idle: if idles { values.time("slice_idle") } else { Nanos::ZERO },
            group_idle: values.time("group_idle"),
            low_latency: values.bool("low_latency"),
            target_latency: slice("target_latency"),
            leaf_weight: values.count("leaf_weight"),
        }
    }
}
