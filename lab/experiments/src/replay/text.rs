//! The result as text: the agreement first, then stacks side by side, group by group.

use core::fmt::Write;

use iofair_core::unit::BinarySize;
use iofair_simulator::text_table::{PLAIN, counted, text_table};
use iofair_trace::source::Notes;

use super::agreement::Agreement;
use super::tally::{GroupResult, Played};

pub(super) const HEADER: [&str; 11] = [
    "group", "stack", "requests", "MB/s", "mean ms", "p50", "p99", "p99.9", "max", "trims",
    "promises",
];
/// The columns with numbers.
pub(super) const NUMBERS: core::ops::Range<usize> = 2..10;

/// Milliseconds with three digits that count.
pub(super) fn millis(nanos: u64) -> String {
    let ms = nanos as f64 / 1e6;
    match ms {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 10.0 => format!("{ms:.1}"),
        ms if ms >= 1.0 => format!("{ms:.2}"),
        ms => format!("{ms:.3}"),
    }
}

/// Number and bytes of a group's trims; `-` without any.
fn trims(group: &GroupResult) -> String {
    match group.trims {
        0 => "-".to_owned(),
        count => format!("{count}, {}", BinarySize(group.trimmed_bytes)),
    }
}

/// Whether the promises of a group were kept, in words; `-` without any.
pub(super) fn promises(group: &GroupResult) -> String {
    let mut words = Vec::new();
    match group.broken_seconds {
        None => {}
        Some(0) => words.push("minimum kept".to_owned()),
        Some(1) => words.push("minimum broken in 1 s".to_owned()),
        Some(count) => words.push(format!("minimum broken in {count} s")),
    }
    let late = [group.late_reads, group.late_writes, group.late_syncs];
    let late = late.into_iter().zip(["read", "write", "flush"]);
    match group.latency_kept {
        None => {}
        Some(true) => words.push("latency kept".to_owned()),
        Some(false) => {
            let late = late.filter_map(|(late, what)| Some((late.filter(|late| *late > 0)?, what)));
            let late: Vec<String> = late.map(|(late, what)| counted(late, what)).collect();
            words.push(format!("latency broken by {}", late.join(" and ")));
        }
    }
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

/// The rows of the table: everything together first, then group by group, each under every stack.
pub(super) fn rows(played: &[Played]) -> Vec<[String; 11]> {
    let mut names: Vec<&str> = Vec::new();
    let all = played.iter().flat_map(|replay| &replay.groups);
    for group in all {
        if !names.contains(&group.name.as_str()) {
            names.push(&group.name);
        }
    }
    names.sort_unstable();
    let mut rows = Vec::new();
    let row = |stack: &str, group: &GroupResult| {
        let latency = &group.latency;
        let times = [latency.mean, latency.p50, latency.p99, latency.p999, latency.max].map(millis);
        let [mean, p50, p99, p999, max] = times;
        let rate = format!("{:.2}", group.bytes_per_second / 1e6);
        let requests = group.requests.to_string();
        let (name, stack) = (group.name.clone(), stack.to_owned());
        [name, stack, requests, rate, mean, p50, p99, p999, max, trims(group), promises(group)]
    };
    rows.extend(played.iter().map(|replay| row(&replay.stack, &replay.all)));
    for name in names {
        for replay in played {
            let group = replay.groups.iter().find(|group| group.name == name);
            rows.extend(group.map(|group| row(&replay.stack, group)));
        }
    }
    rows
}

/// The sentence about the agreement.
pub(super) fn agreement_text(agreement: &Agreement) -> String {
    let all = &agreement.all;
    let mut text = format!(
        "Agreement with the recording under {}: mean latency {:+.1} %, p99 {:+.1} %, total {:+.1} %\n",
        agreement.stack, all.mean_percent, all.p99_percent, all.total_percent
    );
    if agreement.groups.len() > 1 {
        for group in &agreement.groups {
            let _ = writeln!(
                text,
                "  {}: mean latency {:+.1} %, p99 {:+.1} %, total {:+.1} %",
                group.name, group.mean_percent, group.p99_percent, group.total_percent
            );
        }
    }
    text
}

/// What was left out or repaired, a line each.
pub(super) fn notes_text(played: &[Played], notes: &Notes) -> Vec<String> {
    let mut lines: Vec<String> =
        notes.iter().map(|(what, count)| format!("{count}: {what}")).collect();
    for replay in played.iter().filter(|replay| replay.late > 0) {
        lines.push(format!(
            "{} under {}: requests sent late, because the engine was full; the wait counts as latency",
            replay.late, replay.stack
        ));
    }
    lines
}

/// The whole result.
pub fn text(agreement: Option<&Agreement>, played: &[Played], notes: &Notes) -> String {
    let mut text = agreement.map(agreement_text).unwrap_or_default();
    if !text.is_empty() {
        text.push('\n');
    }
    text += &text_table(PLAIN, HEADER.to_vec(), NUMBERS, rows(played));
    let notes = notes_text(played, notes);
    if !notes.is_empty() {
        text.push('\n');
        notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    }
    text
}
