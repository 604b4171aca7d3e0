//! One stack under load: starts the server and the clients, watches, measures, stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use iofair_config::contracts::Contracts;
use iofair_core::time::Instant;
use iofair_serve::supervisor::Passed;
use iofair_serve::{Consent, ServeError, Server};

use super::client::{self, Got, Phase, Shared, Work};
use super::outcome::{Measured, Sample, StackOutcome, per_second};
use super::plan::{Plan, PlannedClient};

/// Between two looks at the counters.
const GLANCE: Duration = Duration::from_millis(250);

struct Running {
    name: String,
    work: Work,
    live: Arc<AtomicU64>,
    thread: JoinHandle<std::io::Result<Got>>,
}

/// Runs one stack; `glance` sees every sample as it comes.
pub(crate) fn stack(
    plan: &Plan,
    stack: &str,
    mut glance: impl FnMut(&Sample),
) -> Result<StackOutcome> {
    let text = plan.contracts(stack, &plan.socket);
    let contracts = Contracts::parse_with(&iofair_policies::TABLE, "the demo's contracts", &text)?;
    let server = match Server::start(contracts.clone()) {
        // The demo itself has written the files of volumes.
        Err(ServeError::Consent(needed)) => {
            let consent = Consent { take_over: needed.missing.take_over, ..Consent::default() };
            Server::start_with(contracts, Passed::default(), &consent)
        }
        started => started,
    };
    let server = server.context("the server did not start")?;
    let shared = Arc::new(Shared::new());
    let roster = plan.roster();
    let alone = PlannedClient { work: Work::Sequential, ..roster[roster.len() - 1].clone() };
    let history = [start(plan, &alone, &shared)?];
    watch(&shared, &history, plan.history_seconds, &mut Vec::new(), &mut glance)?;
    shared.enter(Phase::Stop);
    for client in history {
        finish(client)?;
    }
    shared.enter(Phase::Ramp);
    // As the article does: the others first, then the target.
    let clients = roster.iter().rev().map(|client| start(plan, client, &shared));
    let mut clients = clients.collect::<Result<Vec<_>>>()?;
    clients.reverse();

    let mut samples = Vec::new();
    let mut watch = |until: f64| watch(&shared, &clients, until, &mut samples, &mut glance);
    watch(plan.history_seconds + plan.ramp_seconds)?;
    server.stats(true).context("the server gave no numbers")?;
    let (began, waited) = (shared.clock.now(), processor_wait());
    shared.enter(Phase::Measure);
    watch(plan.all_seconds())?;
    shared.enter(Phase::Stop);
    let seconds = seconds(shared.clock.now(), began);
    let drive = server.stats(false).context("the server gave no numbers")?;
    let waited = processor_wait().saturating_sub(waited) as f64 / 1e9 / seconds;
    let utilisation = drive.utilisation_ppm() as f64 / 1e6;

    let finished = clients.into_iter().map(finish).collect::<Result<Vec<_>>>()?;
    server.stop().context("the server failed to stop")?;
    let measured =
        Measured { seconds, utilisation, processor_wait: waited, promised: plan.promised, samples };
    Ok(StackOutcome::new(stack, finished, &measured))
}

fn seconds(now: Instant, began: Instant) -> f64 {
    now.since(began).0 as f64 / 1e9
}

/// Starts one client.
fn start(plan: &Plan, client: &PlannedClient, shared: &Arc<Shared>) -> Result<Running> {
    let live = Arc::new(AtomicU64::new(0));
    let (name, work, socket) = (client.name.clone(), client.work, plan.socket.clone());
    let (shared, counter) = (Arc::clone(shared), Arc::clone(&live));
    let thread = thread::Builder::new()
        .name(name.clone())
        .spawn(move || client::run(&socket, &name, work, &shared, &counter))
        .context("no thread for a client")?;
    Ok(Running { name: client.name.clone(), work, live, thread })
}

/// Waits for a client that was told to stop.
fn finish(client: Running) -> Result<(String, Work, Got)> {
    let got = client.thread.join().map_err(|_| anyhow!("client {} panicked", client.name))?;
    let got = got.with_context(|| format!("client {} failed", client.name))?;
    Ok((client.name, client.work, got))
}

/// Looks at the counters until `until` seconds after the start, or a client ends too early.
fn watch(
    shared: &Shared,
    clients: &[Running],
    until: f64,
    samples: &mut Vec<Sample>,
    glance: &mut impl FnMut(&Sample),
) -> Result<()> {
    let read = || -> Vec<u64> { clients.iter().map(|c| c.live.load(Ordering::Relaxed)).collect() };
    let (mut before, mut then) = (read(), shared.clock.now());
    loop {
        let left = until - seconds(shared.clock.now(), Instant::ZERO);
        if left <= 0.0 {
            return Ok(());
        }
        thread::sleep(GLANCE.min(Duration::from_secs_f64(left)));
        let (after, now) = (read(), shared.clock.now());
        let passed = seconds(now, then);
        let rates = after.iter().zip(&before).map(|(a, b)| per_second(a - b, passed));
        let rates: Vec<u64> = rates.collect();
        let sample = Sample {
            seconds: seconds(now, Instant::ZERO),
            target_bytes_per_s: rates[0],
            total_bytes_per_s: rates.iter().sum(),
        };
        glance(&sample);
        samples.push(sample);
        (before, then) = (after, now);
        if clients.iter().any(|client| client.thread.is_finished()) {
            shared.enter(Phase::Stop);
            return Ok(());
        }
    }
}

/// Nanoseconds that threads of this process have waited for a processor so far, those that ended left
/// out; 0 where the kernel does not say.
fn processor_wait() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let waits = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok()
    });
    waits.sum()
}
