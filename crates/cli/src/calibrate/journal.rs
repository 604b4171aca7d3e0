//! What a calibration has measured so far, in a file beside the profile.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use iofair_drive::fit::{Record, Scope};
use serde::{Deserialize, Serialize};

use crate::failure::Usage;

/// Longest file that is read.
const BYTES_MAX: u64 = 64 << 20;

/// The file's structure.
#[derive(Serialize, Deserialize)]
struct Content {
    target: String,
    /// What the rows follow from; another one would have other rows.
    scope: String,
    records: Vec<Record>,
}

/// What replaces a journal.
fn replacement(path: &Path) -> PathBuf {
    path.with_extension("json.new")
}

/// The records of a calibration, saved after each row.
pub(super) struct Journal {
    path: PathBuf,
    content: Content,
}

impl Journal {
    /// Where the journal of the profile `out` is.
    pub(super) fn file(out: &Path) -> PathBuf {
        out.with_extension("rows.json")
    }
    /// The journal of the profile `out`; with `resume`, the records that it has. Fails if it cannot be written.
    pub(super) fn open(out: &Path, target: &str, scope: &Scope, resume: bool) -> Result<Self> {
        let path = Self::file(out);
        let scope = format!("{scope:?}");
        let empty = Content { target: target.to_owned(), scope, records: Vec::new() };
        let place = || path.display().to_string();
        if !resume {
            let new = replacement(&path);
            let is_writable = fs::write(&new, "").and_then(|()| fs::remove_file(&new));
            is_writable.with_context(|| format!("cannot write {}", place()))?;
            return Ok(Self { path, content: empty });
        }
        let length = match fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let message = format!("there is nothing to resume: {} does not exist", place());
                return Err(Usage(message).into());
            }
            found => found.with_context(place)?.len(),
        };
        if length > BYTES_MAX {
            return Err(
                Usage(format!("{}: {length} bytes are too long for a journal", place())).into()
            );
        }
        let text = fs::read_to_string(&path).with_context(place)?;
        let content: Content = serde_json::from_str(&text)
            .map_err(|error| Usage(format!("{} is no journal: {error}", place())))?;
        if content.target != empty.target || content.scope != empty.scope {
            let message = format!(
                "{} is of {} with other options, or the target has changed; --force starts again",
                place(),
                content.target
            );
            return Err(Usage(message).into());
        }
        Ok(Self { path, content })
    }
    /// Its file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    /// What is measured.
    pub(super) fn target(&self) -> &str {
        &self.content.target
    }
    /// Whether it has this row.
    pub(super) fn has_row(&self, row: &str) -> bool {
        self.content.records.iter().any(|record| record.row == row)
    }
    /// The rows that were measured.
    pub(super) fn records(&self) -> &[Record] {
        &self.content.records
    }
    /// Adds a row. The file is replaced at once, so that a crash leaves the old or the new one.
    pub(super) fn push(&mut self, record: Record) -> Result<()> {
        self.content.records.push(record);
        let new = replacement(&self.path);
        let text = serde_json::to_string(&self.content)?;
        fs::write(&new, text).with_context(|| new.display().to_string())?;
        fs::rename(&new, &self.path).with_context(|| self.path.display().to_string())
    }
}
