//! `docs/volumes.md`, `docs/fuse.md` and `docs/faults.md`: what the pages tell an operator to type works as it is written.

use std::fs;

use iofair_testkit::script;

/// Goal: every command of the page does what is said around it. Method: all of them, with the page's own
/// contracts.
#[test]
#[ignore = "needs root: mount, loop device, nbdinfo, nbdcopy"]
fn needs_root_the_page_about_volumes_is_true() {
    let page = fs::read_to_string("../../docs/volumes.md").unwrap();
    assert!(script::run("volumes", &page) > 20, "the page has lost its commands");
}

/// Goal: the same for the page about mounted files. Method: the same.
#[test]
#[ignore = "needs root: mount, loop device"]
fn needs_root_the_page_about_files_is_true() {
    let page = fs::read_to_string("../../docs/fuse.md").unwrap();
    assert!(script::run("fuse", &page) > 10, "the page has lost its commands");
}

/// Goal: the same for the page about faults. Method: the same.
#[test]
#[ignore = "needs clients: qemu-io, nbdinfo"]
fn needs_clients_the_page_about_faults_is_true() {
    let page = fs::read_to_string("../../docs/faults.md").unwrap();
    assert!(script::run("faults", &page) > 6, "the page has lost its commands");
}
