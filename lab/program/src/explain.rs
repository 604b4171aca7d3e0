//! `iofair-lab explain`: why did this request wait? One run of an experiment, watched.
//!
//! Runs repeat exactly, so nothing is recorded: a first run finds the waiting times and the slowest requests, a second
//! one tells the story of some.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use iofair_config::ConfigError;
use iofair_core::time::Nanos;
use iofair_experiments::experiment::{self, Experiment, Overrides};
use iofair_experiments::explain::{
    Slow, Stories, Story, Summary, Survey, stories_text, summary_text,
};
use iofair_reproduction::truth;
use iofair_simulator::scenario::{Control, Scenario};
use serde::Serialize;

use crate::changes::Changes;
use iofair_cli::failure::Usage;
use iofair_cli::output::Output;

/// Most requests shown step by step at once.
const STORIES_MAX: u32 = 1_000;
/// Slowest requests in a summary.
const SLOWEST: u32 = 10;

/// Arguments of `iofair-lab explain`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair-lab explain figure-1.toml --stack max-none         waiting times, and the rules behind them
  iofair-lab explain figure-1.toml --request 4711           one request, step by step
  iofair-lab explain figure-1.toml --client target --slowest 3
      a client's three slowest requests, step by step
  iofair-lab explain job.fio --set size=1g --ignore-unsupported
  iofair-lab explain figure-1.toml --variant 'random target, 4 readers' --repeat 2 --json

Runs are reproducible, so a request has the same number in each run. See lab/docs/explain.md.")]
pub(crate) struct Args {
    /// Experiment file, or job file of fio.
    #[arg(value_name = "EXPERIMENT")]
    path: PathBuf,
    /// Variant; by default the first one.
    #[arg(long)]
    variant: Option<String>,
    /// Policy stack, of the file or any other; by default the file's first one.
    #[arg(long)]
    stack: Option<String>,
    /// Number of the repeat, starting at 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Show the request with this number step by step. Requests are numbered in order of submission, from 1.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["slowest", "client"])]
    request: Vec<u64>,
    /// Show only this client, or this process of a client.
    #[arg(long)]
    client: Option<String>,
    /// Show this many of the slowest requests step by step.
    #[arg(long, value_name = "COUNT", num_args = 0..=1, default_missing_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(STORIES_MAX)))]
    slowest: Option<u32>,
    #[command(flatten)]
    changes: Changes,
    /// With the path between scheduler and drive as measured in this evidence (`iofair-lab run --evidence`), for a comparison with
    /// a trace of the kernel.
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
}

/// Which run it was.
#[derive(Serialize)]
struct Run<'a> {
    experiment: &'a str,
    variant: &'a str,
    stack: &'a str,
    repeat: u32,
    seed: u64,
    drive: &'a str,
    /// Its time; of jobs, until the last one ended.
    time_ns: u64,
}

