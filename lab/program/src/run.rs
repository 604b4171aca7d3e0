//! `iofair-lab run`: experiments in virtual time, with what their sources claim beside what we get; or live (see
//! [`crate::live`]).

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use indicatif::ProgressBar;
use iofair_experiments::experiment::{self, Experiment, Overrides, Results, Runner};
use iofair_experiments::report;
use iofair_experiments::timelines;
use iofair_reproduction::{self as reproduction, truth};
use iofair_simulator::scenario::Scenario;

use crate::changes::Changes;
use crate::fio;
use crate::frontier;
use crate::linux;
use crate::live;
use crate::measured;
use crate::robust;
use crate::toml_files::collect_toml;
use iofair_cli::failure::{Usage, check_places};
use iofair_cli::machine;
use iofair_cli::output::{Output, progress, save, say, without_controls, write};

/// Arguments of `iofair-lab run`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair-lab run reproduction/experiments/article-2018/figure-1.toml      one figure
  iofair-lab run reproduction/experiments --html results.html             all experiments, with a page of results
  iofair-lab run figure-1.toml --stack prop-bfq --repeats 1  one stack, one run
  iofair-lab run figure-1.toml --json > figure-1.json        results for a script
  iofair-lab run reproduction/experiments/suite/bandwidth-latency.toml --set client.interferer.count=7
      a template with another number of clients
  iofair-lab run figure-1.toml --draws 200 --robust figure-1.csv
      how often each claim holds, over seeds and over what no measured row decides
  iofair-lab run --on serve figure-1.toml --repeats 1 --variant 'random target, readers'
      live, through real sockets, beside the simulation
  iofair-lab run job.fio --stack none-none --stack promise --drive samsung-970-pro
      a job file of fio in the simulator, under two stacks
  iofair-lab run job.fio --fio results
      the same, with results as fio writes them
  iofair-lab run job.fio --set size=1g --set filename=/dev/sdx --ignore-unsupported
      the same with arguments of the jobs, and without what the simulator does not have
  iofair-lab run --on linux reproduction/experiments/truth/random-weights.toml
      on the kernel of this machine: an emulated drive, a loop device and fio

