//! The path between clients and drive as it was measured: above the kernel's scheduler and below it, with the processor time of
//! each thread.

use anyhow::Result;
use iofair_core::time::Nanos;
use iofair_experiments::experiment::Experiment;
use iofair_simulator::scenario::{Processors, Work};
use serde::{Deserialize, Serialize};

use crate::linux::{self, Copies, Measured};

/// The largest part of a turn that a request is assumed to contain: two requests a turn.
const PART_MAX: f64 = 0.5;
/// To a thousandth of a turn.
const HALVINGS: u32 = 9;

/// The path of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PathTimes {
    /// Above the scheduler, in nanoseconds from when a process runs again to its next request.
    pub(crate) turnaround_ns: u64,
    /// Before, from a completion until the process runs again.
    #[serde(default)]
    pub(crate) woken_ns: u64,
    /// Below it, in nanoseconds: fixed, serial, for each MiB.
    pub(crate) path_ns: [u64; 3],
    /// The mean random part of it, in nanoseconds.
    #[serde(default)]
    pub(crate) jitter_ns: u64,
    /// Requests that the path has in flight.
    pub(crate) depth: u32,
    /// The processors and their use; without it, the simulator's path has a constant time for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) processors: Option<Shared>,
    /// Processor time for 256 KiB of page cache in nanoseconds: of a reader, of that what does not depend on the number of its calls,
    /// of a writer, of the flusher, and of the server in addition to direct reads. Only with buffered clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copies_ns: Option<[u64; 5]>,
    /// IOPS of a lone client with 32 requests in flight: kernel, simulator without the path.
    pub(crate) deep_iops: [f64; 2],
}

/// Processors that clients and path share. Processor time in nanoseconds, of a turn, of a request, of a MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shared {
    pub(crate) count: u32,
    /// Processor time of fio: turn, request, MiB.
    pub(crate) client_ns: [u64; 3],
    /// Of the threads that pass requests to the server: the loop device's worker, and the readers of FUSE's requests.
    pub(crate) worker_ns: [u64; 3],
    /// Of the server with the drive.
    pub(crate) server_ns: [u64; 3],
    /// When and how it was measured, if not together with the rows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
}

impl Shared {
    fn new([client, worker, server]: [Work; 3]) -> Self {
        let nanos = |work: Work| [work.turn, work.request, work.per_mib].map(|time| time.0);
        let count = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let [client_ns, worker_ns, server_ns] = [client, worker, server].map(nanos);
        Self { count, client_ns, worker_ns, server_ns, note: String::new() }
    }
    /// Processor time of a lone request, without what overlaps its time in the drive: of turns, and the rest.
    fn alone(&self) -> [u64; 2] {
        let [client, worker, server] = [self.client_ns, self.worker_ns, self.server_ns];
        // The server takes two turns for it.
        let turns = client[0] + worker[0] + 2 * server[0];
        [turns, client[1] + worker[1] + server[1].div_ceil(2)]
    }
    /// The time until an idle processor works, and the percentage of turns that follows their work, if a lone request takes
    /// this long in all, without what is random. What it takes beyond the work is the former, what it takes less the latter.
    fn idle_exit(&self, whole: u64) -> (Nanos, u32) {
        let [turns, work] = self.alone();
        let idle_exit = Nanos(whole.saturating_sub(turns + work) / HOPS);
        let after = (turns + work).saturating_sub(whole).min(turns);
        (idle_exit, (after * 100 / turns.max(1)) as u32)
    }
    /// The server's part of a MiB that passes in the drive's time, since a lone request takes only `path` for it.
    pub(super) fn overlap(&self, path: u64) -> u64 {
        let [worker, server] = [self.worker_ns[2], self.server_ns[2]];
        (worker + server).saturating_sub(path).min(server)
    }
    /// With this part of a turn taken out of each request's time. A lone request takes as long as before.
    fn without_turns(&self, part: f64) -> Self {
        let split = |[turn, request, per_mib]: [u64; 3], turns: u64| {
            let longer = turn as f64 * turns as f64 / (turns as f64 - part);
            [longer as u64, request.saturating_sub((longer * part) as u64), per_mib]
        };
        Self {
            client_ns: split(self.client_ns, 1),
            worker_ns: split(self.worker_ns, 1),
            server_ns: split(self.server_ns, 2),
            ..self.clone()
        }
    }
    fn processors(&self, whole: u64, per_mib: Nanos) -> Processors {
        let work = |[turn, request, per_mib]: [u64; 3]| {
            let [turn, request, per_mib] = [turn, request, per_mib].map(Nanos);
            Work { turn, request, per_mib }
        };
        let [client, worker, server] = [self.client_ns, self.worker_ns, self.server_ns].map(work);
        let overlap = Nanos(self.overlap(per_mib.0));
        let (idle_exit, after_percent) = self.idle_exit(whole);
        let count = self.count;
        let new_pages = Nanos::ZERO;
        Processors { count, idle_exit, client, worker, server, overlap, new_pages, after_percent }
    }
}

