//! `iofair calibrate`: measures a drive and writes a profile of it.
//!
//! [`target`] is what is measured; `iofair_drive::fit` plans the rows and fits a model to them. [`journal`] keeps what was
//! measured, so that an interrupted calibration can continue.

mod journal;
mod progress;
mod target;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result, anyhow, bail};
use iofair_core::contract::Rate;
use iofair_core::time::Nanos;
use iofair_core::unit::{Count, parse_bytes, parse_time};
use iofair_drive::fit::{self, Fitted, Residual, Row, Survey};
use iofair_drive::profile;
use iofair_simulator::calibration::{
    self, Calibration, Disturbed, GUESSED_WRITES, Report, fio, least_disturbed, results,
};
use iofair_trace::input::Input;
use serde::Serialize;

use self::journal::Journal;
use self::progress::Progress;
use self::target::Target;
use crate::failure::{Usage, check_places};
use crate::interrupt;
use crate::output::{Output, say};
use crate::stolen::Ticks;

/// How often a row is measured while the host of this machine takes its processors away.
const TRIES: u64 = 3;
/// Longest text of --from.
const RESULTS_MAX: u64 = 256 << 20;
/// The shortest --row-time.
const ROW_TIME_MIN: Nanos = Nanos::from_millis(10);

/// Arguments of `iofair calibrate`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair calibrate /dev/sdb --out sdb.toml --write        everything; OVERWRITES the device
  iofair calibrate /dev/sdb --out sdb.toml                reads only
  iofair calibrate /srv/test.img --size 2GiB --write --out srv.toml
  iofair calibrate 'nbd+unix:///vol?socket=/run/pool.sock' --out vol.toml
  iofair calibrate emulated:plextor-px256m5s --out p.toml     a model, in simulated time
  iofair calibrate /dev/sdb --out sdb.toml --write --resume
  iofair calibrate --print-fio --depth 32 --capacity 256GB > job.fio
  iofair calibrate --from results.json --out remote.toml      results of that job, or of any other
  iofair calibrate --from result-0123abcd.json.gz --out 980.toml    of resctl-bench
  iofair calibrate --from iocost-benchmarks.csv --model 'Samsung SSD 970 PRO' --out 970.toml

Nothing is written to a target without --write. In experiments the profile is `drive = \"sdb.toml\"`, and in
contracts `back = \"emulated:sdb.toml\"`.")]
pub(crate) struct Args {
    /// A file, a block device, nbd+unix:///NAME?socket=PATH, or emulated:PROFILE.
    #[arg(required_unless_present_any = ["from", "print_fio"])]
    target: Option<String>,
    /// The profile to write; what was measured goes to PROFILE.rows.json beside it.
    #[arg(long, value_name = "PROFILE.toml", required_unless_present = "print_fio")]
    out: Option<PathBuf>,
    /// Also write to the target; its contents are lost. With --print-fio: the job does.
    #[arg(long, conflicts_with = "from")]
    write: bool,
    /// Continue the interrupted calibration of this profile.
    #[arg(long, conflicts_with = "from")]
    resume: bool,
    /// Overwrite an existing profile, its measurements and the page.
    #[arg(long, conflicts_with = "resume")]
    force: bool,
    /// Use only the first BYTES of the target; a shorter file is extended, with --write.
    #[arg(long, value_name = "BYTES", conflicts_with = "from")]
    size: Option<String>,
    /// Longest time of one row.
    #[arg(long, value_name = "TIME", default_value = "5s", conflicts_with = "from")]
    row_time: String,
    /// Also write an HTML page with plots.
    #[arg(long, value_name = "PAGE.html")]
    page: Option<PathBuf>,
    /// Read the measurements instead of measuring: JSON of fio or resctl-bench, or a table like those of profiles/measured.
    #[arg(long, value_name = "RESULTS.json|TABLE.csv", conflicts_with = "target")]
    from: Option<PathBuf>,
    /// With --from TABLE.csv: the drive, or the beginning of its name.
    #[arg(long, value_name = "NAME", requires = "from")]
    model: Option<String>,
    /// Print the fio job whose results --from reads.
    #[arg(long, conflicts_with_all = ["target", "from"])]
    print_fio: bool,
    /// With --print-fio: commands that the drive accepts at once.
    #[arg(long, default_value_t = 64, requires = "print_fio")]
    depth: u32,
    /// With --print-fio: bytes of the drive.
    #[arg(long, value_name = "BYTES", default_value = "64GiB", requires = "print_fio")]
    capacity: String,
    /// With --print-fio: the drive is a hard disk.
    #[arg(long, requires = "print_fio")]
    disk: bool,
}

