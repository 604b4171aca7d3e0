//! `iofair-lab fit`: the range of each number of drives and machines that no measured row decides.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};
use iofair_config::ConfigError;
use iofair_experiments::{distinct, parallel, ranges};
use iofair_reproduction::fit::{self, Target};
use iofair_simulator::scenario::Scenario;

use iofair_cli::failure::check_places;
use iofair_cli::interrupt;
use iofair_cli::machine;
use iofair_cli::output::{Output, save, say, write};

/// Arguments of `iofair-lab fit`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  iofair-lab fit --out profiles/machines/ranges.csv         all ranges, as `make ranges` does
  iofair-lab fit drives/plextor-px256m5s                    those of one drive; the others as they are
  iofair-lab fit machines/sata-2009 --experiments elsewhere/experiments")]
pub(crate) struct Args {
    /// Drives and machines whose ranges are computed, such as drives/nvme-2015 or machines/sata-2009; all when absent.
    files: Vec<String>,
    /// The folder of the experiments that their lists name.
    #[arg(long, value_name = "DIRECTORY", default_value = "reproduction/experiments")]
    experiments: PathBuf,
    /// Write the ranges to this CSV file instead of printing them.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Threads; one a processor when absent.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print no progress.
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    check_places(&args.out, [])?;
    let stop = interrupt::flag()?;
    let mut targets = fit::targets();
    for file in &args.files {
        if !targets.iter().any(|target| target.file == *file) {
            let known = distinct(targets.iter().map(|target| target.file.as_str()));
            let what = "drive or machine with free numbers";
            return Err(ConfigError::unknown("FILES", what, file, known).into());
        }
    }
    let asked = |target: &Target| args.files.is_empty() || args.files.contains(&target.file);
    let jobs = args.jobs.unwrap_or_else(|| machine::threads(None));
    let simulate = |scenario: &Scenario| match stop.load(Ordering::Relaxed) {
        true => Err("interrupted".to_owned()),
        false => iofair_simulator::simulate(scenario).map_err(|error| error.to_string()),
    };
    let paths: Vec<PathBuf> = fit::experiments(&args.experiments).into_iter().collect();
    let rows = parallel(jobs, &paths, &|path: &PathBuf| fit::rows(path, &simulate));
    let rows = rows.map_err(|error| anyhow!(error))?;
    let known = ranges::all();
    let wanted: Vec<Target> = targets.iter().filter(|target| asked(target)).cloned().collect();
    let count = AtomicUsize::new(0);
    let computed = parallel(jobs, &wanted, &|target: &Target| {
        let range = fit::range(target, &rows, &simulate)?;
        let done = count.fetch_add(1, Ordering::Relaxed) + 1;
        if !args.quiet {
            say(format_args!(
                "fit: {done} of {}: {} {}",
                wanted.len(),
                target.file,
                target.number.key
            ));
        }
        Ok(range)
    });
    let computed = computed.map_err(|error: String| anyhow!(error))?;
    // What was not asked for stays as it is, if the program has it.
    targets.retain(|target| asked(target) || known.iter().any(|range| is_of(range, target)));
    let ranges: Vec<_> = targets
        .iter()
        .filter_map(|target| computed.iter().chain(&known).find(|range| is_of(range, target)))
        .cloned()
        .collect();
    let text = ranges::write(&ranges);
    match args.out.as_deref() {
        None if output.json => output.print(&ranges, String::new)?,
        None => write(&text)?,
        out => save(out, || text)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn is_of(range: &ranges::Range, target: &Target) -> bool {
    range.file == target.file
        && range.number == target.number.key
        && range.value == target.number.value
}
