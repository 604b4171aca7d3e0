//! What the pages of policies say of each one: what it promises, needs and costs, and where it fails. The texts are in the
//! policy's row, their numbers in reproduction/measured.csv, its cost in lab/docs/performance.md. Rules: every row has all of them, and every
//! experiment that it names exists and runs the policy.

use std::fmt::Write;

use iofair_baselines::TABLE;
use iofair_core::policy::{Claim, Judgement, Role, Row};

use iofair_reproduction::{self as reproduction, Measured};

use crate::files::{File, all, assert_none};

const PERFORMANCE: &str = "lab/docs/performance.md";

/// Where a page links to, as seen from it.
#[derive(Clone, Copy)]
pub(crate) struct Links {
    pub(crate) performance: &'static str,
    pub(crate) experiments: &'static str,
}

/// What the lists below say, and where their numbers come from.
pub(crate) fn legend(links: Links) -> String {
    LEGEND.replace("PERFORMANCE", links.performance)
}

const LEGEND: &str = "Each policy has a section below with what it promises, what it needs, and where it fails. The numbers in these lists are \
     those\nof the experiment named, in the unit of its source (with `units = \"suite\"`, a client's MB/s are KiB/s / 1000 and a \
     total is in\nMiB/s). `iofair-lab run` shows them; `make measured` writes them. *By its rules* means that it follows from the \
     policy's rules.\n\n*Cost* is nanoseconds per request with 1,000 groups, including the engine \
     ([performance.md](PERFORMANCE)). For a throttle, it is\nthe cost with ceilings out of reach and with ceilings that are \
     always reached (`held`).\n";

/// What a policy promises, needs and costs, and where it fails, as a list.
pub(crate) fn list(row: &Row, measured: &Measured, links: Links) -> String {
    let Judgement { promises, needs, fails } = &row.judgement;
    let mut list = String::new();
    for claim in *promises {
        let _ = writeln!(list, "- **Promises.** {}", sentence(claim, measured, links));
    }
    let _ = writeln!(list, "- **Needs.** {needs}");
    for claim in *fails {
        let _ = writeln!(list, "- **Fails.** {}", sentence(claim, measured, links));
    }
    list
}

/// A claim with its numbers and links to what shows them.
fn sentence(claim: &Claim, measured: &Measured, links: Links) -> String {
    let says = measured.fill(claim);
    let link = |name: &String| format!("[{name}]({}/{name}.toml)", links.experiments);
    let mut links: Vec<String> = reproduction::experiments(claim).iter().map(link).collect();
    let Some(first) = links.first_mut() else { return format!("{says} *(by its rules)*") };
    if let Some((_, stacks)) = claim.shown_by.split_once(' ') {
        *first += &format!(", `{stacks}`");
    }
    format!("{says} ({})", links.join("; "))
}

/// The cost of a policy by itself, from the page of measurements.
pub(crate) fn cost(files: &[File], row: &Row) -> String {
    let name = match row.role {
        Role::Throttle => [format!("{}-none", row.short), format!("{}-none held", row.short)],
        Role::Scheduler { .. } => [format!("none-{}", row.name), format!("prop-{}", row.name)],
    };
    let page = files.iter().find(|file| file.path == PERFORMANCE).map_or("", |file| &file.text);
    let cells =
        |line: &str| line.split('|').map(|cell| cell.trim().to_string()).collect::<Vec<_>>();
    let lines: Vec<_> = page.lines().map(cells).collect();
    let column = lines.iter().find_map(|line| line.iter().position(|cell| cell == "ns, 1000"));
    let Some(column) = column else { return "not measured".into() };
    let found = name.iter().filter_map(|name| {
        let line = lines.iter().find(|line| line.get(1) == Some(name))?;
        Some(format!("`{name}`: {}", line.get(column)?))
    });
    let found: Vec<_> = found.collect();
    if found.is_empty() { "not measured".into() } else { found.join("<br>") }
}

