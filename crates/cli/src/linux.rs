//! `iofair run --on linux`: experiments on the kernel of this machine, with fio as clients.
//!
//! The device is a loop device over an emulated drive ([`site`]), or a real file or block device. Its scheduler, its
//! groups and fio's arguments follow from the experiment ([`mod@plan`]). What lies between the scheduler and the emulated
//! drive takes time; it is measured first ([`path`]), for the simulator.

mod calls;
mod copies;
mod fio;
mod groups;
mod path;
mod plan;
mod site;
mod usage;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use iofair_core::time::{Instant, Nanos};
use iofair_lab::experiment::{self, Experiment, Results, Runner};
use iofair_lab::outcome::{ClientOutcome, DriveOutcome, Outcome};
use iofair_lab::scenario::Scenario;
use iofair_serve::Clock;

use self::fio::{FioProcess, Got};
pub(crate) use self::path::{Measured, deep_iops, is_drive_the_limit};
use self::plan::{Plan, page_cache, plan};
pub(crate) use self::site::Target;
use self::site::{EmulatedDrive, Site};
use self::usage::{Snapshot, Usage as ThreadUsage};
use crate::failure::Usage;
use crate::live::Watch;

/// Between two looks at the clients.
const TURN: Duration = Duration::from_millis(5);
/// Longer than its time by this, a client has not ended and never will.
const LATE_MAX: Nanos = Nanos::from_secs(60);

/// How it was asked.
pub(crate) struct Asked<'a> {
    pub(crate) quiet: bool,
    pub(crate) target: &'a Target,
    /// Whether clients may write to a real device.
    pub(crate) write: bool,
    /// Whether what the page cache takes is measured, too: for the simulator.
    pub(crate) copies: bool,
}

/// Where it ran.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    /// `2 cores of X, Linux 6.18`.
    pub(crate) machine: String,
    pub(crate) fio: String,
    pub(crate) groups: &'static str,
    pub(crate) path: Option<Measured>,
}

impl Here {
    /// Machine, fio and groups.
    pub(crate) fn place(&self) -> String {
        let Self { machine, fio, groups, .. } = self;
        format!("{machine}, with {fio} and {groups}")
    }
    /// In a sentence or two.
    pub(crate) fn text(&self) -> String {
        let path = self.path.as_ref().map(Measured::text).unwrap_or_default();
        format!("On {}. {path}", self.place())
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
    let fio = fio::version()?;
    let watch = Watch::new(&experiments, asked.quiet)?;
    let groups = groups::Groups::new()?.kind();
    let path = match asked.target {
        Target::Emulated => {
            let drive = experiments.first().map(|it| it.variants[0].drive.clone());
            let mut path = drive.as_ref().map(|drive| path::measure(drive, &watch)).transpose()?;
            let variants = experiments.iter().flat_map(|it| &it.variants);
            let buffered = variants.flat_map(|it| &it.clients).any(|it| it.job.buffered);
            if let (true, Some(drive), Some(path)) = (asked.copies && buffered, &drive, &mut path) {
                path.copies = copies::measure(drive, path.work.map(|it| it[2]), &watch)?;
            }
            path
        }
        Target::Real(_) => None,
    };
    let here = Here { machine: crate::live::machine(), fio, groups, path };
    let simulate = |scenario: &Scenario| {
        simulate(scenario, asked.target, &watch).map_err(|error| format!("{error:#}"))
    };
    let runner = Runner { jobs: 1, simulate: &simulate, finished: &|_| watch.finished() };
    let mut all = Vec::new();
    for experiment in experiments {
        let results = experiment::run(vec![experiment], &runner);
        if watch.is_over() {
            return Err(anyhow!("interrupted after {}; everything is restored", watch.done()));
        }
        for results in results.map_err(|error| anyhow!(error))? {
            each(&results, &here)?;
            all.push(results);
        }
    }
    Ok((all, here))
}

/// What a run of this scenario is on Linux, in a form that changes when that does.
pub(crate) fn described(scenario: &Scenario) -> Result<String> {
    let plan = plan(scenario).map_err(|error| anyhow!(error))?;
    let Scenario { drive, time, ramp, .. } = scenario;
    let cache = page_cache(scenario).map_err(|error| anyhow!(error))?;
    let cache = cache.map_or(String::new(), |it| format!(" {it:?}"));
    Ok(format!("{drive} {time} {ramp} {plan:?}{cache}"))
}

/// What cannot run on Linux, with the key that asks for it.
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
    let (outcome, _) = execute(&plan, scenario, target, watch)?;
    Ok(outcome)
}

/// What a run took besides its outcome, in nanoseconds.
struct Times {
    /// From one call of the first client to the next.
    period: f64,
    /// Mean time of a request at the device, from its arrival in the block layer to its completion there.
    device: f64,
    /// Requests, and the processor time meanwhile.
    requests: u64,
    usage: ThreadUsage,
    /// Measured time at the device.
    passed: Nanos,
}

