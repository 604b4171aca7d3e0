//! The comparison of simulator, live server and kernel: what was measured ([`Evidence`]), and the page about it.
//!
//! `iofair run --on linux --evidence FILE` measures the kernel and `--on serve --evidence FILE` the live server, experiment by
//! experiment ([`store`]); `iofair run --truth FILE --markdown PAGE` runs the simulator with the measured path and writes the
//! page. So the page can be written again without measuring.

mod causes;
mod page;
mod picture;
mod score;
mod store;

use std::path::Path;

use anyhow::{Context, Result, bail};
use iofair_core::time::Nanos;
use iofair_lab::experiment::{Experiment, Metric, Quantity, Results};
use iofair_lab::scenario::{Processors, Work};
use serde::{Deserialize, Serialize};

pub(crate) use self::causes::Causes;
pub(crate) use self::page::page;
pub(crate) use self::picture::pictures;
pub(crate) use self::store::{Store, World};
use crate::linux::{self, Here};

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Evidence {
    pub(crate) experiments: Vec<Part>,
    /// Experiments that the page was asked for and that are not measured.
    #[serde(skip)]
    pub(crate) missing: Vec<String>,
}

/// What was measured of one experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Name of the experiment: its file without extension.
    pub(crate) experiment: String,
    /// Of what was asked for: drive, clients, groups, stacks, times.
    pub(crate) fingerprint: String,
    /// Machine, fio, groups.
    pub(crate) place: String,
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
    pub(crate) rows: Vec<Row>,
}

/// Processors that clients and path share. Processor time in nanoseconds, of a turn, of a request, of a MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shared {
    pub(crate) count: u32,
    /// Of fio.
    pub(crate) client_ns: [u64; 3],
    /// Of what passes requests to the server: the loop device's worker, and the threads that read FUSE's requests.
    pub(crate) worker_ns: [u64; 3],
    /// Of the server with the drive.
    pub(crate) server_ns: [u64; 3],
    /// When and how it was measured, if not together with the rows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
}

impl Shared {
    fn new([client, worker, server]: [Work; 3]) -> Self {
        let of = |work: Work| [work.turn, work.request, work.per_mib].map(|it| it.0);
        let count = std::thread::available_parallelism().map_or(1, |it| it.get() as u32);
        let [client_ns, worker_ns, server_ns] = [client, worker, server].map(of);
        Self { count, client_ns, worker_ns, server_ns, note: String::new() }
    }
    /// What a lone request takes of all processors, without what passes while it is in the drive: for turns, and otherwise.
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
    fn overlap(&self, path: u64) -> u64 {
        let [worker, server] = [self.worker_ns[2], self.server_ns[2]];
        (worker + server).saturating_sub(path).min(server)
    }
    fn processors(&self, whole: u64, per_mib: Nanos) -> Processors {
        let of = |[turn, request, per_mib]: [u64; 3]| {
            let [turn, request, per_mib] = [turn, request, per_mib].map(Nanos);
            Work { turn, request, per_mib }
        };
        let [client, worker, server] = [self.client_ns, self.worker_ns, self.server_ns].map(of);
        let overlap = Nanos(self.overlap(per_mib.0));
        let (idle_exit, after_percent) = self.idle_exit(whole);
        let count = self.count;
        let new_pages = Nanos::ZERO;
        Processors { count, idle_exit, client, worker, server, overlap, new_pages, after_percent }
    }
}

/// Times that a lone request finds a processor idle: worker, server before and after the drive, client.
const HOPS: u64 = 4;

/// One client in one variant on one stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) variant: String,
    pub(crate) stack: String,
    pub(crate) client: String,
    #[serde(default, skip_serializing_if = "Numbers::is_empty")]
    pub(crate) kernel: Numbers,
    #[serde(default, skip_serializing_if = "Numbers::is_empty")]
    pub(crate) live: Numbers,
    /// Never saved: the simulator runs whenever the page is written.
    #[serde(skip)]
    pub(crate) lab: Numbers,
}

/// Numbers of one world, one for each run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Numbers {
    /// MB/s.
    pub(crate) rate: Vec<f64>,
    /// Of what all clients of the run got.
    pub(crate) share_percent: Vec<f64>,
    pub(crate) mean_ms: Vec<f64>,
    pub(crate) p99_ms: Vec<f64>,
}

