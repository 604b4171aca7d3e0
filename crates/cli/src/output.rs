//! Printing: text or JSON on standard output, tables.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iofair_serve::log;
use iofair_trace::printable;
use serde::Serialize;

/// A line below the header and nothing else.
const PLAIN: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// How results are printed.
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
}

impl Output {
    /// Prints a value as JSON if JSON is wanted, else the text that `text` makes.
    pub fn print<T: Serialize>(&self, value: &T, text: impl FnOnce() -> String) -> Result<()> {
        if self.json {
            return write(&(serde_json::to_string_pretty(value)? + "\n"));
        }
        write(&without_controls(&text()))
    }
    /// [`Self::print`] of a command that goes on: it ends neither when standard output is closed or full, nor while
    /// nobody reads it.
    pub fn announce<T: Serialize>(&self, value: &T, text: impl FnOnce() -> String) -> Result<()> {
        match self.json {
            true => log::print(&serde_json::to_string_pretty(value)?),
            false => log::print(&without_controls(&text())),
        }
        Ok(())
    }
}

/// The text without characters that a terminal obeys, which names and lines of files may have. Line breaks and tabs are ours.
pub fn without_controls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(['\n', '\t']) {
        let (part, end) = part.split_at(part.trim_end_matches(['\n', '\t']).len());
        shown.push_str(&printable(part));
        shown.push_str(end);
    }
    shown
}

/// Writes to standard output.
pub fn write(text: &str) -> Result<()> {
    // What was said before stands before it on a terminal.
    log::flush();
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(unwritten)
}

/// Writes what `text` makes to a file, if one was asked for.
pub fn save(path: Option<&Path>, text: impl FnOnce() -> String) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, text()).with_context(|| format!("cannot write {}", path.display()))
}

/// A progress bar in this constant form. It is hidden where there is no terminal.
pub fn progress(bar: ProgressBar, template: &str, quiet: bool) -> ProgressBar {
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.with_style(ProgressStyle::with_template(template).expect("the template is a constant"))
}

/// The error of standard output that takes nothing.
pub fn unwritten(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => anyhow::Error::new(error).context("cannot write to standard output"),
    }
}

/// The reader of standard output has closed it.
#[derive(Debug, thiserror::Error)]
#[error("the reader of standard output has closed it")]
pub struct ReaderGone;

/// Writes a line to standard error. If that fails, or nobody reads it, the command goes on without the line.
pub fn say(line: impl Display) {
    log::line(&line.to_string());
}

/// A table in our style; `right` are the columns of numbers.
pub fn table(header: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
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
