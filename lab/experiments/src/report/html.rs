//! One page with everything: a chart a figure with the published values on the bars, latencies by
//! percentile, the tables.

use core::fmt::Write;

use iofair_draw::escape;

use super::curves;
use super::figures;
use super::number::{band, published};
use super::requests;
use super::shares;
use super::summary::Summary;
use super::table::got;
use super::tally::{self, Tally};
use super::tradeoff;
use crate::experiment::Verdict;

/// The page of these experiments.
pub fn page(title: &str, summaries: &[Summary]) -> String {
    let mut html = String::new();
    kinds(&mut html, &Tally::from_summaries(summaries));
    if summaries.len() > 1 {
        overview(&mut html, summaries);
    }
    for (index, summary) in summaries.iter().enumerate() {
        experiment(&mut html, index, summary);
    }
    iofair_draw::page(title, title, &html)
}

/// The headline, and the table of all kinds of claims.
fn kinds(html: &mut String, tally: &Tally) {
    let rows = tally.rows();
    if rows.is_empty() {
        return;
    }
    let _ = write!(html, "<p>{}.</p>\n<div class=\"scroll\"><table><tr>", tally::headline(tally));
    let numeric = |index: usize| if index == 0 { "" } else { " class=\"n\"" };
    for (index, title) in tally::TITLES.iter().enumerate() {
        let _ = write!(html, "<th{}>{title}</th>", numeric(index));
    }
    html.push_str("</tr>\n");
    for row in rows {
        html.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            let _ = write!(html, "<td{}>{cell}</td>", numeric(index));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}

fn overview(html: &mut String, summaries: &[Summary]) {
    html.push_str(
        "<div class=\"card\"><div class=\"scroll\" style=\"margin-top:0\"><table><tr>\
         <th>experiment</th><th></th><th class=\"n\">hold</th><th class=\"n\">do not</th>\
         <th class=\"n\">for information</th></tr>\n",
    );
    for (index, summary) in summaries.iter().enumerate() {
        let _ = writeln!(
            html,
            "<tr><td><a href=\"#e{index}\">{}</a></td><td>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&summary.name),
            escape(&summary.title),
            summary.count(Verdict::Holds),
            summary.count(Verdict::DoesNotHold),
            summary.count(Verdict::Informative)
        );
    }
    html.push_str("</table></div></div>\n");
}

fn experiment(html: &mut String, index: usize, summary: &Summary) {
    let _ = write!(
        html,
        "<section class=\"card\" id=\"e{index}\"><h2>{}</h2>\n<p class=\"brief\">{}</p>\n<p class=\"soft\">{} &middot; \
         {}</p>\n<p class=\"soft\">{}</p>\n",
        escape(&summary.title),
        escape(&summary.synopsis),
        escape(&summary.name),
        escape(&summary.source),
        escape(&summary.conditions)
    );
    if !summary.note.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", escape(&summary.note));
    }
    for warning in &summary.warnings {
        let _ = writeln!(html, "<p class=\"warn\">{}</p>", escape(warning));
    }
    for sizing in &summary.sizings {
        let _ = writeln!(html, "<p>{}</p>", escape(sizing));
    }
    figures::legend(html, summary);
    // Bars have the published values; curves replace those that have none.
    if curves::has_curves(summary) {
        curves::curves(html, summary);
    }
    tradeoff::tradeoffs(html, summary);
    if !curves::has_curves(summary) || summary.claims.iter().any(|claim| claim.is_rate) {
        figures::rates(html, summary);
    }
    claims(html, summary);
    figures::numbers(html, summary);
    shares::shares(html, summary);
    figures::latencies(html, summary);
    requests::requests(html, summary);
    html.push_str("</section>\n");
}

fn claims(html: &mut String, summary: &Summary) {
    if summary.claims.is_empty() {
        return;
    }
    let variants = summary.has_variants();
    let variant_title = if variants { "<th>variant</th>" } else { "" };
    let _ = writeln!(
        html,
        "<div class=\"scroll\"><table><tr>{variant_title}<th>claim</th>\
         <th class=\"n\">published</th><th class=\"n\">ours</th><th class=\"n\">band</th>\
         <th>verdict</th><th>basis</th><th>reference, mechanism</th></tr>"
    );
    let mut last = None;
    for claim in &summary.claims {
        let fresh = last != Some(&claim.variant);
        last = Some(&claim.variant);
        html.push_str(if fresh && variants { "<tr class=\"first\">" } else { "<tr>" });
        if variants {
            let name = if fresh { escape(&claim.variant) } else { String::new() };
            let _ = write!(html, "<td>{name}</td>");
        }
        let unit = if claim.unit.is_empty() { "" } else { " " };
        let class = match claim.verdict {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does_not_hold",
            Verdict::Informative => "informative",
        };
        let hard = if claim.hard { "<span class=\"hard\">hard</span>" } else { "" };
        let why = match claim.verdict {
            Verdict::DoesNotHold => escape(&claim.why),
            _ => String::new(),
        };
        let _ = writeln!(
            html,
            "<td>{}{hard}</td><td class=\"n\">{}</td><td class=\"n\">{}{unit}{}</td>\
             <td class=\"n\">{}</td><td><span class=\"verdict {class}\">{}</span></td><td>{}</td>\
             <td class=\"why\">{}{}{why}</td></tr>",
            escape(&claim.text),
            claim.published.map(published).unwrap_or_default(),
            got(claim),
            claim.unit,
            band(claim.low, claim.high),
            claim.verdict.words(),
            claim.basis_words(),
            escape(&claim.reference_words()),
            if why.is_empty() { "" } else { "<br>" }
        );
    }
    html.push_str("</table></div>\n");
}
