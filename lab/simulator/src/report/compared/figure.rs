//! Published numbers and ours on the same axes: a line a number, a plot a unit.

use core::fmt::Write;

use super::distance::{Compared, Distance};
use crate::report::number::{number, published};
use crate::report::plot::Axis;
use crate::report::summary::Summary;
use crate::report::svg::{escape, picture_file};

const LABELS: f64 = 380.0;
const PLOT: f64 = 420.0;
const RIGHT: f64 = 120.0;
const LINE: f64 = 17.0;
/// Above the lines of a plot: its unit and the numbers of its axis.
const HEAD: f64 = 36.0;
/// Numbers that differ by more than this factor get a logarithmic axis.
const LOG: f64 = 30.0;
/// Characters that fit beside a line.
const LABEL: usize = 62;

/// The axis across a plot of these values.
fn axis(values: &[f64]) -> Axis {
    let positive = values.iter().copied().filter(|it| it.is_finite() && *it > 0.0);
    let most = positive.clone().fold(1e-9, f64::max);
    let least = positive.fold(most, f64::min);
    if most / least > LOG { Axis::log("", least, most) } else { Axis::exact("", most * 1.05) }
}

/// Where a value lies across; what is no number lies at the end.
fn across(axis: &Axis, value: f64) -> f64 {
    LABELS + PLOT * axis.place(if value.is_finite() { value } else { f64::INFINITY })
}

