//! `iofair-lab run --draws`: how often each claim holds over seeds, start offsets and open numbers of drives and machines.
//!
//! A draw of an experiment is one run of what its claims are about. Every finished draw is a line of a journal beside the
//! result, so that a run that was stopped continues; a line that was cut off, or whose runs have changed, is done again.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iofair_experiments::experiment::{Draw, Experiment, Numbers, Overrides, read};
use iofair_experiments::report::robust::{self, Draws, Row};
use iofair_reproduction::draws;
use iofair_simulator::scenario::Scenario;
use serde::{Deserialize, Serialize};

use iofair_cli::failure::Usage;
use iofair_cli::interrupt;
use iofair_cli::output::say;

/// Longest journal that is read.
const BYTES_MAX: u64 = 1 << 30;
/// How often progress is printed where there is no terminal.
const PRINT: Duration = Duration::from_secs(30);

/// What is asked.
pub(crate) struct Asked<'a> {
    /// The experiment files.
    pub(crate) files: &'a [PathBuf],
    /// What is changed about them.
    pub(crate) overrides: &'a Overrides,
    /// Draws of each.
    pub(crate) draws: u32,
    /// Seed of all draws.
    pub(crate) seed: u64,
    /// Threads.
    pub(crate) jobs: usize,
    /// Print nothing.
    pub(crate) quiet: bool,
    /// The result.
    pub(crate) out: &'a Path,
}

/// A finished draw. Numbers are text, so that infinity and what is no number survive.
#[derive(Serialize, Deserialize)]
struct Line {
    experiment: String,
    draw: u32,
    runs: u64,
    numbers: BTreeMap<String, String>,
}

/// One draw of one experiment.
#[derive(Clone, Copy)]
struct Task {
    file: usize,
    draw: u32,
}

/// The numbers of all claims of an experiment in one draw.
type ByClaim = BTreeMap<String, f64>;
/// By experiment, draw and fingerprint of its runs.
type Known = BTreeMap<(String, u32, u64), ByClaim>;

/// The journal of a result.
pub(crate) fn journal(out: &Path) -> PathBuf {
    out.with_extension("draws.jsonl")
}

fn known(path: &Path) -> Result<Known> {
    let mut known = Known::new();
    match fs::metadata(path) {
        Ok(known) if known.len() > BYTES_MAX => {
            return Err(Usage(format!("{} is too long for a journal", path.display())).into());
        }
        Ok(_) => {}
        Err(_) => return Ok(known),
    }
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    for line in String::from_utf8_lossy(&text).lines() {
        // A line that was cut off by a kill is done again.
        let Ok(line) = serde_json::from_str::<Line>(line) else { continue };
        let numbers =
            line.numbers.into_iter().filter_map(|(key, number)| Some((key, number.parse().ok()?)));
        known.insert((line.experiment, line.draw, line.runs), numbers.collect());
    }
    Ok(known)
}

impl Asked<'_> {
    fn experiment(&self, task: Task) -> Result<Experiment> {
        let draw = Draw { seed: self.seed, index: task.draw };
        let repeats = self.overrides.repeats.or(Some(1));
        let (numbers, seed) = (Some(Numbers::Draw(draw)), Some(draw.run_seed()));
        let overrides = Overrides { numbers, seed, repeats, ..self.overrides.clone() };
        Ok(read(&self.files[task.file], &overrides)?)
    }
}

/// The journal, open, and what is in it.
struct Book {
    file: Mutex<fs::File>,
    known: Mutex<Known>,
}

impl Book {
    fn open(path: &Path) -> Result<Self> {
        let known = known(path)?;
        let open = OpenOptions::new().create(true).append(true).read(true).open(path);
        let mut file = open.with_context(|| format!("cannot write {}", path.display()))?;
        let cut_off = fs::read(path)?.last().is_some_and(|last| *last != b'\n');
        if cut_off {
            file.write_all(b"\n")?;
        }
        Ok(Self { file: Mutex::new(file), known: Mutex::new(known) })
    }
    fn put(&self, experiment: &Experiment, task: Task, runs: u64, numbers: ByClaim) -> Result<()> {
        let text =
            numbers.iter().map(|(key, number)| (key.clone(), format!("{number:?}"))).collect();
        let name = experiment.name.clone();
        let line = Line { experiment: name.clone(), draw: task.draw, runs, numbers: text };
        let line = serde_json::to_string(&line)? + "\n";
        self.file.lock().expect("no thread panics with it").write_all(line.as_bytes())?;
        let mut known = self.known.lock().expect("no thread panics with it");
        known.insert((name, task.draw, runs), numbers);
        Ok(())
    }
}

