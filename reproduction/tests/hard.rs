//! A policy that no longer does what its source says fails the tests: hard claims of shipped experiments at full length, one
//! repeat, for each policy family. All claims with all repeats are `make reproduce`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use iofair_baselines::TABLE;
use iofair_experiments::experiment::{self, Experiment, Overrides, Verdict};
use iofair_reproduction::draws;
use iofair_simulator::scenario::Scenario;

/// Experiments whose hard claims are run.
const HARD: &[&str] = &[
    "article-2018/figure-1",
    "article-2018/figure-3",
    "comparison-2019/plextor",
    "controller-2015/benchmark",
    "controller-2015/inactive",
    "io-controller-2009/every-scheduler",
    "io-controller-2009/isolation",
    "io-controller-2009/test-3",
    "isolation/priority",
    "mails-2019/io-cost",
    "mails-2019/journal",
    "mails-2019/plextor",
    "mails-2019/start-up",
    "suite/latency",
    "survey-2019/complete",
];

/// Policies without a hard claim: no source says of them what must hold. Goldens and the law of the engine cover them.
const WITHOUT: &[&str] = &["kyber", "bfq-6.18", "cfq-group", "ioband-range-bw", "io-throttle"];

/// Hard claims that do not hold; reproduction/reproduction.md has the reasons. One that holds again leaves this list.
const KNOWN: &[&str] = &[
    "article-2018/figure-1: target: low-none < none-none",
    "controller-2015/inactive: busy: without handling [period 5] < without handling [period 4] < without handling [period 3] \
     < without handling [period 2] < none-none [period 2]",
];

/// The experiment with its hard claims only.
fn hard(name: &str, settings: &[&str]) -> Experiment {
    let path = format!("{}/experiments/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let overrides = Overrides { repeats: Some(1), settings, ..Overrides::default() };
    let experiment = experiment::read(Path::new(&path), &overrides);
    let mut experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
    experiment.claims.retain(|claim| claim.hard);
    experiment
}

/// Hard claims that do not hold.
fn misses(experiment: &Experiment) -> Vec<String> {
    let simulate =
        |scenario: &Scenario| iofair_simulator::simulate(scenario).map_err(|e| e.to_string());
    let numbers = draws::numbers(experiment, &simulate).expect("a shipped experiment runs");
    let pairs = experiment.claims.iter().zip(numbers);
    let missed = pairs.filter(|(claim, number)| claim.verdict(*number) == Verdict::DoesNotHold);
    missed.map(|(claim, _)| format!("{}: {}", experiment.name, claim.text)).collect()
}

/// Goal: a wrong policy fails. Method: the hard claims of each family, two experiments at a time.
#[test]
fn long_run_hard_claims_hold() {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(name) = HARD.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let missing = misses(&hard(name, &[]));
                    missed.lock().expect("no thread panics with it").extend(missing);
                }
            });
        }
    });
    let mut missed = missed.into_inner().expect("no thread panics with it");
    missed.sort();
    assert_eq!(missed, KNOWN, "the hard claims that do not hold are others");
}

/// Goal: every policy is in a hard claim that is run, or in the list of those without. Method: the stacks of all places.
#[test]
fn every_policy_family_has_hard_claims() {
    let mut covered = BTreeSet::new();
    for experiment in HARD.iter().map(|name| hard(name, &[])) {
        for place in experiment.claims.iter().flat_map(|claim| &claim.places) {
            let stack = &experiment.stacks[place.stack].1;
            let stages = stack.throttles.iter().chain([&stack.scheduler]);
            covered.extend(stages.map(|stage| stage.row.name));
        }
    }
    let all = TABLE.policies.iter().map(|row| row.name);
    let without: Vec<&str> = all.filter(|name| !covered.contains(name)).collect();
    assert_eq!(without, WITHOUT);
}

/// Goal: the claims see. Method: a canary, shares that are not lent to others; a hard claim must fail.
#[test]
fn a_broken_policy_is_caught() {
    let missed = |settings| misses(&hard("controller-2015/inactive", settings)).len();
    assert!(missed(&["policy.proportional.inactive=false"]) > missed(&[]));
}
