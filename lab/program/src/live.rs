//! `iofair-lab run --on serve`: experiments live, beside the lab.
//!
//! Each run starts a server (reactor, NBD over a Unix socket, engine) over the emulated drive and connects an NBD
//! client for every sender of requests in the simulator; the simulator's own processes, page cache and files decide
//! what they send and when (`iofair_simulator::outside`). Runs take the time that their files say, one after the other.

mod path;
mod run;
mod watch;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_experiments::distinct;
use iofair_experiments::experiment::{self, Experiment, Results, Runner};
use iofair_experiments::report::{Beside, beside, beside_markdown, beside_table};
use iofair_simulator::calibration::Disturbed;
use iofair_simulator::scenario::Scenario;
use serde::Serialize;

pub(crate) use self::watch::Watch;
use iofair_cli::failure::Usage;
use iofair_cli::machine;
use iofair_cli::output::{Output, save, say};

/// Longest time of all runs together; more than this is taken for a mistake (ten repeats easily take an hour).
const TIME_MAX: Nanos = Nanos::from_secs(2 * 3600);
/// Processes of a run: each has a connection of its own.
const CLIENTS_MAX: usize = 500;

/// Options of a live run.
pub(crate) struct Asked<'a> {
    /// Neither progress nor tables.
    pub(crate) quiet: bool,
    /// Runs of the lab at once.
    pub(crate) jobs: usize,
    /// Where the page goes.
    pub(crate) markdown: Option<&'a Path>,
    /// Fail when a hard claim does not hold live.
    pub(crate) strict: bool,
}

/// The whole outcome, for scripts.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    here: &'a Here,
    experiments: &'a [Beside],
}

/// The machine of live runs, and how well it kept up.
#[derive(Serialize)]
struct Here {
    machine: String,
    /// From client to engine and back.
    path_ns: u64,
    /// 99th percentile of how late clients went on.
    late_p99_ns: u64,
    /// The longest such delay.
    late_max_ns: u64,
    disturbed: Disturbed,
}

impl Here {
    fn text(&self) -> String {
        let us = |nanos: u64| nanos as f64 / 1e3;
        let (machine, path) = (&self.machine, us(self.path_ns));
        let (late, worst) = (us(self.late_p99_ns), us(self.late_max_ns) / 1e3);
        format!(
            "Live on {machine}. The path from client to engine and back takes {path:.0} us. 1 % of the clients' wake-ups \
             were late by {late:.0} us or more, the latest by {worst:.0} ms. {}",
            self.disturbed.text()
        )
        .trim()
        .to_owned()
    }
}

/// The introduction of the page, above the results.
const HEAD: &str = include_str!("live/head.md");

/// Runs experiments in both worlds.
pub(crate) fn run(
    asked: &Asked<'_>,
    experiments: Vec<Experiment>,
    output: &Output,
) -> Result<ExitCode> {
    experiments.iter().try_for_each(|experiment| check(experiment).map_err(Usage))?;
    let time: u64 = experiments.iter().map(|experiment| experiment.simulated().0).sum();
    if time > TIME_MAX.0 {
        let (time, most) = (watch::duration(Nanos(time)), watch::duration(TIME_MAX));
        return Err(Usage(format!(
            "live runs would take {time}; at most {most} is allowed: choose with --stack and --variant, shorten with --time, \
             --ramp, --repeats and --set history=1s"
        ))
        .into());
    }
    if !asked.quiet {
        say(format_args!("first in the simulator, in virtual time"));
    }
    let lab = |scenario: &Scenario| iofair_simulator::simulate(scenario).map_err(|e| e.to_string());
    let runner = Runner { jobs: asked.jobs, simulate: &lab, finished: &|_| {} };
    let in_lab = experiment::run(experiments.clone(), &runner).map_err(Usage)?;
    let watch = Watch::new(&experiments, asked.quiet)?;
    let path = path::measure(&watch.socket("path")).context("the path could not be measured")?;
    let mut disturbed = Disturbed::default();
    let live = live(experiments, path, &watch, &mut |_, its| {
        disturbed.add(&its);
        Ok(())
    })?;
    let interrupted = watch.is_over().then(|| watch.done());
    let [late_p99_ns, late_max_ns] = watch.lateness();
    let here =
        Here { machine: machine::name(), path_ns: path.0, late_p99_ns, late_max_ns, disturbed };
    drop(watch);
    let beside = |(lab, live): (&Results, &Results)| beside(lab, live, notes(live, path));
    let all: Vec<Beside> = in_lab.iter().zip(&live).map(beside).collect();
    let page = asked.markdown.filter(|_| interrupted.is_none());
    tell(asked, output, page, &here, &all)?;
    if let Some(done) = interrupted {
        return Err(anyhow!(
            "interrupted after {done}; results are for complete experiments only, and no page is written"
        ));
    }
    let misses: usize = live.iter().map(Results::hard_misses).sum();
    match asked.strict && misses > 0 {
        true => Err(anyhow!("live, {misses} hard claims do not hold")),
        false => Ok(ExitCode::SUCCESS),
    }
}

