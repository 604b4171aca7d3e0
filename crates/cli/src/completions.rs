//! `iofair completions`: completions for a shell.

use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

use crate::output::write;

/// Arguments of `iofair completions`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair completions bash > ~/.local/share/bash-completion/completions/iofair
  iofair completions zsh > ~/.zfunc/_iofair")]
pub(crate) struct Args {
    /// Shell to print completions for.
    shell: Shell,
}

/// `program` is the whole command line.
pub(crate) fn run(args: &Args, program: &mut Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, program, "iofair", &mut script);
    write(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}
