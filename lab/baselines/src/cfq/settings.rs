//! The parameters of CFQ.

use crate::parts::cfq_parameters::{
    BACK_SEEK_MAX, BACK_SEEK_PENALTY, FIFO_EXPIRE_ASYNC, FIFO_EXPIRE_SYNC, SLICE_ASYNC,
    SLICE_ASYNC_RQ, SLICE_SYNC,
};
use iofair_core::params::Parameter;
use iofair_core::time::Nanos;

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
