//! `docs/quickstart.md`: what the page tells a newcomer to type works as it is written.

use std::fs;

use iofair_testkit::script;

/// Goal: every command of the page does what is said around it. Method: all of them, in order, with the page's own contracts.
#[test]
#[ignore = "needs clients: nbdinfo, nbdcopy, fio"]
fn needs_clients_the_quick_start_is_true() {
    let page = fs::read_to_string("../../docs/quickstart.md").unwrap();
    let commands = script::run("quickstart", &page);
    assert!(commands > 10, "the page has lost its commands");
}
