//! Groups, volumes and the server as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use iofair_config::contracts::admission::shares_under;
use iofair_config::contracts::edit::Kind;
use iofair_config::contracts::effects::Effect;
use iofair_config::contracts::{self, Contracts};
use iofair_core::attainable::{Attainable, SMALL_READ};
use iofair_core::contract::{BURST_DEFAULT, Burst, Contract, Limits};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::files::Removed;
use super::live::VolumeMoment;
use super::usage::Usage;
use crate::error::ServeError;
use crate::places::Need;
use crate::server::View;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reaches: Option<Reaches>,
    pub(super) listen_unix: Option<PathBuf>,
    pub(super) listen_tcp: Option<String>,
    /// Where the volumes are files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fuse_mount: Option<PathBuf>,
    /// Room for new volumes; absent if it is unknown now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) free_bytes: Option<u64>,
    /// Files that somebody removed while they are served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) removed_files: Vec<Removed>,
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
    /// Free room of a pool that must be zeroed before a volume gets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dirty_bytes: Option<u64>,
    /// What of a pool was zeroed since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zeroed_bytes: Option<u64>,
}

/// What the drive reaches.
#[derive(Serialize)]
pub(super) struct Reaches {
    read_bytes_per_second: u64,
    write_bytes_per_second: u64,
    random_bytes_per_second: u64,
    small_requests_per_second: Option<u64>,
    latency_seconds: Option<f64>,
}

