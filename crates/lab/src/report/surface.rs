//! Surfaces of sweeps over two keys or more: a map with a cell for each pair of values, the darker the larger the number.
//!
//! The key with the most values lies to the right and the one with the next most upwards; each combination of the other keys' values
//! has a map of its own. All maps of a number have the same colours for the same values.

use core::fmt::Write;

use super::chart::{LEFT, TOP, open};
use super::curves::{Axis, Number, numbers, rest};
use super::number::short;
use super::scale::Scale;
use super::summary::{Row, Summary};
use super::svg::escape;

/// Size of a cell.
const WIDE: f64 = 58.0;
const HIGH: f64 = 26.0;
/// Most opaque a cell may be, so that its number stays legible in both themes.
const DARKEST: f64 = 0.6;
/// Most maps on a page; a sweep over many keys has more than anybody looks at.
const MAPS_MAX: usize = 60;

/// Maps of all numbers under all stacks; nothing unless two keys were swept over numbers, in a grid.
pub(super) fn surfaces(html: &mut String, summary: &Summary, axes: &[Axis]) {
    let mut order: Vec<&Axis> = axes.iter().collect();
    order.sort_by_key(|(_, values)| core::cmp::Reverse(values.len()));
    let [right, up, ..] = order[..] else { return };
    let mut panels: Vec<String> = Vec::new();
    for row in &summary.rows {
        let rest = rest(row, &[&right.0, &up.0]);
        if !panels.contains(&rest) {
            panels.push(rest);
        }
    }
    let maps = panels.len() * summary.stacks().len() * numbers(summary).len();
    let shown =
        if maps > MAPS_MAX { format!(" (the first {MAPS_MAX} of {maps})") } else { String::new() };
    let _ =
        write!(html, "<details><summary>Surfaces{shown}</summary><div class=\"charts surfaces\">");
    let mut left = MAPS_MAX;
    for number in numbers(summary) {
        let scale = Scale::of(summary.rows.iter().filter_map(|row| (number.of)(row)));
        for (panel, stack) in
            panels.iter().flat_map(|it| summary.stacks().into_iter().map(move |stack| (it, stack)))
        {
            if left == 0 {
                break;
            }
            left -= 1;
            let words = [number.title.as_str(), stack, panel];
            let title =
                words.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", ");
            let here = |row: &&Row| row.stack == stack && rest(row, &[&right.0, &up.0]) == *panel;
            let rows: Vec<&Row> = summary.rows.iter().filter(here).collect();
            let map = map(&title, (right, up), &number, scale, &rows);
            let _ = write!(html, "<div><h3>{}</h3>{map}</div>", escape(&title));
        }
    }
    html.push_str("</div></details>\n");
}

fn map(
    title: &str,
    (right, up): (&Axis, &Axis),
    number: &Number<'_>,
    scale: Scale,
    rows: &[&Row],
) -> String {
    let (columns, lines) = (right.1.len() as f64, up.1.len() as f64);
    let left = LEFT + 18.0;
    let mut svg = open(title, left + columns * WIDE + 8.0, TOP + lines * HIGH + 34.0);
    let value = |row: &Row, key: &str| {
        row.swept.iter().find(|(name, _)| name == key).map(|(_, text)| text.clone())
    };
    let find = |x: &str, y: &str| {
        let same = |row: &&&Row| {
            value(row, &right.0).as_deref() == Some(x) && value(row, &up.0).as_deref() == Some(y)
        };
        rows.iter().find(same).and_then(|row| (number.of)(row))
    };
    for (line, (_, y)) in up.1.iter().rev().enumerate() {
        let top = TOP + line as f64 * HIGH;
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            top + HIGH / 2.0 + 3.5,
            escape(y)
        );
        for (column, (_, x)) in right.1.iter().enumerate() {
            let Some(got) = find(x, y) else { continue };
            push_cell(
                &mut svg,
                (left + column as f64 * WIDE, top),
                got,
                scale,
                &format!(
                    "{} = {x}, {} = {y}: {} {}",
                    right.0,
                    up.0,
                    super::number::number(got),
                    number.unit
                ),
            );
        }
    }
    for (column, (_, x)) in right.1.iter().enumerate() {
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            left + (column as f64 + 0.5) * WIDE,
            TOP + lines * HIGH + 13.0,
            escape(x)
        );
    }
    let log = if scale.is_log() { ", logarithmic" } else { "" };
    let _ = write!(
        svg,
        "<text class=\"unit\" x=\"0\" y=\"11\">{}, {}{log}</text><text class=\"unit\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text></svg>",
        escape(&up.0),
        number.unit,
        left + columns * WIDE,
        TOP + lines * HIGH + 29.0,
        escape(&right.0)
    );
    svg
}

fn push_cell(svg: &mut String, (left, top): (f64, f64), value: f64, scale: Scale, tip: &str) {
    let _ = write!(
        svg,
        "<g><title>{}</title><rect class=\"s1\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
         fill-opacity=\"{:.2}\"/><text class=\"cell\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text></g>",
        escape(tip),
        left + 1.0,
        top + 1.0,
        WIDE - 2.0,
        HIGH - 2.0,
        0.04 + (DARKEST - 0.04) * scale.place(value),
        left + WIDE / 2.0,
        top + HIGH / 2.0 + 3.5,
        short(value)
    );
}
