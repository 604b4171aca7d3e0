//! Progress of a calibration on standard error: a bar with the remaining time on a terminal, else a line for each row.

use std::time::Duration;

use indicatif::ProgressBar;

use iofair_serve::log;

use crate::output::{progress, say};

/// Disappears when it is dropped.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Of this many rows.
    pub(super) fn rows(count: usize) -> Self {
        let template = "{bar:30.cyan/blue} {pos}/{len} rows, {eta} left  {msg}";
        Self { bar: progress(ProgressBar::new(count as u64), template, false) }
    }
    /// Of something whose end is unknown.
    pub(super) fn spinner(message: &str) -> Self {
        let this =
            Self { bar: progress(ProgressBar::new_spinner(), "{spinner} {msg}, {elapsed}", false) };
        this.begin(message);
        if !this.bar.is_hidden() {
            this.bar.enable_steady_tick(Duration::from_millis(200));
        }
        this
    }
    /// Shows what is done now.
    pub(super) fn begin(&self, message: &str) {
        self.bar.set_message(message.to_owned());
        match (self.bar.is_hidden(), self.bar.length()) {
            (false, _) => self.bar.tick(),
            (true, Some(all)) => {
                say(format_args!("calibrate: {} of {all}: {message}", self.bar.position() + 1));
            }
            (true, None) => say(format_args!("calibrate: {message}")),
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
