//! `iofair serve`: volumes under contracts, over NBD, vhost-user, ublk and FUSE, until a signal ends it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use iofair_config::contracts::{Contracts, Required};
use iofair_config::shell;
use iofair_core::contract::Rate;
use iofair_core::policy::Table;
use iofair_serve::control::Control;
use iofair_serve::control::client::escaped;
use iofair_serve::supervisor::{self, Passed, Stage};
use iofair_serve::{Consent, ServeError, Server, Signal, Signals};
use serde::Serialize;

use crate::failure::Usage;
use crate::output::{Output, say};

/// Arguments of `iofair serve`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair serve contracts.toml                          serve until SIGTERM or Ctrl-C
  iofair serve --check contracts.toml                  check the file and its drive, and exit
  kill -HUP $(pidof iofair)                            reload the contracts; clients stay connected
  nbdinfo 'nbd+unix:///alice-root?socket=/run/iofair/pool.sock'")]
pub struct Args {
    /// The contract file: drive, listeners, groups, volumes.
    contracts: PathBuf,
    /// Do everything that `serve` does before it serves, change nothing on disk, report errors, and exit.
    #[arg(long)]
    check: bool,
    /// Allow this volume to shrink to the size in the file; data beyond that size is lost. May be repeated.
    #[arg(long, value_name = "VOLUME")]
    shrink: Vec<String>,
    /// Give this volume's data, kept for another group, to the group in the file; if its file is missing, begin with an
    /// empty volume. May be repeated.
    #[arg(long, value_name = "VOLUME")]
    take_over: Vec<String>,
}

/// What is served, said once when clients may come.
#[derive(Serialize)]
struct Ready {
    ready: bool,
    drive: String,
    stack: String,
    unix: Option<PathBuf>,
    tcp: Option<String>,
    /// The connections that must be encrypted.
    #[serde(skip)]
    encrypted: Required,
    control_unix: Option<PathBuf>,
    control_tcp: Option<String>,
    metrics_unix: Option<PathBuf>,
    metrics_tcp: Option<String>,
    mount: Option<PathBuf>,
    volumes: Vec<String>,
    /// Volumes that are disks of virtual machines, and their sockets.
    vhost: Vec<(String, PathBuf)>,
    /// Volumes that are block devices of this host.
    ublk: Vec<(String, PathBuf)>,
}

