//! Printing: text or JSON on standard output, tables.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
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

/// The error of standard output that takes nothing.
pub fn unwritten(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => anyhow::Error::new(error).context("cannot write to standard output"),
    }
}

/// The reader of standard output has closed it.
#[derive(Debug)]
pub struct ReaderGone;

impl Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of standard output has closed it")
    }
}
impl std::error::Error for ReaderGone {}

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
