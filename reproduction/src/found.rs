//! The table of `reproduction/evidence/search.csv` in reproduction/promise.md: how often random cases find what, by the kind of the drive.

use std::fmt::Write;

use iofair_experiments::report::short;

/// The finding of the lines that say how many cases were searched.
pub const SEARCHED: &str = "searched";
/// Findings by their names in the table, and what they are.
const KINDS: [(&str, &str); 4] = [
    ("broken", "a minimum is broken"),
    ("second", "less than 90 % of it in some second"),
    ("starved", "a client starves"),
    ("beaten", "another stack has more total"),
];
/// Kinds of drives, and what they are called.
const DRIVES: [(&str, &str); 3] = [("flash", "flash"), ("disk", "disks"), ("volume", "volumes")];

/// A line: what a case found.
#[derive(serde::Deserialize)]
struct Line {
    case: u64,
    on: String,
    finding: String,
    expected: f64,
    got: f64,
}

fn median(mut parts: Vec<f64>) -> f64 {
    parts.sort_by(f64::total_cmp);
    parts.get(parts.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The cases of one cell: how many of all, and the median of what they got as a part of what was expected.
fn cell(lines: &[&Line], searched: f64, is: impl Fn(&Line) -> bool) -> (String, Option<String>) {
    let found: Vec<&Line> = lines.iter().copied().filter(|line| is(line)).collect();
    let mut cases: Vec<u64> = found.iter().map(|line| line.case).collect();
    cases.dedup();
    if cases.is_empty() {
        return ("0".to_owned(), None);
    }
    let part = median(found.iter().map(|line| line.got / line.expected).collect());
    let cases = cases.len() as f64;
    (format!("{cases} ({} %)", short(cases * 100.0 / searched)), Some(short(part * 100.0)))
}

/// The table, a row a kind of finding. Lines must be in the order of cases.
pub fn found_table(csv: &str) -> Result<String, String> {
    let mut reader = ::csv::Reader::from_reader(csv.as_bytes());
    let lines: Result<Vec<Line>, _> = reader.deserialize().collect();
    let lines = lines.map_err(|error| error.to_string())?;
    let lines_on = |on: &'static str| lines.iter().filter(move |line| line.on == on);
    let searched = DRIVES.map(|(on, _)| {
        lines_on(on)
            .filter(|line| line.finding == SEARCHED)
            .map(|line| line.got)
            .fold(0.0, |a, b| a + b)
    });
    let mut text = "| finding |".to_owned();
    for ((_, drives), searched) in DRIVES.iter().zip(searched) {
        let _ = write!(text, " of {searched} cases on {drives} |");
    }
    text += "\n|---|---|---|---|\n";
    let all = ("", "any");
    for (finding, what) in KINDS.into_iter().chain([all]) {
        let _ = write!(text, "| {what} |");
        for ((on, _), searched) in DRIVES.iter().zip(searched) {
            let lines: Vec<&Line> = lines_on(on).filter(|line| line.finding != SEARCHED).collect();
            let is = |line: &Line| finding.is_empty() || line.finding == finding;
            let (cell, part) = cell(&lines, searched, is);
            let part = part.filter(|_| !finding.is_empty());
            let part = part.map_or(String::new(), |part| format!(", {part} %"));
            let _ = write!(text, " {cell}{part} |");
        }
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: cases are counted once, by the kind of drive, with the median of what they got. Method: six lines by hand.
    #[test]
    fn cases_are_counted() {
        let csv = "case,on,drive,finding,of,expected,got\n1,flash,x:7,second,a,10,5\n1,flash,x:7,second,b,10,8\n\
            1,flash,x:7,starved,c,10,1\n3,disk,y:9,second,a,4,3\n0,flash,,searched,,0,8\n0,disk,,searched,,0,4\n\
            0,volume,,searched,,0,5\n";
        let table = found_table(csv).expect("good lines");
        assert!(
            table.starts_with(
                "| finding | of 8 cases on flash | of 4 cases on disks | of 5 cases on volumes |\n"
            ),
            "{table}"
        );
        assert!(
            table.contains(
                "| less than 90 % of it in some second | 1 (12.5 %), 80 % | 1 (25 %), 75 % | 0 |"
            ),
            "{table}"
        );
        assert!(table.contains("| a minimum is broken | 0 | 0 | 0 |"), "{table}");
        assert!(table.contains("| any | 1 (12.5 %) | 1 (25 %) | 0 |"), "{table}");
        assert!(found_table("case,drive\n1,x\n").is_err());
    }
}
