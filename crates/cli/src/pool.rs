//! `iofair pool`: pools on block devices, in files and in directories, while no server has them.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use iofair_config::contracts::Contracts;
use iofair_core::unit::Count;
use iofair_serve::pool::admin::{self, Creation, Report, Summary};
use iofair_serve::{ServeError, directory};

use crate::output::{Output, table};

/// Arguments of `iofair pool`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair pool create /dev/sdb                         an empty pool; data on the device is lost
  iofair pool create /srv/pool.img                    a pool in a new file, which can grow
  iofair pool show /dev/sdb                           volumes with their UUIDs and positions
  iofair pool check /dev/sdb                          check every copy of the table
  iofair pool import /dev/sdb --contracts old.toml    convert volumes of a version without pools
  iofair pool delete /dev/sdb alice-old               delete data of a removed volume
  iofair pool show /srv/volumes                       volumes of a pool directory, kept ones included")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create an empty pool on a device, or in a new file.
    #[command(after_help = "Examples:
  iofair pool create /dev/sdb
  iofair pool create /dev/vdb --blank     a new virtual disk, which reads as zeroes")]
    Create {
        /// Block device or file.
        path: PathBuf,
        /// Overwrite existing data; all of it is lost.
        #[arg(long)]
        force: bool,
        /// Assume that the device reads as zeroes, so that new volumes need no zeroing.
        #[arg(long)]
        blank: bool,
    },
    /// Show a pool and its volumes; a server may be using it.
    #[command(after_help = "Examples:
  iofair pool show /dev/sdb
  iofair pool show /srv/pool.img --json | jq -r '.volumes[] | .name + \" \" + .uuid'")]
    Show {
        /// Block device, file or directory.
        path: PathBuf,
    },
    /// Check every copy of a pool's table, and suggest repairs.
    #[command(after_help = "Examples:
  iofair pool check /dev/sdb
  iofair pool check --repair /dev/sdb     use the newest valid copy; the server must be stopped")]
    Check {
        /// Block device or file.
        path: PathBuf,
        /// Use the newest valid copy, and rewrite the others from it.
        #[arg(long)]
        repair: bool,
    },
    /// Convert the volumes of a version without pools, with their data, in place.
    #[command(after_help = "Examples:
  iofair pool import /dev/sdb --contracts /etc/iofair/contracts.toml
  iofair pool import /srv/pool.img --contracts contracts.toml

