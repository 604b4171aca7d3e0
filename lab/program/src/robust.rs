//! `iofair-lab run --draws`: how often each claim holds over seeds, start offsets and open numbers of drives and machines.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use iofair_experiments::experiment::Overrides;
use iofair_experiments::report::robust::{HOLDS_PERCENT, write};
use iofair_reproduction::draws;

use iofair_cli::failure::Usage;
use iofair_cli::interrupt;
use iofair_cli::output::{progress, save, say};

/// Longest journal that is read.
const BYTES_MAX: u64 = 1 << 30;
/// How often progress is printed where there is no terminal.
const PRINT: Duration = Duration::from_secs(30);

/// What is asked.
pub(crate) struct Asked<'a> {
    /// The experiment files.
    pub(crate) files: &'a [PathBuf],
    /// What is changed about them.
    pub(crate) overrides: &'a Overrides,
    /// Draws of each.
    pub(crate) draws: u32,
    /// Seed of all draws.
    pub(crate) seed: u64,
    /// Threads.
    pub(crate) jobs: usize,
    /// Print nothing.
    pub(crate) quiet: bool,
    /// The result.
    pub(crate) out: &'a Path,
}

/// Computes and writes it.
pub(crate) fn run(asked: &Asked<'_>) -> Result<ExitCode> {
    let &Asked { files, overrides, draws, seed, jobs, quiet, out } = asked;
    let stop = interrupt::flag()?;
    let journal = &out.with_extension("draws.jsonl");
    if journal.metadata().is_ok_and(|known| known.len() > BYTES_MAX) {
        return Err(Usage(format!("{} is too long for a journal", journal.display())).into());
    }
    let all = files.len() as u64 * u64::from(draws);
    let template = "{wide_bar:.cyan/blue} {pos}/{len} draws, {eta} left";
    let bar = progress(ProgressBar::new(all), template, quiet);
    let printed = Mutex::new(Duration::ZERO);
    let finished = || {
        bar.inc(1);
        let mut last = printed.lock().expect("no thread panics with it");
        if bar.is_hidden() && !quiet && bar.elapsed() >= *last + PRINT {
            *last = bar.elapsed();
            let left = bar.eta().as_secs();
            say(format_args!("run: {} of {all} draws, {left} s left", bar.position()));
        }
    };
    let (stop, finished) = (&*stop, &finished);
    let rows =
        draws::run(&draws::Asked { files, overrides, draws, seed, jobs, journal, stop, finished });
    bar.finish_and_clear();
    let Some(rows) = rows? else {
        let journal = journal.display();
        say(format_args!("interrupted; the same command continues from {journal}"));
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    };
    save(Some(out), || write(&rows))?;
    if !quiet {
        let held = rows.iter().filter(|row| row.draws.holds()).count();
        let count = rows.len();
        say(format_args!(
            "{held} of {count} claims hold in {HOLDS_PERCENT} % of their draws or more"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
