//! The demo's result on a terminal: a table, bars, a verdict a stack.

use console::{Style, style};

use super::outcome::{Outcome, StackOutcome, megabytes, milliseconds};
use crate::output::table;

/// Columns of the longest bar.
const BAR_COLUMNS: f64 = 44.0;
/// Eighths of a column, from none to seven.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

fn mb(rate: u64) -> f64 {
    rate as f64 / 1e6
}

/// Everything that is printed at the end.
pub(crate) fn report(outcome: &Outcome) -> String {
    let mut text = String::from("\n") + &numbers(outcome) + "\n";
    let promised = megabytes(outcome.promised_bytes_per_s);
    text += &bars(
        outcome,
        &format!("target, MB/s (promised {promised})"),
        |s| mb(s.target.bytes_per_s),
        &|value| format!("{value:.1}"),
    );
    text += &bars(outcome, "all clients together, MB/s", |s| mb(s.total.bytes_per_s), &|value| {
        format!("{value:.0}")
    });
    text += &bars(
        outcome,
        "target's latency, 99 of 100 reads within",
        |s| s.target.latency_ns.p99 as f64,
        &|value| milliseconds(value as u64),
    );
    for stack in &outcome.stacks {
        let name = style(format!("{:<14}", stack.stack)).bold();
        let verdict = stack.verdict(outcome.promised_bytes_per_s);
        text += &format!("  {name} {}\n", colour(stack).apply_to(verdict));
    }
    if let Some(summary) = outcome.summary() {
        text += &format!("\n  {summary}\n");
    }
    if let Some(warning) = outcome.warning() {
        text += &format!("\n  {} {warning}\n", style("note:").bold().yellow());
    }
    text
}

fn numbers(outcome: &Outcome) -> String {
    let rows = outcome.stacks.iter().map(|stack| {
        let latency = &stack.target.latency_ns;
        vec![
            stack.stack.clone(),
            format!("{:.2}", mb(stack.target.bytes_per_s)),
            milliseconds(latency.p50),
            milliseconds(latency.p99),
            milliseconds(latency.max),
            format!("{:.1}", mb(stack.total.bytes_per_s)),
            format!("{:.0} %", stack.drive_utilisation * 100.0),
            if stack.promise_kept { "kept" } else { "broken" }.to_string(),
        ]
    });
    let header =
        ["stack", "target MB/s", "p50", "p99", "worst", "total MB/s", "drive busy", "minimum"];
    table(&header, &rows.collect::<Vec<_>>(), &[1, 2, 3, 4, 5, 6])
}

fn bars(
    outcome: &Outcome,
    title: &str,
    value: impl Fn(&StackOutcome) -> f64,
    show: &dyn Fn(f64) -> String,
) -> String {
    let largest = outcome.stacks.iter().map(&value).fold(f64::MIN_POSITIVE, f64::max);
    let mut text = format!("  {}\n", style(title).bold());
    for stack in &outcome.stacks {
        let value = value(stack);
        let drawn = colour(stack).apply_to(bar(value / largest));
        text += &format!("    {:<14} {drawn} {}\n", stack.stack, show(value));
    }
    text + "\n"
}

fn bar(part: f64) -> String {
    let eighths = (part * BAR_COLUMNS * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

fn colour(stack: &StackOutcome) -> Style {
    if stack.promise_kept { Style::new().green() } else { Style::new().red() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: bars are as long as their values. Method: none, an eighth, half, all.
    #[test]
    fn bars_are_as_long_as_their_values() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0 / (8.0 * BAR_COLUMNS)), "▏");
        assert_eq!(bar(0.5), "█".repeat(22));
        assert_eq!(bar(1.0).chars().count(), 44);
    }
}
