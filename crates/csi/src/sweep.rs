//! Groups that interrupted creations of volumes left behind.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use iofair_serve::log;

use crate::failure::Failure;
use crate::server::{Group, Server};
use crate::servers::Servers;
use crate::volume_id::is_of_claim;

/// Removes groups of volumes whose creation was interrupted and then succeeded on another node, or was given up: they hold back
/// minimums that others could get. Looks twice, after a `wait`, because another controller may be creating the volume of such a
/// group.
pub(crate) async fn sweep(group: String, servers: Arc<Servers>, wait: Duration) {
    let mut found = Vec::new();
    for server in servers.table().values() {
        match unused(&group, server).await {
            Ok(groups) if groups.is_empty() => {}
            Ok(groups) => found.push((server.clone(), groups)),
            Err(error) => report(server, &error),
        }
    }
    if found.is_empty() {
        return;
    }
    tokio::time::sleep(wait).await;
    for (server, before) in found {
        if let Err(error) = remove_unused(&group, &server, &before).await {
            report(&server, &error);
        }
    }
}

fn report(server: &Server, error: &Failure) {
    let status = error.status(&server.node);
    log::line(&format!("groups without volumes stay: {}", status.message()));
}

/// Removes groups that are unused now and were so before.
async fn remove_unused(all: &str, server: &Server, before: &[String]) -> Result<(), Failure> {
    for name in unused(all, server).await?.iter().filter(|name| before.contains(name)) {
        log::line(&format!("node {}: group {name} has no volume and is removed", server.node));
        server.remove_group(name).await?;
    }
    Ok(())
}

/// Groups of volumes, by their names, that have no volume.
async fn unused(all: &str, server: &Server) -> Result<Vec<String>, Failure> {
    let groups = server.groups().await?;
    let volumes = server.volumes(all).await?;
    let is_used: HashSet<&str> = volumes.iter().map(|volume| volume.group.as_str()).collect();
    let is_unused = |group: &&Group| {
        let is_of_claim = group.name.rsplit('/').next().is_some_and(is_of_claim);
        group.is_in(all) && is_of_claim && !is_used.contains(group.name.as_str())
    };
    Ok(groups.iter().filter(is_unused).map(|group| group.name.clone()).collect())
}
