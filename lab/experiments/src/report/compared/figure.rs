//! Published numbers and ours on the same axes: a line a number, a plot a unit.

use crate::distinct;
use iofair_draw::{Axis, BOLD, END, FILE, Scale, Sign, Svg, fill, legend};

use super::distance::{Compared, Distance};
use crate::report::number::{number, published};
use crate::report::summary::Summary;

const LABELS: f64 = 380.0;
const PLOT: f64 = 420.0;
const RIGHT: f64 = 120.0;
const LINE: f64 = 17.0;
/// Above the lines of a plot: its unit and the numbers of its axis.
const HEAD: f64 = 36.0;
/// Numbers that differ by more than this factor get a logarithmic axis.
const LOG: f64 = 30.0;
/// The style of a band.
const BAND: &str = "fill=\"#e8e8e8\"";
/// Characters that fit beside a line.
const LABEL: usize = 62;

/// The axis across a plot of these values.
fn axis(values: &[f64]) -> Axis {
    let positive = values.iter().copied().filter(|value| value.is_finite() && *value > 0.0);
    let most = positive.clone().fold(1e-9, f64::max);
    let least = positive.fold(most, f64::min);
    let is_log = most / least > LOG;
    let scale = if is_log { Scale::powers(least, most) } else { Scale::between(0.0, most * 1.05) };
    Axis::new("", scale)
}

/// Where a value lies across; what is no number lies at the end.
fn across(axis: &Axis, value: f64) -> f64 {
    LABELS + PLOT * axis.place(if value.is_finite() { value } else { f64::INFINITY })
}

/// The picture of an experiment.
pub(super) fn figure(summary: &Summary, all: &[Compared<'_>]) -> String {
    let units = distinct(all.iter().map(|compared| compared.claim.unit));
    let mut svg = Svg::titled(&summary.title);
    let styles = Distance::ALL.map(|distance| (fill(distance.colour()), distance.words()));
    let ours = styles.iter().map(|(style, words)| (Sign::Dot(style), *words));
    let first = [
        (Sign::Diamond, "published"),
        (Sign::Bar(BAND), "band"),
        (Sign::None, "ours, from least to most:"),
    ];
    let last = [(Sign::Dot("fill=\"#ffffff\" stroke=\"#595959\" stroke-width=\"1.5\""), "fitted")];
    legend(&mut svg, (8.0, 40.0), first.into_iter().chain(ours).chain(last));
    let mut top = 58.0;
    for unit in units {
        let mut lines: Vec<_> = all.iter().filter(|line| line.claim.unit == unit).collect();
        // In the order of the variants' first lines.
        let variants: Vec<&str> = lines.iter().map(|line| line.claim.variant.as_str()).collect();
        lines.sort_by_key(|line| variants.iter().position(|name| *name == line.claim.variant));
        plot(&mut svg, unit, &lines, top);
        top += HEAD + LINE * lines.len() as f64 + 14.0;
    }
    svg.file(&summary.title, (LABELS + PLOT + RIGHT, top))
}

fn plot(svg: &mut Svg, unit: &str, lines: &[&Compared<'_>], top: f64) {
    let values: Vec<f64> = lines.iter().flat_map(|line| [line.published, line.claim.got]).collect();
    let axis = axis(&values);
    let ends = (top + HEAD - 6.0, top + HEAD + LINE * lines.len() as f64);
    let name = if unit.is_empty() { "ratio" } else { unit };
    svg.text((LABELS - 24.0, top + 22.0), &format!("{BOLD} {END}"), name);
    let ticks = axis.ticks.iter().map(|(value, label)| (across(&axis, *value), label.clone()));
    svg.columns(ticks, ends, top + 22.0, FILE);
    let mut variant = None;
    for (index, compared) in lines.iter().enumerate() {
        let y = top + HEAD + LINE * (index as f64 + 0.5);
        if variant != Some(&compared.claim.variant) {
            let (top, right) = (y - LINE / 2.0, LABELS + PLOT + RIGHT - 8.0);
            svg.path(&format!("M8 {top:.1}H{right:.0}"), "stroke=\"#d9d9d9\"", "");
        }
        variant = Some(&compared.claim.variant);
        line(svg, compared, &axis, y);
    }
}

fn line(svg: &mut Svg, compared: &Compared<'_>, axis: &Axis, y: f64) {
    let x = |value: f64| across(axis, value);
    let claim = compared.claim;
    if claim.low.is_some() || claim.high.is_some() {
        let from = claim.low.map_or(LABELS, x);
        let wide = claim.high.map_or(LABELS + PLOT, x) - from;
        svg.rect((from, y - 5.0), (wide.max(1.0), 10.0), BAND, "");
    }
    if let Some((least, most)) = compared.spread() {
        let (from, to, end) = (x(least), x(most), y - 3.0);
        let path = format!("M{from:.1} {end:.1}v6M{from:.1} {y:.1}H{to:.1}M{to:.1} {end:.1}v6");
        svg.path(&path, FILE.mark, "");
    }
    let colour = compared.distance().colour();
    let fill = if claim.fitted { "#ffffff" } else { colour };
    let style = format!("fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"");
    let (theirs, ours) = (compared.published, number(claim.got));
    let tip = format!("{} {}: published {theirs}, ours {ours}", claim.variant, claim.text);
    svg.circle((x(claim.got), y), 4.0, &style, &tip);
    svg.diamond((x(theirs), y), 5.0, &format!("{} stroke-width=\"1.3\"", FILE.mark));
    let label = match claim.variant.as_str() {
        "" => compared.label(),
        variant => format!("{variant}: {}", compared.label()),
    };
    svg.text((LABELS - 8.0, y + 4.0), END, &shortened(&label));
    let both = format!("{} : {ours}", published(theirs));
    svg.text((LABELS + PLOT + 10.0, y + 4.0), FILE.soft, &both);
}

/// The end of a long label: what differs from line to line is there.
fn shortened(label: &str) -> String {
    let count = label.chars().count();
    match count > LABEL {
        true => format!("…{}", label.chars().skip(count - LABEL + 1).collect::<String>()),
        false => label.to_owned(),
    }
}
