//! The source's table beside ours: a row for each variant and stack, a column for each number, both numbers in a cell.

use core::fmt::Write;

use super::distance::{Compared, Distance};
use crate::report::number::{number, published};
use crate::report::summary::Summary;
use crate::report::svg::{escape, picture_file};

/// Least width of a column.
const CELL: f64 = 112.0;
const ROW: f64 = 22.0;
const TOP: f64 = 84.0;
/// Pixels of a character, of a bold one, and of one of the title.
const CHARACTER: f64 = 6.3;
const BOLD: f64 = 6.9;
const TITLE: f64 = 8.4;

/// The table as a picture; none if fewer than two numbers are read at one place of a run.
pub(super) fn cells(summary: &Summary, all: &[Compared<'_>]) -> Option<String> {
    let (mut rows, mut columns): (Vec<(&str, &str)>, Vec<String>) = (Vec::new(), Vec::new());
    for it in all {
        let Some(column) = column(it) else { continue };
        let row = row(it);
        if !rows.contains(&row) {
            rows.push(row);
        }
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let count = all.iter().filter(|it| column(it).is_some()).count();
    if count < 2 {
        return None;
    }
    let widest = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0);
    let left = CHARACTER * widest as f64 + 24.0;
    let headers = columns.iter().map(|it| BOLD * it.chars().count() as f64 + 12.0);
    let column_width = headers.fold(CELL, f64::max);
    let title = TITLE * summary.title.chars().count() as f64 + 16.0;
    let wide = (left + column_width * columns.len() as f64 + 8.0).max(560.0).max(title);
    let high = TOP + ROW * rows.len() as f64 + 10.0;
    let mut svg = head(&summary.title);
    for (index, column) in columns.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-weight=\"600\">{}</text>",
            left + column_width * (index as f64 + 0.5),
            TOP - 8.0,
            escape(column)
        );
    }
    for (index, row_of) in rows.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            y + 15.0,
            escape(&name(row_of))
        );
        for it in all.iter().filter(|it| row(it) == *row_of) {
            let Some(at) = column(it).and_then(|own| columns.iter().position(|it| *it == own))
            else {
                continue;
            };
            cell(&mut svg, it, (left + column_width * at as f64, y), column_width);
        }
    }
    svg += "</g>\n";
    Some(picture_file(&summary.title, (wide, high), &svg))
}

fn row<'a>(it: &Compared<'a>) -> (&'a str, &'a str) {
    (&it.claim.variant, &it.claim.stack)
}

fn name((variant, stack): &(&str, &str)) -> String {
    if variant.is_empty() { (*stack).to_owned() } else { format!("{variant}, {stack}") }
}

fn column(it: &Compared<'_>) -> Option<String> {
    let quantity = it.claim.quantity.as_ref()?;
    Some(format!("{quantity} {}", it.claim.unit))
}

fn head(title: &str) -> String {
    let mut svg = format!(
        "<g font-size=\"11\">\n<text x=\"8\" y=\"18\" font-size=\"14\" font-weight=\"600\">{}</text>\n\
         <text x=\"8\" y=\"40\">published : ours</text>\n",
        escape(title)
    );
    let mut at = 112.0;
    for distance in Distance::ALL {
        let (shade, words) = (distance.shade(), distance.words());
        let _ = writeln!(
            svg,
            "<rect x=\"{at:.0}\" y=\"30\" width=\"14\" height=\"12\" fill=\"{shade}\"/><text x=\"{:.0}\" y=\"40\">{words}</text>",
            at + 19.0
        );
        at += 36.0 + CHARACTER * words.len() as f64;
    }
    let _ = writeln!(
        svg,
        "<rect x=\"{at:.0}\" y=\"30\" width=\"14\" height=\"12\" fill=\"none\" stroke=\"#595959\" stroke-dasharray=\"3 2\"/>\
         <text x=\"{:.0}\" y=\"40\">fitted</text>",
        at + 19.0
    );
    svg
}

fn cell(svg: &mut String, it: &Compared<'_>, (x, y): (f64, f64), width: f64) {
    let border = if it.claim.fitted { "#595959\" stroke-dasharray=\"3 2" } else { "#ffffff" };
    let _ = writeln!(
        svg,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\" stroke=\"{border}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} : {}</text>",
        x + 1.5,
        y + 1.5,
        width - 3.0,
        ROW - 3.0,
        it.distance().shade(),
        x + width / 2.0,
        y + 15.0,
        published(it.published),
        number(it.claim.got)
    );
}
