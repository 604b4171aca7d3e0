//! Scorecards as one page that works offline.

use core::fmt::Write;

use iofair_draw::{Axis, COLOURS, Grid, Mark, Plot, escape, fill, picture};

use super::score::{Grade, Score, Scorecard};
use super::text::{HEADER, MEANINGS, cells, conditions, sentence};
use crate::report::short;

/// A part of a minimum below this is drawn here.
const PART_LEAST: f64 = 0.01;

/// The page.
pub fn page(cards: &[Scorecard]) -> String {
    let mut html = String::new();
    for card in cards {
        let _ = writeln!(html, "<p>{}</p>", escape(&sentence(card)));
    }
    for card in cards {
        push_card(&mut html, card);
    }
    html.push_str("<div class=\"card\"><h2>What the columns mean</h2>\n");
    for meaning in MEANINGS {
        let _ = writeln!(html, "<p class=\"soft\">{}</p>", escape(meaning));
    }
    html.push_str("</div>\n");
    iofair_draw::page("iofair-lab compare", "Policies compared", &html)
}

fn push_card(html: &mut String, card: &Scorecard) {
    let _ = writeln!(
        html,
        "<div class=\"card\"><h2>{}</h2><p class=\"soft\">{}</p>",
        escape(&card.drive),
        escape(&conditions(card))
    );
    let rows = card.scores.iter().map(|score| {
        let cells = cells(card, score, false);
        let grades = score.grades(card).map(Some);
        (cells, grades)
    });
    let rows = rows.map(|(cells, grades)| (cells.to_vec(), [&[None][..], &grades[..]].concat()));
    push_table(html, &HEADER, rows.collect());
    let _ = writeln!(html, "<div class=\"charts\"><div>{}</div></div>", pareto(card));
    html.push_str("<details><summary>Every mix</summary>\n");
    push_shares(html, card);
    push_kept(html, card);
    html.push_str("</details></div>\n");
}

fn push_shares(html: &mut String, card: &Scorecard) {
    html.push_str(
        "<h3>Fairness: Jain's index, and the sum of the clients' parts of the drive</h3>\n",
    );
    let mixes = card.scores.first().map(|score| score.shares.as_slice()).unwrap_or_default();
    let mut header = vec!["stack"];
    header.extend(mixes.iter().map(|shares| shares.mix));
    let row = |score: &Score| {
        let cell =
            |shares: &super::score::Shares| format!("{:.2} ({:.2})", shares.jain, shares.sum);
        let cells: Vec<String> =
            [score.stack.clone()].into_iter().chain(score.shares.iter().map(cell)).collect();
        let plain = vec![None; cells.len()];
        (cells, plain)
    };
    push_table(html, &header, card.scores.iter().map(row).collect());
}

fn push_kept(html: &mut String, card: &Scorecard) {
    html.push_str("<h3>A reader with a minimum beside its neighbours</h3>\n");
    let header = [
        "stack",
        "neighbours",
        "part of minimum",
        "use of drive",
        "p99, ms",
        "longest, ms",
        "served after, ms",
    ];
    let mut rows = Vec::new();
    for score in &card.scores {
        for kept in &score.kept {
            let served = match kept.served_ns {
                None => "-".into(),
                Some(served) if served.is_finite() => short(served / 1e6),
                Some(_) => "never".into(),
            };
            let cells = vec![
                score.stack.clone(),
                kept.neighbours.to_owned(),
                format!("{:.2}", kept.part),
                format!("{:.2}", kept.usage),
                short(kept.p99_ns / 1e6),
                short(kept.max_ns / 1e6),
                served,
            ];
            rows.push((cells, vec![None; header.len()]));
        }
    }
    push_table(html, &header, rows);
}

type Row = (Vec<String>, Vec<Option<Grade>>);

fn push_table(html: &mut String, header: &[&str], rows: Vec<Row>) {
    html.push_str("<div class=\"scroll\"><table><tr>");
    for (index, name) in header.iter().enumerate() {
        let class = if index > 0 { " class=\"n\"" } else { "" };
        let _ = write!(html, "<th{class}>{}</th>", escape(name));
    }
    html.push_str("</tr>\n");
    for (cells, grades) in rows {
        html.push_str("<tr>");
        for (index, (cell, grade)) in cells.iter().zip(grades).enumerate() {
            let class = if index > 0 { " class=\"n\"" } else { "" };
            let text = match grade {
                None => escape(cell),
                Some(grade) => {
                    let (class, word) = match grade {
                        Grade::Good => ("holds", "good"),
                        Grade::Fair => ("informative", "fair"),
                        Grade::Poor => ("does_not_hold", "poor"),
                    };
                    format!(
                        "<span class=\"verdict {class}\" title=\"{word}\">{}</span>",
                        escape(cell)
                    )
                }
            };
            let _ = write!(html, "<td{class}>{text}</td>");
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}

/// For each kind of neighbours, the part of the minimum against the use of the drive, a dot a stack.
fn pareto(card: &Scorecard) -> String {
    let kinds = card.scores.first().map_or(0, |score| score.kept.len());
    let panel = |kind: usize| {
        let dot = |score: &Score| {
            let kept = &score.kept[kind];
            Mark::Dot {
                at: (kept.usage, kept.part.max(PART_LEAST)),
                style: fill(COLOURS[usize::from(!score.stack.contains("promise"))]),
                radius: 4.0,
                name: score.stack.clone(),
                tip: format!(
                    "{}: {:.2} of the minimum, use {:.2}",
                    score.stack, kept.part, kept.usage
                ),
            }
        };
        let most = card.scores.iter().map(|score| score.kept[kind].usage).fold(1.0, f64::max);
        let mut marks = vec![Mark::Across(1.0)];
        marks.extend(card.scores.iter().map(dot));
        Plot {
            title: format!("beside {}", card.scores[0].kept[kind].neighbours),
            x: Axis::linear("use of the drive", most),
            y: Axis::log("part of the minimum", PART_LEAST, 10.0),
            marks,
        }
    };
    let panels: Vec<Plot> = (0..kinds).map(panel).collect();
    let grid = Grid { columns: 2, width: 470.0, height: 230.0 };
    picture("Up and right is better", &[], grid, &panels)
}
