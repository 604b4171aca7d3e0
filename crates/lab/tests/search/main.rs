//! Random drives and random workloads look for what breaks the scheduler `promise`: a feasible minimum that is not kept,
//! a client that starves, a stack that has more total at the same promises.
//!
//! `IOFAIR_CASES` is the number of cases, `IOFAIR_SEED` the first one; `IOFAIR_KEEP` names a folder for the cases found.

mod draw;
mod judge;

use std::sync::atomic::{AtomicU64, Ordering};

use draw::Case;
use judge::{Finding, Verdict};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn search(first: u64, cases: u64) -> Vec<Verdict> {
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut verdicts = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + cases {
                return verdicts;
            }
            verdicts.push(judge::judge(&Case::draw(seed)));
        }
    };
    let mut all: Vec<Verdict> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    all.sort_by_key(|verdict| verdict.seed);
    all
}

#[test]
fn random_cases_find_nothing_new() {
    let (first, cases) = (setting("IOFAIR_SEED", 1), setting("IOFAIR_CASES", 60));
    let verdicts = search(first, cases);
    let mut counts = [0u64; 4];
    for verdict in verdicts.iter().filter(|verdict| !verdict.findings.is_empty()) {
        for finding in &verdict.findings {
            let kind = match finding {
                Finding::Broken { .. } => 0,
                Finding::Second { .. } => 1,
                Finding::Starved { .. } => 2,
                Finding::Beaten { .. } => 3,
            };
            counts[kind] += 1;
            println!("case {}: {finding}", verdict.seed);
        }
        if let Ok(folder) = std::env::var("IOFAIR_KEEP") {
            let path = format!("{folder}/case-{}.toml", verdict.seed);
            std::fs::write(&path, &verdict.text).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }
    let [broken, second, starved, beaten] = counts;
    let found = verdicts.iter().filter(|verdict| !verdict.findings.is_empty()).count();
    println!(
        "{cases} cases, {found} with findings: broken {broken}, a second {second}, starved {starved}, beaten {beaten}"
    );
}
