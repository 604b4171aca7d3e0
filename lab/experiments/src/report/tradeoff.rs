//! What sweeps trade: the client that the experiment is about against the rate of the drive, a dot for each point. Points that no other
//! one beats in both are the front; they are joined and listed.

use crate::distinct;
use core::fmt::Write;

use iofair_draw::{Axis, Mark, PAGE, Plot, STACKS, escape};

use super::number::{number, short};
use super::summary::{Row, Summary};
use super::swept::Reader;

/// Most variants of the file that are drawn.
const VARIANTS_MAX: usize = 8;
/// Most points of a front that are listed.
const LISTED_MAX: usize = 30;

/// Totals that differ by less count as equal.
const DISTINCT: f64 = 0.995;

/// What the client gets.
struct Side<'a> {
    title: String,
    unit: &'a str,
    /// Whether smaller is better.
    small: bool,
    of: Box<Reader<'a>>,
}

/// A point: the rate of the drive, what the client gets, the stack's place, and its row.
struct Point<'a> {
    total: f64,
    value: f64,
    colour: usize,
    row: &'a Row,
}

/// Two charts and their fronts; nothing without a sweep.
pub(super) fn tradeoffs(html: &mut String, summary: &Summary) {
    let is_swept = summary.rows.iter().any(|row| !row.swept.is_empty());
    if !is_swept || summary.rows.len() < 3 {
        return;
    }
    let name = summary.focus.as_str();
    let rate = move |row: &Row| row.client(name).map(|client| client.rate.mean);
    let p99 = move |row: &Row| {
        row.client(name).filter(|client| client.calls > 0).map(|client| client.p99.mean)
    };
    let unit = summary.rate_unit;
    let sides = [
        Side {
            title: format!("{name}: rate against total"),
            unit,
            small: false,
            of: Box::new(rate),
        },
        Side {
            title: format!("{name}: p99 against total"),
            unit: "ms",
            small: true,
            of: Box::new(p99),
        },
    ];
    // Points of different variants of the file are different loads, and no choice.
    let bases = distinct(summary.rows.iter().map(|row| row.base.as_str()));
    html.push_str("<div class=\"charts tradeoffs\">");
    for base in bases.into_iter().take(VARIANTS_MAX) {
        for side in &sides {
            let points = points(summary, side, base);
            let front = front(&points, side.small);
            if points.len() < 3 {
                continue;
            }
            let title = match base.is_empty() {
                true => side.title.clone(),
                false => format!("{}, {base}", side.title),
            };
            let chart = chart(summary, side, &title, &points, &front);
            let _ = write!(html, "<div><h3>{}</h3>{chart}", escape(&title));
            list(html, summary, side, points.len(), &front);
            html.push_str("</div>");
        }
    }
    html.push_str("</div>\n");
}

fn points<'a>(summary: &'a Summary, side: &Side<'_>, base: &str) -> Vec<Point<'a>> {
    let stacks = summary.stacks();
    let point = |row: &'a Row| {
        let colour = stacks.iter().position(|stack| *stack == row.stack)?;
        let (total, value) = (row.total.mean, (side.of)(row)?);
        (total.is_finite() && value.is_finite()).then_some(Point { total, value, colour, row })
    };
    summary.rows.iter().filter(|row| row.base == base).filter_map(point).collect()
}

/// Points that no other one beats in both, by falling total.
fn front<'p, 'a>(points: &'p [Point<'a>], small: bool) -> Vec<&'p Point<'a>> {
    let better = |one: f64, other: f64| if small { one < other } else { one > other };
    let mut all: Vec<&Point<'_>> = points.iter().collect();
    all.sort_by(|a, b| {
        let by_value =
            if small { a.value.total_cmp(&b.value) } else { b.value.total_cmp(&a.value) };
        b.total.total_cmp(&a.total).then(by_value)
    });
    let mut front: Vec<&Point<'_>> = Vec::new();
    for point in all {
        if front.last().is_none_or(|last| better(point.value, last.value)) {
            front.push(point);
        }
    }
    // A point that has hardly more than the next one, and less of the other thing, is no choice.
    let totals: Vec<f64> = front.iter().map(|point| point.total).skip(1).collect();
    let mut next = totals.into_iter();
    front.retain(|point| next.next().is_none_or(|total| total < point.total * DISTINCT));
    front
}

