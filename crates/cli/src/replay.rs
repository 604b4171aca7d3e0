//! `iofair replay`: what would other policies have done with this load?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use iofair_config::contracts::Contracts;
use iofair_core::controller::Stack;
use iofair_core::time::Nanos;
use iofair_core::unit::{self, UnitError};
use iofair_drive::profile;
use iofair_historical::TABLE;
use iofair_lab::replay::{self, Agreement, Mapping, Mode, Outcome, Played, ReplayError, Setup};
use iofair_trace::formats::{self, Format};
use iofair_trace::source::Notes;
use iofair_trace::{Metadata, Options, Source as _, TraceError};
use serde::Serialize;

use crate::failure::Usage;
use crate::output::Output;

/// Stacks that are compared if none is named and the trace names none.
const STACKS: [&str; 2] = ["none-none", "promise"];
/// Before the name of an emulated drive in contracts.
const EMULATED: &str = "emulated:";

/// Arguments of `iofair replay`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair replay monday.trace                            what `iofair record` wrote: under the recorded stack, with the error
  iofair replay monday.trace --stack max-none --stack prop-bfq
      what other stacks would have done with the same load
  iofair replay web_0.csv.gz --stack none-none --stack promise --drive plextor-px256m5s
      a trace of MSR Cambridge
  iofair replay io.log --mode closed --drive hitachi-hts727550a9e364
  iofair replay sdb.blktrace.0 sdb.blktrace.1 --drive samsung-970-pro --contracts contracts.toml --group 'postgres.*=db'
  iofair replay tencent.csv.zst --scale 10 --duration 60s --drive samsung-970-pro --html replay.html

Formats: iofair, msr, alibaba, tencent, fiu, spc, systor, iolog, blkparse, blktrace; each also compressed with gzip or zstd.
The same trace, drive and seed give the same result. See docs/replay.md.")]
pub(crate) struct Args {
    /// Files of the trace. The requests of several files are merged by time.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Format of the files; by default it is recognised.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Policy stack; may be repeated. By default the recorded stack, or none-none and promise.
    #[arg(long, value_name = "STACK")]
    stack: Vec<String>,
    /// Drive profile: a name (see `iofair list drives`) or the path of a .toml file. By default the emulated drive of the recorded
    /// server.
    #[arg(long, value_name = "NAME|PATH")]
    drive: Option<String>,
    /// When requests are sent: at their recorded times (open), when what they waited for is complete (closed), or after the
    /// recorded pause as well (think).
    #[arg(long, default_value = "open", value_parser = ["open", "closed", "think"])]
    mode: String,
    /// Play the trace this many times as fast: recorded times and pauses are divided by it.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = scale)]
    scale: u64,
    /// Play only this much of the trace, in the time of the replay, such as 60s.
    #[arg(long, value_parser = time)]
    duration: Option<Nanos>,
    /// Contract file with the groups' contracts; streams with the name of a volume belong to its group. By default the recorded
    /// contracts.
    #[arg(long, value_name = "FILE")]
    contracts: Option<PathBuf>,
    /// Put the streams whose names match a pattern into a group; `*` stands for any text. May be repeated; the first match
    /// counts.
    #[arg(long, value_name = "PATTERN=GROUP")]
    group: Vec<String>,
    /// Seed of the drive model.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn time(text: &str) -> Result<Nanos, UnitError> {
    unit::parse_time(text)
}

/// A factor in thousandths.
fn scale(text: &str) -> Result<u64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match (0.001..=1_000_000.0).contains(&factor) {
        true => Ok((factor * 1000.0).round() as u64),
        false => Err("allowed are 0.001 to 1000000".to_owned()),
    }
}

/// The result for programs.
#[derive(Serialize)]
struct ReplayResult<'a> {
    traces: &'a [PathBuf],
    drive: &'a str,
    mode: &'a str,
    scale: f64,
    agreement: Option<&'a Agreement>,
    results: &'a [Played],
    notes: Vec<Note>,
}

#[derive(Serialize)]
struct Note {
    count: u64,
    what: &'static str,
}

