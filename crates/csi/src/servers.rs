//! The servers that the controller service knows: a file of tables, read again when it has changed.
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
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use iofair_serve::control::client::{Address, Secured};
use serde::Deserialize;
use tonic::Status;

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
}

/// Servers by their nodes.
pub(crate) type Table = Arc<BTreeMap<String, Server>>;

/// Where the table comes from.
#[derive(Debug)]
enum Source {
    /// A single server.
    One,
    /// A file, and its last text.
    File(PathBuf, Mutex<String>),
}

/// The servers.
#[derive(Debug)]
pub(crate) struct Servers {
    source: Source,
    table: Mutex<Table>,
}

impl Servers {
    /// The server of one node.
    pub(crate) fn one(node: &str, control: &Path) -> Self {
        let server =
            Server { node: node.to_string(), address: Address::Unix(control.to_path_buf()) };
        let table = BTreeMap::from([(node.to_string(), server)]);
        Self { source: Source::One, table: Mutex::new(Arc::new(table)) }
    }
    /// The servers of a file.
    ///
    /// # Errors
    /// The file cannot be read, or is wrong.
    pub(crate) fn file(path: &Path) -> Result<Self> {
        let text = text(path)?;
        let table = Arc::new(read(path, &text)?);
        let source = Source::File(path.to_path_buf(), Mutex::new(text));
        Ok(Self { source, table: Mutex::new(table) })
    }
    /// The present table. A file that has become wrong leaves the last table in force, and is logged.
    pub(crate) fn table(&self) -> Table {
        if let Source::File(path, last) = &self.source {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(now) = text(path)
                && now != *last
            {
                *last = now;
                match read(path, &last) {
                    Ok(table) => {
                        eprintln!("{}: {} servers", path.display(), table.len());
                        *self.table.lock().unwrap_or_else(PoisonError::into_inner) =
                            Arc::new(table);
                    }
                    Err(error) => eprintln!("{error:#}; the last servers stay"),
                }
            }
        }
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// The server of a node.
    ///
    /// # Errors
    /// NOT_FOUND: there is none.
    pub(crate) fn of(&self, node: &str) -> Result<Server, Status> {
        let server = self.table().get(node).cloned();
        server.ok_or_else(|| Status::not_found(format!("there is no server on node \"{node}\"")))
    }
}

fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn read(path: &Path, text: &str) -> Result<BTreeMap<String, Server>> {
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
    let port = rest.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = port.filter(|(host, _)| !host.is_empty()) else {
        bail!("control = \"{control}\" is not https://HOST:PORT");
    };
    let Some(Tls { authority, certificate, key }) = tls else {
        bail!("control = \"{control}\" needs [tls] with authority, certificate and key");
    };
    Ok(Address::Tls(Secured {
        host: host.to_string(),
        port,
        authority: near.join(authority),
        certificate: near.join(certificate),
        key: near.join(key),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("iofair-csi-{}-{:p}", std::process::id(), text));
        fs::write(&path, text).expect("written");
        path
    }

    /// Goal: servers are read with their addresses; mistakes are named with the file.
    #[test]
    fn servers_are_read_from_a_file() {
        let tls = "[tls]\nauthority = 'ca.pem'\ncertificate = '/x/c.pem'\nkey = 'k.pem'\n";
        let good = file(&format!(
            "[[server]]\nnode = 'a'\ncontrol = '/run/a.sock'\n[[server]]\nnode = 'b'\ncontrol = 'https://b.example:9443'\n{tls}"
        ));
        let servers = Servers::file(&good).expect("a good file");
        assert_eq!(servers.of("a").expect("there").address, Address::Unix("/run/a.sock".into()));
        let Address::Tls(secured) = servers.of("b").expect("there").address else { panic!("TLS") };
        assert_eq!((secured.host.as_str(), secured.port), ("b.example", 9443));
        assert_eq!(secured.authority, good.parent().expect("a directory").join("ca.pem"));
        assert_eq!(servers.of("c").expect_err("none").code(), tonic::Code::NotFound);
        for (text, part) in [
            ("", "no [[server]]"),
            ("[[server]]\nnode = 'a'\ncontrol = 'run/a.sock'", "neither an absolute path"),
            ("[[server]]\nnode = 'a'\ncontrol = 'https://a:1'", "needs [tls]"),
            ("[[server]]\nnode = 'a/b'\ncontrol = '/a'", "no name of a node"),
            (
                "[[server]]\nnode = 'a'\ncontrol = '/a'\n[[server]]\nnode = 'a'\ncontrol = '/b'",
                "two servers",
            ),
            ("[[server]]\nnod = 'a'", "unknown field"),
        ] {
            let error = format!("{:#}", Servers::file(&file(text)).expect_err(text));
            assert!(error.contains(part) && error.contains("iofair-csi-"), "{error}");
        }
    }
}
