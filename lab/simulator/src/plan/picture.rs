//! A plan as a picture: for each client what it gets at worst, as expected and at most, beside its minimum; and the drives that
//! the clients need.

use core::fmt::Write;

use super::answers::Plan;
use super::fit::Row;
use super::mix::rate;
use super::text::verdict;
use crate::report::{escape, picture_file};

const INK: &str = "#262626";
const SOFT: &str = "#595959";
const KEPT: &str = "#389e0d";
const BROKEN: &str = "#d4380d";
const EXPECTED: &str = "#1677ff";
const BAR: &str = "#d6e4ff";
const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 170.0;
const LINE: f64 = 26.0;
/// Rows that are drawn; more would make a picture that no one can read.
const ROWS_MAX: usize = 40;

/// The picture as an SVG file.
pub fn picture(plan: &Plan) -> String {
    let rows = &plan.rows[..plan.rows.len().min(ROWS_MAX)];
    let mut svg = String::from("<g font-size=\"11\">\n");
    let title = format!("Promises on {} under {}", plan.drive, plan.stack);
    let _ = writeln!(
        svg,
        "<text x=\"12\" y=\"20\" font-size=\"14\" font-weight=\"600\">{}</text>",
        escape(&title)
    );
    legend(&mut svg);
    let top = 78.0;
    let bottom = top + LINE * rows.len() as f64;
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"{SOFT}\">worst beside</text>",
        WIDTH - RIGHT + 14.0,
        top - 8.0
    );
    let scale = Scale::of(rows);
    scale.draw(&mut svg, (top, bottom));
    for (index, row) in rows.iter().enumerate() {
        push_row(&mut svg, row, &scale, top + LINE * index as f64);
    }
    let mut end = bottom + 36.0;
    if plan.rows.len() > ROWS_MAX {
        let more = plan.rows.len() - ROWS_MAX;
        let _ =
            writeln!(svg, "<text x=\"12\" y=\"{end:.0}\" fill=\"{SOFT}\">and {more} more</text>");
        end += 20.0;
    }
    if !plan.approaches.is_empty() {
        end = drives(&mut svg, plan, end + 14.0);
    }
    svg.push_str("</g>\n");
    picture_file(&title, (WIDTH, end + 8.0), &svg)
}

fn legend(svg: &mut String) {
    let mut at = 12.0;
    let mark = |svg: &mut String, shape: String, text: &str, at: &mut f64| {
        let _ = writeln!(svg, "{shape}<text x=\"{:.0}\" y=\"44\">{text}</text>", *at + 20.0);
        *at += 40.0 + 6.3 * text.len() as f64;
    };
    let bar =
        format!("<rect x=\"{at}\" y=\"36\" width=\"14\" height=\"9\" rx=\"2\" fill=\"{BAR}\"/>");
    mark(svg, bar, "from guaranteed to maximum", &mut at);
    for (colour, text) in
        [(KEPT, "guaranteed"), (BROKEN, "guaranteed, and a promise broken"), (EXPECTED, "expected")]
    {
        let dot = format!("<circle cx=\"{:.0}\" cy=\"40\" r=\"4.5\" fill=\"{colour}\"/>", at + 7.0);
        mark(svg, dot, text, &mut at);
    }
    let line = format!("<path d=\"M{:.0} 33v15\" stroke=\"{INK}\" stroke-width=\"2\"/>", at + 7.0);
    mark(svg, line, "promised minimum", &mut at);
}

/// Rates on a logarithmic scale of whole powers of ten.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(rows: &[Row]) -> Self {
        let guaranteed = |row: &Row| row.guaranteed.as_ref().map(|found| found.value);
        let all = rows
            .iter()
            .flat_map(|row| [guaranteed(row), Some(row.expected), row.maximum, row.minimum_bytes]);
        let all: Vec<f64> =
            all.flatten().filter(|rate| *rate > 0).map(|rate| rate as f64).collect();
        let least = all.iter().copied().fold(f64::INFINITY, f64::min).clamp(1e3, 1e9);
        let most = all.iter().copied().fold(1e4, f64::max);
        Self {
            low: least.log10().floor(),
            high: most.log10().ceil().max(least.log10().floor() + 1.0),
        }
    }
    fn x(&self, rate: u64) -> f64 {
        let part = ((rate.max(1) as f64).log10() - self.low) / (self.high - self.low);
        LEFT + (WIDTH - LEFT - RIGHT) * part.clamp(0.0, 1.0)
    }
    fn draw(&self, svg: &mut String, (top, bottom): (f64, f64)) {
        for power in self.low as i32..=self.high as i32 {
            let x = self.x(10u64.pow(power.max(0) as u32));
            let label = match power {
                9.. => format!("{} GB/s", 10u64.pow(power as u32 - 9)),
                6.. => format!("{} MB/s", 10u64.pow(power as u32 - 6)),
                _ => format!("{} kB/s", 10u64.pow((power - 3).max(0) as u32)),
            };
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {top:.0}V{bottom:.0}\" stroke=\"#e8e8e8\"/>\
                 <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"{SOFT}\">{label}</text>",
                bottom + 16.0
            );
        }
    }
}

