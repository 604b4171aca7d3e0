//! One page with everything: a chart a figure with the published values on the bars, latencies by
//! percentile, the tables. Self-contained: no script, no font, no address of anybody.

use core::fmt::Write;

use super::chart::{Bar, COLOURS, Curve, Group, bars, percentiles};
use super::number::{band, number, published, with_confidence};
use super::summary::{ClaimRow, Row, Summary};
use super::svg::escape;
use super::table::got;
use super::tally::{self, Tally};
use super::timeline::{Line, timeline};
use crate::experiment::{Statistics, Subject, Verdict};

/// The style sheet of pages.
pub const STYLE: &str = include_str!("page.css");

/// The page of these experiments.
pub fn page(title: &str, summaries: &[Summary]) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}</title>\n<style>\n{STYLE}</style></head>\n<body>\n<h1>{0}</h1>\n",
        escape(title)
    );
    kinds(&mut html, &Tally::of_all(summaries));
    if summaries.len() > 1 {
        overview(&mut html, summaries);
    }
    for (index, summary) in summaries.iter().enumerate() {
        experiment(&mut html, index, summary);
    }
    html.push_str("</body></html>\n");
    html
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
    let stacks = stacks(summary);
    let _ = write!(
        html,
        "<section class=\"card\" id=\"e{index}\"><h2>{}</h2>\n<p class=\"soft\">{} &middot; \
         {}</p>\n<p class=\"soft\">{}</p>\n",
        escape(&summary.title),
        escape(&summary.name),
        escape(&summary.source),
        escape(&summary.conditions)
    );
    if !summary.note.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", escape(&summary.note));
    }
    for sizing in &summary.sizings {
        let _ = writeln!(html, "<p>{}</p>", escape(sizing));
    }
    legend(html, &stacks, summary);
    html.push_str("<div class=\"charts\">");
    let (focus, unit) = (&summary.focus, summary.rate_unit);
    let of_focus = |row: &Row| row.focus;
    chart(
        html,
        (&format!("{focus}: rate"), unit),
        &groups(summary, &stacks, of_focus, |s| *s == Subject::Client(focus.clone())),
    );
    let of_total = |row: &Row| Some(row.total);
    chart(
        html,
        ("total: rate", unit),
        &groups(summary, &stacks, of_total, |s| *s == Subject::Total),
    );
    html.push_str("</div>\n");
    claims(html, summary);
    numbers(html, summary, &stacks);
    latencies(html, summary, &stacks);
    over_time(html, summary, &stacks);
    html.push_str("</section>\n");
}

fn chart(html: &mut String, (title, unit): (&str, &str), groups: &[Group]) {
    if groups.iter().all(|group| group.bars.is_empty()) {
        return;
    }
    let svg = bars(title, unit, groups);
    let _ = write!(html, "<div><h3>{}</h3>{svg}</div>", escape(title));
}

/// Stacks in the order of the file, whose index is their colour.
fn stacks(summary: &Summary) -> Vec<&str> {
    let mut stacks: Vec<&str> = Vec::new();
    for row in &summary.rows {
        if !stacks.contains(&row.stack.as_str()) {
            stacks.push(&row.stack);
        }
    }
    stacks
}

fn colour(stacks: &[&str], stack: &str) -> usize {
    stacks.iter().position(|name| *name == stack).unwrap_or(0) % COLOURS
}

fn legend(html: &mut String, stacks: &[&str], summary: &Summary) {
    html.push_str("<div class=\"legend\">");
    for (index, stack) in stacks.iter().enumerate() {
        let class = index % COLOURS;
        let _ = write!(html, "<span><i class=\"s{class}\"></i>{}</span>", escape(stack));
    }
    let rates = || summary.claims.iter().filter(|claim| claim.is_rate);
    if rates().any(|claim| claim.published.is_some()) {
        html.push_str("<span class=\"key\">&#9671; published</span>");
    }
    if rates().any(|claim| claim.low.is_some() && claim.high.is_some()) {
        html.push_str("<span class=\"key\">shaded: accepted band</span>");
    }
    if summary.rows.iter().any(|row| row.total.confidence_95.is_some()) {
        html.push_str("<span class=\"key\">&#8866;&#8867; 95 % confidence, two-sided</span>");
    }
    html.push_str("</div>\n");
}

