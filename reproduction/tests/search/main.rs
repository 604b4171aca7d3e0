//! Random drives and random workloads look for what breaks the scheduler `promise`: a feasible minimum that is not kept,
//! a client that starves, a stack that has more total at the same promises.
//!
//! `make search` runs many cases, and a fifth of their number on volumes. `IOFAIR_CASES` is their number, `IOFAIR_SEED` the first one
//! (on a volume from 1,000,000 on; then there are no others), and `IOFAIR_KEEP` names a folder for the experiment files of cases with findings, or of the only case; `IOFAIR_FOUND` names a file for a table of all
//! findings; `IOFAIR_STACK` is another stack than `promise`. Cases that were looked into are kept under `reproduction/experiments/search`.

mod known;

use std::fmt::Write;

use iofair_reproduction::SEARCHED;
use iofair_reproduction::search::{
    self, Case, Finding, Kind, Question, VOLUMES, Verdict, broken_by_latencies,
};

/// Findings among the first cases that reproduction/promise.md documents as limits.
const KNOWN: &[(u64, Kind)] = &[
    (1, Kind::Starved),
    (35, Kind::Starved),
    (1_000_000, Kind::Beaten),
    (1_000_005, Kind::Beaten),
];
/// Cases that every test run looks at: those on drives, and those on volumes. Each takes a second of a processor; `make search` has more.
const SMOKE: u64 = 20;
const SMOKE_VOLUMES: u64 = 3;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Judges so many cases; `quick`: beside fewer stacks.
fn search(first: u64, cases: u64, stack: &str, quick: bool) -> Vec<Verdict> {
    let begins = |seed: u64| {
        if cases > SMOKE && (seed - first).is_multiple_of(100) {
            println!("case {seed} of {}", first + cases - 1);
        }
    };
    let seeds: Vec<u64> = (first..first + cases).collect();
    search::search(&seeds, &Question { stack, quick, slicing: false, latencies: false }, &begins)
}

fn report(verdicts: &[Verdict]) {
    let keep = std::env::var("IOFAIR_KEEP").ok();
    // Who asks for one case wants to see it.
    let shown = |verdict: &&Verdict| !verdict.findings.is_empty() || verdicts.len() == 1;
    for verdict in verdicts.iter().filter(shown) {
        for finding in &verdict.findings {
            println!("case {}: {finding}", verdict.seed);
        }
        if let Some(folder) = &keep {
            let path = format!("{folder}/case-{:04}.toml", verdict.seed);
            std::fs::write(&path, &verdict.text).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }
    let found = verdicts.iter().filter(|verdict| !verdict.findings.is_empty()).count();
    let count = |kind| {
        let all = verdicts.iter().flat_map(|verdict| &verdict.findings);
        all.filter(|finding| finding.kind == kind).count()
    };
    println!(
        "{} cases, {found} with findings: promises broken {}, in a second {}, starved {}, beaten {}",
        verdicts.len(),
        count(Kind::Broken),
        count(Kind::Second),
        count(Kind::Starved),
        count(Kind::Beaten)
    );
}

/// The findings as lines of reproduction/evidence/search.csv, rates in MB/s, and how many cases were searched on each kind of drive.
fn csv(verdicts: &[Verdict]) -> String {
    let mut text = "case,on,drive,finding,of,expected,got\n".to_owned();
    for verdict in verdicts {
        for finding in &verdict.findings {
            let (of, kind) = (&finding.of, finding.kind.name());
            let [expected, got] = [finding.expected, finding.got].map(|rate| rate as f64 / 1e6);
            let Verdict { seed, on, drive, .. } = verdict;
            let _ = writeln!(text, "{seed},{on},{drive},{kind},{of},{expected:.3},{got:.3}");
        }
    }
    for on in ["flash", "disk", "volume"] {
        let searched = verdicts.iter().filter(|verdict| verdict.on == on).count();
        let _ = writeln!(text, "0,{on},,{SEARCHED},,0,{searched}");
    }
    text
}

/// Goal: no finding but those that are known; in a long run, no broken promise. Method: the first cases, or as many as the
/// environment says.
#[test]
fn long_run_random_cases_find_nothing_new() {
    let smoke = setting("IOFAIR_CASES").is_none() && setting("IOFAIR_SEED").is_none();
    let cases = setting("IOFAIR_CASES").unwrap_or(SMOKE);
    // Before the long work: the folder may be missing.
    if let Ok(folder) = std::env::var("IOFAIR_KEEP") {
        std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    }
    let stack = std::env::var("IOFAIR_STACK").unwrap_or_else(|_| "promise".to_owned());
    let mut verdicts = search(setting("IOFAIR_SEED").unwrap_or(1), cases, &stack, smoke);
    if setting("IOFAIR_SEED").is_none() {
        let volumes = if smoke { SMOKE_VOLUMES } else { cases / 5 };
        verdicts.extend(search(VOLUMES, volumes, &stack, smoke));
    }
    report(&verdicts);
    if let Ok(path) = std::env::var("IOFAIR_FOUND") {
        std::fs::write(&path, csv(&verdicts)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let new = |verdict: &Verdict, finding: &Finding| match smoke {
        true => !KNOWN.contains(&(verdict.seed, finding.kind)),
        false => finding.kind == Kind::Broken,
    };
    let new: Vec<String> = verdicts
        .iter()
        .flat_map(|verdict| verdict.findings.iter().map(move |finding| (verdict, finding)))
        .filter(|(verdict, finding)| new(verdict, finding))
        .map(|(verdict, finding)| format!("case {}: {finding}", verdict.seed))
        .collect();
    assert!(new.is_empty(), "{new:#?}");
}

/// Goal: latency contracts of others break no minimum, and every run ends. Method: the first cases, on disks more of them, with
/// such contracts for the readers without a minimum.
#[test]
fn long_run_random_cases_with_latencies_keep_minimums() {
    let (flash, disks) = match setting("IOFAIR_CASES") {
        Some(cases) => (cases, cases),
        None => (6, 40),
    };
    let first = setting("IOFAIR_SEED").unwrap_or(1);
    let mut broken = Vec::new();
    for seed in first..first + flash.max(disks) {
        let case = Case::draw(seed);
        let runs = seed - first < if case.disk { disks } else { flash };
        if runs && case.with_latencies().has_latencies() {
            let findings = broken_by_latencies(&case);
            broken.extend(findings.iter().map(|finding| format!("case {seed}: {finding}")));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Goal: the search finds what is wrong. Method: a stack without any control breaks most promises.
#[test]
fn the_search_finds_broken_promises() {
    let verdicts = search(1, 8, "none-none", false);
    let broken =
        |verdict: &Verdict| verdict.findings.iter().any(|finding| finding.kind == Kind::Broken);
    let broken = verdicts.iter().filter(|verdict| broken(verdict)).count();
    assert!(broken >= 4, "{broken} of 8");
}
