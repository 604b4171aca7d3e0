//! Rules about the bands of claims: `reproduction/experiments/bands.csv` has all of them, and whoever changes or removes one says so in
//! `reproduction/experiments/CHANGES.md`, which the history of the repository is checked against.

use std::collections::BTreeSet;
use std::process::Command;

use iofair_experiments::experiment::Claim;

use crate::evidence::experiments;
use crate::files::{File, all, assert_none, root};

const BANDS: &str = "reproduction/experiments/bands.csv";
/// Where it was before; the history of this path counts as well.
const BANDS_BEFORE: &str = "experiments/bands.csv";
const CHANGES: &str = "reproduction/experiments/CHANGES.md";
const HEAD: &str = "experiment;claim;published;low;high;part;unit;hard\n";
/// Cases of the search are our own, and become hard once they are fixed.
const NOT_LISTED: &str = "search/";

/// A line of the table.
fn line(experiment: &str, claim: &Claim) -> String {
    let number = |got: Option<f64>| got.map(|got| format!("{got:.6}")).unwrap_or_default();
    let [published, low, high] = [claim.published, claim.low, claim.high].map(number);
    let (text, part, unit, hard) = (&claim.text, claim.part, claim.unit, claim.hard);
    format!("{experiment};{text};{published};{low};{high};{part:.6};{unit};{hard}\n")
}

/// The table that the files give.
fn table(files: &[File]) -> String {
    let experiments = experiments(files, "reproduction/experiments");
    let name = |path: &str| {
        let name = path.strip_prefix("reproduction/experiments/").unwrap_or(path);
        name.strip_suffix(".toml").unwrap_or(name).to_owned()
    };
    let listed = experiments.iter().map(|experiment| (name(&experiment.name), experiment));
    let listed = listed.filter(|(name, _)| !name.starts_with(NOT_LISTED));
    let lines = listed.flat_map(|(name, experiment)| {
        experiment.claims.iter().map(move |claim| line(&name, claim)).collect::<Vec<_>>()
    });
    HEAD.to_owned() + &lines.collect::<String>()
}

/// The first two cells of a line: the experiment, and the claim.
fn names(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.split(';');
    Some((cells.next()?, cells.next()?))
}

/// Lines that left the table and did not return, and that the page of changes does not name.
fn unrecorded(removed: &[&str], table: &str, changes: &str) -> Vec<String> {
    let present: BTreeSet<&str> = table.lines().collect();
    let recorded = |experiment: &str, claim: &str| {
        let since = changes.split_once("## Since bands.csv").map_or("", |(_, rest)| rest);
        let names = |row: &str| {
            let mut cells = row.split('|').map(str::trim).skip(2);
            cells.next() == Some(experiment) && cells.next() == Some(claim)
        };
        since.lines().any(names)
    };
    let lost = removed.iter().filter(|line| !present.contains(**line) && **line != HEAD.trim_end());
    let complaint = |line: &&&str| {
        let (experiment, claim) = names(line)?;
        let text = format!("{CHANGES} has no row for {experiment} | {claim} |: it was {line}");
        (!recorded(experiment, claim)).then_some(text)
    };
    lost.filter_map(|line| complaint(&line)).collect()
}

/// What left the table in the history of the repository and since; `None` without a history.
fn history() -> Option<String> {
    let git = |args: &[&str]| {
        let git = Command::new("git").arg("-C").arg(root()).args(args).output().ok()?;
        git.status.success().then(|| String::from_utf8_lossy(&git.stdout).into_owned())
    };
    let committed =
        git(&["log", "--format=", "--patch", "--unified=0", "--", BANDS, BANDS_BEFORE])?;
    Some(committed + &git(&["diff", "--unified=0", "HEAD", "--", BANDS, BANDS_BEFORE])?)
}

/// The lines that a patch removes.
fn removed(patch: &str) -> Vec<&str> {
    let lines = patch.lines().filter(|line| !line.starts_with("---"));
    lines.filter_map(|line| line.strip_prefix('-')).collect()
}

fn text<'a>(files: &'a [File], path: &str) -> &'a str {
    files.iter().find(|file| file.path == path).map_or("", |file| &file.text)
}

/// Goal: the table has the claims of all files. Method: write it anew and compare; IOFAIR_BLESS=1 writes it, and the next
/// test tells what has to be recorded.
#[test]
fn bands_are_listed() {
    let files = all();
    let fresh = table(&files);
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(root().join(BANDS), &fresh).expect("the table can be written");
        return;
    }
    let listed: BTreeSet<&str> = text(&files, BANDS).lines().collect();
    let fresh: BTreeSet<&str> = fresh.lines().collect();
    let differing = listed.symmetric_difference(&fresh);
    let complaint = |line: &&str| {
        let at = if listed.contains(*line) { "only in the table" } else { "not in the table" };
        format!("{BANDS}: {at}: {line}; IOFAIR_BLESS=1 cargo test -p iofair-lab --test tidy bands")
    };
    assert_none(&differing.map(complaint).collect::<Vec<_>>());
}

/// Goal: no band changes and no claim disappears without a record. Method: every line that left the table in the history of
/// the repository, or since, has a row on the page of changes. A copy without a history has nothing to compare.
#[test]
fn changes_of_bands_are_recorded() {
    let Some(history) = history() else { return };
    let files = all();
    let complaints = unrecorded(&removed(&history), text(&files, BANDS), text(&files, CHANGES));
    assert_none(&complaints);
}

/// Goal: the rules catch what they are for. Method: a band that moved, a claim that disappeared, one that returned, and
/// one that is recorded; a row above the heading does not count.
#[test]
fn canaries() {
    let (moved, other) = ("a/b;x;10;9;11;0;MB/s;true", "a/b;y;1;;;0;;false");
    let patch =
        format!("--- a/{BANDS}\n+++ b/{BANDS}\n-{moved}\n+a/b;x;10;8;11;0;MB/s;true\n-{other}\n");
    let removed = removed(&patch);
    assert_eq!(removed, [moved, other]);
    let row = "| 1 | a/b | x | 9 | 8 | 8.5 | why |";
    let page = |before: &str, after: &str| format!("{before}\n## Since bands.csv\n{after}\n");
    assert_eq!(unrecorded(&removed, "", &page("", "")).len(), 2);
    assert_eq!(unrecorded(&removed, other, &page(row, "")).len(), 1);
    assert_none(&unrecorded(&removed, other, &page("", row)));
}
