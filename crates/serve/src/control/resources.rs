//! Groups, volumes and the server as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use iofair_config::contracts::admission::shares_under;
use iofair_config::contracts::edit::Kind;
use iofair_config::contracts::effects::Effect;
use iofair_config::contracts::{self, Contracts};
use iofair_core::attainable::{Attainable, SMALL_READ};
use iofair_core::contract::{BURST_DEFAULT, Contract};
use iofair_core::key::{Field, Unit, inside};
use iofair_core::unit::Count;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::failing::Failure;
use super::files::Removed;
use super::live::VolumeMoment;
use super::usage::Usage;
use crate::error::ServeError;
use crate::places::Need;
use crate::server::View;

/// The whole server.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Status {
    pub(super) revision: String,
    /// Version of the program.
    pub(super) version: &'static str,
    /// The server's state.
    #[cfg_attr(test, schemars(extend("enum" = ["serving", "failing", "draining", "drained"])))]
    pub(super) state: &'static str,
    /// The drive and volumes of which the last requests of a kind have all failed; absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failures: Vec<Failure>,
    /// The contract file.
    pub(super) file: PathBuf,
    /// The back end.
    pub(super) drive: String,
    /// The stack in force.
    pub(super) stack: String,
    /// The rate against which minimums are checked under stacks that translate them into weights.
    pub(super) worst_case_bytes_per_second: Option<u64>,
    /// The rates that the drive reaches, if minimums are checked against them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reaches: Option<Reaches>,
    /// Where NBD clients connect.
    pub(super) listen_unix: Option<PathBuf>,
    /// Where NBD clients connect.
    pub(super) listen_tcp: Option<String>,
    /// Directory with a file per volume; absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fuse_mount: Option<PathBuf>,
    /// Somebody else has unmounted it: what to do; absent: it is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unmounted: Option<String>,
    /// Room for new volumes. Files count with their full size, also if they are sparse; absent: it cannot be told now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) free_bytes: Option<u64>,
    /// Files that somebody removed, moved or truncated while they are served; absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) removed_files: Vec<Removed>,
    pub(super) uptime_seconds: f64,
    /// In the contract file.
    pub(super) groups: usize,
    /// In the contract file.
    pub(super) volumes: usize,
    /// Open connections.
    pub(super) connections: usize,
    /// Requests in flight.
    pub(super) pending: usize,
    /// Commands at the drive now.
    pub(super) in_flight: u32,
    /// Fraction of the time in which the drive had a command.
    pub(super) utilisation: f64,
    /// Free space of a pool that must be zeroed before reuse; absent if the server has no pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dirty_bytes: Option<u64>,
    /// Bytes of a pool zeroed since the start; absent if the server has no pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zeroed_bytes: Option<u64>,
}

/// What the drive reaches.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Reaches {
    /// Large reads.
    read_bytes_per_second: u64,
    /// Large writes with a full write cache.
    write_bytes_per_second: u64,
    /// Random reads of 4 KiB with queue depth 1.
    random_bytes_per_second: u64,
    /// Random requests of 4 KiB at a high queue depth: reads or writes, the smaller rate.
    small_requests_per_second: Option<u64>,
    /// 99th percentile of the time of such a read beside writes.
    latency_seconds: Option<f64>,
    /// The same of a small write.
    write_latency_seconds: Option<f64>,
    /// The same of a flush.
    sync_latency_seconds: Option<f64>,
}

impl From<Attainable> for Reaches {
    fn from(drive: Attainable) -> Self {
        let times = drive.latency.times().map(|time| time.map(|time| time.0 as f64 / 1e9));
        let [latency_seconds, write_latency_seconds, sync_latency_seconds] = times;
        Self {
            read_bytes_per_second: drive.reads,
            write_bytes_per_second: drive.writes,
            random_bytes_per_second: drive.alone,
            small_requests_per_second: drive.small.map(|small| small / SMALL_READ),
            latency_seconds,
            write_latency_seconds,
            sync_latency_seconds,
        }
    }
}

/// A group. Without a contract, it only exists as a part of other groups' paths.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Group {
    /// Its path.
    pub(super) name: String,
    /// As written in the file; absent: it only exists as a part of other groups' paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("$ref" = "#/components/schemas/Contract")))]
    contract: Option<Map<String, Json>>,
    /// The contract in force.
    in_force: InForce,
    /// Volumes directly in it.
    volumes: Vec<String>,
    /// Absent: it came or went at this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