/// Times that a lone request finds a processor idle: worker, server before and after the drive, client.
const HOPS: u64 = 4;

impl PathTimes {
    pub(super) fn new(path: &Measured) -> Self {
        Self {
            turnaround_ns: path.turnaround.0,
            woken_ns: path.woken.0,
            path_ns: [path.path.fixed, path.path.serial, path.path.per_mib].map(|time| time.0),
            jitter_ns: path.path.jitter.0,
            depth: path.path.depth,
            processors: path.work.map(Shared::new),
            copies_ns: path.copies.map(
                |Copies { consume, consume_copy, produce, collect, new_pages }| {
                    [consume, consume_copy, produce, collect, new_pages].map(|time| time.0)
                },
            ),
            deep_iops: path.deep,
        }
    }
    /// The path in which each number is the median of those of `all`.
    pub(super) fn medians(all: &[&Self]) -> Self {
        let median = |of: &dyn Fn(&Self) -> Option<u64>| {
            let mut all: Vec<u64> = all.iter().filter_map(|path| of(path)).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or(0)
        };
        let work = |kind: fn(&Shared) -> [u64; 3]| {
            [0, 1, 2]
                .map(|n| median(&|path| path.processors.as_ref().map(|shared| kind(shared)[n])))
        };
        let shared = all.iter().find_map(|path| path.processors.clone()).map(|first| Shared {
            client_ns: work(|shared| shared.client_ns),
            worker_ns: work(|shared| shared.worker_ns),
            server_ns: work(|shared| shared.server_ns),
            ..first
        });
        let copies = all.iter().any(|path| path.copies_ns.is_some());
        let copies =
            copies.then(|| std::array::from_fn(|n| median(&|path| Some(path.copies_ns?[n]))));
        Self {
            turnaround_ns: median(&|path| Some(path.turnaround_ns)),
            woken_ns: median(&|path| Some(path.woken_ns)),
            path_ns: [0, 1, 2].map(|n| median(&|path| Some(path.path_ns[n]))),
            jitter_ns: median(&|path| Some(path.jitter_ns)),
            depth: all.first().map_or(0, |path| path.depth),
            processors: shared,
            copies_ns: copies,
            deep_iops: [0, 1].map(|n| median(&|path| Some(path.deep_iops[n] as u64)) as f64),
        }
    }
    /// With times of a request without turns. They were measured with many requests in flight, where a turn serves several; so a
    /// part of a turn is in each. The part is that with which the simulator's client gets as many requests through as the kernel's,
    /// which is found by halving. Where the drive is the limit, nothing follows from that.
    pub(super) fn fitted(self, drive: &str) -> Result<Self> {
        let Some(shared) = self.processors.clone() else { return Ok(self) };
        let with =
            |part: f64| Self { processors: Some(shared.without_turns(part)), ..self.clone() };
        let deep = |part: f64| linux::deep_iops(drive, |probes| with(part).apply_shared(probes));
        let (mut low, mut high) = (0.0, PART_MAX);
        if linux::is_drive_the_limit(self.deep_iops) || deep(low)? >= self.deep_iops[0] {
            return Ok(self);
        }
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            match deep(middle)? < self.deep_iops[0] {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(with((low + high) / 2.0))
    }
    /// Puts the measured path into the experiment.
    pub(crate) fn apply(&self, experiment: &mut Experiment) {
        let [fixed, serial, per_mib] = self.path_ns.map(Nanos);
        let (jitter, depth) = (Nanos(self.jitter_ns), self.depth);
        let path = iofair_drive::behind::Path { fixed, jitter, serial, per_mib, depth };
        for variant in &mut experiment.variants {
            variant.host.turnaround = Nanos(self.turnaround_ns);
            variant.host.turnaround_write = Nanos(self.turnaround_ns);
            variant.host.process_wakeup = Nanos(self.woken_ns);
            variant.host.path = Some(path);
        }
    }
    /// The same for the simulator, which has the processors, too.
    pub(crate) fn apply_shared(&self, experiment: &mut Experiment) {
        self.apply(experiment);
        let Some(shared) = &self.processors else { return };
        let whole = self.turnaround_ns + self.woken_ns + self.path_ns[0] + self.path_ns[1];
        for host in experiment.variants.iter_mut().map(|variant| &mut variant.host) {
            (host.turnaround, host.turnaround_write) = (Nanos::ZERO, Nanos::ZERO);
            host.process_wakeup = Nanos::ZERO;
            let Some(path) = &mut host.path else { continue };
            host.processors = Some(shared.processors(whole, path.per_mib));
            if let Some(copies) = self.copies_ns {
                let [consume, consume_copy, produce, collect, new_pages] = copies.map(Nanos);
                (host.consume_window, host.consume_copy) = (consume, consume_copy);
                (host.produce_window, host.collect_window) = (produce, collect);
                if let Some(processors) = &mut host.processors {
                    processors.new_pages = new_pages * 4;
                }
            }
            let done = shared.worker_ns[2] + shared.server_ns[2] - shared.overlap(path.per_mib.0);
            (path.fixed, path.serial) = (Nanos::ZERO, Nanos::ZERO);
            path.per_mib = path.per_mib.saturating_sub(Nanos(done));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each number is the median on its own, also where not all have it. Method: three paths, one of them with copies.
    #[test]
    fn numbers_are_medians() {
        let path = |time: u64, processors, copies_ns| PathTimes {
            turnaround_ns: time,
            path_ns: [time, 10 * time, 10 - time],
            processors,
            copies_ns,
            ..PathTimes::default()
        };
        let shared = |time: u64| {
            let [client_ns, worker_ns, server_ns] = [[time; 3], [2 * time; 3], [3 * time; 3]];
            Shared { count: 2, client_ns, worker_ns, server_ns, note: String::new() }
        };
        let all = [
            path(1, Some(shared(5)), None),
            path(9, Some(shared(4)), Some([7; 5])),
            path(2, Some(shared(6)), None),
        ];
        let all = PathTimes::medians(&all.iter().collect::<Vec<_>>());
        assert_eq!((all.turnaround_ns, all.path_ns, all.copies_ns), (2, [2, 20, 8], Some([7; 5])));
        assert_eq!(all.processors, Some(shared(5)));
    }

    /// Goal: without turns, the simulator's client with 32 requests in flight gets what the kernel's got, and a lone request takes as
    /// long as before. Method: times as measured, for more requests than they allow; for fewer, and for as many as
    /// the drive has, where nothing changes.
    #[test]
    fn requests_are_fitted() {
        let drive = "plextor-px256m5s";
        let path = |deep: f64| PathTimes {
            turnaround_ns: 1_800,
            woken_ns: 9_000,
            path_ns: [62_000, 20_000, 300_000],
            jitter_ns: 20_000,
            depth: 128,
            processors: Some(Shared {
                count: 2,
                client_ns: [7_000, 6_400, 60_000],
                worker_ns: [32_000, 11_300, 30_000],
                server_ns: [26_000, 17_400, 160_000],
                note: String::new(),
            }),
            deep_iops: [deep, 73_000.0],
            ..PathTimes::default()
        };
        let got = |path: &PathTimes| {
            linux::deep_iops(drive, |probes| path.apply_shared(probes)).expect("it runs")
        };
        let slow = path(30_000.0).fitted(drive).expect("it runs");
        assert_eq!(slow.processors, path(0.0).processors);
        let quick = path(73_000.0).fitted(drive).expect("it runs");
        assert_eq!(quick.processors, path(0.0).processors, "the drive is the limit");
        let fitted = path(50_000.0).fitted(drive).expect("it runs");
        assert!(got(&slow) < 48_000.0 && (got(&fitted) - 50_000.0).abs() < 500.0);
        let [then, now] = [&slow, &fitted].map(|path| path.processors.clone().expect("processors"));
        let lone = |shared: &Shared| {
            let time = |work: [u64; 3], turns: u64| work[0] * turns + work[1];
            time(shared.client_ns, 1) + time(shared.worker_ns, 1) + time(shared.server_ns, 2)
        };
        assert!(lone(&now).abs_diff(lone(&then)) < 10);
    }
}
