//! Tables for the terminal: what each stack gave, then what the source claims.

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};

use super::number::{band, number, published, with_confidence};
use super::summary::{ClaimRow, Row, Summary};
use super::tally::{Tally, headline};
use crate::experiment::{Kind, Statistics, Verdict};

const RULE: LineStyle = LineStyle::none().fill('─').junction('─');
/// Rules above, below and under the header; none between rows.
pub(super) const STYLE: TableStyle =
    TableStyle::new().top_border(RULE).header_separator(RULE).bottom_border(RULE);

/// An experiment as text.
pub fn table(summary: &Summary) -> String {
    let mut text = format!("{}\n  {}\n  {}\n", summary.title, summary.source, summary.conditions);
    if !summary.note.is_empty() {
        text.push_str(&format!("  {}\n", summary.note));
    }
    text.push('\n');
    push(&mut text, &rates(summary));
    for sizing in &summary.sizings {
        text.push_str(&format!("  {sizing}\n"));
    }
    if !summary.claims.is_empty() {
        text.push('\n');
        push(&mut text, &claims(summary));
        text.push_str(&format!("\n{}\n", totals(summary)));
    }
    text
}

fn push(text: &mut String, table: &Table) {
    for line in table.trim_fmt().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn totals(summary: &Summary) -> String {
    let hard = |claim: &&ClaimRow| claim.hard && claim.verdict == Verdict::DoesNotHold;
    let mut line = format!(
        "{}; of all claims, {} hold, {} do not ({} of them hard), {} for information",
        headline(&Tally::of_all([summary])),
        summary.count(Verdict::Holds),
        summary.count(Verdict::DoesNotHold),
        summary.claims.iter().filter(hard).count(),
        summary.count(Verdict::Informative),
    );
    if summary.claims_left_out > 0 {
        line.push_str(&format!("; {} about stacks not run", summary.claims_left_out));
    }
    line
}

fn new_table(titles: Vec<String>, left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(titles.clone());
    for index in left..titles.len() {
        let column = table.column_mut(index).expect("the header made this column");
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn rates(summary: &Summary) -> Table {
    let variants = summary.has_variants();
    let (focus, unit) = (&summary.focus, summary.rate_unit);
    let mut titles = vec![
        "stack".to_owned(),
        format!("{focus} {unit}"),
        format!("others {unit}"),
        format!("total {unit}"),
        format!("{focus} mean ms"),
        "p50".to_owned(),
        "p99".to_owned(),
        "busy %".to_owned(),
    ];
    if variants {
        titles.insert(0, "variant".to_owned());
    }
    let mut table = new_table(titles, if variants { 2 } else { 1 });
    let mut last = None;
    for row in &summary.rows {
        let mut cells = rate_cells(row, focus);
        if variants {
            let repeated = last == Some(&row.variant);
            cells.insert(0, Cell::new(if repeated { "" } else { &row.variant }));
            last = Some(&row.variant);
        }
        table.add_row(cells);
    }
    table
}

fn rate_cells(row: &Row, focus: &str) -> Vec<Cell> {
    let confident = |s: &Statistics| Cell::new(with_confidence(s.mean, s.confidence_95));
    let optional = |s: &Option<Statistics>| match s {
        Some(s) => Cell::new(number(s.mean)),
        None => Cell::new(""),
    };
    vec![
        Cell::new(&row.stack),
        row.focus.as_ref().map_or_else(|| Cell::new(""), confident),
        Cell::new(number(row.others(focus))),
        confident(&row.total),
        optional(&row.mean),
        optional(&row.p50),
        optional(&row.p99),
        Cell::new(number(row.busy.mean)),
    ]
}

/// What we got, as a cell of the claims' table.
pub(super) fn got(claim: &ClaimRow) -> String {
    match claim.kind {
        Kind::Order => format!("x {}", number(claim.got)),
        _ => number(claim.got),
    }
}

fn claims(summary: &Summary) -> Table {
    let variants = summary.has_variants();
    let titles = ["claim", "", "published", "ours", "band", "verdict", "basis"];
    let mut titles: Vec<String> = titles.map(str::to_owned).to_vec();
    if variants {
        titles.insert(0, "variant".to_owned());
    }
    let first = if variants { 2 } else { 1 };
    let mut table = new_table(titles, first + 1);
    for index in [first + 4, first + 5] {
        let words = table.column_mut(index).expect("the header made this column");
        words.set_cell_alignment(CellAlignment::Left);
    }
    for claim in &summary.claims {
        let verdict = match (claim.verdict, claim.hard) {
            (Verdict::DoesNotHold, true) => "DOES NOT HOLD (hard)",
            (verdict, _) => verdict.words(),
        };
        let mut cells = vec![
            claim.text.clone(),
            claim.unit.to_owned(),
            claim.published.map(published).unwrap_or_default(),
            got(claim),
            band(claim.low, claim.high),
            verdict.to_owned(),
            claim.basis_words(),
        ];
        if variants {
            cells.insert(0, claim.variant.clone());
        }
        table.add_row(cells);
    }
    table
}