/// The picture of an experiment.
pub(super) fn figure(summary: &Summary, all: &[Compared<'_>]) -> String {
    let mut units: Vec<&str> = Vec::new();
    for it in all {
        if !units.contains(&it.claim.unit) {
            units.push(it.claim.unit);
        }
    }
    let mut svg = legend(&summary.title);
    let mut top = 58.0;
    for unit in units {
        let mut lines: Vec<_> = all.iter().filter(|it| it.claim.unit == unit).collect();
        // In the order of the variants' first lines.
        let variants: Vec<&str> = lines.iter().map(|it| it.claim.variant.as_str()).collect();
        lines.sort_by_key(|it| variants.iter().position(|name| *name == it.claim.variant));
        plot(&mut svg, unit, &lines, top);
        top += HEAD + LINE * lines.len() as f64 + 14.0;
    }
    svg += "</g>\n";
    picture_file(&summary.title, (LABELS + PLOT + RIGHT, top), &svg)
}

fn legend(title: &str) -> String {
    let mut svg = format!(
        "<g font-size=\"11\">\n<text x=\"8\" y=\"18\" font-size=\"14\" font-weight=\"600\">{}</text>\n",
        escape(title)
    );
    let mut at = 14.0;
    let _ = writeln!(svg, "{}", diamond(at, 36.0));
    let _ = writeln!(svg, "<text x=\"{}\" y=\"40\">published</text>", at + 10.0);
    at += 86.0;
    let _ = writeln!(
        svg,
        "<rect x=\"{at}\" y=\"31\" width=\"22\" height=\"10\" fill=\"#e8e8e8\"/>\
         <text x=\"{}\" y=\"40\">band</text>",
        at + 28.0
    );
    at += 74.0;
    let _ = writeln!(svg, "<text x=\"{at}\" y=\"40\">ours, from least to most:</text>");
    at += 144.0;
    for distance in Distance::ALL {
        let (colour, words) = (distance.colour(), distance.words());
        let _ = writeln!(
            svg,
            "<circle cx=\"{at}\" cy=\"36\" r=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"40\">{words}</text>",
            at + 8.0
        );
        at += 28.0 + 6.0 * words.len() as f64;
    }
    let _ = writeln!(
        svg,
        "<circle cx=\"{at}\" cy=\"36\" r=\"3.5\" fill=\"#ffffff\" stroke=\"#595959\" stroke-width=\"1.5\"/>\
         <text x=\"{}\" y=\"40\">fitted</text>",
        at + 8.0
    );
    svg
}

fn diamond(x: f64, y: f64) -> String {
    format!(
        "<path d=\"M{:.1} {y:.1}l5 -5l5 5l-5 5z\" fill=\"none\" stroke=\"#262626\" stroke-width=\"1.3\"/>",
        x - 5.0
    )
}

fn plot(svg: &mut String, unit: &str, lines: &[&Compared<'_>], top: f64) {
    let values: Vec<f64> = lines.iter().flat_map(|it| [it.published, it.claim.got]).collect();
    let axis = axis(&values);
    let (begin, end) = (top + HEAD - 6.0, top + HEAD + LINE * lines.len() as f64);
    let name = if unit.is_empty() { "ratio" } else { unit };
    let _ = writeln!(
        svg,
        "<text x=\"{0:.0}\" y=\"{1:.1}\" font-weight=\"600\" text-anchor=\"end\">{2}</text>",
        LABELS - 24.0,
        top + 22.0,
        escape(name)
    );
    for tick in axis.ticks() {
        let x = across(&axis, tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {begin:.1}V{end:.1}\" stroke=\"#e8e8e8\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#595959\">{}</text>",
            top + 22.0,
            crate::report::chart::tick_label(tick)
        );
    }
    let mut variant = None;
    for (index, it) in lines.iter().enumerate() {
        let y = top + HEAD + LINE * (index as f64 + 0.5);
        let new = variant != Some(&it.claim.variant);
        variant = Some(&it.claim.variant);
        line(svg, it, (&axis, y), new);
    }
}

fn line(svg: &mut String, it: &Compared<'_>, (axis, y): (&Axis, f64), new_variant: bool) {
    let x = |value: f64| across(axis, value);
    let (claim, ours) = (it.claim, x(it.claim.got));
    if new_variant {
        let top = y - LINE / 2.0;
        let _ = writeln!(
            svg,
            "<path d=\"M8 {top:.1}H{:.0}\" stroke=\"#d9d9d9\"/>",
            LABELS + PLOT + RIGHT - 8.0
        );
    }
    if claim.low.is_some() || claim.high.is_some() {
        let from = claim.low.map_or(LABELS, x);
        let wide = claim.high.map_or(LABELS + PLOT, x) - from;
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"10\" fill=\"#e8e8e8\"/>",
            y - 5.0,
            wide.max(1.0)
        );
    }
    if let Some((least, most)) = it.spread() {
        let (from, to) = (x(least), x(most));
        let _ = writeln!(
            svg,
            "<path d=\"M{from:.1} {:.1}v6M{from:.1} {y:.1}H{to:.1}M{to:.1} {:.1}v6\" stroke=\"#262626\" fill=\"none\"/>",
            y - 3.0,
            y - 3.0
        );
    }
    let colour = it.distance().colour();
    let fill = if claim.fitted { "#ffffff" } else { colour };
    let tip = format!(
        "{} {}: published {}, ours {}",
        claim.variant,
        claim.text,
        it.published,
        number(claim.got)
    );
    let _ = writeln!(
        svg,
        "<circle cx=\"{ours:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"><title>{}</title></circle>{}",
        escape(&tip),
        diamond(x(it.published), y)
    );
    let label = match claim.variant.as_str() {
        "" => it.label(),
        variant => format!("{variant}: {}", it.label()),
    };
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <text x=\"{:.0}\" y=\"{:.1}\" fill=\"#595959\">{} : {}</text>",
        LABELS - 8.0,
        y + 4.0,
        escape(&shortened(&label)),
        LABELS + PLOT + 10.0,
        y + 4.0,
        published(it.published),
        number(claim.got)
    );
}

/// The end of a long label: what differs from line to line is there.
fn shortened(label: &str) -> String {
    let count = label.chars().count();
    match count > LABEL {
        true => format!("…{}", label.chars().skip(count - LABEL + 1).collect::<String>()),
        false => label.to_owned(),
    }
}
