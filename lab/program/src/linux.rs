//! `iofair-lab run --on linux`: experiments on the kernel of this machine, with fio as clients.
//!
//! The device is a loop device over an emulated drive ([`site`]), or a real file or block device. Its scheduler, its
//! groups and fio's arguments follow from the experiment ([`mod@plan`]). What lies between the scheduler and the emulated
//! drive takes time; it is measured first ([`path`]), for the simulator.

mod calls;
mod copies;
mod execute;
mod fio;
mod groups;
mod path;
mod plan;
mod site;
mod usage;

use std::fs;

use anyhow::{Result, anyhow};
use iofair_experiments::experiment::{self, Experiment, Results, Runner};
use iofair_reproduction::truth::{PathTimes, Shared};
use iofair_simulator::calibration::Disturbed;
use iofair_simulator::outcome::Outcome;
use iofair_simulator::scenario::Scenario;

use self::execute::execute;
use self::plan::{page_cache, plan};
pub(crate) use self::site::Target;
use crate::live::Watch;
use iofair_cli::failure::Usage;
use iofair_cli::machine;
use iofair_cli::output::say;

/// The smallest block of free pages that a virtual machine gives back to its host, as a power of two (`mm/page_reporting`).
const PAGE_REPORTING: &str = "/sys/module/page_reporting/parameters/page_reporting_order";

/// Options of a run on Linux.
pub(crate) struct Asked<'a> {
    pub(crate) quiet: bool,
    pub(crate) target: &'a Target,
    /// Whether clients may write to a real device.
    pub(crate) write: bool,
    /// Whether the path is measured before each experiment, with what the page cache takes: for the simulator. Otherwise only once.
    pub(crate) for_simulator: bool,
}

/// The machine of a run.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    /// `2 cores of X, Linux 6.18`.
    pub(crate) machine: String,
    pub(crate) fio: String,
    pub(crate) groups: &'static str,
    pub(crate) path: Option<PathTimes>,
    /// Of this experiment; at the end, of all.
    pub(crate) disturbed: Disturbed,
}

impl Here {
    /// Machine, fio and groups.
    pub(crate) fn place(&self) -> String {
        let Self { machine, fio, groups, .. } = self;
        format!("{machine}, with {fio} and {groups}")
    }
    /// In a sentence or two.
    pub(crate) fn text(&self) -> String {
        let path = self.path.as_ref().map(PathTimes::text).unwrap_or_default();
        format!("On {}. {path} {}", self.place(), self.disturbed.text()).trim().to_owned()
    }
}

/// Runs them one after the other; `each` is told of every one that is complete. Everything that cannot run on Linux is
/// refused first.
pub(crate) fn run(
    asked: &Asked<'_>,
    experiments: Vec<Experiment>,
    each: &mut dyn FnMut(&Results, &Here) -> Result<()>,
) -> Result<(Vec<Results>, Here)> {
    for experiment in &experiments {
        check(experiment, asked).map_err(Usage)?;
    }
    site::check(asked.target)?;
    let variants = experiments.iter().flat_map(|experiment| &experiment.variants);
    let mut clients = variants.flat_map(|variant| &variant.clients);
    if !asked.quiet && clients.any(|client| client.job.buffered) && gives_memory_back() {
        say(format_args!(
            "this machine gives free memory back to its host, so new pages take buffered clients longer; \
             `echo 11 >{PAGE_REPORTING}` ends that"
        ));
    }
    let fio = fio::version()?;
    let watch = Watch::new(&experiments, asked.quiet)?;
    let groups = groups::Groups::new()?.kind();
    let mut disturbed = Disturbed::default();
    let mut here = Here { machine: machine::name(), fio, groups, path: None, disturbed };
    let simulate = |scenario: &Scenario| {
        simulate(scenario, asked.target, &watch).map_err(|error| format!("{error:#}"))
    };
    let runner = Runner { jobs: 1, simulate: &simulate, finished: &|_| watch.finished() };
    let mut all = Vec::new();
    for experiment in experiments {
        if here.path.is_none() || asked.for_simulator {
            here.path = measure_path(asked, &experiment, &watch)?;
        }
        let results = experiment::run(vec![experiment], &runner);
        if watch.is_over() {
            return Err(anyhow!("interrupted after {}; everything is restored", watch.done()));
        }
        here.disturbed = watch.take_disturbed();
        disturbed.add(&here.disturbed);
        for results in results.map_err(|error| anyhow!(error))? {
            each(&results, &here)?;
            all.push(results);
        }
    }
    here.disturbed = disturbed;
    Ok((all, here))
}

