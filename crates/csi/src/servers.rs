//! The servers that the services know: one, those of a file, or those that the Pods of a cluster run.

mod file;
mod pods;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use iofair_serve::control::client::Address;
use iofair_serve::log;
use tonic::Status;

pub(crate) use pods::Cluster;

use crate::server::Server;

/// Servers by their nodes.
pub(crate) type Table = Arc<BTreeMap<String, Server>>;

/// Where the table comes from.
#[derive(Debug)]
enum Source {
    /// A single server.
    One,
    /// A file, and its last text.
    File(PathBuf, Mutex<String>),
    /// Pods, which are followed.
    Pods(Cluster),
}

/// The servers.
#[derive(Debug)]
pub(crate) struct Servers {
    source: Source,
    table: Mutex<Table>,
}

impl Servers {
    /// The server of one node.
    pub(crate) fn on_node(node: &str, control: &Path) -> Self {
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
        let text = file::text(path)?;
        let table = Arc::new(file::read(path, &text)?);
        let source = Source::File(path.to_path_buf(), Mutex::new(text));
        Ok(Self { source, table: Mutex::new(table) })
    }
    /// The servers that Pods of a cluster run. The table is complete from the beginning, and changes with the Pods.
    ///
    /// # Errors
    /// The API server does not let them be listed.
    pub(crate) async fn of_pods(cluster: Cluster) -> Result<Arc<Self>> {
        let table = Mutex::new(Table::default());
        let servers = Arc::new(Self { source: Source::Pods(cluster.clone()), table });
        let followed = Arc::clone(&servers);
        cluster.follow(move |table| followed.set(table)).await?;
        Ok(servers)
    }
    /// The present table. A file that has become wrong leaves the last table in force, and is logged.
    pub(crate) fn table(&self) -> Table {
        if let Source::File(path, last) = &self.source {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(now) = file::text(path)
                && now != *last
            {
                *last = now;
                match file::read(path, &last) {
                    Ok(table) => {
                        log::line(&format!("{}: {} servers", path.display(), table.len()));
                        self.set(table);
                    }
                    Err(error) => log::line(&format!("{error:#}; the last servers stay")),
                }
            }
        }
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
    fn set(&self, table: BTreeMap<String, Server>) {
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }
    /// The server of a node.
    ///
    /// # Errors
    /// NOT_FOUND: there is no such node. UNAVAILABLE: the node has no server now.
    pub(crate) async fn server(&self, node: &str) -> Result<Server, Status> {
        if let Some(server) = self.table().get(node) {
            return Ok(server.clone());
        }
        if let Source::Pods(cluster) = &self.source
            && cluster.has_node(node).await?
        {
            return Err(Status::unavailable(format!("no server runs on node \"{node}\" now")));
        }
        Err(Status::not_found(format!("there is no server on node \"{node}\"")))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Reads this text as a file.
    fn file(text: &str) -> Result<Servers> {
        let path = std::env::temp_dir().join(format!("iofair-csi-{}", std::process::id()));
        fs::write(&path, text).expect("written");
        let servers = Servers::file(&path);
        fs::remove_file(path).expect("removed");
        servers
    }

    /// Goal: servers are read with their addresses; mistakes are named with the file.
    #[test]
    fn servers_are_read_from_a_file() {
        let tls = "[tls]\nauthority = 'ca.pem'\ncertificate = '/x/c.pem'\nkey = 'k.pem'\n";
        let good = file(&format!(
            "[[server]]\nnode = 'a'\ncontrol = '/run/a.sock'\n[[server]]\nnode = 'b'\ncontrol = 'https://b.example:9443'\n{tls}"
        ));
        let servers = good.expect("a good file");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let of = |node| runtime.block_on(servers.server(node));
        assert_eq!(of("a").expect("there").address, Address::Unix("/run/a.sock".into()));
        let Address::Tls(secured) = of("b").expect("there").address else { panic!("TLS") };
        assert_eq!((secured.host.as_str(), secured.port), ("b.example", 9443));
        assert_eq!(secured.authority, std::env::temp_dir().join("ca.pem"));
        assert_eq!(of("c").expect_err("none").code(), tonic::Code::NotFound);
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
            let error = format!("{:#}", file(text).expect_err(text));
            assert!(error.contains(part) && error.contains("iofair-csi-"), "{error}");
        }
    }
}
