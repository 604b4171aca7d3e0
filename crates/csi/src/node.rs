//! The node service: block devices and file systems of the volumes on this node's server.
//!
//! Nothing is stored here: whether a step was done is read from the kernel's devices and mounts, so that every call can be
//! repeated after this process was killed.

mod command;
mod device;
mod file_system;
mod mounts;
mod nbd;
mod stats;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use tonic::{Request, Response, Status, async_trait};

use crate::args::{Devices, TOPOLOGY_KEY};
use crate::capability::{self, Use};
use crate::csi;
use crate::csi::node_service_capability::{Rpc, Type, rpc};
use crate::csi::volume_capability::access_mode::Mode;
use crate::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, Topology, VolumeCapability,
};
use crate::pending::{Operation, Pending};
use crate::server::{Server, Volume};
use crate::servers::Servers;
use crate::volume_id::VolumeId;

/// The service.
#[derive(Debug)]
pub(crate) struct Node {
    name: String,
    /// The group that contains the groups of all volumes.
    group: String,
    servers: Arc<Servers>,
    devices: Devices,
    pending: Pending,
}

impl Node {
    /// The service of a node; chooses how volumes become block devices.
    ///
    /// # Errors
    /// The chosen method, or any, does not work here.
    pub(crate) fn new(
        name: &str,
        group: &str,
        servers: Arc<Servers>,
        wanted: Option<Devices>,
    ) -> Result<Self> {
        let devices = device::choose(wanted)?;
        if devices == Devices::Nbd {
            let (servers, node) = (Arc::clone(&servers), name.to_string());
            nbd::keep(move || {
                let socket = servers.table().get(&node).and_then(Server::socket);
                socket.ok_or_else(|| ErrorKind::NotConnected.into())
            })?;
        }
        let (name, group) = (name.to_string(), group.to_string());
        Ok(Self { name, group, servers, devices, pending: Pending::default() })
    }
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
    pub(crate) const fn devices(&self) -> Devices {
        self.devices
    }
    /// A volume of this node's server.
    async fn volume(&self, text: &str) -> Result<(Server, Volume), Status> {
        let none =
            || Status::not_found(format!("there is no volume \"{text}\" on node {}", self.name));
        let id = VolumeId::parse(text).filter(|id| id.node == self.name).ok_or_else(none)?;
        let server = self.servers.server(&self.name).await?;
        let volume = server.volume(&id.volume).await.map_err(|error| error.status(&self.name))?;
        Ok((server, volume.filter(|volume| volume.is_in(&self.group)).ok_or_else(none)?))
    }
    fn begin(&self, volume: &str) -> Result<Operation, Status> {
        if volume.is_empty() {
            return Err(Status::invalid_argument("there is no volume id"));
        }
        self.pending.begin(volume)
    }
}

/// A path that a caller gives.
fn path(text: &str, what: &str) -> Result<PathBuf, Status> {
    if text.is_empty() {
        return Err(Status::invalid_argument(format!("there is no {what}")));
    }
    Ok(text.into())
}

fn wanted(capability: Option<&VolumeCapability>) -> Result<Use, Status> {
    let none = || Status::invalid_argument("there is no volume capability");
    capability::supported(capability.ok_or_else(none)?)
}

fn mode(capability: Option<&VolumeCapability>) -> Option<Mode> {
    capability.and_then(|mode| mode.access_mode).map(|mode| mode.mode())
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Status {
    let path = path.display().to_string();
    move |error| Status::internal(format!("{path}: {error}"))
}

/// Removes what [`Node::publish`] has created; it may be gone.
fn remove(target: &Path) -> Result<(), Status> {
    let removed = match fs::symlink_metadata(target) {
        Ok(known) if known.is_dir() => fs::remove_dir(target),
        Ok(_) => fs::remove_file(target),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at(target)(error)),
        _ => Ok(()),
    }
}

