//! The parameters of CFQ.

use crate::parts::cfq_parameters::{
    BACK_SEEK_MAX, BACK_SEEK_PENALTY, FIFO_EXPIRE_ASYNC, FIFO_EXPIRE_SYNC, SLICE_ASYNC,
    SLICE_ASYNC_RQ, SLICE_SYNC, seek_rules,
};
use crate::parts::habits::WaitRules;
use iofair_core::params::{Parameter, Values};
use iofair_core::time::Nanos;
use iofair_policies::parts::priority_slice::PrioritySlices;
use iofair_policies::parts::sorted_fifo::SeekRules;

/// The kernel's own parameters, and the difference between the two versions.
pub(super) static PARAMETERS: &[Parameter] = &[
    Parameter::count(
        "quantum",
        4,
        (1, 1 << 20),
        "number of requests of one queue that the drive may have; four times as many if it is the only queue",
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
        "how long to idle for an empty queue; 0s: never",
    ),
    Parameter::bool(
        "low_latency",
        true,
        "also idle for seeky queues, and admit buffered writes slowly after reads (2.6.32)",
    ),
    Parameter::bool(
        "queue_merge",
        true,
        "processes that work close together share a queue (2.6.32); off: service jumps between their queues (2.6.31)",
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
    pub(super) low_latency: bool,
    pub(super) queue_merge: bool,
}

impl Settings {
    pub(super) fn new(values: &Values) -> Self {
        // The kernel's shortest slice is one tick.
        let slice = |name| values.time(name).max(Nanos::from_millis(1));
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
            slice_idle: values.time("slice_idle"),
            low_latency: values.bool("low_latency"),
            queue_merge: values.bool("queue_merge"),
        }
    }
    /// The conditions for idling, on a drive that queues commands or does not.
    pub(super) fn wait_rules(&self, drive_queues: bool) -> WaitRules {
        let spurn_seeky = !self.low_latency && drive_queues;
        WaitRules { slice_idle: self.slice_idle, spurn_seeky }
    }
}
