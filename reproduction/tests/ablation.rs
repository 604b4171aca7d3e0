//! What each rule of `promise` is worth: `make ablation` measures it and writes the page.

use std::path::{Path, PathBuf};
use std::process::Command;

use iofair_reproduction::{Rule, ablation_table};

const EVIDENCE: &str = "reproduction/evidence/ablation.csv";
const PAGE: &str = "reproduction/ablation.md";
const PATCHES: &str = "reproduction/ablation";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}
fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
fn rules() -> Vec<Rule> {
    let entries = std::fs::read_dir(path(PATCHES)).expect("the folder is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("it can be listed").file_name().into_string().expect("ASCII"))
        .collect();
    names.sort();
    let read = |name: &String| {
        let rule = name.strip_suffix(".patch").expect("the folder has patches only");
        Rule::read(rule, &text(&format!("{PATCHES}/{name}"))).unwrap_or_else(|e| panic!("{e}"))
    };
    names.iter().map(read).collect()
}

/// Goal: no patch is stale. Method: each would apply, and its head names constants of the files around the changed one.
#[test]
fn every_rule_can_be_switched_off() {
    for rule in rules() {
        let patch = format!("{PATCHES}/{}.patch", rule.name);
        let mut git = Command::new("git");
        let checked = git.args(["apply", "--check", &patch]).current_dir(path("")).output();
        let checked = checked.expect("git is installed");
        let complaint = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{complaint}: draw the patch anew");
        let (folder, _) = rule.file.rsplit_once('/').expect("a file in a folder");
        let files = std::fs::read_dir(path(folder)).expect("the folder is there");
        let files = files.map(|file| file.expect("it can be listed").path());
        let files = files.filter(|path| path.is_file());
        let code: String = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        for constant in rule.constants {
            assert!(code.contains(&format!("const {constant}:")), "{patch}: no {constant}");
        }
    }
}

/// Goal: the page says what was measured. Method: make it anew; with IOFAIR_BLESS, keep it.
#[test]
fn the_page_has_what_was_measured() {
    let table = ablation_table(&text(EVIDENCE), &rules()).expect("make ablation has written it");
    let page = text(PAGE);
    let (before, rest) = page.split_once("<!-- generated -->\n").expect("a place for the table");
    let (_, after) = rest.split_once("<!-- end -->").expect("the place ends");
    let fresh = format!("{before}<!-- generated -->\n{table}<!-- end -->{after}");
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(path(PAGE), &fresh).unwrap();
    }
    assert!(text(PAGE) == fresh, "{PAGE} is stale; run make ablation");
}
