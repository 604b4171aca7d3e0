//! A plan as a picture: for each client what it gets at worst, as expected and at most, beside its minimum; and the drives that
//! the clients need.

use iofair_draw::{BOLD, END, FILE, Scale, Sign, Svg, fill, legend};

use super::answers::Plan;
use super::fit::Row;
use super::mix::rate;
use super::text::verdict;

const KEPT: &str = "#389e0d";
const BROKEN: &str = "#d4380d";
const EXPECTED: &str = "#1677ff";
const BAR: &str = "fill=\"#d6e4ff\"";
const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 170.0;
const LINE: f64 = 26.0;
/// Rows that are drawn; more would make a picture that no one can read.
const ROWS_MAX: usize = 40;

/// The picture as an SVG file.
pub fn picture(plan: &Plan) -> String {
    let rows = &plan.rows[..plan.rows.len().min(ROWS_MAX)];
    let title = format!("Promises on {} under {}", plan.drive, plan.stack);
    let mut svg = Svg::titled(&title);
    let [kept, broken, expected] = [KEPT, BROKEN, EXPECTED].map(fill);
    let signs = [
        (Sign::Bar(BAR), "from guaranteed to maximum"),
        (Sign::Dot(&kept), "guaranteed"),
        (Sign::Dot(&broken), "guaranteed, and a promise broken"),
        (Sign::Dot(&expected), "expected"),
        (Sign::Line, "promised minimum"),
    ];
    legend(&mut svg, (8.0, 44.0), signs);
    let top = 78.0;
    let bottom = top + LINE * rows.len() as f64;
    svg.text((WIDTH - RIGHT + 14.0, top - 8.0), FILE.soft, "worst beside");
    let scale = scale(rows);
    let ticks = scale.ticks().into_iter().map(|rate| (x(scale, rate), label(rate)));
    svg.columns(ticks, (top, bottom), bottom + 16.0, FILE);
    for (index, row) in rows.iter().enumerate() {
        push_row(&mut svg, row, scale, top + LINE * (index as f64 + 0.5));
    }
    let mut end = bottom + 36.0;
    if plan.rows.len() > ROWS_MAX {
        let more = plan.rows.len() - ROWS_MAX;
        svg.text((12.0, end), FILE.soft, &format!("and {more} more"));
        end += 20.0;
    }
    if !plan.approaches.is_empty() {
        end = drives(&mut svg, plan, end + 14.0);
    }
    svg.file(&title, (WIDTH, end + 8.0))
}

/// Rates on a logarithmic scale.
fn scale(rows: &[Row]) -> Scale {
    let guaranteed = |row: &Row| row.guaranteed.as_ref().map(|found| found.value);
    let all = rows
        .iter()
        .flat_map(|row| [guaranteed(row), Some(row.expected), row.maximum, row.minimum_bytes]);
    let all: Vec<f64> = all.flatten().filter(|rate| *rate > 0).map(|rate| rate as f64).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min).clamp(1e3, 1e9);
    Scale::powers(least, all.iter().copied().fold(1e4, f64::max))
}

fn x(scale: Scale, rate: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * scale.place(rate)
}

fn label(rate: f64) -> String {
    match rate {
        1e9.. => format!("{:.0} GB/s", rate / 1e9),
        1e6.. => format!("{:.0} MB/s", rate / 1e6),
        _ => format!("{:.0} kB/s", rate / 1e3),
    }
}

/// The end of a long name.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    match count {
        0..=28 => name.to_owned(),
        _ => format!("…{}", name.chars().skip(count - 27).collect::<String>()),
    }
}

fn push_row(svg: &mut Svg, row: &Row, scale: Scale, middle: f64) {
    let x = |rate: u64| x(scale, rate as f64);
    svg.text((LEFT - 12.0, middle + 4.0), END, &shortened(&row.group));
    let guaranteed = row.guaranteed.as_ref();
    if let (Some(guaranteed), Some(maximum)) = (guaranteed, row.maximum) {
        let (from, to) = (x(guaranteed.value), x(maximum));
        let style = format!("rx=\"4\" {BAR}");
        svg.rect((from, middle - 5.0), ((to - from).max(2.0), 10.0), &style, "");
    }
    if let Some(minimum) = row.minimum_bytes {
        let style = format!("{} stroke-width=\"2\"", FILE.mark);
        svg.path(&format!("M{:.1} {:.1}v18", x(minimum), middle - 9.0), &style, "");
    }
    let mut dot = |value: u64, colour: &str, told: String| {
        let style = format!("{} stroke=\"#ffffff\"", fill(colour));
        let tip = format!("{}: {} {told}", row.group, rate(value));
        svg.circle((x(value), middle), 4.5, &style, &tip);
    };
    dot(row.expected, EXPECTED, "expected".to_owned());
    let colour = if row.breach.is_some() { BROKEN } else { KEPT };
    if let Some(found) = guaranteed {
        dot(found.value, colour, format!("beside {}", found.mix));
    }
    let worst = guaranteed.map_or(String::new(), |found| found.mix.clone());
    let (says, style) = match row.breach.is_some() {
        true => (format!("{}: {worst}", verdict(row)), fill(BROKEN)),
        false => (worst, FILE.soft.to_owned()),
    };
    svg.text((WIDTH - RIGHT + 14.0, middle + 4.0), &style, &says);
}

/// Bars of drives, from `top` on; where they end.
fn drives(svg: &mut Svg, plan: &Plan, top: f64) -> f64 {
    svg.text((8.0, top), &format!("font-size=\"12\" {BOLD}"), "Drives for the same clients");
    let most = plan.approaches.iter().filter_map(|approach| approach.drives).max();
    let most = most.unwrap_or(1).max(1);
    let each = ((WIDTH - LEFT - RIGHT) / most as f64).min(40.0);
    let style = format!("rx=\"2\" {}", fill(EXPECTED));
    for (index, approach) in plan.approaches.iter().enumerate() {
        let middle = top + 20.0 + LINE * index as f64;
        svg.text((LEFT - 12.0, middle + 4.0), END, approach.name);
        let (at, text) = match approach.drives {
            Some(drives) => {
                for drive in 0..drives {
                    let left = LEFT + each * drive as f64;
                    let clients = approach.packing[drive].join(", ");
                    svg.rect((left, middle - 7.0), ((each - 2.0).max(1.0), 14.0), &style, &clients);
                }
                (LEFT + each * drives as f64 + 6.0, drives.to_string())
            }
            None => (LEFT, "not possible with one drive for each client".to_owned()),
        };
        svg.text((at, middle + 4.0), "", &text);
    }
    top + 20.0 + LINE * plan.approaches.len() as f64
}
