//! Volumes and groups, and how they change while requests are on their way.

use iofair_config::contracts::faults::Faults;
use iofair_core::contract::Contract;
use iofair_core::controller::{Stack, Stage};
use iofair_core::group::{ClientId, GroupId};
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};

use super::Engine;
use super::stats::{Snapshot, VolumeSnapshot, VolumeStats};
use super::tally::GroupTally;
use crate::back::volume::{Map, PlannedVolume, Stamp, VolumeId};
use crate::request::export::Export;
use crate::request::op::Op;

/// How long things may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// A command, before its client is told that it failed.
    pub timeout: Nanos,
    /// The end of a server, before clients that do not read are left alone.
    pub drain: Nanos,
}

impl Default for Patience {
    fn default() -> Self {
        Self { timeout: Nanos::from_secs(30), drain: Nanos::from_secs(30) }
    }
}

/// What an engine shall be: every contract admitted, every volume placed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The policies.
    pub stack: Stack,
    /// Groups, parents first, with the weights that keep their minimums.
    pub groups: Vec<(String, Contract)>,
    /// Volumes.
    pub volumes: Vec<PlannedVolume>,
    /// Names of volumes that are not there any more and whose clients are sent away; clients of other
    /// volumes that are not there any more may stay until they leave.
    pub closed: Vec<String>,
    /// How long things may take.
    pub patience: Patience,
    /// Faults on purpose, for a back end that has some.
    pub faults: Faults,
}

/// A volume in service.
#[derive(Debug)]
pub struct Volume {
    plan: PlannedVolume,
    pub(super) client: ClientId,
    /// The group of its plan.
    pub(super) group: GroupId,
    /// Connections that chose it.
    connections: u32,
    /// Not in the contracts any more: no new connection.
    retired: bool,
    /// Its clients are sent away.
    closed: bool,
    stats: VolumeStats,
}

impl Volume {
    /// Is it the volume that a plan means? One that was deleted and made anew has the name, and another identity.
    fn is(&self, plan: &PlannedVolume) -> bool {
        self.plan.id == plan.id
    }
    /// Where its bytes lie.
    pub(super) fn map(&self) -> &Map {
        &self.plan.map
    }
    /// What its requests bear.
    pub(super) fn stamp(&self) -> &Stamp {
        &self.plan.stamp
    }
    /// Counts a finished request.
    pub(super) fn finished(&mut self, now: Instant, op: &Op) {
        self.stats.failed += u64::from(op.status != 0);
        if op.operation == Operation::Flush {
            self.stats.flushes += 1;
        } else {
            let latency = now.since(op.submitted);
            self.stats.count(op.operation.direction(), u64::from(op.length), latency);
        }
    }
}

/// What goes as soon as nothing of it is on its way.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    clients: Vec<ClientId>,
    groups: Vec<GroupId>,
    /// Retired volumes that may still have connections.
    volumes: bool,
}

