//! Surfaces of sweeps over two keys or more: a map with a cell for each pair of values, the darker the larger the number.
//!
//! The key with the most values lies to the right and the one with the next most upwards; each combination of the other keys' values
//! has a map of its own. All maps of a number have the same colours for the same values.

use crate::distinct;
use core::fmt::Write;

use iofair_draw::{END, MIDDLE, PAGE, Scale, Svg, escape, stack};

use super::number::short;
use super::summary::{Row, Summary};
use super::swept::{Axis, Number, numbers, rest};

/// Where cells begin.
const LEFT: f64 = 64.0;
const TOP: f64 = 24.0;
/// Size of a cell.
const WIDE: f64 = 58.0;
const HIGH: f64 = 26.0;
/// How opaque cells are: at most so much that their numbers stay legible in both themes.
const LIGHTEST: f64 = 0.05;
const DARKEST: f64 = 0.6;
/// Most maps on a page; a sweep over many keys has more than anybody looks at.
const MAPS_MAX: usize = 60;

/// Maps of all numbers under all stacks; nothing unless two keys were swept over numbers, in a grid.
pub(super) fn surfaces(html: &mut String, summary: &Summary, axes: &[Axis]) {
    let mut order: Vec<&Axis> = axes.iter().collect();
    order.sort_by_key(|(_, values)| core::cmp::Reverse(values.len()));
    let [right, up, ..] = order[..] else { return };
    let panels = distinct(summary.rows.iter().map(|row| rest(row, &[&right.0, &up.0])));
    // All numbers of a few panels, and not a few numbers of all.
    let each = summary.stacks().len() * numbers(summary).len();
    let most = (MAPS_MAX / each.max(1)).max(1);
    let shown = match panels.len() > most {
        true => format!(" (of the first {most} of {} variants)", panels.len()),
        false => String::new(),
    };
    let _ =
        write!(html, "<details><summary>Surfaces{shown}</summary><div class=\"charts surfaces\">");
    for number in numbers(summary) {
        let shades = Shades::fit(summary.rows.iter().filter_map(|row| (number.of)(row)));
        for panel in panels.iter().take(most) {
            for stack in summary.stacks() {
                let words = [number.title.as_str(), stack, panel];
                let title = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
                let title = title.join(", ");
                let here =
                    |row: &&Row| row.stack == stack && rest(row, &[&right.0, &up.0]) == *panel;
                let rows: Vec<&Row> = summary.rows.iter().filter(here).collect();
                let map = map(&title, (right, up), &number, shades, &rows);
                let _ = write!(html, "<div><h3>{}</h3>{map}</div>", escape(&title));
            }
        }
    }
    html.push_str("</div></details>\n");
}

/// How dark the cells of a number are: from its smallest value to its largest.
#[derive(Clone, Copy)]
struct Shades {
    is_log: bool,
    low: f64,
    high: f64,
}

impl Shades {
    fn fit(values: impl Iterator<Item = f64> + Clone) -> Self {
        let is_log = Scale::fit(values.clone()).is_log();
        let values = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let ends = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), ends);
        Self { is_log, low, high }
    }
    fn opacity(self, value: f64) -> f64 {
        let Self { is_log, low, high } = self;
        let place = match is_log {
            true => (value.max(low) / low).ln() / (high / low).ln(),
            false => (value - low) / (high - low),
        };
        let place = if place.is_finite() { place.clamp(0.0, 1.0) } else { 1.0 };
        LIGHTEST + (DARKEST - LIGHTEST) * place
    }
}

fn map(
    title: &str,
    (right, up): (&Axis, &Axis),
    number: &Number<'_>,
    shades: Shades,
    rows: &[&Row],
) -> String {
    let (columns, lines) = (right.1.len() as f64, up.1.len() as f64);
    let end = LEFT + columns * WIDE;
    let mut svg = Svg::new();
    let find = |x: &str, y: &str| {
        let same = |row: &&&Row| value(row, &right.0) == Some(x) && value(row, &up.0) == Some(y);
        rows.iter().find(same).and_then(|row| (number.of)(row))
    };
    let (at_left, around) = (format!("{END} {}", PAGE.soft), format!("{MIDDLE} {}", PAGE.soft));
    for (line, (_, y)) in up.1.iter().rev().enumerate() {
        let top = TOP + line as f64 * HIGH;
        svg.text((LEFT - 6.0, top + HIGH / 2.0 + 3.5), &at_left, y);
        for (column, (_, x)) in right.1.iter().enumerate() {
            let Some(got) = find(x, y) else { continue };
            let (key, other, all) = (&right.0, &up.0, super::number::number(got));
            let tip = format!("{key} = {x}, {other} = {y}: {all} {}", number.unit);
            svg.group(&tip, |svg| {
                let left = LEFT + column as f64 * WIDE;
                let style = format!("{} fill-opacity=\"{:.2}\"", stack(1), shades.opacity(got));
                svg.rect((left + 1.0, top + 1.0), (WIDE - 2.0, HIGH - 2.0), &style, "");
                let middle = (left + WIDE / 2.0, top + HIGH / 2.0 + 3.5);
                svg.text(middle, &format!("class=\"cell\" {MIDDLE}"), &short(got));
            });
        }
    }
    for (column, (_, x)) in right.1.iter().enumerate() {
        let middle = LEFT + (column as f64 + 0.5) * WIDE;
        svg.text((middle, TOP + lines * HIGH + 13.0), &around, x);
    }
    let log = if shades.is_log { ", logarithmic" } else { "" };
    svg.text((0.0, 11.0), PAGE.soft, &format!("{}, {}{log}", up.0, number.unit));
    svg.text((end, TOP + lines * HIGH + 29.0), &at_left, &right.0);
    svg.in_page(title, (end + 8.0, TOP + lines * HIGH + 34.0))
}

/// A row's value of a swept key.
fn value<'a>(row: &'a Row, key: &str) -> Option<&'a str> {
    row.swept.iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str())
}
