//! `iofair man`: manual pages, one for the program and one a command.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;

use crate::output::write;

/// Arguments of `iofair man`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair man | man -l -               show the main page
  iofair man --directory man1         write iofair.1, iofair-list.1, ...")]
pub struct Args {
    /// Write all pages to this directory, instead of the main page to standard output.
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// `program` is the whole command line.
pub fn run(args: &Args, program: Command) -> anyhow::Result<ExitCode> {
    match &args.directory {
        Some(directory) => {
            std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(program, directory))
                .with_context(|| format!("cannot write pages into {}", directory.display()))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(program).render(&mut page)?;
            write(&String::from_utf8(page)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