impl Node {
    async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), Status> {
        let _operation = self.begin(&request.volume_id)?;
        let staging = path(&request.staging_target_path, "staging path")?;
        let wanted = wanted(request.volume_capability.as_ref())?;
        let (server, volume) = self.volume(&request.volume_id).await?;
        let device = device::attach(self.devices, &server, &volume).await?;
        let Use::Mount(kind, options) = wanted else { return Ok(()) };
        if let Some(mounted) = mounts::at(&staging)? {
            return mounts::same(&mounted, &device, &staging);
        }
        file_system::create_if_empty(&device, &kind).await?;
        fs::create_dir_all(&staging).map_err(at(&staging))?;
        mounts::mount(&device, &staging, Some(&kind), &options).await
    }
    async fn unstage(&self, request: &NodeUnstageVolumeRequest) -> Result<(), Status> {
        let _operation = self.begin(&request.volume_id)?;
        let staging = path(&request.staging_target_path, "staging path")?;
        if mounts::at(&staging)?.is_some() {
            mounts::unmount(&staging).await?;
        }
        match self.volume(&request.volume_id).await {
            Ok((server, volume)) => device::detach(self.devices, &server, &volume).await,
            // Its device went with the volume.
            Err(error) if error.code() == tonic::Code::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
    async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), Status> {
        let _operation = self.begin(&request.volume_id)?;
        let target = path(&request.target_path, "target path")?;
        let staging = path(&request.staging_target_path, "staging path")?;
        let wanted = wanted(request.volume_capability.as_ref())?;
        let (server, volume) = self.volume(&request.volume_id).await?;
        let device = device::find(self.devices, &server, &volume).await?;
        let unstaged =
            || Status::failed_precondition(format!("volume {} is not staged", request.volume_id));
        let device = device.ok_or_else(unstaged)?;
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(at(parent))?;
        }
        let mounted = mounts::at(&target)?;
        let mode = mode(request.volume_capability.as_ref());
        let read_only = request.readonly || mode == Some(Mode::SingleNodeReaderOnly);
        if mode == Some(Mode::SingleNodeSingleWriter) {
            mounts::nowhere_else(&device, &[&staging, &target])?;
        }
        match wanted {
            Use::Mount(..) => {
                let staged = mounts::at(&staging)?.ok_or_else(unstaged)?;
                if let Some(mounted) = mounted {
                    return mounts::same_file_system(&mounted, &staged, &target);
                }
                fs::create_dir_all(&target).map_err(at(&target))?;
                mounts::bind(&staging, &target, read_only).await
            }
            Use::Block => {
                if mounted.is_some() {
                    return Ok(());
                }
                fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .mode(0o600)
                    .open(&target)
                    .map_err(at(&target))?;
                mounts::bind(&device, &target, read_only).await
            }
        }
    }
    async fn unpublish(&self, request: &NodeUnpublishVolumeRequest) -> Result<(), Status> {
        let _operation = self.begin(&request.volume_id)?;
        let target = path(&request.target_path, "target path")?;
        while mounts::at(&target)?.is_some() {
            mounts::unmount(&target).await?;
        }
        remove(&target)
    }
    async fn expand(&self, request: NodeExpandVolumeRequest) -> Result<i64, Status> {
        let _operation = self.begin(&request.volume_id)?;
        let place = path(&request.volume_path, "volume path")?;
        let (server, volume) = self.volume(&request.volume_id).await?;
        let gone = || {
            Status::not_found(format!("volume {} is not at {}", request.volume_id, place.display()))
        };
        let mounted = mounts::at(&place)?.ok_or_else(gone)?;
        let device = device::find(self.devices, &server, &volume).await?.ok_or_else(gone)?;
        device::refresh(self.devices, &server, &volume, &device).await?;
        if mounted.is_file_system() {
            file_system::grow(&device, &mounted).await?;
        }
        Ok(i64::try_from(volume.size).unwrap_or(i64::MAX))
    }
}

#[async_trait]
impl csi::node_server::Node for Node {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        self.stage(request.into_inner()).await?;
        Ok(Response::new(NodeStageVolumeResponse {}))
    }
    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        self.unstage(&request.into_inner()).await?;
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        self.publish(request.into_inner()).await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }
    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        self.unpublish(&request.into_inner()).await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }
    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let NodeGetVolumeStatsRequest { volume_id, volume_path, .. } = request.into_inner();
        if volume_id.is_empty() {
            return Err(Status::invalid_argument("there is no volume id"));
        }
        let place = path(&volume_path, "volume path")?;
        let (_, volume) = self.volume(&volume_id).await?;
        let gone = || Status::not_found(format!("volume {volume_id} is not at {volume_path}"));
        let mounted = mounts::at(&place)?.ok_or_else(gone)?;
        let usage = stats::usage(&mounted, &place, volume.size)?;
        Ok(Response::new(NodeGetVolumeStatsResponse { usage, volume_condition: None }))
    }
    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let capacity_bytes = self.expand(request.into_inner()).await?;
        Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes }))
    }
    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let types = [
            rpc::Type::StageUnstageVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::ExpandVolume,
            rpc::Type::SingleNodeMultiWriter,
        ];
        let capability = |kind: rpc::Type| NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
        };
        Ok(Response::new(NodeGetCapabilitiesResponse {
            capabilities: types.map(capability).to_vec(),
        }))
    }
    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let segments = [(TOPOLOGY_KEY.to_string(), self.name.clone())].into();
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.name.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(Topology { segments }),
        }))
    }
}