/// Rows of which something is not said.
fn silent(rows: &[&Row]) -> Vec<String> {
    let mut complaints = Vec::new();
    for row in rows {
        let Judgement { promises, needs, fails } = &row.judgement;
        let said = fails.iter().chain(*promises).map(|claim| claim.says).chain([*needs]);
        let sentences = said.filter(|said| said.len() > 10 && said.ends_with('.')).count();
        if promises.is_empty() || fails.is_empty() || sentences != promises.len() + fails.len() + 1
        {
            complaints
                .push(format!("{}: say what it promises, needs, and where it fails", row.name));
        }
    }
    complaints
}

/// Claims whose experiment is not there or does not run the policy.
fn unshown(files: &[File], rows: &[&Row]) -> Vec<String> {
    let mut complaints = Vec::new();
    for row in rows {
        let Judgement { promises, fails, .. } = &row.judgement;
        for claim in fails.iter().chain(*promises).filter(|claim| !claim.shown_by.is_empty()) {
            if !shows(files, row, claim.shown_by) {
                complaints.push(format!("{}: not shown by {}", row.name, claim.shown_by));
            }
        }
    }
    complaints
}

fn shows(files: &[File], row: &Row, shown_by: &str) -> bool {
    let (experiment, asked) = shown_by.split_once(' ').unwrap_or((shown_by, ""));
    let path = format!("reproduction/experiments/{experiment}.toml");
    let Some(file) = files.iter().find(|file| file.path == path) else { return false };
    let runs = |name: &str| {
        let Ok(stack) = TABLE.stack(name) else { return false };
        let mut stages = stack.throttles.iter().chain([&stack.scheduler]);
        stages.any(|stage| stage.row.name == row.name)
    };
    match asked.strip_prefix("--stack ") {
        Some(stacks) => stacks.split(',').any(runs),
        None => asked.is_empty() && file.text.split('"').any(runs),
    }
}

/// Goal: the comparison is whole. Method: every row says something in each column.
#[test]
fn every_policy_is_judged() {
    assert_none(&silent(TABLE.policies));
}

/// Goal: nothing is claimed that cannot be seen. Method: the experiments named against the files, and
/// their stacks against the policy.
#[test]
fn every_claim_has_an_experiment_that_runs_the_policy() {
    assert_none(&unshown(&all(), TABLE.policies));
}

/// Goal: every rule of this file catches what it is for. Method: made-up rows and files.
#[test]
fn canaries() {
    fn claims(shown_by: &'static str) -> &'static [Claim] {
        Box::leak(Box::new([Claim { says: "It does so there.", shown_by }]))
    }
    fn judged(promises: &'static [Claim], needs: &'static str, fails: &'static [Claim]) -> Row {
        let row = TABLE.policies.iter().find(|row| row.name == "noop").expect("in the table");
        Row { judgement: Judgement { promises, needs, fails }, ..**row }
    }
    assert_eq!(silent(&[&judged(claims(""), "", claims(""))]).len(), 1);
    assert_eq!(silent(&[&judged(&[], "Something there.", claims(""))]).len(), 1);
    assert_eq!(silent(&[&judged(claims(""), "Something there.", &[])]).len(), 1);
    assert_none(&silent(&[&judged(claims(""), "Something there.", claims(""))]));
    let files = [
        File::canary("reproduction/experiments/a/b.toml", "stacks = [\"none-none\", \"prop-bfq\"]"),
        File::canary("reproduction/experiments/a/c.toml", "stacks = [\"none-noop\"]"),
        File::canary(PERFORMANCE, "| stack | ns, 1 | ns, 1000 |\n|--|--|\n| none-noop | 1 | 7 |\n"),
    ];
    for wrong in ["a/d", "a/b", "a/c --stack prop-bfq", "a/c none-noop"] {
        assert_eq!(unshown(&files, &[&judged(claims(wrong), "", &[])]).len(), 1, "{wrong}");
    }
    for right in ["a/c", "a/b --stack none-noop", "a/b --stack max-none,max-noop"] {
        assert_none(&unshown(&files, &[&judged(claims(right), "", &[])]));
    }
    assert_eq!(cost(&files, &judged(claims(""), "", &[])), "`none-noop`: 7");
}