The contract file must be the one that was served last. On a device, its order determines where the
volumes are.")]
    Import {
        /// Block device or file.
        path: PathBuf,
        /// Contract file with which it was last served.
        #[arg(long, value_name = "FILE")]
        contracts: PathBuf,
    },
    /// Delete the data of a volume that is no longer in the contracts.
    #[command(after_help = "Examples:
  iofair pool delete /dev/sdb alice-old
  iofair pool delete /srv/volumes alice-old
  iofair pool delete /srv/volumes alice-old --contracts contracts.toml     taken out while no server ran")]
    Delete {
        /// Block device, file or directory.
        path: PathBuf,
        /// Name of the volume.
        volume: String,
        /// Contract file that does not have the volume, for one that the last server had.
        #[arg(long, value_name = "FILE")]
        contracts: Option<PathBuf>,
    },
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let read = |path: &PathBuf| Contracts::open_with(&iofair_policies::TABLE, path);
    let of_directory = match &args.command {
        Command::Show { path } if path.is_dir() => Some(directory::show(path)),
        Command::Delete { path, volume, contracts } if path.is_dir() => {
            let contracts = contracts.as_ref().map(read).transpose()?;
            let deleted = directory::delete(path, volume, contracts.as_ref());
            Some(Ok(deleted.map_err(deletion_error)?))
        }
        _ => None,
    };
    if let Some(summary) = of_directory {
        let summary = summary.map_err(pool_error)?;
        output.print(&summary, || directory_in_words(&summary))?;
        return Ok(ExitCode::SUCCESS);
    }
    let summary = match &args.command {
        Command::Create { path, force, blank } => {
            let how = Creation { file: true, force: *force, blank: *blank };
            admin::create(path, &how).map_err(pool_error)?
        }
        Command::Show { path } => admin::show(path).map_err(pool_error)?,
        Command::Check { path, repair: true } => admin::repair(path).map_err(pool_error)?,
        Command::Check { path, repair: false } => {
            let report = admin::check(path).map_err(pool_error)?;
            output.print(&report, || report_in_words(&report))?;
            return Ok(if report.good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Import { path, contracts } => {
            admin::import(path, &read(contracts)?).map_err(pool_error)?
        }
        Command::Delete { path, volume, contracts } => {
            let contracts = contracts.as_ref().map(read).transpose()?;
            admin::delete(path, volume, contracts.as_ref()).map_err(deletion_error)?
        }
    };
    output.print(&summary, || in_words(&summary))?;
    Ok(ExitCode::SUCCESS)
}

fn pool_error(error: ServeError) -> anyhow::Error {
    match error {
        ServeError::Config(error) => error.into(),
        error => anyhow!(error),
    }
}

/// What is wrong with a deletion, and what a pool that a server has open needs.
fn deletion_error(error: ServeError) -> anyhow::Error {
    match &error {
        ServeError::System { error: cause, .. } if cause.kind() == ErrorKind::ResourceBusy => {
            anyhow!(
                "{error}; allowed: a pool that no server uses. On that server, create the volume again and remove it with \
             --delete-data"
            )
        }
        _ => pool_error(error),
    }
}

fn report_in_words(report: &Report) -> String {
    let mut text: String = report.copies.iter().map(|copy| format!("{copy}\n")).collect();
    match &report.problem {
        Some(problem) => text += &format!("{problem}\n"),
        None => text += "the pool is valid\n",
    }
    text
}

fn directory_in_words(summary: &directory::Summary) -> String {
    let name = summary.pool.map_or("of an earlier version".into(), |pool| pool.to_string());
    let text = format!("pool {name}: {} free\n", Count(summary.free_bytes, "byte"));
    let row = |volume: &directory::VolumeSummary| {
        let directory::VolumeSummary { name, group, state, bytes, path } = volume;
        let path = path.display().to_string();
        vec![name.clone(), group.clone(), bytes.to_string(), (*state).to_string(), path]
    };
    let rows: Vec<Vec<String>> = summary.volumes.iter().map(row).collect();
    if rows.is_empty() {
        return text;
    }
    text + &table(&["volume", "group", "bytes", "state", "file"], &rows, &[2])
}

fn in_words(summary: &Summary) -> String {
    let Summary { pool, generation, bytes, free_bytes, dirty_bytes, volumes } = summary;
    let mut text = format!("pool {pool}: {bytes} bytes, {free_bytes} free, change {generation}\n");
    if *dirty_bytes > 0 {
        writeln!(text, "zeroed before a volume gets them: {}", Count(*dirty_bytes, "byte"))
            .expect("a string");
    }
    let rows: Vec<Vec<String>> = volumes
        .iter()
        .map(|volume| {
            let pieces: Vec<String> =
                volume.extents.iter().map(|(at, bytes)| format!("{at}+{bytes}")).collect();
            vec![
                volume.name.clone(),
                volume.group.clone(),
                volume.bytes.to_string(),
                volume.state.to_string(),
                volume.uuid.to_string(),
                pieces.join(" "),
            ]
        })
        .collect();
    if !rows.is_empty() {
        text += &table(
            &["volume", "group", "bytes", "state", "UUID", "first byte+length"],
            &rows,
            &[2],
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who may not delete data because a server has the pool learns how to delete it there. Method: the error by hand.
    #[test]
    fn a_pool_that_is_served_names_the_next_step() {
        let busy = |kind| ServeError::System { what: "p".into(), error: kind };
        let busy = |kind: ErrorKind| deletion_error(busy(kind.into())).to_string();
        assert!(busy(ErrorKind::ResourceBusy).contains("--delete-data"));
        assert!(!busy(ErrorKind::NotFound).contains("--delete-data"));
    }
}
