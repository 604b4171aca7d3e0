//! `iofair-lab fit`: the range of each number of drives and machines that no measured row decides.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow};
use iofair_experiments::ranges;
use iofair_reproduction::fit::{self, Target};
use iofair_simulator::scenario::Scenario;

use iofair_cli::failure::{Usage, check_places};
use iofair_cli::interrupt;
use iofair_cli::output::{Output, say, write};

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

/// The results of `work` on all items, in their order.
fn parallel<I: Sync, T: Send>(
    jobs: usize,
    items: &[I],
    work: &(dyn Fn(&I) -> Result<T, String> + Sync),
) -> Result<Vec<T>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let run = || {
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            let result = work(item);
            if result.is_err() {
                next.store(items.len(), Ordering::Relaxed);
            }
            done.lock().expect("no thread panics with it").push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(run);
        }
        run();
    });
    let mut done = done.into_inner().expect("no thread panics with it");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result.map_err(|error| anyhow!(error))).collect()
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    check_places(&args.out)?;
    let stop = interrupt::flag()?;
    let mut targets = fit::targets();
    for file in &args.files {
        if !targets.iter().any(|target| target.file == *file) {
            let message = format!("no drive or machine `{file}` with free numbers");
            return Err(Usage(message).into());
        }
    }
    let asked = |target: &Target| args.files.is_empty() || args.files.contains(&target.file);
    let processors = std::thread::available_parallelism().map_or(1, Into::into);
    let jobs = args.jobs.unwrap_or(processors);
    let simulate = |scenario: &Scenario| match stop.load(Ordering::Relaxed) {
        true => Err("interrupted".to_owned()),
        false => iofair_simulator::simulate(scenario).map_err(|error| error.to_string()),
    };
    let paths: Vec<PathBuf> = fit::experiments(&args.experiments).into_iter().collect();
    let rows = parallel(jobs, &paths, &|path| fit::rows(path, &simulate))?;
    let known = ranges::all();
    let wanted: Vec<Target> = targets.iter().filter(|target| asked(target)).cloned().collect();
    let count = AtomicUsize::new(0);
    let computed = parallel(jobs, &wanted, &|target| {
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
    })?;
    // What was not asked for stays as it is, if the program has it.
    targets.retain(|target| asked(target) || known.iter().any(|range| is_of(range, target)));
    let ranges: Vec<_> = targets
        .iter()
        .filter_map(|target| computed.iter().chain(&known).find(|range| is_of(range, target)))
        .cloned()
        .collect();
    let text = ranges::write(&ranges);
    match &args.out {
        Some(out) => {
            std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))?;
        }
        None if output.json => output.print(&ranges, String::new)?,
        None => write(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn is_of(range: &ranges::Range, target: &Target) -> bool {
    range.file == target.file
        && range.number == target.number.key
        && range.value == target.number.value
}
