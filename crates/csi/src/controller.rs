//! The controller service: creates, changes and deletes volumes on the servers.
//!
//! Each operation is a few calls of one server, in an order such that the caller can repeat the operation if this process is
//! killed between any two of them: the group of a volume is created before the volume and removed after it, and a volume that
//! is there is what makes an operation complete. Nothing is stored here.

mod capacity;
mod create;
mod list;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use tonic::{Request, Response, Status, async_trait};

use crate::args::TOPOLOGY_KEY;
use crate::capability;
use crate::contract;
use crate::csi;
use crate::csi::controller_service_capability::{Rpc, Type, rpc};
use crate::csi::validate_volume_capabilities_response::Confirmed;
use crate::csi::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse,
    ControllerModifyVolumeRequest, ControllerModifyVolumeResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerServiceCapability, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, CreateVolumeRequest, CreateVolumeResponse,
    DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse,
    ListVolumesRequest, ListVolumesResponse, Topology, ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse,
};
use crate::failure::Failure;
use crate::pending::Pending;
use crate::server::{Server, Volume};
use crate::servers::Servers;
use crate::volume_id::VolumeId;

/// Volumes are whole multiples of this.
const UNIT: u64 = 1 << 20;

/// The service.
#[derive(Debug)]
pub(crate) struct Controller {
    /// The group that contains the groups of all volumes.
    group: String,
    servers: Arc<Servers>,
    pending: Pending,
}

impl Controller {
    pub(crate) fn new(group: &str, servers: Arc<Servers>) -> Self {
        Self { group: group.to_string(), servers, pending: Pending::default() }
    }
    /// A volume that must be there, and its server.
    async fn existing(&self, id: &str) -> Result<(VolumeId, Server, Volume), Status> {
        if id.is_empty() {
            return Err(Status::invalid_argument("there is no volume id"));
        }
        let none = || Status::not_found(format!("there is no volume \"{id}\""));
        let parsed = VolumeId::parse(id).ok_or_else(none)?;
        let server = self.servers.server(&parsed.node).await?;
        let volume =
            server.volume(&parsed.volume).await.map_err(|error| error.status(&parsed.node))?;
        Ok((parsed, server, volume.filter(|volume| volume.is_in(&self.group)).ok_or_else(none)?))
    }
}

/// The size that a capacity range asks for: at least what is required, in whole units.
///
/// # Errors
/// OUT_OF_RANGE: no size lies in the range. INVALID_ARGUMENT: a bound is negative.
fn size(range: Option<csi::CapacityRange>, least: u64) -> Result<u64, Status> {
    let csi::CapacityRange { required_bytes, limit_bytes } = range.unwrap_or_default();
    let bound = |bytes: i64| {
        u64::try_from(bytes)
            .map_err(|_| Status::invalid_argument(format!("{bytes} bytes are no size")))
    };
    let (required, limit) = (bound(required_bytes)?, bound(limit_bytes)?);
    let size = required.max(least).div_ceil(UNIT).saturating_mul(UNIT);
    if limit > 0 && size > limit {
        return Err(Status::out_of_range(format!(
            "a volume of {required} bytes takes {size}, and the limit is {limit}"
        )));
    }
    Ok(size)
}

/// A size as the interface has it.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The topology of a node.
fn topology(node: &str) -> Topology {
    Topology { segments: HashMap::from([(TOPOLOGY_KEY.to_string(), node.to_string())]) }
}

fn described(id: &VolumeId, size: u64) -> csi::Volume {
    csi::Volume {
        capacity_bytes: signed(size),
        volume_id: id.to_string(),
        volume_context: HashMap::new(),
        content_source: None,
        accessible_topology: vec![topology(&id.node)],
    }
}

