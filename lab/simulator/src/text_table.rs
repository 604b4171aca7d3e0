//! Tables and counts as text.

use comfy_table::{CellAlignment, LineStyle, Row, Table, TableStyle};

const RULE: LineStyle = LineStyle::none().fill('─').junction('─');
/// A line below the header and nothing else.
pub const PLAIN: TableStyle = TableStyle::new().header_separator(RULE);
/// Lines above, below and under the header; none between rows.
pub const RULED: TableStyle = PLAIN.top_border(RULE).bottom_border(RULE);

/// A table in this style; `right` are the columns of numbers.
///
/// # Panics
/// A column in `right` is not among the titles.
pub fn text_table(
    style: TableStyle,
    titles: impl Into<Row>,
    right: impl IntoIterator<Item = usize>,
    rows: impl IntoIterator<Item = impl Into<Row>>,
) -> String {
    let mut table = Table::new();
    table.load_style(style).set_header(titles).add_rows(rows);
    for index in right {
        let column = table.column_mut(index).expect("the header made this column");
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// `1 request`, `2 requests`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
