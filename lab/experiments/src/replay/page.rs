//! The result as one page that works offline: the agreement, the table, and the distribution of latencies of each group
//! under every stack.

use core::fmt::Write;

use iofair_draw::escape;
use iofair_trace::source::Notes;

use super::agreement::Agreement;
use super::tally::{GroupResult, Played};
use super::text::{HEADER, NUMBERS, agreement_text, notes_text, rows};
use crate::report::{latencies, latency_legend};

/// Groups that get a chart.
const CHARTS_MAX: usize = 24;

/// The page.
pub fn page(
    title: &str,
    agreement: Option<&Agreement>,
    played: &[Played],
    notes: &Notes,
) -> String {
    let mut html = format!("<p class=\"soft\">{}</p>\n", escape(title));
    if let Some(agreement) = agreement {
        let text = escape(&agreement_text(agreement)).trim_end().replace('\n', "<br>");
        let _ = writeln!(html, "<p>{text}</p>");
    }
    html.push_str("<div class=\"card\"><h2>Stacks side by side</h2>");
    push_table(&mut html, played);
    html.push_str("</div>\n<div class=\"card\"><h2>Latencies</h2>\n");
    let names: Vec<&str> = played.iter().map(|played| played.stack.as_str()).collect();
    html.push_str(&latency_legend(&names));
    let all = |played: &Played| Some(played.all.clone());
    let _ = writeln!(html, "{}", chart("all", played, all));
    let first = played.first().map(|played| played.groups.as_slice()).unwrap_or_default();
    for group in first.iter().take(CHARTS_MAX) {
        let of =
            |played: &Played| played.groups.iter().find(|found| found.name == group.name).cloned();
        let _ = writeln!(html, "{}", chart(&group.name, played, of));
    }
    html.push_str("</div>\n");
    for note in notes_text(played, notes) {
        let _ = writeln!(html, "<p class=\"soft\">{}</p>", escape(&note));
    }
    iofair_draw::page("iofair-lab replay", "Replay", &html)
}

fn push_table(html: &mut String, played: &[Played]) {
    let class = |index: usize| if NUMBERS.contains(&index) { " class=\"n\"" } else { "" };
    html.push_str("<div class=\"scroll\"><table><tr>");
    for (index, name) in HEADER.iter().enumerate() {
        let _ = write!(html, "<th{}>{name}</th>", class(index));
    }
    html.push_str("</tr>\n");
    for row in rows(played) {
        html.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            let _ = write!(html, "<td{}>{}</td>", class(index), escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}

fn chart(name: &str, played: &[Played], of: impl Fn(&Played) -> Option<GroupResult>) -> String {
    let curves: Vec<(String, Vec<(u64, f64)>)> = played
        .iter()
        .map(|replay| {
            let points = of(replay).map(|group| group.distribution).unwrap_or_default();
            let points = points.into_iter().map(|(part, nanos)| (nanos, part as f64 / 1e6));
            (replay.stack.clone(), points.collect())
        })
        .collect();
    format!(
        "<figure><figcaption>{}</figcaption>{}</figure>",
        escape(name),
        latencies(name, &curves)
    )
}
