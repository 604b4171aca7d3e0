//! A row of the calibration table, and how it is printed.

use std::fmt::Write as _;

use iofair_drive::profile;

/// The published number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Measured {
    /// One number.
    Value(f64),
    /// Several runs or a range.
    Range(f64, f64),
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// No number: the row shows an extrapolation of the model.
    Nothing,
}

/// A measured number beside the model's.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    /// Profile, including the variant.
    pub(crate) drive: &'static str,
    /// The workload and the measured quantity.
    pub(crate) name: &'static str,
    /// Unit of both numbers.
    pub(crate) unit: &'static str,
    /// The source's number.
    pub(crate) measured: Measured,
    /// The model's number.
    pub(crate) ours: f64,
    /// Error in percent of the fit by hand from which the profile started; the model must not be worse.
    pub(crate) reference: f64,
    /// Why the row does not fit, or else what it was used for.
    pub(crate) note: &'static str,
}

impl Row {
    /// The model's error in percent of the measured number; zero inside a range.
    pub(crate) fn error(&self) -> f64 {
        let (low, high) = match self.measured {
            Measured::Value(value) => (value, value),
            Measured::Range(low, high) => (low, high),
            Measured::AtLeast(low) => (low, f64::INFINITY),
            Measured::AtMost(high) => (0.0, high),
            Measured::Nothing => return 0.0,
        };
        let nearest = self.ours.clamp(low, high);
        100.0 * (self.ours - nearest) / nearest
    }
}

/// A number with three significant digits.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl Measured {
    fn text(self) -> String {
        match self {
            Self::Value(value) => short(value),
            Self::Range(low, high) => format!("{} to {}", short(low), short(high)),
            Self::AtLeast(low) => format!("at least {}", short(low)),
            Self::AtMost(high) => format!("at most {}", short(high)),
            Self::Nothing => "-".to_owned(),
        }
    }
}

/// The rows as a Markdown table.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| drive | row | measured | ours | unit | error | fit by hand | note |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let percent = |value: f64| match row.measured {
            Measured::Nothing => "-".to_owned(),
            _ if value.abs() < 0.5 => "0 %".to_owned(),
            _ => format!("{value:+.0} %"),
        };
        let (measured, ours) = (row.measured.text(), short(row.ours));
        let (error, reference) = (percent(row.error()), percent(row.reference));
        writeln!(
            text,
            "| {} | {} | {measured} | {ours} | {} | {error} | {reference} | {} |",
            row.drive, row.name, row.unit, row.note
        )
        .expect("a String takes all that is written");
    }
    text
}

/// All parameters of all profiles as a Markdown table; for a variant, those that it changes.
pub(crate) fn parameters() -> String {
    let mut text =
        String::from("| profile | number | value | what fixes it |\n|---|---|---|---|\n");
    let mut base = Vec::new();
    let mut files: Vec<_> = profile::list();
    files.retain(|listed| !listed.library);
    files.sort_by(|a, b| a.name.cmp(&b.name));
    for listed in files {
        let numbers = profile::read(&listed.name).expect("it is listed").numbers;
        for number in numbers.iter().filter(|number| !base.contains(*number)) {
            let key = number.key.trim_start_matches("model.");
            let free = if number.free { "**free**: " } else { "" };
            writeln!(
                text,
                "| {} | `{key}` | {} | {free}{} |",
                listed.name, number.value, number.source
            )
            .expect("a String takes all that is written");
        }
        if !listed.name.contains(':') {
            base = numbers;
        }
    }
    text
}
