//! The parameters that all versions have.

use crate::parts::cfq_parameters::seek_rules;
use iofair_core::params::Values;
use iofair_core::time::Nanos;
use iofair_policies::parts::priority_slice::PrioritySlices;
use iofair_policies::parts::sorted_fifo::SeekRules;

/// The values of parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) quantum: u32,
    pub(crate) fifo_expire_sync: Nanos,
    pub(crate) fifo_expire_async: Nanos,
    pub(crate) seek: SeekRules,
    pub(crate) slices: PrioritySlices,
    pub(crate) slice_async_rq: u64,
    pub(crate) slice_idle: Nanos,
    pub(crate) low_latency: bool,
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
        }
    }
}
