//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Name of the driver, as StorageClasses and Pods write it.
pub(crate) const DRIVER: &str = "csi.iofair.dev";
/// Key of the topology: the node on whose server a volume is.
pub(crate) const TOPOLOGY_KEY: &str = "csi.iofair.dev/node";

/// Serves volumes of iofair servers to Kubernetes, as a driver of the Container Storage Interface (CSI).
///
/// The controller service creates and changes volumes on the servers that --servers lists or --discover finds. The node service,
/// one on each node, makes block devices and file systems of the volumes of the server on its own node.
#[derive(Parser, Debug)]
#[command(name = "iofair-csi", version)]
pub(crate) struct Args {
    /// Unix socket on which the services listen: unix:///csi/csi.sock, or its path
    #[arg(long, value_name = "SOCKET")]
    pub(crate) endpoint: String,
    /// What to run, separated by commas
    #[arg(long, value_delimiter = ',', default_values = ["controller", "node"], value_name = "SERVICES")]
    pub(crate) services: Vec<Service>,
    /// TOML file that lists the servers: tables `server` with `node` and `control`, the path of a control socket or https://HOST:PORT.
    /// It is read again when it has changed
    #[arg(long, value_name = "FILE")]
    pub(crate) servers: Option<PathBuf>,
    /// Labels of the Pods that run servers, instead of a file: KEY=VALUE,... They are followed through the API server
    #[arg(long, value_name = "SELECTOR", conflicts_with = "servers", requires_all = ["namespace", "tls"])]
    pub(crate) discover: Option<String>,
    /// Namespace of these Pods
    #[arg(long, env = "NAMESPACE", value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// TCP port on which their servers are controlled
    #[arg(long, default_value_t = 9443, value_name = "PORT")]
    pub(crate) control_port: u16,
    /// Name in their certificates
    #[arg(long, default_value = "iofair", value_name = "NAME")]
    pub(crate) server_name: String,
    /// Directory with ca.crt, tls.crt and tls.key, by which the caller and these servers know each other
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) tls: Option<PathBuf>,
    /// Name of this node; the node service needs it
    #[arg(long, value_name = "NAME", required_if_eq("services", "node"))]
    pub(crate) node: Option<String>,
    /// Control socket of the server on this node, instead of a file or Pods
    #[arg(long, value_name = "PATH", conflicts_with_all = ["servers", "discover"])]
    pub(crate) control: Option<PathBuf>,
    /// How volumes become block devices: ublk, nbd or loop (files of the server's FUSE mount); by default the first of
    /// these that this node supports
    #[arg(long, value_name = "METHOD")]
    pub(crate) devices: Option<Devices>,
    /// Group that contains the groups of all volumes, one for each namespace
    #[arg(long, default_value = "kubernetes", value_name = "GROUP")]
    pub(crate) group: String,
    /// Longer than another controller may take from the creation of a group to that of its volume, two calls of a server: a group
    /// without a volume for so many seconds is removed
    #[arg(long, hide = true, default_value_t = 180, value_name = "SECONDS")]
    pub(crate) longest_creation: u64,
}

/// A part of the driver.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Service {
    /// Creates, changes and deletes volumes.
    Controller,
    /// Makes block devices and file systems of them on a node.
    Node,
    /// Divides the contracts of Tenants among the nodes, through the API server; one process in a cluster.
    Tenants,
}

/// How volumes become block devices.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Devices {
    /// The kernel's ublk driver.
    Ublk,
    /// The kernel's NBD client.
    Nbd,
    /// Loop devices on the files of the server's FUSE mount.
    Loop,
}

impl Devices {
    /// Its word on the command line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ublk => "ublk",
            Self::Nbd => "nbd",
            Self::Loop => "loop",
        }
    }
}
