//! `iofair-csi`: volumes of iofair servers for Kubernetes, as a driver of the Container Storage Interface.

mod args;
mod capability;
mod contract;
mod controller;
mod csi;
mod failure;
mod identity;
mod node;
mod pending;
mod run;
mod server;
mod servers;
mod sweep;
mod tenants;
mod volume_id;

use std::process::ExitCode;

use clap::Parser;
use iofair_serve::log;

fn main() -> ExitCode {
    let args = args::Args::parse();
    let ended = run::run(&args);
    if let Err(error) = &ended {
        log::line(&format!("error: {error:#}"));
    }
    log::flush();
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
