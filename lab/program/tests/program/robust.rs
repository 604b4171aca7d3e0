//! `iofair-lab run --draws` and `iofair-lab fit`. Goal of the draws: each claim is reported with the share of draws in which it holds,
//! the same on any number of threads and after an interruption. Method: a few draws of one small experiment.

use std::path::Path;
use std::process::Command;

use iofair_testkit::directory::Directory;

/// Two equal readers: which one is faster is chance. That both read is not.
const FILE: &str = r#"
title = "t"
source = "s"
machine = "sata-2009:warm"
time = "300ms"
stacks = ["none-noop"]
[[client]]
name = "one"
job = "randread"
buffered = false
[[client]]
name = "other"
job = "randread"
buffered = false
[[expect]]
kind = "ratio"
stack = "none-noop"
of = "one"
to = { of = "other" }
low = 1.01
reference = "the canary: it flips with the seed"
[[expect]]
kind = "at_least"
stack = "none-noop"
of = "total"
value = "0.01MB/s"
reference = "always"
"#;

fn draw(folder: &Path, out: &str, draws: &str, jobs: &str) -> String {
    let (file, out) = (folder.join("e.toml"), folder.join(out));
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
    command.arg("run").arg(&file).args(["--draws", draws, "--jobs", jobs, "--quiet", "--robust"]);
    let done = command.arg(&out).output().expect("the program starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::read_to_string(out).expect("it was written")
}

#[test]
fn a_claim_that_flips_is_a_fraction() {
    let folder = &*Directory::new();
    std::fs::write(folder.join("e.toml"), FILE).expect("it can be written");
    let one = draw(folder, "one.csv", "12", "1");
    assert_eq!(one, draw(folder, "two.csv", "12", "2"), "threads change nothing");

    let rows: Vec<Vec<&str>> = one.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let counts = |row: &[&str]| (row[5].parse::<u32>().unwrap(), row[6].parse::<u32>().unwrap());
    let (flips, of) = counts(&rows[0]);
    assert!(flips > 0 && flips * 100 < of * 80 && of == 12, "{one}");
    assert_eq!(counts(&rows[1]), (12, 12), "{one}");

    // Killed after five draws and within a sixth: the rest is done, and the whole is the same.
    let journal = std::fs::read_to_string(folder.join("one.draws.jsonl")).expect("a journal");
    let lines: Vec<&str> = journal.lines().collect();
    assert_eq!(lines.len(), 12);
    let left = format!("{}\n{}", lines[..5].join("\n"), &lines[5][..40]);
    std::fs::write(folder.join("three.draws.jsonl"), left).expect("it can be written");
    assert_eq!(one, draw(folder, "three.csv", "12", "2"));
    let journal = std::fs::read_to_string(folder.join("three.draws.jsonl")).expect("a journal");
    assert_eq!(journal.lines().count(), 5 + 1 + 7, "what was finished is not done again");

    // Beside the claims: the one that flips does not hold, whatever its mean says.
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
    command.arg("run").arg(folder.join("e.toml")).arg("--quiet");
    command.arg("--robust").arg(folder.join("one.csv"));
    let page = folder.join("page.md");
    assert!(command.arg("--markdown").arg(&page).status().expect("it starts").success());
    let page = std::fs::read_to_string(page).expect("it was written");
    assert!(page.contains(&format!("holds in {} % of 12 draws", flips * 100 / 12)), "{page}");
    assert!(page.contains("| own | 1 of 2 |"), "{page}");
}

/// Goal: the ranges in the repository are what the command computes. Method: all of them anew.
#[test]
#[ignore = "needs time: ten minutes in a release build"]
fn needs_time_ranges_are_what_fit_writes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
    let done = command.args(["fit", "--quiet"]).current_dir(&root).output().expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let there = std::fs::read_to_string(root.join("profiles/machines/ranges.csv")).unwrap();
    assert_eq!(String::from_utf8(done.stdout).unwrap(), there, "run make ranges");
}

/// Goal: a name that is no drive and no machine is refused. Method: one.
#[test]
fn fit_knows_its_files() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
    let done = command.args(["fit", "drives/abacus"]).output().expect("it starts");
    let says = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(2) && says.contains("drives/abacus"), "{says}");
}
