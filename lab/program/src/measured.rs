//! The numbers that the sentences about the policies and two tables of `reproduction/promise.md` name: where they stand in the
//! results. `iofair-lab run --measured` writes the table of them, `reproduction/measured.csv`, with which the programs are built.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use iofair_experiments::experiment::{self, Experiment, Overrides, Results, Spot};
use iofair_reproduction::{self as reproduction, Measured};

use crate::toml_files::collect_toml;
use iofair_cli::failure::Usage;

/// The experiments of a table of `reproduction/promise.md`.
fn experiments(folder: &str) -> Result<Vec<Experiment>> {
    let mut files = Vec::new();
    let listed = collect_toml(Path::new(folder), &mut files);
    listed.with_context(|| Usage(format!("cannot list {folder}")))?;
    let read = |file: &PathBuf| Ok(experiment::read(file, &Overrides::default())?);
    files.iter().map(read).collect()
}

/// Every number that a sentence names, and those of the tables of `reproduction/promise.md`.
fn wanted() -> Result<BTreeSet<Spot>> {
    let mut all = reproduction::promises_spots(&experiments(reproduction::PROMISES)?);
    all.extend(reproduction::cases_spots(&experiments(reproduction::CASES)?));
    for row in iofair_baselines::TABLE.policies {
        for claim in row.judgement.claims() {
            all.extend(
                reproduction::spots(claim).map_err(|error| anyhow!("{}: {error}", row.name))?,
            );
        }
    }
    Ok(all)
}

/// The runs that they need besides those of `run`, of the files under `reproduction/experiments/`.
pub(crate) fn missing(run: &[Experiment]) -> Result<Vec<Experiment>> {
    let wanted = wanted()?;
    let mut missing = Vec::new();
    for ((name, variant), stacks) in reproduction::missing(run, &wanted) {
        let stacks = Some(stacks.into_iter().map(str::to_owned).collect());
        let file = PathBuf::from(format!("reproduction/experiments/{name}.toml"));
        let mut experiment =
            experiment::read(&file, &Overrides { stacks, ..Overrides::default() })?;
        experiment.keep_variants(&[variant.to_owned()])?;
        missing.push(experiment);
    }
    Ok(missing)
}

/// The table, from the results of all of them.
pub(crate) fn table(results: &[Results]) -> Result<String> {
    let measured = Measured::read(results, &wanted()?).map_err(|error| anyhow!(error))?;
    Ok(measured.csv())
}
