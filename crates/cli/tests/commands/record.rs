//! `docs/record.md`: what the page tells an operator to type works as it is written.

use std::fs;

use iofair_testkit::script;

/// Goal: every command of the page does what is said around it. Method: all of them, with the page's own contracts.
#[test]
fn the_page_about_recordings_is_true() {
    let page = fs::read_to_string("../../docs/record.md").unwrap();
    assert!(script::run("record", &page) > 2, "the page has lost its commands");
}
