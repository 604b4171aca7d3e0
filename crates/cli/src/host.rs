//! `iofair host`: contracts for groups of this machine, enforced by the kernel's own controllers.

mod show;
#[cfg(test)]
mod tests;
mod watch;

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command as Process, ExitCode};
use std::time::Duration;

use anyhow::{Result, anyhow};
use iofair_config::contracts::host::HostContracts;
use iofair_config::units::Time;
use iofair_host::facts::Facts;
use iofair_host::journal::{self, Done, Owner};
use iofair_host::plan::{Plan, plan};
use iofair_host::status::Interval;
use iofair_host::{HostError, Machine, status};
use iofair_serve::Clock;

use crate::failure::Usage;
use crate::output::{Output, write};

/// Held by a command that changes the machine.
const LOCK: &str = "/run/iofair-host.lock";

/// Arguments of `iofair host`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair host diff host.toml            show every file and value that apply would write, and why
  iofair host apply host.toml           write them, and files that make them survive a reboot
  iofair host status host.toml          promised, effective and actual share of each group
  iofair host watch host.toml           keep minimums on a busy drive, until Ctrl-C
  iofair host revert                    restore every value from before")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show every file and value that `apply` would write, and what the kernel cannot guarantee.
    #[command(after_help = "Examples:
  iofair host diff host.toml
  iofair host diff host.toml --json | jq -r '.writes[].file'")]
    Diff {
        /// Contract file.
        contracts: PathBuf,
    },
    /// Give the contracts to the kernel, and make them survive a reboot.
    #[command(after_help = "Examples:
  iofair host apply host.toml
  iofair host apply host.toml --force   also overwrite values that others changed since")]
    Apply {
        /// Contract file.
        contracts: PathBuf,
        /// Overwrite values that others have changed since they were applied.
        #[arg(long)]
        force: bool,
    },
    /// Show the promised, effective and actual share of each group.
    #[command(after_help = "Examples:
  iofair host status host.toml
  iofair host status host.toml --interval 10s --metrics >/var/lib/node_exporter/iofair.prom")]
    Status {
        /// Contract file.
        contracts: PathBuf,
        /// Time over which rates are measured.
        #[arg(long, default_value = "1s")]
        interval: String,
        /// Print metrics for Prometheus.
        #[arg(long, conflicts_with = "json")]
        metrics: bool,
    },
    /// Keep minimums and latencies by limiting the other groups, until SIGTERM or Ctrl-C.
    #[command(after_help = "Examples:
  iofair host watch host.toml
  iofair host watch host.toml --interval 250ms --quiet")]
    Watch {
        /// Contract file.
        contracts: PathBuf,
        /// Time between two looks at the counters.
        #[arg(long, default_value = "500ms")]
        interval: String,
        /// Print nothing while running.
        #[arg(long)]
        quiet: bool,
    },
    /// Restore every value from before `apply` and `watch`.
    #[command(after_help = "Examples:
  iofair host revert
  iofair host revert --watch            only what a `watch` that was killed left behind")]
    Revert {
        /// Restore only what `watch` wrote.
        #[arg(long)]
        watch: bool,
        /// Also overwrite values that others have changed since.
        #[arg(long)]
        force: bool,
    },
}