/// Runs experiments live; `each` is told of every one that is complete.
pub(crate) fn measure(
    experiments: Vec<Experiment>,
    quiet: bool,
    each: &mut dyn FnMut(&Results, Disturbed) -> Result<()>,
) -> Result<()> {
    experiments.iter().try_for_each(|experiment| check(experiment).map_err(Usage))?;
    let watch = Watch::new(&experiments, quiet)?;
    let path = path::measure(&watch.socket("path")).context("the path could not be measured")?;
    live(experiments, path, &watch, each)?;
    match watch.is_over() {
        true => Err(anyhow!("interrupted after {}", watch.done())),
        false => Ok(()),
    }
}

/// Runs one experiment after the other; those that were finished when somebody ended it.
fn live(
    experiments: Vec<Experiment>,
    path: Nanos,
    watch: &Watch,
    each: &mut dyn FnMut(&Results, Disturbed) -> Result<()>,
) -> Result<Vec<Results>> {
    let simulate = |scenario: &Scenario| watch.undisturbed(|| run::simulate(scenario, path, watch));
    let runner = Runner { jobs: 1, simulate: &simulate, finished: &|_| watch.finished() };
    let mut all = Vec::new();
    for experiment in experiments {
        match experiment::run(vec![experiment], &runner) {
            Ok(results) => {
                let disturbed = watch.take_disturbed();
                results.iter().try_for_each(|result| each(result, disturbed))?;
                all.extend(results);
            }
            Err(_) if watch.is_over() => break,
            Err(error) => return Err(anyhow!(error)),
        }
    }
    Ok(all)
}

/// Prints it and writes the page.
fn tell(
    asked: &Asked<'_>,
    output: &Output,
    page: Option<&Path>,
    here: &Here,
    all: &[Beside],
) -> Result<()> {
    save(page, || beside_markdown(&format!("{HEAD}{}\n\n", here.text()), all))?;
    if !output.json && asked.quiet {
        return Ok(());
    }
    output.print(&Told { here, experiments: all }, || {
        let tables: Vec<String> = all.iter().map(beside_table).collect();
        format!("{}\n{}\n", tables.join("\n\n"), here.text())
    })
}

/// Refuses what cannot run live; names the key that asks for it.
fn check(experiment: &Experiment) -> Result<(), String> {
    for variant in &experiment.variants {
        let refuse = |what: String| {
            let (name, variant) = (&experiment.name, &variant.name);
            let place =
                if variant.is_empty() { name.clone() } else { format!("{name} [{variant}]") };
            Err(format!("{place} cannot run live: {what}"))
        };
        if variant.stripe.is_some() {
            return refuse("`stripe`, because a server has one drive".into());
        }
        if !variant.changes.is_empty() {
            return refuse(
                "`change`, because contracts and drive cannot change in a live run".into(),
            );
        }
        if variant.clients.len() > CLIENTS_MAX {
            let clients = variant.clients.len();
            return refuse(format!(
                "{clients} processes (`count`), because each has a connection of its own; at most {CLIENTS_MAX}"
            ));
        }
        let job = |client: &&iofair_simulator::scenario::ClientSpec| {
            let sizes = client.job.calls.sizes.iter().flatten().map(|size| size.0);
            sizes.chain([client.job.block]).any(|length| length > BLOCK_MAX)
        };
        if let Some(client) = variant.clients.iter().find(job) {
            let (name, most) = (&client.name, BLOCK_MAX.bytes() >> 20);
            return refuse(format!(
                "`block` of client {name}, because calls have at most {most} MiB here"
            ));
        }
    }
    Ok(())
}

/// Longest call: what an NBD server takes as one request.
const BLOCK_MAX: Sectors = Sectors::from_kib(32 << 10);

/// Notes for a reader of live numbers.
fn notes(live: &Results, path: Nanos) -> Vec<String> {
    let variants = live.experiment.variants.iter();
    let hosts = distinct(variants.map(|variant| variant.host.turnaround));
    let left = |host: &Nanos| format!("{} of {host}", host.saturating_sub(path));
    let left: Vec<String> = hosts.iter().map(left).collect();
    let us = path.0 as f64 / 1e3;
    vec![format!(
        "The path from client to engine and back takes {us:.0} us on this machine, which counts towards the host's \
         turnaround; clients wait for the rest: {}",
        left.join(", ")
    )]
}