impl Numbers {
    pub(crate) fn is_empty(&self) -> bool {
        self.rate.is_empty()
    }
}

impl Row {
    fn key(&self) -> (&str, &str, &str) {
        (&self.variant, &self.stack, &self.client)
    }
}

/// The numbers of a client, with six significant digits.
fn numbers(results: &Results, (variant, stack): (usize, usize), client: &str) -> Numbers {
    let mut numbers = Numbers::default();
    let it = &results.experiment;
    let digits = |value: f64| format!("{value:.5e}").parse().unwrap_or(value);
    for outcome in results.repeats(variant, stack) {
        let read = |name: &str, metric| Quantity::of(name, metric).read(outcome, it.units);
        let all =
            it.variants[variant].subjects.iter().map(|name| read(name, Metric::Rate)).sum::<f64>();
        let rate = read(client, Metric::Rate);
        numbers.rate.push(digits(rate));
        numbers.share_percent.push(digits(if all > 0.0 { rate / all * 100.0 } else { 0.0 }));
        numbers.mean_ms.push(digits(read(client, Metric::Mean)));
        numbers.p99_ms.push(digits(read(client, Metric::P99)));
    }
    numbers
}

/// Rows of all clients, with their numbers where `put` puts them.
fn rows(results: &Results, put: impl Fn(&mut Row, Numbers)) -> Vec<Row> {
    let it = &results.experiment;
    let mut rows = Vec::new();
    for (v, variant) in it.variants.iter().enumerate() {
        for (s, (stack, _)) in it.stacks.iter().enumerate() {
            for client in &variant.subjects {
                let mut row = Row {
                    variant: variant.name.clone(),
                    stack: stack.clone(),
                    client: client.clone(),
                    kernel: Numbers::default(),
                    live: Numbers::default(),
                    lab: Numbers::default(),
                };
                put(&mut row, numbers(results, (v, s), client));
                rows.push(row);
            }
        }
    }
    rows
}

