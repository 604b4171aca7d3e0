//! The path between clients and drive as it was measured: above the kernel's scheduler and below it, with the processor time of
//! each thread.

use anyhow::Result;
use iofair_core::time::Nanos;
use iofair_experiments::experiment::{Experiment, Overrides, parse};
use iofair_simulator::outcome::Outcome;
use iofair_simulator::scenario::{Processors, Work};
use serde::{Deserialize, Serialize};

/// Requests in flight of the third probe.
pub const DEEP: u64 = 32;
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

/// Three lone clients, over the drive with this profile: reads of 4 KiB and of 256 KiB one after the other, and many of 4 KiB.
///
/// # Errors
///
/// There is no such drive.
pub fn probes(drive: &str) -> Result<Experiment> {
    Ok(parse("path.toml", &PROBES.replace("DRIVE", drive), &Overrides::default())?)
}

/// Whether the drive, and not the path, limits the third probe. Both are its IOPS, with the path and in the simulator without it.
pub fn is_drive_the_limit([with, without]: [f64; 2]) -> bool {
    with >= 0.97 * without
}

/// IOPS of a probe.
pub fn iops(outcome: &Outcome) -> f64 {
    outcome.clients[0].calls as f64 * 1e9 / outcome.time.0 as f64
}

/// The largest part of a turn that a request is assumed to contain: two requests a turn.
const PART_MAX: f64 = 0.5;
/// To a thousandth of a turn.
const HALVINGS: u32 = 9;

/// The path of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathTimes {
    /// Above the scheduler, in nanoseconds from when a process runs again to its next request.
    pub turnaround_ns: u64,
    /// Before, from a completion until the process runs again.
    #[serde(default)]
    pub woken_ns: u64,
    /// Below it, in nanoseconds: fixed, serial, for each MiB.
    pub path_ns: [u64; 3],
    /// The mean random part of it, in nanoseconds.
    #[serde(default)]
    pub jitter_ns: u64,
    /// Requests that the path has in flight.
    pub depth: u32,
    /// The processors and their use; without it, the simulator's path has a constant time for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<Shared>,
    /// Processor time for 256 KiB of page cache in nanoseconds: of a reader, of that what does not depend on the number of its calls,
    /// of a writer, of the flusher, and of the server in addition to direct reads. Only with buffered clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_ns: Option<[u64; 5]>,
    /// IOPS of a lone client with 32 requests in flight: kernel, simulator without the path.
    pub deep_iops: [f64; 2],
}

/// Processors that clients and path share. Processor time in nanoseconds, of a turn, of a request, of a MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// How many.
    pub count: u32,
    /// Processor time of fio: turn, request, MiB.
    pub client_ns: [u64; 3],
    /// Of the threads that pass requests to the server: the loop device's worker, and the readers of FUSE's requests.
    pub worker_ns: [u64; 3],
    /// Of the server with the drive.
    pub server_ns: [u64; 3],
    /// When and how it was measured, if not together with the rows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

fn work([turn, request, per_mib]: [u64; 3]) -> Work {
    Work { turn: Nanos(turn), request: Nanos(request), per_mib: Nanos(per_mib) }
}

impl Shared {
    /// The server's processor time.
    pub fn server(&self) -> Work {
        work(self.server_ns)
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
    pub(crate) fn overlap(&self, path: u64) -> u64 {
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
    /// In words.
    pub fn text(&self) -> String {
        let us = |nanos: u64| nanos as f64 / 1e3;
        let [fixed, serial, per_mib] = self.path_ns;
        let mut text = format!(
            "Above the scheduler, {:.0} us pass from a completion to the next request of a process, and fio counts {:.0} us of it as \
             latency; below it, a request takes {:.0} us more than in the drive model, and {:.0} us in addition for each MiB. With 32 in flight the path passes {:.0} requests a \
             second where the model alone gives {:.0}.",
            us(self.turnaround_ns + self.woken_ns),
            us(self.woken_ns),
            us(fixed + self.jitter_ns + serial),
            us(per_mib),
            self.deep_iops[0],
            self.deep_iops[1]
        );
        if let Some(Shared { client_ns, worker_ns, server_ns, .. }) = &self.processors {
            let times =
                |[turn, request, _]: [u64; 3]| format!("{:.0} + {:.0}", us(turn), us(request));
            let [client, worker, server] =
                [client_ns, worker_ns, server_ns].map(|time| times(*time));
            text += &format!(
                " Processor time of a turn and a request in us: fio {client}, worker {worker}, server {server}."
            );
        }
        if let Some(copies) = self.copies_ns {
            let [reader, one_call, writer, flusher, server] = copies.map(us);
            text += &format!(
                " Processor time for 256 KiB of page cache in us: {reader:.0} of a reader ({one_call:.0} in one call), {writer:.0} of a \
                 writer, {flusher:.0} of the flusher, and {server:.0} of the server in addition for what is read."
            );
        }
        text
    }
    /// The path in which each number is the median of those of `all`.
    pub(crate) fn medians(all: &[&Self]) -> Self {
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
    pub(crate) fn fitted(self, drive: &str) -> Result<Self> {
        let Some(shared) = self.processors.clone() else { return Ok(self) };
        let with =
            |part: f64| Self { processors: Some(shared.without_turns(part)), ..self.clone() };
        let deep = |part: f64| with(part).deep_in_simulator(drive);
        let (mut low, mut high) = (0.0, PART_MAX);
        if is_drive_the_limit(self.deep_iops) || deep(low)? >= self.deep_iops[0] {
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
    /// IOPS of the third probe in the simulator.
    fn deep_in_simulator(&self, drive: &str) -> Result<f64> {
        let mut probes = probes(drive)?;
        self.apply_shared(&mut probes);
        Ok(iops(&iofair_simulator::simulate(&probes.scenario(2, 0, 0))?))
    }
    /// Puts the measured path into the experiment.
    pub fn apply(&self, experiment: &mut Experiment) {
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
    pub fn apply_shared(&self, experiment: &mut Experiment) {
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
        let got = |path: &PathTimes| path.deep_in_simulator(drive).expect("it runs");
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