The same file and seed give the same output on any machine. The seeds are printed.")]
pub(crate) struct Args {
    /// Experiment files, job files of fio, or directories with experiment files; `-` is standard input.
    #[arg(required_unless_present = "measured")]
    paths: Vec<PathBuf>,
    /// Where to run: in the simulator (virtual time), live on a server with an emulated drive (real time), or on the kernel of
    /// this machine with fio as clients (real time).
    #[arg(long, value_enum, default_value_t = World::Lab)]
    on: World,
    /// With `--on linux`: a file or block device to use instead of an emulated drive.
    #[arg(long, value_name = "PATH")]
    target: Option<PathBuf>,
    /// With `--target`: allow clients to write, which destroys its data.
    #[arg(long, requires = "target")]
    write: bool,
    /// Run only this variant; may be repeated.
    #[arg(long, value_name = "NAME")]
    variant: Vec<String>,
    /// Run only these stacks, including ones that the file does not list. `every` means one stack for each policy and all
    /// named stacks.
    #[arg(long, value_delimiter = ',')]
    stack: Vec<String>,
    /// Number of runs of each variant on each stack, with different seeds.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: Option<u32>,
    #[command(flatten)]
    changes: Changes,
    /// Run each experiment this often, each time with another seed, other start offsets and other values of the open numbers
    /// of drive and machine, and write to `--robust` how often each claim holds. Ctrl-C stops it; the same command continues.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), requires = "robust")]
    #[arg(conflicts_with_all = ["on", "variant", "csv", "series", "frontier", "drive_variants", "html", "markdown", "measured"])]
    draws: Option<u32>,
    /// A CSV file with the share of draws in which each claim holds: written with `--draws`, otherwise shown beside the claims.
    /// A claim that holds in fewer than 80 % of its draws does not count as held.
    #[arg(long, value_name = "FILE")]
    robust: Option<PathBuf>,
    /// Run every variant with each of these values of a key, such as policy.bfq.slice_idle=0s,2ms,8ms, client.target.weight=100,300
    /// or drive=A,B. Several sweeps multiply; with --set sample=N, N points of them (a Latin hypercube) are run. Claims are left out.
    #[arg(long, value_name = "KEY=VALUE,...")]
    sweep: Vec<String>,
    /// Number of concurrent runs; by default one per core.
    #[arg(long, short)]
    jobs: Option<NonZeroUsize>,
    /// Write the results of every run to a CSV file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the rates of each interval to a CSV file, for experiments with an `interval`.
    #[arg(long, value_name = "FILE")]
    series: Option<PathBuf>,
    /// Write the rate of the client `target` and the total rate to a CSV file, with one line for each stack and each variant in
    /// which the target has a minimum. Runs only these variants, and skips those that a stack refuses.
    #[arg(long, value_name = "FILE")]
    frontier: Option<PathBuf>,
    /// Also run each experiment on all variants of its drive (`NAME:VARIANT`).
    #[arg(long)]
    drive_variants: bool,
    /// Write results in fio's formats into a directory: in STACK/fio.json the output of `--output-format=json+`, beside it the logs
    /// of bandwidth, I/Os and latency.
    #[arg(long, value_name = "DIRECTORY")]
    fio: Option<PathBuf>,
    /// Write a self-contained HTML page with charts.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a Markdown page with published numbers beside ours.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write a page and pictures for each experiment with published numbers into a directory, and a scatter plot of all. A page of
    /// `--markdown` beside the directory becomes their index.
    #[arg(long, value_name = "DIRECTORY")]
    pages: Option<PathBuf>,
    /// Write the numbers that `iofair-lab list policies` shows. Additional experiments are run if the given ones do not
    /// provide all of them.
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["on", "variant", "stack", "repeats", "time", "ramp", "seed", "set"])]
    measured: Option<PathBuf>,
    /// With `--on linux` or `--on serve`: save what is measured, for `--truth`. Other experiments in the file stay. What was
    /// interrupted continues after the last complete experiment.
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// With `--on linux` and `--evidence`: another pass, whose runs are added to those that the file has of the same experiments. A
    /// machine that others share is faster at some times than at others.
    #[arg(long, requires = "evidence")]
    add: bool,
    /// Run the simulator with the path measured in such a file, and write the page that compares the three with `--markdown`.
    #[arg(long, value_name = "FILE", requires = "markdown")]
    truth: Option<PathBuf>,
    /// Print neither progress nor tables.
    #[arg(long, short)]
    quiet: bool,
    /// Exit with code 1 if a hard claim does not hold.
    #[arg(long)]
    strict: bool,
}

