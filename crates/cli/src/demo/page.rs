//! The demo's result as one offline HTML page: bars, what it looked like while it ran, all numbers.

use std::fmt::Write;

use iofair_simulator::report::{escape, picture_file};

use super::outcome::{Outcome, StackOutcome, megabytes, milliseconds};

/// Colours that also differ in brightness, for those who see no green or red.
const KEPT: &str = "#15803d";
const BROKEN: &str = "#dc2626";
const PLAIN: &str = "#2563eb";

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #0f172a; --soft: #64748b; --line: #cbd5e1; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e2e8f0; --soft: #94a3b8; --line: #334155; --paper: #0f172a; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 14px; }
svg .soft { fill: var(--soft); font-size: 12px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
.kept { color: #15803d; font-weight: 600; } .broken { color: #dc2626; font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); gap: 1rem; }
code { background: color-mix(in srgb, var(--soft) 15%, transparent); padding: .1rem .3rem; border-radius: 4px; }
";

fn mb(rate: u64) -> f64 {
    rate as f64 / 1e6
}

/// The whole page.
pub(crate) fn page(outcome: &Outcome, next: &[String]) -> String {
    let drive = match outcome.is_real {
        true => format!("the drive of {}", outcome.drive),
        false => format!("an emulated {}", outcome.drive),
    };
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>iofair demo: who gets the drive?</title>\n<style>{STYLE}</style></head><body>\n\
         <h1>Who gets the drive?</h1>\n\
         <p>One client reads 4 KiB at random and was promised <b>{} MB/s</b>; {} read \
         sequentially, two windows of 256 KiB ahead. All are NBD clients of one server on \
         {}; each stack ran for {:.0} s, after one reader had been alone (from \
         which BFQ learns what the drive can do) and a ramp of all.</p>\n",
        megabytes(outcome.promised_bytes_per_s),
        readers(outcome.clients - 1),
        escape(&drive),
        outcome.seconds
    );
    for stack in &outcome.stacks {
        let class = if stack.promise_kept { "kept" } else { "broken" };
        let verdict = escape(&stack.verdict(outcome.promised_bytes_per_s));
        let _ = writeln!(
            html,
            "<p><code>{}</code> <span class=\"{class}\">{verdict}</span></p>",
            escape(&stack.stack)
        );
    }
    if let Some(summary) = outcome.summary() {
        let _ = writeln!(html, "<p>{}.</p>", escape(&summary));
    }
    if let Some(warning) = outcome.warning() {
        let _ = writeln!(html, "<p><b>Note:</b> {}</p>", escape(&warning));
    }
    html += "<div class=\"charts\">\n";
    for (title, bars, whole) in charts(outcome) {
        let _ = writeln!(
            html,
            "<figure style=\"margin:0\"><h2>{title}</h2><svg viewBox=\"0 0 {CHART} {whole}\" role=\"img\" \
             aria-label=\"{title}\">{bars}</svg></figure>"
        );
    }
    html += "</div>\n<h2>While it ran</h2>\n<p class=\"soft\">Target (solid, left scale) and all clients \
             together (pale, right scale), MB/s over seconds; the dashed line is the promise.</p>\n\
             <div class=\"charts\">\n";
    for stack in &outcome.stacks {
        html += &timeline(outcome, stack);
    }
    html += "</div>\n<h2>Numbers</h2>\n";
    html += &numbers(outcome);
    html += "<h2>Next</h2>\n";
    for command in next {
        let _ = writeln!(html, "<p><code>{}</code></p>", escape(command));
    }
    html + "</body></html>\n"
}

/// The charts alone, side by side, as a picture of its own.
pub(crate) fn picture(outcome: &Outcome) -> String {
    let charts = charts(outcome);
    let high = charts.iter().map(|(.., whole)| *whole).fold(0.0, f64::max) + 40.0;
    let mut body =
        "<style>text { font-size: 14px } .soft { fill: #64748b; font-size: 12px }</style>\n"
            .to_owned();
    for (i, (title, bars, _)) in charts.iter().enumerate() {
        let x = CHART * i as f64;
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"24\" font-weight=\"600\">{title}</text>\n<g transform=\"translate({x} 36)\">{}</g>",
            x + LEFT,
            bars.replace("var(--ink)", "#262626")
        );
    }
    picture_file("who gets the drive, by stack", (CHART * charts.len() as f64, high), &body)
}

/// Width of a chart, and where its bars begin.
const CHART: f64 = 360.0;
const LEFT: f64 = 96.0;

/// Title, bars and height of each chart.
fn charts(outcome: &Outcome) -> Vec<(&'static str, String, f64)> {
    let target = |s: &StackOutcome| {
        Bar::new(s, mb(s.target.bytes_per_s), format!("{:.1}", mb(s.target.bytes_per_s)))
    };
    let plain =
        |s: &StackOutcome, value: f64, label| Bar { colour: PLAIN, ..Bar::new(s, value, label) };
    let total = |s: &StackOutcome| {
        plain(s, mb(s.total.bytes_per_s), format!("{:.0}", mb(s.total.bytes_per_s)))
    };
    let worst = |s: &StackOutcome| {
        plain(s, s.target.latency_ns.max as f64, milliseconds(s.target.latency_ns.max))
    };
    let promised = mb(outcome.promised_bytes_per_s);
    let chart = |title, (bars, whole)| (title, bars, whole);
    vec![
        chart("Target, MB/s", bars(outcome, target, Some(promised))),
        chart("All clients together, MB/s", bars(outcome, total, None)),
        chart("Target's worst read", bars(outcome, worst, None)),
    ]
}

