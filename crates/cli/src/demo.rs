//! `iofair demo`: the promise, live.
//!
//! Starts a server on an emulated drive and real NBD clients over a Unix socket, one stack of policies
//! after the other, and shows what each did to the promise and to the drive. The verdicts are what the
//! run showed: a policy that breaks the promise is said to break it. `--at` runs it on a disk of the user's.

mod client;
mod outcome;
mod page;
mod plan;
mod site;
mod temporary;
mod terminal;
mod watch;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use iofair_config::shell;
use iofair_core::attainable::{self, Claimant};
use iofair_core::contract::Rate;
use iofair_core::unit::{parse_bytes, parse_rate, parse_time};
use iofair_drive::profile;
use iofair_policies::DEFAULT_STACK;
use iofair_policies::TABLE;
use iofair_simulator::calibration::Disturbed;

use self::outcome::{Outcome, Sample, StackOutcome};
use self::plan::Plan;
use self::site::Site;
use self::temporary::Temporaries;
use crate::failure::{Usage, check_places};
use crate::output::{Output, save, say};
use crate::stolen::undisturbed;

/// Default stacks: no control, ceilings, shares, and our own.
const EMULATED_STACKS: [&str; 4] = ["none-none", "max-none", "prop-bfq", DEFAULT_STACK];
/// Default stacks on an unknown disk, for which no ceilings can be chosen.
const DISK_STACKS: [&str; 3] = ["none-none", "prop-bfq", DEFAULT_STACK];
/// Guaranteed minimum of the random reader on an emulated drive.
const PROMISE: u64 = 10_000_000;
/// Duration of each measurement of a disk.
const MEASURE_SECONDS: f64 = 2.0;
/// The size of a client's file is a multiple of it.
const SIZE_UNIT: u64 = 1 << 20;
/// Clients of the article, as the command line counts them.
const ARTICLE: u64 = plan::ARTICLE_CLIENTS as u64;
/// How often a stack is run while the host of this machine takes its processors away.
const TRIES: u64 = 3;
/// More clients would measure this machine, not the policies.
const CLIENTS_MAX: u64 = 64;

/// Arguments of `iofair demo`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair demo                         a random reader with a minimum, and four sequential readers
  iofair demo --clients 16            with fifteen sequential readers, as in the survey of 2019
  iofair demo --stack prop-bfq --stack promise
  iofair demo --at /srv               on the disk of /srv; the minimum is half of the rate alone
  iofair demo --json > demo.json      results for a script

The default is the first workload of the article \"I/O control may be slowing your storage down
dramatically\" (2018), with the weights and limits of its Table 2. The minimum is 10 MB/s. With other
numbers of clients, all weights are equal.")]
pub(crate) struct Args {
    /// Number of clients: the random reader, and the sequential readers.
    #[arg(long, default_value_t = ARTICLE, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=CLIENTS_MAX))]
    clients: u64,
    /// Measured time for each stack.
    #[arg(long, default_value = "6", value_name = "SECONDS")]
    seconds: String,
    /// Time that a sequential reader runs alone first, so that BFQ can learn the drive's peak rate.
    #[arg(long, default_value = "2", value_name = "SECONDS")]
    history: String,
    /// Warm-up of all clients before the measured time, so that queues fill.
    #[arg(long, default_value = "2", value_name = "SECONDS")]
    ramp: String,
    /// Policy stack to run; may be repeated.
    #[arg(long = "stack", value_name = "STACK")]
    stacks: Vec<String>,
    /// Profile of the emulated drive.
    #[arg(long, default_value = "plextor-px256m5s", value_name = "PROFILE")]
    drive: String,
    /// Run on a real disk instead: files are created in this directory and removed at the end.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "drive")]
    at: Option<PathBuf>,
    /// Size of each client's file on a real disk.
    #[arg(long, default_value = "256MiB", value_name = "SIZE", requires = "at")]
    size: String,
    /// Guaranteed minimum of the random reader; by default half of its rate alone, at most 10 MB/s on an emulated drive.
    #[arg(long, visible_alias = "min", value_name = "RATE")]
    promise: Option<String>,
    /// File for the HTML page.
    #[arg(long, default_value = "demo.html", value_name = "FILE")]
    html: PathBuf,
    /// File for the charts of the page, as SVG.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    for stack in &args.stacks {
        TABLE.stack(stack)?;
    }
    check_places(args.picture.iter().chain([&args.html]), [])?;
    let promise = args.promise.as_deref().map(parse_rate).transpose()?;
    let chosen = chosen_stacks(args);
    let promised = match args.at {
        None => promise_on(&args.drive, promise, &chosen)?,
        Some(_) => promise.unwrap_or(PROMISE),
    };
    let temporaries = Temporaries::start()?;
    let socket = temporaries.make(&std::env::temp_dir())?;
    let mut plan = Plan {
        back: format!("emulated:{}", args.drive),
        volume_size: plan::EMULATED_SIZE,
        clients: usize::try_from(args.clients).expect("its range is checked"),
        promised,
        alone: None,
        history_seconds: seconds(&args.history)?,
        ramp_seconds: seconds(&args.ramp)?,
        seconds: seconds(&args.seconds)?,
        socket: socket.path.join("demo.sock"),
    };
    let on_disk = |at| at_directory(args, at, promise, &temporaries, &mut plan);
    let site = args.at.as_deref().map(on_disk).transpose()?;
    let cannot_write = || format!("cannot write {}", args.html.display());
    check_writable(&args.html).with_context(cannot_write)?;
    let (mut stacks, mut disturbed) = (Vec::new(), Disturbed::default());
    for (i, stack) in chosen.iter().enumerate() {
        let progress = Progress::new(output, &plan, stack, i + 1, chosen.len());
        let run = undisturbed(TRIES, &mut disturbed, || {
            watch::stack(&plan, stack, |sample| progress.glance(sample))
        });
        let (mut run, stolen) = run.with_context(|| format!("{stack} could not be run"))?;
        run.stolen = stolen;
        progress.finish(&run, plan.promised);
        stacks.push(run);
    }
    // Dropping it removes the file on the disk.
    drop(site);
    let outcome = Outcome {
        drive: args.at.as_deref().map_or_else(|| args.drive.clone(), show),
        is_real: args.at.is_some(),
        clients: plan.clients,
        seconds: plan.seconds,
        promised_bytes_per_s: plan.promised,
        disturbed,
        stacks,
    };
    let next = next_commands(args);
    std::fs::write(&args.html, page::page(&outcome, &next)).with_context(cannot_write)?;
    save(args.picture.as_deref(), || page::picture(&outcome))?;
    output.print(&outcome, || {
        let mut text = terminal::report(&outcome);
        text += &format!("\n  page: {}\n", args.html.display());
        for command in next {
            text += &format!("  next: {command}\n");
        }
        text
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a file can be written, which is then as before: a run may be interrupted.
fn check_writable(path: &Path) -> io::Result<()> {
    match File::options().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::create_new(path)?;
            std::fs::remove_file(path)
        }
        opened => opened.map(drop),
    }
}

