//! The command line of `iofair`: parses, calls, prints. `iofair-lab` uses the public modules.
//!
//! One file per command. A command is a module with `Args` (its arguments) and
//! `run(&Args, &Output) -> anyhow::Result<ExitCode>`; adding one is its `mod` line, its variant of
//! `Command` and its arm in `dispatch`. Only command lines print error chains and choose exit codes:
//! 0 done, 1 failed, 2 wrong usage or a bad file.

#![forbid(unsafe_code)]

mod calibrate;
pub mod completions;
mod ctl;
mod demo;
pub mod failure;
mod host;
pub mod interrupt;
pub mod list;
pub mod machine;
pub mod man;
pub mod output;
mod plan;
mod pool;
mod record;
pub mod serve;
pub mod stolen;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use iofair_policies::TABLE;
use iofair_serve::log;

use crate::output::Output;

/// A server and tools for drives that several clients share under contracts.
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
  iofair demo                         compare policies with NBD clients on an emulated SSD
  iofair serve contracts.toml         serve volumes
  iofair pool create /dev/sdb         prepare a device for volumes
  iofair ctl status                   show the state of a running server
  iofair host diff host.toml          show what the kernel would be told about contracts
  iofair plan contracts.toml          check whether promises fit a drive, in simulation
  iofair record monday.trace          record the requests of a running server
  iofair list policies                list throttles and schedulers
  iofair list policies bfq            show one of them with all parameters

Every command has --help with examples, and --json. Experiments, other policies and replays: iofair-lab.";

#[derive(Subcommand)]
enum Command {
    /// Compare policies with real NBD clients on an emulated SSD, in under a minute.
    Demo(demo::Args),
    /// Serve volumes over NBD, to virtual machines, as block devices and as files.
    Serve(serve::Args),
    /// Measure a drive and write a profile of it, for experiments, emulated drives and admission.
    Calibrate(calibrate::Args),
    /// Create, show, check and import pools on block devices and in files.
    Pool(pool::Args),
    /// Inspect and change a running server.
    Ctl(ctl::Args),
    /// Show a live view of a running server: the rate and share of each group, and what holds it.
    Top(top::Args),
    /// Give contracts to the Linux kernel's own I/O controllers on this machine.
    Host(host::Args),
    /// Show whether promises fit a drive, which breaks first, and how many drives are needed.
    Plan(plan::Args),
    /// Record the requests of a running server as a trace.
    Record(record::Args),
    /// List policies, stacks and drives.
    List(list::Args),
    /// Print shell completions.
    Completions(completions::Args),
    /// Print or write manual pages.
    Man(man::Args),
}

fn dispatch(cli: &Cli) -> anyhow::Result<ExitCode> {
    let output = Output { json: cli.json };
    match &cli.command {
        Command::Demo(args) => demo::run(args, &output),
        Command::Serve(args) => serve::run(args, &output, &TABLE),
        Command::Calibrate(args) => calibrate::run(args, &output),
        Command::Pool(args) => pool::run(args, &output),
        Command::Ctl(args) => ctl::run(args, &output),
        Command::Top(args) => top::run(args, &output),
        Command::Host(args) => host::run(args, &output),
        Command::Plan(args) => plan::run(args, &output),
        Command::Record(args) => record::run(args, &output),
        Command::List(args) => list::run(args, &output, &TABLE),
        Command::Completions(args) => completions::run(args, &mut Cli::command()),
        Command::Man(args) => man::run(args, Cli::command()),
    }
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    program(dispatch)
}

/// Runs a command line: parses the arguments of this process, prints help and failures, and chooses the exit code.
pub fn program<C: Parser>(dispatch: impl FnOnce(&C) -> anyhow::Result<ExitCode>) -> ExitCode {
    // Also where the arguments are not understood.
    let json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    let code = match C::try_parse() {
        Ok(cli) => dispatch(&cli).unwrap_or_else(|error| failure::report(&error, json)),
        Err(message) => parsed(&message, json),
    };
    log::flush();
    code
}

/// Prints help, the version or a wrong usage.
fn parsed(message: &clap::Error, json: bool) -> ExitCode {
    let printed = match json && message.use_stderr() {
        true => {
            let text = message.to_string();
            let text = text.trim_end().trim_start_matches("error: ");
            let first = text.lines().next().unwrap_or_default();
            output::say(failure::as_json("usage", first, text));
            Ok(())
        }
        false => message.print(),
    };
    match printed {
        // Standard error is closed, so the error cannot be reported.
        Err(error) if !message.use_stderr() => failure::report(&output::unwritten(error), json),
        _ => u8::try_from(message.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
