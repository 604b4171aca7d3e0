//! The cost model of Linux (`io.cost.model`, `io.cost.qos`) from a fitted drive.
//!
//! The fitted model runs the six loads that the kernel's documentation names, in simulated time, once the write cache is
//! full; so the numbers are the drive's sustained ones.

use iofair_core::request::Operation::{self, Read, Write};
use iofair_core::time::Nanos;
use serde::Serialize;

use super::SEED;
use crate::measure::{Amount, Device, Load, Order, Outcome, Simulated, Stream, run};
use crate::profile::Profile;

/// Depth of the loads.
const DEPTH: u32 = 32;
const SMALL: u64 = 4096;
const LARGE: u64 = 128 << 10;
/// Percentile of latency targets.
const PERCENTILE: u64 = 95;
/// Times the latency at that percentile: what the kernel may let a queue add.
const SLACK: u64 = 2;
/// Bounds of the kernel's virtual rate, in percent.
const RATE_PERCENT: (u32, u32) = (50, 150);
/// Bytes that fill caches, at most.
const FILL_MAX: u64 = 2 << 30;

/// Numbers for `io.cost.model` and `io.cost.qos`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct KernelCosts {
    /// Sequential reads, bytes a second.
    pub rbps: u64,
    /// Sequential 4 KiB reads a second.
    pub rseqiops: u64,
    /// Random 4 KiB reads a second.
    pub rrandiops: u64,
    /// Sequential writes, bytes a second.
    pub wbps: u64,
    /// Sequential 4 KiB writes a second.
    pub wseqiops: u64,
    /// Random 4 KiB writes a second.
    pub wrandiops: u64,
    /// Latency that 95 % of reads should keep, in microseconds.
    pub rlat_us: u64,
    /// The same of writes.
    pub wlat_us: u64,
}

impl KernelCosts {
    /// The line for `io.cost.model`; `number` is the device's `MAJOR:MINOR`.
    pub fn model(&self, number: &str) -> String {
        let Self { rbps, rseqiops, rrandiops, wbps, wseqiops, wrandiops, .. } = self;
        format!(
            "{number} ctrl=user model=linear rbps={rbps} rseqiops={rseqiops} rrandiops={rrandiops} \
             wbps={wbps} wseqiops={wseqiops} wrandiops={wrandiops}"
        )
    }
    /// The line for `io.cost.qos`.
    pub fn qos(&self, number: &str) -> String {
        let Self { rlat_us, wlat_us, .. } = self;
        let (low, high) = RATE_PERCENT;
        format!(
            "{number} enable=1 ctrl=user rpct={PERCENTILE}.00 rlat={rlat_us} wpct={PERCENTILE}.00 \
             wlat={wlat_us} min={low}.00 max={high}.00"
        )
    }
}

/// Runs the loads on the model of a profile. What a volume lets through at once does not count.
pub fn costs(profile: &Profile, write_cache: u64) -> KernelCosts {
    let profile = profile.sustained();
    let outcome = |operation: Operation, block: u64, order: Order| -> Outcome {
        let mut device = Simulated::new(profile.build(SEED));
        let facts = device.facts();
        let stream = Stream {
            area: (0, facts.capacity.bytes() / block * block),
            ..Stream::new(operation, block, DEPTH.min(facts.depth), order)
        };
        let fill = if operation == Write { (write_cache * 4).min(FILL_MAX) / block } else { 0 };
        let requests = if facts.rotational { 500 } else { 4000 };
        // A disk fills its cache with scattered writes for minutes.
        let time = Nanos::from_secs(60);
        let load = Load {
            streams: vec![stream],
            warm_up: Amount { requests: fill.max(64), time },
            measured: Amount { requests, time },
            window: 0,
        };
        run(&mut device, &load, SEED, &|| false)
            .expect("a model refuses nothing within its capacity")
    };
    let [reads, writes] = [Read, Write].map(|operation| {
        [(LARGE, Order::Sequential), (SMALL, Order::Sequential), (SMALL, Order::Random)]
            .map(|(block, order)| outcome(operation, block, order))
    });
    let whole = |number: f64| (number as u64).max(1);
    let latency =
        |run: &Outcome| run.streams[0].latency.quantile(PERCENTILE * 10_000) * SLACK / 1000;
    KernelCosts {
        rbps: whole(reads[0].rate(0)),
        rseqiops: whole(reads[1].iops(0)),
        rrandiops: whole(reads[2].iops(0)),
        wbps: whole(writes[0].rate(0)),
        wseqiops: whole(writes[1].iops(0)),
        wrandiops: whole(writes[2].iops(0)),
        rlat_us: latency(&reads[2]).max(1),
        wlat_us: latency(&writes[2]).max(1),
    }
}
