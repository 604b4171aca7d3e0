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
mod tenants;
mod volume_id;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match run::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
