//! Which promise breaks first: all minimums are scaled by one factor until the mixes break one of them.

use iofair_core::contract::{Contract, Latency};
use iofair_core::time::Nanos;
use serde::Serialize;

use super::bench::{Bench, Run};
use super::fit::Verdict;
use super::mix::{Breach, Mix, Tested, are_kept};
use super::question::PlanError;
use super::set::Set;
use crate::scenario::GroupSpec;

/// One, in the parts that factors are counted in.
const ONE: u64 = 1000;
/// Factors that are tried at most and at least.
const MOST: u64 = 16 * ONE;
const LEAST: u64 = ONE / 32;
/// The search ends when the factors that hold and break differ by less than 1 / `PRECISION` of them.
const PRECISION: u64 = 100;

/// Where the first promise breaks.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Edge {
    /// Are latencies divided by the factor, because there is no minimum to multiply?
    pub of_latencies: bool,
    /// The largest factor at which every promise was kept, in thousandths; 0: not even at the smallest factor tried.
    pub holds_permille: u64,
    /// The smallest factor at which one broke; `None`: none broke up to 16 times.
    pub breaks_permille: Option<u64>,
    /// The promises broken there, the least kept first.
    pub first: Option<Breach>,
}

pub(super) fn edge(set: &Set, bench: &Bench<'_>, mixes: &[Mix]) -> Result<Option<Edge>, PlanError> {
    if set.promised().next().is_none() {
        return Ok(None);
    }
    bench.stage("which promise breaks first");
    let of_latencies =
        set.groups.iter().all(|group| group.contract.minimum().in_bytes(1).is_none());
    // A latency that is broken whatever the minimums are would hide which minimum breaks first.
    let what = if of_latencies { Tested::All } else { Tested::Minimums };
    let scaled = |factor: u64| set.with_contracts(|group| scale(group, factor, of_latencies));
    let mut order: Vec<usize> = (0..mixes.len()).collect();
    let mut kept = |factor: u64| are_kept(bench, what, &scaled(factor), mixes, &mut order);
    let (mut low, mut high) = (ONE, ONE);
    if kept(ONE)? {
        loop {
            high *= 2;
            if high > MOST {
                let (breaks_permille, first) = (None, None);
                return Ok(Some(Edge {
                    of_latencies,
                    holds_permille: low,
                    breaks_permille,
                    first,
                }));
            }
            if !kept(high)? {
                break;
            }
            low = high;
        }
    } else {
        loop {
            low /= 2;
            if low < LEAST {
                low = 0;
                break;
            }
            if kept(low)? {
                break;
            }
            high = low;
        }
    }
    while low > 0 && high - low > (low / PRECISION).max(1) {
        let middle = low + (high - low) / 2;
        if kept(middle)? { low = middle } else { high = middle }
    }
    let set = scaled(high);
    let tested: Vec<&Mix> = mixes.iter().filter(|mix| mix.tests()).collect();
    let runs: Vec<Run> = tested.iter().map(|mix| mix.run(&set)).collect();
    let ran = bench.run(&runs)?;
    let breaches = tested.iter().zip(&ran).flat_map(|(mix, ran)| {
        ran.iter()
            .flat_map(|ran| mix.breaches(&set, ran))
            .filter(|breach| what.covers(breach))
            .collect::<Vec<_>>()
    });
    let first = Verdict::from_breaches(breaches).breaches.into_iter().next();
    Ok(Some(Edge { of_latencies, holds_permille: low, breaks_permille: Some(high), first }))
}

/// A contract with its minimums multiplied, or its latency divided.
fn scale(group: &GroupSpec, factor: u64, of_latencies: bool) -> Contract {
    let mut contract = group.contract.clone();
    if of_latencies {
        let times = contract.latency.times();
        let [read, write, sync] =
            times.map(|time| time.map(|time| (time * ONE / factor).max(Nanos(1))));
        contract.latency = Latency { read, write, sync };
        return contract;
    }
    let times = |value: u64| (value.saturating_mul(factor) / ONE).max(1);
    contract.min = contract.min.filter(|min| *min > 0).map(times);
    contract.min_iops = contract.min_iops.filter(|min| *min > 0).map(times);
    contract
}
