//! Charts as inline SVG: grouped bars with the published values drawn on them, and latencies by
//! percentile. Colours come from the page's style sheet (`s0`, `s1`, ... a stack each), so a chart
//! follows the reader's light or dark theme.

use core::fmt::Write;

use super::number::number;
use super::scale::Scale;
use super::svg::escape;

/// Colours that the style sheet knows.
pub(super) const COLOURS: usize = 8;

/// A bar.
pub(super) struct Bar {
    pub(super) value: f64,
    /// From where to where its whisker goes.
    pub(super) range: Option<(f64, f64)>,
    /// What the source prints.
    pub(super) published: Option<f64>,
    /// Accepted band.
    pub(super) band: Option<(f64, f64)>,
    /// Index of its stack.
    pub(super) colour: usize,
    /// What a pointer shows.
    pub(super) tip: String,
}

impl Bar {
    /// The values that its axis has to show. Lower ends of a band or an interval may lie below it.
    fn values(&self) -> impl Iterator<Item = f64> {
        let published = self.published.into_iter();
        let ends = self.range.into_iter().chain(self.band).map(|(_, high)| high);
        [self.value].into_iter().chain(published).chain(ends)
    }
}

/// Bars side by side under one label.
pub(super) struct Group {
    pub(super) label: String,
    pub(super) bars: Vec<Bar>,
}

const HEIGHT: f64 = 230.0;
pub(super) const TOP: f64 = 24.0;
pub(super) const LEFT: f64 = 46.0;
const LINE: f64 = 14.0;
/// Size of a figure above a bar.
const LABEL_WIDE: f64 = 5.4;
const LABEL_HIGH: f64 = 10.0;

