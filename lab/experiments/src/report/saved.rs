//! Results that were saved as JSON, side by side: which quantities differ, and by how much.

use core::fmt::Write;
use std::collections::BTreeMap;

use iofair_draw::escape;
use serde::{Deserialize, Serialize};

use super::number::number;
use iofair_simulator::text_table::{RULED, counted, text_table};

/// What is needed of a result. [`super::json()`] writes it.
#[derive(Deserialize)]
struct Experiment {
    experiment: String,
    title: String,
    repeats: u32,
    seed: u64,
    statistics: Vec<Statistic>,
}

#[derive(Deserialize)]
struct Statistic {
    variant: String,
    stack: String,
    of: String,
    unit: String,
    count: usize,
    mean: f64,
    min: f64,
    max: f64,
    confidence_95: Option<f64>,
}

/// The results of one file.
pub struct Saved {
    name: String,
    experiments: Vec<Experiment>,
}

impl Saved {
    /// Reads the output of `iofair-lab run --json`; `name` is shown for it.
    ///
    /// # Errors
    ///
    /// What is wrong with the text, in words.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let wrong =
            |error: serde_json::Error| format!("not a result of `iofair-lab run --json`: {error}");
        let value: serde_json::Value = serde_json::from_str(text).map_err(wrong)?;
        let all = match value {
            serde_json::Value::Array(all) => all,
            one => vec![one],
        };
        let experiments: Result<_, _> = all.into_iter().map(serde_json::from_value).collect();
        Ok(Self { name: name.to_owned(), experiments: experiments.map_err(wrong)? })
    }
}

/// A mean and its interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Mean {
    /// The mean over the repeats.
    pub mean: f64,
    /// Its smallest and its largest repeat.
    pub range: [f64; 2],
    /// Half of its two-sided 95 % confidence interval, with more than one repeat.
    pub confidence_95: Option<f64>,
    /// The number of repeats.
    pub repeats: usize,
}

/// One quantity of one run, in each file.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The experiment.
    pub experiment: String,
    /// Its variant.
    pub variant: String,
    /// The policy stack.
    pub stack: String,
    /// The quantity, such as `target p99`.
    pub of: String,
    /// Its unit.
    pub unit: String,
    /// What each file has; `None`: nothing.
    pub values: Vec<Option<Mean>>,
    /// Difference of the last value to the first, in per cent of the first.
    pub percent: Option<f64>,
    /// Half of the interval of this difference in per cent, if both have several repeats.
    pub within: Option<f64>,
}

impl Row {
    /// Whether the difference is beyond chance: outside its interval, or without one more than 1 %.
    pub fn differs(&self) -> bool {
        self.percent.is_some_and(|percent| percent.abs() > self.within.unwrap_or(1.0))
    }
}

/// Results side by side.
#[derive(Serialize)]
pub struct Comparison {
    /// The files.
    pub files: Vec<String>,
    /// Title, repeats and first seed of each experiment, by file and name.
    pub experiments: Vec<[String; 3]>,
    /// Every quantity.
    pub rows: Vec<Row>,
}

/// Puts results side by side, in the order of the first file that has a quantity.
pub fn compare(files: &[Saved]) -> Comparison {
    let mut rows: Vec<Row> = Vec::new();
    let mut places = BTreeMap::new();
    let mut experiments = Vec::new();
    for (index, file) in files.iter().enumerate() {
        for experiment in &file.experiments {
            let repeats = counted(experiment.repeats.into(), "repeat");
            let repeats = format!("{repeats} from seed {}", experiment.seed);
            experiments.push([file.name.clone(), experiment.title.clone(), repeats]);
            for one in &experiment.statistics {
                let key = (&experiment.experiment, &one.variant, &one.stack, &one.of, &one.unit);
                let place = *places.entry(key).or_insert_with(|| {
                    let [experiment, variant, stack, of, unit] =
                        [key.0, key.1, key.2, key.3, key.4].map(String::clone);
                    let (values, percent, within) = (vec![None; files.len()], None, None);
                    rows.push(Row {
                        experiment,
                        variant,
                        stack,
                        of,
                        unit,
                        values,
                        percent,
                        within,
                    });
                    rows.len() - 1
                });
                rows[place].values[index] = Some(Mean {
                    mean: one.mean,
                    range: [one.min, one.max],
                    confidence_95: one.confidence_95,
                    repeats: one.count,
                });
            }
        }
    }
    rows.iter_mut().for_each(subtract);
    Comparison { files: files.iter().map(|file| file.name.clone()).collect(), experiments, rows }
}