/// Everything that a replay needs, from arguments and metadata.
struct Plan {
    options: Options,
    drive: String,
    /// Stacks in the order of running; the recorded one is first if there is one.
    stacks: Vec<Stack>,
    /// Whether the first stack is the recorded one, on the recorded drive, at the recorded times.
    compares: bool,
    setup: Setup,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let plan = plan(args)?;
    let mut results: Vec<Played> = Vec::new();
    let (mut notes, mut agreement) = (Notes::default(), None);
    for (index, stack) in plan.stacks.iter().enumerate() {
        let Outcome { played, recorded, notes: told } = replay_one(args, &plan, stack)?;
        if index == 0 {
            agreement = recorded
                .as_ref()
                .filter(|_| plan.compares)
                .map(|recorded| replay::agreement(&played, recorded));
            results.extend(recorded);
            notes = told;
        }
        results.push(played);
    }
    let scale = args.scale as f64 / 1000.0;
    if let Some(path) = &args.html {
        let names: Vec<String> = args.traces.iter().map(|it| it.display().to_string()).collect();
        let names = names.join(", ");
        let title = format!("{names} on {}, mode {}, scale {scale}", plan.drive, args.mode);
        let page = replay::page(&title, agreement.as_ref(), &results, &notes);
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let (traces, drive, mode) = (&args.traces, &plan.drive, &args.mode);
    let listed = notes.iter().map(|(what, count)| Note { count, what }).collect();
    let agreement = agreement.as_ref();
    let result =
        ReplayResult { traces, drive, mode, scale, agreement, results: &results, notes: listed };
    output.print(&result, || replay::text(agreement, &results, &notes))?;
    Ok(ExitCode::SUCCESS)
}

fn replay_one(args: &Args, plan: &Plan, stack: &Stack) -> Result<Outcome> {
    let source = iofair_trace::open(&plan.options).map_err(from_trace)?;
    let drive = profile::load(&plan.drive, args.seed)
        .map_err(|error| Usage(format!("--drive: {error}")))?;
    let setup = Setup { stack: stack.clone(), ..plan.setup.clone() };
    replay::replay(source, drive, &setup).map_err(|error| match error {
        ReplayError::Trace(error) => from_trace(error),
        ReplayError::Run(error) => Usage(format!("{}: {error}", stack.name())).into(),
        error => Usage(error.to_string()).into(),
    })
}

/// What is in a file is the user's.
fn from_trace(error: TraceError) -> anyhow::Error {
    Usage(error.to_string()).into()
}

fn format(args: &Args) -> Result<Option<&'static Format>> {
    let Some(name) = &args.format else { return Ok(None) };
    let names: Vec<&str> = formats::TABLE.iter().map(|format| format.name).collect();
    let missing = || Usage(format!("no format \"{name}\"; there are: {}", names.join(", ")));
    Ok(Some(formats::find(name).ok_or_else(missing)?))
}

fn plan(args: &Args) -> Result<Plan> {
    let options = Options { paths: args.traces.clone(), format: format(args)? };
    let metadata = iofair_trace::open(&options).map_err(from_trace)?.metadata();
    let recorded = match metadata.value(Metadata::CONTRACTS) {
        None => None,
        Some(text) => Some(Contracts::parse_with(&TABLE, "the recorded contracts", text)?),
    };
    let written = match &args.contracts {
        None => None,
        Some(path) => Some(Contracts::open_with(&TABLE, path)?),
    };
    let recorded_drive =
        metadata.value(Metadata::BACK).and_then(|back| back.strip_prefix(EMULATED));
    let recorded_drive = recorded_drive.map(|it| it.split_once('@').map_or(it, |(name, _)| name));
    let drive = args.drive.as_deref().or(recorded_drive).ok_or_else(|| {
        Usage("the trace does not name an emulated drive; add --drive NAME (see `iofair list drives`)".into())
    })?;
    let mut stacks = Vec::new();
    let same_drive = recorded_drive == Some(drive);
    stacks.extend(recorded.as_ref().map(|it| it.drive.stack.clone()));
    let has_recorded = !stacks.is_empty();
    let named = args.stack.iter().map(String::as_str);
    let default = STACKS.into_iter().filter(|_| args.stack.is_empty() && !has_recorded);
    for name in named.chain(default) {
        if !stacks.iter().any(|known: &Stack| known.name() == name) {
            stacks.push(TABLE.stack(name)?);
        }
    }
    let groups = written.as_ref().or(recorded.as_ref());
    let groups = groups.map(|contracts| contracts.groups.as_slice()).unwrap_or_default();
    let mode = match args.mode.as_str() {
        "closed" => Mode::Closed,
        "think" => Mode::Think,
        _ => Mode::Open,
    };
    let setup = Setup {
        stack: stacks[0].clone(),
        groups: groups.iter().map(|it| (it.name.clone(), it.contract.clone())).collect(),
        mapping: mapping(args, written.as_ref())?,
        mode,
        speed: args.scale,
        duration: args.duration,
    };
    // Without pauses, clients are faster than they were.
    let unchanged = args.scale == 1000 && mode != Mode::Closed && written.is_none();
    let compares = has_recorded && same_drive && unchanged && args.group.is_empty();
    Ok(Plan { options, drive: drive.to_owned(), stacks, compares, setup })
}

fn mapping(args: &Args, contracts: Option<&Contracts>) -> Result<Mapping> {
    let mut mapping = Mapping::default();
    for rule in &args.group {
        let Some((pattern, group)) = rule.rsplit_once('=') else {
            let text = format!("--group {rule}: write PATTERN=GROUP, as in 'web.*=tenants/web'");
            return Err(Usage(text).into());
        };
        mapping.add(pattern, group);
    }
    for volume in contracts.map(|it| it.volumes.as_slice()).unwrap_or_default() {
        mapping.add(&volume.name, &volume.group);
    }
    Ok(mapping)
}
