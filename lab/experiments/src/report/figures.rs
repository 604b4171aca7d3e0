//! The charts and the table of numbers of an experiment's section: every client, and the drive.

use core::fmt::Write;

use iofair_draw::{Bar, Group, STACKS, bar_chart, escape, legend_of_stacks};

use super::clients::ClientRow;
use super::latencies::{Curve, Line, percentiles, timeline};
use super::number::{differs_too_much, measured, number, published};
use super::summary::{ClaimRow, JOB_TITLES, Row, Summary};
use super::table::{Columns, row_cells};
use crate::experiment::{Statistics, Subject};

/// More clients than this share a chart for each variant, in place of a chart for each client.
const CHARTS_MAX: usize = 6;

fn colour(summary: &Summary, stack: &str) -> usize {
    summary.stacks().iter().position(|name| *name == stack).unwrap_or(0) % STACKS
}

/// The colours of the stacks, and what is drawn besides bars.
pub(super) fn legend(html: &mut String, summary: &Summary) {
    html.push_str("<div class=\"legend\">");
    html.push_str(&legend_of_stacks(&summary.stacks()));
    let rates = || summary.claims.iter().filter(|claim| claim.is_rate);
    if rates().any(|claim| claim.published.is_some()) {
        html.push_str("<span class=\"key\">&#9671; published</span>");
    }
    if rates().any(|claim| claim.low.is_some() && claim.high.is_some()) {
        html.push_str("<span class=\"key\">shaded: accepted band</span>");
    }
    if summary.rows.iter().any(|row| row.total.confidence_95.is_some()) {
        html.push_str("<span class=\"key\">&#8866;&#8867; 95 % confidence, two-sided; the range of the repeats where it is wider than the value</span>");
    }
    html.push_str("</div>\n");
}

/// Rates as bars: of each client, of what reached the drive for it where that differs, and of the drive.
pub(super) fn rates(html: &mut String, summary: &Summary) {
    let unit = summary.rate_unit;
    html.push_str("<div class=\"charts\">");
    let clients = summary.clients();
    if clients.len() > CHARTS_MAX {
        for rows in summary.rows.chunk_by(|a, b| a.variant == b.variant) {
            let title = if rows[0].variant.is_empty() { "clients" } else { &rows[0].variant };
            chart(html, &format!("{title}: rates"), unit, &by_client(summary, &clients, rows));
        }
    } else {
        for name in &clients {
            let of_client = |row: &Row| row.client(name).map(|client| client.rate);
            let subject = |subject: &Subject| *subject == Subject::Client((*name).to_owned());
            let all = groups(summary, of_client, subject);
            chart(html, &format!("{name}: rate"), unit, &all);
            let mut rows = summary.rows.iter().filter_map(|row| row.client(name));
            if rows.any(ClientRow::uses_cache) {
                let at_drive = |row: &Row| row.client(name).and_then(|client| client.drive);
                let all = groups(summary, at_drive, |_| false);
                chart(html, &format!("{name}: at the drive"), unit, &all);
            }
        }
    }
    let of_total = |row: &Row| Some(row.total);
    let total = groups(summary, of_total, |s| *s == Subject::Total);
    chart(html, "total: rate of the drive", unit, &total);
    html.push_str("</div>\n");
}

/// A group of bars for each client of one variant.
fn by_client(summary: &Summary, clients: &[&str], rows: &[Row]) -> Vec<Group> {
    let group = |name: &&str| {
        let subject = |subject: &Subject| *subject == Subject::Client((*name).to_owned());
        let bar = |row: &Row| Some(bar(summary, row, row.client(name)?.rate, &subject));
        Group { label: (*name).to_owned(), bars: rows.iter().filter_map(bar).collect() }
    };
    clients.iter().map(group).collect()
}

fn chart(html: &mut String, title: &str, unit: &str, groups: &[Group]) {
    if groups.iter().all(|group| group.bars.is_empty()) {
        return;
    }
    let svg = bar_chart(title, unit, groups);
    let _ = write!(html, "<div><h3>{}</h3>{svg}</div>", escape(title));
}

fn groups(
    summary: &Summary,
    value: impl Fn(&Row) -> Option<Statistics>,
    subject: impl Fn(&Subject) -> bool,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for row in &summary.rows {
        if groups.last().is_none_or(|group| group.label != row.variant) {
            groups.push(Group { label: row.variant.clone(), bars: Vec::new() });
        }
        if let Some(statistics) = value(row) {
            let bar = bar(summary, row, statistics, &subject);
            groups.last_mut().expect("pushed above").bars.push(bar);
        }
    }
    groups
}

/// A value with what is claimed about it.
fn bar(
    summary: &Summary,
    row: &Row,
    statistics: Statistics,
    subject: &impl Fn(&Subject) -> bool,
) -> Bar {
    let mine = |claim: &&ClaimRow| {
        claim.is_rate
            && claim.variant == row.variant
            && claim.stack == row.stack
            && subject(&claim.subject)
    };
    let claims = || summary.claims.iter().filter(mine);
    let published_value = claims().find_map(|claim| claim.published);
    let unit = summary.rate_unit;
    let mut tip = format!("{} {}: {} {unit}", row.variant, row.stack, measured(&statistics));
    if let Some(value) = published_value {
        let _ = write!(tip, ", published {}", published(value));
    }
    let half = statistics.confidence_95.filter(|half| *half > 0.0 && half.is_finite());
    Bar {
        value: statistics.mean,
        label: number(if statistics.mean.is_finite() { statistics.mean } else { 0.0 }),
        range: match differs_too_much(&statistics) {
            true => Some((statistics.min, statistics.max)),
            false => half.map(|half| ((statistics.mean - half).max(0.0), statistics.mean + half)),
        },
        published: published_value,
        band: claims().find_map(|claim| claim.low.zip(claim.high)),
        colour: colour(summary, &row.stack),
        tip,
    }
}