fn subtract(row: &mut Row) {
    let [first, .., last] = row.values.as_slice() else { return };
    let (Some(first), Some(last)) = (first, last) else { return };
    if first.mean == 0.0 {
        row.percent = (last.mean == 0.0).then_some(0.0);
        return;
    }
    let of_first = |value: f64| value / first.mean.abs() * 100.0;
    row.percent = Some(of_first(last.mean - first.mean));
    // Half-widths of independent means add as squares.
    let both = first.confidence_95.zip(last.confidence_95);
    row.within = both.map(|(one, other)| of_first(one.hypot(other)));
}

impl Comparison {
    /// What a reader wants to know first.
    pub fn sentence(&self) -> String {
        if self.files.len() < 2 {
            return format!("{} quantities.", self.rows.len());
        }
        let both = self.rows.iter().filter(|row| row.percent.is_some()).count();
        let differ: Vec<&Row> = self.rows.iter().filter(|row| row.differs()).collect();
        let largest = differ.iter().max_by(|a, b| size(a).total_cmp(&size(b)));
        let largest = largest.map(|row| {
            format!(
                "; most: {} of {}{}, {:+.1} %",
                row.of,
                row.stack,
                place(row),
                row.percent.unwrap_or(0.0)
            )
        });
        format!(
            "{} of {both} quantities that both have differ between {} and {} by more than chance{}.",
            differ.len(),
            self.files[0],
            self.files[self.files.len() - 1],
            largest.unwrap_or_default()
        )
    }
    /// As text: the quantities that differ, or all of a single file.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.sentence());
        for [file, title, repeats] in &self.experiments {
            let _ = writeln!(text, "  {file}: {title}; {repeats}");
        }
        let alone = self.files.len() < 2;
        let shown: Vec<&Row> = self.rows.iter().filter(|row| alone || row.differs()).collect();
        if shown.is_empty() {
            return text;
        }
        let (heads, rows) = (self.heads(), shown.into_iter().map(|row| self.cells(row)));
        let right = 4..heads.len();
        text.push('\n');
        text += &text_table(RULED, heads, right, rows);
        text
    }
    fn heads(&self) -> Vec<String> {
        let heads = ["experiment", "variant", "stack", "of"].map(str::to_owned).into_iter();
        let difference = (self.files.len() > 1).then(|| "difference".to_owned());
        heads.chain(self.files.iter().cloned()).chain(difference).collect()
    }
    fn cells(&self, row: &Row) -> Vec<String> {
        let names = [&row.experiment, &row.variant, &row.stack, &row.of].map(String::clone);
        let value = |value: &Option<Mean>| match value {
            None => "-".to_owned(),
            Some(Mean { mean, confidence_95: None, .. }) => {
                format!("{} {}", number(*mean), row.unit)
            }
            Some(Mean { mean, confidence_95: Some(half), .. }) => {
                format!("{} ± {} {}", number(*mean), number(*half), row.unit)
            }
        };
        let difference = match (row.percent, row.within) {
            _ if self.files.len() < 2 => None,
            (None, _) => Some("-".to_owned()),
            (Some(percent), None) => Some(format!("{percent:+.1} %")),
            (Some(percent), Some(half)) => Some(format!("{percent:+.1} ± {half:.1} %")),
        };
        let values = row.values.iter().map(value);
        names.into_iter().chain(values).chain(difference).collect()
    }
    /// As a page with all quantities; those that differ are marked.
    pub fn page(&self) -> String {
        let mut html = format!("<p class=\"brief\">{}</p>\n", escape(&self.sentence()));
        for [file, title, repeats] in &self.experiments {
            let (file, title, repeats) = (escape(file), escape(title), escape(repeats));
            let _ = writeln!(html, "<p class=\"soft\">{file}: {title}; {repeats}</p>");
        }
        html.push_str(
            "<div class=\"card\"><div class=\"scroll\" style=\"margin-top:0\"><table><tr>",
        );
        for (index, head) in self.heads().iter().enumerate() {
            let class = if index < 4 { "" } else { " class=\"n\"" };
            let _ = write!(html, "<th{class}>{}</th>", escape(head));
        }
        html.push_str("</tr>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            let cells = self.cells(row);
            for (index, cell) in cells.iter().enumerate() {
                let cell = escape(cell);
                let marked = index + 1 == cells.len() && row.differs();
                let _ = match (index, marked) {
                    (..4, _) => write!(html, "<td>{cell}</td>"),
                    (_, false) => write!(html, "<td class=\"n\">{cell}</td>"),
                    (_, true) => write!(html, "<td class=\"n\"><strong>{cell}</strong></td>"),
                };
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</table></div></div>\n");
        iofair_draw::page("iofair-lab report", "Results side by side", &html)
    }
}

fn size(row: &Row) -> f64 {
    row.percent.unwrap_or(0.0).abs()
}

fn place(row: &Row) -> String {
    if row.variant.is_empty() { String::new() } else { format!(" [{}]", row.variant) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::json;
    use crate::testing::{example, results};

    fn saved(name: &str) -> Saved {
        Saved::parse(name, &json(&[results(example(), 1)])).expect("we wrote it")
    }

    /// Goal: equal results do not differ, and a difference is that of the means with the interval of both. Method: a result
    /// beside itself; then beside one with other numbers.
    #[test]
    fn differences_are_those_of_the_means() {
        let same = compare(&[saved("a"), saved("b")]);
        assert!(!same.rows.is_empty() && same.rows.iter().all(|row| !row.differs()));
        assert!(same.sentence().starts_with("0 of "), "{}", same.sentence());
        let mut rows = compare(&[saved("a"), saved("b")]).rows;
        let row = &mut rows[0];
        let mean = |mean, half| {
            Some(Mean { mean, range: [0.0; 2], confidence_95: Some(half), repeats: 3 })
        };
        row.values = vec![mean(200.0, 3.0), mean(210.0, 4.0)];
        subtract(row);
        assert_eq!((row.percent, row.within, row.differs()), (Some(5.0), Some(2.5), true));
        row.values[1] = mean(204.0, 4.0);
        subtract(row);
        assert!(!row.differs(), "2 % within 2.5 %");
    }

    /// Goal: what is missing in one file is shown as missing, and a text that is no result is an error in words. Method: a result
    /// without one stack's numbers; other JSON.
    #[test]
    fn gaps_and_other_files_are_told() {
        let mut second = saved("b");
        second.experiments[0].statistics.retain(|statistic| statistic.of != "total");
        let both = compare(&[saved("a"), second]);
        let row = both.rows.iter().find(|row| row.of == "total").expect("the first file has it");
        assert_eq!((row.values[1], row.percent), (None, None));
        assert!(both.page().contains("<td class=\"n\">-</td>"));
        for text in ["{}", "[1]", "x", "{\"experiment\": \"x\"}"] {
            let error = Saved::parse("c", text).err().expect(text);
            assert!(error.starts_with("not a result of `iofair-lab run --json`: "), "{error}");
        }
    }
}
