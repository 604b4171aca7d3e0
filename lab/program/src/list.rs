//! `iofair-lab list`: what there is, straight from the tables that the program itself uses.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use iofair_baselines::TABLE;
use iofair_cli::failure::Usage;
use iofair_cli::list;
use iofair_cli::output::{Output, table};
use iofair_simulator::client_file::ClientFile;
use serde::Serialize;

use crate::toml_files::collect_toml;

/// Arguments of `iofair-lab list`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair-lab list policies                throttles and schedulers
  iofair-lab list policies bfq            one policy: every parameter with its default and range
  iofair-lab list stacks                  named stacks, such as promise
  iofair-lab list drives                  emulated drives and their variants, by class
  iofair-lab list drives samsung-970-pro  every parameter of a profile, with its source
  iofair-lab list experiments --json      experiments in ./reproduction/experiments, as JSON")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    #[command(flatten)]
    Common(list::What),
    /// List the jobs and keys of clients in an experiment.
    Clients,
    /// List experiment files.
    Experiments {
        /// Directory to search.
        #[arg(default_value = "reproduction/experiments")]
        directory: PathBuf,
    },
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    match &args.what {
        What::Common(what) => return what.show(output, &TABLE),
        What::Clients => clients(output)?,
        What::Experiments { directory } => experiments(directory, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct ClientInfo {
    jobs: Vec<String>,
    keys: Vec<String>,
}

/// The format itself is asked: an error about a key or a word says what is allowed.
fn clients(output: &Output) -> Result<()> {
    let allowed = |text: &str| {
        let refused = iofair_config::parse::<ClientFile>("", text).err();
        let words = refused.and_then(|error| error.allowed).unwrap_or_default();
        words.split(", ").map(str::to_string).collect::<Vec<_>>()
    };
    let info = ClientInfo { jobs: allowed("job = '?'"), keys: allowed("'?' = 0") };
    output.print(&info, || {
        format!(
            "A client of an experiment ([[client]] in its file):\n  job = {}\nand any of these keys:\n  {}\n",
            info.jobs.join(" | "),
            info.keys.join(", ")
        )
    })
}

#[derive(Serialize)]
struct ExperimentInfo {
    path: String,
    title: String,
    source: String,
}

/// The two lines of an experiment file that a list shows; `iofair-lab run` reads and checks the rest.
#[derive(serde::Deserialize)]
struct Heading {
    title: String,
    source: String,
}

fn experiments(directory: &Path, output: &Output) -> Result<()> {
    let mut paths = Vec::new();
    collect_toml(directory, &mut paths)
        .with_context(|| Usage(format!("cannot list {}", directory.display())))?;
    let mut infos = Vec::new();
    for path in paths {
        let (_, heading) = iofair_config::read::<Heading>(&path)?;
        let path = path.display().to_string();
        infos.push(ExperimentInfo { path, title: heading.title, source: heading.source });
    }
    output.print(&infos, || {
        let rows = infos.iter().map(|i| vec![i.path.clone(), i.title.clone(), i.source.clone()]);
        table(&["experiment", "what it asks", "source"], &rows.collect::<Vec<_>>(), &[])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is listed is what the format knows. Method: one job and one key of each kind.
    #[test]
    fn clients_are_what_the_format_knows() {
        let error = iofair_config::parse::<ClientFile>("", "job = '?'").expect_err("no such job");
        assert!(error.allowed.is_some_and(|words| words.contains("randread")));
        let error = iofair_config::parse::<ClientFile>("", "'?' = 0").expect_err("no such key");
        assert!(error.allowed.is_some_and(|words| words.contains("buffered")));
    }
}
