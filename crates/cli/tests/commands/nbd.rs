//! `docs/nbd.md`: what the page tells an operator to type works as it is written.

use std::fs;
use std::net::TcpListener;

use iofair_testkit::script;

/// Goal: every command of the page does what is said around it. Method: all of them, with the page's own
/// contracts. A free port takes the place of the usual one.
#[test]
#[ignore = "needs clients: nbdinfo, nbdcopy, qemu-img, openssl"]
fn needs_clients_the_page_about_nbd_is_true() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let page = fs::read_to_string("../../docs/nbd.md").unwrap();
    let commands = script::run("nbd", &page.replace("10809", &port.to_string()));
    assert!(commands > 12, "the page has lost its commands");
}
