//! Which server is meant: an option, the environment, or a contract file.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Result;
use iofair_config::contracts::Contracts;
use iofair_serve::control::client::Address;

use crate::failure::Usage;

/// Names a control socket.
const VARIABLE: &str = "IOFAIR_SOCKET";
/// Where a contract file is looked for.
const FILES: [&str; 2] = ["contracts.toml", "/etc/iofair/contracts.toml"];

/// The server's address.
pub(crate) fn find(socket: Option<&str>, contracts: Option<&Path>) -> Result<Address> {
    let variable = env::var(VARIABLE).ok().filter(|path| !path.is_empty());
    match (socket, contracts, variable) {
        (Some(socket), ..) => Ok(read(socket)),
        (None, Some(file), _) => of_file(file),
        (None, None, Some(socket)) => Ok(read(&socket)),
        (None, None, None) => match FILES.into_iter().map(Path::new).find(|file| file.exists()) {
            Some(file) => of_file(file),
            None => Err(Usage(format!(
                "which server? There is no {}: use --socket PATH, set {VARIABLE}, or name the \
                 contract file with --contracts",
                FILES.join(" and no ")
            ))
            .into()),
        },
    }
}

fn read(text: &str) -> Address {
    text.parse().map_or_else(|_| Address::Unix(PathBuf::from(text)), Address::Tcp)
}

fn of_file(file: &Path) -> Result<Address> {
    let control = Contracts::open(file)?.control;
    match (control.unix, control.tcp) {
        (Some(path), _) => Ok(Address::Unix(path)),
        (None, Some(address)) => Ok(Address::Tcp(address)),
        (None, None) => {
            let lacks = "has no [control] table, so its server is not controlled: add one with";
            Err(Usage(format!("{} {lacks} unix = \"PATH\"", file.display())).into())
        }
    }
}