/// What is promised on an emulated drive: what was asked for, if the server would not refuse it.
fn promise_on(drive: &str, asked: Option<u64>, stacks: &[String]) -> Result<u64> {
    let profile = profile::read(drive).map_err(|error| Usage(error.to_string()))?;
    let reaches = profile.reaches();
    let promised = asked.unwrap_or(PROMISE.min(reaches.alone / 2)).max(1);
    let keeps = |stack: &&String| TABLE.stack(stack).is_ok_and(|stack| stack.keeps_minimums());
    let Some(stack) = stacks.iter().find(keeps) else { return Ok(promised) };
    let target = Claimant { name: "target".into(), min: Some(promised), ..Claimant::default() };
    match attainable::check(&reaches, &[target]) {
        Ok(()) => Ok(promised),
        Err(error) => {
            let (promised, alone, fitting) = (Rate(promised), Rate(reaches.alone), error.fitting());
            let message = format!(
                "{promised} cannot be guaranteed on {drive}: the random reader reaches {alone} with the drive to itself, and {stack} refuses minimums that the drive cannot keep; allowed: {fitting}, or other stacks (--stack)"
            );
            Err(Usage(message).into())
        }
    }
}

/// The stacks of this run; the last one is our own by default.
fn chosen_stacks(args: &Args) -> Vec<String> {
    match (&args.stacks[..], &args.at) {
        ([], None) => EMULATED_STACKS.map(String::from).to_vec(),
        ([], Some(_)) => DISK_STACKS.map(String::from).to_vec(),
        (said, _) => said.to_vec(),
    }
}

/// Writes the file of `--at`, and finds out what may be promised there.
fn at_directory(
    args: &Args,
    at: &Path,
    promise: Option<u64>,
    temporaries: &Temporaries,
    plan: &mut Plan,
) -> Result<Site> {
    plan.volume_size = parse_bytes(&args.size)? / SIZE_UNIT * SIZE_UNIT;
    if plan.volume_size == 0 {
        return Err(Usage(format!("\"{}\": at least 1MiB is needed", args.size)).into());
    }
    let clients: Vec<String> = plan.roster().into_iter().map(|client| client.name).collect();
    let at = std::path::absolute(at)?;
    let site = Site::new(&at, &clients, plan.volume_size, temporaries)?;
    plan.back = site.back();
    let short = |seconds: f64| seconds.min(MEASURE_SECONDS);
    let measured = |clients| {
        let plan = Plan {
            clients,
            promised: 0,
            history_seconds: 0.1,
            ramp_seconds: short(plan.ramp_seconds),
            seconds: short(plan.seconds),
            ..plan.clone()
        };
        let run = undisturbed(TRIES, &mut Disturbed::default(), || {
            watch::stack(&plan, "none-none", |_| ())
        });
        let (run, _) = run.context("the drive cannot be measured")?;
        Ok::<u64, anyhow::Error>(run.target.bytes_per_s)
    };
    let (alone, beside) = (measured(1)?, measured(plan.clients)?);
    plan.promised = reachable(promise, alone)?.max(1);
    plan.alone = Some(alone.max(1));
    let mb = |rate: u64| rate as f64 / 1e6;
    say(format_args!(
        "  the random reader gets {:.2} MB/s alone and {:.2} MB/s beside the others without control; promised: {:.2} MB/s{}",
        mb(alone),
        mb(beside),
        mb(plan.promised),
        if promise.is_none() { ", half of what it gets alone" } else { "" }
    ));
    Ok(site)
}

