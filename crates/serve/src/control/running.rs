//! Detects whether a server with a contract file is already running, for a check of the file: before a restart, and
//! in `ExecReload=` of the unit.

use std::fs;
use std::path::Path;

use iofair_config::contracts::Contracts;

use super::client::{Address, Ask, call};
use crate::socket;

/// What an operator is told then.
pub(super) const NOTE: &str =
    "a server runs with this file; what it uses (sockets, volumes, devices) counts as free";

/// Whether there is one, and its process, if that can be determined.
pub(super) fn find(file: &Path, contracts: &Contracts) -> (bool, Option<u32>) {
    // systemd says whom a reload is for.
    let main = std::env::var("MAINPID").ok().and_then(|process| process.parse().ok());
    if let Some(process) = main.filter(|process| is_server(*process)) {
        return (true, Some(process));
    }
    let Some(path) = &contracts.control.unix else { return (false, None) };
    let reply = call(&Address::Unix(path.clone()), &Ask::new("GET", "/v1/status"));
    let status = reply.ok().filter(|reply| reply.is_good()).and_then(|reply| reply.json().ok());
    let serves = status.as_ref().and_then(|status| status["file"].as_str()).map(Path::new);
    let same = |other: &Path| fs::canonicalize(file).is_ok_and(|file| file == other);
    (serves.is_some_and(same), socket::listener(path))
}

fn is_server(process: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.is_ok_and(|name| name.trim() == "iofair")
}
