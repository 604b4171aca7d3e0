//! Runs a plan with fio's processes, and measures what it takes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use iofair_core::time::{Instant, Nanos};
use iofair_experiments::experiment::Experiment;
use iofair_serve::Clock;
use iofair_simulator::outcome::{ClientOutcome, DriveOutcome, Outcome};
use iofair_simulator::scenario::Scenario;

use super::fio::{FioProcess, Got};
use super::plan::{Plan, page_cache, plan};
use super::site::{EmulatedDrive, Site, Target};
use super::usage::{Snapshot, Usage as ThreadUsage};
use crate::live::Watch;
use iofair_cli::output::say;

/// Probes that take this many times as long as others were disturbed.
const VARIES_MAX: f64 = 1.2;
/// Time between two checks of the clients.
const TURN: Duration = Duration::from_millis(5);
/// A client that runs longer than its time by this is hung.
const LATE_MAX: Nanos = Nanos::from_secs(60);

/// What a run took besides its outcome, in nanoseconds.
pub(super) struct Times {
    /// From one call of the first client to the next.
    pub(super) period: f64,
    /// Mean time of a request at the device, from its arrival in the block layer to its completion there.
    pub(super) device: f64,
    /// Requests, and the processor time meanwhile.
    pub(super) requests: u64,
    pub(super) usage: ThreadUsage,
    /// Measured time at the device.
    pub(super) passed: Nanos,
}

/// Runs a plan.
pub(super) fn execute(
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
    let (got, counted, mut times) = clients(plan, scenario, &site, watch, &directory)?;
    let in_steps = scenario.clients.iter().any(|client| client.step.is_some());
    let mut outcome = Outcome {
        time: if in_steps { times.passed } else { scenario.time },
        drive: counted,
        ..Outcome::default()
    };
    times.period = got.first().map_or(0.0, |times| times.period_ns);
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
            too_slow: got.too_slow,
        });
    }
    Ok((outcome, times))
}

/// Runs the clients and waits for all of them. The time of the run begins with the first request at the device. Also
/// what it took at the device.
fn clients(
    plan: &Plan,
    scenario: &Scenario,
    site: &Site,
    watch: &Watch,
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
    // Both snapshots are late by up to one check; the rate between them is right.
    let passed = to.since(from).0.max(1);
    let in_steps = scenario.clients.iter().any(|client| client.step.is_some());
    let time = if in_steps { passed } else { scenario.time.0 };
    let rate = |n: usize| {
        let count = u128::from(last[n].saturating_sub(first[n])) * u128::from(time);
        u64::try_from(count / u128::from(passed)).unwrap_or(u64::MAX)
    };
    let drive = DriveOutcome {
        read_bytes: rate(1),
        written_bytes: rate(3),
        commands: rate(0) + rate(2),
        reads: rate(0),
        writes: rate(2),
        busy: Nanos(rate(4).saturating_mul(1_000_000)),
        series: Vec::new(),
    };
    let requests = (last[0] + last[2]).saturating_sub(first[0] + first[2]).max(1);
    let device = last[5].saturating_sub(first[5]) as f64 * 1e6 / requests as f64;
    let (usage, passed) = (after.since(&before), Nanos(passed));
    Ok((got, drive, Times { period: 0.0, device, requests, usage, passed }))
}

/// A probe on Linux: the run in the middle of three, so that a moment of other work on the machine does not count.
pub(super) fn kernel(probes: &Experiment, probe: usize, watch: &Watch) -> Result<(Outcome, Times)> {
    let run_repeat = |repeat: u32| -> Result<(Outcome, Times)> {
        let scenario = probes.scenario(probe, 0, repeat);
        let plan = plan(&scenario).map_err(|error| anyhow!(error))?;
        watch.undisturbed(|| execute(&plan, &scenario, &Target::Emulated, watch))
    };
    let mut all = (0..probes.repeats).map(run_repeat).collect::<Result<Vec<_>>>()?;
    all.sort_by(|a, b| a.1.period.total_cmp(&b.1.period));
    let (least, most) = (all[0].1.period, all[all.len() - 1].1.period);
    if most > VARIES_MAX * least {
        let percent = (most / least - 1.0) * 100.0;
        say(format_args!("the path varies by {percent:.0} %: is other work on this machine?"));
    }
    let middle = all.len() / 2;
    Ok(all.swap_remove(middle))
}
