//! What was measured, in a file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use iofair_experiments::experiment::numbers::hash;
use iofair_experiments::experiment::{Experiment, Metric, Quantity, Results};
use iofair_simulator::calibration::Disturbed;
use iofair_simulator::scenario::Scenario;
use serde::{Deserialize, Serialize};

use super::path::PathTimes;

/// What a run asks of Linux, as text. What only the simulator has (its host, the parameters of policies that Linux decides itself)
/// may change without another measurement.
pub type Described = fn(&Scenario) -> Result<String>;

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Evidence {
    pub(crate) experiments: Vec<Part>,
    /// Experiments that the page was asked for and that are not measured.
    #[serde(skip)]
    pub(crate) missing: Vec<String>,
}

/// What was measured of one experiment, in one pass or several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Name of the experiment: its file without extension.
    pub(crate) experiment: String,
    /// Of what was asked for: drive, clients, groups, stacks, times.
    pub(crate) fingerprint: String,
    /// Machine, fio, groups.
    pub(crate) place: String,
    /// The path, once for each pass.
    pub(crate) paths: Vec<PathTimes>,
    /// How often the machine's host disturbed the kernel's runs, and the live server's.
    #[serde(default)]
    pub(crate) disturbed: [Disturbed; 2],
    pub(crate) rows: Vec<Row>,
}

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
    /// With more runs.
    fn extend(&mut self, other: Self) {
        self.rate.extend(other.rate);
        self.share_percent.extend(other.share_percent);
        self.mean_ms.extend(other.mean_ms);
        self.p99_ms.extend(other.p99_ms);
    }
}

impl Row {
    fn key(&self) -> (&str, &str, &str) {
        (&self.variant, &self.stack, &self.client)
    }
}

