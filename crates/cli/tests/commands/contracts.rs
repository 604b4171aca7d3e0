//! `docs/contracts.md` and the contract of the README: the files can be served, and an error is as it is shown.

use std::fs;
use std::process::{Command, Output};

use iofair_testkit::script;

/// Goal: a newcomer's copy of the page's file works. Method: its commands, with the page's own contracts.
#[test]
fn the_page_about_contracts_is_true() {
    let page = fs::read_to_string("../../docs/contracts.md").unwrap();
    assert!(script::run("contracts", &page) > 1, "the page has lost its commands");
}

/// What `iofair serve --check` says of a contract file with this text.
fn check(text: &str) -> Output {
    let name = format!("iofair-readme-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("contracts.toml"), text).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_iofair"));
    program.args(["serve", "--check", "contracts.toml"]).current_dir(&directory);
    let output = program.output().unwrap();
    fs::remove_dir_all(directory).unwrap();
    output
}

/// Goal: the README's contract is valid, and a mistyped key gets the error that is shown. Method: check both.
#[test]
fn the_contract_of_the_readme_is_valid() {
    let readme = fs::read_to_string("../../README.md").unwrap();
    let contracts = script::contracts(&readme);
    let output = check(&contracts);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bare = contracts.lines().map(|line| line.split(" #").next().unwrap().trim_end());
    let mistyped = bare.collect::<Vec<_>>().join("\n").replace("weight", "weigth");
    let (_, error) = readme.split_once("```\nerror: ").expect("the README shows an error");
    let shown = format!("error: {}", error.split_once("```").unwrap().0);
    assert_eq!(String::from_utf8(check(&mistyped).stderr).unwrap(), shown);
}
