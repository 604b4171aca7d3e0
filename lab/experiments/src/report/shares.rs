//! What clients were promised beside what they got: minimums, and shares by weight.

use core::fmt::Write;

use iofair_draw::{Svg, escape, stack};

use super::clients::ClientRow;
use super::number::short;
use super::summary::{Row, Summary};

/// Width of a bar that stands for everything, in pixels.
const WIDE: f64 = 150.0;

/// Whether anything was promised: a minimum, or more by weight to some clients than to others.
fn is_promised(row: &Row) -> bool {
    let each = row.clients.iter().map(|client| client.entitlement / client.processes.max(1) as f64);
    let (low, high) =
        each.fold((f64::INFINITY, 0.0_f64), |(low, high), each| (low.min(each), high.max(each)));
    let minimum = row.clients.iter().any(|client| client.minimum > 0.0);
    minimum || (row.clients.len() > 1 && high > low * 1.01)
}

/// A table with bars: each client's minimum and rate, and its share by weight and of the bytes.
pub(super) fn shares(html: &mut String, summary: &Summary) {
    let rows: Vec<&Row> = summary.rows.iter().filter(|row| is_promised(row)).collect();
    if rows.is_empty() {
        return;
    }
    let variants = summary.has_variants();
    let variant = if variants { "<th>variant</th>" } else { "" };
    let unit = summary.rate_unit;
    let _ = write!(
        html,
        "<details class=\"shares\"><summary>Promised and got</summary><p class=\"soft\">By weight: the part of the drive if all clients \
         are busy all the time. Got: the part of all bytes; a policy that divides time gives fewer bytes to clients whose requests \
         take longer.</p><div class=\"scroll\"><table><tr>{variant}<th>stack</th><th>client</th><th class=\"n\">minimum {unit}</th>\
         <th class=\"n\">got {unit}</th><th></th><th class=\"n\">by weight %</th><th class=\"n\">got %</th><th></th></tr>"
    );
    for row in rows {
        let all: f64 =
            row.clients.iter().map(|client| client.rate.mean).filter(|rate| rate.is_finite()).sum();
        for (index, client) in row.clients.iter().enumerate() {
            let first = index == 0;
            html.push_str(if first { "<tr class=\"first\">" } else { "<tr>" });
            if variants {
                let _ = write!(
                    html,
                    "<td>{}</td>",
                    if first { escape(&row.variant) } else { String::new() }
                );
            }
            let rate = client.rate.mean;
            let verdict = verdict(client);
            let minimum = if client.minimum > 0.0 { short(client.minimum) } else { String::new() };
            let got = if all > 0.0 { rate / all } else { 0.0 };
            let _ = writeln!(
                html,
                "<td>{}</td><td>{}</td><td class=\"n\">{minimum}</td><td class=\"n\">{}</td><td>{verdict}</td><td class=\"n\">{}</td>\
                 <td class=\"n\">{}</td><td>{}</td></tr>",
                if first { escape(&row.stack) } else { String::new() },
                escape(&client.label()),
                short(rate),
                short(100.0 * client.entitlement),
                short(100.0 * got),
                bar(client.entitlement, got)
            );
        }
    }
    html.push_str("</table></div></details>\n");
}

/// Whether a client has its minimum, and of several repeats in how many.
fn verdict(client: &ClientRow) -> String {
    let (kept, of) = (client.runs_kept(), client.rates.len());
    let (class, words) = match kept {
        _ if client.minimum <= 0.0 => return String::new(),
        _ if kept == of => ("holds", "kept"),
        0 => ("does_not_hold", "broken"),
        _ => ("does_not_hold", "kept"),
    };
    let runs = if of > 1 { format!(" in {kept} of {of} runs") } else { String::new() };
    let runs = runs.replace(" in 0 of ", " in all ");
    format!("<span class=\"verdict {class}\">{words}{runs}</span>")
}

/// What was got as a bar, what was promised as a line.
fn bar(promised: f64, got: f64) -> String {
    let [promised_part, got_part] = [promised, got].map(|part| WIDE * part.clamp(0.0, 1.0));
    let mut svg = Svg::new();
    svg.rect((0.0, 3.0), (WIDE, 8.0), "class=\"band\"", "");
    svg.rect((0.0, 3.0), (got_part, 8.0), &stack(1), "");
    let line = format!("M{:.1} 0v14", promised_part.clamp(1.0, WIDE - 1.0));
    svg.path(&line, "class=\"published\"", "");
    let [promised, got] = [promised, got].map(|part| short(100.0 * part));
    svg.in_page(&format!("promised {promised} %, got {got} %"), (WIDE, 14.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Overrides, parse};
    use crate::report::summarize;
    use crate::testing::{EXAMPLE, results};

    /// Goal: a table says what was promised, if anything was. Method: the example, in which the clients' weights are alike; the same with
    /// a minimum that is kept and one that is not.
    #[test]
    fn tables_say_what_was_promised() {
        let experiment = parse("e.toml", EXAMPLE, &Overrides::default()).expect("a good file");
        let mut summary = summarize(&results(experiment, 1));
        for client in summary.rows.iter_mut().flat_map(|row| &mut row.clients) {
            (client.minimum, client.entitlement) = (0.0, client.processes as f64);
        }
        let mut html = String::new();
        shares(&mut html, &summary);
        assert!(html.is_empty());
        let clients = &mut summary.rows[0].clients;
        clients[0].minimum = clients[0].rate.mean;
        clients[1].minimum = clients[1].rate.mean * 1.1;
        let clients = clients.len();
        shares(&mut html, &summary);
        assert!(html.contains(">kept in 3 of 3 runs<") && html.contains(">broken in all 3 runs<"));
        assert_eq!(html.matches("<svg").count(), clients);
        let client = &mut summary.rows[0].clients[0];
        client.rates = vec![client.minimum, client.minimum, 0.0];
        assert!(verdict(client).contains(">kept in 2 of 3 runs<"));
        client.rates.truncate(1);
        assert!(verdict(client).contains(">kept<"));
    }
}
