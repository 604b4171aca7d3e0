//! Progress of a calibration on standard error: a bar with the remaining time on a terminal, else a line for each row.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use iofair_serve::log;

use crate::output::say;

/// Disappears when it is dropped.
pub(super) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
}

impl Progress {
    /// Of this many rows.
    pub(super) fn rows(count: usize) -> Result<Self> {
        let bar = ProgressBar::new(count as u64);
        Self::new(bar, "{bar:30.cyan/blue} {pos}/{len} rows, {eta} left  {msg}")
    }
    /// Of something whose end is unknown.
    pub(super) fn spinner(message: &str) -> Result<Self> {
        let this = Self::new(ProgressBar::new_spinner(), "{spinner} {msg}, {elapsed}")?;
        this.begin(message);
        if this.is_terminal {
            this.bar.enable_steady_tick(Duration::from_millis(200));
        }
        Ok(this)
    }
    fn new(bar: ProgressBar, template: &str) -> Result<Self> {
        let is_terminal = std::io::stderr().is_terminal();
        if !is_terminal {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_style(ProgressStyle::with_template(template).context("a template of progress")?);
        Ok(Self { bar, is_terminal })
    }
    /// Shows what is done now.
    pub(super) fn begin(&self, message: &str) {
        self.bar.set_message(message.to_owned());
        match (self.is_terminal, self.bar.length()) {
            (true, _) => self.bar.tick(),
            (false, Some(all)) => {
                say(format_args!("calibrate: {} of {all}: {message}", self.bar.position() + 1));
            }
            (false, None) => say(format_args!("calibrate: {message}")),
        }
    }
    /// A row is finished.
    pub(super) fn end(&self) {
        self.bar.inc(1);
    }
    /// Prints a line.
    pub(super) fn print(&self, line: &str) {
        self.bar.suspend(|| {
            say(line);
            log::flush();
        });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
