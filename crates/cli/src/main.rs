//! The command line: parses, calls, prints.
//!
//! One file a command. A command is a module with `Args` (what may be written after its name) and
//! `run(&Args, &Output) -> anyhow::Result<ExitCode>`; adding one is its `mod` line, its variant of
//! [`Command`] and its arm in [`dispatch`]. Only this room prints error chains and chooses exit codes:
//! 0 done, 1 failed, 2 wrong usage or a bad file.

mod completions;
mod ctl;
mod demo;
mod explain;
mod failure;
mod frontier;
mod list;
mod live;
mod man;
mod measured;
mod output;
mod pool;
mod run;
mod serve;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::Output;

/// Decides whose I/O goes next: promises kept between clients that share a drive.
#[derive(Parser)]
#[command(name = "iofair", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    /// Print machine-readable JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  iofair demo                        the promise, live, in half a minute
  iofair serve demo/contracts.toml   volumes under contracts
  iofair pool create /dev/sdb        a device for volumes
  iofair ctl status                  a running server: look at it, change it
  iofair run experiments             the published experiments, in virtual time
  iofair run --on serve figure-1.toml the same live, beside the lab
  iofair explain figure-1.toml       why requests waited there, by which rules
  iofair list policies               what can order and limit I/O, with all parameters
  iofair list policies bfq           one of them in full

Every command has --help with examples, and --json.";

#[derive(Subcommand)]
enum Command {
    /// The promise, live: NBD clients on an emulated SSD, policy by policy.
    Demo(demo::Args),
    /// Serve volumes under contracts, over NBD, to virtual machines, as block devices and as files.
    Serve(serve::Args),
    /// Make, show, check and import pools on block devices and in files.
    Pool(pool::Args),
    /// Look at a running server and change it.
    Ctl(ctl::Args),
    /// A running server, live: promised against got, who is held and why.
    Top(top::Args),
    /// Experiments in virtual time, beside what their sources claim; or live, beside the lab.
    Run(run::Args),
    /// Why a request of such a run waited, and who waited where.
    Explain(explain::Args),
    /// What there is: policies, drives, clients, experiments.
    List(list::Args),
    /// Completions for a shell.
    Completions(completions::Args),
    /// Manual pages.
    Man(man::Args),
}

fn dispatch(cli: &Cli) -> anyhow::Result<ExitCode> {
    let output = Output { json: cli.json };
    match &cli.command {
        Command::Demo(args) => demo::run(args, &output),
        Command::Serve(args) => serve::run(args, &output),
        Command::Pool(args) => pool::run(args, &output),
        Command::Ctl(args) => ctl::run(args, &output),
        Command::Top(args) => top::run(args, &output),
        Command::Run(args) => run::run(args, &output),
        Command::Explain(args) => explain::run(args, &output),
        Command::List(args) => list::run(args, &output),
        Command::Completions(args) => completions::run(args, &output),
        Command::Man(args) => man::run(args, &output),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    dispatch(&cli).unwrap_or_else(|error| failure::report(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Goal: the definition of the command line is sound and every command has a help line and
    /// examples. Method: clap's own assertions, then a walk over the commands.
    #[test]
    fn the_command_line_is_sound() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands_mut() {
            let name = sub.get_name().to_string();
            assert!(sub.get_about().is_some(), "{name} has no help line");
            let help = sub.render_long_help().to_string();
            assert!(help.contains("Examples:"), "{name} has no examples");
        }
    }
}
