//! `iofair plan`: do these promises fit this drive, which breaks first, and how many drives are needed?

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Result, anyhow};
use indicatif::ProgressBar;
use iofair_config::Source;
use iofair_config::contracts::Contracts;
use iofair_core::time::Nanos;
use iofair_core::unit::{Count, parse_time};
use iofair_policies::TABLE;
use iofair_simulator::plan::load::{NEIGHBOURS, Neighbours};
use iofair_simulator::plan::{self, Loads, Plan, PlanError, Question, Runner};

use crate::failure::{Usage, check_places};
use crate::interrupt;
use crate::machine;
use crate::output::{Output, progress, save, say, write};

/// Arguments of `iofair plan`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair plan contracts.toml                            the contracts of a server on an emulated drive
  iofair plan contracts.toml --drive samsung-970-pro    on another drive
  iofair plan contracts.toml --drive ./nvme0.toml       on a profile of your own
  iofair plan contracts.toml --load loads.toml          with what the clients are expected to do
  iofair plan contracts.toml --expect tenants/alice=randread,block=8KiB,depth=4,buffered=false
  iofair plan contracts.toml --without fdatasync        where no client calls fdatasync in a loop
  iofair plan contracts.toml --picture plan.svg --html plan.html
  iofair plan contracts.toml --json --quiet --strict    for a script

