//! Stacks on every drive of the library: `make stacks` runs them and writes the page.

use std::path::{Path, PathBuf};

use iofair_drive::profile;
use iofair_experiments::experiment::Runner;
use iofair_reproduction::{STACKS, stacks_csv, stacks_picture, stacks_tables};
use iofair_simulator::scenario::Scenario;

const EVIDENCE: &str = "evidence/stacks.csv";
const PAGE: &str = "stacks.md";
const PICTURE: &str = "images/stacks.svg";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}
fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The lines of these drives.
fn lines(drives: &[String]) -> String {
    let simulate = |scenario: &Scenario| {
        iofair_simulator::simulate(scenario).map_err(|error| error.to_string())
    };
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let runner = Runner { jobs, simulate: &simulate, finished: &|_| {} };
    stacks_csv(drives, &STACKS, &runner).unwrap_or_else(|error| panic!("{error}"))
}

/// The page with fresh tables, and its picture.
fn page() -> (String, String) {
    let evidence = text(EVIDENCE);
    let mut page = text(PAGE);
    for (name, table) in stacks_tables(&evidence).expect("make stacks has written it") {
        let (begin, end) =
            (format!("<!-- {name}: generated -->\n"), format!("<!-- {name}: end -->"));
        let (before, rest) = page.split_once(&begin).expect("the page has a place for it");
        let (_, after) = rest.split_once(&end).expect("the place ends");
        page = format!("{before}{begin}{table}{end}{after}");
    }
    (page, stacks_picture(&evidence).expect("make stacks has written it"))
}

/// Goal: the page says what was measured. Method: make it anew; with IOFAIR_BLESS, keep it.
#[test]
fn the_page_has_what_was_measured() {
    let (page, picture) = page();
    for (name, fresh) in [(PAGE, page), (PICTURE, picture)] {
        if std::env::var_os("IOFAIR_BLESS").is_some() {
            std::fs::write(path(name), &fresh).unwrap();
        }
        assert!(text(name) == fresh, "{name} is stale; run make stacks");
    }
}

/// Goal: all loads run under all stacks on a drive of the library in both states. Method: a drive of a data centre; the numbers are for
/// `make stacks`.
#[test]
fn all_loads_run_on_a_drive() {
    let drives = ["wd-960gb"].map(str::to_owned);
    let csv = lines(&drives);
    assert_eq!(csv.lines().count(), 1 + drives.len() * 2 * 4 * 4);
    assert!(csv.lines().next() == text(EVIDENCE).lines().next(), "run make stacks");
    let [kept, _, worst] = stacks_tables(&csv).unwrap().map(|table| table.1);
    assert_eq!((kept.lines().count(), worst.lines().count()), (2 + 2 * 4, 2 + drives.len()));
}

/// Goal: the evidence is what the drives of the library give. Method: run all loads on all of them; with IOFAIR_BLESS, keep what was
/// measured.
#[test]
#[ignore = "needs time: five minutes of a processor"]
fn needs_time_every_drive_gives_its_lines() {
    let library = profile::list().into_iter().filter(|drive| drive.library);
    let drives: Vec<String> = library.map(|drive| drive.name).collect();
    let fresh = lines(&drives);
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(path(EVIDENCE), &fresh).unwrap();
    }
    assert!(text(EVIDENCE) == fresh, "{EVIDENCE} is stale; run make stacks");
}