/// What is printed at the end.
#[derive(Serialize)]
struct Printed<'a> {
    profile: &'a Path,
    #[serde(flatten)]
    report: Report<'a>,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    if args.print_fio {
        let capacity = bytes("--capacity", &args.capacity)?;
        let job = fio::job(args.depth, capacity, args.disk, args.write).map_err(Usage)?;
        crate::output::write(&job)?;
        return Ok(ExitCode::SUCCESS);
    }
    let out = args.out.as_deref().ok_or_else(|| Usage("--out is missing".into()))?;
    check_out(args, out)?;
    let interrupted = interrupt::flag()?;
    let is_over = || interrupted.load(Relaxed);
    let calibration = match (&args.from, &args.target) {
        (Some(from), _) => Some(read(from, args.model.as_deref())?),
        (None, Some(target)) => measure(args, target, out, &is_over)?,
        (None, None) => bail!(Usage("a target is missing".into())),
    };
    let Some(calibration) = calibration else { return Ok(ExitCode::from(interrupt::EXIT_CODE)) };
    calibration.check().map_err(|why| refused(args, &why))?;
    let records = &calibration.records;
    let message = format!("fitting a model to {}", Count(records.len(), "row"));
    let bar = Progress::spinner(&message);
    let fitted = calibration.fit(&is_over);
    drop(bar);
    if is_over() {
        let kept = match &args.from {
            Some(_) => String::new(),
            None => format!("; {}", kept(records.len(), &Journal::file(out))),
        };
        say(format_args!("interrupted; no profile was written{kept}"));
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    finish(args, out, &calibration, &fitted, output)?;
    Ok(ExitCode::SUCCESS)
}

/// What was measured elsewhere.
fn read(from: &Path, model: Option<&str>) -> Result<Calibration> {
    let place = from.display().to_string();
    let text = text_of(from, &place).map_err(|error| Usage(format!("{place}: {error:#}")))?;
    let calibration = results::read(&place, &text, model);
    let calibration = calibration.map_err(Usage)?;
    for line in calibration.published.iter().flat_map(|published| &published.left_out) {
        say(format_args!("{}: left out: {line}", from.display()));
    }
    Ok(calibration)
}

