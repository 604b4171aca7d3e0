//! Contracts over several nodes: a [`Tenant`] has a minimum and a ceiling for all volumes of a namespace, and a loop divides them
//! among the nodes by demand.
//!
//! **The sum is never exceeded.** The resource's status lists what each node has at most. A round first lowers nodes, then
//! writes the list with the new parts of all nodes, and only then raises nodes. So the parts in force never add up to more than the list,
//! and the list never to more than the total; a process that dies in between leaves some of the total unused. A server that
//! does not respond keeps its part. The list is written only if nobody else has written it meanwhile.
//!
//! A node on which a namespace gets its first volume has no ceiling until the next round.

mod complaints;
mod divide;
mod resource;
mod round;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use serde_json::{Value as Json, json};
use tonic::Code;

use crate::failure::Failure;
use crate::server::{Group, Server};
use crate::servers::Servers;
use complaints::Complaints;
use divide::Demand;
use resource::{Part, Report, Resources, Tenant};
use round::{Place, Round};

/// Shortest time between two rounds.
const PERIOD: Duration = Duration::from_secs(2);
/// With many servers, so much longer for each of them.
const PERIOD_PER_SERVER: Duration = Duration::from_millis(20);
/// Servers that are called at the same time.
const CALLS_AT_ONCE: usize = 16;

/// What a server has for each tenant, by the tenant's group; or why that is unknown.
type Places = Result<HashMap<String, Place>, Failure>;
/// The servers by their nodes.
type Seen = BTreeMap<String, (Server, Places)>;

/// The loop.
pub(crate) struct Tenants {
    resources: Resources,
    servers: Arc<Servers>,
    /// The group that contains the groups of all namespaces.
    group: String,
    complaints: Complaints,
}

impl Tenants {
    /// The loop for the Tenants of a cluster.
    pub(crate) fn new(client: Client, group: &str, servers: Arc<Servers>) -> Self {
        let (resources, complaints) = (Resources::new(client), Complaints::default());
        Self { resources, servers, group: group.to_string(), complaints }
    }
    /// Divides contracts until the process ends.
    pub(crate) async fn run(mut self) {
        loop {
            self.complaints.begin();
            if let Err(error) = self.round().await {
                self.complaints.add(format!("tenants: {error:#}"));
            }
            let servers = u32::try_from(self.servers.table().len()).unwrap_or(u32::MAX);
            tokio::time::sleep(PERIOD.max(PERIOD_PER_SERVER * servers)).await;
        }
    }
    /// Asks all servers, and divides the contract of each tenant.
    async fn round(&mut self) -> anyhow::Result<()> {
        let tenants = self.resources.list(&mut self.complaints).await?;
        if tenants.is_empty() {
            return Ok(());
        }
        let seen = self.ask().await;
        for tenant in tenants {
            let name = tenant.name.clone();
            if let Err(error) = self.divide(tenant, &seen).await {
                self.complaints.add(format!("tenant {name}: {error:#}"));
            }
        }
        Ok(())
    }
    /// Divides the contract of one tenant, given what the servers have.
    async fn divide(&self, mut tenant: Tenant, seen: &Seen) -> anyhow::Result<()> {
        let group = format!("{}/{}", self.group, tenant.name);
        self.resources.hold(&mut tenant).await?;
        let mut report = Report::default();
        let places = self.places(&mut tenant, &group, seen, &mut report).await;
        let mut round = Round::new(tenant.total, tenant.parts.clone(), &places);
        for (node, part) in round.lower() {
            match set(seen, &node, &group, part).await {
                Ok(()) => round.done(&node, part),
                Err(problem) => report.problem = Some(problem),
            }
        }
        round.grow();
        tenant.parts.clone_from(&round.parts);
        self.resources.record(&mut tenant, &report).await?;
        for (node, part) in round.raise() {
            match set(seen, &node, &group, part).await {
                Ok(()) => round.done(&node, part),
                Err(problem) => {
                    report.problem = Some(problem);
                    round.failed(&node);
                }
            }
        }
        round.finish();
        tenant.parts = round.parts;
        self.resources.record(&mut tenant, &report).await?;
        if tenant.is_deleted && tenant.parts.is_empty() {
            self.resources.release(&mut tenant).await?;
        }
        Ok(())
    }
    /// The nodes that matter to a tenant and respond. Nodes that are gone leave its list.
    async fn places(
        &self,
        tenant: &mut Tenant,
        group: &str,
        seen: &Seen,
        report: &mut Report,
    ) -> BTreeMap<String, Place> {
        let mut places = BTreeMap::new();
        for (node, (_, known)) in seen {
            let is_known = tenant.parts.contains_key(node);
            match known {
                Ok(known) => {
                    let place = known.get(group).copied().unwrap_or_default();
                    if place.demand.is_some() || is_known {
                        places.insert(node.clone(), place);
                    }
                }
                Err(error) if is_known => {
                    report.problem = Some(error.status(node).message().to_string());
                }
                Err(_) => {}
            }
        }
        if tenant.is_deleted {
            places.values_mut().for_each(|place| place.demand = None);
            places.retain(|node, _| tenant.parts.contains_key(node));
        }
        report.rate = places.values().filter_map(|place| Some(place.demand?.rate)).sum();
        let missing = tenant.parts.keys().filter(|node| !seen.contains_key(*node));
        for node in missing.cloned().collect::<Vec<_>>() {
            match self.servers.server(&node).await {
                Err(error) if error.code() == Code::NotFound => drop(tenant.parts.remove(&node)),
                _ => report.problem = Some(format!("no server runs on node {node}")),
            }
        }
        places
    }
    /// The groups of each server.
    async fn ask(&self) -> Seen {
        let servers: Vec<Server> = self.servers.table().values().cloned().collect();
        let ask = |server: Server| async move {
            let places = server.groups().await.map(|groups| places(&groups, &self.group));
            (server.node.clone(), (server, places))
        };
        futures::stream::iter(servers).map(ask).buffer_unordered(CALLS_AT_ONCE).collect().await
    }
}

/// What a server has for each tenant, by the tenant's group, and what the volumes in it ask for, if there are any.
fn places(groups: &[Group], all: &str) -> HashMap<String, Place> {
    let mut places: HashMap<String, Place> = HashMap::new();
    let mut used = HashSet::new();
    for group in groups.iter().filter(|group| group.is_in(all)) {
        let inside = &group.name[all.len() + 1..];
        if let Some((namespace, _)) = inside.split_once('/') {
            used.insert(&group.name[..all.len() + 1 + namespace.len()]);
            continue;
        }
        let has = Part { min: group.min, max: group.max };
        let demand = Demand { rate: group.rate, waits: group.waits, ceiling: group.max };
        places.insert(group.name.clone(), Place { demand: Some(demand), has });
    }
    for (name, place) in &mut places {
        place.demand = place.demand.filter(|_| used.contains(name.as_str()));
    }
    places
}

/// Gives a node its part. The error is for people.
async fn set(seen: &Seen, node: &str, group: &str, part: Part) -> Result<(), String> {
    let Some((server, _)) = seen.get(node) else {
        return Err(format!("no server runs on node {node}"));
    };
    let rate = |rate: Option<u64>| rate.map_or(Json::Null, |rate| json!(format!("{rate}B/s")));
    let keys = json!({ "min": rate(Some(part.min).filter(|&min| min > 0)), "max": rate(part.max) });
    let done = server.change_group(group, keys).await;
    done.map_err(|error| error.status(node).message().to_string())
}
