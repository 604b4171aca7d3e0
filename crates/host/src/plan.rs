//! From contracts to writes. Reads the machine, writes nothing.

use std::collections::BTreeMap;

use iofair_config::contracts::host::HostContracts;
use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::contract::{Contract, Rate};
use iofair_core::priority::Class;

use crate::device::Queue;
use crate::facts::Facts;
use crate::groups::Place;
pub use crate::planned::{Plan, Planned, Weights};
use crate::{Files, HostError, Slot, Version, Write, persist};

struct Planner<'a> {
    files: &'a dyn Files,
    contracts: &'a HostContracts,
    facts: &'a Facts,
    plan: Plan,
    /// Whether minimums became weights.
    admitted: bool,
}

/// Compares contracts with the machine.
///
/// # Errors
///
/// The scheduler does not exist, the minimums do not fit, or a file cannot be read.
pub fn plan(
    files: &dyn Files,
    contracts: &HostContracts,
    facts: &Facts,
) -> Result<Plan, HostError> {
    let (writes, notes, groups) = (Vec::new(), Vec::new(), Vec::new());
    let plan = Plan { writes, notes, groups, weights: Weights::Nothing };
    let mut planner = Planner { files, contracts, facts, plan, admitted: false };
    let weights = planner.weights()?;
    planner.plan.groups = planner.groups(&weights);
    planner.controllers()?;
    planner.queues()?;
    planner.costs()?;
    for (path, weight) in &weights {
        planner.weight(path, *weight)?;
    }
    for (group, place) in planner.plan.groups.clone().iter().zip(&facts.places) {
        planner.group(group, place)?;
    }
    persist::plan(files, facts, &weights, &mut planner.plan)?;
    planner.device_notes();
    planner.plan.notes.dedup();
    Ok(planner.plan)
}

fn shown(rate: u64) -> String {
    Rate(rate).to_string()
}

