//! How often each claim holds over draws: runs of an experiment with a seed, start offsets and open numbers of their own
//! ([`iofair_experiments::experiment::Numbers`]).
//!
//! A draw of an experiment is one run of what its claims are about. Every finished draw is a line of a journal, so that what was
//! stopped continues; a line that was cut off, or whose runs have changed, is done again.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow};
use iofair_drive::profile;
use iofair_experiments::experiment::numbers::hash;
use iofair_experiments::experiment::{Draw, Experiment, Numbers, Overrides, Results, read};
use iofair_experiments::parallel;
use iofair_experiments::report::robust::{Draws, Row, claim_of};
use iofair_simulator::outcome::Outcome;
use iofair_simulator::scenario::Scenario;
use serde::{Deserialize, Serialize};

/// What is asked.
pub struct Asked<'a> {
    /// The experiment files.
    pub files: &'a [PathBuf],
    /// What is changed about them.
    pub overrides: &'a Overrides,
    /// Draws of each.
    pub draws: u32,
    /// Seed of all draws.
    pub seed: u64,
    /// Threads.
    pub jobs: usize,
    /// The journal.
    pub journal: &'a Path,
    /// Whether to stop.
    pub stop: &'a AtomicBool,
    /// Told of each finished draw.
    pub finished: &'a (dyn Fn() + Sync),
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

/// The variants and stacks that claims are about.
fn needed(experiment: &Experiment) -> Vec<(usize, usize)> {
    let places = experiment.claims.iter().flat_map(|claim| &claim.places);
    let mut all: Vec<(usize, usize)> = places.map(|place| (place.variant, place.stack)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What decides the numbers of a draw besides the program: everything about its runs and its drives.
fn fingerprint(experiment: &Experiment) -> u64 {
    let mut text = String::new();
    for (variant, stack) in needed(experiment) {
        text += &format!("{:?}", experiment.scenario(variant, stack, 0));
        if let Ok(profile) = profile::read(&experiment.variants[variant].drive) {
            text += &format!("{:?}", profile.model);
        }
    }
    hash(&text)
}

/// A claim's name among the numbers of a draw: what its number is, but not its band.
fn key(experiment: &Experiment, claim: usize) -> String {
    let claim = &experiment.claims[claim];
    let mut key = format!("{:?} {}", claim.kind, claim.part);
    for place in &claim.places {
        let (variant, stack) =
            (&experiment.variants[place.variant], &experiment.stacks[place.stack]);
        key += &format!(" | {} | {} | {}", variant.name, stack.0, place.quantity);
    }
    key
}

/// Runs what the claims are about, and reads the number of each claim.
pub fn numbers(
    experiment: &Experiment,
    simulate: &dyn Fn(&Scenario) -> Result<Outcome, String>,
) -> Result<Vec<f64>, String> {
    let mut outcomes = vec![Outcome::default(); experiment.runs()];
    for (variant, stack) in needed(experiment) {
        for repeat in 0..experiment.repeats {
            let outcome =
                simulate(&experiment.scenario(variant, stack, repeat)).map_err(|error| {
                    let (variant, stack) =
                        (&experiment.variants[variant].name, &experiment.stacks[stack].0);
                    format!("{} [{variant}] {stack}: {error}", experiment.name)
                })?;
            let first = (variant * experiment.stacks.len() + stack) * experiment.repeats as usize;
            outcomes[first + repeat as usize] = outcome;
        }
    }
    let results = Results { experiment: experiment.clone(), outcomes };
    Ok(experiment.claims.iter().map(|claim| results.number(claim)).collect())
}

fn known(path: &Path) -> Result<Known> {
    let mut known = Known::new();
    if !path.exists() {
        return Ok(known);
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
fn work(asked: &Asked<'_>, task: Task, book: &Book) -> Result<()> {
    let experiment = asked.experiment(task)?;
    let runs = fingerprint(&experiment);
    let keys: Vec<String> =
        (0..experiment.claims.len()).map(|claim| key(&experiment, claim)).collect();
    let place = (experiment.name.clone(), task.draw, runs);
    let is_done = |known: &Known| {
        known.get(&place).is_some_and(|draw| keys.iter().all(|key| draw.contains_key(key)))
    };
    if !is_done(&book.known.lock().expect("no thread panics with it")) {
        let simulate = |scenario: &Scenario| match asked.stop.load(Ordering::Relaxed) {
            true => Err("interrupted".to_owned()),
            false => iofair_simulator::simulate(scenario).map_err(|error| error.to_string()),
        };
        let numbers = numbers(&experiment, &simulate).map_err(|error| anyhow!(error))?;
        book.put(&experiment, task, runs, keys.into_iter().zip(numbers).collect())?;
    }
    (asked.finished)();
    Ok(())
}

/// All rows, of the draws that are finished for every experiment with claims.
fn rows(asked: &Asked<'_>, known: &Known) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for file in 0..asked.files.len() {
        let mut all: Vec<Vec<f64>> = Vec::new();
        let mut last = None;
        for draw in 0..asked.draws {
            let experiment = asked.experiment(Task { file, draw })?;
            let place = (experiment.name.clone(), draw, fingerprint(&experiment));
            all.resize(experiment.claims.len(), Vec::new());
            if let Some(numbers) = known.get(&place) {
                for (claim, values) in all.iter_mut().enumerate() {
                    values.extend(numbers.get(&key(&experiment, claim)));
                }
            }
            last = Some(experiment);
        }
        let Some(experiment) = last else { continue };
        for (claim, numbers) in experiment.claims.iter().zip(&all) {
            if !numbers.is_empty() && claim.verdict(numbers[0]).words() != "informative" {
                let draws = Draws::for_claim(claim, numbers);
                rows.push(Row { claim: claim_of(&experiment, claim), draws });
            }
        }
    }
    Ok(rows)
}

/// Makes the draws; a row for each claim, or `None` if it was stopped.
///
/// # Errors
///
/// Those of the simulator, with the run's name; of the journal.
pub fn run(asked: &Asked<'_>) -> Result<Option<Vec<Row>>> {
    let book = Book::open(asked.journal)?;
    let files = 0..asked.files.len();
    // Draw by draw, so that all experiments have as many when it is stopped.
    let tasks: Vec<Task> = (0..asked.draws)
        .flat_map(|draw| files.clone().map(move |file| Task { file, draw }))
        .collect();
    let done = parallel(asked.jobs, &tasks, &|task| match asked.stop.load(Ordering::Relaxed) {
        true => Err(anyhow!("interrupted")),
        false => work(asked, *task, &book),
    });
    if asked.stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    done?;
    Ok(Some(rows(asked, &book.known.into_inner().expect("no thread panics with it"))?))
}