#[derive(Serialize)]
struct Explained<'a> {
    run: Run<'a>,
    summary: Option<&'a Summary>,
    stories: &'a [Story],
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let stacks = args.stack.clone().map(|stack| vec![stack]);
    let overrides = Overrides { stacks, ..args.changes.overrides() };
    let mut experiment = experiment::read(&args.path, &overrides)?;
    if let Some(file) = &args.truth {
        truth::Evidence::read(file)?.apply(&mut experiment)?;
    }
    let variant = variant(args, &experiment)?;
    let scenario = experiment.scenario(variant, 0, args.repeat - 1);
    check_client(args, &scenario)?;
    if scenario.stripe.is_some_and(|stripe| stripe.control == Control::Leaf) {
        let message =
            "a stripe with control = \"leaf\" has several engines, and explain supports only one";
        return Err(Usage(message.to_owned()).into());
    }
    let mut time = scenario.time;
    let (summary, wanted) = match args.request.as_slice() {
        [] => {
            let summary = survey(args, &scenario, &mut time)?;
            let chosen = summary.slowest.iter().take(args.slowest.unwrap_or(0) as usize);
            let wanted: Vec<u64> = chosen.map(|slow: &Slow| slow.request).collect();
            (Some(summary), wanted)
        }
        requests => (None, requests.to_vec()),
    };
    let stories = if wanted.is_empty() { Vec::new() } else { tell(&scenario, &wanted, &mut time)? };
    let run = Run {
        experiment: &experiment.name,
        variant: &experiment.variants[variant].name,
        stack: &experiment.stacks[0].0,
        repeat: args.repeat,
        seed: scenario.seed,
        drive: &scenario.drive,
        time_ns: time.0,
    };
    let summary = summary.as_ref().filter(|_| args.slowest.is_none());
    output.print(&Explained { run, summary, stories: &stories }, || {
        let told = summary.map_or_else(|| stories_text(&stories), summary_text);
        format!("{}\n\n{told}", heading(&experiment, variant, &scenario, time))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn heading(experiment: &Experiment, variant: usize, scenario: &Scenario, time: Nanos) -> String {
    let name = match experiment.variants[variant].name.as_str() {
        "" => String::new(),
        name => format!(" [{name}]"),
    };
    let (stack, seed) = (&experiment.stacks[0].0, scenario.seed);
    let time = match experiment.jobs {
        Some(_) => format!("ended after {time}"),
        None => format!("{time} after {}", scenario.ramp),
    };
    format!("{}{name} {stack} on {}, seed {seed}, {time}", experiment.name, scenario.drive)
}

fn variant(args: &Args, experiment: &Experiment) -> Result<usize> {
    let Some(wanted) = &args.variant else { return Ok(0) };
    let names = || experiment.variants.iter().map(|variant| variant.name.as_str());
    names()
        .position(|name| name == wanted)
        .ok_or_else(|| ConfigError::unknown("--variant", "variant", wanted, names()).into())
}

fn check_client(args: &Args, scenario: &Scenario) -> Result<()> {
    let Some(wanted) = &args.client else { return Ok(()) };
    let known = Survey::clients(scenario);
    let (family, number) = wanted.rsplit_once('.').unwrap_or((wanted, ""));
    let is_process = !number.is_empty() && known.iter().any(|name| name == family);
    if known.contains(wanted) || is_process || family.starts_with("flusher") {
        return Ok(());
    }
    let known = known.iter().map(String::as_str);
    Err(ConfigError::unknown("--client", "client", wanted, known).into())
}

fn survey(args: &Args, scenario: &Scenario, time: &mut Nanos) -> Result<Summary> {
    let slowest = args.slowest.unwrap_or(SLOWEST) as usize;
    let mut survey = Survey::new(scenario, args.client.as_deref(), slowest);
    *time = watch(scenario, &mut survey)?;
    let summary = survey.finish();
    match (summary.counted, &args.client) {
        (0, Some(client)) => {
            Err(Usage(format!("\"{client}\" sent no request that was measured")).into())
        }
        _ => Ok(summary),
    }
}

fn tell(scenario: &Scenario, wanted: &[u64], time: &mut Nanos) -> Result<Vec<Story>> {
    let mut stories = Stories::new(scenario, wanted);
    *time = watch(scenario, &mut stories)?;
    let (mut told, submitted) = stories.finish();
    let missing = wanted.iter().find(|number| told.iter().all(|story| story.request != **number));
    if let Some(number) = missing {
        let message = format!("no request {number}; there were {submitted}, from 1");
        return Err(Usage(message).into());
    }
    // In the order asked for, which is the slowest first.
    told.sort_by_key(|story| wanted.iter().position(|number| *number == story.request));
    Ok(told)
}

/// The time that the run took.
fn watch(
    scenario: &Scenario,
    observer: &mut dyn iofair_simulator::observe::Observer,
) -> Result<Nanos> {
    let outcome = iofair_simulator::simulate_with(scenario, observer);
    outcome.map(|run| run.time).map_err(|error| anyhow!(Usage(error.to_string())))
}
