//! `iofair-lab compare`: which policy for which drive?

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Result, anyhow};
use indicatif::ProgressBar;
use iofair_baselines::TABLE;
use iofair_config::{ConfigError, stack_error};
use iofair_core::time::Nanos;
use iofair_core::unit::parse_time;
use iofair_drive::profile::{self, ProfileError};
use iofair_experiments::experiment::Runner;
use iofair_experiments::scorecard::{self, DRIVES, Question, STACKS, Scorecard, ScorecardError};
use iofair_simulator::machine::drive_error;
use iofair_simulator::scenario::Scenario;

use iofair_cli::failure::{Usage, check_places};
use iofair_cli::interrupt;
use iofair_cli::machine;
use iofair_cli::output::{Output, progress, save, say, without_controls, write};

/// Arguments of `iofair-lab compare`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair-lab compare                                        six stacks on a SATA SSD, an NVMe SSD and a disk
  iofair-lab compare prop-bfq promise --drive ./nvme0.toml  two stacks on a profile of your own (see `iofair calibrate`)
  iofair-lab compare --drive samsung-970-pro --html compare.html
  iofair-lab compare --drive class:datacentre               all drives of a class
  iofair-lab compare --drive plextor-px256m5s --repeats 5 --json > compare.json

Four questions for each stack: what does an idle mechanism cost, are shares fair, is a minimum kept and how much of the
drive is used meanwhile, and how fast is a client served that comes back. Everything is measured in the simulator; the
same drive and seed give the same answer. See lab/docs/compare.md.")]
pub(crate) struct Args {
    /// Policy stacks (see `iofair-lab list policies`). By default none-none, none-mq-deadline, prop-bfq, lat-none, cost-none and
    /// promise.
    #[arg(value_name = "STACK")]
    stacks: Vec<String>,
    /// Drive profile: a name (see `iofair-lab list drives`), class:CLASS for all drives of a class, or the path of a .toml file; may
    /// be repeated. By default
    /// plextor-px256m5s, samsung-970-pro and hitachi-hts727550a9e364.
    #[arg(long, value_name = "NAME|PATH")]
    drive: Vec<String>,
    /// Measured time of each run, such as 1s; by default 1 s on flash and 10 s on disks.
    #[arg(long, value_parser = parse_time)]
    time: Option<Nanos>,
    /// Seed of the first repeat.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs of each mix, with different seeds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repeats: u32,
    /// Number of concurrent runs; by default one per core.
    #[arg(long, short)]
    jobs: Option<NonZeroUsize>,
    /// Write a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print neither progress nor tables.
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    check_places(&args.html, [])?;
    let questions = questions(args)?;
    let interrupted = interrupt::flag()?;
    let runs = questions.iter().map(scorecard::runs).sum::<usize>();
    let bar = ProgressBar::new(runs as u64);
    let bar = progress(bar, "{bar:30} {pos} of {len} runs, {eta} left  {msg}", args.quiet);
    let simulate = |scenario: &Scenario| match interrupted.load(Relaxed) {
        true => Err("interrupted".to_owned()),
        false => iofair_simulator::simulate(scenario).map_err(|error| error.to_string()),
    };
    let jobs = machine::threads(args.jobs);
    let runner = Runner { jobs, simulate: &simulate, finished: &|_| bar.inc(1) };
    let mut cards: Vec<Scorecard> = Vec::new();
    for question in &questions {
        bar.set_message(question.drive.clone());
        match scorecard::scorecard(question, &runner) {
            Ok(card) => cards.push(card),
            Err(_) if interrupted.load(Relaxed) => {
                say(format_args!(
                    "interrupted after {} of {runs} runs; nothing was written",
                    bar.position()
                ));
                return Ok(ExitCode::from(interrupt::EXIT_CODE));
            }
            Err(ScorecardError::Run(error)) => return Err(anyhow!("{}: {error}", question.drive)),
            Err(ScorecardError::Drive(error)) => return Err(unknown_drive(&error)),
            Err(error) => return Err(Usage(error.to_string()).into()),
        }
    }
    bar.finish_and_clear();
    save(args.html.as_deref(), || scorecard::page(&cards))?;
    if output.json {
        write(&(serde_json::to_string_pretty(&cards)? + "\n"))?;
    } else if !args.quiet {
        write(&without_controls(&scorecard::text(&cards)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn unknown_drive(error: &ProfileError) -> anyhow::Error {
    drive_error(ConfigError::whole_file("--drive", ""), error).into()
}

fn questions(args: &Args) -> Result<Vec<Question>> {
    if args.time == Some(Nanos::ZERO) {
        return Err(Usage("--time 0s measures nothing; allowed: more than 0s".into()).into());
    }
    let named = |given: &[String], usual: &[&str]| match given {
        [] => usual.iter().map(|stack| (*stack).to_owned()).collect(),
        given => given.to_vec(),
    };
    let mut stacks = named(&args.stacks, &STACKS);
    let mut seen: Vec<String> = Vec::new();
    stacks.retain(|stack| {
        !seen.contains(stack) && {
            seen.push(stack.clone());
            true
        }
    });
    for name in &stacks {
        let at = || ConfigError::whole_file("STACK", "");
        TABLE.stack(name).map_err(|error| stack_error(at(), &error))?;
    }
    let question = |drive| Question {
        stacks: stacks.clone(),
        drive,
        time: args.time,
        seed: args.seed,
        repeats: args.repeats,
    };
    let drives = named(&args.drive, &DRIVES);
    let drives = drives.iter().map(|name| profile::expand(name).map_err(|e| unknown_drive(&e)));
    Ok(drives.collect::<Result<Vec<_>>>()?.into_iter().flatten().map(question).collect())
}