/// Runs it.
pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let machine = Machine::local();
    match &args.command {
        Command::Diff { contracts } => {
            let (_, plan) = planned(&machine, contracts)?;
            let diff = show::Diff::new(&plan);
            output.print(&diff, || diff.text())?;
        }
        Command::Apply { contracts, force } => {
            let (facts, plan) = planned(&machine, contracts)?;
            let _lock = lock(&machine)?;
            let done = journal::apply(&machine, &plan.writes, Owner::Apply, *force)?;
            reload(&facts, &done)?;
            output.print(&done, || show::applied(&done, &plan.notes))?;
        }
        Command::Status { contracts, interval, metrics } => {
            show_status(&machine, contracts, interval, *metrics, output)?;
        }
        Command::Watch { contracts, interval, quiet } => {
            let (facts, plan) = planned(&machine, contracts)?;
            let _lock = lock(&machine)?;
            watch::run(&machine, &facts, &plan, time(interval)?, *quiet)?;
        }
        Command::Revert { watch, force } => {
            let _lock = lock(&machine)?;
            let done = journal::revert(&machine, watch.then_some(Owner::Watch), *force)?;
            reload_after(&done)?;
            output.print(&done, || show::reverted(&done))?;
            if !done.changed.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn planned(machine: &Machine, contracts: &std::path::Path) -> Result<(Facts, Plan)> {
    let contracts = HostContracts::open(contracts)?;
    let facts = Facts::gather(machine, &contracts).map_err(cli_error)?;
    let plan = plan(machine, &contracts, &facts).map_err(cli_error)?;
    Ok((facts, plan))
}

/// What the user wrote keeps its own error type, which decides the exit code.
fn cli_error(error: HostError) -> anyhow::Error {
    match error {
        HostError::Config(error) => error.into(),
        error => error.into(),
    }
}

fn lock(machine: &Machine) -> Result<File> {
    let held = machine.lock(LOCK).map_err(|error| HostError::io("lock", LOCK, error))?;
    held.ok_or_else(|| HostError::Busy(LOCK.to_owned()).into())
}

fn time(text: &str) -> Result<Duration> {
    #[derive(serde::Deserialize)]
    struct One {
        interval: Time,
    }
    let read: Result<One, _> = iofair_config::parse("--interval", &format!("interval = {text:?}"));
    let nanos =
        read.map_err(|_| Usage(format!("--interval {text} is not a time such as \"500ms\"")))?;
    match nanos.interval.nanos().0 {
        0..100_000_000 => Err(Usage(format!(
            "--interval {text} is less than 100ms, in which the kernel's ceilings work"
        ))
        .into()),
        nanos => Ok(Duration::from_nanos(nanos)),
    }
}

/// Tells systemd and udev that their files changed.
fn reload(facts: &Facts, done: &Done) -> Result<()> {
    if facts.systemd || facts.udev { reload_after(done) } else { Ok(()) }
}
fn reload_after(done: &Done) -> Result<()> {
    let has = |start: &str| done.written.iter().any(|place| place.starts_with(start));
    for (start, program, arguments) in [
        ("/etc/systemd/system/", "systemctl", ["daemon-reload"].as_slice()),
        ("/etc/udev/rules.d/", "udevadm", &["control", "--reload"]),
    ] {
        if has(start) {
            let ended = Process::new(program).args(arguments).status();
            if !ended.is_ok_and(|status| status.success()) {
                let command = format!("{program} {}", arguments.join(" "));
                return Err(anyhow!(
                    "`{command}` failed; run it, or the files hold from the next boot"
                ));
            }
        }
    }
    Ok(())
}

fn show_status(
    machine: &Machine,
    contracts: &std::path::Path,
    interval: &str,
    metrics: bool,
    output: &Output,
) -> Result<()> {
    let interval = time(interval)?;
    let (facts, plan) = planned(machine, contracts)?;
    let read = || -> Vec<_> {
        plan.groups.iter().map(|group| status::counters(machine, &facts, &group.path)).collect()
    };
    let clock = Clock::start();
    let (before, device) = (read(), status::device_bytes(machine, &facts));
    let start = clock.now();
    std::thread::sleep(interval);
    let (after, now) = (read(), status::device_bytes(machine, &facts));
    let seconds = clock.now().since(start).0 as f64 / 1e9;
    let device_bytes = now.saturating_sub(device);
    let passed = Interval { before: &before, after: &after, device_bytes, seconds };
    let rows = status::rows(machine, &facts, &plan, &passed);
    if metrics {
        return write(&status::metrics(&rows, &facts.hierarchy));
    }
    output.print(&rows, || show::status(&rows))
}
