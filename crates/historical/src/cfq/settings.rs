//! The parameters of CFQ.

use crate::parts::habits::WaitRules;
use iofair_core::params::{Parameter, Values};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
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
    Parameter::time(
        "fifo_expire_sync",
        Nanos::from_millis(125),
        "a synchronous request this old goes first in its queue",
    ),
    Parameter::time(
        "fifo_expire_async",
        Nanos::from_millis(250),
        "a buffered write this old goes first in its queue",
    ),
    Parameter::bytes(
        "back_seek_max",
        16 << 20,
        "longest backward movement of the head that is not treated as a wrap",
    ),
    Parameter::count(
        "back_seek_penalty",
        2,
        (1, 1000),
        "a backward movement counts this many times its length",
    ),
    Parameter::time(
        "slice_sync",
        Nanos::from_millis(100),
        "slice of a queue of level 4; a fifth more or less for each other level",
    ),
    Parameter::time(
        "slice_async",
        Nanos::from_millis(40),
        "slice of buffered writes of level 4; a fifth more or less for each other level",
    ),
    Parameter::count(
        "slice_async_rq",
        2,
        (1, 1 << 20),
        "buffered writes per slice while others wait: twice this, and again twice for each level more urgent than 7",
    ),
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
            seek: SeekRules {
                back_max: Sectors::from_bytes_ceil(values.count("back_seek_max")),
                back_penalty: values.count("back_seek_penalty"),
                urgent_first: true,
            },
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
