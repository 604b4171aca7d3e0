//! The drive as a volume that no client sees, for requests of the server itself.

use std::sync::Arc;

use iofair_core::priority::{Class, Priority};
use iofair_core::time::Instant;

use super::{Engine, Volume};
use crate::back::volume::{Map, PlannedVolume, Stamp, VolumeId};

/// Longer than any drive; the controller's own bound is twice that.
const DRIVE_BYTES: u64 = 1 << 62;

impl Engine {
    /// A volume of which each byte is the byte of the drive at the same place. Its requests are charged to `group`, or
    /// the nearest group above it that is there; without one to the root, in the idle class. It goes when it was opened
    /// ([`Self::attach`]) and closed again.
    pub(crate) fn open_drive(&mut self, now: Instant, group: Option<&str>) -> usize {
        let priority = match group {
            Some(_) => Priority::default(),
            None => Priority { class: Class::Idle, level: 7 },
        };
        let id = self.index.nearest_group(group.unwrap_or_default());
        let client = self.controller.add_client(now, id, priority);
        let client = client.expect("the group was just found");
        let plan = PlannedVolume {
            // It is in no index.
            id: VolumeId(0),
            name: "(zeroing)".into(),
            group: self.controller.groups().group(id).name.clone(),
            map: Arc::new(Map::linear(0, DRIVE_BYTES)),
            size: DRIVE_BYTES,
            read_only: false,
            storage: None,
            entry: Default::default(),
            stamp: Stamp { priority, ..Stamp::default() },
        };
        let key = self.volumes.insert(Volume::drive(plan, client, id));
        self.index.set_client(client, key);
        key
    }
}