fn wrapped(label: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in label.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A grouped bar chart, in `unit`, with a title.
pub(super) fn bars(title: &str, unit: &str, groups: &[Group]) -> String {
    let most = groups.iter().map(|g| g.bars.len()).max().unwrap_or(1).max(1) as f64;
    let count = groups.len().max(1) as f64;
    let bar = (490.0 / (count * (most + 0.9))).clamp(15.0, 48.0);
    let pitch = bar * (most + 0.9);
    let plot = pitch * count;
    let width = LEFT + plot + 8.0;
    let scale = Scale::of(groups.iter().flat_map(|g| &g.bars).flat_map(Bar::values));
    let y = |value: f64| TOP + HEIGHT * (1.0 - scale.place(value));
    let unit = &if scale.is_log() { format!("{unit}, logarithmic") } else { unit.to_owned() };
    let labels: Vec<_> = groups.iter().map(|g| wrapped(&g.label, (pitch / 6.2) as usize)).collect();
    let lines = labels.iter().map(Vec::len).max().unwrap_or(0) as f64;
    let height = TOP + HEIGHT + 10.0 + lines * LINE;
    let mut svg = open(title, width, height);
    for tick in scale.ticks() {
        push_level(&mut svg, LEFT + plot, y(tick), &tick_label(tick));
    }
    let _ = write!(svg, "<text class=\"unit\" x=\"0\" y=\"11\">{}</text>", escape(unit));
    let mut labels_drawn = Labels::default();
    for (index, (group, label)) in groups.iter().zip(&labels).enumerate() {
        let middle = LEFT + pitch * (index as f64 + 0.5);
        let left = middle - bar * group.bars.len() as f64 / 2.0;
        for (i, it) in group.bars.iter().enumerate() {
            push_bar(&mut svg, it, (left + bar * i as f64, bar), &y, &mut labels_drawn);
        }
        for (i, line) in label.iter().enumerate() {
            let at = TOP + HEIGHT + 17.0 + LINE * i as f64;
            let _ = write!(
                svg,
                "<text class=\"label\" x=\"{middle:.1}\" y=\"{at:.1}\" text-anchor=\"middle\">\
                 {}</text>",
                escape(line)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

pub(super) fn open(title: &str, width: f64, height: f64) -> String {
    format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" role=\"img\" \
         aria-label=\"{}\">",
        escape(title)
    )
}

pub(super) fn tick_label(value: f64) -> String {
    let short = format!("{value:.3}");
    short.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The numbers above bars, from left to right: the right end and the height of the last ones.
#[derive(Default)]
struct Labels(Vec<(f64, f64)>);

impl Labels {
    /// Where the baseline of a label goes that would best be at `above`: there, or above the ones that it would cover. `None` if
    /// there is no room; what points at the bar shows the number.
    fn place(&mut self, text: &str, (middle, above): (f64, f64)) -> Option<f64> {
        let half = text.chars().count() as f64 * LABEL_WIDE / 2.0;
        let beside = |it: &&(f64, f64)| it.0 > middle - half;
        let mut at = above;
        // At most as many steps as there are labels beside it.
        for _ in 0..=self.0.len() {
            let covers = |it: &&(f64, f64)| (it.1 - at).abs() < LABEL_HIGH;
            match self.0.iter().filter(beside).find(covers) {
                Some((_, other)) => at = other - LABEL_HIGH,
                None => break,
            }
        }
        self.0.retain(|it| it.0 > middle - half);
        if at < LABEL_HIGH || above - at > 2.0 * LABEL_HIGH {
            return None;
        }
        self.0.push((middle + half, at));
        Some(at)
    }
}

fn push_bar(
    svg: &mut String,
    bar: &Bar,
    (left, width): (f64, f64),
    y: &dyn Fn(f64) -> f64,
    labels: &mut Labels,
) {
    let (value, base) = (if bar.value.is_finite() { bar.value } else { 0.0 }, y(0.0));
    let (x, w, middle) = (left + 1.5, width - 3.0, left + width / 2.0);
    let top = y(value);
    let _ = write!(
        svg,
        "<g><title>{}</title><rect class=\"s{}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{w:.1}\" \
         height=\"{:.1}\" rx=\"1.5\"/>",
        escape(&bar.tip),
        bar.colour % COLOURS,
        (base - top).max(0.5)
    );
    if let Some((low, high)) = bar.band {
        let (low, high) = (y(low), y(high));
        let _ = write!(
            svg,
            "<rect class=\"band\" x=\"{:.1}\" y=\"{high:.1}\" width=\"{w:.1}\" height=\"{:.1}\"/>",
            x,
            (low - high).max(1.0)
        );
    }
    if let Some((low, high)) = bar.range {
        let (low, high) = (y(low), y(high));
        let _ = write!(
            svg,
            "<path class=\"whisker\" d=\"M{middle:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6m-6 0\
             M{:.1} {high:.1}h6\"/>",
            middle - 3.0,
            middle - 3.0
        );
    }
    if let Some(published) = bar.published {
        let at = y(published);
        let _ = write!(
            svg,
            "<path class=\"published\" d=\"M{:.1} {at:.1}h{:.1}\"/><path class=\"diamond\" \
             d=\"M{middle:.1} {:.1}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\"/>",
            left - 1.0,
            width + 2.0,
            at - 4.5
        );
    }
    // Above everything that is drawn for this bar.
    let marks = bar.published.into_iter().chain(bar.band.map(|(_, high)| high));
    let highest = marks.fold(bar.range.map_or(value, |(_, high)| high), f64::max);
    let above = y(highest) - if bar.published == Some(highest) { 7.0 } else { 4.0 };
    let text = number(value);
    if let Some(at) = labels.place(&text, (middle, above)) {
        let _ = write!(
            svg,
            "<text class=\"value\" x=\"{middle:.1}\" y=\"{at:.1}\" text-anchor=\"middle\">{text}</text>"
        );
    }
    svg.push_str("</g>");
}

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
/// Width of a digit on an axis.
const DIGIT: f64 = 6.0;
pub(super) const WIDE: f64 = 290.0;
pub(super) const HIGH: f64 = 170.0;

/// How many nines the curves need: those of the last call but one.
fn nines(curves: &[Curve<'_>]) -> f64 {
    let shares = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let least = shares.map(|share| 1.0 - share).filter(|rest| *rest > 1e-9).fold(0.1, f64::min);
    (-least.log10() - 1e-9).ceil().clamp(2.0, 6.0)
}

/// Latencies by percentile up to the longest: each further "nine" takes the same width, times are logarithmic.
pub(super) fn percentiles(title: &str, curves: &[Curve<'_>]) -> String {
    let times = curves.iter().flat_map(|c| c.points.iter().map(|p| p.0.max(1) as f64));
    let (low, high) =
        times.fold((f64::INFINITY, 1.0), |(low, high): (f64, f64), t| (low.min(t), high.max(t)));
    let first = if low.is_finite() { low.log10().floor() } else { 0.0 };
    let last = high.log10().ceil().max(first + 1.0);
    let nines = nines(curves);
    // The last step is the longest call's.
    let part = nines / (nines + 0.5);
    let x = |share: f64| match share > 1.0 - 1e-9 {
        true => LEFT + WIDE,
        false => LEFT + WIDE * (-(1.0 - share).log10() / nines).min(1.0) * part,
    };
    let y = |nanos: f64| TOP + HIGH * (1.0 - (nanos.log10() - first) / (last - first));
    let mut svg = open(title, LEFT + WIDE + 26.0, TOP + HIGH + 22.0);
    let shown = SHARES.iter().take(nines as usize + 2).copied();
    for (share, label) in shown.chain([(1.0, "max")]) {
        let (at, bottom) = (x(share), TOP + HIGH);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>"
        );
        // The word for the longest call stands at the end; a label that would touch it is left out.
        let half = DIGIT * label.len() as f64 / 2.0;
        if share == 1.0 || at + half + 2.0 * DIGIT < LEFT + WIDE {
            let _ = write!(
                svg,
                "<text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                bottom + 15.0
            );
        }
    }
    for power in first as i32..=last as i32 {
        push_level(&mut svg, LEFT + WIDE, y(10f64.powi(power)), &time_label(power));
    }
    for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
        push_curve(&mut svg, curve, &x, &y);
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line of the grid across a chart, from the axis to `right`, with what is written at the axis.
pub(super) fn push_level(svg: &mut String, right: f64, at: f64, label: &str) {
    let _ = write!(
        svg,
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
         <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
        LEFT - 6.0,
        at + 3.5
    );
}

fn push_curve(svg: &mut String, curve: &Curve<'_>, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
    let mut path = String::new();
    let (mut from, mut drawn) = (0.0, (-10.0, -10.0));
    for (index, &(nanos, share)) in curve.points.iter().enumerate() {
        // Every call up to `share` takes at most `nanos`: a step, thinned to what a screen shows.
        let (left, right, at) = (x(from), x(share), y(nanos.max(1) as f64));
        let last = index + 1 == curve.points.len();
        if index == 0 {
            let _ = write!(path, "M{left:.1} {at:.1}");
        }
        if index == 0 || last || right - drawn.0 >= 1.0 || drawn.1 - at >= 1.0 {
            let _ = write!(path, "L{left:.1} {at:.1}L{right:.1} {at:.1}");
            drawn = (right, at);
        }
        from = share;
    }
    let _ = write!(
        svg,
        "<path class=\"curve s{0}\" d=\"{path}\"><title>{1}</title></path>\
         <circle class=\"s{0}\" cx=\"{2:.1}\" cy=\"{3:.1}\" r=\"3.2\"><title>{1}: the longest took {4} ms</title></circle>",
        curve.colour % COLOURS,
        escape(curve.name),
        drawn.0,
        drawn.1,
        number(curve.points.last().map_or(0.0, |it| it.0 as f64 / 1e6))
    );
}

fn time_label(power: i32) -> String {
    let (unit, power) = match power {
        0..3 => ("ns", power),
        3..6 => ("us", power - 3),
        6..9 => ("ms", power - 6),
        _ => ("s", power - 9),
    };
    format!("{} {unit}", 10u64.pow(power.max(0) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: numbers above bars do not cover each other. Method: one beside another of the same height is drawn above it, a third one
    /// above both, a fourth one is left out, and one that is far away stays where it is.
    #[test]
    fn labels_do_not_overlap() {
        let mut labels = Labels::default();
        let mut place = |middle, above| labels.place("12345", (middle, above));
        assert_eq!(place(100.0, 100.0), Some(100.0));
        assert_eq!(place(110.0, 100.0), Some(90.0));
        assert_eq!(place(120.0, 95.0), Some(80.0));
        assert_eq!(place(125.0, 100.0), None);
        assert_eq!(place(400.0, 100.0), Some(100.0));
    }
}