/// Serves until a signal ends it, with the policies of `table`.
///
/// # Errors
/// The contract file is wrong or does not fit its drive, or the machine refuses something.
pub fn run(args: &Args, output: &Output, table: &'static Table) -> Result<ExitCode> {
    let contracts = Contracts::open_with(table, &args.contracts)?;
    let passed = Passed::from_environment().map_err(cli_error)?;
    let listens = contracts.listen.unix.is_some() || contracts.listen.tcp.is_some();
    let disks =
        contracts.volumes.iter().any(|volume| volume.vhost.is_some() || volume.ublk.is_some());
    if !listens && !disks && contracts.mount.is_none() && !passed.has_nbd() {
        let message = "no client could connect: add a [listen] table with `unix` or `tcp`, a [fuse] table, \
                       or `vhost` or `ublk` to a volume";
        return Err(Usage(format!("{}: {message}", args.contracts.display())).into());
    }
    let (shrink, take_over) = (args.shrink.clone(), args.take_over.clone());
    let consent = Consent { shrink, take_over, delete: Vec::new() };
    if args.check {
        let notes =
            Control::check(&args.contracts, contracts, passed, &consent).map_err(cli_error)?;
        let good = serde_json::json!({ "good": true, "notes": notes });
        output.print(&good, || {
            let notes = notes.iter().map(|note| format!("note: {note}\n"));
            "the file is valid\n".to_string() + &notes.collect::<String>()
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let signals = Signals::block().context("blocking signals")?;
    let is_activated = passed.has_nbd();
    let control =
        Control::start_with(&args.contracts, contracts, passed, &consent).map_err(cli_error)?;
    let told_of = |server: &Server| (ready(server, &control), limits(server));
    let (ready, limits) = control.server(told_of).map_err(cli_error)?;
    match is_activated {
        // A client that starts a server shares standard output with it, and may write a copy of the volume there.
        true => say(in_words(&ready, &limits).trim_end()),
        false => output.announce(&ready, || in_words(&ready, &limits))?,
    }
    let (count, drive, stack) = (ready.volumes.len(), &ready.drive, &ready.stack);
    let status = format!("serving {drive} with {stack}; volumes: {count}");
    supervisor::tell(Stage::Ready, &status);
    while !control.is_over() {
        match signals.wait().context("waiting for signals")? {
            None => {}
            Some(Signal::Reload) => reload(args, &control),
            Some(Signal::Stop) => break,
        }
    }
    supervisor::tell(Stage::Stopping, "completing requests in flight");
    control.stop().map_err(cli_error)?;
    Ok(ExitCode::SUCCESS)
}

/// Applies the contract file as it is now; if it cannot be applied, reports why and keeps the contracts in force.
fn reload(args: &Args, control: &Control) {
    supervisor::tell(Stage::Reloading, "reading the contracts");
    let path = args.contracts.clone();
    // The file or the storage may make it wait, and other signals must not wait with it.
    control.reload_then(move |reloaded| {
        let status = match reloaded {
            Ok(()) => format!("contracts reloaded from {}", path.display()),
            Err(ServeError::Unfinished(message)) => format!("reload failed: {message}"),
            Err(error) => format!("reload failed, contracts unchanged: {error}"),
        };
        say(&status);
        supervisor::tell(Stage::Ready, &status);
    });
}

/// What the user wrote keeps its own error type, which decides the exit code.
fn cli_error(error: ServeError) -> anyhow::Error {
    match error {
        ServeError::Config(error) | ServeError::Infeasible(error) => error.into(),
        ServeError::Full(error) => cli_error(*error),
        ServeError::Refused(refusal) => Usage(refusal.to_string()).into(),
        error => anyhow!(error),
    }
}

fn ready(server: &Server, control: &Control) -> Ready {
    let contracts = server.contracts();
    Ready {
        ready: true,
        drive: server.description().to_string(),
        stack: contracts.drive.stack.name().to_string(),
        unix: contracts.listen.unix.clone(),
        tcp: server.tcp().map(|address| address.to_string()),
        encrypted: contracts.listen.tls.as_ref().map_or(Required::Never, |tls| tls.required),
        control_unix: contracts.control.unix.clone(),
        control_tcp: control.tcp().map(|address| address.to_string()),
        metrics_unix: contracts.metrics.unix.clone(),
        metrics_tcp: control.metrics().map(|address| address.to_string()),
        mount: contracts.mount.clone(),
        volumes: contracts.volumes.iter().map(|volume| volume.name.clone()).collect(),
        vhost: contracts
            .volumes
            .iter()
            .filter_map(|volume| Some((volume.name.clone(), volume.vhost.clone()?)))
            .collect(),
        ublk: server.blocks(),
    }
}

/// What minimums are checked against.
fn limits(server: &Server) -> String {
    match (server.reaches(), server.worst_case()) {
        (Some(drive), _) => format!(
            ", which reads {}, writes {} and small blocks at random {}",
            Rate(drive.reads),
            Rate(drive.writes),
            Rate(drive.alone)
        ),
        (None, Some(rate)) => format!(", at worst {}", Rate(rate)),
        (None, None) => String::new(),
    }
}

/// A path as it may stand in the query of a URI.
fn escaped_path(path: &Path) -> String {
    let parts = path.to_string_lossy();
    parts.split('/').map(escaped).collect::<Vec<_>>().join("/")
}

fn in_words(ready: &Ready, limits: &str) -> String {
    let mut text = format!("serving {} with {}{limits}\n", ready.drive, ready.stack);
    for volume in &ready.volumes {
        if let Some(mount) = &ready.mount {
            text += &format!("  {}\n", mount.join(volume).display());
        }
        if let Some(unix) = &ready.unix {
            let scheme = if ready.encrypted == Required::Always { "nbds" } else { "nbd" };
            text += &format!("  {scheme}+unix:///{volume}?socket={}\n", escaped_path(unix));
        }
        if let Some(tcp) = &ready.tcp {
            let scheme = if ready.encrypted == Required::Never { "nbd" } else { "nbds" };
            text += &format!("  {scheme}://{tcp}/{volume}\n");
        }
    }
    if let Some(unix) = &ready.control_unix {
        text += &format!("  iofair ctl --socket {} status\n", shell::path(unix));
    }
    if let Some(tcp) = &ready.control_tcp {
        text +=
            &format!("  https://{tcp} (control, with --tls-ca, --tls-certificate and --tls-key)\n");
    }
    if let Some(unix) = &ready.metrics_unix {
        text += &format!("  curl --unix-socket {} http://localhost/metrics\n", shell::path(unix));
    }
    if let Some(tcp) = &ready.metrics_tcp {
        text += &format!("  http://{tcp}/metrics\n");
    }
    for (volume, path) in &ready.vhost {
        text += &format!("  vhost-user-blk {} ({volume})\n", path.display());
    }
    for (volume, path) in &ready.ublk {
        text += &format!("  {} ({volume})\n", path.display());
    }
    text
}
