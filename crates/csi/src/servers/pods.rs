//! Servers that Pods run, in a DaemonSet, for example: found by their labels, and followed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use futures::{Stream, StreamExt};
use iofair_serve::control::client::{Address, Secured};
use iofair_serve::log;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tonic::Status;

use crate::server::Server;

/// A cluster, and which of its Pods run servers.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The Pods' namespace.
    pub(crate) namespace: String,
    /// Selector of their labels.
    pub(crate) selector: String,
    /// Port on which the servers are controlled.
    pub(crate) port: u16,
    /// Name in their certificates.
    pub(crate) name: String,
    /// Directory with `ca.crt`, `tls.crt` and `tls.key`.
    pub(crate) tls: PathBuf,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("selector", &self.selector).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Lists the Pods, and follows them in a task; `set` gets the table of servers whenever it may have changed.
    ///
    /// # Errors
    /// The API server does not let them be listed.
    pub(super) async fn follow(
        self,
        set: impl Fn(BTreeMap<String, Server>) + Send + Sync + 'static,
    ) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        // A missing permission is an error at the start, instead of a table that stays empty.
        let what = || format!("Pods with {} in namespace {}", self.selector, self.namespace);
        let one = kube::api::ListParams::default().labels(&self.selector).limit(1);
        pods.list(&one).await.with_context(what)?;
        let events = watcher(pods, watcher::Config::default().labels(&self.selector));
        let mut events = Box::pin(events.default_backoff());
        let mut known = Known::default();
        while !known.is_complete {
            self.next(&mut events, &mut known, &set).await;
        }
        tokio::spawn(async move {
            loop {
                self.next(&mut events, &mut known, &set).await;
            }
        });
        Ok(())
    }
    /// Waits for one event.
    async fn next(
        &self,
        events: &mut (impl Stream<Item = watcher::Result<Event<Pod>>> + Unpin),
        known: &mut Known,
        set: &(impl Fn(BTreeMap<String, Server>) + Sync),
    ) {
        match events.next().await {
            Some(Ok(event)) => {
                if known.take(event) {
                    set(known.table(self));
                }
            }
            Some(Err(error)) => {
                log::line(&format!("the Pods of servers cannot be followed now: {error}"))
            }
            // A watcher never ends.
            None => std::future::pending().await,
        }
    }
    fn address(&self, host: &str) -> Address {
        let file = |name: &str| Path::new(&self.tls).join(name);
        Address::Tls(Secured {
            host: host.to_string(),
            name: Some(self.name.clone()),
            port: self.port,
            authority: file("ca.crt"),
            certificate: file("tls.crt"),
            key: file("tls.key"),
        })
    }
    /// Whether the cluster has this node.
    ///
    /// # Errors
    /// UNAVAILABLE: the API server does not say.
    pub(super) async fn has_node(&self, name: &str) -> Result<bool, Status> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = nodes.get_metadata_opt(name).await;
        found.map(|pod| pod.is_some()).map_err(|error| {
            Status::unavailable(format!("whether there is a node \"{name}\": {error}"))
        })
    }
}

/// What is known of the Pods, by their names.
#[derive(Default, Debug)]
struct Known {
    pods: BTreeMap<String, Pod>,
    /// A list that has begun.
    listed: BTreeMap<String, Pod>,
    is_complete: bool,
}

impl Known {
    /// Takes an event; says whether the Pods may have changed.
    fn take(&mut self, event: Event<Pod>) -> bool {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.insert(pod.name_any(), pod);
            }
            Event::InitDone => {
                self.pods = std::mem::take(&mut self.listed);
                self.is_complete = true;
                return true;
            }
            Event::Apply(pod) => {
                self.pods.insert(pod.name_any(), pod);
                return true;
            }
            Event::Delete(pod) => return self.pods.remove(&pod.name_any()).is_some(),
        }
        false
    }
    /// The server of each node: that of its newest running Pod.
    fn table(&self, cluster: &Cluster) -> BTreeMap<String, Server> {
        let mut newest: BTreeMap<&str, (&Pod, &str)> = BTreeMap::new();
        for pod in self.pods.values() {
            let Some((node, host)) = place(pod) else { continue };
            let born = |pod: &Pod| pod.metadata.creation_timestamp.clone();
            if newest.get(node).is_none_or(|(other, _)| born(other) < born(pod)) {
                newest.insert(node, (pod, host));
            }
        }
        let server = |(node, (_, host)): (&str, (&Pod, &str))| {
            let server = Server { node: node.to_string(), address: cluster.address(host) };
            (node.to_string(), server)
        };
        newest.into_iter().map(server).collect()
    }
}

/// The node of a running Pod, and its address.
fn place(pod: &Pod) -> Option<(&str, &str)> {
    let status = pod.status.as_ref()?;
    let is_running = status.phase.as_deref() == Some("Running");
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    Some((node, status.pod_ip.as_deref()?)).filter(|_| is_running)
}
