//! The page's pictures: for each experiment shares, rates and latencies with a dot for each run, which shows how results
//! are distributed over start offsets; and the ratios of all mixes.

use iofair_draw::{Axis, BOLD, FILE, Point, Sign, Svg, fill, legend};
use iofair_experiments::distinct;

use super::evidence::{Evidence, Numbers, Part, Row};
use super::score::{Kind, Mix, Of, Pair, ends, median, mixes};

const WORLDS: [(&str, &str, Of); 3] = [
    ("simulator", "#1f6feb", |row| &row.lab),
    ("live server", "#2da44e", |row| &row.live),
    ("kernel", "#cf222e", |row| &row.kernel),
];
const PANEL: f64 = 230.0;
const GAP: f64 = 30.0;
const LINE: f64 = 24.0;
const TOP: f64 = 62.0;
/// The style of lines between rows.
const BETWEEN: &str = "stroke=\"#eeeeee\"";

/// A number of a row in all its runs.
type Value = fn(&Numbers) -> &[f64];

/// Powers of ten around all numbers.
fn log_axis(name: &str, rows: &[Row], value: Value) -> Axis {
    let all = rows.iter().flat_map(|row| WORLDS.iter().flat_map(move |(.., of)| value(of(row))));
    let all: Vec<f64> = all.copied().filter(|number| *number > 0.0).collect();
    let [least, most] = if all.is_empty() { [1.0, 10.0] } else { ends(&all) };
    Axis::log(name, least, most)
}

/// A column from `left` on: its title, and its grid down to `bottom`.
fn column(svg: &mut Svg, axis: &Axis, left: f64, bottom: f64) {
    svg.text((left, 36.0), BOLD, &axis.name);
    let ticks =
        axis.ticks.iter().map(|(at, label)| (left + axis.place(*at) * PANEL, label.clone()));
    svg.columns(ticks, (54.0, bottom), 50.0, FILE);
}

/// A line from least to most, a dot for each run, and the median as a bar.
fn dots(svg: &mut Svg, (left, y): Point, numbers: &[f64], axis: &Axis, colour: &str) {
    if numbers.is_empty() {
        return;
    }
    let x = |value: f64| left + axis.place(value) * PANEL;
    let [least, most] = ends(numbers).map(x);
    let (middle, high) = (x(median(numbers)), y - 3.5);
    let stroke = format!("stroke=\"{colour}\"");
    svg.path(&format!("M{least:.1} {y:.1}H{most:.1}"), &stroke, "");
    svg.path(&format!("M{middle:.1} {high:.1}v7"), &format!("{stroke} stroke-width=\"2\""), "");
    let style = format!("{} fill-opacity=\"0.6\"", fill(colour));
    for value in numbers {
        svg.circle((x(*value), y), 2.0, &style, "");
    }
}

/// One experiment.
fn experiment(short: &str, rows: &[Row]) -> String {
    const LEFT: f64 = 330.0;
    let share: Value = |numbers| &numbers.share_percent;
    let log = |name, value: Value| (log_axis(name, rows, value), value);
    let columns: [(Axis, Value); 4] = [
        (Axis::exact("share, %", 100.0), share),
        log("rate, MB/s", |numbers| &numbers.rate),
        log("mean latency, ms", |numbers| &numbers.mean_ms),
        log("p99, ms", |numbers| &numbers.p99_ms),
    ];
    let (wide, high) = (LEFT + 4.0 * (PANEL + GAP), TOP + rows.len() as f64 * LINE);
    let mut svg = Svg::new();
    let styles = WORLDS.map(|(name, colour, _)| (fill(colour), name));
    legend(&mut svg, (4.0, 20.0), styles.iter().map(|(style, name)| (Sign::Dot(style), *name)));
    for (index, (axis, value)) in columns.iter().enumerate() {
        let left = LEFT + index as f64 * (PANEL + GAP);
        column(&mut svg, axis, left, high);
        for (index, row) in rows.iter().enumerate() {
            let y = TOP + (index as f64 + 0.5) * LINE;
            for (offset, (_, colour, of)) in [-7.0, 0.0, 7.0].into_iter().zip(&WORLDS) {
                dots(&mut svg, (left, y + offset), value(of(row)), axis, colour);
            }
        }
    }
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + index as f64 * LINE;
        let label = format!("{}: {}", row.place(), row.client);
        svg.text((4.0, y + LINE / 2.0 + 4.0), "", &label);
        svg.path(&format!("M0 {y:.0}H{wide:.0}"), BETWEEN, "");
    }
    svg.file(&format!("{short}: shares, rates and latencies, each run a dot"), (wide, high + 10.0))
}

