//! The comparison of simulator, live server and kernel: what was measured ([`Evidence`]), and the page about it.
//!
//! `iofair run --on linux --evidence FILE` measures kernel and live server; `iofair run --truth FILE --markdown PAGE` runs
//! the simulator with the measured path and writes the page. So the page can be written again without measuring.

mod page;

use std::path::Path;

use anyhow::{Context, Result};
use iofair_core::time::Nanos;
use iofair_lab::experiment::{Experiment, Metric, Quantity, Results};
use serde::{Deserialize, Serialize};

pub(crate) use self::page::{page, pictures};

/// What was measured on a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Evidence {
    /// Where.
    pub(crate) here: String,
    /// Above the scheduler, in nanoseconds between two requests.
    pub(crate) turnaround_ns: u64,
    /// Below it: fixed, serial, for each MiB.
    pub(crate) path_ns: [u64; 3],
    /// Requests that the path has in flight.
    pub(crate) depth: u32,
    pub(crate) rows: Vec<Row>,
}

/// One client in one variant on one stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) experiment: String,
    pub(crate) variant: String,
    pub(crate) stack: String,
    pub(crate) client: String,
    /// One number for each run.
    pub(crate) kernel: Numbers,
    pub(crate) live: Numbers,
    #[serde(default)]
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

/// The numbers of a client.
fn numbers(results: &Results, (variant, stack): (usize, usize), client: &str) -> Numbers {
    let mut numbers = Numbers::default();
    let it = &results.experiment;
    for outcome in results.repeats(variant, stack) {
        let read = |name: &str, metric| Quantity::of(name, metric).read(outcome, it.units);
        let all =
            it.variants[variant].subjects.iter().map(|name| read(name, Metric::Rate)).sum::<f64>();
        let rate = read(client, Metric::Rate);
        numbers.rate.push(rate);
        numbers.share_percent.push(if all > 0.0 { rate / all * 100.0 } else { 0.0 });
        numbers.mean_ms.push(read(client, Metric::Mean));
        numbers.p99_ms.push(read(client, Metric::P99));
    }
    numbers
}

/// Rows of all clients; `kernel` and `live` ran the same experiments.
pub(crate) fn rows(kernel: &[Results], live: &[Results]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (kernel, live) in kernel.iter().zip(live) {
        let it = &kernel.experiment;
        for (v, variant) in it.variants.iter().enumerate() {
            for (s, (stack, _)) in it.stacks.iter().enumerate() {
                rows.extend(variant.subjects.iter().map(|client| Row {
                    experiment: it.name.clone(),
                    variant: variant.name.clone(),
                    stack: stack.clone(),
                    client: client.clone(),
                    kernel: numbers(kernel, (v, s), client),
                    live: numbers(live, (v, s), client),
                    lab: Numbers::default(),
                }));
            }
        }
    }
    rows
}

impl Evidence {
    /// Reads a file.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no evidence", file.display()))
    }
    /// Writes it.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
    /// Puts the measured path into the experiments.
    pub(crate) fn apply(&self, experiments: &mut [Experiment]) {
        let [fixed, serial, per_mib] = self.path_ns.map(Nanos);
        let path = iofair_drive::behind::Path { fixed, serial, per_mib, depth: self.depth };
        for variant in experiments.iter_mut().flat_map(|it| &mut it.variants) {
            variant.host.turnaround = Nanos(self.turnaround_ns);
            variant.host.turnaround_write = Nanos(self.turnaround_ns);
            variant.host.path = Some(path);
        }
    }
    /// Fills in the simulator's numbers. Rows that it did not run stay empty.
    pub(crate) fn fill(&mut self, lab: &[Results]) {
        let all = rows(lab, lab);
        for row in &mut self.rows {
            let same = |it: &&Row| {
                let key = |it: &Row| {
                    [&it.experiment, &it.variant, &it.stack, &it.client].map(String::clone)
                };
                key(it) == key(row)
            };
            if let Some(found) = all.iter().find(same) {
                row.lab = found.kernel.clone();
            }
        }
    }
}
