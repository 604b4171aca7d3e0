//! The parameters of BFQ, and what Linux 4.18, 4.20 and 5.3 set differently.

use crate::parts::sorted_fifo::SeekRules;
use iofair_core::params::{Parameter, Values};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

/// Parameters: the kernel's own first, then the changes from 4.18 to 2021, each with a switch.
pub(super) static PARAMETERS: &[Parameter] = &[
    Parameter::time(
        "slice_idle",
        Nanos::from_millis(8),
        "how long to idle for an empty queue; 0s: never",
    ),
    Parameter::bool(
        "strict_guarantees",
        false,
        "idle for every queue, and dispatch one request at a time",
    ),
    Parameter::bool(
        "low_latency",
        true,
        "raise the weight of interactive and soft real-time clients",
    ),
    Parameter::time("timeout_sync", Nanos::from_millis(125), "longest slot of a queue"),
    Parameter::count(
        "max_budget",
        0,
        (0, 1 << 31),
        "largest budget of a slot, in sectors; 0: derived from the peak rate",
    ),
    Parameter::rate(
        "peak_rate",
        0,
        "the drive's known peak rate, as after hours of work; 0: start with a guess",
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
        "fifo_expire_sync",
        Nanos::from_millis(125),
        "a synchronous request this old goes first in its queue",
    ),
    Parameter::time(
        "fifo_expire_async",
        Nanos::from_millis(250),
        "a buffered write this old goes first in its queue",
    ),
    Parameter::bool("injection", true, "serve other queues while idling, within limits"),
    Parameter::count(
        "inject_coefficient",
        0,
        (0, 1000),
        "inject while injected * this < received * 10, for seeky queues on flash; 0: learn limits",
    ),
    Parameter::bool(
        "early_learning",
        false,
        "learn limits of injection as up to Linux 5.3, from less evidence",
    ),
    Parameter::bool(
        "early_habits",
        false,
        "judge think times, activity and weight raising as up to Linux 5.3",
    ),
    Parameter::bool(
        "think_in_waits",
        true,
        "also measure think times of queues for which BFQ idles; Linux since 5.14 does not. Off: a queue's first request counts as a long pause, too, as seen in 6.18",
    ),
    Parameter::bool(
        "inject_by_weight",
        false,
        "on flash, also inject while each queue's part of the drive stays in proportion to its weight",
    ),
    Parameter::bool(
        "wakers",
        true,
        "detect queues that wait for other queues, and inject the latter first",
    ),
    Parameter::time(
        "waker_within",
        Nanos::ZERO,
        "arrivals that show a waker count for this long; 0s: for ever",
    ),
    Parameter::count(
        "workers",
        0,
        (0, 1024),
        "requests that a throttle held come from one of so many workers of the kernel (one a processor), which have their own queues in each group",
    ),
    Parameter::bool(
        "charge_moves",
        false,
        "charge a group in service with its whole slot whenever one of its queues becomes active or empty",
    ),
    Parameter::count(
        "busy_groups",
        1,
        (0, 1000),
        "number of groups with requests that makes sharing asymmetric, from 2 on counting the root; 0: decided by weights and numbers of queues",
    ),
    Parameter::bool(
        "spare_smallest_weight",
        true,
        "different weights are no reason to idle for a queue of the smallest weight",
    ),
    Parameter::bool(
        "preempt_lower",
        true,
        "a queue of higher class or weight preempts the one in service",
    ),
    Parameter::bool(
        "preempt_unwaited",
        true,
        "any queue preempts a queue in service for which BFQ would not idle",
    ),
    Parameter::bool(
        "preempt_equal",
        true,
        "a queue that is back in time preempts one that is equally raised; off: only one raised less",
    ),
    Parameter::count(
        "async_charge",
        3,
        (1, 100),
        "a buffered write is charged this many times its length",
    ),
    Parameter::bool(
        "async_charge_always",
        false,
        "also charge buffered writes this way if sharing is asymmetric",
    ),
    Parameter::bool(
        "async_charge_twice",
        false,
        "charge buffered writes twice as much beside raised queues",
    ),
    Parameter::bool(
        "merge_on_queueing_flash",
        false,
        "also merge cooperating queues on flash that queues commands",
    ),
    Parameter::bool("stable_merge", true, "merge queues that a group creates together, for good"),
    Parameter::bool("idle_alone", true, "also idle for the only busy queue"),
    Parameter::bool(
        "idle_deserted",
        false,
        "idle for the sake of throughput even if the queue's clients are gone, as up to Linux 5.4",
    ),
    Parameter::bool(
        "idle_raised_in_crowd",
        true,
        "idle for a raised queue while the drive has four requests of others",
    ),
    Parameter::time(
        "slice_idle_raised",
        Nanos::from_millis(20),
        "shortest idling for a raised queue",
    ),
    Parameter::count(
        "queueing_threshold",
        3,
        (1, 1000),
        "a drive that gets more commands than this at once counts as queueing",
    ),
    Parameter::bool(
        "queueing_in_waits",
        false,
        "also count commands that the drive gets while BFQ idles for a queue with few requests",
    ),
    Parameter::bool(
        "wait_past_timeout",
        true,
        "idle for an empty queue with requests in the drive even after its slot",
    ),
];

