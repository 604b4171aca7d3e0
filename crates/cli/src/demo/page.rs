//! The demo's result as one offline HTML page: bars, what it looked like while it ran, all numbers.

use std::fmt::Write;

use iofair_draw::{BOLD, END, FILE, Look, MIDDLE, PAGE, Svg, escape, fill, line};

use super::outcome::{Outcome, StackOutcome, megabytes, milliseconds};

/// Colours that also differ in brightness, for those who see no green or red.
const KEPT: &str = "#15803d";
const BROKEN: &str = "#dc2626";
const PLAIN: &str = "#2563eb";

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
        "<p>One client reads 4 KiB at random and was promised <b>{} MB/s</b>; {} read \
         sequentially, two windows of 256 KiB ahead. All are NBD clients of one server on \
         {}; each run took {} s, after one reader had been alone (from \
         which BFQ learns what the drive can do) and a ramp of all.</p>\n",
        megabytes(outcome.promised_bytes_per_s),
        readers(outcome.clients - 1),
        escape(&drive),
        outcome.seconds
    );
    for stack in &outcome.stacks {
        let class = if stack.promise_kept { "holds" } else { "does_not_hold" };
        let verdict = escape(&stack.verdict(outcome.promised_bytes_per_s));
        let _ = writeln!(
            html,
            "<p><code>{}</code> <span class=\"verdict {class}\">{verdict}</span></p>",
            escape(&stack.stack)
        );
    }
    if let Some(summary) = outcome.summary() {
        let _ = writeln!(html, "<p>{}.</p>", escape(&summary));
    }
    if let Some(warning) = outcome.warning() {
        let _ = writeln!(html, "<p><b>Note:</b> {}</p>", escape(&warning));
    }
    html += "<div class=\"card\"><div class=\"charts\">\n";
    for chart in charts(outcome) {
        let mut svg = Svg::new();
        let high = chart.draw(&mut svg, PAGE);
        let picture = svg.in_page(chart.title, (CHART, high));
        let _ = writeln!(html, "<div><h3>{}</h3>{picture}</div>", chart.title);
    }
    html += "</div></div>\n<div class=\"card\"><h2>While it ran</h2>\n<p class=\"soft\">Target (solid, left scale) and all clients \
             together (pale, right scale), MB/s over seconds; the dashed line is the promise.</p>\n\
             <div class=\"charts\">\n";
    for stack in &outcome.stacks {
        html += &timeline(outcome, stack);
    }
    html += "</div></div>\n<div class=\"card\"><h2>Numbers</h2>\n";
    html += &numbers(outcome);
    html += "</div>\n<div class=\"card\"><h2>Next</h2>\n";
    for command in next {
        let _ = writeln!(html, "<p><code>{}</code></p>", escape(command));
    }
    html += "</div>\n";
    iofair_draw::page("iofair demo: who gets the drive?", "Who gets the drive?", &html)
}

/// The charts alone, side by side, as a picture of its own.
pub(crate) fn picture(outcome: &Outcome) -> String {
    let charts = charts(outcome);
    let (mut svg, mut highest) = (Svg::new(), 0.0);
    for (index, chart) in charts.iter().enumerate() {
        svg.moved((CHART * index as f64, 36.0), |svg| {
            svg.text((LEFT, -12.0), BOLD, chart.title);
            highest = chart.draw(svg, FILE).max(highest);
        });
    }
    svg.file("who gets the drive, by stack", (CHART * charts.len() as f64, highest + 40.0))
}

/// Width of a chart, and where its bars begin.
const CHART: f64 = 360.0;
const LEFT: f64 = 96.0;

/// Bars by stack, and a line with its value.
struct Chart {
    title: &'static str,
    bars: Vec<Bar>,
    promised: Option<f64>,
}

struct Bar {
    stack: String,
    value: f64,
    label: String,
    colour: &'static str,
}

fn charts(outcome: &Outcome) -> [Chart; 3] {
    let bars = |bar: &dyn Fn(&StackOutcome) -> (f64, String, &'static str)| {
        let all = outcome.stacks.iter().map(|stack| {
            let (value, label, colour) = bar(stack);
            Bar { stack: stack.stack.clone(), value, label, colour }
        });
        all.collect()
    };
    let target = bars(&|stack| {
        let rate = mb(stack.target.bytes_per_s);
        (rate, format!("{rate:.1}"), verdict_colour(stack))
    });
    let total = bars(&|stack| {
        let rate = mb(stack.total.bytes_per_s);
        (rate, format!("{rate:.0}"), PLAIN)
    });
    let worst = bars(&|stack| {
        let longest = stack.target.latency_ns.max;
        (longest as f64, milliseconds(longest), PLAIN)
    });
    let promised = Some(mb(outcome.promised_bytes_per_s));
    [
        Chart { title: "Target, MB/s", bars: target, promised },
        Chart { title: "All clients together, MB/s", bars: total, promised: None },
        Chart { title: "Target's worst read", bars: worst, promised: None },
    ]
}

