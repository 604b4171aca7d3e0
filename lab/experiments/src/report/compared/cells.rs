//! The source's table beside ours: a row for each variant and stack, a column for each number, both numbers in a cell.

use crate::distinct;
use iofair_draw::{BOLD, END, MIDDLE, Sign, Svg, fill, legend};

use super::distance::{Compared, Distance};
use crate::report::number::{number, published};
use crate::report::summary::Summary;

/// Least width of a column.
const CELL: f64 = 112.0;
const ROW: f64 = 22.0;
const TOP: f64 = 84.0;
/// The border of a cell that was fitted, and its sign in the legend.
const FITTED: &str = "stroke=\"#595959\" stroke-dasharray=\"3 2\"";
const DASHED: &str = "fill=\"none\" stroke=\"#595959\" stroke-dasharray=\"3 2\"";
/// Pixels of a character, of a bold one, and of one of the title.
const CHARACTER: f64 = 6.3;
const HEADING: f64 = 6.9;
const TITLE: f64 = 8.4;

/// The table as a picture; none if fewer than two numbers are read at one place of a run.
pub(super) fn cells(summary: &Summary, all: &[Compared<'_>]) -> Option<String> {
    let cells: Vec<_> = all.iter().filter(|compared| column(compared).is_some()).collect();
    let rows = distinct(cells.iter().map(|compared| row(compared)));
    let columns = distinct(cells.iter().filter_map(|compared| column(compared)));
    let count = cells.len();
    if count < 2 {
        return None;
    }
    let widest = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0);
    let left = CHARACTER * widest as f64 + 24.0;
    let headers = columns.iter().map(|column| HEADING * column.chars().count() as f64 + 12.0);
    let column_width = headers.fold(CELL, f64::max);
    let title = TITLE * summary.title.chars().count() as f64 + 16.0;
    let wide = (left + column_width * columns.len() as f64 + 8.0).max(560.0).max(title);
    let high = TOP + ROW * rows.len() as f64 + 10.0;
    let mut svg = Svg::titled(&summary.title);
    let shades = Distance::ALL.map(|distance| (fill(distance.shade()), distance.words()));
    let shades = shades.iter().map(|(style, words)| (Sign::Bar(style), *words));
    let ends = [(Sign::None, "published : ours")].into_iter().chain(shades);
    legend(&mut svg, (8.0, 40.0), ends.chain([(Sign::Bar(DASHED), "fitted")]));
    for (index, column) in columns.iter().enumerate() {
        let middle = left + column_width * (index as f64 + 0.5);
        svg.text((middle, TOP - 8.0), &format!("{MIDDLE} {BOLD}"), column);
    }
    for (index, row_of) in rows.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        svg.text((left - 8.0, y + 15.0), END, &name(row_of));
        for compared in all.iter().filter(|compared| row(compared) == *row_of) {
            let own = column(compared);
            let at = own.and_then(|own| columns.iter().position(|column| *column == own));
            let Some(at) = at else { continue };
            cell(&mut svg, compared, (left + column_width * at as f64, y), column_width);
        }
    }
    Some(svg.file(&summary.title, (wide, high)))
}

fn row<'a>(compared: &Compared<'a>) -> (&'a str, &'a str) {
    (&compared.claim.variant, &compared.claim.stack)
}

fn name((variant, stack): &(&str, &str)) -> String {
    if variant.is_empty() { (*stack).to_owned() } else { format!("{variant}, {stack}") }
}

fn column(compared: &Compared<'_>) -> Option<String> {
    let quantity = compared.claim.quantity.as_ref()?;
    Some(format!("{quantity} {}", compared.claim.unit))
}

fn cell(svg: &mut Svg, compared: &Compared<'_>, (x, y): (f64, f64), width: f64) {
    let shade = fill(compared.distance().shade());
    let border = if compared.claim.fitted { FITTED } else { "stroke=\"#ffffff\"" };
    svg.rect((x + 1.5, y + 1.5), (width - 3.0, ROW - 3.0), &format!("{shade} {border}"), "");
    let both = format!("{} : {}", published(compared.published), number(compared.claim.got));
    svg.text((x + width / 2.0, y + 15.0), MIDDLE, &both);
}
