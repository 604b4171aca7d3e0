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
use iofair_drive::behind::Path;
use iofair_experiments::experiment::{Experiment, Overrides, parse};
use iofair_simulator::outcome::Outcome;
use iofair_simulator::scenario::Work;

use super::copies::Copies;
use super::execute::{Times, kernel};
use super::usage::Usage;
use crate::live::Watch;

/// Requests that a loop device has in flight (its `hw_queue_depth`).
const LOOP_DEPTH: u32 = 128;
/// The quickest requests, in parts of a million.
const QUICK: u64 = 50_000;
/// Requests in flight of the third client.
const DEEP: u64 = 32;

const PROBES: &str = r#"
title = "The path"
source = "a probe"
drive = "DRIVE"
time = "600ms"
ramp = "200ms"
repeats = 3
stacks = ["none-none"]
[[client]]
name = "probe"
job = "randread"
buffered = false
[[variant]]
name = "4 KiB"
[[variant]]
name = "256 KiB"
client.probe.block = "256KiB"
[[variant]]
name = "deep"
client.probe.depth = 32
"#;

/// The path of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Above: from when a process runs again to its next request.
    pub(crate) turnaround: Nanos,
    /// Until the process runs again, which fio counts as latency; not part of the turnaround.
    pub(crate) woken: Nanos,
    /// Below.
    pub(crate) path: Path,
    /// IOPS of the third client on Linux and in the simulator.
    pub(crate) deep: [f64; 2],
    /// Processor time of a client, of what passes requests to the server, and of the server; `None` where the kernel does not
    /// count it.
    pub(crate) work: Option<[Work; 3]>,
    /// Processor time of the page cache, where clients use it.
    pub(crate) copies: Option<Copies>,
}

/// Processor time of threads that take this many turns for a lone request, from times per request: a lone small one, a lone
/// large one, a small one of many.
fn work(turns: u64, [lone, large, deep]: [u64; 3]) -> Work {
    Work {
        turn: Nanos(lone.saturating_sub(deep) / turns),
        request: Nanos(deep.min(lone)),
        per_mib: Nanos(large.saturating_sub(lone) * 1024 / 252),
    }
}

/// The same from what the three probes used.
fn all_work(probes: &[(Outcome, Times)]) -> Option<[Work; 3]> {
    let work_of = |turns: u64, kind: fn(&Usage) -> u64| {
        let time = |probe: usize| {
            let times = &probes[probe].1;
            kind(&times.usage) / times.requests.max(1)
        };
        work(turns, [0, 1, 2].map(time))
    };
    // The server takes a turn for the request, and one when the drive has done it.
    let all = [
        work_of(1, |used| used.client),
        work_of(1, |used| used.worker),
        work_of(2, |used| used.server),
    ];
    all.iter().all(|work| work.request > Nanos::ZERO).then_some(all)
}

impl Measured {
    /// In words.
    pub(crate) fn text(&self) -> String {
        let us = |time: Nanos| time.0 as f64 / 1e3;
        let Self { turnaround, woken, path, deep, work, copies } = self;
        let mut text = format!(
            "Above the scheduler, {:.0} us pass from a completion to the next request of a process, and fio counts {:.0} us of it as \
             latency; below it, a request takes {:.0} us more than in the drive model, and {:.0} us in addition for each MiB. With 32 in flight the path passes {:.0} requests a \
             second where the model alone gives {:.0}.",
            us(*turnaround + *woken),
            us(*woken),
            us(path.fixed + path.jitter + path.serial),
            us(path.per_mib),
            deep[0],
            deep[1]
        );
        if let Some([client, worker, server]) = work {
            let times = |work: &Work| format!("{:.0} + {:.0}", us(work.turn), us(work.request));
            text += &format!(
                " Processor time of a turn and a request in us: fio {}, worker {}, server {}.",
                times(client),
                times(worker),
                times(server)
            );
        }
        text + &copies.as_ref().map(Copies::text).unwrap_or_default()
    }
}

/// The three clients, over the drive with this profile.
fn probes(drive: &str) -> Result<Experiment> {
    Ok(parse("path.toml", &PROBES.replace("DRIVE", drive), &Overrides::default())?)
}

fn iops(outcome: &Outcome) -> f64 {
    outcome.clients[0].calls as f64 * 1e9 / outcome.time.0 as f64
}

/// Whether the drive, and not the path, limits a client with many requests in flight. Both are its IOPS, with the path
/// and in the simulator without it.
pub(crate) fn is_drive_the_limit([with, without]: [f64; 2]) -> bool {
    with >= 0.97 * without
}

/// IOPS of the third client in the simulator, after `set` has set its path.
pub(crate) fn deep_iops(drive: &str, set: impl FnOnce(&mut Experiment)) -> Result<f64> {
    let mut probes = probes(drive)?;
    set(&mut probes);
    Ok(iops(&iofair_simulator::simulate(&probes.scenario(2, 0, 0))?))
}

/// Measures it, over the drive with this profile.
pub(super) fn measure(drive: &str, watch: &Watch) -> Result<Measured> {
    let mut probes = probes(drive)?;
    let here = (0..3).map(|probe| kernel(&probes, probe, watch)).collect::<Result<Vec<_>>>()?;
    let work = all_work(&here);
    let Times { period, device, .. } = here[0].1;
    let mean = |outcome: &Outcome| outcome.clients[0].latency.mean();
    let above = (period - device).max(0.0) as u64;
    let woken = Nanos(mean(&here[0].0).saturating_sub(device as u64).min(above));
    let turnaround = Nanos(above - woken.0);
    for variant in &mut probes.variants {
        variant.host.turnaround = turnaround;
    }
    let lab = |variant: usize| iofair_simulator::simulate(&probes.scenario(variant, 0, 0));
    let lab = (0..3).map(lab).collect::<Result<Vec<_>, _>>()?;
    let more = |n: usize| (here[n].1.device as u64).saturating_sub(mean(&lab[n]));
    let deep = [1e9 / here[2].1.period.max(1.0), iops(&lab[2])];
    // Where the drive is the limit, the path's serial time is not measurable; it is shorter than a request's turn.
    let serial = if is_drive_the_limit(deep) { 0 } else { (1e9 / deep[0]) as u64 };
    let serial = serial.min(more(0)).min(DEEP * 1_000_000);
    let per_mib = Nanos(more(1).saturating_sub(more(0)) * 1024 / 252);
    let fixed = more(0).saturating_sub(serial + per_mib.0 / 256);
    // Jitter of the path: how far the mean is above the quickest requests, less the same of the drive alone.
    let above = |run: &Outcome| mean(run).saturating_sub(run.clients[0].latency.quantile(QUICK));
    let jitter = above(&here[0].0).saturating_sub(above(&lab[0])).min(fixed);
    let (fixed, jitter) = (Nanos(fixed - jitter), Nanos(jitter));
    let path = Path { fixed, jitter, serial: Nanos(serial), per_mib, depth: LOOP_DEPTH };
    Ok(Measured { turnaround, woken, path, deep, work, copies: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: times per request become turns, requests and bytes, and disturbed ones no nonsense. Method: by hand.
    #[test]
    fn processor_time_is_split() {
        let split = work(2, [70_000, 448_000, 15_000]);
        let (turn, request, per_mib) = (Nanos(27_500), Nanos(15_000), Nanos(1_536_000));
        assert_eq!(split, Work { turn, request, per_mib });
        let odd = work(1, [10_000, 9_000, 12_000]);
        assert_eq!((odd.turn, odd.request, odd.per_mib), (Nanos(0), Nanos(10_000), Nanos(0)));
    }
}