Everything is measured in the simulator; the same file and seed give the same answer. See docs/plan.md.")]
pub(crate) struct Args {
    /// The server's contract file.
    contracts: PathBuf,
    /// Drive profile: a name (see `iofair list drives`) or the path of a .toml file. By default the emulated drive of the contract
    /// file.
    #[arg(long, value_name = "NAME|PATH")]
    drive: Option<String>,
    /// File with the expected load of each client, in `[[load]]` tables with the keys of a client of an experiment.
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// Expected load of the clients of one group, as JOB or as JOB with further keys after commas. May be repeated.
    #[arg(long, value_name = "GROUP=JOB")]
    expect: Vec<String>,
    /// Measured time of each run, such as 2s; by default 2 s on flash and 20 s on disks.
    #[arg(long, value_parser = parse_time)]
    time: Option<Nanos>,
    /// Warm-up of each run, such as 500ms; by default 1 s on flash and 5 s on disks.
    #[arg(long, value_parser = parse_time)]
    ramp: Option<Nanos>,
    /// Seed of the first repeat.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs of each mix, with different seeds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repeats: u32,
    /// Leave out these neighbours, because they cannot occur. Names are separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    without: Vec<String>,
    /// Do not find out how many drives are needed.
    #[arg(long)]
    one_drive: bool,
    /// Number of concurrent runs; by default one per core.
    #[arg(long, short)]
    jobs: Option<NonZeroUsize>,
    /// Write the picture to an SVG file.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Write a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print neither progress nor tables.
    #[arg(long, short)]
    quiet: bool,
    /// Exit with code 1 if a promise is broken in some mix.
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let contracts = Contracts::open_with(&TABLE, &args.contracts)?;
    if args.time == Some(Nanos::ZERO) {
        return Err(Usage("--time 0s measures nothing; allowed: more than 0s".into()).into());
    }
    check_places(
        args.picture.iter().chain(&args.html),
        [&args.contracts].into_iter().chain(&args.load),
    )?;
    let question = Question {
        contracts: &contracts,
        drive: drive(args, &contracts)?,
        loads: loads(args)?,
        ramp: args.ramp,
        time: args.time,
        seed: args.seed,
        repeats: args.repeats,
        neighbours: neighbours(args)?,
        drives: !args.one_drive,
    };
    let plan = match answer(args, &question) {
        Err(PlanError::Interrupted(runs)) => {
            say(format_args!("interrupted after {}; nothing was written", Count(runs, "run")));
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        answer => answer.map_err(|error| cli_error(args, error))?,
    };
    save(args.picture.as_deref(), || plan::picture(&plan))?;
    save(args.html.as_deref(), || plan::page(&plan))?;
    if output.json {
        write(&(serde_json::to_string_pretty(&plan)? + "\n"))?;
    } else if !args.quiet {
        write(&plan::text(&plan))?;
    }
    verdict(args, &plan)
}

fn verdict(args: &Args, plan: &Plan) -> Result<ExitCode> {
    if args.strict && !plan.fits() {
        return Err(anyhow!("a promise is broken"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What the user wrote decides the exit code.
fn cli_error(args: &Args, error: PlanError) -> anyhow::Error {
    match error {
        PlanError::Config(error) => error.into(),
        PlanError::Drive(error) if args.drive.is_some() => {
            Usage(format!("--drive: {error}")).into()
        }
        error => Usage(error.to_string()).into(),
    }
}

/// The drive that runs are made on.
fn drive(args: &Args, contracts: &Contracts) -> Result<String> {
    if let Some(name) = &args.drive {
        return Ok(name.clone());
    }
    let back = &contracts.drive.back;
    if let Some(name) = back.profile() {
        let read = iofair_drive::profile::read(name);
        read.map_err(|error| contracts.back_error(error.to_string()))?;
        return Ok(name.to_owned());
    }
    let below = if back.directory().is_some() { "the drive below " } else { "" };
    let what = back.path().map(|path| format!("{below}{}", path.display()));
    let what = what.unwrap_or_else(|| back.kind().to_owned());
    let message = format!("a plan is measured on a model of the drive, and {what} has none here");
    let allowed =
        "--drive NAME (one of `iofair list drives`) or --drive PATH (a profile's .toml file)";
    Err(contracts.back_error(message).allowed(allowed).into())
}

/// What neighbours are tried.
fn neighbours(args: &Args) -> Result<Vec<Neighbours>> {
    let known = || NEIGHBOURS.iter().map(|neighbour| neighbour.name);
    let is_unknown = |name: &&String| known().all(|known| known != name.as_str());
    if let Some(name) = args.without.iter().find(is_unknown) {
        let names: Vec<&str> = known().collect();
        let message =
            format!("--without: no neighbours \"{name}\"; there are: {}", names.join(", "));
        return Err(Usage(message).into());
    }
    let is_out = |neighbour: &str| args.without.iter().any(|name| name == neighbour);
    let kept = NEIGHBOURS.iter().filter(|neighbour| !is_out(neighbour.name));
    let kept: Vec<Neighbours> = kept.copied().collect();
    match kept.is_empty() {
        true => {
            Err(Usage("--without leaves no neighbours: there is no worst mix then".into()).into())
        }
        false => Ok(kept),
    }
}

fn loads(args: &Args) -> Result<Loads> {
    let mut loads = Loads::default();
    if let Some(path) = &args.load {
        loads.add(&Source::open(path)?)?;
    }
    for written in &args.expect {
        loads.expect(written)?;
    }
    Ok(loads)
}

/// Makes the runs. Ctrl-C ends it between two of them.
fn answer(args: &Args, question: &Question<'_>) -> Result<Plan, PlanError> {
    let interrupted = interrupt::flag().map_err(|error| PlanError::Run(format!("{error:#}")))?;
    let bar = ProgressBar::new_spinner();
    let bar = progress(bar, "{spinner} {pos} runs, {elapsed}  {msg}", args.quiet);
    let last = Mutex::new(String::new());
    let stage = |text: &str| {
        bar.set_message(text.to_owned());
        let mut last = last.lock().expect("nobody panics while it is locked");
        if bar.is_hidden() && !args.quiet && *last != text {
            say(format_args!("plan: {text}"));
        }
        text.clone_into(&mut last);
    };
    let runner = Runner {
        jobs: machine::threads(args.jobs),
        stage: &stage,
        finished: &|| bar.inc(1),
        is_over: &|| interrupted.load(Relaxed),
    };
    let plan = plan::plan(question, &runner);
    bar.finish_and_clear();
    plan
}