/// Stock BFQ of Linux 4.18.
pub(super) static OVERRIDES_4_18: &[(&str, u64)] = &[
    ("injection", 0),
    ("early_habits", 1),
    ("wakers", 0),
    ("busy_groups", 0),
    ("spare_smallest_weight", 0),
    ("preempt_lower", 0),
    ("preempt_unwaited", 0),
    ("preempt_equal", 0),
    ("async_charge", 10),
    ("async_charge_always", 1),
    ("async_charge_twice", 1),
    ("merge_on_queueing_flash", 1),
    ("stable_merge", 0),
    ("idle_alone", 0),
    ("idle_deserted", 1),
    ("idle_raised_in_crowd", 0),
    ("slice_idle_raised", 0),
    ("queueing_threshold", 4),
    ("queueing_in_waits", 1),
    ("wait_past_timeout", 0),
];

/// BFQ of Linux 4.20.
pub(super) static OVERRIDES_4_20: &[(&str, u64)] = &[
    ("inject_coefficient", 1),
    ("early_habits", 1),
    ("wakers", 0),
    ("spare_smallest_weight", 0),
    ("preempt_lower", 0),
    ("preempt_unwaited", 0),
    ("preempt_equal", 0),
    ("async_charge_always", 1),
    ("merge_on_queueing_flash", 1),
    ("stable_merge", 0),
    ("idle_alone", 0),
    ("idle_deserted", 1),
    ("idle_raised_in_crowd", 0),
    ("slice_idle_raised", 0),
    ("queueing_threshold", 4),
    ("queueing_in_waits", 1),
];

/// BFQ of Linux 6.18.
pub(super) static OVERRIDES_6_18: &[(&str, u64)] = &[
    ("think_in_waits", 0),
    ("waker_within", 1_024_000_000),
    ("workers", 2),
    ("charge_moves", 1),
    ("busy_groups", 2),
];

/// BFQ of Linux 5.3.
pub(super) static OVERRIDES_5_3: &[(&str, u64)] = &[
    ("early_learning", 1),
    ("early_habits", 1),
    ("wakers", 0),
    ("preempt_unwaited", 0),
    ("stable_merge", 0),
    ("idle_alone", 0),
    ("idle_deserted", 1),
];

/// What may be dispatched for other queues while BFQ idles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Injection {
    Never,
    /// As in 4.20: this many tenths of the service that the queue received, and not more than that service.
    ByService(u64),
    /// As many requests as the queue was found to tolerate.
    Learned,
}

impl Injection {
    fn new(values: &Values) -> Self {
        match (values.bool("injection"), values.count("inject_coefficient")) {
            (false, _) => Self::Never,
            (true, 0) => Self::Learned,
            (true, coefficient) => Self::ByService(coefficient),
        }
    }
}