/// The minimum of a reader that reaches `alone` bytes per second with the disk to itself, by default half of that.
/// Error if it is more than `alone`.
fn reachable(promise: Option<u64>, alone: u64) -> Result<u64> {
    let promised = promise.unwrap_or(alone / 2);
    if promised <= alone {
        return Ok(promised);
    }
    let (promised, alone, fitting) = (Rate(promised), Rate(alone), Rate(alone / 2));
    Err(Usage(format!(
        "--promise {promised}: the random reader reaches {alone} with this disk to itself at present (a disk is slower for a while after much was written to it); allowed: at most {alone}; without --promise it is half of that, {fitting}"
    ))
    .into())
}

/// What to try after this run: commands that work in any directory, with the program as it was called.
fn next_commands(args: &Args) -> Vec<String> {
    let program = std::env::args_os().next().map_or_else(|| "iofair".into(), PathBuf::from);
    let program = shell::path(&program);
    let other = match args.clients {
        ..=ARTICLE => "--clients 16",
        _ => "--stack prop-bfq --seconds 20",
    };
    let drive = format!(" --drive {}", shell::word(&args.drive));
    let at = args.at.as_ref().map(|at| std::path::absolute(at).unwrap_or_else(|_| at.clone()));
    let same = at.as_ref().map_or(drive, |at| format!(" --at {}", shell::path(at)));
    let next = match at {
        None => "demo --at .".to_string(),
        Some(_) => format!("list policies {DEFAULT_STACK}"),
    };
    vec![format!("{program} demo{same} {other}"), format!("{program} {next}")]
}

/// Reads a time, taken as seconds when it has no unit; a tenth of a second to an hour.
fn seconds(text: &str) -> Result<f64> {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let time = if plain { parse_time(&format!("{text}s")) } else { parse_time(text) }?;
    let seconds = time.0 as f64 / 1e9;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err(Usage(format!("\"{text}\": allowed is 0.1 s to an hour")).into());
    }
    Ok(seconds)
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// One line on standard error that follows a run.
struct Progress {
    bar: ProgressBar,
    quiet: bool,
    stack: String,
}

impl Progress {
    fn new(output: &Output, plan: &Plan, stack: &str, this: usize, all: usize) -> Self {
        let milliseconds = plan.all_seconds() * 1000.0;
        let bar = ProgressBar::new(milliseconds as u64);
        let style = ProgressStyle::with_template("  {prefix} {bar:24} {msg}");
        bar.set_style(style.expect("the template is a constant").progress_chars("━╸─"));
        bar.set_prefix(format!("[{this}/{all}] {stack:<12}"));
        bar.set_message("one reader alone first");
        bar.enable_steady_tick(Duration::from_millis(200));
        if bar.is_hidden() {
            say(format_args!("  [{this}/{all}] {stack}: {:.0} s", milliseconds / 1000.0));
        }
        Self { bar, quiet: output.json, stack: stack.to_string() }
    }
    fn glance(&self, sample: &Sample) {
        self.bar.set_position((sample.seconds * 1000.0) as u64);
        self.bar.set_message(format!(
            "target {:>6.1} MB/s   all together {:>6.0} MB/s",
            sample.target_bytes_per_s as f64 / 1e6,
            sample.total_bytes_per_s as f64 / 1e6
        ));
    }
    fn finish(&self, run: &StackOutcome, promised: u64) {
        let hidden = self.bar.is_hidden();
        self.bar.finish_and_clear();
        if !(self.quiet && hidden) {
            say(format_args!("  {:<14} {}", self.stack, run.verdict(promised)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: times are read with and without unit, within bounds. Method: examples of each.
    #[test]
    fn times_are_read_with_and_without_unit() {
        assert!((seconds("6").expect("plain") - 6.0).abs() < 1e-9);
        assert!((seconds("1.5").expect("plain") - 1.5).abs() < 1e-9);
        assert!((seconds("500ms").expect("with unit") - 0.5).abs() < 1e-9);
        for bad in ["", "0", "2h", "1d", "99999", "-1"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    /// Goal: a disk that is slower than the promise is refused before the stacks run, with what it reaches. Method: with
    /// and without a promise, on both sides of the rate alone.
    #[test]
    fn a_promise_above_the_rate_alone_is_refused() {
        assert_eq!(reachable(None, 15_000_000).expect("half"), 7_500_000);
        assert_eq!(reachable(Some(7_000_000), 7_000_000).expect("just reached"), 7_000_000);
        let error = reachable(Some(10_000_000), 7_000_000).expect_err("not reached").to_string();
        assert!(error.contains("10.00 MB/s") && error.contains("7.00 MB/s"), "{error}");
    }
}
