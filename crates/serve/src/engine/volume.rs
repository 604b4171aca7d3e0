//! Volumes in service, how they are found, and what goes as soon as it is idle.

use std::collections::{HashMap, VecDeque};

use iofair_core::group::Groups;
use iofair_core::id::{ClientId, GroupId};
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};

use super::losses::Losses;
use super::record;
use super::runs::Runs;
use super::stats::VolumeStats;
use super::tally;
use crate::back::volume::{Map, PlannedVolume, Stamp, VolumeId};
use crate::log;
use crate::request::op::Op;

/// How often the log says that a volume finds no space.
const FULL_EVERY: Nanos = Nanos::from_secs(60);

/// A volume in service.
#[derive(Debug)]
pub struct Volume {
    pub(super) plan: PlannedVolume,
    pub(super) client: ClientId,
    /// The group of its plan.
    pub(super) group: GroupId,
    /// Connections that chose it.
    pub(super) connections: u32,
    /// Not in the contracts any more: no new connection.
    pub(super) retired: bool,
    /// It is the whole drive, for the server's own requests: no client sees it.
    pub(super) is_drive: bool,
    pub(super) losses: Losses,
    /// When it was last logged that a write found no space.
    pub(super) full: Option<Instant>,
    pub(super) stats: VolumeStats,
    pub(super) runs: Runs,
}

impl Volume {
    /// The whole drive for one request after the other of the server's own; it goes when the last who has it open does.
    pub(super) fn drive(plan: PlannedVolume, client: ClientId, group: GroupId) -> Self {
        let (connections, retired, is_drive) = (0, true, true);
        let (losses, full, stats, runs) = Default::default();
        Self { plan, client, group, connections, retired, is_drive, losses, full, stats, runs }
    }
    /// Where its bytes lie.
    pub(super) fn map(&self) -> &Map {
        &self.plan.map
    }
    /// What its requests bear.
    pub(super) fn stamp(&self) -> &Stamp {
        &self.plan.stamp
    }
    /// Who sends its requests, for a recording.
    pub(super) fn sender<'a>(&'a self, drive: u64, groups: &'a Groups) -> record::Sender<'a> {
        record::Sender { id: self.plan.id, name: &self.plan.name, groups, drive }
    }
    /// It lost writes that were completed.
    pub(super) fn lose(&mut self, status: i32) {
        self.losses.add(status);
        self.stats.losses += 1;
        let error = std::io::Error::from_raw_os_error(status);
        let message = format!(
            "a flush failed, and writes that were completed before it may be lost; the next flush of each client \
             fails, too: {error}"
        );
        log::tell(&format!("volume \"{}\"", self.plan.name), &message);
    }
    /// Counts a finished request.
    pub(super) fn finished(&mut self, now: Instant, op: &Op) {
        self.stats.failed += u64::from(op.status != 0);
        if op.operation.modifies() {
            self.losses.written = Some(now);
        }
        if op.status == libc::ENOSPC
            && self.full.is_none_or(|reported| now.since(reported) >= FULL_EVERY)
        {
            self.full = Some(now);
            let message = "a write failed, because its drive or file system has no space left";
            log::tell(&format!("volume \"{}\"", self.plan.name), message);
        }
        if op.operation == Operation::Flush {
            self.stats.flushes += 1;
        } else if !op.asks_status() {
            let latency = now.since(op.submitted);
            self.stats.count(op.operation.direction(), tally::op_bytes(op), latency);
        }
    }
}

/// Where to find what has a name.
#[derive(Debug)]
pub(super) struct Index {
    /// Keys of volumes.
    pub(super) volumes: HashMap<VolumeId, usize>,
    /// By path, also groups that are gone but busy.
    pub(super) groups: HashMap<String, GroupId>,
    /// By client: the key of its volume.
    pub(super) clients: Vec<usize>,
}

impl Default for Index {
    fn default() -> Self {
        // A volume may be directly in the root, whose path is empty.
        let groups = HashMap::from([(String::new(), GroupId::ROOT)]);
        Self { volumes: HashMap::new(), groups, clients: Vec::new() }
    }
}

impl Index {
    pub(super) fn set_client(&mut self, client: ClientId, volume: usize) {
        let bound = self.clients.len().max(client.index() + 1);
        self.clients.resize(bound, usize::MAX);
        self.clients[client.index()] = volume;
    }
    /// The group of this path, or the nearest one above it that is there.
    pub(super) fn nearest_group(&self, path: &str) -> GroupId {
        let mut path = path;
        loop {
            match (self.groups.get(path), path.rsplit_once('/')) {
                (Some(id), _) => return *id,
                (None, Some((above, _))) => path = above,
                (None, None) => return GroupId::ROOT,
            }
        }
    }
}

/// What goes as soon as nothing of it is in flight.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    pub(super) clients: VecDeque<ClientId>,
    pub(super) groups: VecDeque<GroupId>,
    /// Retired volumes whose last connection is gone.
    pub(super) volumes: Vec<usize>,
}