/// [`PARAMETERS`] as values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) slice_idle: Nanos,
    pub(super) strict_guarantees: bool,
    pub(super) low_latency: bool,
    pub(super) timeout: Nanos,
    /// Set by the user; `None` derives it.
    pub(super) max_budget: Option<Sectors>,
    /// The known rate of the drive in bytes a second.
    pub(super) peak_rate: Option<u64>,
    pub(super) seek: SeekRules,
    pub(super) fifo_expire_sync: Nanos,
    pub(super) fifo_expire_async: Nanos,
    pub(super) injection: Injection,
    pub(super) early_learning: bool,
    pub(super) early_habits: bool,
    pub(super) think_in_waits: bool,
    pub(super) inject_by_weight: bool,
    pub(super) wakers: bool,
    pub(super) waker_within: Nanos,
    pub(super) workers: usize,
    pub(super) charge_moves: bool,
    pub(super) busy_groups: u32,
    pub(super) spare_smallest_weight: bool,
    pub(super) preempt_lower: bool,
    pub(super) preempt_unwaited: bool,
    pub(super) preempt_equal: bool,
    pub(super) async_charge: u64,
    pub(super) async_charge_always: bool,
    pub(super) async_charge_twice: bool,
    pub(super) merge_on_queueing_flash: bool,
    pub(super) stable_merge: bool,
    pub(super) idle_alone: bool,
    pub(super) idle_deserted: bool,
    pub(super) idle_raised_in_crowd: bool,
    pub(super) slice_idle_raised: Nanos,
    pub(super) queueing_threshold: u32,
    pub(super) queueing_in_waits: bool,
    pub(super) wait_past_timeout: bool,
}

impl Settings {
    pub(super) fn new(values: &Values) -> Self {
        let strict_guarantees = values.bool("strict_guarantees");
        let slice_idle = values.time("slice_idle");
        // As in the kernel: strict guarantees are only possible with complete idling.
        let slice_idle =
            if strict_guarantees { slice_idle.max(Nanos::from_millis(8)) } else { slice_idle };
        let max_budget = Some(values.count("max_budget")).filter(|sectors| *sectors > 0);
        Self {
            slice_idle,
            strict_guarantees,
            low_latency: values.bool("low_latency"),
            timeout: values.time("timeout_sync").max(Nanos::from_millis(1)),
            max_budget: max_budget.map(Sectors),
            peak_rate: Some(values.count("peak_rate")).filter(|rate| *rate > 0),
            seek: SeekRules {
                back_max: Sectors::from_bytes_ceil(values.count("back_seek_max")),
                back_penalty: values.count("back_seek_penalty"),
                urgent_first: true,
            },
            fifo_expire_sync: values.time("fifo_expire_sync"),
            fifo_expire_async: values.time("fifo_expire_async"),
            injection: Injection::new(values),
            early_learning: values.bool("early_learning"),
            early_habits: values.bool("early_habits"),
            think_in_waits: values.bool("think_in_waits"),
            inject_by_weight: values.bool("inject_by_weight"),
            wakers: values.bool("wakers"),
            waker_within: values.time("waker_within"),
            workers: values.count("workers") as usize,
            charge_moves: values.bool("charge_moves"),
            busy_groups: values.count("busy_groups") as u32,
            spare_smallest_weight: values.bool("spare_smallest_weight"),
            preempt_lower: values.bool("preempt_lower"),
            preempt_unwaited: values.bool("preempt_unwaited"),
            preempt_equal: values.bool("preempt_equal"),
            async_charge: values.count("async_charge"),
            async_charge_always: values.bool("async_charge_always"),
            async_charge_twice: values.bool("async_charge_twice"),
            merge_on_queueing_flash: values.bool("merge_on_queueing_flash"),
            stable_merge: values.bool("stable_merge"),
            idle_alone: values.bool("idle_alone"),
            idle_deserted: values.bool("idle_deserted"),
            idle_raised_in_crowd: values.bool("idle_raised_in_crowd"),
            slice_idle_raised: values.time("slice_idle_raised"),
            queueing_threshold: values.count("queueing_threshold") as u32,
            queueing_in_waits: values.bool("queueing_in_waits"),
            wait_past_timeout: values.bool("wait_past_timeout"),
        }
    }
}