/// The text of a file, which may be compressed.
fn text_of(from: &Path, place: &str) -> Result<String> {
    let mut text = String::new();
    let input = Input::new(Box::new(fs::File::open(from)?), place)?;
    input.take(RESULTS_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > RESULTS_MAX {
        true => bail!("longer than {RESULTS_MAX} bytes, which no results are"),
        false => Ok(text),
    }
}

fn bytes(option: &str, text: &str) -> Result<u64> {
    parse_bytes(text).map_err(|error| Usage(format!("{option}: {error}")).into())
}

fn refused(args: &Args, why: &fit::Implausible) -> anyhow::Error {
    let again = if args.from.is_none() { " (--force measures everything again)" } else { "" };
    anyhow!("these numbers cannot come from the drive: {why}{again}")
}

fn kept(rows: usize, path: &Path) -> String {
    if rows == 0 {
        return "nothing was measured".to_owned();
    }
    format!("kept in {}: {}; --resume continues", path.display(), Count(rows, "row"))
}

/// Whether profile and page can be written there, before anything is measured. Nothing that exists is overwritten unless
/// that is wanted.
fn check_out(args: &Args, out: &Path) -> Result<()> {
    if out.extension().is_none_or(|extension| extension != "toml") {
        let message = format!("--out {}: the name of a profile ends in .toml", out.display());
        bail!(Usage(message));
    }
    let journal = args.target.as_ref().map(|_| Journal::file(out));
    let page = args.page.clone();
    if page.is_some() && (page.as_deref() == Some(out) || page == journal) {
        bail!(Usage(format!("--page and --out {} are the same file", out.display())));
    }
    for path in [Some(out.to_owned()), journal, page].into_iter().flatten() {
        check_places([&path], &args.from)?;
        if path.exists() && !args.force && !args.resume {
            let resume = match args.from {
                Some(_) => "",
                None => "; --resume continues its calibration",
            };
            let path = path.display();
            bail!(Usage(format!("{path} exists; --force overwrites it{resume}")));
        }
    }
    Ok(())
}

/// Runs all rows that the journal does not have; `None` if it was interrupted.
fn measure(
    args: &Args,
    name: &str,
    out: &Path,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Calibration>> {
    let size = args.size.as_deref().map(|size| bytes("--size", size)).transpose()?;
    let row_time =
        parse_time(&args.row_time).map_err(|error| Usage(format!("--row-time: {error}")))?;
    if row_time < ROW_TIME_MIN {
        bail!(Usage(format!("--row-time {}: allowed are 10 ms and more", args.row_time)));
    }
    let mut target = Target::open(name, size, args.write, is_over)?;
    let scope = target.scope(args.write, size, row_time)?;
    let mut journal = Journal::open(out, name, &scope, args.resume)?;
    let mut rows = scope.survey();
    let mut survey = run_rows(&mut target, &mut journal, &rows, None, is_over)?
        .then(|| Survey::new(journal.records()));
    if let Some(found) = &survey {
        let found = found.as_ref().ok_or_else(|| anyhow!("the survey is incomplete"))?;
        fit::check(found, journal.records()).map_err(|why| refused(args, &why))?;
        let more = scope.rows(found);
        let burst = found.limits.and_then(|limits| limits.burst);
        let rest = found.limits.and_then(|limits| limits.rest(&scope));
        if let Some(burst) = burst {
            let then =
                if rest.is_some() { "rests before each row" } else { "is measured without it" };
            say(format_args!("{name}: limits after a burst of {burst}; the drive {then}"));
        }
        if !run_rows(&mut target, &mut journal, &more, rest, is_over)? {
            survey = None;
        }
        rows.extend(more);
    }
    let Some(survey) = survey.flatten() else {
        let kept = kept(journal.records().len(), journal.path());
        say(format_args!("interrupted; {kept}"));
        return Ok(None);
    };
    let (title, number) = (target.title(), target.number());
    let records = journal.records().to_vec();
    Ok(Some(Calibration { title, number, scope, rows, records, survey, published: None }))
}

/// Runs the rows that the journal does not have, each after a rest; false if it was interrupted.
fn run_rows(
    target: &mut Target,
    journal: &mut Journal,
    rows: &[Row],
    rest: Option<Nanos>,
    is_over: &dyn Fn() -> bool,
) -> Result<bool> {
    let missing: Vec<&Row> = rows.iter().filter(|row| !journal.has_row(&row.name)).collect();
    let bar = Progress::rows(missing.len());
    let mut disturbed = Disturbed::default();
    let tries = if matches!(target, Target::Simulated(_)) { 1 } else { TRIES };
    for row in missing {
        bar.begin(&row.name);
        let got = least_disturbed(tries, &mut disturbed, || {
            if let Some(rest) = rest {
                target.rest(rest, is_over)?;
            }
            let before = Ticks::now();
            let outcome = target.run(row, is_over)?;
            Ok::<_, std::io::Error>((outcome, Ticks::now().since(before)))
        });
        match got.map(|(outcome, _)| outcome) {
            _ if is_over() => return Ok(false),
            Ok(outcome) => journal.push(row.record(&outcome))?,
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                bar.print(&format!("left out, since the target cannot do it: {}", row.name));
            }
            Err(error) => {
                let place = format!("row \"{}\" on {}", row.name, journal.target());
                return Err(error).context(place);
            }
        }
        bar.end();
    }
    let said = disturbed.text();
    if tries > 1 && !said.is_empty() {
        bar.print(&said);
    }
    Ok(!is_over())
}

/// Writes the profile and the page, and prints what was found.
fn finish(
    args: &Args,
    out: &Path,
    calibration: &Calibration,
    fitted: &Fitted,
    output: &Output,
) -> Result<()> {
    let report = calibration.report(fitted);
    let text = calibration.profile(fitted, &report);
    fs::write(out, &text).with_context(|| format!("cannot write {}", out.display()))?;
    // What was written can be read.
    let path = std::path::absolute(out)?;
    profile::read(&path.to_string_lossy()).context("the profile that was fitted is not valid")?;
    crate::output::save(args.page.as_deref(), || {
        let guessed = if report.writes_measured { "" } else { GUESSED_WRITES };
        let lines = [&report.reaches, &report.io_cost_model, &report.io_cost_qos, guessed];
        calibration::page(calibration, fitted, &lines)
    })?;
    let printed = Printed { profile: out, report };
    output.print(&printed, || in_text(&printed))
}

fn in_text(Printed { profile, report }: &Printed<'_>) -> String {
    let cells = |row: &Residual| {
        let name = format!("{}, {}", row.row, row.quantity);
        let error = format!("{:+.1} %", row.error_percent);
        let held_out = if row.held_out { "verifies" } else { "" };
        vec![name, row.shown(row.measured), row.shown(row.model), error, held_out.to_owned()]
    };
    let rows: Vec<Vec<String>> = report.rows.iter().map(cells).collect();
    let header = ["row", "measured", "model", "error", ""];
    let mut text = crate::output::table(&header, &rows, &[1, 2, 3]);
    let decided = |decided: bool| -> String {
        let all = report.parameters.iter().filter(|parameter| parameter.decided == decided);
        let all = all.map(|parameter| format!("{} = {}", parameter.key, parameter.value.written()));
        let all = all.collect::<Vec<_>>().join(", ");
        if all.is_empty() { "none".to_owned() } else { all }
    };
    text += &format!("\ndecided by the rows: {}\n", decided(true));
    text += &format!("decided by no row: {}\n", decided(false));
    let percent = |mean: Option<f64>| mean.map_or("no row".into(), |error| format!("{error:.1} %"));
    text += &format!(
        "mean error: {} of the fitted rows, {} of the rows that only verify\n",
        percent(report.fitted_error_percent),
        percent(report.verification_error_percent)
    );
    if !report.is_explained {
        text += "NOT EXPLAINED: the mean error is above 10 %, so the model is not this drive\n";
    }
    let worst = Rate(report.worst_case_bytes_per_s);
    text += &format!("worst case: {worst}\n{}\n", report.reaches);
    if let Some(depth) = report.knee_depth {
        text += &format!("knee: beyond QD{depth}, small random reads only wait longer\n");
    }
    text +=
        &format!("io.cost.model: {}\nio.cost.qos: {}\n", report.io_cost_model, report.io_cost_qos);
    if !report.writes_measured {
        text += &format!("{GUESSED_WRITES}\n");
    }
    text + &format!("the profile is in {}\n", profile.display())
}