fn verdict_colour(stack: &StackOutcome) -> &'static str {
    if stack.promise_kept { KEPT } else { BROKEN }
}

impl Chart {
    /// Draws the bars; how high they are together.
    fn draw(&self, svg: &mut Svg, look: Look) -> f64 {
        const WIDE: f64 = 190.0;
        const ROW: f64 = 34.0;
        let values = self.bars.iter().map(|bar| bar.value).chain(self.promised);
        let largest = values.fold(f64::MIN_POSITIVE, f64::max);
        let high = 8.0 + ROW * self.bars.len() as f64;
        let end = format!("{END} {}", look.ink);
        for (index, bar) in self.bars.iter().enumerate() {
            let y = 4.0 + ROW * index as f64;
            let wide = (bar.value / largest * WIDE).max(1.0);
            svg.text((LEFT - 8.0, y + 16.0), &end, &bar.stack);
            svg.rect((LEFT, y), (wide, 24.0), &format!("rx=\"3\" {}", fill(bar.colour)), "");
            svg.text((LEFT + wide + 8.0, y + 16.0), look.ink, &bar.label);
        }
        if let Some(promised) = self.promised {
            let x = LEFT + promised / largest * WIDE;
            let style = format!("{} stroke-dasharray=\"4 3\"", look.mark);
            svg.path(&format!("M{x:.1} 0V{high}"), &style, "");
            let text = format!("promised {promised:.1}");
            svg.text((x, high + 14.0), &format!("{MIDDLE} {}", look.soft), &text);
        }
        high + 20.0
    }
}

fn readers(count: usize) -> String {
    match count {
        1 => "another one".to_string(),
        count => format!("{count} others"),
    }
}

/// Target and total over time; each on its own scale, the same in every chart.
fn timeline(outcome: &Outcome, stack: &StackOutcome) -> String {
    const LEFT: f64 = 30.0;
    const TOP: f64 = 10.0;
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
    let path = |value: &dyn Fn(usize) -> u64, most: f64| {
        line(stack.samples.iter().enumerate().map(|(index, sample)| {
            let up = mb(value(index)) / most;
            (LEFT + sample.seconds / longest * WIDE, TOP + HIGH * (1.0 - up))
        }))
    };
    let total = path(&|index| stack.samples[index].total_bytes_per_s, total_max);
    let target = path(&|index| stack.samples[index].target_bytes_per_s, target_max);
    let style = |colour: &str, rest: &str| format!("fill=\"none\" stroke=\"{colour}\" {rest}");
    let (right, bottom, end) = (LEFT + WIDE, TOP + HIGH, format!("{END} {}", PAGE.soft));
    let promise = TOP + HIGH * (1.0 - promised / target_max);
    let mut svg = Svg::new();
    svg.path(&format!("M{LEFT} {bottom}H{right}"), PAGE.grid, "");
    let dashed = format!("{} stroke-dasharray=\"4 3\"", PAGE.mark);
    svg.path(&format!("M{LEFT} {promise:.1}H{right}"), &dashed, "");
    svg.path(&total, &style(PLAIN, "stroke-opacity=\".4\" stroke-width=\"2\""), "");
    svg.path(&target, &style(verdict_colour(stack), "stroke-width=\"2.5\""), "");
    svg.text((LEFT - 4.0, TOP + 6.0), &end, &format!("{target_max:.0}"));
    svg.text((LEFT - 4.0, bottom), &end, "0");
    svg.text((right + 4.0, TOP + 6.0), PAGE.soft, &format!("{total_max:.0}"));
    svg.text((right, bottom + 18.0), &end, &format!("{longest:.0} s"));
    let picture = svg.in_page("rates over time", (CHART, bottom + 22.0));
    format!("<div><h3>{}</h3>{picture}</div>\n", escape(&stack.stack))
}

fn numbers(outcome: &Outcome) -> String {
    let mut html = String::from("<div class=\"scroll\"><table><tr><th>stack</th><th>client</th>");
    for name in ["MB/s", "reads/s", "p50", "p99", "p99.9", "max", "drive busy"] {
        let _ = write!(html, "<th class=\"n\">{name}</th>");
    }
    html += "</tr>\n";
    for stack in &outcome.stacks {
        for (i, client) in std::iter::once(&stack.target).chain(&stack.readers).enumerate() {
            let latency = &client.latency_ns;
            let first = |text: String| if i == 0 { text } else { String::new() };
            let _ = write!(
                html,
                "<tr><td>{}</td><td>{}</td>",
                first(escape(&stack.stack)),
                escape(&client.name)
            );
            let rate = format!("{:.2}", mb(client.bytes_per_s));
            let times = [latency.p50, latency.p99, latency.p999, latency.max].map(milliseconds);
            let busy = first(format!("{:.0} %", stack.drive_utilisation * 100.0));
            for cell in [rate, client.iops.to_string()].into_iter().chain(times).chain([busy]) {
                let _ = write!(html, "<td class=\"n\">{cell}</td>");
            }
            html += "</tr>\n";
        }
    }
    html + "</table></div>\n"
}
