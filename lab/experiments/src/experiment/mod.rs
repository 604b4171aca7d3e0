//! Experiments: files that say what to run and what a source claims, and the machinery between them
//! and a report. The format is described in `lab/docs/experiments.md`.

pub mod basis;
mod change;
pub mod claim;
mod contract;
pub mod dedicated;
pub mod expand;
mod expect;
pub mod file;
pub(crate) mod machine;
pub mod numbers;
mod origin;
mod overrides;
mod part;
pub mod quantity;
mod reading;
mod resolved;
pub mod runner;
mod stacks;
pub mod statistics;
pub mod step;
mod sweep;

#[cfg(test)]
pub(crate) mod tests;

use std::path::Path;

use iofair_config::{ConfigError, Source};

use crate::jobs;

pub use basis::FittedOn;
pub use claim::{Claim, Kind, Place, Verdict};
pub use dedicated::Sizing;
pub use numbers::{Draw, Numbers};
pub use origin::{Basis, Origin};
pub use overrides::Overrides;
pub use quantity::{Metric, Quantity, Subject, Units};
pub use reading::{Reading, Spot};
pub use resolved::{Dedicated, Experiment, Variant};
pub use runner::{Results, Runner, run};
pub use statistics::Statistics;

/// Reads an experiment that is already in memory; `path` names it in errors.
pub fn parse(path: &str, text: &str, overrides: &Overrides) -> Result<Experiment, ConfigError> {
    resolve(&Source::new(path, text), overrides)
}

/// Reads an experiment file, or a job file of fio; `-` is standard input.
pub fn read(path: &Path, overrides: &Overrides) -> Result<Experiment, ConfigError> {
    let source = match path.to_str() {
        Some("-") => {
            let text = std::io::read_to_string(std::io::stdin());
            let text = text.map_err(|error| ConfigError::whole_file("-", error.to_string()))?;
            Some(Source::new("-", &text))
        }
        _ if jobs::is_job_file(path) => None,
        _ => Some(Source::open(path)?),
    };
    if let Some(source) = source.as_ref().filter(|source| !jobs::is_job_text(source.text())) {
        return resolve(source, overrides);
    }
    if !overrides.sweeps.is_empty() {
        let message = "a job file cannot be swept; sweeps are for experiment files";
        return Err(ConfigError::whole_file(&path.display().to_string(), message));
    }
    match source {
        Some(source) => jobs::parse(source.path(), source.text(), overrides),
        None => jobs::read(path, overrides),
    }
}

fn resolve(source: &Source, overrides: &Overrides) -> Result<Experiment, ConfigError> {
    // As it is written first: what is wrong there has its place there.
    let mut file: file::ExperimentFile = source.parse()?;
    let changed;
    let mut source = source;
    if !overrides.settings.is_empty() {
        changed = source.with_settings(&overrides.settings)?;
        (source, file) = (&changed, changed.parse()?);
    }
    let longer;
    if !overrides.sweeps.is_empty() {
        longer = source.followed_by(&sweep::written(&overrides.sweeps)?);
        (source, file) = (&longer, longer.parse()?);
        file.expect.clear();
    }
    let name = source.path().strip_suffix(".toml").unwrap_or(source.path());
    let name = name.rsplit_once("experiments/").map_or(name, |(_, rest)| rest);
    expand::expand(source, name, &file, overrides)
}
