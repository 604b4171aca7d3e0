//! The page's pictures: for each experiment shares, rates and latencies with a dot for each run, which shows how results
//! are distributed over start offsets; and the ratios of all mixes.

use std::fmt::Write;

use iofair_simulator::report::{escape, picture_file};

use super::evidence::{Evidence, Numbers, Part, Row};
use super::score::{Kind, Mix, Of, Pair, ends, median, mixes};

const WORLDS: [(&str, &str, Of); 3] = [
    ("simulator", "#1f6feb", |it| &it.lab),
    ("live server", "#2da44e", |it| &it.live),
    ("kernel", "#cf222e", |it| &it.kernel),
];
const LEFT: f64 = 330.0;
const PANEL: f64 = 230.0;
const GAP: f64 = 30.0;
const LINE: f64 = 24.0;
const TOP: f64 = 62.0;

/// A number of a row in all its runs.
type Value = fn(&Numbers) -> &[f64];

/// A column of a picture.
struct Panel {
    title: &'static str,
    value: Value,
    scale: Scale,
}

/// Places numbers between 0 and 1.
#[derive(Clone, Copy)]
enum Scale {
    /// From 0 to this.
    Linear(f64),
    /// Powers of ten.
    Log(i32, i32),
}

impl Scale {
    fn at(self, value: f64) -> f64 {
        match self {
            Self::Linear(most) => value / most,
            Self::Log(from, to) => {
                let power = value.max(1e-9).log10().clamp(f64::from(from), f64::from(to));
                (power - f64::from(from)) / f64::from(to - from)
            }
        }
    }
    fn marks(self) -> Vec<(f64, String)> {
        let mark = |value: f64| (value, format!("{value}"));
        match self {
            Self::Linear(most) => (0..=4).map(|n| mark(most * f64::from(n) / 4.0)).collect(),
            Self::Log(from, to) => (from..=to).map(|n| mark(10f64.powi(n))).collect(),
        }
    }
}

/// Powers of ten around all numbers.
fn log_scale(rows: &[Row], value: Value) -> Scale {
    let all = rows.iter().flat_map(|row| WORLDS.iter().flat_map(move |it| value((it.2)(row))));
    let all: Vec<f64> = all.copied().filter(|it| *it > 0.0).collect();
    let [least, most] = ends(&all);
    if all.is_empty() {
        return Scale::Log(0, 1);
    }
    let from = least.log10().floor() as i32;
    Scale::Log(from, (most.log10().ceil() as i32).max(from + 1))
}

fn legend(body: &mut String) {
    for (n, (name, colour, _)) in WORLDS.iter().enumerate() {
        let at = 10.0 + n as f64 * 100.0;
        let _ = writeln!(
            body,
            "<circle cx=\"{at:.0}\" cy=\"16\" r=\"4\" fill=\"{colour}\"/><text x=\"{:.0}\" y=\"20\" font-size=\"12\">{name}</text>",
            at + 8.0
        );
    }
}

fn axis(body: &mut String, left: f64, high: f64, (title, scale): (&str, Scale)) {
    let _ = writeln!(
        body,
        "<text x=\"{left:.0}\" y=\"36\" font-size=\"12\" font-weight=\"600\">{title}</text>"
    );
    for (value, label) in scale.marks() {
        let at = left + scale.at(value) * PANEL;
        let _ = writeln!(
            body,
            "<line x1=\"{at:.0}\" x2=\"{at:.0}\" y1=\"54\" y2=\"{high:.0}\" stroke=\"#dddddd\"/>\
             <text x=\"{at:.0}\" y=\"50\" font-size=\"10\" text-anchor=\"middle\">{label}</text>"
        );
    }
}

/// A line from least to most, a dot for each run, and the median as a bar.
fn dots(body: &mut String, (left, y): (f64, f64), (numbers, scale, colour): (&[f64], Scale, &str)) {
    if numbers.is_empty() {
        return;
    }
    let x = |value: f64| left + scale.at(value) * PANEL;
    let ([least, most], middle) = (ends(numbers), x(median(numbers)));
    let _ = writeln!(
        body,
        "<g stroke=\"{colour}\" fill=\"{colour}\"><line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <line x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke-width=\"2\"/></g>",
        x(least),
        x(most),
        y - 3.5,
        y + 3.5
    );
    for value in numbers {
        let _ = write!(
            body,
            "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2\" fill=\"{colour}\" fill-opacity=\"0.6\"/>",
            x(*value)
        );
    }
    body.push('\n');
}

