//! Printing: text or JSON on standard output, tables.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use serde::Serialize;

/// A line below the header and nothing else.
const PLAIN: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// How results are printed.
pub(crate) struct Output {
    /// JSON instead of text.
    pub(crate) json: bool,
}

impl Output {
    /// Prints a value as JSON if JSON is wanted, else the text that `text` makes.
    pub(crate) fn print<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        if self.json {
            return write(&(serde_json::to_string_pretty(value)? + "\n"));
        }
        write(&text())
    }
}

/// Writes to standard output; a closed pipe is an error, not a panic.
pub(crate) fn write(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Checks before long work that its results have a place. Nothing is created.
///
/// # Errors
/// The directory of a file is missing, or the file is a directory.
pub(crate) fn check_places<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    for file in files {
        let name = file.display();
        ensure!(!file.is_dir(), "cannot write {name}: it is a directory");
        let above = file.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        ensure!(above.is_dir(), "cannot write {name}: there is no directory {}", above.display());
    }
    Ok(())
}

/// A table in our style; `right` are the columns of numbers.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let mut table = Table::new();
    table.load_style(PLAIN).set_content_arrangement(ContentArrangement::Dynamic);
    if cfg!(test) {
        // As wide as it wants to be, wherever the tests run.
        table.force_no_tty();
    }
    table.set_header(header.to_vec()).add_rows(rows);
    for index in right {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{table}\n")
}
