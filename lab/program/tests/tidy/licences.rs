//! Licences of everything that is linked in, against the allow list of deny.toml, and a line in
//! docs/dependencies.md for every direct dependency. Needs nothing but cargo.

use std::process::Command;

use spdx::{Expression, ParseMode};

use crate::files::{all, assert_none, root};

struct Package {
    name: String,
    licence: String,
    direct: bool,
}

/// Every package that is built on Linux.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let list = metadata["packages"].as_array().expect("a list of packages");
    let mut direct: Vec<&str> = Vec::new();
    for package in list.iter().filter(|package| package["source"].is_null()) {
        let dependencies = package["dependencies"].as_array().expect("a list of dependencies");
        direct.extend(dependencies.iter().filter_map(|dependency| dependency["name"].as_str()));
    }
    let outside = list.iter().filter(|package| !package["source"].is_null());
    let packages = outside.map(|package| {
        let name = package["name"].as_str().unwrap_or_default();
        Package {
            name: name.to_string(),
            licence: package["license"].as_str().unwrap_or_default().to_string(),
            direct: direct.contains(&name),
        }
    });
    packages.collect()
}

/// What deny.toml allows: for all, and for single packages.
struct Allowed {
    all: Vec<String>,
    exceptions: Vec<(String, Vec<String>)>,
}

fn names(list: &toml::Value) -> Vec<String> {
    let list = list.as_array().expect("a list of licences");
    list.iter().map(|name| name.as_str().expect("a name").to_string()).collect()
}

fn allowed() -> Allowed {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml is there");
    let table: toml::Table = text.parse().expect("deny.toml is TOML");
    let licences = &table["licenses"];
    let exceptions = licences["exceptions"].as_array().expect("a list of exceptions");
    let exception = |exception: &toml::Value| {
        (exception["crate"].as_str().expect("a name").to_string(), names(&exception["allow"]))
    };
    Allowed {
        all: names(&licences["allow"]),
        exceptions: exceptions.iter().map(exception).collect(),
    }
}

fn refused(packages: &[Package], allowed: &Allowed) -> Vec<String> {
    let is_fine = |package: &&Package| {
        let excepted = allowed.exceptions.iter().filter(|(name, _)| *name == package.name);
        let fits = |part: &String| {
            allowed.all.contains(part) || excepted.clone().any(|(_, more)| more.contains(part))
        };
        let expression = Expression::parse_mode(&package.licence, ParseMode::LAX);
        expression.is_ok_and(|expression| expression.evaluate(|part| fits(&part.to_string())))
    };
    let bad = packages.iter().filter(|package| !is_fine(package));
    bad.map(|p| format!("{}: licence \"{}\" is not in deny.toml", p.name, p.licence)).collect()
}

fn unexplained(packages: &[Package], page: &str) -> Vec<String> {
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
    let named = |name: &str| {
        let mut first = rows.iter().filter_map(|row| row.split('|').nth(1));
        first.any(|cell| cell.split([',', ' ']).any(|word| word == name))
    };
    let lost = packages.iter().filter(|package| package.direct && !named(&package.name));
    lost.map(|p| format!("{}: no line in docs/dependencies.md", p.name)).collect()
}

/// Goal: only licences that fit are linked in. Method: `cargo metadata` against deny.toml.
#[test]
fn licences_fit() {
    assert_none(&refused(&packages(), &allowed()));
}

/// Goal: every direct dependency says what it is for. Method: `cargo metadata` against the page.
#[test]
fn dependencies_are_explained() {
    let files = all();
    let page = files.iter().find(|file| file.path == "docs/dependencies.md").expect("the page");
    assert_none(&unexplained(&packages(), &page.text));
}

/// Goal: both rules catch what they are for. Method: made-up packages.
#[test]
fn canaries() {
    let package = |name: &str, licence: &str| Package {
        name: name.into(),
        licence: licence.into(),
        direct: true,
    };
    let all = vec!["MIT".to_string(), "Apache-2.0".to_string()];
    let exceptions = vec![("tool".to_string(), vec!["MPL-2.0".to_string()])];
    let allow = Allowed { all, exceptions };
    assert_none(&refused(&[package("tool", "MIT AND MPL-2.0")], &allow));
    for bad in ["GPL-3.0-only", "MIT AND MPL-2.0", "", "no licence"] {
        assert_eq!(refused(&[package("bad", bad)], &allow).len(), 1, "{bad}");
    }
    for good in ["MIT", "MIT/Apache-2.0", "GPL-2.0-only OR MIT", "(MIT OR ISC) AND Apache-2.0"] {
        assert_none(&refused(&[package("good", good)], &allow));
    }
    let page = "| crate | for |\n| one, two | this |\n";
    assert_eq!(unexplained(&[package("two", ""), package("three", "")], page).len(), 1);
}
