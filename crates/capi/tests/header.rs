//! The header that C programs include is made from the sources; so is the list of symbols in the version script checked.
//!
//! `IOFAIR_BLESS=1 cargo test -p iofair-capi --test header` writes the header anew.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// In the order in which a reader of the header wants them.
const SOURCES: [&str; 7] = ["error", "setup", "contract", "request", "guard", "tree", "engine"];

fn in_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn made() -> String {
    let config = cbindgen::Config::from_file(in_crate("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = SOURCES
        .iter()
        .fold(builder, |builder, name| builder.with_src(in_crate(&format!("src/{name}.rs"))));
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

/// Functions that a header declares.
fn functions(header: &str) -> Vec<&str> {
    let calls = header.lines().filter(|line| !line.starts_with([' ', '#', '/']));
    let mut found: Vec<&str> = calls
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("iofair_"))
        .collect();
    found.sort_unstable();
    found
}

/// Symbols that a version script names.
fn versioned(script: &str) -> Vec<&str> {
    let lines = script.lines().map(str::trim).filter_map(|line| line.strip_suffix(';'));
    let mut found: Vec<&str> = lines.filter(|line| line.starts_with("iofair_")).collect();
    found.sort_unstable();
    found
}

/// Goal: the header is that of the sources. Method: make it and compare; IOFAIR_BLESS=1 writes it.
#[test]
fn the_header_is_fresh() {
    let (path, fresh) = (in_crate("include/iofair.h"), made());
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        fs::write(&path, &fresh).unwrap();
    }
    let there = fs::read_to_string(path).unwrap_or_default();
    assert!(there == fresh, "include/iofair.h is stale; the head of this test says how to make it");
}

/// Goal: the header has every function of the library, and the version script every function of the header. Method: compare
/// with the sources.
#[test]
fn every_function_is_declared_and_has_a_version() {
    let header = made();
    let declared = functions(&header);
    let sources =
        SOURCES.map(|name| fs::read_to_string(in_crate(&format!("src/{name}.rs"))).unwrap());
    let exported = sources.iter().map(|text| text.matches("#[unsafe(no_mangle)]").count());
    assert_eq!(declared.len(), exported.sum::<usize>(), "{declared:?}");
    assert_eq!(declared, versioned(&fs::read_to_string(in_crate("iofair.map")).unwrap()));
}

/// Goal: the readers above find what they look for. Method: small made-up texts.
#[test]
fn canaries() {
    let header = "/* iofair_no( */\nint32_t iofair_b(int x);\nconst char *iofair_a(void);\n";
    assert_eq!(functions(header), ["iofair_a", "iofair_b"]);
    assert_eq!(versioned("A {\n  global:\n    iofair_b;\n  local:\n    *;\n};\n"), ["iofair_b"]);
}