/// Runs a plan.
fn execute(
    plan: &Plan,
    scenario: &Scenario,
    target: &Target,
    watch: &Watch,
) -> Result<(Outcome, Times)> {
    let directory = watch.socket("linux");
    // Left by an earlier run.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).with_context(|| format!("{}", directory.display()))?;
    let mut site = Site::new(
        target,
        &EmulatedDrive { profile: &scenario.drive, bytes: plan.bytes },
        &directory,
    )?;
    site.schedule(&plan.queue)?;
    if let Some(cache) = page_cache(scenario).map_err(|error| anyhow!(error))? {
        let writes = plan.jobs.iter().any(|job| job.writes);
        site.set_up(&cache, writes)?;
    }
    let number = site.number()?;
    site.groups.make(&plan.groups, &number)?;
    // Dropped before the site, also on errors: then nothing uses the device and the groups.
    let (got, counted, mut times) = clients(plan, scenario, (&site, watch), &directory)?;
    let in_steps = scenario.clients.iter().any(|client| client.step.is_some());
    let mut outcome = Outcome {
        time: if in_steps { times.passed } else { scenario.time },
        clients: Vec::new(),
        drive: counted,
        trace_hash: 0,
        simulated_requests: 0,
        requests: Vec::new(),
    };
    times.period = got.first().map_or(0.0, |it| it.period_ns);
    for (job, got) in plan.jobs.iter().zip(got) {
        outcome.simulated_requests += got.latency.count();
        let time = if in_steps { got.time } else { Nanos::ZERO };
        outcome.clients.push(ClientOutcome {
            name: job.name.clone(),
            group: job.group.clone(),
            weight: job.weight,
            bytes: got.bytes,
            drive_bytes: None,
            calls: got.latency.count(),
            latency: got.latency,
            sync_latency: got.sync,
            series: Vec::new(),
            directions: got.directions,
            time,
            depth: got.depth,
        });
    }
    Ok((outcome, times))
}

/// Runs the clients and waits for all of them. The time of the run begins with the first request at the device. Also
/// what it took at the device.
fn clients(
    plan: &Plan,
    scenario: &Scenario,
    (site, watch): (&Site, &Watch),
    directory: &Path,
) -> Result<(Vec<Got>, DriveOutcome, Times)> {
    let clock = Clock::start();
    let idle = site.counters()?;
    let mut fio =
        FioProcess::start(&plan.jobs, &site.device, |group| site.groups.procs(group), directory)?;
    let earliest = plan.jobs.iter().map(|job| job.start).min().unwrap_or(Instant::ZERO);
    // The device's counters at the end of the ramp and of the run.
    let mut zero: Option<Nanos> = None;
    let (mut first, mut last) = (None, None);
    let mut before = clock.now();
    let late = Instant::ZERO + scenario.ramp + scenario.time + LATE_MAX;
    loop {
        let now = clock.now();
        watch.passed(now.since(before));
        before = now;
        if watch.is_over() {
            return Err(anyhow!("interrupted"));
        }
        let counters = site.counters()?;
        if zero.is_none() && counters != idle {
            zero = Some(now.since(earliest));
        }
        if let Some(zero) = zero {
            let time = now.since(Instant::ZERO + zero);
            if first.is_none() && time >= scenario.ramp {
                first = Some((now, counters, Snapshot::now()));
            }
            if last.is_none() && time >= scenario.ramp + scenario.time {
                last = Some((now, counters, Snapshot::now()));
            }
        }
        if fio.is_done()? {
            last = last.or_else(|| Some((now, counters, Snapshot::now())));
            break;
        }
        if now > late {
            return Err(anyhow!("fio has not ended after {}", late.since(Instant::ZERO)));
        }
        std::thread::sleep(TURN);
    }
    let got = fio.got(directory)?;
    let (Some((from, first, before)), Some((to, last, after))) = (first, last) else {
        return Err(anyhow!("the device completed nothing"));
    };
    // Both were taken a little late, by up to a turn: as a rate it is right.
    let passed = to.since(from).0.max(1);
    let in_steps = scenario.clients.iter().any(|client| client.step.is_some());
    let time = if in_steps { passed } else { scenario.time.0 };
    let of = |n: usize| {
        let count = u128::from(last[n].saturating_sub(first[n])) * u128::from(time);
        u64::try_from(count / u128::from(passed)).unwrap_or(u64::MAX)
    };
    let drive = DriveOutcome {
        read_bytes: of(1),
        written_bytes: of(3),
        commands: of(0) + of(2),
        reads: of(0),
        writes: of(2),
        busy: Nanos(of(4).saturating_mul(1_000_000)),
        series: Vec::new(),
    };
    let requests = (last[0] + last[2]).saturating_sub(first[0] + first[2]).max(1);
    let device = last[5].saturating_sub(first[5]) as f64 * 1e6 / requests as f64;
    let (usage, passed) = (after.since(&before), Nanos(passed));
    Ok((got, drive, Times { period: 0.0, device, requests, usage, passed }))
}
