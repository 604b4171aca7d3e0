//! What `iofair host` prints.

use iofair_core::contract::Rate;
use iofair_host::journal::Done;
use iofair_host::plan::{Plan, Weights};
use iofair_host::status::Row;
use iofair_host::{Slot, Write};
use serde::Serialize;

use crate::output::table;

/// What would be written.
#[derive(Serialize)]
pub(super) struct Diff<'a> {
    weights: Weights,
    writes: Vec<&'a Write>,
    notes: &'a [String],
}

impl<'a> Diff<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let writes = plan.writes.iter().filter(|write| !write.is_done()).collect();
        Self { weights: plan.weights, writes, notes: &plan.notes }
    }
    pub(super) fn text(&self) -> String {
        let mut text: String = self.writes.iter().map(|write| change(write)).collect();
        if self.writes.is_empty() {
            text = "nothing to write: the kernel has these contracts already\n".to_owned();
        }
        text + &notes(self.notes)
    }
}

fn notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let lines = notes.iter().map(|note| format!("  {note}\n"));
    format!("What the kernel does not guarantee:\n{}", lines.collect::<String>())
}

fn change(write: &Write) -> String {
    let before = write.before.as_deref();
    let values = match write.slot {
        Slot::Document => {
            let lines = |sign: char, text: &str| -> String {
                text.lines().map(|line| format!("  {sign} {line}\n")).collect()
            };
            let old = before.map(|text| lines('-', text)).unwrap_or_default();
            old + &lines('+', &write.after)
        }
        _ => format!("  {} -> {}\n", before.unwrap_or("(nothing)"), write.after),
    };
    format!("{}\n{values}  # {}\n", write.place(), write.why)
}

fn lines(text: &str, places: &[String]) -> String {
    places.iter().map(|place| format!("{text} {place}\n")).collect()
}

pub(super) fn applied(done: &Done, plan_notes: &[String]) -> String {
    let mut text = lines("wrote", &done.written)
        + &lines("vanished:", &done.gone)
        + &lines("this kernel does not have:", &done.missing);
    if text.is_empty() {
        text = "nothing to write: the kernel has these contracts already\n".to_owned();
    }
    text + &notes(plan_notes)
}

pub(super) fn reverted(done: &Done) -> String {
    let text = lines("restored", &done.written)
        + &lines("vanished:", &done.gone)
        + &lines("changed by others, left as they are (--force restores):", &done.changed);
    if text.is_empty() { "nothing to restore\n".to_owned() } else { text }
}

pub(super) fn status(rows: &[Row]) -> String {
    let percent =
        |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.0} %", part * 100.0));
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let weight = |found: Option<u32>| found.as_ref().map_or("-".to_owned(), u32::to_string);
            let kept = match row.kept {
                Some(true) => "kept",
                Some(false) => "broken",
                None => "-",
            };
            vec![
                row.name.clone(),
                row.min_bytes_per_s.map_or("-".to_owned(), |rate| Rate(rate).to_string()),
                row.weight.to_string(),
                weight(row.effective_weight),
                percent(row.effective_share),
                percent(Some(row.actual_share)),
                format!("{:.2}", row.bytes_per_s / 1e6),
                format!("{:.0}", row.iops),
                percent(row.waiting),
                kept.to_owned(),
            ]
        })
        .collect();
    let header = [
        "group",
        "min",
        "weight",
        "effective",
        "share",
        "actual",
        "MB/s",
        "IOPS",
        "waiting",
        "minimum",
    ];
    table(&header, &rows, &[1, 2, 3, 4, 5, 6, 7, 8])
}