#[async_trait]
impl csi::controller_server::Controller for Controller {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        self.create(request.into_inner()).await.map(Response::new)
    }
    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        self.delete(&request.into_inner().volume_id).await?;
        Ok(Response::new(DeleteVolumeResponse {}))
    }
    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let ControllerPublishVolumeRequest { volume_id, node_id, volume_capability, .. } =
            request.into_inner();
        if node_id.is_empty() {
            return Err(Status::invalid_argument("there is no node id"));
        }
        let Some(capability) = volume_capability else {
            return Err(Status::invalid_argument("there is no volume capability"));
        };
        let (id, ..) = self.existing(&volume_id).await?;
        capability::supported(&capability)?;
        self.servers.server(&node_id).await?;
        if id.node != node_id {
            let message =
                format!("volume {volume_id} is on node {}; node {node_id} cannot use it", id.node);
            return Err(Status::failed_precondition(message));
        }
        Ok(Response::new(ControllerPublishVolumeResponse { publish_context: HashMap::new() }))
    }
    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        if request.into_inner().volume_id.is_empty() {
            return Err(Status::invalid_argument("there is no volume id"));
        }
        Ok(Response::new(ControllerUnpublishVolumeResponse {}))
    }
    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let ValidateVolumeCapabilitiesRequest {
            volume_id,
            volume_context,
            volume_capabilities,
            parameters,
            ..
        } = request.into_inner();
        self.existing(&volume_id).await?;
        if volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("there is no volume capability"));
        }
        let (confirmed, message) = match capability::all_supported(&volume_capabilities) {
            Ok(()) => {
                let mutable_parameters = HashMap::new();
                (
                    Some(Confirmed {
                        volume_context,
                        volume_capabilities,
                        parameters,
                        mutable_parameters,
                    }),
                    String::new(),
                )
            }
            Err(error) => (None, error.message().to_string()),
        };
        Ok(Response::new(ValidateVolumeCapabilitiesResponse { confirmed, message }))
    }
    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        self.list(request.into_inner()).await.map(Response::new)
    }
    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        self.capacity(request.into_inner()).await.map(Response::new)
    }
    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let types = [
            rpc::Type::CreateDeleteVolume,
            rpc::Type::PublishUnpublishVolume,
            rpc::Type::ListVolumes,
            rpc::Type::GetCapacity,
            rpc::Type::ExpandVolume,
            rpc::Type::ModifyVolume,
            rpc::Type::SingleNodeMultiWriter,
        ];
        let capability = |kind: rpc::Type| ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
        };
        let capabilities = types.map(capability).to_vec();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }
    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let ControllerExpandVolumeRequest { volume_id, capacity_range, .. } = request.into_inner();
        if capacity_range.is_none() {
            return Err(Status::invalid_argument("there is no capacity range"));
        }
        let _operation = self.pending.begin(&volume_id)?;
        let (id, server, volume) = self.existing(&volume_id).await?;
        let size = size(capacity_range, volume.size)?;
        if size > volume.size {
            let keys = json!({ "size": size.to_string() });
            server.change_volume(&id.volume, keys).await.map_err(|error| error.status(&id.node))?;
        }
        let capacity_bytes = signed(size);
        Ok(Response::new(ControllerExpandVolumeResponse {
            capacity_bytes,
            node_expansion_required: true,
        }))
    }
    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        let ControllerModifyVolumeRequest { volume_id, mutable_parameters, .. } =
            request.into_inner();
        let _operation = self.pending.begin(&volume_id)?;
        let (id, server, volume) = self.existing(&volume_id).await?;
        let contract = contract::contract(&mutable_parameters)?;
        // The resizer repeats RESOURCE_EXHAUSTED for ever, and takes no other class meanwhile.
        let refused = |error: Failure| match error.is("infeasible") {
            true => Status::invalid_argument(error.status(&id.node).message()),
            false => error.status(&id.node),
        };
        server.put_group(&volume.group, &contract, false).await.map_err(refused)?;
        Ok(Response::new(ControllerModifyVolumeResponse {}))
    }
}
