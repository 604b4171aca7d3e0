//! A strict reader of Prometheus' text format 0.0.4: every line must be what the format's description allows,
//! every sample must belong to the family above it, and nothing may be said twice.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};

/// Labels, sorted.
type Labels = BTreeMap<String, String>;

/// A page.
pub(crate) struct Page {
    /// Kind by name.
    families: BTreeMap<String, String>,
    samples: BTreeMap<(String, Labels), f64>,
}

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// The family that a sample of a histogram belongs to.
pub(crate) fn family(name: &str) -> &str {
    let ends = ["_bucket", "_sum", "_count"];
    ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

impl Page {
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends, too");
        let mut page = Self { families: BTreeMap::new(), samples: BTreeMap::new() };
        let (mut helped, mut present) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(is_name(name) && !help.is_empty(), "{line}");
                helped = name.to_string();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, helped, "HELP comes before TYPE");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                let old = page.families.insert(name.to_string(), kind.to_string());
                assert!(old.is_none(), "{name} is there twice");
                present = name.to_string();
            } else {
                page.sample(line, &present);
            }
        }
        page.check_histograms();
        page
    }
    fn sample(&mut self, line: &str, present: &str) {
        let end = line.find(['{', ' ']).unwrap();
        let name = &line[..end];
        let kind = self.families.get(present).map(String::as_str);
        let own = if kind == Some("histogram") { family(name) } else { name };
        assert!(is_name(name) && own == present, "{line} under {present}");
        let (labels, value) = match line[end..].strip_prefix('{') {
            Some(rest) => labels(rest),
            None => (Labels::new(), &line[end..]),
        };
        let value: f64 = value.strip_prefix(' ').unwrap().parse().unwrap();
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let old = self.samples.insert((name.to_string(), labels), value);
        assert!(old.is_none(), "twice: {line}");
    }
    fn check_histograms(&self) {
        let mut seen: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
        for ((name, labels), value) in &self.samples {
            let Some(name) = name.strip_suffix("_bucket") else { continue };
            let mut labels = labels.clone();
            let bound = labels.remove("le").unwrap();
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
            seen.entry((name.to_string(), labels)).or_default().push((bound, *value));
        }
        for ((name, labels), mut buckets) in seen {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{name} {labels:?}: {buckets:?}");
            let last = buckets.last().unwrap();
            assert_eq!(last.0, f64::INFINITY, "{name}");
            let total = self.samples[&(format!("{name}_count"), labels.clone())];
            assert_eq!(last.1, total, "{name}");
            assert!(self.samples.contains_key(&(format!("{name}_sum"), labels)), "{name}");
        }
    }
    /// The value with exactly these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(name, text)| (name.to_string(), text.to_string()));
        let key = (name.to_string(), labels.collect::<Labels>());
        *self.samples.get(&key).unwrap_or_else(|| panic!("no {key:?}"))
    }
    pub(crate) fn families(&self) -> impl Iterator<Item = &str> {
        self.families.keys().map(String::as_str)
    }
    /// Counters and histograms never go back.
    pub(crate) fn compare_counters(&self, later: &Self) {
        for ((name, labels), value) in &self.samples {
            if self.families[family_of(&self.families, name)] != "gauge" {
                let key = (name.clone(), labels.clone());
                assert!(later.samples[&key] >= *value, "{name} {labels:?} went back");
            }
        }
    }
    /// Whether there is a sample of this name that has all of these labels. Prometheus itself adds `instance`.
    pub(crate) fn check_use(&self, name: &str, labels: &BTreeSet<String>, query: &str) {
        let mut known = self.samples.keys().filter(|(known, _)| known == name);
        let fits = known.any(|(_, own)| {
            labels.iter().all(|label| label == "instance" || own.contains_key(label))
        });
        assert!(fits, "no {name} with {labels:?}, in {query}");
    }
}

fn family_of<'a>(families: &BTreeMap<String, String>, name: &'a str) -> &'a str {
    if families.contains_key(name) { name } else { family(name) }
}

/// What stands between the braces, and the rest behind them.
fn labels(mut rest: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    loop {
        let (name, after) = rest.split_once("=\"").unwrap();
        assert!(is_name(name), "{name}");
        let mut text = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => text.push(match letters.next().unwrap().1 {
                    'n' => '\n',
                    plain @ ('\\' | '"') => plain,
                    other => panic!("an escape of {other}"),
                }),
                (_, letter) => text.push(letter),
            }
        };
        assert!(labels.insert(name.to_string(), text).is_none(), "{name} twice");
        match after[end + 1..].strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, after[end + 1..].strip_prefix('}').unwrap()),
        }
    }
}

/// Metrics that a query uses, each with the labels that it asks for: those in its braces, and those after
/// `by`, which everything in the query must have.
pub(crate) fn selectors(query: &str) -> Vec<(String, BTreeSet<String>)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut grouped = BTreeSet::new();
    for by in query.split("by (").skip(1) {
        let names = by.split(')').next().unwrap().split(',').map(str::trim);
        grouped.extend(names.map(str::to_owned));
    }
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(at) = rest.find("iofair_") {
        rest = &rest[at..];
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let mut labels = grouped.clone();
        if let Some(inside) = after.strip_prefix('{') {
            let inside = inside.split('}').next().unwrap();
            let names = inside.split(',').map(|one| one.split(['=', '!']).next().unwrap().trim());
            labels.extend(names.map(str::to_owned));
        }
        found.push((name.to_string(), labels));
        rest = after;
    }
    found
}