/// The table of all numbers, a line for each client and one for the drive.
pub(super) fn numbers(html: &mut String, summary: &Summary) {
    let (variants, unit) = (summary.has_variants(), summary.rate_unit);
    let columns = Columns::for_summary(summary);
    let mut titles = Vec::new();
    if columns.jobs {
        titles.extend(JOB_TITLES);
    } else {
        titles.push(unit);
        titles.extend(columns.each.then_some("each process"));
        titles.extend(columns.drive.then_some("at the drive"));
        titles.extend(["mean ms", "p50", "p99", "longest"]);
    }
    titles.push("drive busy %");
    let open = if summary.claims.is_empty() { " open" } else { "" };
    let first = if variants { "<th>variant</th>" } else { "" };
    let _ = write!(
        html,
        "<details{open}><summary>All numbers</summary><div class=\"scroll\"><table><tr>\
         {first}<th>stack</th><th>client</th>"
    );
    for title in titles {
        let _ = write!(html, "<th class=\"n\">{title}</th>");
    }
    html.push_str("</tr>\n");
    let mut last = None;
    for row in &summary.rows {
        let fresh = last != Some(&row.variant);
        last = Some(&row.variant);
        let lines = row_cells(row, columns);
        let count = lines.len();
        for (index, cells) in lines.into_iter().enumerate() {
            let class = match index {
                0 => " class=\"first\"",
                _ if index + 1 == count => " class=\"sum\"",
                _ => "",
            };
            let _ = write!(html, "<tr{class}>");
            if variants {
                let name = if fresh && index == 0 { escape(&row.variant) } else { String::new() };
                let _ = write!(html, "<td>{name}</td>");
            }
            let swatch = match index {
                0 => format!("<span class=\"swatch s{}\"></span>", colour(summary, &row.stack)),
                _ => String::new(),
            };
            let _ = write!(
                html,
                "<td>{swatch}{}</td><td>{}</td>",
                escape(&cells[0]),
                escape(&cells[1])
            );
            for cell in &cells[2..] {
                let _ = write!(html, "<td class=\"n\">{}</td>", escape(cell));
            }
            html.push_str("</tr>\n");
        }
    }
    html.push_str("</table></div></details>\n");
}

/// Latencies by percentile, and over time where the experiment has an interval: a chart for each client and variant.
pub(super) fn latencies(html: &mut String, summary: &Summary) {
    for (index, name) in summary.clients().into_iter().enumerate() {
        let ended =
            |row: &Row| row.client(name).is_some_and(|client| !client.distribution.is_empty());
        if !summary.rows.iter().any(ended) {
            continue;
        }
        let open = if index == 0 { " open" } else { "" };
        let seconds = summary.interval.filter(|_| {
            // A single point is no line.
            let points =
                |row: &Row| row.client(name).map(|client| client.series.iter().flatten().count());
            summary.rows.iter().filter_map(points).any(|points| points > 1)
        });
        let what = if seconds.is_some() { " and over time" } else { "" };
        let _ = write!(
            html,
            "<details{open}><summary>Latency of {} by percentile{what}</summary><div class=\"charts\">",
            escape(name)
        );
        for rows in summary.rows.chunk_by(|a, b| a.variant == b.variant) {
            latency(html, summary, name, seconds, rows);
        }
        html.push_str("</div>");
        if seconds.is_some() {
            html.push_str("<p class=\"soft\">Over time: solid the mean, dashed the longest call of each interval.</p>");
        }
        html.push_str("</details>\n");
    }
}

/// Charts of one client and variant; `seconds`: the interval of what is drawn over time.
fn latency(html: &mut String, summary: &Summary, name: &str, seconds: Option<f64>, rows: &[Row]) {
    let mine = || rows.iter().filter_map(|row| Some((row, row.client(name)?)));
    let curves: Vec<_> = mine()
        .map(|(row, client)| Curve {
            name: &row.stack,
            colour: colour(summary, &row.stack),
            points: &client.distribution,
        })
        .collect();
    if curves.iter().all(|curve| curve.points.is_empty()) {
        return;
    }
    let title = if rows[0].variant.is_empty() { name } else { &rows[0].variant };
    let svg = percentiles(&format!("latency of {name} by percentile, {title}"), &curves);
    let _ = write!(html, "<div><h3>{}</h3>{svg}</div>", escape(title));
    let Some(seconds) = seconds else { return };
    let lines: Vec<_> = mine()
        .map(|(row, client)| Line {
            name: &row.stack,
            colour: colour(summary, &row.stack),
            means: &client.series,
            longest: &client.longest_series,
        })
        .collect();
    let svg = timeline(&format!("latency of {name} over time, {title}"), seconds, &lines);
    let _ = write!(html, "<div><h3>{} over time</h3>{svg}</div>", escape(title));
}
