//! The cases under `reproduction/experiments/search`: findings of the search that were looked into, each with its explanation.

use std::path::{Path, PathBuf};

use iofair_experiments::experiment::{self, Overrides, Runner, Verdict};
use iofair_simulator::scenario::Scenario;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/search");
    let listed = std::fs::read_dir(&folder).expect("the folder is there");
    let mut files: Vec<PathBuf> =
        listed.map(|file| file.expect("it can be listed").path()).collect();
    files.sort();
    files
}

/// Goal: what was fixed stays fixed, and what is documented as a limit still is one. Method: every file is run; its hard claims
/// must hold, the others must not.
#[test]
fn known_cases_are_as_documented() {
    let read = |path: &PathBuf| {
        experiment::read(path, &Overrides::default()).unwrap_or_else(|error| panic!("{error}"))
    };
    let simulate =
        |scenario: &Scenario| iofair_simulator::simulate(scenario).map_err(|e| e.to_string());
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let runner = Runner { jobs, simulate: &simulate, finished: &|_| {} };
    let results = experiment::run(files().iter().map(read).collect(), &runner);
    let mut complaints = Vec::new();
    for results in results.expect("every case can be run") {
        let experiment = &results.experiment;
        assert!(!experiment.note.is_empty(), "{}: its note explains it", experiment.name);
        assert!(!experiment.claims.is_empty(), "{}: nothing is expected", experiment.name);
        for (claim, (got, verdict)) in experiment.claims.iter().zip(results.verdicts()) {
            let at = format!("{}: {}: {got:.3} {}", experiment.name, claim.text, claim.unit);
            match (claim.hard, verdict) {
                (true, Verdict::Holds) | (false, Verdict::DoesNotHold) => {}
                (true, _) => complaints.push(format!("{at}: was fixed, and is broken again")),
                (false, _) => complaints.push(format!(
                    "{at}: is no limit any more: make the claim hard, and let the note say so"
                )),
            }
        }
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}
