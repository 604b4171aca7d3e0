//! A plan as one page that works offline: the picture, the answers, the tables.

use core::fmt::Write;

use iofair_draw::escape;

use super::answers::Plan;
use super::picture::picture;
use super::text::{Cells, answers, approaches, clients, conditions, notes};

/// The page.
pub fn page(plan: &Plan) -> String {
    let verdict = match plan.fits() {
        true => "<span class=\"verdict holds\">the promises fit</span>",
        false => "<span class=\"verdict does_not_hold\">a promise is broken</span>",
    };
    let conditions = escape(&conditions(plan));
    let mut html = format!("<p>{verdict}</p>\n<p class=\"soft\">{conditions}</p>\n");
    let _ = writeln!(html, "<div class=\"card\">{}</div>\n<div class=\"card\">", picture(plan));
    for answer in answers(plan) {
        let _ = writeln!(html, "<p>{}</p>", escape(&answer).replace('\n', "<br>"));
    }
    html.push_str("</div>\n<div class=\"card\"><h2>Clients</h2>");
    push(&mut html, &clients(plan));
    for note in notes(plan) {
        let _ = writeln!(html, "<p class=\"soft\">{}</p>", escape(&note));
    }
    if !plan.approaches.is_empty() {
        html.push_str("</div>\n<div class=\"card\"><h2>Drives</h2>");
        push(&mut html, &approaches(plan));
    }
    html.push_str("</div>\n");
    iofair_draw::page("iofair plan", "Plan", &html)
}

fn push(html: &mut String, cells: &Cells) {
    let class = |index: usize| if cells.right.contains(&index) { " class=\"n\"" } else { "" };
    html.push_str("<div class=\"scroll\"><table><tr>");
    for (index, name) in cells.header.iter().enumerate() {
        let _ = write!(html, "<th{}>{}</th>", class(index), escape(name));
    }
    html.push_str("</tr>\n");
    for row in &cells.rows {
        html.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            let _ = write!(html, "<td{}>{}</td>", class(index), escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}
