//! How groups, volumes and the server look from outside.

use std::collections::BTreeMap;
use std::path::PathBuf;

use iofair_config::contracts::Contracts;
use iofair_config::contracts::edit::Kind;
use iofair_core::contract::Contract;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::engine::stats::Snapshot;
use crate::error::ServeError;
use crate::server::Server;

/// The whole server.
#[derive(Serialize)]
pub(super) struct Status {
    pub(super) revision: String,
    pub(super) version: &'static str,
    pub(super) state: &'static str,
    pub(super) file: PathBuf,
    pub(super) drive: String,
    pub(super) stack: String,
    pub(super) worst_case_bytes_per_second: Option<u64>,
    pub(super) listen_unix: Option<PathBuf>,
    pub(super) listen_tcp: Option<String>,
    pub(super) uptime_seconds: f64,
    pub(super) groups: usize,
    pub(super) volumes: usize,
    /// Open now.
    pub(super) connections: usize,
    /// Requests inside now.
    pub(super) pending: usize,
    /// Commands that the drive has now.
    pub(super) in_flight: u32,
    /// Part of the time in which the drive had a command.
    pub(super) utilisation: f64,
}

/// One group.
#[derive(Serialize)]
pub(super) struct Group {
    pub(super) name: String,
    /// As written in the file; absent: it only exists as a part of other groups' paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<Map<String, Json>>,
    in_force: InForce,
    /// Volumes directly in it.
    volumes: Vec<String>,
}

/// What the written contract comes to.
#[derive(Serialize)]
struct InForce {
    /// After minimums became weights.
    weight: u32,
    /// Part of the drive when every group wants it.
    share: f64,
    min_bytes_per_second: Option<u64>,
}

/// One volume.
#[derive(Serialize)]
pub(super) struct Volume {
    pub(super) name: String,
    /// As written in the file.
    settings: Map<String, Json>,
    size_bytes: u64,
    connections: u32,
    requests: u64,
    bytes: u64,
    failed: u64,
    /// Path of the block device that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    block_device: Option<PathBuf>,
}

/// The stack.
#[derive(Serialize)]
pub(super) struct Stack {
    name: String,
    /// From the first throttle to the scheduler, with every parameter in force.
    stages: Vec<Stage>,
}

#[derive(Serialize)]
struct Stage {
    policy: &'static str,
    parameters: BTreeMap<&'static str, String>,
}

/// What is written of one thing beside its name.
fn written(contracts: &Json, kind: Kind, name: &str) -> Option<Map<String, Json>> {
    let list = contracts.get(kind.word())?.as_array()?;
    let found = list.iter().find(|table| table["name"] == name)?;
    let mut keys = found.as_object()?.clone();
    keys.remove("name");
    Some(keys)
}

/// All groups, parents first.
pub(super) fn groups(server: &Server) -> Result<Vec<Group>, ServeError> {
    let contracts = server.contracts();
    let admitted = contracts.admitted(server.worst_case())?;
    let shares = shares(&admitted);
    let written_all = contracts.written();
    let group = |((name, contract), share): (&(String, Contract), f64)| Group {
        name: name.clone(),
        contract: written(&written_all, Kind::Group, name),
        in_force: InForce { weight: contract.weight, share, min_bytes_per_second: contract.min },
        volumes: volumes_of(contracts, name),
    };
    Ok(admitted.iter().zip(shares).map(group).collect())
}

fn volumes_of(contracts: &Contracts, group: &str) -> Vec<String> {
    let inside = contracts.volumes.iter().filter(|volume| volume.group == group);
    inside.map(|volume| volume.name.clone()).collect()
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(above, _)| above)
}

/// Each group's part of the drive when every group wants it; parents come first.
fn shares(groups: &[(String, Contract)]) -> Vec<f64> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, contract) in groups {
        *sums.entry(parent(name)).or_default() += u64::from(contract.weight);
    }
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, contract) in groups {
        let above = shares.get(parent(name)).copied().unwrap_or(1.0);
        let part = f64::from(contract.weight) / sums[parent(name)] as f64;
        shares.insert(name, above * part);
    }
    groups.iter().map(|(name, _)| shares[name.as_str()]).collect()
}

/// All volumes, in the order of the file.
pub(super) fn volumes(server: &Server, told: &Snapshot) -> Vec<Volume> {
    let (contracts, blocks) = (server.contracts(), server.blocks());
    let written_all = contracts.written();
    let volume = |volume: &iofair_config::contracts::Volume| {
        let live = told.volumes.iter().find(|live| live.name == volume.name);
        let of = |count: fn(&crate::VolumeStats) -> u64| live.map_or(0, |live| count(&live.stats));
        Volume {
            name: volume.name.clone(),
            settings: written(&written_all, Kind::Volume, &volume.name).unwrap_or_default(),
            size_bytes: volume.size_bytes,
            connections: live.map_or(0, |live| live.connections),
            requests: of(|stats| stats.requests.iter().sum()),
            bytes: of(|stats| stats.bytes.iter().sum()),
            failed: of(|stats| stats.failed),
            block_device: blocks
                .iter()
                .find_map(|(name, path)| (*name == volume.name).then(|| path.clone())),
        }
    };
    contracts.volumes.iter().map(volume).collect()
}

/// The stack in force.
pub(super) fn stack(contracts: &Contracts) -> Stack {
    let stack = &contracts.drive.stack;
    let stages = stack.throttles.iter().chain([&stack.scheduler]);
    let stage = |stage: &iofair_core::controller::Stage| Stage {
        policy: stage.row.name,
        parameters: stage.values.iter().map(|(p, value)| (p.name, p.show(value))).collect(),
    };
    Stack { name: stack.name().to_string(), stages: stages.map(stage).collect() }
}