impl From<Attainable> for Reaches {
    fn from(drive: Attainable) -> Self {
        Self {
            read_bytes_per_second: drive.reads,
            write_bytes_per_second: drive.writes,
            random_bytes_per_second: drive.alone,
            small_requests_per_second: drive.small.map(|small| small / SMALL_READ),
            latency_seconds: drive.latency.map(|latency| latency.0 as f64 / 1e9),
        }
    }
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
    /// Absent: it came or went at this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

/// What the written contract comes to.
#[derive(Clone, PartialEq, Serialize)]
struct InForce {
    /// After minimums became weights.
    weight: u32,
    /// Part of the drive when every group wants it; `None` if the stack does not share by weight.
    share: Option<f64>,
    min_bytes_per_second: Option<u64>,
    min_ios_per_second: Option<u64>,
    ceilings: Vec<Ceiling>,
}

/// One of a group's ceilings.
#[derive(Clone, Copy, PartialEq, Serialize)]
struct Ceiling {
    /// `reads`, `writes`, or `total`: both together.
    of: &'static str,
    /// `bytes` or `requests`.
    unit: &'static str,
    per_second: u64,
    /// What may pass at once, in the same unit; absent: time slices as in blk-throttle.
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
}

/// A group that a change would give something else.
#[derive(Serialize)]
pub(super) struct Changed {
    name: String,
    /// Absent: there is no such group.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<InForce>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<InForce>,
}

/// Something that a change takes away.
#[derive(Serialize)]
pub(super) struct GivenUp {
    /// `share`, `contract`, `room` or `data`.
    about: &'static str,
    /// The group that loses; absent: it is not one group.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    text: String,
}

impl GivenUp {
    /// The data that a change of volumes destroys, or takes from others.
    pub(super) fn data(
        before: &Contracts,
        after: &Contracts,
        needs: &[Need],
        delete: &[String],
    ) -> Vec<Self> {
        let lost = |volume: &contracts::Volume| {
            let (name, size) = (&volume.name, volume.size_bytes);
            let text = match after.volumes.iter().find(|volume| volume.name == *name) {
                None if delete.contains(name) => {
                    format!("the data of volume \"{name}\" is deleted")
                }
                Some(now) if now.size_bytes < size => {
                    let lost = size - now.size_bytes;
                    format!("volume \"{name}\" loses its last {lost} bytes")
                }
                _ => return None,
            };
            Some(Self { about: "data", group: Some(volume.group.clone()), text })
        };
        let new = |need: &Need| {
            let is_it = |volume: &&contracts::Volume| volume.name == need.volume;
            let volume = after.volumes.iter().find(is_it)?;
            let text = format!("volume \"{}\": {}", need.volume, need.why);
            let is_new = before.volumes.iter().all(|old| old.name != need.volume);
            is_new.then(|| Self { about: "data", group: Some(volume.group.clone()), text })
        };
        let lost = before.volumes.iter().filter_map(lost);
        lost.chain(needs.iter().filter_map(new)).collect()
    }
}
impl From<Effect> for GivenUp {
    fn from(effect: Effect) -> Self {
        Self { about: effect.about.word(), group: effect.group, text: effect.text }
    }
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

/// What is written of each thing beside its name, by its name.
fn written(contracts: &Contracts, kind: Kind) -> BTreeMap<String, Map<String, Json>> {
    let mut all = contracts.written();
    let list = all.get_mut(kind.word()).map(Json::take);
    let Some(Json::Array(list)) = list else { return BTreeMap::new() };
    let entry = |table: Json| {
        let Json::Object(mut keys) = table else { return None };
        let Some(Json::String(name)) = keys.remove("name") else { return None };
        Some((name, keys))
    };
    list.into_iter().filter_map(entry).collect()
}

/// All groups, parents first, each with what it used.
pub(super) fn groups(
    server: &View,
    mut usage: impl FnMut(&str) -> Option<Usage>,
) -> Result<Vec<Group>, ServeError> {
    let contracts = server.contracts();
    let admitted = server.admitted()?;
    let shares = shares_under(&contracts.drive.stack, &admitted);
    let mut written = written(contracts, Kind::Group);
    let mut volumes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for volume in &contracts.volumes {
        volumes.entry(&volume.group).or_default().push(volume.name.clone());
    }
    let group = |((name, contract), share): (&(String, Contract), Option<f64>)| Group {
        name: name.clone(),
        contract: written.remove(name),
        in_force: InForce::new(contract, share),
        volumes: volumes.remove(name.as_str()).unwrap_or_default(),
        usage: usage(name),
    };
    Ok(admitted.iter().zip(shares).map(group).collect())
}

impl InForce {
    fn new(contract: &Contract, share: Option<f64>) -> Self {
        Self {
            weight: contract.weight,
            share,
            min_bytes_per_second: contract.min,
            min_ios_per_second: contract.min_iops,
            ceilings: ceilings(&contract.max),
        }
    }
}

fn ceilings(max: &Limits) -> Vec<Ceiling> {
    let exact = max.has_total() || max.has_burst();
    let ceiling = |of, unit, per_second: Option<u64>, burst: Option<u64>| {
        let per_second = per_second?;
        let burst = burst.unwrap_or_else(|| BURST_DEFAULT.units_floor(per_second));
        Some(Ceiling { of, unit, per_second, burst: exact.then_some(burst) })
    };
    let Burst { bytes, requests } = max.burst;
    let all = [
        ceiling("reads", "bytes", max.bytes_per_s[0], bytes),
        ceiling("writes", "bytes", max.bytes_per_s[1], bytes),
        ceiling("total", "bytes", max.total.bytes_per_s, bytes),
        ceiling("reads", "requests", max.iops[0], requests),
        ceiling("writes", "requests", max.iops[1], requests),
        ceiling("total", "requests", max.total.iops, requests),
    ];
    all.into_iter().flatten().collect()
}

/// Groups, and the stack that they are in.
type InStack<'a> = (&'a iofair_core::controller::Stack, &'a [(String, Contract)]);

/// Groups that differ, by what is in force of them.
pub(super) fn changed(before: InStack<'_>, after: InStack<'_>) -> Vec<Changed> {
    let in_force = |(stack, groups): InStack<'_>| -> BTreeMap<String, InForce> {
        let all = groups.iter().zip(shares_under(stack, groups));
        all.map(|((name, contract), share)| (name.clone(), InForce::new(contract, share))).collect()
    };
    let (mut before, mut after) = (in_force(before), in_force(after));
    before.retain(|name, old| match after.get(name) {
        Some(new) if new == old => after.remove(name).is_none(),
        _ => true,
    });
    let names: BTreeSet<String> = before.keys().chain(after.keys()).cloned().collect();
    let one =
        |name: String| Changed { before: before.remove(&name), after: after.remove(&name), name };
    names.into_iter().map(one).collect()
}

/// All volumes, in the order of the file.
pub(super) fn volumes(server: &View, live: &[VolumeMoment]) -> Vec<Volume> {
    let contracts = server.contracts();
    let mut written = written(contracts, Kind::Volume);
    let mut blocks: BTreeMap<String, PathBuf> = server.blocks().iter().cloned().collect();
    let live: BTreeMap<&str, &VolumeMoment> =
        live.iter().map(|volume| (volume.name.as_str(), volume)).collect();
    let volume = |volume: &contracts::Volume| {
        let live = live.get(volume.name.as_str());
        let of = |count: fn(&VolumeMoment) -> u64| live.map_or(0, |live| count(live));
        Volume {
            name: volume.name.clone(),
            settings: written.remove(&volume.name).unwrap_or_default(),
            size_bytes: volume.size_bytes,
            connections: live.map_or(0, |live| live.connections),
            requests: of(|live| live.requests.iter().sum()),
            bytes: of(|live| live.bytes.iter().sum()),
            failed: of(|live| live.failed),
            block_device: blocks.remove(&volume.name),
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
