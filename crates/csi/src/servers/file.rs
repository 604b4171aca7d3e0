//! Servers in a file of tables, which is read again when it has changed.
//!
//! ```toml
//! [[server]]
//! node = "node-a"                            # the name of the node in Kubernetes
//! control = "/run/iofair/control.sock"       # or "https://node-a.example:9443", with the files of [tls]
//!
//! [tls]
//! authority = "ca.pem"
//! certificate = "controller.pem"
//! key = "controller.key"
//! name = "iofair"                            # the name in the servers' certificates, if it is not the host's
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use iofair_serve::control::client::{Address, Secured, host_and_port};
use serde::Deserialize;

use crate::server::Server;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    server: Vec<WrittenServer>,
    tls: Option<Tls>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenServer {
    node: String,
    control: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    name: Option<String>,
}

pub(super) fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

pub(super) fn read(path: &Path, text: &str) -> Result<BTreeMap<String, Server>> {
    let at = || path.display().to_string();
    let Written { server, tls } = toml::from_str(text).with_context(at)?;
    let near = path.parent().unwrap_or(Path::new(""));
    let mut table = BTreeMap::new();
    for WrittenServer { node, control } in server {
        ensure!(
            !node.is_empty() && !node.contains('/'),
            "{}: \"{node}\" is no name of a node",
            at()
        );
        let address = address(&control, tls.as_ref(), near).with_context(at)?;
        let server = Server { node: node.clone(), address };
        ensure!(
            table.insert(node.clone(), server).is_none(),
            "{}: two servers on node {node}",
            at()
        );
    }
    ensure!(!table.is_empty(), "{}: no [[server]]", at());
    Ok(table)
}

fn address(control: &str, tls: Option<&Tls>, near: &Path) -> Result<Address> {
    let Some(rest) = control.strip_prefix("https://") else {
        ensure!(
            control.starts_with('/'),
            "control = \"{control}\" is neither an absolute path nor https://HOST:PORT"
        );
        return Ok(Address::Unix(control.into()));
    };
    let (host, port) = host_and_port(rest)
        .map_err(|wrong| anyhow!("control = \"{control}\" is not https://HOST:PORT: {wrong}"))?;
    let Some(Tls { authority, certificate, key, name }) = tls else {
        bail!("control = \"{control}\" needs [tls] with authority, certificate and key");
    };
    Ok(Address::Tls(Secured {
        host,
        name: name.clone(),
        port,
        authority: near.join(authority),
        certificate: near.join(certificate),
        key: near.join(key),
    }))
}
