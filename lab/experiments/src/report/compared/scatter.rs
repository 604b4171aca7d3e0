//! All published numbers of all sources in one picture: ours against theirs, a plot for each kind of number.

use iofair_draw::{Axis, COLOURS, Grid, Mark, Plot, fill, picture};

use super::distance::compared;
use crate::report::summary::Summary;

/// Rates, latencies, and quotients with everything else: title and units.
const PLOTS: [(&str, &[&str]); 3] = [
    ("Rates, MB/s", &["MB/s", "KiB/s"]),
    ("Latencies and times, ms", &["ms", "s"]),
    ("Ratios and others", &[]),
];
const HELD_OUT: &str = COLOURS[1];
const FITTED: &str = COLOURS[2];

/// The picture: the line is where ours is what is published.
pub fn scatter(summaries: &[Summary]) -> String {
    let panels: Vec<Plot> = (0..PLOTS.len()).filter_map(|kind| panel(summaries, kind)).collect();
    let legend = [("held-out", HELD_OUT), ("fitted", FITTED)];
    let grid = Grid { columns: 3, width: 330.0, height: 330.0 };
    picture("Ours against what is published", &legend, grid, &panels)
}

/// Which plot a unit is in, and the factor to the plot's unit.
fn place(unit: &str) -> (usize, f64) {
    let factor = match unit {
        "KiB/s" => 1024.0 / 1e6,
        "s" => 1000.0,
        _ => 1.0,
    };
    let kind = PLOTS.iter().position(|(_, units)| units.contains(&unit));
    (kind.unwrap_or(PLOTS.len() - 1), factor)
}

fn panel(summaries: &[Summary], kind: usize) -> Option<Plot> {
    let mut dots = Vec::new();
    for summary in summaries {
        for compared in compared(summary) {
            let claim = compared.claim;
            let (own, factor) = place(claim.unit);
            let (published, got) = (compared.published * factor, claim.got * factor);
            if own == kind && published > 0.0 && got > 0.0 && got.is_finite() {
                let tip = format!("{} {}: {}", summary.name, claim.variant, claim.text);
                dots.push((claim.fitted, (published, got), tip));
            }
        }
    }
    let values = dots.iter().flat_map(|(_, (a, b), _)| [*a, *b]);
    let (least, most) =
        values.fold((f64::INFINITY, 0.0), |(l, m): (f64, f64), v| (l.min(v), m.max(v)));
    if dots.is_empty() {
        return None;
    }
    let axis = |name: &str| Axis::log(name, least, most);
    let (from, to) = (least / 10.0, most * 10.0);
    let diagonal = vec![(from, from), (to, to)];
    let mut marks = vec![Mark::line(diagonal, "#595959", 1.0)];
    // Held-out ones last, so that they lie above.
    dots.sort_by_key(|(fitted, ..)| !fitted);
    marks.extend(dots.into_iter().map(|(fitted, at, tip)| Mark::Dot {
        at,
        radius: 2.5,
        style: fill(if fitted { FITTED } else { HELD_OUT }),
        name: String::new(),
        tip,
    }));
    let title = PLOTS[kind].0.to_owned();
    Some(Plot { title, x: axis("published"), y: axis("ours"), marks })
}
