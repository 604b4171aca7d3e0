//! Detects whether a server with a contract file is already running, for a check of the file: before a restart, and
//! in `ExecReload=` of the unit.

use std::fs;
use std::path::Path;

use iofair_config::contracts::Contracts;

use super::client::{Address, Call, call};
use crate::socket;

/// The note for the operator if one is running.
pub(super) const NOTE: &str =
    "a server runs with this file; what it uses (sockets, volumes, devices) counts as free";

/// Whether one is running, and its process, if that can be determined. If systemd holds the control socket of a stopped
/// server, the connection starts that server: who listens on a socket is only known after connecting to it.
pub(super) fn find(file: &Path, contracts: &Contracts) -> (bool, Option<u32>) {
    // In `ExecReload=`, systemd names the server's process.
    let main = std::env::var("MAINPID").ok().and_then(|process| process.parse().ok());
    if let Some(process) = main.filter(|process| is_server(*process)) {
        return (true, Some(process));
    }
    let Some(path) = &contracts.control.unix else { return (false, None) };
    let reply = call(&Address::Unix(path.clone()), &Call::new("GET", "/v1/status"));
    let status = reply.ok().filter(|reply| reply.is_good()).and_then(|reply| reply.json().ok());
    let serves = status.as_ref().and_then(|status| status["file"].as_str()).map(Path::new);
    let same = |other: &Path| fs::canonicalize(file).is_ok_and(|file| file == other);
    (serves.is_some_and(same), socket::listener(path))
}

fn is_server(process: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.is_ok_and(|name| name.trim() == "iofair")
}
