//! Measures what lies above the kernel's scheduler (fio, system calls, and the time until a process runs again after a
//! completion) and below it (loop device and FUSE), so that the simulator's numbers can be compared with the kernel's.
//! Where the one ends and the other begins is what the block layer itself counts (`/sys/block/*/stat`).
//!
//! Three lone clients run on the emulated drive with `none`, and in the simulator without a path: reads of 4 KiB and of
//! 256 KiB one after the other, and reads of 4 KiB with 32 in flight. The differences are the path.
//!
//! Clients and path share the machine's processors. The processor time of each thread is measured meanwhile ([`super::usage`]).
//! With 32 in flight requests pass in batches, so what a lone request takes more is the time of a thread's turns.

use anyhow::Result;
use iofair_core::time::Nanos;
use iofair_reproduction::truth::{DEEP, PathTimes, Shared, iops, is_drive_the_limit, probes};
use iofair_simulator::outcome::Outcome;

use super::execute::{Times, kernel};
use super::usage::Usage;
use crate::live::Watch;

/// Requests that a loop device has in flight (its `hw_queue_depth`).
const LOOP_DEPTH: u32 = 128;
/// The quickest requests, in parts of a million.
const QUICK: u64 = 50_000;

/// Processor time of threads that take this many turns for a lone request, from times per request: a lone small one, a lone
/// large one, a small one of many: for a turn, a request, a MiB.
fn work(turns: u64, [lone, large, deep]: [u64; 3]) -> [u64; 3] {
    let turn = lone.saturating_sub(deep) / turns;
    [turn, deep.min(lone), large.saturating_sub(lone) * 1024 / 252]
}

/// The same from what the three probes used; `None` where the kernel does not count it.
fn processors(probes: &[(Outcome, Times)]) -> Option<Shared> {
    let work_of = |turns: u64, kind: fn(&Usage) -> u64| {
        let time = |probe: usize| {
            let times = &probes[probe].1;
            kind(&times.usage) / times.requests.max(1)
        };
        work(turns, [0, 1, 2].map(time))
    };
    let count = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let (client_ns, worker_ns) = (work_of(1, |used| used.client), work_of(1, |used| used.worker));
    // The server takes a turn for the request, and one when the drive has done it.
    let server_ns = work_of(2, |used| used.server);
    let is_counted = [client_ns, worker_ns, server_ns].iter().all(|[_, request, _]| *request > 0);
    let note = String::new();
    is_counted.then_some(Shared { count, client_ns, worker_ns, server_ns, note })
}

/// Measures it, over the drive with this profile.
pub(super) fn measure(drive: &str, watch: &Watch) -> Result<PathTimes> {
    let mut probes = probes(drive)?;
    let here = (0..3).map(|probe| kernel(&probes, probe, watch)).collect::<Result<Vec<_>>>()?;
    let Times { period, device, .. } = here[0].1;
    let mean = |outcome: &Outcome| outcome.clients[0].latency.mean();
    let above = (period - device).max(0.0) as u64;
    let woken_ns = mean(&here[0].0).saturating_sub(device as u64).min(above);
    let turnaround_ns = above - woken_ns;
    for variant in &mut probes.variants {
        variant.host.turnaround = Nanos(turnaround_ns);
    }
    let lab = |variant: usize| iofair_simulator::simulate(&probes.scenario(variant, 0, 0));
    let lab = (0..3).map(lab).collect::<Result<Vec<_>, _>>()?;
    let more = |n: usize| (here[n].1.device as u64).saturating_sub(mean(&lab[n]));
    let deep_iops = [1e9 / here[2].1.period.max(1.0), iops(&lab[2])];
    // Where the drive is the limit, the path's serial time is not measurable; it is shorter than a request's turn.
    let serial = if is_drive_the_limit(deep_iops) { 0 } else { (1e9 / deep_iops[0]) as u64 };
    let serial = serial.min(more(0)).min(DEEP * 1_000_000);
    let per_mib = more(1).saturating_sub(more(0)) * 1024 / 252;
    let fixed = more(0).saturating_sub(serial + per_mib / 256);
    // Jitter of the path: how far the mean is above the quickest requests, less the same of the drive alone.
    let above = |run: &Outcome| mean(run).saturating_sub(run.clients[0].latency.quantile(QUICK));
    let jitter_ns = above(&here[0].0).saturating_sub(above(&lab[0])).min(fixed);
    Ok(PathTimes {
        turnaround_ns,
        woken_ns,
        path_ns: [fixed - jitter_ns, serial, per_mib],
        jitter_ns,
        depth: LOOP_DEPTH,
        processors: processors(&here),
        copies_ns: None,
        deep_iops,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: times per request become turns, requests and bytes, and disturbed ones no nonsense. Method: by hand.
    #[test]
    fn processor_time_is_split() {
        assert_eq!(work(2, [70_000, 448_000, 15_000]), [27_500, 15_000, 1_536_000]);
        assert_eq!(work(1, [10_000, 9_000, 12_000]), [0, 10_000, 0], "disturbed");
    }
}
