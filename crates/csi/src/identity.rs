//! The identity service: what this driver is, and whether it is ready.

use std::collections::HashMap;
use std::sync::Arc;

use tonic::{Request, Response, Status, async_trait};

use crate::args::{DRIVER, Service};
use crate::csi::identity_server::Identity;
use crate::csi::plugin_capability::{
    Service as ServiceCapability, Type, VolumeExpansion, service, volume_expansion,
};
use crate::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
};
use crate::servers::Servers;

/// The service.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) services: Vec<Service>,
    /// The server of this node, if the node service runs.
    pub(crate) own: Option<(String, Arc<Servers>)>,
}

#[async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: DRIVER.to_string(),
            vendor_version: env!("CARGO_PKG_VERSION").to_string(),
            manifest: HashMap::new(),
        }))
    }
    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service =
            |kind: service::Type| Type::Service(ServiceCapability { r#type: kind.into() });
        let online = volume_expansion::Type::Online.into();
        let mut types = vec![
            service(service::Type::VolumeAccessibilityConstraints),
            Type::VolumeExpansion(VolumeExpansion { r#type: online }),
        ];
        if self.services.contains(&Service::Controller) {
            types.push(service(service::Type::ControllerService));
        }
        let capabilities =
            types.into_iter().map(|kind| PluginCapability { r#type: Some(kind) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }
    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        if let Some((node, servers)) = &self.own {
            servers.server(node).await?.status().await.map_err(|error| error.status(node))?;
        }
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
