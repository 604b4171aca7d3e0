//! `iofair-lab run --fio`: results as fio writes them, for scripts that read those.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use iofair_experiments::experiment::Results;
use iofair_experiments::report;

use iofair_cli::failure::Usage;

/// Writes every run: a directory for each stack, below one for each experiment and repeat if there are several.
pub(crate) fn write(directory: &Path, all: &[Results]) -> Result<()> {
    for results in all {
        let experiment = &results.experiment;
        if experiment.variants.len() > 1 {
            let message =
                format!("{}: --fio needs one variant; choose with --variant", experiment.name);
            return Err(Usage(message).into());
        }
        let mut place = directory.to_path_buf();
        if all.len() > 1 {
            place.push(plain(&experiment.name));
        }
        for (stack, (name, _)) in experiment.stacks.iter().enumerate() {
            for repeat in 0..experiment.repeats as usize {
                let mut place = place.join(plain(name));
                if experiment.repeats > 1 {
                    place.push(repeat.to_string());
                }
                write_run(&place, results, stack, repeat)
                    .with_context(|| format!("cannot write to {}", place.display()))?;
            }
        }
    }
    Ok(())
}

fn write_run(place: &Path, results: &Results, stack: usize, repeat: usize) -> Result<()> {
    fs::create_dir_all(place)?;
    fs::write(place.join("fio.json"), report::fio_json(results, stack, repeat))?;
    for (name, text) in report::fio_logs(results, stack, repeat) {
        fs::write(place.join(name), text)?;
    }
    Ok(())
}

/// A name as that of a directory.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_+.".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    name.trim_start_matches('.').to_owned()
}
