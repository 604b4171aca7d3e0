//! What sweeps give as numbers: the keys that were swept, and what is drawn over them.

use super::summary::{Row, Summary};

/// Units of values by their factor: of times a second, of sizes and rates a byte.
const UNITS: [(&str, f64); 13] = [
    ("", 1.0),
    ("%", 1.0),
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
];

/// A value such as `8ms` or `300` as a number; nothing if it is a word.
pub(super) fn numeric(text: &str) -> Option<f64> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = text[end..].trim();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(text[..end].parse::<f64>().ok()? * factor)
}

/// A swept key and its values in order, as numbers and as they are written.
pub(super) type Axis = (String, Vec<(f64, String)>);

/// Swept keys whose values are all numbers.
pub(super) fn axes(summary: &Summary) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    for (key, text) in summary.rows.iter().flat_map(|row| &row.swept) {
        let Some(value) = numeric(text) else {
            words.push(key);
            continue;
        };
        let known = axes.iter().position(|(name, _)| name == key);
        let index = known.unwrap_or_else(|| {
            axes.push((key.clone(), Vec::new()));
            axes.len() - 1
        });
        let values = &mut axes[index].1;
        if values.iter().all(|(other, _)| *other != value) {
            values.push((value, text.clone()));
        }
    }
    axes.retain(|(key, values)| values.len() > 1 && !words.contains(&key.as_str()));
    axes.iter_mut().for_each(|(_, values)| values.sort_by(|a, b| a.0.total_cmp(&b.0)));
    axes
}

/// Where a row belongs besides these keys: its variant and the values of the other keys.
pub(super) fn rest(row: &Row, keys: &[&str]) -> String {
    let others = row.swept.iter().filter(|(other, _)| !keys.contains(&other.as_str()));
    let others = others.map(|(other, value)| format!("{other}={value}"));
    let base = Some(row.base.clone()).filter(|base| !base.is_empty());
    base.into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

/// A number of a row that is drawn.
pub(super) struct Number<'a> {
    pub(super) title: String,
    pub(super) unit: &'a str,
    pub(super) of: Box<Reader<'a>>,
}

/// Reads a number of a row; none where the client does no I/O.
pub(super) type Reader<'a> = dyn Fn(&Row) -> Option<f64> + 'a;

/// All numbers that are drawn.
pub(super) fn numbers(summary: &Summary) -> Vec<Number<'_>> {
    let unit = summary.rate_unit;
    let mut all = Vec::new();
    for name in summary.clients() {
        let rate = move |row: &Row| row.client(name).map(|client| client.rate.mean);
        all.push(Number { title: format!("{name}: rate"), unit, of: Box::new(rate) });
    }
    let total = |row: &Row| Some(row.total.mean);
    all.push(Number { title: "total: rate of the drive".to_owned(), unit, of: Box::new(total) });
    let name = summary.focus.as_str();
    let p99 = move |row: &Row| {
        row.client(name).filter(|client| client.calls > 0).map(|client| client.p99.mean)
    };
    all.push(Number { title: format!("{name}: p99"), unit: "ms", of: Box::new(p99) });
    let longest = move |row: &Row| {
        row.client(name).filter(|client| client.calls > 0).map(|client| client.longest)
    };
    all.push(Number { title: format!("{name}: longest call"), unit: "ms", of: Box::new(longest) });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: values with units are numbers, words are not. Method: some of each.
    #[test]
    fn values_are_numbers() {
        assert_eq!(
            (numeric("8ms"), numeric("300"), numeric("2MB/s")),
            (Some(0.008), Some(300.0), Some(2e6))
        );
        assert_eq!((numeric("0s"), numeric("20%")), (Some(0.0), Some(20.0)));
        assert!(numeric("plextor").is_none() && numeric("read").is_none() && numeric("").is_none());
    }
}
