//! Evaluates a stack while a policy is being changed. Commands, all but the last under `--stack S` (`promise`):
//!
//! ```text
//! rows FILES... [--seconds N] [--drive D] [--seed N]
//!                                 runs experiments, folders of them included, without repeats and for N seconds at most (4) after the ramp:
//!                                 a CSV line for each client of each variant, with its part of its minimum and its p99 beside its bound
//! search FIRST N [--on KIND] [--latencies] [--full] [--keep DIRECTORY]
//!                                 judges N random cases from the seed FIRST on (from 1,000,000 on, volumes): lines with seed, drive, finding;
//!                                 only cases on this kind of drive (flash, disk, volume); readers without a minimum with
//!                                 latencies; beside all other stacks, not two; keeps the cases as
//!                                 experiments, for `rows`
//! stacks [DRIVES...]              the loads of `make stacks` on these drives, or on all of the library, fresh and overwritten: the number of
//!                                 drives that keep minimum, shares, latency and total, and the worst drive
//! compare A.csv B.csv             what `rows` printed for two stacks: totals B / A with the worst first, and what each breaks; at the end the mean,
//!                                 the rows with less than 0.97, the promises that only A and only B break, and the clients that have less than half in B
//! ```
//!
//! As in `cargo run -p iofair-reproduction --example evaluate -- search 700000 200 --stack max+prop-reserve`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use iofair_core::time::Nanos;
use iofair_drive::profile;
use iofair_experiments::csv_text;
use iofair_experiments::experiment::{self, Experiment, Overrides, Runner};
use iofair_experiments::report::short;
use iofair_reproduction::search::{Case, Kind, Question, Verdict, search};
use iofair_reproduction::{Row, rows_of, stacks_csv, stacks_kept};
use iofair_simulator::scenario::Scenario;

/// A total counts as reached from this part of another one on.
const REACHED: f64 = 0.97;
/// Of no control: what other stacks are compared with.
const BASE: &str = "none-none";

/// Options, and what is none.
#[derive(Default)]
struct Arguments {
    stack: String,
    seconds: u64,
    drive: Option<String>,
    seed: Option<u64>,
    on: Option<String>,
    keep: Option<PathBuf>,
    full: bool,
    latencies: bool,
    others: Vec<String>,
}

impl Arguments {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut all = Self { stack: "promise".to_owned(), seconds: 4, ..Self::default() };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument}: a value"));
            match argument.as_str() {
                "--stack" => all.stack = value()?,
                "--seconds" => all.seconds = value()?.parse()?,
                "--drive" => all.drive = Some(value()?),
                "--seed" => all.seed = Some(value()?.parse()?),
                "--on" => all.on = Some(value()?),
                "--keep" => all.keep = Some(value()?.into()),
                "--full" => all.full = true,
                "--latencies" => all.latencies = true,
                option if option.starts_with("--") => bail!("unknown option {option}"),
                _ => all.others.push(argument),
            }
        }
        Ok(all)
    }
    fn number(&self, index: usize) -> Result<u64> {
        let number = self.others.get(index).context("two numbers: the first seed and how many")?;
        Ok(number.parse()?)
    }
}

