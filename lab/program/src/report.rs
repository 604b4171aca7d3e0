//! `iofair-lab report`: results that were saved before, side by side.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use iofair_experiments::report::{Saved, compare};

use iofair_cli::failure::{Usage, check_places};
use iofair_cli::output::{Output, save};

/// Longest file that is read.
const BYTES_MAX: u64 = 256 << 20;

/// Arguments of `iofair-lab report`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair-lab run load.toml --repeats 5 --json > before.json
  iofair-lab run load.toml --repeats 5 --json > after.json     with another version, drive or setting
  iofair-lab report before.json after.json                     what differs by more than chance
  iofair-lab report before.json after.json --html report.html  all quantities, as a page
  iofair-lab report before.json after.json --json --strict     for a script: fails if anything differs

A difference is that of the last file to the first. With several repeats it has a 95 % interval, and counts if it is outside
of it; otherwise it counts from 1 % on. See lab/docs/experiments.md.")]
pub(crate) struct Args {
    /// Files that `iofair-lab run --json` wrote.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write all quantities as one page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Fail with exit code 1 if any quantity differs.
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    check_places(&args.html, &args.files)?;
    let files: Result<Vec<Saved>> = args.files.iter().map(|path| read(path)).collect();
    let comparison = compare(&files?);
    save(args.html.as_deref(), || comparison.page())?;
    output.print(&comparison, || comparison.text())?;
    let differs = comparison.rows.iter().any(iofair_experiments::report::SavedRow::differs);
    Ok(if args.strict && differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read(path: &Path) -> Result<Saved> {
    let name = path.display().to_string();
    let meta = fs::metadata(path).with_context(|| format!("cannot read {name}"))?;
    if meta.len() > BYTES_MAX {
        return Err(Usage(format!("{name}: too long for a result; allowed: 256 MiB")).into());
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let wrong =
        |what| Usage(format!("{name}: {what}; allowed: what `iofair-lab run --json` prints"));
    Ok(Saved::parse(&name, &text).map_err(wrong)?)
}