/// The contract in force.
#[derive(Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InForce {
    /// The effective weight, after minimums were translated into weights.
    weight: u32,
    /// Share of the drive while all groups are busy; null if the stack does not share by weight, or if it is not known.
    share: Option<f64>,
    /// Guaranteed minimum.
    min_bytes_per_second: Option<u64>,
    /// Guaranteed minimum of I/Os of at most 16 KiB each.
    min_ios_per_second: Option<u64>,
    /// The ceilings in force.
    ceilings: Vec<Ceiling>,
}

/// One of a group's ceilings.
#[derive(Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Ceiling {
    /// `total`: reads and writes together.
    #[cfg_attr(test, schemars(extend("enum" = ceilings_of())))]
    of: String,
    /// `bytes` or `requests`.
    #[cfg_attr(test, schemars(extend("enum" = ["bytes", "requests"])))]
    unit: &'static str,
    #[cfg_attr(test, schemars(range(min = 1)))]
    per_second: u64,
    /// The burst that may pass at once, in the same unit; absent: time slices as in blk-throttle.
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
}

/// A group that a change would give something else.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Changed {
    name: String,
    /// The contract in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<InForce>,
    /// The contract in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<InForce>,
}

/// Something that a change takes away.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct GivenUp {
    /// share: a group's part of the drive; contract: a promise or a limit; room: what minimums leave to share; data:
    /// a volume's data.
    #[cfg_attr(test, schemars(extend("enum" = ["share", "contract", "room", "data"])))]
    about: &'static str,
    /// The group that loses, or whose volume does; absent if it is not one group.
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
                    format!("volume \"{name}\" loses its last {}", Count(lost, "byte"))
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
        let is_kept = |name: &&String| before.volumes.iter().all(|volume| volume.name != **name);
        let kept = delete.iter().filter(is_kept).map(|name| {
            let text = format!("the data of volume \"{name}\" is deleted");
            Self { about: "data", group: None, text }
        });
        let lost = before.volumes.iter().filter_map(lost);
        lost.chain(kept).chain(needs.iter().filter_map(new)).collect()
    }
}
impl From<Effect> for GivenUp {
    fn from(effect: Effect) -> Self {
        Self { about: effect.about.word(), group: effect.group, text: effect.text }
    }
}

/// One volume.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Volume {
    /// Name of the export.
    pub(super) name: String,
    /// As written in the file.
    #[cfg_attr(test, schemars(extend("$ref" = "#/components/schemas/Settings")))]
    settings: Map<String, Json>,
    size_bytes: u64,
    /// Open connections.
    connections: u32,
    /// Completed since the start.
    requests: u64,
    /// Completed since the start.
    bytes: u64,
    /// Failed requests since the start.
    failed: u64,
    /// Its block device on the server's host, if it has `ublk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    block_device: Option<PathBuf>,
}

/// The policies, from the first throttle to the scheduler.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Stack {
    /// As in the contract file.
    name: String,
    stages: Vec<Stage>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Stage {
    policy: &'static str,
    /// All parameters in force.
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
    let shares = shares_under(&contracts.drive.stack, &admitted, &server.floors());
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
            ceilings: ceilings(contract),
        }
    }
}

fn ceilings(contract: &Contract) -> Vec<Ceiling> {
    let exact = contract.max.has_total() || contract.max.has_burst();
    let ceiling = |field: &Field| {
        let per_second = field.get(contract)?;
        let (unit, burst) = match field.unit {
            Unit::Rate => ("bytes", contract.max.burst.bytes),
            _ => ("requests", contract.max.burst.requests),
        };
        let burst = burst.unwrap_or_else(|| BURST_DEFAULT.units_floor(per_second));
        Some(Ceiling { of: limited(field)?, unit, per_second, burst: exact.then_some(burst) })
    };
    inside("max").filter(|field| field.is_limit()).filter_map(ceiling).collect()
}

/// What a ceiling is about: `reads` for `max.read_iops`.
fn limited(field: &Field) -> Option<String> {
    let word = field.inner()?.split('_').next()?;
    Some(if word == "total" { word.into() } else { format!("{word}s") })
}

/// What ceilings are about.
#[cfg(test)]
fn ceilings_of() -> BTreeSet<String> {
    inside("max").filter(|field| field.is_limit()).filter_map(limited).collect()
}

/// Groups, and the share of each.
pub(super) type Shared<'a> = (&'a [(String, Contract)], Vec<Option<f64>>);

/// Groups that differ, by what is in force of them.
pub(super) fn changed(before: Shared<'_>, after: Shared<'_>) -> Vec<Changed> {
    let in_force = |(groups, shares): Shared<'_>| -> BTreeMap<String, InForce> {
        let all = groups.iter().zip(shares);
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
