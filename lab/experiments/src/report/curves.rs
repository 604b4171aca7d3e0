//! What sweeps give, drawn as curves: a number over the values of a key, one line a stack.
//!
//! The key with the most values lies to the right; each combination of the other keys' values has its own chart. In a sample,
//! where few points share the other keys, each key has a chart with a dot for each point.

use crate::distinct;
use core::fmt::Write;

use iofair_draw::{Axis, Mark, Plot, STACKS, Scale, escape, stack};

use super::number::number;
use super::summary::{Row, Summary};
use super::surface;
use super::swept::{Number, axes, numbers, numeric, rest};

const WIDE: f64 = 330.0;

/// Whether there is anything to draw.
pub(super) fn has_curves(summary: &Summary) -> bool {
    !axes(summary).is_empty()
}

/// All charts; nothing without a sweep over numbers.
pub(super) fn curves(html: &mut String, summary: &Summary) {
    let axes = axes(summary);
    let Some((main, values)) = axes.iter().max_by_key(|(_, values)| values.len()) else { return };
    let panels = distinct(summary.rows.iter().map(|row| rest(row, &[main])));
    let stacks = summary.stacks();
    let points = summary.rows.len() / stacks.len().max(1);
    // A grid has each combination of values in each variant.
    let is_sample = points < panels.len() * values.len();
    html.push_str("<div class=\"charts curves\">");
    for number in numbers(summary) {
        if is_sample {
            for (key, values) in &axes {
                let chart = Chart { key, values, number: &number, dots: true };
                chart.push(html, summary, &|_| true, &number.title);
            }
            continue;
        }
        for panel in &panels {
            let chart = Chart { key: main, values, number: &number, dots: false };
            let title = match panel.is_empty() {
                true => number.title.clone(),
                false => format!("{}, {panel}", number.title),
            };
            chart.push(html, summary, &|row| rest(row, &[main]) == *panel, &title);
        }
    }
    html.push_str("</div>\n");
    if !is_sample {
        surface::surfaces(html, summary, &axes);
    }
}

/// One chart.
struct Chart<'a> {
    key: &'a str,
    values: &'a [(f64, String)],
    number: &'a Number<'a>,
    dots: bool,
}