fn chart(
    summary: &Summary,
    side: &Side<'_>,
    title: &str,
    points: &[Point<'_>],
    front: &[&Point<'_>],
) -> String {
    let total = format!("total, {}", summary.rate_unit);
    let x = Axis::fit(&total, points.iter().map(|point| point.total));
    let y = Axis::fit(side.unit, points.iter().map(|point| point.value));
    let line = front.iter().map(|point| (point.total, point.value)).collect();
    let (style, tip) = (PAGE.mark.to_owned(), String::new());
    let mut marks = vec![Mark::Line { points: line, style, tip }];
    for point in points {
        let is_front = front.iter().any(|other| core::ptr::eq(*other, point));
        let (best, radius) = if is_front { (" best", 4.6) } else { ("", 3.2) };
        let Row { stack, variant, .. } = point.row;
        let (value, total) = (number(point.value), number(point.total));
        marks.push(Mark::Dot {
            at: (point.total, point.value),
            radius,
            style: format!("class=\"s{}{best}\"", point.colour % STACKS),
            name: String::new(),
            tip: format!("{stack} {variant}: {value} {}, total {total}", side.unit),
        });
    }
    Plot { title: title.to_owned(), x, y, marks }.in_page(290.0)
}

/// The points of the front in words.
fn list(html: &mut String, summary: &Summary, side: &Side<'_>, all: usize, front: &[&Point<'_>]) {
    let what = if side.small { "p99 ms" } else { side.unit };
    let _ = write!(
        html,
        "<details><summary>The front: {} of {all} points</summary><div class=\"scroll\"><table><tr><th>stack</th>\
         <th>point</th><th class=\"n\">{what}</th><th class=\"n\">total {}</th></tr>",
        front.len(),
        summary.rate_unit
    );
    for point in front.iter().take(LISTED_MAX) {
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&point.row.stack),
            escape(&point.row.variant),
            short(point.value),
            short(point.total)
        );
    }
    html.push_str("</table></div></details>");
}

#[cfg(test)]
mod tests {
    use super::super::curves::tests::swept;
    use super::*;

    fn point(row: &Row, total: f64, value: f64) -> Point<'_> {
        Point { total, value, colour: 0, row }
    }

    /// Goal: the front has what no other point beats in both, whether larger or smaller is better. Method: six points,
    /// of which one has hardly more than the next.
    #[test]
    fn fronts_are_found() {
        let summary = swept(&["client.reader.weight=10,100,1000"]).0;
        let row = &summary.rows[0];
        let points = [(10.0, 1.0), (10.01, 0.5), (8.0, 3.0), (9.0, 2.0), (8.0, 1.0), (5.0, 2.5)];
        let points = points.map(|(total, value)| point(row, total, value));
        let front_of = |small| {
            front(&points, small).iter().map(|point| (point.total, point.value)).collect::<Vec<_>>()
        };
        assert_eq!(front_of(false), [(10.0, 1.0), (9.0, 2.0), (8.0, 3.0)]);
        assert_eq!(front_of(true), [(10.01, 0.5)]);
    }

    /// Goal: a sweep has two charts for each variant, with a dot for each point; without one there is none. Method: three
    /// weights in two variants.
    #[test]
    fn sweeps_have_charts() {
        let mut summary = swept(&["client.reader.weight=10,100,1000"]).0;
        let mut html = String::new();
        tradeoffs(&mut html, &summary);
        assert_eq!(
            (html.matches("<svg").count(), html.matches("<circle").count()),
            (2 * 2, 2 * summary.rows.len())
        );
        assert!(html.contains("class=\"front\"") && html.contains("The front: "));
        summary.rows.iter_mut().for_each(|row| row.swept.clear());
        let mut html = String::new();
        tradeoffs(&mut html, &summary);
        assert!(html.is_empty());
    }
}
