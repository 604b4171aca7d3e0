//! The list of volumes, in order of nodes and names.

use tonic::Status;

use super::{Controller, described};
use crate::csi::list_volumes_response::{Entry, VolumeStatus};
use crate::csi::{ListVolumesRequest, ListVolumesResponse};
use crate::volume_id::VolumeId;

impl Controller {
    pub(super) async fn list(
        &self,
        request: ListVolumesRequest,
    ) -> Result<ListVolumesResponse, Status> {
        let Ok(most) = usize::try_from(request.max_entries) else {
            return Err(Status::invalid_argument(format!("{} entries", request.max_entries)));
        };
        let after = match request.starting_token.as_str() {
            "" => None,
            token => {
                let unknown =
                    || Status::aborted(format!("\"{token}\" is no token of an earlier list"));
                Some(VolumeId::parse(token).ok_or_else(unknown)?)
            }
        };
        let table = self.servers.table();
        let (mut entries, mut next_token) = (Vec::new(), String::new());
        'all: for (node, server) in table.iter() {
            if after.as_ref().is_some_and(|after| node < &after.node) {
                continue;
            }
            for volume in server.volumes(&self.group).await.map_err(|error| error.status(node))? {
                let id = VolumeId { node: node.clone(), volume: volume.name };
                if after.as_ref().is_some_and(|after| id <= *after) {
                    continue;
                }
                if most > 0 && entries.len() == most {
                    // The token is the last volume of this response.
                    let last: Option<&Entry> = entries.last();
                    next_token = last
                        .and_then(|entry| entry.volume.as_ref())
                        .map_or(String::new(), |volume| volume.volume_id.clone());
                    break 'all;
                }
                let used = volume.connections > 0 || volume.block_device.is_some();
                let published_node_ids = if used { vec![node.clone()] } else { Vec::new() };
                let status = Some(VolumeStatus { published_node_ids, volume_condition: None });
                entries.push(Entry { volume: Some(described(&id, volume.size)), status });
            }
        }
        Ok(ListVolumesResponse { entries, next_token })
    }
}