/// The numbers of a client, with six significant digits.
fn numbers(results: &Results, variant: usize, stack: usize, client: &str) -> Numbers {
    let mut numbers = Numbers::default();
    let experiment = &results.experiment;
    let digits = |value: f64| format!("{value:.5e}").parse().unwrap_or(value);
    for outcome in results.repeats(variant, stack) {
        let read =
            |name: &str, metric| Quantity::of_client(name, metric).read(outcome, experiment.units);
        let subjects = &experiment.variants[variant].subjects;
        let all = subjects.iter().map(|name| read(name, Metric::Rate)).sum::<f64>();
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
    let experiment = &results.experiment;
    let mut rows = Vec::new();
    for (v, variant) in experiment.variants.iter().enumerate() {
        for (s, (stack, _)) in experiment.stacks.iter().enumerate() {
            for client in &variant.subjects {
                let mut row = Row {
                    variant: variant.name.clone(),
                    stack: stack.clone(),
                    client: client.clone(),
                    kernel: Numbers::default(),
                    live: Numbers::default(),
                    lab: Numbers::default(),
                };
                put(&mut row, numbers(results, v, s, client));
                rows.push(row);
            }
        }
    }
    rows
}

/// Of what an experiment asks of Linux, but for the number of repeats.
pub(crate) fn fingerprint(experiment: &Experiment, described: Described) -> Result<String> {
    let mut text = String::new();
    for variant in 0..experiment.variants.len() {
        for stack in 0..experiment.stacks.len() {
            text += &described(&experiment.scenario(variant, stack, 0))?;
        }
    }
    Ok(format!("{:016x}", hash(&text)))
}

impl Part {
    /// Of the kernel's results, measured at this place with this path.
    ///
    /// # Errors
    ///
    /// The experiment asks for something that Linux does not have.
    pub fn kernel(
        results: &Results,
        place: String,
        path: PathTimes,
        disturbed: Disturbed,
        described: Described,
    ) -> Result<Self> {
        Ok(Self {
            experiment: results.experiment.name.clone(),
            fingerprint: fingerprint(&results.experiment, described)?,
            place,
            paths: vec![path],
            disturbed: [disturbed, Disturbed::default()],
            rows: rows(results, |row, numbers| row.kernel = numbers),
        })
    }
    /// Takes numbers of rows that both have.
    fn take(&mut self, rows: Vec<Row>, take: impl Fn(&mut Row, Row)) {
        for row in rows {
            if let Some(own) = self.rows.iter_mut().find(|own| own.key() == row.key()) {
                take(own, row);
            }
        }
    }
    /// Adds the kernel's numbers of another pass.
    pub(crate) fn add_kernel(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.disturbed[0].add(&other.disturbed[0]);
        self.take(other.rows, |own, row| own.kernel.extend(row.kernel));
    }
    /// Takes the live numbers of the same experiment.
    pub(crate) fn take_live_of(&mut self, other: Self) {
        self.disturbed[1] = other.disturbed[1];
        self.take(other.rows, |own, row| own.live = row.live);
    }
    /// Fills in live numbers.
    pub fn take_live(&mut self, results: &Results, disturbed: Disturbed) {
        self.disturbed[1] = disturbed;
        let rows = rows(results, |row, numbers| row.live = numbers);
        self.take(rows, |own, row| own.live = row.live);
    }
}

impl Evidence {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no evidence", file.display()))
    }
    /// Writes it, all or nothing.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        let cannot = || format!("cannot write {}", file.display());
        let new = file.with_extension("new");
        std::fs::write(&new, text).with_context(cannot)?;
        std::fs::rename(&new, file).with_context(cannot)
    }
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathTimes> {
        self.experiments.iter().flat_map(|part| &part.paths)
    }
    pub(crate) fn part(&self, experiment: &str) -> Option<&Part> {
        self.experiments.iter().find(|part| part.experiment == experiment)
    }
    /// Puts the path that was measured with an experiment into it, whatever else has changed in it.
    pub fn apply(&self, experiment: &mut Experiment) -> Result<()> {
        let part = self.part(&experiment.name);
        let part = part.with_context(|| format!("{} is not in the evidence", experiment.name))?;
        self.path(part).fitted(&experiment.variants[0].drive)?.apply_shared(experiment);
        Ok(())
    }
    /// The path of a part's machine: each number is the median of those that were measured there, since a single
    /// measurement of some seconds varies.
    pub fn path(&self, part: &Part) -> PathTimes {
        let here = self.experiments.iter().filter(|other| other.place == part.place);
        let mut path = PathTimes::medians(&here.flat_map(|part| &part.paths).collect::<Vec<_>>());
        if part.paths.iter().all(|path| path.copies_ns.is_none()) {
            path.copies_ns = None;
        }
        path
    }
    /// The part of an experiment that has not changed since.
    pub fn measured(&self, experiment: &Experiment, described: Described) -> Result<&Part> {
        let name = &experiment.name;
        let again = "measure it with `iofair-lab run --on linux FILE --evidence EVIDENCE`";
        let part =
            self.part(name).with_context(|| format!("{name} is not in the evidence; {again}"))?;
        let now = fingerprint(experiment, described)?;
        if part.fingerprint != now {
            let then = &part.fingerprint;
            bail!("{name} is {now}, but {then} was measured; {again}");
        }
        Ok(part)
    }
    /// Notes which of these experiments are not measured, and puts the measured path into the others, which it returns.
    pub fn prepare(
        &mut self,
        experiments: Vec<Experiment>,
        described: Described,
    ) -> Result<Vec<Experiment>> {
        let (mut prepared, mut fitted) = (Vec::new(), BTreeMap::new());
        for mut experiment in experiments {
            if self.part(&experiment.name).is_none() {
                self.missing.push(experiment.name);
                continue;
            }
            let (part, drive) =
                (self.measured(&experiment, described)?, experiment.variants[0].drive.clone());
            let mut path = self.path(part);
            let copies = path.copies_ns.take();
            let key = (part.place.clone(), drive.clone());
            if !fitted.contains_key(&key) {
                fitted.insert(key.clone(), path.fitted(&drive)?);
            }
            let path = PathTimes { copies_ns: copies, ..fitted[&key].clone() };
            path.apply_shared(&mut experiment);
            prepared.push(experiment);
        }
        Ok(prepared)
    }
    /// Fills in the simulator's numbers, and leaves out experiments that it did not run.
    pub fn take_lab(&mut self, results: &[Results]) {
        let ran =
            |part: &Part| results.iter().any(|result| result.experiment.name == part.experiment);
        self.experiments.retain(ran);
        for results in results {
            let rows = rows(results, |row, numbers| row.lab = numbers);
            let name = &results.experiment.name;
            for part in self.experiments.iter_mut().filter(|part| part.experiment == *name) {
                part.take(rows.clone(), |own, row| own.lab = row.lab);
            }
        }
    }
    /// Adds a part, or puts it in the place of the one of the same experiment.
    pub(crate) fn put(&mut self, part: Part) {
        match self.experiments.iter_mut().find(|known| known.experiment == part.experiment) {
            Some(own) => *own = part,
            None => {
                self.experiments.push(part);
                self.experiments.sort_by(|a, b| a.experiment.cmp(&b.experiment));
            }
        }
    }
}
