//! The parameters of the layer and of its leaves.

use crate::parts::anticipatory;
use crate::parts::cfq_parameters::{
    BACK_SEEK_MAX, BACK_SEEK_PENALTY, FIFO_EXPIRE_ASYNC, FIFO_EXPIRE_SYNC,
};
use iofair_core::params::{Parameter, Values};
use iofair_core::time::Nanos;
use iofair_policies::parts::deadline_queue;
use iofair_policies::parts::priority_slice::PrioritySlices;

/// The layer's own parameters; every row begins with them.
const LAYER: [Parameter; 6] = [
    Parameter::time(
        "group_idle",
        Nanos::from_millis(8),
        "how long to idle for a group that would become empty; 0s: never",
    ),
    Parameter::bool(
        "fairness",
        false,
        "charge all time used, also beyond the slice, and wait for the drive between queues",
    ),
    Parameter::time("slice_sync", Nanos::from_millis(100), "slice of a queue of priority level 4"),
    Parameter::time(
        "slice_async",
        Nanos::from_millis(40),
        "slice of a queue of buffered writes of priority level 4",
    ),
    Parameter::bool(
        "async_in_root",
        false,
        "buffered writes belong to the root group, not to the group that wrote",
    ),
    Parameter::time(
        "tick",
        Nanos::from_millis(4),
        "the kernel's clock tick: the smallest cost of a turn",
    ),
];

/// The layer's parameters, then a leaf scheduler's.
const fn with<const L: usize, const N: usize>(leaf: [Parameter; L]) -> [Parameter; N] {
    assert!(LAYER.len() + L == N, "every parameter has its place");
    let mut all = [LAYER[0]; N];
    let mut index = 0;
    while index < N {
        all[index] = if index < LAYER.len() { LAYER[index] } else { leaf[index - LAYER.len()] };
        index += 1;
    }
    all
}

pub(super) static NOOP: [Parameter; 7] = with([Parameter::count(
    "dispatch_batch",
    1,
    (1, 128),
    "requests that move to the dispatch list at once; the list is sorted one way",
)]);

pub(super) static DEADLINE: [Parameter; 11] = with(deadline_queue::PARAMETERS);

pub(super) static ANTICIPATORY: [Parameter; 11] = with(anticipatory::PARAMETERS);

pub(super) static CFQ: [Parameter; 13] = with([
    Parameter::time(
        "slice_idle",
        Nanos::from_millis(8),
        "how long to idle for an empty queue with an idle window; 0s: never",
    ),
    Parameter::count(
        "quantum",
        4,
        (1, 1 << 20),
        "number of requests of one queue that the drive may have; four times as many if it is the only queue",
    ),
    Parameter::count(
        "slice_async_rq",
        2,
        (1, 1 << 20),
        "buffered writes per turn while others wait: twice this, and again twice for each level more urgent than 7",
    ),
    FIFO_EXPIRE_SYNC,
    FIFO_EXPIRE_ASYNC,
    BACK_SEEK_MAX,
    BACK_SEEK_PENALTY,
]);

/// The layer's own settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) group_idle: Nanos,
    pub(super) fairness: bool,
    pub(super) slices: PrioritySlices,
    pub(super) async_in_root: bool,
    pub(super) tick: Nanos,
}

impl Settings {
    pub(super) fn new(values: &Values) -> Self {
        let slices = PrioritySlices {
            sync: values.time("slice_sync"),
            asynchronous: values.time("slice_async"),
        };
        Self {
            group_idle: values.time("group_idle"),
            fairness: values.bool("fairness"),
            slices,
            async_in_root: values.bool("async_in_root"),
            tick: values.time("tick"),
        }
    }
}