fn groups(
    summary: &Summary,
    stacks: &[&str],
    value: impl Fn(&Row) -> Option<Statistics>,
    subject: impl Fn(&Subject) -> bool,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for row in &summary.rows {
        if groups.last().is_none_or(|group| group.label != row.variant) {
            groups.push(Group { label: row.variant.clone(), bars: Vec::new() });
        }
        let Some(it) = value(row) else { continue };
        let mine = |claim: &&ClaimRow| {
            claim.is_rate
                && claim.variant == row.variant
                && claim.stack == row.stack
                && subject(&claim.subject)
        };
        let claims = || summary.claims.iter().filter(mine);
        let published_value = claims().find_map(|claim| claim.published);
        let mut tip = format!(
            "{} {}: {} {}",
            row.variant,
            row.stack,
            with_confidence(it.mean, it.confidence_95),
            summary.rate_unit
        );
        if let Some(value) = published_value {
            let _ = write!(tip, ", published {}", published(value));
        }
        groups.last_mut().expect("pushed above").bars.push(Bar {
            value: it.mean,
            half: it.confidence_95.unwrap_or(0.0),
            published: published_value,
            band: claims().find_map(|claim| claim.low.zip(claim.high)),
            colour: colour(stacks, &row.stack),
            tip,
        });
    }
    groups
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

fn numbers(html: &mut String, summary: &Summary, stacks: &[&str]) {
    let (focus, variants) = (escape(&summary.focus), summary.has_variants());
    let unit = summary.rate_unit;
    let variant_title = if variants { "<th>variant</th>" } else { "" };
    let open = if summary.claims.is_empty() { " open" } else { "" };
    let _ = writeln!(
        html,
        "<details{open}><summary>All numbers</summary><div class=\"scroll\"><table><tr>\
         {variant_title}<th>stack</th><th class=\"n\">{focus} {unit}</th>\
         <th class=\"n\">others {unit}</th><th class=\"n\">total {unit}</th><th class=\"n\">{focus} mean ms</th>\
         <th class=\"n\">p50</th><th class=\"n\">p99</th><th class=\"n\">drive busy %</th></tr>"
    );
    let mut last = None;
    for row in &summary.rows {
        let fresh = last != Some(&row.variant);
        last = Some(&row.variant);
        html.push_str(if fresh && variants { "<tr class=\"first\">" } else { "<tr>" });
        if variants {
            let name = if fresh { escape(&row.variant) } else { String::new() };
            let _ = write!(html, "<td>{name}</td>");
        }
        let confident = |s: &Statistics| with_confidence(s.mean, s.confidence_95);
        let plain = |s: &Option<Statistics>| s.map_or_else(String::new, |s| number(s.mean));
        let _ = writeln!(
            html,
            "<td><span class=\"swatch s{}\"></span>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            colour(stacks, &row.stack),
            escape(&row.stack),
            row.focus.as_ref().map(confident).unwrap_or_default(),
            number(row.others(&summary.focus)),
            confident(&row.total),
            plain(&row.mean),
            plain(&row.p50),
            plain(&row.p99),
            number(row.busy.mean)
        );
    }
    html.push_str("</table></div></details>\n");
}

fn latencies(html: &mut String, summary: &Summary, stacks: &[&str]) {
    let mut variants: Vec<&str> = Vec::new();
    for row in summary.rows.iter().filter(|row| !row.distribution.is_empty()) {
        if !variants.contains(&row.variant.as_str()) {
            variants.push(&row.variant);
        }
    }
    if variants.is_empty() {
        return;
    }
    let _ = write!(
        html,
        "<details open><summary>Latency of {} by percentile</summary><div class=\"charts\">",
        escape(&summary.focus)
    );
    for variant in variants {
        let rows = summary.rows.iter().filter(|row| row.variant == variant);
        let curves: Vec<_> = rows
            .map(|row| Curve {
                name: &row.stack,
                colour: colour(stacks, &row.stack),
                points: &row.distribution,
            })
            .collect();
        let title = if variant.is_empty() { &summary.focus } else { variant };
        let svg = percentiles(&format!("latency by percentile, {title}"), &curves);
        let _ = write!(html, "<div><h3>{}</h3>{svg}</div>", escape(title));
    }
    html.push_str("</div></details>\n");
}

fn over_time(html: &mut String, summary: &Summary, stacks: &[&str]) {
    let Some(seconds) = summary.interval else { return };
    let _ = write!(
        html,
        "<details open><summary>Latency of {} over time</summary><div class=\"charts\">",
        escape(&summary.focus)
    );
    for rows in summary.rows.chunk_by(|a, b| a.variant == b.variant) {
        let lines = rows.iter().map(|row| Line {
            name: &row.stack,
            colour: colour(stacks, &row.stack),
            points: &row.series,
        });
        let lines: Vec<_> = lines.collect();
        let title = if rows[0].variant.is_empty() { &summary.focus } else { &rows[0].variant };
        let svg = timeline(&format!("latency over time, {title}"), seconds, &lines);
        let _ = write!(html, "<div><h3>{}</h3>{svg}</div>", escape(title));
    }
    html.push_str("</div></details>\n");
}
