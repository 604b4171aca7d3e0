//! Starts the services on their socket and ends them on a signal.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use rustix::fs::Mode;
use rustix::process::umask;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server as Grpc;

use crate::args::{Args, DRIVER, Service};
use crate::controller::Controller;
use crate::csi::controller_server::ControllerServer;
use crate::csi::identity_server::IdentityServer;
use crate::csi::node_server::NodeServer;
use crate::identity::Driver;
use crate::node::Node;
use crate::servers::{Cluster, Servers};
use crate::sweep::sweep;
use crate::tenants::Tenants;
use iofair_serve::log;

/// How long calls in progress, and clients that keep their connections, may delay the end. Every call can be repeated.
const GRACE: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT; calls in progress complete.
///
/// # Errors
/// A file is wrong, the socket is in use, the API server does not respond, or no method for block devices works here.
pub(crate) fn run(args: &Args) -> Result<()> {
    // The API server is called through TLS. It may be set already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { serve(args, servers(args).await?).await })
}

async fn servers(args: &Args) -> Result<Arc<Servers>> {
    match (&args.discover, &args.servers, &args.control, &args.node) {
        (Some(selector), ..) => {
            let client = Client::try_default().await.context("the API server")?;
            let cluster = Cluster {
                client,
                namespace: args.namespace.clone().unwrap_or_default(),
                selector: selector.clone(),
                port: args.control_port,
                name: args.server_name.clone(),
                tls: args.tls.clone().unwrap_or_default(),
            };
            Servers::of_pods(cluster).await
        }
        (_, Some(file), ..) => Servers::file(file).map(Arc::new),
        (_, _, Some(control), Some(node)) => Ok(Arc::new(Servers::on_node(node, control))),
        (_, _, Some(_), None) => bail!("--control needs --node, the name of this node"),
        _ => bail!("no server: --control PATH, --servers FILE, or --discover SELECTOR"),
    }
}

async fn serve(args: &Args, servers: Arc<Servers>) -> Result<()> {
    let serves = |service| args.services.contains(&service);
    let controller = serves(Service::Controller).then(|| {
        let controller = Controller::new(&args.group, Arc::clone(&servers));
        let wait = Duration::from_secs(args.longest_creation);
        tokio::spawn(sweep(args.group.clone(), Arc::clone(&servers), wait));
        controller
    });
    if serves(Service::Tenants) {
        let client = Client::try_default().await.context("the API server")?;
        tokio::spawn(Tenants::new(client, &args.group, Arc::clone(&servers)).run());
    }
    let mut own = None;
    let node = match serves(Service::Node) {
        false => None,
        true => {
            let Some(name) = &args.node else {
                bail!("the node service needs --node, the name of this node")
            };
            own = Some((name.clone(), Arc::clone(&servers)));
            Some(Node::new(name, &args.group, Arc::clone(&servers), args.devices)?)
        }
    };
    let path = path(&args.endpoint)?;
    let (listener, file) = bind(&path)?;
    let mut words: Vec<String> = Vec::new();
    words.extend(
        controller.is_some().then(|| format!("controller of {} servers", servers.table().len())),
    );
    words.extend(serves(Service::Tenants).then(|| "Tenants".to_string()));
    words.extend(node.as_ref().map(|node| {
        format!("node {}, block devices through {}", node.name(), node.devices().word())
    }));
    log::line(&format!(
        "{DRIVER} {}: {}; listening on {}",
        env!("CARGO_PKG_VERSION"),
        words.join("; "),
        path.display()
    ));
    let identity = Driver { services: args.services.clone(), own };
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (tell, ended) = oneshot::channel();
    let ends = async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        // Another file cannot have its number while this program listens. The next driver may listen from now on.
        drop(file);
        // It is gone if the services have failed.
        let _ = tell.send(());
    };
    let services = Grpc::builder()
        .add_service(IdentityServer::new(identity))
        .add_optional_service(controller.map(ControllerServer::new))
        .add_optional_service(node.map(NodeServer::new))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), ends);
    let overdue = async move {
        match ended.await {
            Ok(()) => tokio::time::sleep(GRACE).await,
            Err(_) => std::future::pending().await,
        }
    };
    let served = tokio::select! { served = services => served, () = overdue => Ok(()) };
    served.with_context(|| path.display().to_string())
}

/// The path of `unix:///PATH`, `unix:PATH` or `PATH`.
fn path(endpoint: &str) -> Result<PathBuf> {
    let rest = endpoint.strip_prefix("unix:").unwrap_or(endpoint);
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    if rest.is_empty() || rest.contains("://") {
        bail!("endpoint \"{endpoint}\" is not unix:///PATH");
    }
    Ok(rest.into())
}

/// Listens on a socket that only the owner may use. A socket that a killed process left is replaced.
fn bind(path: &Path) -> Result<(UnixListener, SocketFile)> {
    let at = || path.display().to_string();
    if let Ok(known) = fs::symlink_metadata(path) {
        if !known.file_type().is_socket() {
            bail!("{} exists and is not a socket", at());
        }
        match Probe::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Ok(_) => bail!("{} is in use by another process", at()),
            Err(error) => return Err(error).with_context(at),
        }
        fs::remove_file(path).with_context(at)?;
    }
    // From its first moment; this program has no other thread that creates files now.
    let before = umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path).with_context(at);
    umask(before);
    let identity = identity(path).with_context(at)?;
    Ok((listener?, SocketFile { path: path.to_path_buf(), identity }))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// The file of a socket: dropping it removes the file, unless another one is in its place.
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
