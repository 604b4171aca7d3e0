//! `iofair-lab replay`: what would other policies have done with this load?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use iofair_baselines::TABLE;
use iofair_core::time::Nanos;
use iofair_core::unit::parse_time;
use iofair_experiments::replay::request::{self, Request, RequestError};
use iofair_experiments::replay::{self, Mode};

use iofair_cli::failure::{Usage, check_places};
use iofair_cli::output::{Output, save};

/// Arguments of `iofair-lab replay`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair-lab replay monday.trace                            what `iofair record` wrote: under the recorded stack, with the error
  iofair-lab replay monday.trace --stack max-none --stack prop-bfq
      what other stacks would have done with the same load
  iofair-lab replay web_0.csv.gz --stack none-none --stack promise --drive plextor-px256m5s
      a trace of MSR Cambridge
  iofair-lab replay io.log --mode closed --drive hitachi-hts727550a9e364
  xz -dc trace.xz | iofair-lab replay - --drive samsung-970-pro
      from a pipe, which is kept in a temporary file
  iofair-lab replay table.csv --columns time:us=when,op=2,offset:sectors=3,size=bytes --drive samsung-970-pro
      any table: its columns by name or number
  iofair-lab replay sdb.blktrace.0 sdb.blktrace.1 --drive samsung-970-pro --contracts contracts.toml --group 'postgres.*=db'
  iofair-lab replay tencent.csv.zst --scale 10 --duration 60s --drive samsung-970-pro --html replay.html

Formats: iofair, msr, alibaba, tencent, fiu, spc, systor, k5cloud, iolog, blkparse, tracepoints, blktrace, biosnoop, disksim,
mqsim, csv (a table with a header); each also compressed with gzip, zstd, xz or bzip2. The same trace, drive and seed give the same result. See lab/docs/replay.md.")]
pub(crate) struct Args {
    /// Files of the trace; `-` is standard input. The requests of several files are merged by time.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Format of the files; by default it is recognised.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// What the columns of a table are: FIELD=COLUMN or FIELD:UNIT=COLUMN, separated by commas. Fields are time, op, offset, size, latency,
    /// volume, stream; a column is a name in the header or a number from 1. Units: s, ms, us, ns, filetime for times; bytes,
    /// sectors or a number of bytes for places and sizes; read0 or read1 for operations that are numbers, by the number of a read.
    #[arg(long, value_name = "COLUMNS")]
    columns: Option<String>,
    /// Policy stack; may be repeated. By default the recorded stack, or none-none and promise.
    #[arg(long, value_name = "STACK")]
    stack: Vec<String>,
    /// Drive profile: a name (see `iofair-lab list drives`) or the path of a .toml file. By default the emulated drive of the contracts,
    /// or else of the recorded server.
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
    #[arg(long, value_parser = parse_time)]
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

/// A factor in thousandths.
fn scale(text: &str) -> Result<u64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match (0.001..=1_000_000.0).contains(&factor) {
        true => Ok((factor * 1000.0).round() as u64),
        false => Err("allowed are 0.001 to 1000000".to_owned()),
    }
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    check_places(&args.html, &args.traces)?;
    let request = Request {
        traces: args.traces.clone(),
        format: args.format.clone(),
        columns: args.columns.clone(),
        stacks: args.stack.clone(),
        table: &TABLE,
        drive: args.drive.clone(),
        mode: Mode::find(&args.mode).unwrap_or(Mode::Open),
        scale: args.scale,
        duration: args.duration,
        contracts: args.contracts.clone(),
        groups: args.group.clone(),
        seed: args.seed,
    };
    let replayed = request::run(&request).map_err(|error| match error {
        RequestError::Config(error) => error.into(),
        // What is in a file is the user's.
        RequestError::Trace(error) => Usage(error.to_string()).into(),
        RequestError::Refused(text) => anyhow::Error::from(Usage(text)),
    })?;
    let agreement = replayed.agreement.as_ref();
    save(args.html.as_deref(), || {
        replay::page(&replayed.title(), agreement, &replayed.results, &replayed.told)
    })?;
    output.print(&replayed, || replay::text(agreement, &replayed.results, &replayed.told))?;
    Ok(ExitCode::SUCCESS)
}