/// One task: from the journal, or by its runs.
fn work(asked: &Asked<'_>, task: Task, book: &Book, stop: &AtomicBool) -> Result<()> {
    let experiment = asked.experiment(task)?;
    let runs = draws::fingerprint(&experiment);
    let keys: Vec<String> =
        (0..experiment.claims.len()).map(|claim| draws::key(&experiment, claim)).collect();
    let place = (experiment.name.clone(), task.draw, runs);
    let is_done = |known: &Known| {
        known.get(&place).is_some_and(|draw| keys.iter().all(|key| draw.contains_key(key)))
    };
    if is_done(&book.known.lock().expect("no thread panics with it")) {
        return Ok(());
    }
    let simulate = |scenario: &Scenario| match stop.load(Ordering::Relaxed) {
        true => Err("interrupted".to_owned()),
        false => iofair_simulator::simulate(scenario).map_err(|error| error.to_string()),
    };
    let numbers = draws::numbers(&experiment, &simulate).map_err(|error| anyhow!(error))?;
    book.put(&experiment, task, runs, keys.into_iter().zip(numbers).collect())
}

/// All rows, of the draws that are finished for every experiment with claims.
fn rows(asked: &Asked<'_>, known: &Known) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for file in 0..asked.files.len() {
        let mut all: Vec<Vec<f64>> = Vec::new();
        let mut last = None;
        for draw in 0..asked.draws {
            let experiment = asked.experiment(Task { file, draw })?;
            let place = (experiment.name.clone(), draw, draws::fingerprint(&experiment));
            all.resize(experiment.claims.len(), Vec::new());
            if let Some(numbers) = known.get(&place) {
                for (claim, values) in all.iter_mut().enumerate() {
                    values.extend(numbers.get(&draws::key(&experiment, claim)));
                }
            }
            last = Some(experiment);
        }
        let Some(experiment) = last else { continue };
        for (claim, numbers) in experiment.claims.iter().zip(&all) {
            if !numbers.is_empty() && claim.verdict(numbers[0]).words() != "informative" {
                let draws = Draws::for_claim(claim, numbers);
                rows.push(Row { claim: robust::claim_of(&experiment, claim), draws });
            }
        }
    }
    Ok(rows)
}

fn bar(asked: &Asked<'_>, tasks: usize) -> Result<ProgressBar> {
    let bar = ProgressBar::new(tasks as u64);
    if asked.quiet || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{wide_bar:.cyan/blue} {pos}/{len} draws, {eta} left");
    bar.set_style(style.context("the progress bar's own template")?);
    Ok(bar)
}

/// Computes and writes it.
pub(crate) fn run(asked: &Asked<'_>) -> Result<ExitCode> {
    let stop = interrupt::flag()?;
    let book = Book::open(&journal(asked.out))?;
    let files = 0..asked.files.len();
    // Draw by draw, so that all experiments have as many when it is stopped.
    let tasks: Vec<Task> = (0..asked.draws)
        .flat_map(|draw| files.clone().map(move |file| Task { file, draw }))
        .collect();
    let bar = bar(asked, tasks.len())?;
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let printed = Mutex::new(Duration::ZERO);
    let tell = || {
        bar.inc(1);
        let mut last = printed.lock().expect("no thread panics with it");
        if bar.is_hidden() && !asked.quiet && bar.elapsed() >= *last + PRINT {
            *last = bar.elapsed();
            let left = bar.eta().as_secs();
            say(format_args!("run: {} of {} draws, {left} s left", bar.position(), tasks.len()));
        }
    };
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            if let Err(error) = work(asked, *task, &book, &stop) {
                if !stop.swap(true, Ordering::Relaxed) {
                    *failed.lock().expect("no thread panics with it") = Some(error);
                }
                return;
            }
            tell();
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..asked.jobs.clamp(1, tasks.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    bar.finish_and_clear();
    if let Some(error) = failed.into_inner().expect("no thread panics with it") {
        return Err(error);
    }
    if stop.load(Ordering::Relaxed) {
        say(format_args!(
            "interrupted; the same command continues from {}",
            journal(asked.out).display()
        ));
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    let rows = rows(asked, &book.known.into_inner().expect("no thread panics with it"))?;
    fs::write(asked.out, robust::write(&rows))
        .with_context(|| format!("cannot write {}", asked.out.display()))?;
    if !asked.quiet {
        let held = rows.iter().filter(|row| row.draws.holds()).count();
        let least = robust::HOLDS_PERCENT;
        say(format_args!(
            "{held} of {} claims hold in {least} % of their draws or more",
            rows.len()
        ));
    }
    Ok(ExitCode::SUCCESS)
}
