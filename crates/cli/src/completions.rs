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
pub struct Args {
    /// Shell to print completions for.
    shell: Shell,
}

/// `program` is the whole command line.
pub fn run(args: &Args, program: &mut Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    clap_complete::generate(args.shell, program, name, &mut script);
    write(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}