/// FNV-1a of what an experiment asks of Linux, but for the number of repeats. What only the simulator has (its host, the
/// parameters of policies that Linux decides itself) may change without another measurement.
fn fingerprint(experiment: &Experiment) -> Result<String> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for variant in 0..experiment.variants.len() {
        for stack in 0..experiment.stacks.len() {
            let scenario = experiment.scenario(variant, stack, 0);
            for byte in linux::described(&scenario)?.bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    Ok(format!("{hash:016x}"))
}

impl Part {
    /// Of the kernel's results.
    pub(crate) fn kernel(results: &Results, here: &Here) -> Result<Self> {
        let path = here.path.as_ref().context("--evidence needs an emulated drive")?;
        Ok(Self {
            experiment: results.experiment.name.clone(),
            fingerprint: fingerprint(&results.experiment)?,
            place: here.place(),
            turnaround_ns: path.turnaround.0,
            woken_ns: path.woken.0,
            path_ns: [path.path.fixed, path.path.serial, path.path.per_mib].map(|it| it.0),
            jitter_ns: path.path.jitter.0,
            depth: path.path.depth,
            processors: path.work.map(Shared::new),
            copies_ns: path.copies.map(|it| {
                [it.consume, it.consume_copy, it.produce, it.collect, it.new_pages].map(|it| it.0)
            }),
            deep_iops: path.deep,
            rows: rows(results, |row, numbers| row.kernel = numbers),
        })
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
        for host in experiment.variants.iter_mut().map(|it| &mut it.host) {
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
    /// Takes numbers of rows that both have.
    fn take(&mut self, rows: Vec<Row>, take: impl Fn(&mut Row, Row)) {
        for row in rows {
            if let Some(own) = self.rows.iter_mut().find(|own| own.key() == row.key()) {
                take(own, row);
            }
        }
    }
    /// Fills in live numbers.
    pub(crate) fn take_live(&mut self, results: &Results) {
        let rows = rows(results, |row, numbers| row.live = numbers);
        self.take(rows, |own, row| own.live = row.live);
    }
}

impl Evidence {
    /// Reads a file.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no evidence", file.display()))
    }
    /// Writes it, all or nothing.
    fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        let cannot = || format!("cannot write {}", file.display());
        let new = file.with_extension("new");
        std::fs::write(&new, text).with_context(cannot)?;
        std::fs::rename(&new, file).with_context(cannot)
    }
    fn part(&self, experiment: &str) -> Option<&Part> {
        self.experiments.iter().find(|it| it.experiment == experiment)
    }
    /// Puts the path that was measured with an experiment into it, whatever else has changed in it.
    pub(crate) fn apply(&self, experiment: &mut Experiment) -> Result<()> {
        let part = self.part(&experiment.name);
        let part = part.with_context(|| format!("{} is not in the evidence", experiment.name))?;
        self.with_medians(part).apply_shared(experiment);
        Ok(())
    }
    /// A part with the path of its machine: each number is the median of those that were measured there, since a single
    /// measurement of some seconds varies.
    fn with_medians(&self, part: &Part) -> Part {
        let here: Vec<&Part> =
            self.experiments.iter().filter(|it| it.place == part.place).collect();
        let median = |of: &dyn Fn(&Part) -> Option<u64>| {
            let mut all: Vec<u64> = here.iter().filter_map(|it| of(it)).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or(0)
        };
        let shared = part.processors.as_ref().map(|own| {
            let work = |kind: fn(&Shared) -> [u64; 3]| {
                [0, 1, 2].map(|n| median(&|it| it.processors.as_ref().map(|it| kind(it)[n])))
            };
            let client_ns = work(|it| it.client_ns);
            let worker_ns = work(|it| it.worker_ns);
            Shared { client_ns, worker_ns, server_ns: work(|it| it.server_ns), ..own.clone() }
        });
        Part {
            turnaround_ns: median(&|it| Some(it.turnaround_ns)),
            woken_ns: median(&|it| Some(it.woken_ns)),
            path_ns: [0, 1, 2].map(|n| median(&|it| Some(it.path_ns[n]))),
            jitter_ns: median(&|it| Some(it.jitter_ns)),
            processors: shared,
            ..part.clone()
        }
    }
    /// The part of an experiment that has not changed since.
    pub(crate) fn measured(&self, experiment: &Experiment) -> Result<&Part> {
        let name = &experiment.name;
        let again = "measure it with `iofair run --on linux FILE --evidence EVIDENCE`";
        let part =
            self.part(name).with_context(|| format!("{name} is not in the evidence; {again}"))?;
        let now = fingerprint(experiment)?;
        if part.fingerprint != now {
            let then = &part.fingerprint;
            bail!("{name} is {now}, but {then} was measured; {again}");
        }
        Ok(part)
    }
    /// Notes which of these experiments are not measured, and puts the measured path into the others, which it returns.
    pub(crate) fn prepare(&mut self, experiments: Vec<Experiment>) -> Result<Vec<Experiment>> {
        let mut prepared = Vec::new();
        for mut it in experiments {
            if self.part(&it.name).is_none() {
                self.missing.push(it.name);
                continue;
            }
            self.with_medians(self.measured(&it)?).apply_shared(&mut it);
            prepared.push(it);
        }
        Ok(prepared)
    }
    /// Fills in the simulator's numbers, and leaves out experiments that it did not run.
    pub(crate) fn take_lab(&mut self, results: &[Results]) {
        let ran = |part: &Part| results.iter().any(|it| it.experiment.name == part.experiment);
        self.experiments.retain(ran);
        for results in results {
            let rows = rows(results, |row, numbers| row.lab = numbers);
            let name = &results.experiment.name;
            for part in self.experiments.iter_mut().filter(|it| it.experiment == *name) {
                part.take(rows.clone(), |own, row| own.lab = row.lab);
            }
        }
    }
    /// Adds a part, or puts it in the place of the one of the same experiment.
    fn put(&mut self, part: Part) {
        match self.experiments.iter_mut().find(|it| it.experiment == part.experiment) {
            Some(own) => *own = part,
            None => {
                self.experiments.push(part);
                self.experiments.sort_by(|a, b| a.experiment.cmp(&b.experiment));
            }
        }
    }
}