fn push_row(svg: &mut String, row: &Row, scale: &Scale, top: f64) {
    let middle = top + LINE / 2.0;
    let name = match row.group.chars().count() {
        0..=28 => row.group.clone(),
        _ => format!(
            "…{}",
            row.group.chars().rev().take(27).collect::<Vec<_>>().iter().rev().collect::<String>()
        ),
    };
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        LEFT - 12.0,
        middle + 4.0,
        escape(&name)
    );
    let guaranteed = row.guaranteed.as_ref();
    if let (Some(guaranteed), Some(maximum)) = (guaranteed, row.maximum) {
        let (from, to) = (scale.x(guaranteed.value), scale.x(maximum));
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"10\" rx=\"4\" fill=\"{BAR}\"/>",
            middle - 5.0,
            (to - from).max(2.0)
        );
    }
    if let Some(minimum) = row.minimum_bytes {
        let _ = writeln!(
            svg,
            "<path d=\"M{:.1} {:.1}v18\" stroke=\"{INK}\" stroke-width=\"2\"/>",
            scale.x(minimum),
            middle - 9.0
        );
    }
    let mut dot = |rate: u64, colour: &str, tip: String| {
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"4.5\" fill=\"{colour}\" stroke=\"#ffffff\"><title>{}</title></circle>",
            scale.x(rate),
            escape(&tip)
        );
    };
    dot(row.expected, EXPECTED, format!("{}: {} expected", row.group, rate(row.expected)));
    let colour = if row.breach.is_some() { BROKEN } else { KEPT };
    if let Some(found) = guaranteed {
        dot(
            found.value,
            colour,
            format!("{}: {} beside {}", row.group, rate(found.value), found.mix),
        );
    }
    let worst = guaranteed.map_or(String::new(), |found| found.mix.clone());
    let says = if row.breach.is_some() { format!("{}: {worst}", verdict(row)) } else { worst };
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.1}\" fill=\"{}\">{}</text>",
        WIDTH - RIGHT + 14.0,
        middle + 4.0,
        if row.breach.is_some() { BROKEN } else { SOFT },
        escape(&says)
    );
}

/// Bars of drives, from `top` on; where they end.
fn drives(svg: &mut String, plan: &Plan, top: f64) -> f64 {
    let _ = writeln!(
        svg,
        "<text x=\"12\" y=\"{top:.0}\" font-size=\"12\" font-weight=\"600\">Drives for the same clients</text>"
    );
    let most = plan.approaches.iter().filter_map(|it| it.drives).max().unwrap_or(1).max(1);
    let each = ((WIDTH - LEFT - RIGHT) / most as f64).min(40.0);
    for (index, approach) in plan.approaches.iter().enumerate() {
        let middle = top + 20.0 + LINE * index as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 12.0,
            middle + 4.0,
            approach.name
        );
        let text = match approach.drives {
            Some(drives) => {
                for drive in 0..drives {
                    let clients = approach.packing[drive].join(", ");
                    let _ = writeln!(
                        svg,
                        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\" fill=\"{EXPECTED}\"><title>{}</title></rect>",
                        LEFT + each * drive as f64,
                        middle - 7.0,
                        (each - 2.0).max(1.0),
                        escape(&clients)
                    );
                }
                (LEFT + each * drives as f64 + 6.0, drives.to_string())
            }
            None => (LEFT, "not possible with one drive for each client".to_owned()),
        };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{INK}\">{}</text>",
            text.0,
            middle + 4.0,
            text.1
        );
    }
    top + 20.0 + LINE * plan.approaches.len() as f64
}
