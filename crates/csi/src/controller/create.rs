//! Creation and deletion of volumes.

use std::time::Duration;

use iofair_core::unit::Count;
use tonic::{Code, Status};

use super::{Controller, described, size};
use crate::args::TOPOLOGY_KEY;
use crate::capability;
use crate::contract;
use crate::csi::{CreateVolumeRequest, CreateVolumeResponse, TopologyRequirement};
use crate::failure::Failure;
use crate::server::{Server, Volume};
use crate::volume_id::{VolumeId, volume_name};

/// The size of a volume for which none is asked.
const SIZE: u64 = 1 << 30;

/// How often and after which time a volume to delete is looked at again that has a connection: a server may notice a moment later that a
/// node has disconnected.
const CLOSING: (u32, Duration) = (20, Duration::from_millis(100));

/// A volume to create.
struct Wanted<'a> {
    name: String,
    group: String,
    size: u64,
    contract: &'a serde_json::Value,
    request: &'a CreateVolumeRequest,
}

impl Controller {
    /// The servers on which a volume may be, in order of preference.
    async fn candidates(
        &self,
        requirement: Option<&TopologyRequirement>,
    ) -> Result<Vec<Server>, Status> {
        let table = self.servers.table();
        let Some(TopologyRequirement { requisite, preferred }) = requirement else {
            return Ok(table.values().cloned().collect());
        };
        let mut nodes: Vec<&str> = Vec::new();
        for topology in preferred.iter().chain(requisite) {
            // A topology without the key allows every node.
            let all = topology.segments.is_empty();
            let named = topology.segments.get(TOPOLOGY_KEY).map(String::as_str).into_iter();
            let every = table.keys().map(String::as_str).filter(|_| all);
            for node in named.chain(every) {
                if nodes.contains(&node) {
                    continue;
                }
                match self.servers.server(node).await {
                    Ok(_) => nodes.push(node),
                    Err(error) if error.code() == Code::NotFound => {}
                    // The volume could be there already.
                    Err(error) => return Err(error),
                }
            }
        }
        if nodes.is_empty() && !(preferred.is_empty() && requisite.is_empty()) {
            return Err(Status::resource_exhausted("no node of the topology has a server"));
        }
        match nodes.is_empty() {
            true => Ok(table.values().cloned().collect()),
            false => Ok(nodes.into_iter().filter_map(|node| table.get(node).cloned()).collect()),
        }
    }
    pub(super) async fn create(
        &self,
        request: CreateVolumeRequest,
    ) -> Result<CreateVolumeResponse, Status> {
        if request.name.is_empty() {
            return Err(Status::invalid_argument("the volume has no name"));
        }
        capability::all_supported(&request.volume_capabilities)?;
        if request.volume_content_source.is_some() {
            return Err(Status::invalid_argument(
                "volumes from snapshots or other volumes are not supported",
            ));
        }
        // As when it changes: a VolumeAttributesClass replaces the contract of the StorageClass.
        let (by_class, by_attributes) = (
            contract::contract(&request.parameters)?,
            contract::contract(&request.mutable_parameters)?,
        );
        let contract = if request.mutable_parameters.is_empty() { by_class } else { by_attributes };
        let name = volume_name(&request.name);
        let _operation = self.pending.begin(&name)?;
        let has_size = request.capacity_range.is_some_and(|range| range.required_bytes > 0);
        let least = if has_size { 0 } else { SIZE };
        let limit =
            request.capacity_range.map_or(0, |range| u64::try_from(range.limit_bytes).unwrap_or(0));
        let least = if limit > 0 { least.min(limit) } else { least };
        let group = contract::group(&self.group, &request.parameters, &name);
        let size = size(request.capacity_range, least.max(1))?;
        let wanted = Wanted { name, group, size, contract: &contract, request: &request };
        let candidates = self.candidates(request.accessibility_requirements.as_ref()).await?;
        // A repeated call may prefer another node than the one that succeeded.
        for server in &candidates {
            let known = server.volume(&wanted.name).await;
            match known {
                Ok(Some(volume)) => return self.same(server, &volume, &wanted),
                Ok(None) => {}
                // The volume could be there. With a single candidate, the creation itself reports the error.
                Err(error) if candidates.len() > 1 => return Err(error.status(&server.node)),
                Err(_) => {}
            }
        }
        let mut refusals = Vec::new();
        for server in &candidates {
            match self.create_on(server, &wanted).await {
                Err(error) if error.code() == Code::ResourceExhausted => {
                    refusals.push(error.message().to_string())
                }
                done => return done,
            }
        }
        if refusals.is_empty() {
            refusals.push("there is no server".into());
        }
        Err(Status::resource_exhausted(refusals.join("\n")))
    }
    async fn create_on(
        &self,
        server: &Server,
        wanted: &Wanted<'_>,
    ) -> Result<CreateVolumeResponse, Status> {
        let id = VolumeId { node: server.node.clone(), volume: wanted.name.clone() };
        if !id.fits() {
            return Err(Status::invalid_argument(format!(
                "node name \"{}\" is too long",
                server.node
            )));
        }
        let status = |error: Failure| error.status(&server.node);
        server.put_group(&wanted.group, wanted.contract, false).await.map_err(status)?;
        match server.create_volume(&wanted.name, &wanted.group, wanted.size).await {
            Ok(()) => Ok(CreateVolumeResponse { volume: Some(described(&id, wanted.size)) }),
            Err(error) if error.is("exists") => {
                let volume = server.volume(&wanted.name).await.map_err(status)?;
                let volume =
                    volume.ok_or_else(|| Status::aborted("the volume was deleted meanwhile"))?;
                self.same(server, &volume, wanted)
            }
            Err(error) => {
                // The group of a volume that does not exist holds back a minimum that others could get.
                let _ = server.remove_group(&wanted.group).await;
                Err(status(error))
            }
        }
    }
    /// A volume of this name is there: it is the one that is wanted, or the call conflicts with an earlier one.
    fn same(
        &self,
        server: &Server,
        volume: &Volume,
        wanted: &Wanted<'_>,
    ) -> Result<CreateVolumeResponse, Status> {
        let range = wanted.request.capacity_range.unwrap_or_default();
        let required = u64::try_from(range.required_bytes).unwrap_or(0);
        let limit = u64::try_from(range.limit_bytes).unwrap_or(0);
        let fits = volume.size >= required && (limit == 0 || volume.size <= limit);
        if !volume.is_in(&self.group) || volume.group != wanted.group || !fits {
            let message = format!(
                "volume \"{}\" exists on node {} with {} bytes in group \"{}\"; {required} bytes (at most {limit}; 0: no limit) in group \
                 \"{}\" were asked for",
                volume.name, server.node, volume.size, volume.group, wanted.group
            );
            return Err(Status::already_exists(message));
        }
        let id = VolumeId { node: server.node.clone(), volume: volume.name.clone() };
        Ok(CreateVolumeResponse { volume: Some(described(&id, volume.size)) })
    }
    pub(super) async fn delete(&self, text: &str) -> Result<(), Status> {
        if text.is_empty() {
            return Err(Status::invalid_argument("there is no volume id"));
        }
        let Some(id) = VolumeId::parse(text) else { return Ok(()) };
        let _operation = self.pending.begin(text)?;
        // A node that is gone for good takes its volumes along.
        let server = match self.servers.server(&id.node).await {
            Err(error) if error.code() == Code::NotFound => return Ok(()),
            server => server?,
        };
        let status = |error: Failure| error.status(&id.node);
        let Some(mut volume) = server.volume(&id.volume).await.map_err(status)? else {
            return self.remove_leftover(&server, &id).await;
        };
        if !volume.is_in(&self.group) {
            return Err(Status::failed_precondition(format!(
                "volume \"{text}\" was not created by this driver"
            )));
        }
        let mut waits = CLOSING.0;
        while volume.connections > 0 && waits > 0 {
            waits -= 1;
            tokio::time::sleep(CLOSING.1).await;
            let Some(now) = server.volume(&id.volume).await.map_err(status)? else { return Ok(()) };
            volume = now;
        }
        if volume.connections > 0 || volume.block_device.is_some() {
            let message =
                format!("volume \"{text}\" is in use: {}", Count(volume.connections, "connection"));
            return Err(Status::failed_precondition(message));
        }
        server.delete_volume(&id.volume).await.map_err(status)?;
        server.remove_group(&volume.group).await.map_err(status)
    }
    /// Removes the group of a volume whose deletion was interrupted.
    async fn remove_leftover(&self, server: &Server, id: &VolumeId) -> Result<(), Status> {
        let status = |error: Failure| error.status(&id.node);
        for group in server.groups().await.map_err(status)? {
            if group.is_in(&self.group) && group.name.rsplit('/').next() == Some(&id.volume) {
                server.remove_group(&group.name).await.map_err(status)?;
            }
        }
        Ok(())
    }
}
