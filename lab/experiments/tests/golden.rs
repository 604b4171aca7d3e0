//! Shipped experiments, shortened, against the tables beside this file: *some number moved*. Whether a
//! source's claim still holds is another question, which `[[expect]]` answers at full length.
//!
//! `IOFAIR_BLESS=1 cargo test -p iofair-experiments --test golden` writes the tables anew; the commit says
//! which number moved and why.

use std::path::Path;

use iofair_baselines::TABLE;
use iofair_core::policy::Role;
use iofair_core::time::Nanos;
use iofair_experiments::experiment::{self, Overrides, Results, Runner};
use iofair_experiments::report;
use iofair_simulator::scenario::Scenario;

/// Figure, stacks. Long enough for throttles' slices and BFQ's slots, short enough for every test run.
const SUBSET: &[(&str, &[&str])] = &[
    ("article-2018/figure-1", &["none-none", "max-none"]),
    ("article-2018/figure-3", &["none-none", "max-none"]),
    ("survey-2019/alone", &["none-none"]),
    ("survey-2019/no-control", &["none-none"]),
    ("mails-2019/samsung-970-pro", &["none-none"]),
    ("mails-2019/hitachi", &["none-none"]),
    ("promise/plextor", &["promise"]),
];

fn run(name: &str, stacks: &[&str], jobs: usize) -> Results {
    let path = format!("{}/../../reproduction/experiments/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let overrides = Overrides {
        stacks: Some(stacks.iter().map(|stack| (*stack).to_owned()).collect()),
        repeats: Some(2),
        time: Some(Nanos::from_millis(400)),
        ramp: Some(Nanos::from_millis(200)),
        seed: None,
        numbers: None,
        settings: Vec::new(),
        ..Overrides::default()
    };
    let experiment = experiment::read(Path::new(&path), &overrides);
    let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
    let simulate =
        |scenario: &Scenario| iofair_simulator::simulate(scenario).map_err(|e| e.to_string());
    let runner = Runner { jobs, simulate: &simulate, finished: &|_| {} };
    let mut results =
        experiment::run(vec![experiment], &runner).expect("a shipped experiment runs");
    results.remove(0)
}

/// The table of rates alone: claims are made for full-length runs.
fn rates(results: &Results) -> String {
    let mut summary = report::summarize(results);
    summary.claims.clear();
    summary.claims_left_out = 0;
    report::table(&summary)
}

/// What moved in a table.
fn moved(name: &str, file: &str, text: &str) -> Vec<String> {
    let path = format!("{}/tests/golden/{file}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(&path, text).expect("the golden can be written");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    differences(name, &known, text)
}

fn differences(name: &str, known: &str, text: &str) -> Vec<String> {
    let pairs = known.lines().zip(text.lines()).filter(|(was, is)| was != is);
    let mut moved: Vec<String> =
        pairs.map(|(was, is)| format!("{name}\n  was{was}\n  is {is}")).collect();
    if known.lines().count() != text.lines().count() {
        moved.push(format!("{name}: other rows\n{text}"));
    }
    moved
}

/// Goal: a number that moves is seen. Method: tables beside this file.
#[test]
fn tables_are_as_they_were() {
    let moved = SUBSET.iter().flat_map(|(name, stacks)| {
        moved(name, &name.replace('/', "-"), &rates(&run(name, stacks, 2)))
    });
    let moved: Vec<String> = moved.collect();
    assert!(moved.is_empty(), "{}\nIOFAIR_BLESS=1 accepts it", moved.join("\n"));
}

/// Each scheduler of the registry without groups and with them, each throttle above `none`, and the named stacks.
fn every_stack() -> Vec<String> {
    let of_row = |row: &iofair_core::policy::Row| match row.role {
        Role::Scheduler { groups: false, .. } => vec![format!("none-{}", row.short)],
        Role::Scheduler { .. } => {
            vec![format!("none-{}", row.short), format!("prop-{}", row.short)]
        }
        Role::Throttle => vec![format!("{}-none", row.short)],
    };
    let named = TABLE.stacks.iter().map(|stack| stack.name.to_string());
    TABLE.policies.iter().flat_map(|row| of_row(row)).chain(named).collect()
}

/// Goal: a policy that decides otherwise is seen, whichever it is. Method: every stack of the registry over one load, on flash
/// and on a disk.
#[test]
fn every_stack_is_as_it_was() {
    let path = format!("{}/tests/golden/stacks.toml", env!("CARGO_MANIFEST_DIR"));
    let overrides = Overrides { stacks: Some(every_stack()), ..Overrides::default() };
    let experiment = experiment::read(Path::new(&path), &overrides);
    let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
    let simulate =
        |scenario: &Scenario| iofair_simulator::simulate(scenario).map_err(|e| e.to_string());
    let runner = Runner { jobs: 2, simulate: &simulate, finished: &|_| {} };
    let results = experiment::run(vec![experiment], &runner).expect("every stack runs").remove(0);
    let text = rates(&results);
    for row in TABLE.policies {
        assert!(text.contains(row.short), "{} is in no stack", row.name);
    }
    let moved = moved("every stack", "stacks", &text);
    assert!(moved.is_empty(), "{}\nIOFAIR_BLESS=1 accepts it", moved.join("\n"));
}

/// Goal: the comparison sees. Method: canaries, a number that moved and a row that is gone.
#[test]
fn a_number_that_moved_is_seen() {
    assert!(differences("canary", " a 1\n b 2\n", " a 1\n b 2\n").is_empty());
    assert_eq!(differences("canary", " a 1\n b 2\n", " a 1\n b 3\n").len(), 1);
    assert_eq!(differences("canary", " a 1\n b 2\n", " a 1\n").len(), 1);
}

/// Goal: same seed, same bytes, whatever the policy and the number of threads; another seed, another
/// run. Method: JSON with every run's hash, one thread against three, for BFQ and a throttle.
#[test]
fn same_seed_same_bytes() {
    for stack in ["prop-bfq", "max+prop-bfq-4.18"] {
        let one = report::json_of_one(&run("article-2018/figure-1", &[stack], 1));
        let three = report::json_of_one(&run("article-2018/figure-1", &[stack], 3));
        assert!(one == three, "{stack}: two runs of one seed differ");
        let hashes: Vec<_> = one.lines().filter(|line| line.contains("trace_hash")).collect();
        assert_eq!(hashes.len(), 8, "four variants, two seeds");
        assert!(hashes.chunks(2).all(|pair| pair[0] != pair[1]), "{stack}: seeds change nothing");
    }
}
