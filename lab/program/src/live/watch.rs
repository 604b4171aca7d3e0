//! Shared state of live runs: the directory for sockets, the progress, and Ctrl-C.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::Nanos;
use iofair_experiments::experiment::Experiment;
use iofair_simulator::calibration::Disturbed;
use iofair_simulator::text_table::counted;

use iofair_cli::interrupt;
use iofair_cli::output::{progress, say};
use iofair_cli::stolen::undisturbed;

/// How often a disturbed run is tried. Disturbances that were seen lasted for half a minute.
const TRIES: u64 = 20;
/// Repetitions in addition to as many as there are runs: a machine that is always disturbed takes twice the time at most.
const AGAIN: u64 = 20;

/// Shared state of live runs. Dropping it removes the directory.
pub(crate) struct Watch {
    directory: PathBuf,
    bar: ProgressBar,
    quiet: bool,
    /// Runs by name, in their order.
    runs: Vec<String>,
    finished: AtomicUsize,
    /// Nanoseconds of runs that passed.
    passed: AtomicU64,
    over: Arc<AtomicBool>,
    /// By how much clients missed the times at which they wanted to go on.
    late: Mutex<Histogram>,
    disturbed: Mutex<Disturbed>,
}

/// A time in words.
pub(super) fn duration(time: Nanos) -> String {
    let seconds = time.0.div_ceil(1_000_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min {seconds} s"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

fn names(experiment: &Experiment) -> Vec<String> {
    let mut names = Vec::new();
    for variant in &experiment.variants {
        for (stack, _) in &experiment.stacks {
            for repeat in 1..=experiment.repeats {
                let again =
                    if experiment.repeats > 1 { format!(" #{repeat}") } else { String::new() };
                let variant = &variant.name;
                let space = if variant.is_empty() { "" } else { ", " };
                names.push(format!("{}{space}{variant}, {stack}{again}", experiment.name));
            }
        }
    }
    names
}

/// How often the next run is tried after these.
fn tries(before: &Disturbed) -> u64 {
    (before.runs + AGAIN).saturating_sub(before.again).clamp(1, TRIES)
}

impl Watch {
    /// Prints how long the runs will take. Blocks signals from now on, so no other thread may be running yet.
    pub(crate) fn new(experiments: &[Experiment], quiet: bool) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("iofair-live-{}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {} for sockets", directory.display()))?;
        let runs: Vec<String> = experiments.iter().flat_map(names).collect();
        let time = Nanos(experiments.iter().map(|experiment| experiment.simulated().0).sum());
        let bar = ProgressBar::new(time.0 / 1_000_000);
        let bar = progress(bar, "{wide_bar:.cyan/blue} {eta} left  {msg}", quiet);
        if !quiet {
            let (all, time) = (counted(runs.len() as u64, "run"), duration(time));
            say(format_args!("live: {all} in real time, {time}; Ctrl-C stops"));
        }
        let over = interrupt::flag()?;
        let (finished, passed) = (AtomicUsize::new(0), AtomicU64::new(0));
        let late = Mutex::new(Histogram::new());
        let disturbed = Mutex::default();
        let this = Self { directory, bar, quiet, runs, finished, passed, over, late, disturbed };
        this.announce();
        Ok(this)
    }
    fn announce(&self) {
        let number = self.finished.load(Relaxed);
        let Some(run) = self.runs.get(number) else { return self.bar.finish_and_clear() };
        self.bar.set_message(run.clone());
        if self.bar.is_hidden() && !self.quiet {
            say(format_args!("  [{}/{}] {run}", number + 1, self.runs.len()));
        }
    }
    /// Where a socket of this name is.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
    /// Real time passed in a run.
    pub(crate) fn passed(&self, time: Nanos) {
        let nanos = self.passed.fetch_add(time.0, Relaxed) + time.0;
        self.bar.set_position(nanos / 1_000_000);
    }
    /// Records by how much later than planned a client went on.
    pub(super) fn record_late(&self, time: Nanos) {
        self.late.lock().expect("nobody panics while it is locked").record(time.0);
    }
    /// 99th percentile and maximum of these delays.
    pub(super) fn lateness(&self) -> [u64; 2] {
        let late = self.late.lock().expect("nobody panics while it is locked");
        [late.quantile(990_000), late.max()]
    }
    /// Runs it, and again while the host of this machine takes its processors away ([`iofair_cli::stolen`]).
    pub(crate) fn undisturbed<T, E>(&self, run: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        let mut all = *self.disturbed();
        let got = undisturbed(tries(&all), &mut all, run);
        *self.disturbed() = all;
        got.map(|(got, _)| got)
    }
    fn disturbed(&self) -> MutexGuard<'_, Disturbed> {
        self.disturbed.lock().expect("nobody panics while it is locked")
    }
    /// How often the host disturbed runs since the last call.
    pub(crate) fn take_disturbed(&self) -> Disturbed {
        std::mem::take(&mut self.disturbed())
    }
    /// Counts a finished run.
    pub(crate) fn finished(&self) {
        self.finished.fetch_add(1, Relaxed);
        if !self.is_over() {
            self.announce();
        }
    }
    /// Whether it was interrupted.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
    /// The progress in words.
    pub(crate) fn done(&self) -> String {
        format!("{} of {} runs", self.finished.load(Relaxed).saturating_sub(1), self.runs.len())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        // Nothing better can be done with a failure here than to leave an empty directory behind.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a machine that is always disturbed takes twice the time at most, and some runs more. Method: a hundred runs, all tried as
    /// often as they may be; and a single one.
    #[test]
    fn repetitions_are_bounded() {
        assert_eq!(tries(&Disturbed::default()), TRIES);
        let mut all = Disturbed::default();
        for _ in 0..100 {
            all.again += tries(&all) - 1;
            all.runs += 1;
        }
        assert!(all.again <= all.runs + AGAIN && all.again > all.runs, "{all:?}");
    }

    /// Goal: times are said as people say them. Method: one of each length.
    #[test]
    fn durations_are_words() {
        let said = [0, 59, 61, 3_600, 7_260].map(|s| duration(Nanos::from_secs(s)));
        assert_eq!(said, ["0 s", "59 s", "1 min 1 s", "1 h 0 min", "2 h 1 min"]);
    }
}
