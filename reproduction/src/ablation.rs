//! The table of `reproduction/ablation.md`: what gets worse without each rule of the scheduler `promise`. `scripts/ablation` measures it,
//! with a patch for each rule in `reproduction/ablation`, whose head describes the rule.

use std::fmt::Write;

use serde::Deserialize;

/// The groups of cases, and what the table calls them.
const GROUPS: [(&str, &str); 6] = [
    ("flash", "random flash"),
    ("latency", "with latencies"),
    ("volume", "random volumes"),
    ("known", "known cases"),
    ("disk", "disks"),
    ("experiments", "experiments"),
];
/// A mean total that differs by no more than this part is the same.
const SAME: f64 = 0.003;
/// The rows of the whole scheduler with other seeds.
const NOISE: [&str; 3] = ["seed-2", "seed-3", "seed-4"];

/// A rule, as the head of its patch describes it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rule {
    /// The name of its patch.
    pub name: String,
    /// What it says.
    pub says: String,
    /// The file that has it.
    pub file: String,
    /// How many lines it takes there.
    pub lines: u32,
    /// Constants that only it uses.
    pub constants: Vec<String>,
    /// The groups of cases that it is tried on.
    pub runs: Vec<String>,
}

impl Rule {
    /// Reads the head of a patch.
    ///
    /// # Errors
    /// A line of the head that is missing, or has another format.
    pub fn read(name: &str, patch: &str) -> Result<Self, String> {
        let value = |key: &str| {
            let line = patch.lines().find_map(|line| line.strip_prefix(key));
            line.map(str::trim).ok_or_else(|| format!("{name}: no line `{key}`"))
        };
        let names = |text: &str| -> Vec<String> {
            let names = text.split([',', ' ']).filter(|name| !["", "-"].contains(name));
            names.map(str::to_owned).collect()
        };
        let lines = value("Lines:")?;
        Ok(Self {
            name: name.to_owned(),
            says: value("Rule:")?.to_owned(),
            file: value("+++ b/")?.to_owned(),
            lines: lines.parse().map_err(|_| format!("{name}: {lines} is not a number"))?,
            constants: names(value("Constants:")?),
            runs: names(value("Runs:")?),
        })
    }
}

/// A line of `reproduction/evidence/ablation.csv`: a group of cases without a rule.
#[derive(Deserialize)]
struct Line {
    rule: String,
    group: String,
    /// Geometric mean of the totals, as parts of those with the rule.
    total: f64,
    /// Promises that are broken only with the rule, and only without it.
    mended: u32,
    broken: u32,
    /// Other clients that have less than half of what they have with the rule.
    halved: u32,
}

impl Line {
    fn cell(&self) -> String {
        let mut parts = Vec::new();
        if self.broken + self.mended > 0 {
            parts.push(format!("{} broken, {} mended", self.broken, self.mended));
        }
        if self.halved > 0 {
            parts.push(format!("{} halved", self.halved));
        }
        if (self.total - 1.0).abs() > SAME {
            parts.push(format!("total {:.3}", self.total));
        }
        if parts.is_empty() { "=".to_owned() } else { parts.join("; ") }
    }
}

/// The table: a row for each rule, and one for the noise.
///
/// # Errors
/// Lines in another format.
pub fn ablation_table(csv: &str, rules: &[Rule]) -> Result<String, String> {
    let lines = ::csv::Reader::from_reader(csv.as_bytes()).into_deserialize();
    let lines: Vec<Line> = lines.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let mut text = "| rule | lines | constants |".to_owned();
    GROUPS.iter().for_each(|(_, group)| text += &format!(" {group} |"));
    text += &format!("\n|{}\n", "---|".repeat(3 + GROUPS.len()));
    let noise = NOISE.map(|name| Rule { name: name.to_owned(), ..Rule::default() });
    for rule in noise.iter().chain(rules) {
        let file = rule.file.trim_start_matches("crates/policies/src/");
        let (says, count) = match rule.name.as_str() {
            seed if NOISE.contains(&seed) => {
                (format!("(no rule less, {})", seed.replace('-', " ")), String::new())
            }
            _ => (format!("{} (`{file}`)", rule.says), rule.lines.to_string()),
        };
        let _ = write!(text, "| {says} | {count} | {} |", rule.constants.len());
        for (group, _) in GROUPS {
            let line = lines.iter().find(|line| line.rule == rule.name && line.group == group);
            let _ = write!(text, " {} |", line.map(Line::cell).unwrap_or_default());
        }
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a row says what is worse, and where nothing is. Method: a made-up patch and its lines.
    #[test]
    fn a_rule_has_a_row() {
        let patch = "Rule: pace of writes\nLines: 9\nConstants: A, B\nRuns: flash disk\n\n--- a/x\n+++ b/crates/policies/src/p.rs\n";
        let rule = Rule::read("pace", patch).unwrap();
        assert_eq!((rule.runs.len(), rule.constants.join(" ").as_str()), (2, "A B"));
        let csv = "rule,group,rows,total,low,promises,mended,broken,halved\n\
            pace,flash,9,0.95,3,4,1,2,1\npace,disk,9,1.001,0,4,0,0,0\n";
        let table = ablation_table(csv, &[rule]).unwrap();
        let row = "| pace of writes (`p.rs`) | 9 | 2 | 2 broken, 1 mended; 1 halved; total 0.950 |  |  |  | = |  |";
        assert!(table.lines().any(|line| line == row), "{table}");
        assert!(Rule::read("pace", "Rule: pace").unwrap_err().contains("Lines:"));
    }
}
