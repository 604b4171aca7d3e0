//! Capacity is admission: where the promise of a class cannot be kept, there is no room for its volumes.

use tonic::Status;

use super::{Controller, UNIT, signed};
use crate::args::TOPOLOGY_KEY;
use crate::capability;
use crate::contract;
use crate::csi::{GetCapacityRequest, GetCapacityResponse};
use crate::server::Server;

/// Group with which a server is asked whether it could keep a contract. It is never created.
const ASKED: &str = "capacity-of-a-class";

impl Controller {
    pub(super) async fn capacity(
        &self,
        request: GetCapacityRequest,
    ) -> Result<GetCapacityResponse, Status> {
        let none = GetCapacityResponse { available_capacity: 0, ..GetCapacityResponse::default() };
        let mut capabilities = request.volume_capabilities.iter();
        if capabilities.any(|wanted| capability::supported(wanted).is_err()) {
            return Ok(none);
        }
        let contract = contract::contract(&request.parameters)?;
        let node = request
            .accessible_topology
            .as_ref()
            .map(|topology| topology.segments.get(TOPOLOGY_KEY));
        let table = self.servers.table();
        let servers: Vec<&Server> = match node {
            None => table.values().collect(),
            Some(node) => node.and_then(|node| table.get(node)).into_iter().collect(),
        };
        let (mut available, mut largest) = (0_u64, 0_u64);
        for server in servers {
            let free = self.room(server, &contract).await?;
            (available, largest) = (available.saturating_add(free), largest.max(free));
        }
        Ok(GetCapacityResponse {
            available_capacity: signed(available),
            maximum_volume_size: Some(signed(largest)),
            minimum_volume_size: Some(signed(UNIT)),
        })
    }
    /// Bytes for a volume with this contract on a server.
    async fn room(&self, server: &Server, contract: &serde_json::Value) -> Result<u64, Status> {
        if contract.as_object().is_some_and(|keys| !keys.is_empty()) {
            let name = format!("{}/{ASKED}", self.group);
            match server.put_group(&name, contract, true).await {
                Err(error) if error.is("infeasible") => return Ok(0),
                asked => asked.map_err(|error| error.status(&server.node))?,
            }
        }
        let status = server.status().await.map_err(|error| error.status(&server.node))?;
        Ok(status.free.unwrap_or(0) / UNIT * UNIT)
    }
}