fn with_runner<T>(work: impl FnOnce(&Runner<'_>) -> Result<T, String>) -> Result<T> {
    let simulate = |scenario: &Scenario| {
        iofair_simulator::simulate(scenario).map_err(|error| error.to_string())
    };
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    work(&Runner { jobs, simulate: &simulate, finished: &|_| {} }).map_err(|error| anyhow!(error))
}

/// Experiments of a file, or of a folder.
fn files(path: &Path, all: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        all.push(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    paths.retain(|path| path.is_dir() || path.extension().is_some_and(|end| end == "toml"));
    paths.iter().try_for_each(|path| files(path, all))
}

fn rows(arguments: &Arguments) -> Result<String> {
    let mut paths = Vec::new();
    for path in &arguments.others {
        files(Path::new(path), &mut paths)?;
    }
    let stacks = Some(vec![arguments.stack.clone()]);
    let settings = arguments.drive.iter().map(|drive| format!("drive={drive}")).collect();
    let (repeats, seed) = (Some(1), arguments.seed);
    let overrides = Overrides { stacks, repeats, seed, settings, ..Overrides::default() };
    let mut experiments: Vec<Experiment> = Vec::new();
    for path in &paths {
        let mut one = experiment::read(path, &overrides).map_err(|error| anyhow!("{error}"))?;
        one.claims.clear();
        one.name = arguments.drive.iter().fold(one.name, |name, drive| name + " on " + drive);
        let most = Nanos::from_secs(arguments.seconds);
        one.variants.iter_mut().for_each(|variant| variant.time = variant.time.min(most));
        experiments.push(one);
    }
    let all = with_runner(|runner| experiment::run(experiments, runner))?;
    Ok(csv_text(|csv| all.iter().flat_map(rows_of).try_for_each(|row| csv.serialize(row))))
}

fn random(arguments: &Arguments) -> Result<String> {
    let (first, cases) = (arguments.number(0)?, arguments.number(1)?);
    let on = arguments.on.as_deref();
    let is_asked = |seed: &u64| on.is_none_or(|on| Case::draw(*seed).drive_kind() == on);
    // A sixth of all cases are on disks: there are none of a kind that does not exist.
    let seeds = (first..first + 100 * cases).filter(is_asked).take(cases as usize);
    let Arguments { stack, full, latencies, .. } = arguments;
    let question = Question { stack, quick: !full, slicing: true, latencies: *latencies };
    let verdicts = search(&seeds.collect::<Vec<_>>(), &question, &|_| {});
    let (mut lines, mut counts) = (String::new(), String::new());
    for kind in Kind::ALL {
        let before = lines.lines().count();
        for Verdict { seed, drive, findings, .. } in &verdicts {
            let findings = findings.iter().filter(|finding| finding.kind == kind);
            let findings: Vec<String> = findings.map(ToString::to_string).collect();
            if !findings.is_empty() {
                writeln!(lines, "{seed} {drive}: {}", findings.join("; "))?;
            }
        }
        write!(counts, ", {} {}", kind.name(), lines.lines().count() - before)?;
    }
    if let Some(directory) = &arguments.keep {
        std::fs::create_dir_all(directory)?;
        for Verdict { seed, text, .. } in &verdicts {
            std::fs::write(directory.join(format!("{seed}.toml")), text)?;
        }
    }
    let total: u64 = verdicts.iter().map(|verdict| verdict.total / 1_000_000).sum();
    Ok(format!("{lines}cases {}, total {total}{counts}\n", verdicts.len()))
}

fn library(arguments: &Arguments) -> Result<String> {
    let all = profile::list().into_iter().filter(|drive| drive.library).map(|drive| drive.name);
    let drives = match arguments.others.is_empty() {
        true => all.collect(),
        false => arguments.others.clone(),
    };
    let csv = with_runner(|runner| stacks_csv(&drives, &[BASE, &arguments.stack], runner))?;
    stacks_kept(&csv, &arguments.stack).map_err(|error| anyhow!(error))
}

/// The rows of each variant.
fn read(path: &str) -> Result<BTreeMap<(String, String), Vec<Row>>> {
    let mut cases = BTreeMap::<_, Vec<Row>>::new();
    for row in csv::Reader::from_path(path).with_context(|| path.to_owned())?.into_deserialize() {
        let row: Row = row?;
        cases.entry((row.file.clone(), row.case.clone())).or_default().push(row);
    }
    Ok(cases)
}

fn compare(a: &str, b: &str) -> Result<String> {
    let (of_a, of_b) = (read(a)?, read(b)?);
    let mut all: Vec<(f64, String)> = Vec::new();
    let (mut promises, mut only_a, mut only_b, mut starved) = (0, 0, 0, 0);
    for (case, b) in &of_b {
        let Some(a) = of_a.get(case) else { continue };
        let [in_a, in_b] = [a[0].total, b[0].total];
        let mut line = format!("{} [{}] {} {}", case.0, case.1, short(in_a), short(in_b));
        for (a, b) in a.iter().zip(b) {
            let breaks = [a, b].map(Row::breaks);
            promises += usize::from(a.kept.is_some() || a.bound.is_some());
            only_a += usize::from(breaks[0].is_some() && breaks[1].is_none());
            only_b += usize::from(breaks[0].is_none() && breaks[1].is_some());
            starved += usize::from(b.rate < a.rate / 2.0 && breaks[1].is_none());
            for (name, what) in ["A", "B"].iter().zip(breaks) {
                what.iter().for_each(|what| line += &format!("; {name}: {what}"));
            }
        }
        all.push((in_b / in_a.max(1e-6), line));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mean = (all.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / all.len() as f64).exp();
    let low = all.iter().filter(|(ratio, _)| *ratio < REACHED).count();
    let lines: String = all.iter().map(|(ratio, line)| format!("{ratio:.3} {line}\n")).collect();
    Ok(format!(
        "{lines}rows {}, mean {mean:.4}, low {low}, promises {promises}, only A breaks {only_a}, only B breaks {only_b}, halved {starved}\n",
        all.len()
    ))
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let arguments = Arguments::parse(words)?;
    let text = match (command.as_str(), &arguments.others[..]) {
        ("rows", [_, ..]) => rows(&arguments)?,
        ("search", [_, _]) => random(&arguments)?,
        ("stacks", _) => library(&arguments)?,
        ("compare", [a, b]) => compare(a, b)?,
        _ => bail!("rows FILES..., search FIRST N, stacks [DRIVES...] or compare A.csv B.csv"),
    };
    print!("{text}");
    Ok(())
}