impl Planner<'_> {
    fn note(&mut self, text: String) {
        self.plan.notes.push(text);
    }
    /// Adds a write unless the file holds the value already and was not written by us.
    fn write(
        &mut self,
        file: String,
        slot: Slot,
        after: impl Into<String>,
        why: impl Into<String>,
    ) -> Result<(), HostError> {
        let write = Write::new(self.files, file, slot, after, why)?;
        self.plan.writes.push(write);
        Ok(())
    }
    fn is_cgroup_v2(&self) -> bool {
        self.facts.hierarchy.version == Version::Two
    }

    /// What enforces weights, and the weight of each group and of groups above whose weight matters.
    fn weights(&mut self) -> Result<BTreeMap<String, u32>, HostError> {
        let groups = &self.contracts.groups;
        let needed = groups
            .iter()
            .any(|group| group.contract.weight != WEIGHT_DEFAULT || group.contract.min.is_some());
        let scheduler = self.contracts.scheduler;
        if let Some(name) = scheduler.filter(|name| !self.facts.has_scheduler(name)) {
            let known: Vec<&str> =
                self.facts.device.queues[0].schedulers.iter().map(String::as_str).collect();
            let message =
                format!("this kernel has no scheduler {name} for {}", self.facts.device.name);
            let error = self.contracts.scheduler_error(message);
            return Err(error.allowed(known.join(", ")).near(name, known.iter().copied()).into());
        }
        let cost = self.is_cgroup_v2()
            && self.files.read(&self.facts.hierarchy.path("io.cost.qos")).is_ok();
        if self.contracts.cost.is_some() && !cost {
            let message = "this kernel has no io.cost (cgroup v2, CONFIG_BLK_CGROUP_IOCOST)";
            let error = self.contracts.back_error(message);
            return Err(error.allowed("`scheduler = \"bfq\"` instead of `cost`").into());
        }
        let all_use_bfq = self.facts.device.queues.iter().all(|queue| queue.scheduler == "bfq");
        self.plan.weights = match scheduler {
            _ if self.contracts.cost.is_some() => Weights::Cost,
            Some("bfq") => Weights::Bfq,
            Some(_) => Weights::Nothing,
            None if !needed && all_use_bfq => Weights::Bfq,
            None if !needed => Weights::Nothing,
            None if self.facts.has_scheduler("bfq") => Weights::Bfq,
            None if cost => Weights::Cost,
            None => Weights::Nothing,
        };
        if needed && self.plan.weights == Weights::Nothing {
            self.note(
                "weights and minimums: nothing on this machine enforces weights with this scheduler; bfq or io.cost would".to_owned()
            );
        }
        let pairs = groups.iter().zip(&self.facts.places);
        let pairs = pairs.map(|(group, place)| (place.path.as_str(), &group.contract));
        let mut weights = BTreeMap::new();
        match self.contracts.admit(pairs.clone())? {
            Some(admitted) => {
                self.admitted = true;
                for (path, contract) in admitted {
                    let listed = self.facts.places.iter().any(|place| place.path == path);
                    if listed || contract.weight != WEIGHT_DEFAULT {
                        weights.insert(path, contract.weight);
                    }
                }
            }
            None => weights.extend(pairs.map(|(path, group)| (path.to_owned(), group.weight))),
        }
        Ok(weights)
    }
    fn groups(&self, weights: &BTreeMap<String, u32>) -> Vec<Planned> {
        let pairs = self.contracts.groups.iter().zip(&self.facts.places);
        let of = |(group, place): (&iofair_config::contracts::host::HostGroup, &Place)| {
            let weight = weights.get(&place.path).copied().unwrap_or(group.contract.weight);
            let contract = Contract { weight, ..group.contract.clone() };
            Planned { name: group.name.clone(), path: place.path.clone(), contract }
        };
        pairs.map(of).collect()
    }

    /// Version 2: each group above passes the controller on.
    fn controllers(&mut self) -> Result<(), HostError> {
        if !self.is_cgroup_v2() {
            return Ok(());
        }
        let mut above: Vec<String> = Vec::new();
        for place in self.facts.places.iter().filter(|place| place.exists) {
            let ends = place.path.match_indices('/').map(|slash| place.path[..slash.0].to_owned());
            above.extend([String::new()].into_iter().chain(ends));
        }
        above.sort();
        above.dedup();
        for group in above {
            let file = format!("{}/cgroup.subtree_control", self.facts.hierarchy.path(&group));
            let slot = Slot::Word { word: "io".to_owned() };
            let why = "groups below have I/O controls only if each group above passes the io controller on.";
            self.write(file, slot, "io", why)?;
        }
        Ok(())
    }

    /// The scheduler of each queue, and its settings.
    fn queues(&mut self) -> Result<(), HostError> {
        for queue in self.facts.device.queues.clone() {
            let (wanted, why) = match (self.contracts.scheduler, self.plan.weights) {
                (Some(name), _) => (name, "the contracts name this scheduler."),
                (None, Weights::Bfq) => (
                    "bfq",
                    "bfq is the scheduler that divides a drive between groups by their weights.",
                ),
                (None, Weights::Cost) if queue.scheduler == "bfq" => {
                    ("none", "io.cost enforces the weights; bfq would enforce them a second time.")
                }
                (None, _) => continue,
            };
            self.write(format!("{}/queue/scheduler", queue.sys), Slot::Choice, wanted, why)?;
            if wanted == "bfq" {
                self.bfq(&queue)?;
            }
        }
        Ok(())
    }
    fn bfq(&mut self, queue: &Queue) -> Result<(), HostError> {
        let file = format!("{}/queue/iosched/low_latency", queue.sys);
        let why = "low_latency raises the weight of processes that look interactive up to thirty times, whatever the \
                   contracts say.";
        self.write(file, Slot::Whole, "0", why)
    }
    /// `io.cost` of each queue, in the root group.
    fn costs(&mut self) -> Result<(), HostError> {
        if self.plan.weights != Weights::Cost {
            return Ok(());
        }
        let cost = self.contracts.cost.clone().unwrap_or_default();
        if cost.model.is_none() {
            let text = "weights: io.cost has no model of this drive and uses the kernel's, which can be far off; give one as \
                        `cost = { model = \"...\" }`";
            self.note(text.to_owned());
        }
        let root = self.facts.hierarchy.path("");
        for queue in self.facts.device.queues.clone() {
            let key = queue.number.clone();
            if let Some(model) = &cost.model {
                let user = if model.contains("ctrl=") { "" } else { "ctrl=user " };
                let slot = Slot::Keyed { key: key.clone(), absent: "ctrl=auto".to_owned() };
                let why = "io.cost charges each request what this model says.";
                self.write(format!("{root}/io.cost.model"), slot, format!("{user}{model}"), why)?;
            }
            let (qos, user) = match &cost.qos {
                Some(qos) => {
                    (format!(" {qos}"), if qos.contains("ctrl=") { "" } else { " ctrl=user" })
                }
                None => (String::new(), ""),
            };
            let slot = Slot::Keyed { key, absent: "enable=0".to_owned() };
            let why = "io.cost divides the drive's time by weight, with any scheduler but bfq.";
            self.write(format!("{root}/io.cost.qos"), slot, format!("enable=1{user}{qos}"), why)?;
        }
        Ok(())
    }

    /// The weight of a group on each queue.
    fn weight(&mut self, path: &str, weight: u32) -> Result<(), HostError> {
        let place = self.facts.hierarchy.path(path);
        if !self.files.is_directory(&place) {
            return Ok(());
        }
        let group = self.plan.groups.iter().find(|group| group.path == path);
        let promised = group.and_then(|group| group.contract.min);
        let written = self.contracts.groups.iter().zip(&self.facts.places);
        let written =
            written.into_iter().find(|pair| pair.1.path == path).map(|pair| pair.0.contract.weight);
        let why = match (written, promised) {
            (Some(written), Some(min)) if written != weight => format!(
                "with {weight} instead of {written} the group keeps {} when all groups of the file want everything.",
                shown(min)
            ),
            (Some(written), None) if written != weight => format!(
                "all weights beside a minimum are scaled with it, from {written} here; the proportions of the others stay."
            ),
            (Some(_), _) => {
                "the group's share of what its siblings want, relative to their weights.".to_owned()
            }
            (None, _) => {
                "groups below have minimums, which need this part of the level above.".to_owned()
            }
        };
        let (file, keyed) = match (self.plan.weights, self.is_cgroup_v2()) {
            (Weights::Nothing, _) => return Ok(()),
            (Weights::Cost, _) => ("io.weight", true),
            (Weights::Bfq, true) => ("io.bfq.weight", self.facts.device_weights),
            // Not `blkio.bfq.weight`: writing it erases the weights of all devices.
            (Weights::Bfq, false) if self.facts.device_weights => ("blkio.bfq.weight_device", true),
            (Weights::Bfq, false) => ("blkio.bfq.weight", false),
        };
        let file = format!("{place}/{file}");
        if !keyed {
            return self.write(file, Slot::Whole, weight.to_string(), why);
        }
        for queue in self.facts.device.queues.clone() {
            let slot = Slot::Keyed { key: queue.number, absent: "default".to_owned() };
            self.write(file.clone(), slot, weight.to_string(), why.clone())?;
        }
        Ok(())
    }

    /// Ceilings, latency and class of a group.
    fn group(&mut self, group: &Planned, place: &Place) -> Result<(), HostError> {
        let Planned { name, contract, .. } = group;
        if let Some(min) = contract.min {
            let min = shown(min);
            self.note(match (self.admitted, self.plan.weights) {
                (_, Weights::Nothing) => format!("min of {name}: Linux has no minimums; only `iofair host watch` keeps {min}"),
                (true, _) => format!(
                    "min of {name}: Linux has no minimums; the weight keeps {min} only as far as `worst_case` or `alone` is right and no \
                     group outside of the file competes, and `iofair host watch` keeps it by control"
                ),
                (false, _) => format!(
                    "min of {name}: Linux has no minimums, and without `worst_case` in [drive] or `alone` its weight stays as written; \
                     `iofair host watch` keeps {min}"
                ),
            });
        }
        if !place.exists {
            self.note(format!("{name} does not run now; its contract holds from its next start"));
            return Ok(());
        }
        let directory = self.facts.hierarchy.path(&group.path);
        self.ceilings(contract, &directory)?;
        self.latency(group, &directory)?;
        self.class(group, &directory)
    }
    fn ceilings(&mut self, contract: &Contract, directory: &str) -> Result<(), HostError> {
        let limits: Vec<Option<u64>> =
            contract.max.bytes_per_s.into_iter().chain(contract.max.iops).collect();
        let names = self.facts.hierarchy.ceilings();
        let key = self.facts.device.number.clone();
        let why = "the group's ceiling for reads and writes of this device.";
        if limits.iter().all(Option::is_none) {
            return Ok(());
        }
        if self.is_cgroup_v2() {
            let pair = |(name, limit): (&str, &Option<u64>)| match limit {
                Some(limit) => format!("{name}={limit}"),
                None => format!("{name}=max"),
            };
            let value = names.into_iter().zip(&limits).map(pair).collect::<Vec<_>>().join(" ");
            let slot = Slot::Keyed { key, absent: NO_CEILING.to_owned() };
            return self.write(format!("{directory}/io.max"), slot, value, why);
        }
        for (name, limit) in names.into_iter().zip(limits) {
            let Some(limit) = limit else { continue };
            let slot = Slot::Keyed { key: key.clone(), absent: "0".to_owned() };
            self.write(format!("{directory}/{name}"), slot, limit.to_string(), why)?;
        }
        Ok(())
    }
    fn latency(&mut self, group: &Planned, directory: &str) -> Result<(), HostError> {
        let Some(latency) = group.contract.latency.read else { return Ok(()) };
        let (name, us) = (&group.name, latency.0.div_ceil(1000));
        if !self.is_cgroup_v2() {
            self.note(format!("latency of {name}: blkio of cgroup v1 has no latency targets"));
            return Ok(());
        }
        if self.lacks(directory, "io.latency") {
            self.note(format!(
                "latency of {name}: this kernel has no io.latency (CONFIG_BLK_CGROUP_IOLATENCY)"
            ));
            return Ok(());
        }
        self.note(format!(
            "latency of {name}: io.latency throttles groups beside it with higher targets or none when the target is missed; \
             it is no bound, and of several targets only the lowest is protected"
        ));
        for queue in self.facts.device.queues.clone() {
            let slot = Slot::Keyed { key: queue.number, absent: "target=0".to_owned() };
            let why =
                "when the target (in microseconds) is missed, groups beside it are throttled.";
            self.write(format!("{directory}/io.latency"), slot, format!("target={us}"), why)?;
        }
        Ok(())
    }
    /// Whether this kernel has no such file. Before the group above passes the controller on, v2 has none of them.
    fn lacks(&self, directory: &str, file: &str) -> bool {
        let is_there = |file: &str| self.files.read(&format!("{directory}/{file}")).is_ok();
        (!self.is_cgroup_v2() || is_there("io.max")) && !is_there(file)
    }
    fn class(&mut self, group: &Planned, directory: &str) -> Result<(), HostError> {
        let value = match group.contract.class {
            Class::BestEffort => return Ok(()),
            Class::RealTime => "promote-to-rt",
            Class::Idle => "idle",
        };
        let file = if self.is_cgroup_v2() { "io.prio.class" } else { "blkio.prio.class" };
        let lacks = self.lacks(directory, file);
        let file = format!("{directory}/{file}");
        if lacks {
            let name = &group.name;
            self.note(format!(
                "class of {name}: this kernel has no io.prio.class (CONFIG_BLK_CGROUP_IOPRIO)"
            ));
            return Ok(());
        }
        let why =
            "requests of the group have this I/O priority class, which bfq and mq-deadline honour.";
        self.write(file, Slot::Whole, value, why)
    }

    /// What the kind of device and hierarchy cannot do.
    fn device_notes(&mut self) {
        let device = &self.facts.device;
        let name = device.name.clone();
        let limited = self.plan.groups.iter().any(|group| group.contract.max != Default::default());
        let below: Vec<&str> = device.queues.iter().map(|queue| queue.name.as_str()).collect();
        let below = below.join(", ");
        let stacked = device.queues.iter().any(|queue| queue.name != device.name);
        if let Some(partition) = device.partition.clone() {
            self.note(format!("{partition}: controllers know whole disks only; the contracts hold for all of {name}"));
        }
        if stacked {
            self.note(format!(
                "{name}: ceilings hold on {name}; weights and latencies on {below}, for all that is stored there"
            ));
        }
        if self.facts.device.is_loop {
            self.note(format!(
                "{name}: a loop device schedules before its file does; the device below schedules a second time"
            ));
        }
        if !self.is_cgroup_v2() {
            self.note(
                "buffered writes: blkio of cgroup v1 charges them to the root group, so that no contract holds for them; \
                 direct I/O, reads and synchronous writes are controlled".to_owned()
            );
        }
        if limited {
            self.note("ceilings: io.max allows short bursts above the rate".to_owned());
        }
        if self.plan.weights == Weights::Bfq {
            self.note(
                "weights: bfq divides the drive's time, not its bytes, so a group with small random requests gets fewer bytes \
                 than its share".to_owned()
            );
        }
    }
}

/// Removes a group's line from `io.max`.
pub(crate) const NO_CEILING: &str = "rbps=max wbps=max riops=max wiops=max";

#[cfg(test)]
mod tests;