impl Chart<'_> {
    fn push(&self, html: &mut String, summary: &Summary, here: &dyn Fn(&Row) -> bool, title: &str) {
        let (mut marks, mut values) = (Vec::new(), Vec::new());
        for (colour, name) in summary.stacks().into_iter().enumerate() {
            let rows = summary.rows.iter().filter(|row| row.stack == name && here(row));
            let dot = |row: &Row| {
                let (_, text) = row.swept.iter().find(|(key, _)| key == self.key)?;
                let (at, value) = (numeric(text)?, (self.number.of)(row)?);
                let told =
                    format!("{name} {}: {} {}", row.variant, number(value), self.number.unit);
                Some(((at, value), told))
            };
            let mut dots: Vec<_> = rows.filter_map(dot).collect();
            dots.sort_by(|a, b| a.0.0.total_cmp(&b.0.0));
            let points: Vec<_> = dots.iter().map(|(at, _)| *at).collect();
            values.extend(points.iter().map(|(_, value)| *value));
            marks.extend(dots.into_iter().map(|(at, tip)| {
                let (style, name) = (stack(colour), String::new());
                Mark::Dot { at, radius: 3.4, style, name, tip }
            }));
            if !self.dots && !points.is_empty() {
                let style = format!("class=\"curve s{}\"", colour % STACKS);
                marks.push(Mark::Line { points, style, tip: name.to_owned() });
            }
        }
        let (low, high) = (self.values[0].0, self.values[self.values.len() - 1].0);
        let x = Axis::new(self.key, Scale::around(low, high)).with_ticks(self.values.to_vec());
        let y = Axis::fit(self.number.unit, values.into_iter());
        let plot = Plot { title: title.to_owned(), x, y, marks };
        let _ = write!(html, "<div><h3>{}</h3>{}</div>", escape(title), plot.in_page(WIDE));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiment::{Overrides, parse};
    use crate::report::summarize;
    use crate::testing::{EXAMPLE, results};

    /// The summary of a swept experiment, and its charts.
    pub(in crate::report) fn swept(sweeps: &[&str]) -> (Summary, String) {
        let sweeps = sweeps.iter().map(|sweep| (*sweep).to_owned()).collect();
        let overrides = Overrides { sweeps, ..Overrides::default() };
        let text = EXAMPLE.replace("[[sweep]]\nclient = \"reader\"", "[[sweep]]\nkey = \"time\"");
        let text = text.replace("key = \"count\"\nvalues = [4, 1]", "values = [\"2s\", \"4s\"]");
        let experiment = parse("e.toml", &text, &overrides).expect("a good file");
        let summary = summarize(&results(experiment, 1));
        let mut html = String::new();
        curves(&mut html, &summary);
        (summary, html)
    }

    /// Goal: the key with the most values lies to the right, the others make charts, each stack is a line through all its
    /// points. Method: three weights, two times and two variants: 4 charts of each of 5 numbers.
    #[test]
    fn sweeps_are_curves() {
        let (summary, html) = swept(&["client.reader.weight=10,100,1000"]);
        assert_eq!(summary.rows.len(), 2 * 2 * 3 * 2);
        let (html, surfaces) = html.split_once("Surfaces").expect("two keys were swept");
        assert_eq!(html.matches("<svg").count(), 4 * 5);
        assert_eq!(html.matches("class=\"curve").count(), 4 * 5 * 2);
        assert_eq!(html.matches("<circle").count(), 4 * 5 * 2 * 3);
        assert!(html.contains("target: rate, rand, time=2s") && html.contains(">1000</text>"));
        // A map for each number, stack and variant, with a cell for each weight and time.
        assert_eq!(surfaces.matches("<svg").count(), 5 * 2 * 2);
        assert_eq!(surfaces.matches("<rect").count(), 5 * 2 * 2 * 3 * 2);
    }

    /// Goal: a sample has a chart for each key, with a dot for each point and no lines. Method: 6 of 9 points of two keys, in two
    /// variants and at two times.
    #[test]
    fn a_sample_is_dots() {
        let (mut summary, _) =
            swept(&["client.reader.weight=10,100,1000", "client.target.weight=1,2,3"]);
        let keep = |row: &Row| row.swept[1].1 != "10" || row.swept[2].1 == "1";
        summary.rows.retain(keep);
        let mut html = String::new();
        curves(&mut html, &summary);
        assert_eq!(html.matches("<svg").count(), 3 * 5);
        assert_eq!(html.matches("<circle").count(), 3 * 5 * 2 * 2 * 2 * 7);
        assert!(!html.contains("class=\"curve s"));
    }

    /// Goal: the name of a variant of the file stands for all points of its sweeps, and a wrong name is told with those of the file.
    /// Method: one of two variants, swept over three weights and two times.
    #[test]
    fn a_variant_keeps_its_points() {
        let sweeps = vec!["client.reader.weight=10,100,1000".to_owned()];
        let overrides = Overrides { sweeps, ..Overrides::default() };
        let mut experiment = parse("e.toml", EXAMPLE, &overrides).expect("a good file");
        let all = experiment.variants.len();
        let told = experiment.keep_variants(&["rant".to_owned()]).unwrap_err();
        let told = told.to_string();
        assert!(told.ends_with("allowed: rand, seq\n  did you mean `rand`?"), "{told}");
        experiment.keep_variants(&["rand".to_owned()]).expect("a variant of the file");
        assert_eq!(experiment.variants.len(), all / 2);
        assert!(experiment.variants.iter().all(|variant| variant.base == "rand"));
    }

    /// Goal: what is not swept over numbers has no curves. Method: drives.
    #[test]
    fn words_are_not_curves() {
        let mut summary = swept(&["client.reader.weight=50,100"]).0;
        assert!(has_curves(&summary));
        for (_, value) in summary.rows.iter_mut().flat_map(|row| &mut row.swept) {
            value.insert(0, 'x');
        }
        assert!(!has_curves(&summary));
    }
}
