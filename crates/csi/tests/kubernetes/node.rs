//! Calls of the node service, as a kubelet makes them.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value as Json, json};
use tonic::Status;

use crate::cluster::Cluster;
use crate::rig::csi::node_client::NodeClient;
use crate::rig::csi::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode,
};
use crate::rig::csi::{
    NodeExpandVolumeRequest, NodeGetInfoRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
};
use crate::rig::try_connect;

/// A claim with its volume.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Name of the PersistentVolume.
    pub(crate) volume: String,
    handle: String,
    is_block: bool,
    pub(crate) is_published: bool,
}

impl Claimed {
    fn capability(&self) -> VolumeCapability {
        let access_type = match self.is_block {
            true => AccessType::Block(BlockVolume {}),
            false => AccessType::Mount(MountVolume::default()),
        };
        let access_mode = Some(AccessMode { mode: Mode::SingleNodeWriter.into() });
        VolumeCapability { access_mode, access_type: Some(access_type) }
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

async fn client(socket: &Path) -> Result<NodeClient<tonic::transport::Channel>, Status> {
    let channel = try_connect(socket).await;
    channel.map(NodeClient::new).map_err(|error| Status::unavailable(error.to_string()))
}

/// Identifier and topology of a node, if its driver responds.
pub(crate) fn info(socket: &Path) -> Option<(String, HashMap<String, String>)> {
    run(async {
        let info = client(socket)
            .await
            .ok()?
            .node_get_info(NodeGetInfoRequest {})
            .await
            .ok()?
            .into_inner();
        Some((info.node_id, info.accessible_topology?.segments))
    })
}

/// The claim of a Pod, once its volume is attached to the node.
pub(crate) fn claim_of(cluster: &Cluster, pod: &Json, node: &str) -> Option<Claimed> {
    let namespace = pod["metadata"]["namespace"].as_str()?;
    let volumes = pod["spec"]["volumes"].as_array()?;
    let claims = volumes.iter().map(|volume| &volume["persistentVolumeClaim"]["claimName"]);
    let name = claims.filter_map(Json::as_str).next()?;
    let text =
        cluster.kubectl(&["get", "pvc", name, "-n", namespace, "--ignore-not-found", "-o", "json"]);
    let claim: Json = serde_json::from_str(&text).ok()?;
    let volume = claim["spec"]["volumeName"].as_str()?;
    let object = cluster.get("pv", volume)?;
    let attached = cluster.list("volumeattachments").into_iter().any(|attachment| {
        let source = &attachment["spec"]["source"]["persistentVolumeName"];
        source == volume
            && attachment["spec"]["nodeName"] == node
            && attachment["status"]["attached"] == true
    });
    attached.then(|| Claimed {
        namespace: namespace.to_string(),
        name: name.to_string(),
        volume: volume.to_string(),
        handle: object["spec"]["csi"]["volumeHandle"].as_str().expect("a handle").to_string(),
        is_block: object["spec"]["volumeMode"] == "Block",
        is_published: false,
    })
}

pub(crate) fn publish(
    socket: &Path,
    claim: &Claimed,
    staging: &Path,
    place: &Path,
) -> Result<(), Status> {
    let staging = staging.display().to_string();
    run(async {
        let mut client = client(socket).await?;
        client
            .node_stage_volume(NodeStageVolumeRequest {
                volume_id: claim.handle.clone(),
                staging_target_path: staging.clone(),
                volume_capability: Some(claim.capability()),
                ..NodeStageVolumeRequest::default()
            })
            .await?;
        client
            .node_publish_volume(NodePublishVolumeRequest {
                volume_id: claim.handle.clone(),
                staging_target_path: staging,
                target_path: place.display().to_string(),
                volume_capability: Some(claim.capability()),
                ..NodePublishVolumeRequest::default()
            })
            .await?;
        Ok(())
    })
}

pub(crate) fn unpublish(
    socket: &Path,
    claim: &Claimed,
    staging: &Path,
    place: &Path,
) -> Result<(), Status> {
    run(async {
        let mut client = client(socket).await?;
        let (volume_id, target_path) = (claim.handle.clone(), place.display().to_string());
        client.node_unpublish_volume(NodeUnpublishVolumeRequest { volume_id, target_path }).await?;
        let (volume_id, staging_target_path) =
            (claim.handle.clone(), staging.display().to_string());
        client
            .node_unstage_volume(NodeUnstageVolumeRequest { volume_id, staging_target_path })
            .await?;
        Ok(())
    })
}

/// Lets the driver grow a volume whose claim waits for that, and says so in the claim.
pub(crate) fn resize(
    cluster: &Cluster,
    claim: &Claimed,
    socket: &Path,
    place: &Path,
) -> Result<(), Status> {
    let Claimed { namespace, name, volume, handle, .. } = claim;
    let text =
        cluster.kubectl(&["get", "pvc", name, "-n", namespace, "--ignore-not-found", "-o", "json"]);
    let Ok(object) = serde_json::from_str::<Json>(&text) else { return Ok(()) };
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    if !conditions.iter().any(|condition| condition["type"] == "FileSystemResizePending") {
        return Ok(());
    }
    let request = NodeExpandVolumeRequest {
        volume_id: handle.clone(),
        volume_path: place.display().to_string(),
        volume_capability: Some(claim.capability()),
        ..NodeExpandVolumeRequest::default()
    };
    run(async { client(socket).await?.node_expand_volume(request).await })?;
    let size = cluster.get("pv", volume).map(|volume| volume["spec"]["capacity"].clone());
    let patch = json!({ "status": { "capacity": size, "conditions": [], "allocatedResourceStatuses": null } }).to_string();
    cluster.kubectl(&[
        "patch",
        "pvc",
        name,
        "-n",
        namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ]);
    Ok(())
}