fn readers(count: usize) -> String {
    match count {
        1 => "another one".to_string(),
        count => format!("{count} others"),
    }
}

struct Bar {
    value: f64,
    label: String,
    colour: &'static str,
}

impl Bar {
    fn new(stack: &StackOutcome, value: f64, label: String) -> Self {
        Self { value, label, colour: if stack.promise_kept { KEPT } else { BROKEN } }
    }
}

/// A chart's bars, and its height.
fn bars(outcome: &Outcome, bar: impl Fn(&StackOutcome) -> Bar, line: Option<f64>) -> (String, f64) {
    const WIDE: f64 = 190.0;
    const ROW: f64 = 34.0;
    let drawn: Vec<(&str, Bar)> =
        outcome.stacks.iter().map(|stack| (stack.stack.as_str(), bar(stack))).collect();
    let values = drawn.iter().map(|(_, bar)| bar.value).chain(line);
    let largest = values.fold(f64::MIN_POSITIVE, f64::max);
    let height = 8.0 + ROW * drawn.len() as f64;
    let mut svg = String::new();
    for (i, (name, bar)) in drawn.iter().enumerate() {
        let y = 4.0 + ROW * i as f64;
        let width = (bar.value / largest * WIDE).max(1.0);
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"24\" rx=\"3\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            LEFT - 8.0,
            y + 17.0,
            escape(name),
            bar.colour,
            LEFT + width + 8.0,
            y + 17.0,
            escape(&bar.label)
        );
    }
    if let Some(line) = line {
        let x = LEFT + line / largest * WIDE;
        let _ = write!(
            svg,
            "<path d=\"M{x:.1} 0V{height}\" stroke=\"var(--ink)\" stroke-dasharray=\"4 3\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">promised {line:.1}</text>",
            height + 14.0
        );
    }
    (svg, height + 20.0)
}

/// Target and total over time; each on its own scale, the same in every chart.
fn timeline(outcome: &Outcome, stack: &StackOutcome) -> String {
    const WIDE: f64 = 290.0;
    const HIGH: f64 = 120.0;
    let samples = outcome.stacks.iter().flat_map(|stack| &stack.samples);
    let promised = mb(outcome.promised_bytes_per_s);
    let (mut longest, mut target_max, mut total_max) = (1e-9, promised * 1.2, 1e-9);
    for sample in samples {
        longest = f64::max(longest, sample.seconds);
        target_max = f64::max(target_max, mb(sample.target_bytes_per_s));
        total_max = f64::max(total_max, mb(sample.total_bytes_per_s));
    }
    let path = |value: &dyn Fn(usize) -> f64, most: f64| {
        let points = stack.samples.iter().enumerate().map(|(i, sample)| {
            let x = 30.0 + sample.seconds / longest * WIDE;
            format!("{x:.1},{:.1}", 10.0 + HIGH * (1.0 - value(i) / most))
        });
        points.collect::<Vec<_>>().join(" ")
    };
    let total = path(&|i| mb(stack.samples[i].total_bytes_per_s), total_max);
    let target = path(&|i| mb(stack.samples[i].target_bytes_per_s), target_max);
    let colour = if stack.promise_kept { KEPT } else { BROKEN };
    let promise_y = 10.0 + HIGH * (1.0 - promised / target_max);
    let base = 10.0 + HIGH;
    format!(
        "<figure style=\"margin:0\"><figcaption><code>{}</code></figcaption>\
         <svg viewBox=\"0 0 360 152\" role=\"img\" aria-label=\"rates over time\">\
         <path d=\"M30 {base}H320\" stroke=\"var(--line)\"/>\
         <path d=\"M30 {promise_y:.1}H320\" stroke=\"var(--ink)\" stroke-dasharray=\"4 3\"/>\
         <polyline points=\"{total}\" fill=\"none\" stroke=\"{PLAIN}\" stroke-opacity=\".4\" stroke-width=\"2\"/>\
         <polyline points=\"{target}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>\
         <text class=\"soft\" x=\"26\" y=\"16\" text-anchor=\"end\">{target_max:.0}</text>\
         <text class=\"soft\" x=\"26\" y=\"{base}\" text-anchor=\"end\">0</text>\
         <text class=\"soft\" x=\"324\" y=\"16\">{total_max:.0}</text>\
         <text class=\"soft\" x=\"320\" y=\"148\" text-anchor=\"end\">{longest:.0} s</text>\
         </svg></figure>\n",
        escape(&stack.stack)
    )
}

fn numbers(outcome: &Outcome) -> String {
    let mut html = String::from(
        "<table><tr><th>stack</th><th>client</th><th>MB/s</th><th>reads/s</th><th>p50</th>\
         <th>p99</th><th>p99.9</th><th>max</th><th>drive busy</th></tr>\n",
    );
    for stack in &outcome.stacks {
        for (i, client) in std::iter::once(&stack.target).chain(&stack.readers).enumerate() {
            let latency = &client.latency_ns;
            let first = |text: String| if i == 0 { text } else { String::new() };
            let _ = writeln!(
                html,
                "<tr><td>{}</td><td>{}</td><td>{:.2}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td>{}</td><td>{}</td></tr>",
                first(escape(&stack.stack)),
                escape(&client.name),
                mb(client.bytes_per_s),
                client.iops,
                milliseconds(latency.p50),
                milliseconds(latency.p99),
                milliseconds(latency.p999),
                milliseconds(latency.max),
                first(format!("{:.0} %", stack.drive_utilisation * 100.0)),
            );
        }
    }
    html + "</table>\n"
}