impl Engine {
    /// The first volume that the plan makes shorter while a client has it open, if there is one: what that
    /// client was told would not be true any more.
    pub fn cuts(&self, plan: &Plan) -> Option<&str> {
        let cut = |volume: &Volume| {
            let new = plan.volumes.iter().find(|new| volume.is(new));
            volume.connections > 0 && new.is_some_and(|new| new.size < volume.plan.size)
        };
        let first = self.volumes.iter().find(|(_, volume)| cut(volume));
        first.map(|(_, volume)| volume.plan.name.as_str())
    }
    /// Makes groups, volumes and stack what the plan says. Requests on their way stay there. Returns the
    /// volumes with a new size.
    pub fn apply(&mut self, now: Instant, plan: &Plan) -> Vec<usize> {
        let mut resized = Vec::new();
        self.commands.timeout = plan.patience.timeout;
        self.back.set_faults(&plan.faults);
        if !same_stack(self.controller.stack(), &plan.stack) {
            self.controller.switch(now, plan.stack.clone());
            let tags = || super::tags(self.controller.facts(), &plan.stack);
            self.controller.set_tags(self.fixed_tags.unwrap_or_else(tags));
        }
        for (path, contract) in &plan.groups {
            self.apply_group(now, path, contract);
        }
        for volume in &plan.volumes {
            self.back.place(volume);
            resized.extend(self.apply_volume(now, volume));
        }
        for (_, volume) in &mut self.volumes {
            volume.retired = !plan.volumes.iter().any(|kept| volume.is(kept));
            volume.closed = volume.retired && plan.closed.contains(&volume.plan.name);
        }
        let known = |name: &str| plan.groups.iter().any(|(path, _)| path == name);
        let groups = self.controller.groups().iter();
        let gone = groups.filter(|(id, group)| *id != GroupId::ROOT && !known(&group.name));
        // Children have longer paths, so they go first.
        let mut gone: Vec<_> = gone.map(|(id, group)| (group.name.len(), id)).collect();
        gone.sort_unstable_by(|a, b| b.cmp(a));
        self.leaving.groups = gone.into_iter().map(|(_, id)| id).collect();
        self.leaving.volumes = self.volumes.iter().any(|(_, volume)| volume.retired);
        self.settle(now);
        resized
    }
    fn apply_group(&mut self, now: Instant, path: &str, contract: &Contract) {
        let changed = match self.controller.groups().find(path) {
            None => self.controller.add_group(now, path, contract.clone()).map(|id| {
                self.tallies.add(id, self.controller.groups());
            }),
            Some(id) if self.controller.groups().group(id).contract == *contract => Ok(()),
            Some(id) => self.controller.update_group(now, id, contract.clone()),
        };
        changed.expect("the plan's paths were checked, and the group was just found");
    }
    /// Returns the volume if it was there with another size.
    fn apply_volume(&mut self, now: Instant, plan: &PlannedVolume) -> Option<usize> {
        let groups = self.controller.groups();
        let group = groups.find(&plan.group).expect("every volume's group is in the plan");
        let known = self.volumes.iter_mut().find(|(_, volume)| volume.is(plan));
        if let Some((key, volume)) = known {
            if volume.plan.group != plan.group || volume.plan.stamp != plan.stamp {
                let priority = plan.stamp.priority;
                let moved = self.controller.update_client(now, volume.client, group, priority);
                moved.expect("a volume's client lives as long as the volume");
            }
            volume.group = group;
            let resized = volume.plan.size != plan.size;
            volume.plan = plan.clone();
            return resized.then_some(key);
        }
        let client = self.controller.add_client(now, group, plan.stamp.priority);
        self.volumes.insert(Volume {
            plan: plan.clone(),
            client: client.expect("the group was just found"),
            group,
            connections: 0,
            retired: false,
            closed: false,
            stats: VolumeStats::default(),
        });
        None
    }

    /// Lets go what is idle of volumes and groups that are not in the contracts any more.
    pub(super) fn settle(&mut self, now: Instant) {
        if self.leaving.volumes {
            let (leaving, back) = (&mut self.leaving.clients, &mut self.back);
            self.volumes.retain(|_, volume| {
                let goes = volume.retired && volume.connections == 0;
                if goes {
                    leaving.push(volume.client);
                    back.forget(&volume.plan);
                }
                !goes
            });
            self.leaving.volumes = self.volumes.iter().any(|(_, volume)| volume.retired);
        }
        let controller = &mut self.controller;
        self.leaving.clients.retain(|id| controller.remove_client(now, *id).is_err());
        self.leaving.groups.retain(|id| controller.remove_group(now, *id).is_err());
    }

