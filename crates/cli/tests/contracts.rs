//! `docs/contracts.md`: the file on the page can be served.
#![allow(clippy::unwrap_used)]

mod script;

use std::fs;

/// Goal: a newcomer's copy of the page's file works. Method: its commands, with the page's own contracts.
#[test]
fn the_page_about_contracts_is_true() {
    let page = fs::read_to_string("../../docs/contracts.md").unwrap();
    assert!(script::run("contracts", &page) > 1, "the page has lost its commands");
}