/// The path between the clients of this experiment and its emulated drive; `None` with a real drive.
fn measure_path(
    asked: &Asked<'_>,
    experiment: &Experiment,
    watch: &Watch,
) -> Result<Option<PathTimes>> {
    if let Target::Real(_) = asked.target {
        return Ok(None);
    }
    let drive = &experiment.variants[0].drive;
    let mut path = path::measure(drive, watch)?;
    let mut clients = experiment.variants.iter().flat_map(|variant| &variant.clients);
    if asked.for_simulator && clients.any(|client| client.job.buffered) {
        path.copies_ns =
            copies::measure(drive, path.processors.as_ref().map(Shared::server), watch)?;
    }
    Ok(Some(path))
}

/// Whether this virtual machine gives free memory back to its host: the order is negative if the host does not want it, and no block
/// is larger than that of order 10.
fn gives_memory_back() -> bool {
    fs::read_to_string(PAGE_REPORTING).is_ok_and(|order| is_given_back(&order))
}

fn is_given_back(order: &str) -> bool {
    order.trim().parse::<i64>().is_ok_and(|adjustment| (0..=10).contains(&adjustment))
}

/// What an experiment asks of Linux in a run, as text that changes with the run.
pub(crate) fn described(scenario: &Scenario) -> Result<String> {
    let plan = plan(scenario).map_err(|error| anyhow!(error))?;
    let Scenario { drive, time, ramp, .. } = scenario;
    let cache = page_cache(scenario).map_err(|error| anyhow!(error))?;
    let cache = cache.map_or(String::new(), |cache| format!(" {cache:?}"));
    Ok(format!("{drive} {time} {ramp} {plan:?}{cache}"))
}

/// Refuses what cannot run on Linux; names the key that asks for it.
fn check(experiment: &Experiment, asked: &Asked<'_>) -> Result<(), String> {
    for (v, variant) in experiment.variants.iter().enumerate() {
        for (s, (stack, _)) in experiment.stacks.iter().enumerate() {
            let place =
                || format!("{} [{}] {stack} cannot run on Linux", experiment.name, variant.name);
            let plan =
                plan(&experiment.scenario(v, s, 0)).map_err(|why| format!("{}: {why}", place()))?;
            let writer = plan.jobs.iter().find(|job| job.writes);
            if let (Some(job), Target::Real(path), false) = (writer, asked.target, asked.write) {
                let (client, path) = (&job.name, path.display());
                return Err(format!("client {client} would write to {path}; --write allows that"));
            }
        }
    }
    Ok(())
}

/// One run.
fn simulate(scenario: &Scenario, target: &Target, watch: &Watch) -> Result<Outcome> {
    if watch.is_over() {
        return Err(anyhow!("interrupted"));
    }
    let plan = plan(scenario).map_err(|error| anyhow!(error))?;
    let (outcome, _) = watch.undisturbed(|| execute(&plan, scenario, target, watch))?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only a machine that gives memory back is told how to stop it. Method: the order that such a machine has, the largest one,
    /// the one that ends it, the one without a host, and none.
    #[test]
    fn memory_that_is_given_back_is_noticed() {
        let given_back = ["9\n", "10", "11\n", "-1\n", ""].map(is_given_back);
        assert_eq!(given_back, [true, true, false, false, false]);
    }
}