    /// Every volume in service: name, group, connections, numbers.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = (&str, &str, u32, &VolumeStats)> {
        self.volumes.iter().map(|(_, volume)| {
            let Volume { plan, connections, stats, .. } = volume;
            (plan.name.as_str(), plan.group.as_str(), *connections, stats)
        })
    }
    /// The name of the volume that is this client of the controller.
    pub(crate) fn volume_of(&self, client: ClientId) -> Option<&str> {
        let mut volumes = self.volumes.iter().map(|(_, volume)| volume);
        let found = volumes.find(|volume| volume.client == client);
        found.map(|volume| volume.plan.name.as_str())
    }
    /// What a group got.
    pub(crate) fn tally(&self, group: GroupId) -> &GroupTally {
        self.tallies.get(group)
    }
    /// The volumes as clients see them, in the order of their ids, with their groups.
    pub fn exports(&self) -> Vec<(Export, GroupId)> {
        let rotational = self.back.facts().rotational;
        let open = self.volumes.iter().filter(|(_, volume)| !volume.retired);
        let export = |(key, volume): (usize, &Volume)| {
            let export = Export {
                id: key as u32,
                name: volume.plan.name.clone(),
                size: volume.plan.size,
                read_only: volume.plan.read_only,
                rotational,
                entry: volume.plan.entry.clone(),
                connections: 0,
            };
            (export, volume.group)
        };
        open.map(export).collect()
    }
    /// A client chose a volume.
    pub fn attach(&mut self, volume: usize) {
        self.volumes[volume].connections += 1;
    }
    /// A client that chose a volume is gone, and all its requests are finished.
    pub fn detach(&mut self, volume: usize) {
        self.volumes[volume].connections -= 1;
    }
    /// Clients that have it open, through whatever door.
    pub fn connections(&self, volume: usize) -> u32 {
        self.volumes[volume].connections
    }
    /// The group that pays for it.
    pub fn group(&self, volume: usize) -> GroupId {
        self.volumes[volume].group
    }
    /// A front end refused a request of a volume, which counts as one that failed.
    pub fn refused(&mut self, volume: usize) {
        let volume = &mut self.volumes[volume];
        volume.stats.failed += 1;
        self.tallies.refused(volume.group);
    }
    /// A group made the reactor work for so long.
    pub fn charge(&mut self, group: GroupId, time: Nanos) {
        self.tallies.charge(group, time);
    }
    /// Can no command, however late, meet the bytes of a volume that is gone?
    pub(crate) fn lets_go(&self, id: VolumeId) -> bool {
        self.commands.late() == 0 && !self.volumes.iter().any(|(_, volume)| volume.plan.id == id)
    }
    /// Its size in bytes.
    pub fn size(&self, volume: usize) -> u64 {
        self.volumes[volume].plan.size
    }
    /// Are a volume's clients sent away?
    pub fn is_closed(&self, volume: usize) -> bool {
        self.volumes[volume].closed
    }

    /// What passed; `since` is when counting began.
    pub fn snapshot(&self, now: Instant, since: Instant, busy_before: Nanos) -> Snapshot {
        let volume = |(_, volume): (usize, &Volume)| VolumeSnapshot {
            name: volume.plan.name.clone(),
            group: volume.plan.group.clone(),
            connections: volume.connections,
            stats: volume.stats.clone(),
        };
        let volumes: Vec<VolumeSnapshot> = self.volumes.iter().map(volume).collect();
        Snapshot {
            time: now.since(since),
            busy: self.busy_time(now).saturating_sub(busy_before),
            connections: volumes.iter().map(|volume| volume.connections as usize).sum(),
            pending: self.pending(),
            volumes,
        }
    }
    /// Time in which the drive had at least one command.
    pub fn busy_time(&self, now: Instant) -> Nanos {
        self.back.busy().unwrap_or_else(|| self.busy.total(now))
    }
    /// Forgets what passed on every volume.
    pub fn reset_stats(&mut self) {
        for (_, volume) in &mut self.volumes {
            volume.stats = VolumeStats::default();
        }
    }
}

fn same_stack(a: &Stack, b: &Stack) -> bool {
    let same = |(a, b): (&Stage, &Stage)| {
        let values = a.values.iter().map(|(_, value)| value);
        values.eq(b.values.iter().map(|(_, value)| value))
    };
    a.name() == b.name()
        && a.throttles.iter().zip(&b.throttles).all(same)
        && same((&a.scheduler, &b.scheduler))
}