/// One experiment.
fn experiment(short: &str, rows: &[Row]) -> String {
    let share: Value = |it| &it.share_percent;
    let panels: [(&str, Value, Scale); 4] = [
        ("share, %", share, Scale::Linear(100.0)),
        ("rate, MB/s", |it| &it.rate, log_scale(rows, |it| &it.rate)),
        ("mean latency, ms", |it| &it.mean_ms, log_scale(rows, |it| &it.mean_ms)),
        ("p99, ms", |it| &it.p99_ms, log_scale(rows, |it| &it.p99_ms)),
    ];
    let panels = panels.map(|(title, value, scale)| Panel { title, value, scale });
    let high = TOP + rows.len() as f64 * LINE;
    let mut body = String::new();
    legend(&mut body);
    for (n, panel) in panels.iter().enumerate() {
        let left = LEFT + n as f64 * (PANEL + GAP);
        axis(&mut body, left, high, (panel.title, panel.scale));
        for (n, row) in rows.iter().enumerate() {
            let y = TOP + (n as f64 + 0.5) * LINE;
            for (offset, (_, colour, of)) in [-7.0, 0.0, 7.0].into_iter().zip(&WORLDS) {
                let numbers = (panel.value)(of(row));
                dots(&mut body, (left, y + offset), (numbers, panel.scale, colour));
            }
        }
    }
    let wide = LEFT + 4.0 * (PANEL + GAP);
    for (n, row) in rows.iter().enumerate() {
        let y = TOP + n as f64 * LINE;
        let label = escape(&format!("{}: {}", row.place(), row.client));
        let _ = writeln!(
            body,
            "<text x=\"4\" y=\"{:.0}\" font-size=\"11\">{label}</text><line x1=\"0\" x2=\"{wide:.0}\" y1=\"{y:.0}\" y2=\"{y:.0}\" \
             stroke=\"#eeeeee\"/>",
            y + LINE / 2.0 + 4.0
        );
    }
    let title = format!("{short}: shares, rates and latencies, each run a dot");
    picture_file(&title, (wide, high + 10.0), &body)
}

/// Ratios of all mixes, simulator to kernel, a strip for each stack and kind.
fn ratios(evidence: &Evidence) -> String {
    const RATIOS: [f64; 7] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
    let all = mixes(evidence);
    let mut stacks: Vec<&str> = Vec::new();
    for mix in &all {
        if !stacks.contains(&mix.rows[0].stack.as_str()) {
            stacks.push(&mix.rows[0].stack);
        }
    }
    let high = TOP + stacks.len() as f64 * LINE;
    let mut body = String::new();
    let at = |ratio: f64| (ratio.clamp(0.1, 10.0).log10() + 1.0) / 2.0 * PANEL;
    for (k, kind) in Kind::ALL.into_iter().enumerate() {
        let left = 140.0 + k as f64 * (PANEL + GAP);
        let (from, to) = (left + at(1.0 - kind.aim()), left + at(1.0 + kind.aim()));
        let _ = writeln!(
            body,
            "<text x=\"{left:.0}\" y=\"20\" font-size=\"12\" font-weight=\"600\">{}: simulator / kernel</text>\
             <rect x=\"{from:.1}\" y=\"54\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#2da44e\" fill-opacity=\"0.2\"/>",
            kind.name(),
            to - from,
            high - 54.0
        );
        for ratio in RATIOS {
            let x = left + at(ratio);
            let _ = writeln!(
                body,
                "<line x1=\"{x:.0}\" x2=\"{x:.0}\" y1=\"54\" y2=\"{high:.0}\" stroke=\"#dddddd\"/>\
                 <text x=\"{x:.0}\" y=\"50\" font-size=\"10\" text-anchor=\"middle\">{ratio}</text>"
            );
        }
        for (n, stack) in stacks.iter().enumerate() {
            let y = TOP + (n as f64 + 0.5) * LINE;
            let own = all.iter().filter(|mix| mix.rows[0].stack == *stack);
            let pairs = own.flat_map(|mix: &Mix<'_>| mix.pairs(|it| &it.lab));
            let pairs: Vec<Pair> = pairs.filter(|it| it.kind == kind).collect();
            for (m, pair) in pairs.iter().enumerate() {
                // Spread over the height of the strip, so that equal ones can be told apart.
                let y = y + (m % 5) as f64 * 3.5 - 7.0;
                let colour = if pair.is_near() { "#2da44e" } else { "#cf222e" };
                let x = left + at(pair.ratio());
                let _ = write!(
                    body,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\" fill-opacity=\"0.7\"/>"
                );
            }
        }
    }
    for (n, stack) in stacks.iter().enumerate() {
        let y = TOP + (n as f64 + 0.5) * LINE + 4.0;
        let _ =
            writeln!(body, "<text x=\"4\" y=\"{y:.0}\" font-size=\"12\">{}</text>", escape(stack));
    }
    let wide = 140.0 + 3.0 * (PANEL + GAP);
    picture_file("Ratios of simulator and kernel by stack", (wide, high + 10.0), &body)
}

/// The file with the picture of an experiment, by its folder and name: `truth-sizes.svg`.
pub(super) fn name(experiment: &str) -> String {
    let mut parts = experiment.rsplit('/');
    let name = parts.next().unwrap_or(experiment);
    format!("{}-{name}.svg", parts.next().filter(|it| !it.is_empty()).unwrap_or("truth"))
}

/// The file with the picture of the ratios.
pub(super) fn ratios_name(evidence: &Evidence) -> String {
    let first = evidence.experiments.first().and_then(|part| part.experiment.rsplit_once('/'));
    name(&format!("{}/ratios", first.map_or("", |(folder, _)| folder)))
}

/// Names and texts of all pictures.
pub(crate) fn pictures(evidence: &Evidence) -> Vec<(String, String)> {
    let short = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let of =
        |part: &Part| (name(&part.experiment), experiment(&short(&part.experiment), &part.rows));
    let mut pictures: Vec<(String, String)> = evidence.experiments.iter().map(of).collect();
    pictures.push((ratios_name(evidence), ratios(evidence)));
    pictures
}
