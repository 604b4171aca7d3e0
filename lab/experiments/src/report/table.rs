//! Tables for the terminal: what each stack gave, then what the source claims.

use super::number::{band, measured, number, published};
use super::summary::{ClaimRow, JOB_TITLES, Row, Summary};
use super::tally::{Tally, headline};
use crate::experiment::{Kind, Verdict};
use iofair_simulator::text_table::{RULED, text_table};

/// An experiment as text.
pub fn table(summary: &Summary) -> String {
    let mut text = format!("{}\n", summary.title);
    for sentence in Some(&summary.synopsis).into_iter().filter(|text| !text.is_empty()) {
        text.push_str(&format!("  {sentence}\n"));
    }
    text.push_str(&format!("  {}\n  {}\n", summary.source, summary.conditions));
    if !summary.note.is_empty() {
        text.push_str(&format!("  {}\n", summary.note));
    }
    text.push('\n');
    text.push_str(&rates(summary));
    for warning in &summary.warnings {
        text.push_str(&format!("  ! {warning}\n"));
    }
    for sizing in &summary.sizings {
        text.push_str(&format!("  {sizing}\n"));
    }
    if !summary.claims.is_empty() {
        text.push('\n');
        text.push_str(&claims(summary));
        text.push_str(&format!("\n{}\n", totals(summary)));
    }
    text
}

fn totals(summary: &Summary) -> String {
    let hard = |claim: &&ClaimRow| claim.hard && claim.verdict == Verdict::DoesNotHold;
    let mut line = format!(
        "{}; of all claims, {} hold, {} do not ({} of them hard), {} for information",
        headline(&Tally::from_summaries([summary])),
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

/// What every client got: a line each, and one of the drive.
fn rates(summary: &Summary) -> String {
    let (variants, unit) = (summary.has_variants(), summary.rate_unit);
    let columns = Columns::for_summary(summary);
    let mut titles = vec!["stack".to_owned(), "client".to_owned(), unit.to_owned()];
    if columns.each {
        titles.push("each process".to_owned());
    }
    if columns.drive {
        titles.push("at the drive".to_owned());
    }
    let last = ["mean ms", "p50", "p99", "longest", "busy %"];
    titles.extend(last.map(str::to_owned));
    if variants {
        titles.insert(0, "variant".to_owned());
    }
    let (mut rows, mut last) = (Vec::new(), None);
    for row in &summary.rows {
        let fresh = last != Some(&row.variant);
        last = Some(&row.variant);
        for (index, mut cells) in row_cells(row, columns).into_iter().enumerate() {
            if variants {
                let shown = fresh && index == 0;
                cells.insert(0, if shown { row.variant.clone() } else { String::new() });
            }
            rows.push(cells);
        }
    }
    let right = if variants { 3 } else { 2 }..titles.len();
    text_table(RULED, titles, right, rows)
}

/// Columns that not every experiment needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    /// The slowest and the fastest process of a client.
    pub(super) each: bool,
    /// What reached the drive.
    pub(super) drive: bool,
    /// Those of a job file in place of the client's.
    pub(super) jobs: bool,
}

impl Columns {
    pub(super) fn for_summary(summary: &Summary) -> Self {
        let clients = || summary.rows.iter().flat_map(|row| &row.clients);
        let jobs = summary.rows.iter().any(|row| !row.jobs.is_empty());
        Self {
            each: !jobs && clients().any(|client| client.processes > 1),
            drive: !jobs && clients().any(|client| client.drive.is_some()),
            jobs,
        }
    }
}

/// The lines of one variant on one stack: its clients, then the drive. The first cell of all but the first is empty.
pub(super) fn row_cells(row: &Row, columns: Columns) -> Vec<Vec<String>> {
    if columns.jobs {
        return job_cells(row);
    }
    let mut lines = Vec::new();
    for client in &row.clients {
        let mut cells = vec![String::new(), client.label(), measured(&client.rate)];
        if columns.each {
            let (slowest, fastest) = client.each;
            cells.push(match client.processes {
                0 | 1 => String::new(),
                _ if number(slowest) == number(fastest) => number(slowest),
                _ => format!("{} to {}", number(slowest), number(fastest)),
            });
        }
        if columns.drive {
            cells.push(client.drive.map_or_else(String::new, |drive| number(drive.mean)));
        }
        let latencies = [client.mean.mean, client.p50.mean, client.p99.mean, client.longest];
        let ended = client.calls > 0;
        cells.extend(latencies.map(|ms| if ended { number(ms) } else { "-".to_owned() }));
        cells.push(String::new());
        let width = cells.len();
        lines.push(cells);
        if let Some(syncs) = client.syncs {
            let mut cells = vec![String::new(); width];
            cells[1] = format!("{} fdatasync", client.name);
            for (cell, ms) in cells[width - 5..].iter_mut().zip(syncs) {
                *cell = number(ms);
            }
            lines.push(cells);
        }
    }
    let mut total = vec![String::new(), "total".to_owned()];
    let blank = usize::from(columns.each);
    match columns.drive {
        true => {
            total.extend(std::iter::repeat_n(String::new(), blank + 1));
            total.push(measured(&row.total));
        }
        false => {
            total.push(measured(&row.total));
            total.extend(std::iter::repeat_n(String::new(), blank));
        }
    }
    total.extend(std::iter::repeat_n(String::new(), 4));
    total.push(number(row.busy.mean));
    lines.push(total);
    lines[0][0] = row.stack.clone();
    lines
}

/// The lines of a stack: its jobs in each direction, their syncs, then the drive.
fn job_cells(row: &Row) -> Vec<Vec<String>> {
    let job = |cells: &Vec<String>| [&[String::new()], &cells[..], &[String::new()]].concat();
    let mut lines: Vec<Vec<String>> = row.jobs.iter().map(job).collect();
    let line = |name: String, cells: &[(usize, String)]| {
        let mut line = vec![String::new(); 3 + JOB_TITLES.len()];
        line[1] = name;
        cells.iter().for_each(|(at, cell)| line[*at].clone_from(cell));
        line
    };
    for client in &row.clients {
        let latencies = client.syncs.map(|syncs| syncs.map(number));
        let cells = latencies.map(|latency| (5..9).zip(latency).collect::<Vec<_>>());
        lines.extend(cells.map(|cells| line(format!("{} fdatasync", client.name), &cells)));
    }
    let busy = 2 + JOB_TITLES.len();
    let total = [(3, measured(&row.total)), (busy, number(row.busy.mean))];
    lines.push(line("total".to_owned(), &total));
    lines[0][0] = row.stack.clone();
    lines
}

/// What we got, as a cell of the claims' table.
pub(super) fn got(claim: &ClaimRow) -> String {
    match claim.kind {
        Kind::Order => format!("x {}", number(claim.got)),
        _ => number(claim.got),
    }
}

fn claims(summary: &Summary) -> String {
    let variants = summary.has_variants();
    let titles = ["claim", "", "published", "ours", "band", "verdict", "basis"];
    let mut titles: Vec<String> = titles.map(str::to_owned).to_vec();
    if variants {
        titles.insert(0, "variant".to_owned());
    }
    let first = if variants { 2 } else { 1 };
    let row = |claim: &ClaimRow| {
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
        cells
    };
    text_table(RULED, titles, first + 1..first + 4, summary.claims.iter().map(row))
}