/// Ratios of all mixes, simulator to kernel, a strip for each stack and kind.
fn ratios(evidence: &Evidence) -> String {
    const RATIOS: [f64; 7] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
    const LEFT: f64 = 140.0;
    let [near, far] =
        ["#2da44e", "#cf222e"].map(|colour| format!("{} fill-opacity=\"0.7\"", fill(colour)));
    let all = mixes(evidence);
    let stacks = distinct(all.iter().map(Mix::stack));
    let high = TOP + stacks.len() as f64 * LINE;
    let mut svg = Svg::new();
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        let left = LEFT + index as f64 * (PANEL + GAP);
        let name = format!("{}: simulator / kernel", kind.name());
        let ticks = RATIOS.map(|ratio| (ratio, ratio.to_string())).to_vec();
        let axis = Axis::log(&name, RATIOS[0], RATIOS[6]).with_ticks(ticks);
        let x = |ratio: f64| left + axis.place(ratio) * PANEL;
        let (from, to) = (x(1.0 - kind.aim()), x(1.0 + kind.aim()));
        let band = "fill=\"#2da44e\" fill-opacity=\"0.2\"";
        svg.rect((from, 54.0), (to - from, high - 54.0), band, "");
        column(&mut svg, &axis, left, high);
        for (line, stack) in stacks.iter().enumerate() {
            let own = all.iter().filter(|mix| mix.stack() == *stack);
            let pairs = own.flat_map(|mix: &Mix<'_>| mix.pairs(|row| &row.lab));
            for (index, pair) in pairs.filter(|pair: &Pair| pair.kind == kind).enumerate() {
                // Spread over the height of the strip, so that equal ones can be told apart.
                let y = TOP + (line as f64 + 0.5) * LINE + (index % 5) as f64 * 3.5 - 7.0;
                svg.circle(
                    (x(pair.ratio()), y),
                    2.5,
                    if pair.is_near() { &near } else { &far },
                    "",
                );
            }
        }
    }
    for (line, stack) in stacks.iter().enumerate() {
        svg.text((4.0, TOP + (line as f64 + 0.5) * LINE + 4.0), "", stack);
    }
    svg.file("Ratios of simulator and kernel by stack", (LEFT + 3.0 * (PANEL + GAP), high + 10.0))
}

/// The file with the picture of an experiment, by its folder and name: `truth-sizes.svg`.
pub(crate) fn name(experiment: &str) -> String {
    let mut parts = experiment.rsplit('/');
    let name = parts.next().unwrap_or(experiment);
    format!("{}-{name}.svg", parts.next().filter(|name| !name.is_empty()).unwrap_or("truth"))
}

/// The file with the picture of the ratios.
pub(crate) fn ratios_name(evidence: &Evidence) -> String {
    let first = evidence.experiments.first().and_then(|part| part.experiment.rsplit_once('/'));
    name(&format!("{}/ratios", first.map_or("", |(folder, _)| folder)))
}

/// Names and texts of all pictures.
pub fn pictures(evidence: &Evidence) -> Vec<(String, String)> {
    let short = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let of =
        |part: &Part| (name(&part.experiment), experiment(&short(&part.experiment), &part.rows));
    let mut pictures: Vec<(String, String)> = evidence.experiments.iter().map(of).collect();
    pictures.push((ratios_name(evidence), ratios(evidence)));
    pictures
}
