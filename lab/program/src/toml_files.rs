//! The files of a directory of experiments.

use std::path::{Path, PathBuf};

use anyhow::Result;

/// Every `.toml` file under a directory, in the order of their paths.
pub(crate) fn collect_toml(directory: &Path, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries = std::fs::read_dir(directory)?.map(|entry| entry.map(|e| e.path()));
    let mut entries: Vec<PathBuf> = entries.collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect_toml(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    Ok(())
}