/// Where experiments run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum World {
    /// In the simulator, in virtual time.
    Lab,
    /// Live, on a server.
    Serve,
    /// On the kernel of this machine, with fio as clients; needs root.
    Linux,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    if let (Some(draws), Some(out)) = (args.draws, &args.robust) {
        let (files, overrides) = (files(args)?, overrides(args));
        let (jobs, seed, quiet) =
            (machine::threads(args.jobs), args.changes.seed.unwrap_or(1), args.quiet);
        let (files, overrides) = (&files[..], &overrides);
        return robust::run(&robust::Asked { files, overrides, draws, seed, jobs, quiet, out });
    }
    let files = [&args.csv, &args.series, &args.frontier, &args.html, &args.markdown];
    check_places(files.into_iter().flatten(), &args.paths)?;
    let mut experiments = read(args)?;
    if let Some(file) = &args.evidence {
        return evidence(args, file, experiments);
    }
    if args.on == World::Serve {
        if [&args.csv, &args.html, &args.series, &args.frontier].iter().any(|path| path.is_some()) {
            let message = "--csv, --series, --frontier and --html need the simulator; --on serve supports --markdown and --json";
            return Err(Usage(message.into()).into());
        }
        let (jobs, markdown) = (machine::threads(args.jobs), args.markdown.as_deref());
        let asked = live::Asked { quiet: args.quiet, jobs, markdown, strict: args.strict };
        return live::run(&asked, experiments, output);
    }
    if args.on == World::Linux {
        let target = args.target.clone().map_or(linux::Target::Emulated, linux::Target::Real);
        let asked = linux::Asked {
            quiet: args.quiet,
            target: &target,
            write: args.write,
            for_simulator: false,
        };
        let (mut results, here) = linux::run(&asked, experiments, &mut |_, _| Ok(()))?;
        for result in &mut results {
            result.experiment.note =
                format!("{} {}", here.text(), result.experiment.note).trim().to_owned();
        }
        print(args, &results, output)?;
        if !args.quiet && !output.json {
            say(format_args!("{}", here.text()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(file), Some(page)) = (&args.truth, &args.markdown) {
        return compare(args, file, page, experiments);
    }
    if args.target.is_some() {
        return Err(Usage("--target needs --on linux".into()).into());
    }
    let asked = experiments.len();
    if args.measured.is_some() {
        experiments.extend(measured::missing(&experiments)?);
    }
    let mut results = simulate(args, experiments)?;
    if let Some(file) = &args.measured {
        let table = measured::table(&results)?;
        save(Some(file), || table)?;
        results.truncate(asked);
    }
    print(args, &results, output)
}

/// Measures the kernel or the live server for the comparison, and saves every experiment when it is complete.
fn evidence(args: &Args, file: &Path, experiments: Vec<Experiment>) -> Result<ExitCode> {
    let kernel = || truth::Evidence::read(file).context("the kernel is measured first: --on linux");
    let open = |world| -> Result<truth::Store> {
        let store = truth::Store::open(file, world, linux::described)?;
        store.continued().into_iter().for_each(say);
        Ok(store)
    };
    match args.on {
        World::Lab => return Err(Usage("--evidence needs --on linux or --on serve".into()).into()),
        World::Serve if args.add => {
            return Err(Usage("--add needs --on linux".into()).into());
        }
        World::Linux if args.target.is_some() => {
            return Err(Usage("--evidence needs an emulated drive, not --target".into()).into());
        }
        World::Linux => {
            let world = if args.add { truth::World::Added } else { truth::World::Kernel };
            let mut store = open(world)?;
            if args.add {
                store.check(&experiments)?;
            }
            let missing = store.missing(experiments)?;
            let asked = linux::Asked {
                quiet: args.quiet,
                target: &linux::Target::Emulated,
                write: false,
                for_simulator: true,
            };
            linux::run(&asked, missing, &mut |results, here| {
                let path = here.path.clone().context("--evidence needs an emulated drive")?;
                let (place, disturbed) = (here.place(), here.disturbed);
                store.put(truth::Part::kernel(results, place, path, disturbed, linux::described)?)
            })?;
            store.close()?;
        }
        World::Serve => {
            let (kernel, mut store) = (kernel()?, open(truth::World::Live)?);
            let mut missing = store.missing(experiments)?;
            for experiment in &mut missing {
                kernel.path(kernel.measured(experiment, linux::described)?).apply(experiment);
            }
            live::measure(missing, args.quiet, &mut |results, disturbed| {
                let mut part = kernel.measured(&results.experiment, linux::described)?.clone();
                part.take_live(results, disturbed);
                store.put(part)
            })?;
            store.close()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the simulator with the path of the evidence in `file`, and writes the page that compares.
fn compare(
    args: &Args,
    file: &Path,
    page: &Path,
    experiments: Vec<Experiment>,
) -> Result<ExitCode> {
    let mut evidence = truth::Evidence::read(file)?;
    let experiments = evidence.prepare(experiments, linux::described)?;
    evidence.take_lab(&simulate(args, experiments)?);
    let causes = truth::Causes::read(file, &evidence)?;
    let images = page.with_file_name("images");
    for (name, picture) in truth::pictures(&evidence) {
        save(Some(&images.join(name)), || picture)?;
    }
    save(Some(page), || truth::page(&evidence, &causes))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints and writes what was asked for.
fn print(args: &Args, results: &[Results], output: &Output) -> Result<ExitCode> {
    let mut summaries: Vec<_> = results.iter().map(report::summarize).collect();
    if let Some(file) = &args.robust {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let rows = report::robust::read(&text)
            .map_err(|error| Usage(format!("{}: {error}", file.display())))?;
        summaries.iter_mut().for_each(|summary| summary.judge_by(&rows));
    }
    save(args.csv.as_deref(), || report::csv(results))?;
    save(args.series.as_deref(), || reproduction::series_csv(results))?;
    save(args.frontier.as_deref(), || reproduction::frontier_csv(results))?;
    save(args.html.as_deref(), || match summaries.as_slice() {
        [one] => report::page(&one.title, &summaries),
        _ => report::page("Experiments", &summaries),
    })?;
    save(args.markdown.as_deref(), || {
        let beside = args.markdown.as_deref().and_then(Path::parent);
        let folder = args.pages.as_deref().and_then(|dir| dir.strip_prefix(beside?).ok()?.to_str());
        report::markdown(&summaries, folder)
    })?;
    if let Some(folder) = &args.pages {
        pages(folder, &summaries)?;
    }
    if let Some(directory) = &args.fio {
        fio::write(directory, results)?;
    }
    if output.json {
        write(&report::json(results))?;
    } else if !args.quiet && !results.is_empty() {
        let table = |(summary, results): (&report::Summary, &Results)| match results.experiment.jobs
        {
            Some(_) => report::jobs_table(results, summary),
            None => report::table(summary),
        };
        let tables: Vec<_> = summaries.iter().zip(results).map(table).collect();
        write(&without_controls(&tables.join("\n\n")))?;
    }
    let misses: usize = results.iter().map(Results::hard_misses).sum();
    if args.strict && misses > 0 {
        let them = if misses == 1 { "a hard claim does" } else { "hard claims do" };
        return Err(anyhow!("{misses} {them} not hold"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of experiments with published numbers.
fn pages(folder: &Path, summaries: &[report::Summary]) -> Result<()> {
    let images = folder.join("images");
    std::fs::create_dir_all(&images)
        .with_context(|| format!("cannot create {}", images.display()))?;
    save(Some(&images.join("all.svg")), || report::scatter(summaries))?;
    for (name, text) in report::compared_pages(summaries) {
        save(Some(&folder.join(name)), || text)?;
    }
    Ok(())
}

/// The files that were named, those of directories in the order of their paths.
fn files(args: &Args) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in &args.paths {
        if path.is_dir() {
            let before = files.len();
            let listed = collect_toml(path, &mut files);
            listed.with_context(|| Usage(format!("cannot list {}", path.display())))?;
            if files.len() == before {
                return Err(Usage(format!("no experiment in {}", path.display())).into());
            }
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// What is changed about them.
fn overrides(args: &Args) -> Overrides {
    let stacks = match args.stack.as_slice() {
        [one] if one == "every" => frontier::every_stack(),
        given => given.to_vec(),
    };
    let mut overrides = args.changes.overrides();
    if args.frontier.is_some() {
        // A minimum is one in each second.
        overrides.settings.push("interval=1s".to_owned());
    }
    Overrides {
        stacks: (!stacks.is_empty()).then_some(stacks),
        repeats: args.repeats,
        sweeps: args.sweep.clone(),
        ..overrides
    }
}

/// Reads them.
fn read(args: &Args) -> Result<Vec<Experiment>> {
    let (files, overrides) = (files(args)?, overrides(args));
    let read = |file: &PathBuf, overrides: &Overrides| {
        let mut experiment = experiment::read(file, overrides)?;
        if !args.variant.is_empty() {
            experiment.keep_variants(&args.variant)?;
        }
        anyhow::Ok(experiment)
    };
    let inputs = files.iter().filter(|file| file.as_os_str() == "-").count();
    if inputs > 1 || (inputs > 0 && args.drive_variants) {
        let message = "- is standard input, which can be read only once: name a file";
        return Err(Usage(message.into()).into());
    }
    let mut all = Vec::new();
    for file in &files {
        let experiment = read(file, &overrides)?;
        let drive = experiment.variants[0].drive.clone();
        all.push(experiment);
        if args.drive_variants {
            for variant in frontier::drive_variants(&drive) {
                let mut overrides = overrides.clone();
                overrides.settings.push(format!("drive={variant}"));
                all.push(read(file, &overrides)?);
            }
        }
    }
    Ok(if args.frontier.is_some() { frontier::admitted(&all) } else { all })
}

fn simulate(args: &Args, experiments: Vec<Experiment>) -> Result<Vec<Results>> {
    let runs: usize = experiments.iter().map(Experiment::runs).sum();
    let bar = ProgressBar::new(runs as u64);
    let bar =
        progress(bar, "{wide_bar:.cyan/blue} {pos}/{len} runs, {eta} left  {msg}", args.quiet);
    let names: Vec<String> = experiments.iter().map(|e| e.name.clone()).collect();
    let finished = |index: usize| {
        bar.set_message(names[index].clone());
        bar.inc(1);
    };
    // A page shows single requests.
    let simulate =
        if args.html.is_some() { timelines::simulate } else { iofair_simulator::simulate };
    let run = |scenario: &Scenario| simulate(scenario).map_err(|e| e.to_string());
    let runner = Runner { jobs: machine::threads(args.jobs), simulate: &run, finished: &finished };
    let results = experiment::run(experiments, &runner);
    bar.finish_and_clear();
    results.map_err(|error| Usage(error).into())
}
