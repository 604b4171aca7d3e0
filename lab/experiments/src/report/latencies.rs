//! Latencies in pages: by percentile, and over time.

use iofair_draw::{Axis, Mark, Plot, STACKS, Scale, legend_of_stacks, stack, tick_label};

use super::number::number;

/// Pixels between the ends of a chart.
const WIDE: f64 = 290.0;
/// Parts of an axis that a screen shows apart.
const PIXEL: f64 = 1.0 / WIDE;

/// One stack's latencies: nanoseconds and share of calls not above, ascending.
pub(super) struct Curve<'a> {
    pub(super) name: &'a str,
    pub(super) colour: usize,
    pub(super) points: &'a [(u64, f64)],
}

/// Labels of the axis of shares: each further "nine".
const SHARES: [(f64, &str); 8] = [
    (0.0, "0"),
    (0.5, "50"),
    (0.9, "90"),
    (0.99, "99"),
    (0.999, "99.9"),
    (0.9999, "99.99"),
    (0.99999, "99.999"),
    (0.999999, "99.9999"),
];

/// How many nines the curves need: those of the last call but one.
fn nines(curves: &[Curve<'_>]) -> f64 {
    let shares = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let least = shares.map(|share| 1.0 - share).filter(|rest| *rest > 1e-9).fold(0.1, f64::min);
    (-least.log10() - 1e-9).ceil().clamp(2.0, 6.0)
}

/// Latencies by percentile up to the longest: each further "nine" takes the same width, times are logarithmic.
pub(super) fn percentiles(title: &str, curves: &[Curve<'_>]) -> String {
    let times = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0.max(1)));
    let (low, high) =
        times.fold((u64::MAX, 1), |(low, high), time| (low.min(time), high.max(time)));
    let low = if low == u64::MAX { 1 } else { low };
    let nines = nines(curves);
    // The last step is the longest call's.
    let part = nines / (nines + 0.5);
    let place = |share: f64| match share > 1.0 - 1e-9 {
        true => 1.0,
        false => (-(1.0 - share).log10() / nines).min(1.0) * part,
    };
    let shown = SHARES.into_iter().take(nines as usize + 2).chain([(1.0, "max")]);
    let ticks = shown.map(|(share, label)| (place(share), label.to_owned())).collect();
    let scale = Scale::powers(low as f64, high as f64);
    let times = scale.ticks().into_iter().map(|nanos| (nanos, time_label(nanos))).collect();
    let (x, y) = (Axis::exact("", 1.0).with_ticks(ticks), Axis::new("", scale).with_ticks(times));
    let mut marks = Vec::new();
    for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
        let points: Vec<_> = curve
            .points
            .iter()
            .map(|(nanos, share)| ((*nanos).max(1) as f64, place(*share)))
            .collect();
        let (longest, end) = points[points.len() - 1];
        let tip = format!("{}: the longest took {} ms", curve.name, number(longest / 1e6));
        marks.push(Mark::Line {
            points: steps(&points, |nanos| scale.place(nanos)),
            style: curve_style(curve.colour, ""),
            tip: curve.name.to_owned(),
        });
        let (at, style, name) = ((end, longest), stack(curve.colour), String::new());
        marks.push(Mark::Dot { at, radius: 3.2, style, name, tip });
    }
    Plot { title: title.to_owned(), x, y, marks }.in_page(WIDE)
}

/// The corners of steps: every call up to a place takes at most the nanoseconds before it. Thinned to what a screen shows.
fn steps(points: &[(f64, f64)], up: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let (mut from, mut drawn, mut corners) = (0.0, (-1.0, -1.0), Vec::new());
    for (index, &(nanos, place)) in points.iter().enumerate() {
        let is_last = index + 1 == points.len();
        if is_last || place - drawn.0 >= PIXEL || up(nanos) - drawn.1 >= PIXEL {
            corners.extend([(from, nanos), (place, nanos)]);
            drawn = (place, up(nanos));
        }
        from = place;
    }
    corners
}

fn curve_style(colour: usize, kind: &str) -> String {
    format!("class=\"curve{kind} s{}\"", colour % STACKS)
}

fn time_label(nanos: f64) -> String {
    let (unit, size) = match nanos {
        ..1e3 => ("ns", 1.0),
        ..1e6 => ("us", 1e3),
        ..1e9 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    format!("{} {unit}", tick_label(nanos / size))
}

/// A chart of distributions by name, on other pages than those of experiments: nanoseconds, and the share of requests not above,
/// ascending.
pub(crate) fn latencies(title: &str, all: &[(String, Vec<(u64, f64)>)]) -> String {
    let mut curves = Vec::new();
    for (colour, (name, points)) in all.iter().enumerate() {
        curves.push(Curve { name, colour, points });
    }
    percentiles(title, &curves)
}

/// The legend of such charts.
pub(crate) fn latency_legend(names: &[&str]) -> String {
    format!("<div class=\"legend\">{}</div>\n", legend_of_stacks(names))
}

/// One stack's latencies in milliseconds, interval after interval.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) colour: usize,
    pub(super) means: &'a [Option<f64>],
    pub(super) longest: &'a [Option<f64>],
}

/// Latencies over time, `seconds` a point: two lines a stack, the mean and the longest of each interval. Intervals in which no call
/// ended are bridged.
pub(super) fn timeline(title: &str, seconds: f64, lines: &[Line<'_>]) -> String {
    let values = lines.iter().flat_map(|line| line.means.iter().chain(line.longest).flatten());
    let count = lines.iter().map(|line| line.means.len()).max().unwrap_or(1).max(1);
    let time = count as f64 * seconds;
    let ticks = (0..=5).map(|part| time * f64::from(part) / 5.0);
    let ticks = ticks.map(|at| (at, format!("{} s", tick_label(at)))).collect();
    let mut marks = Vec::new();
    for line in lines {
        for (values, kind, word) in
            [(line.longest, " longest", "longest"), (line.means, "", "mean")]
        {
            let values =
                values.iter().enumerate().filter_map(|(index, value)| Some((index, (*value)?)));
            let points =
                values.map(|(index, value)| ((index as f64 + 0.5) * seconds, value)).collect();
            let (style, tip) = (curve_style(line.colour, kind), format!("{}, {word}", line.name));
            marks.push(Mark::Line { points, style, tip });
        }
    }
    let (x, y) = (Axis::exact("", time).with_ticks(ticks), Axis::fit("ms", values.copied()));
    Plot { title: title.to_owned(), x, y, marks }.in_page(WIDE)
}
