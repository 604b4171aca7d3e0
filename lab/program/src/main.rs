//! The program `iofair-lab`, for people who study I/O control: parses, calls, prints, as `iofair` does.

mod changes;
mod compare;
mod emulate;
mod explain;
mod fio;
mod fit;
mod frontier;
mod linux;
mod list;
mod live;
mod loop_device;
mod measured;
mod replay;
mod report;
mod robust;
mod run;
mod toml_files;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use iofair_baselines::TABLE;
use iofair_cli::output::Output;
use iofair_cli::{completions, man, serve};

/// The laboratory of iofair: I/O schedulers in simulation, live on a server, and on the Linux kernel.
#[derive(Parser)]
#[command(name = "iofair-lab", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    /// Print machine-readable JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  iofair-lab run reproduction/experiments              simulate the published experiments
  iofair-lab run --on serve figure-1.toml run one live, beside the simulation
  iofair-lab explain figure-1.toml        show where requests waited, and by which rules
  iofair-lab compare promise prop-bfq     compare policies on drives, in simulation
  iofair-lab replay trace.csv.gz --stack none-none --stack promise --drive samsung-970-pro
                                          replay a trace under two policy stacks
  iofair-lab list policies                list throttles and schedulers

Every command has --help with examples, and --json.";

#[derive(Subcommand)]
enum Command {
    /// Run experiments in simulation, or live on a server, and compare with published results.
    Run(Box<run::Args>),
    /// Replay a trace of requests in simulation under several policy stacks, side by side.
    Replay(replay::Args),
    /// Compare policies on drives: overhead, fairness, minimums, bursts.
    Compare(compare::Args),
    /// Show where the requests of a simulated run waited, and why.
    Explain(explain::Args),
    /// Put saved results side by side: what differs, and by how much.
    Report(report::Args),
    /// Compute what measured rows leave open of the numbers of drives and machines.
    Fit(fit::Args),
    /// Emulate a drive in real time, as a block device for any software.
    Emulate(emulate::Args),
    /// Serve volumes as `iofair serve` does, with any policy of the literature.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(serve::Args),
    /// List policies, stacks, drives, clients and experiments.
    List(list::Args),
    /// Print shell completions.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(completions::Args),
    /// Print or write manual pages.
    #[command(after_help = MAN_EXAMPLES)]
    Man(man::Args),
}

const SERVE_EXAMPLES: &str = "\
Examples:
  iofair-lab serve contracts.toml         with stack = \"prop-cfq-group\" in [drive], until SIGTERM or Ctrl-C
  iofair-lab serve --check contracts.toml check the file and its drive, and exit";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  iofair-lab completions bash > ~/.local/share/bash-completion/completions/iofair-lab
  iofair-lab completions zsh > ~/.zfunc/_iofair-lab";

const MAN_EXAMPLES: &str = "\
Examples:
  iofair-lab man | man -l -               show the main page
  iofair-lab man --directory man1         write iofair-lab.1, iofair-lab-run.1, ...";

fn dispatch(cli: &Cli) -> anyhow::Result<ExitCode> {
    let output = Output { json: cli.json };
    match &cli.command {
        Command::Run(args) => run::run(args, &output),
        Command::Replay(args) => replay::run(args, &output),
        Command::Compare(args) => compare::run(args, &output),
        Command::Explain(args) => explain::run(args, &output),
        Command::Report(args) => report::run(args, &output),
        Command::Fit(args) => fit::run(args, &output),
        Command::Emulate(args) => emulate::run(args, &output),
        Command::Serve(args) => serve::run(args, &output, &TABLE),
        Command::List(args) => list::run(args, &output),
        Command::Completions(args) => completions::run(args, &mut Cli::command()),
        Command::Man(args) => man::run(args, Cli::command()),
    }
}

fn main() -> ExitCode {
    iofair_cli::program(dispatch)
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
            let examples = help.split_once("Examples:").map(|(_, examples)| examples);
            let examples = examples.unwrap_or_else(|| panic!("{name} has no examples"));
            assert!(examples.contains(&format!("iofair-lab {name}")), "{name}: of another program");
        }
    }
}
