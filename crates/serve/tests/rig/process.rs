//! A server as a process of its own, to be killed: the test program itself, told by its environment.
// Each test file uses its part of it; outside of test functions clippy does not know that these are tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::process::{Child, Command, Stdio};

use iofair_config::contracts::Contracts;
use iofair_serve::{Server, Signals};

const CONTRACTS: &str = "IOFAIR_TEST_CONTRACTS";
/// Test programs that start servers have a test of this name, which calls [`serve_if_asked`].
const ROLE: &str = "server_to_be_killed";

/// Serves until it is killed, if this is that process.
pub(crate) fn serve_if_asked() {
    let Ok(path) = std::env::var(CONTRACTS) else { return };
    let signals = Signals::block().unwrap();
    let _server = Server::start(Contracts::open(path.as_ref()).unwrap()).unwrap();
    while signals.wait().unwrap().is_none() {}
}

/// A server that is killed with its owner.
pub(crate) struct Serving(Child);

impl Serving {
    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // As hard as it goes.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Starts a server with the contracts in this file; clients wait for its sockets.
pub(crate) fn start(contracts: &str) -> Serving {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", ROLE])
        .env(CONTRACTS, contracts)
        .stdout(Stdio::null())
        .spawn();
    Serving(child.unwrap())
}
