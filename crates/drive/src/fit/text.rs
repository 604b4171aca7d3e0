//! A fitted drive as a profile, with the reason of every number.

use std::fmt::Write as _;

use super::{Fitted, Parameter, Residual, Scope};
use crate::library;
use crate::profile::Model;

fn source(parameter: &Parameter) -> String {
    let Parameter { error, decided, .. } = parameter;
    match (error, decided) {
        (Some(error), true) => format!("measured, to {:.1} %", error * 100.0),
        (Some(error), false) if *error < 10.0 => {
            format!("the rows decide it only to {:.0} %", error * 100.0)
        }
        (None, true) => "measured: other values do not fit".to_owned(),
        _ => "no row decides it".to_owned(),
    }
}

fn number(key: &str, value: &str, source: &str, free: bool) -> String {
    let free = if free { ", free = true" } else { "" };
    // JSON's strings are TOML's.
    let source = source.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{key} = {{ value = {value}, source = \"{source}\"{free} }}\n")
}

/// What a line of the library says of a drive that was fitted to published rows: keys and values.
pub fn library_numbers(fitted: &Fitted, worst_case: u64) -> Vec<(String, String)> {
    let Model::Ssd(ssd) = &fitted.model else { unreachable!("published rows are of flash") };
    let capacity = ("capacity".to_owned(), format!("{}B", ssd.capacity));
    let worst = ("worst-case".to_owned(), format!("{worst_case}B/s"));
    let decided = fitted.parameters.iter().filter(|parameter| parameter.decided);
    let parameters = decided.map(|parameter| {
        let value = parameter.value.written().trim_matches('"').to_owned();
        (format!("model.ssd.{}", parameter.key), value)
    });
    [capacity, worst].into_iter().chain(parameters).collect()
}

/// The profile as a file. `title` and `target` describe what was measured; `worst_case` is in bytes a second.
pub fn profile_text(fitted: &Fitted, scope: &Scope, title: &str, worst_case: u64) -> String {
    let mut text = format!("# Calibrated by `iofair calibrate`: {}\n", title.replace('\n', " "));
    text += "# Rows: measured, in this model, error of the model.\n";
    for row in &fitted.residuals {
        let held_out = if row.held_out { " (not fitted)" } else { "" };
        let (measured, model) = (row.shown(row.measured), row.shown(row.model));
        let Residual { row: name, quantity, error_percent, .. } = row;
        let _ = writeln!(
            text,
            "#   {name}, {quantity}: {measured}, {model}, {error_percent:+.1} %{held_out}"
        );
    }
    if !fitted.is_explained() {
        text += "# NOT EXPLAINED: the mean error of the rows is above 10 %, so the model is not this drive.\n";
    }
    let undecided = fitted.parameters.iter().filter(|parameter| !parameter.decided);
    let undecided: Vec<&str> = undecided.map(|parameter| parameter.key.as_str()).collect();
    let _ = writeln!(text, "# No row decides: {}.\n", undecided.join(", "));
    let title = title.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
    if let Some(class) = &fitted.class {
        let numbers = library_numbers(fitted, worst_case);
        let numbers: Vec<_> =
            numbers.iter().map(|number| (number.0.as_str(), number.1.as_str())).collect();
        let drive = library::profile_text(class, &title, "measured", &numbers);
        return text + &drive.expect("the fit began with its defaults");
    }
    let _ = writeln!(text, "title = \"{title}\"\n");
    let facts = &scope.facts;
    let capacity = format!("\"{}B\"", facts.capacity.bytes());
    text += &number("capacity", &capacity, "the target's", false);
    let longest = format!("\"{}B\"", facts.max_request.bytes());
    text += &number("max-request", &longest, "the longest that was measured", false);
    let worst = format!("\"{worst_case}B/s\"");
    text += &number("worst-case", &worst, "the slowest of the mixes of small requests", false);
    text += "\n[host]\n";
    let host = "part of the measured latencies";
    text += &number("turnaround", "\"0us\"", host, true);
    text += &number("consume-window", "\"115us\"", "as beside the 970 PRO; no row", true);
    let kind = match fitted.model {
        Model::Hdd(_) => "hdd",
        Model::Ssd(_) => "ssd",
    };
    let _ = writeln!(text, "\n[model.{kind}]");
    text += &number("slots", &facts.depth.to_string(), "as the target tells", false);
    let mut tables: Vec<(String, String)> = Vec::new();
    for parameter in &fitted.parameters {
        let written = parameter.value.written();
        let table = match parameter.key.split_once('.') {
            Some(("volume", key)) => Some(("volume".to_owned(), key)),
            Some((table, key)) => Some((format!("model.{kind}.{table}"), key)),
            None => None,
        };
        match table {
            None => {
                text += &number(&parameter.key, &written, &source(parameter), !parameter.decided)
            }
            Some((table, key)) => {
                let line = number(key, &written, &source(parameter), !parameter.decided);
                match tables.iter_mut().find(|known| known.0 == table) {
                    Some((_, lines)) => *lines += &line,
                    None => tables.push((table, line)),
                }
            }
        }
    }
    for (table, lines) in tables {
        let _ = write!(text, "\n[{table}]\n{lines}");
    }
    text
}
